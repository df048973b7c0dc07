/* After the first step Stator's own code allocates nothing; what libraries take inside a call is
 * measured here and stays within a stated bound. The test's own malloc counts every allocation of
 * the process. */
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/memory.h"
#include "stator/stator.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif

enum { LIBRARY_LIMIT_BYTES = 64 << 20 };

static _Atomic int64_t live_bytes, peak_bytes, n_allocations;

#ifndef SANITIZED
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *old, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);
extern void __libc_free(void *memory);

/* The tests are built with hidden symbols; libraries must find these. */
#define SEEN_BY_LIBRARIES __attribute__((visibility("default")))

static void *count(void *memory) {
    if (!memory) return NULL;
    int64_t now = atomic_fetch_add(&live_bytes, (int64_t)malloc_usable_size(memory)) +
                  (int64_t)malloc_usable_size(memory);
    atomic_fetch_add(&n_allocations, 1);
    int64_t peak = atomic_load(&peak_bytes);
    while (now > peak && !atomic_compare_exchange_weak(&peak_bytes, &peak, now)) {
    }
    return memory;
}
static void discount(void *memory) {
    if (memory) atomic_fetch_sub(&live_bytes, (int64_t)malloc_usable_size(memory));
}
SEEN_BY_LIBRARIES void *malloc(size_t bytes) {
    return count(__libc_malloc(bytes));
}
SEEN_BY_LIBRARIES void *calloc(size_t n, size_t bytes) {
    return count(__libc_calloc(n, bytes));
}
SEEN_BY_LIBRARIES void *realloc(void *old, size_t bytes) {
    discount(old);
    return count(__libc_realloc(old, bytes));
}
SEEN_BY_LIBRARIES void *memalign(size_t alignment, size_t bytes) {
    return count(__libc_memalign(alignment, bytes));
}
SEEN_BY_LIBRARIES void *aligned_alloc(size_t alignment, size_t bytes) {
    return count(__libc_memalign(alignment, bytes));
}
SEEN_BY_LIBRARIES int posix_memalign(void **out, size_t alignment, size_t bytes) {
    *out = count(__libc_memalign(alignment, bytes));
    return *out ? 0 : 12;
}
SEEN_BY_LIBRARIES void free(void *memory) {
    discount(memory);
    __libc_free(memory);
}
#endif

#define assert_ok(expr)                                                                      \
    do {                                                                                     \
        stator_status_t status_ = (expr);                                                    \
        if (status_ != STATOR_OK)                                                            \
            fail_msg("%s: %s: %s", #expr, stator_status_text(status_), stator_last_error()); \
    } while (0)

typedef struct model {
    const char *name;
    stator_status_t (*build)(const stator_options_t *options, int with_loss, stator_graph_t **out);
    const char *options[16];
} model_t;

static void check_model(const model_t *model) {
    stator_options_t *options = NULL;
    stator_graph_t *graph = NULL, *step = NULL;
    stator_plan_t *plan = NULL;
    stator_session_t *session = NULL;
    stator_tensor_t feeds[2];
    assert_ok(stator_options_create(&options));
    for (int i = 0; model->options[i]; i += 2)
        assert_ok(stator_options_set(options, model->options[i], model->options[i + 1]));
    assert_ok(model->build(options, 1, &graph));
    assert_ok(stator_graph_make_training(graph, options, &step));
    assert_ok(stator_plan_compile(step, options, NULL, &plan));
    assert_ok(stator_session_create(plan, NULL, &session));
    assert_ok(stator_session_initialize(session, options));
    assert_int_equal(stator_plan_count(plan, STATOR_INPUT), 2);
    for (size_t i = 0; i < 2; i++) {
        feeds[i] = stator_plan_at(plan, STATOR_INPUT, i);
        feeds[i].data = calloc(1, feeds[i].bytes);
    }
    assert_ok(stator_session_step(session, 2, feeds, 0, NULL));
    uint64_t own_before = st_memory_allocations();
    int64_t live_before = atomic_load(&live_bytes), calls_before = atomic_load(&n_allocations);
    assert_true(calls_before > 100); /* the counting is in place */
    atomic_store(&peak_bytes, live_before);
    for (int i = 0; i < 3; i++) assert_ok(stator_session_step(session, 2, feeds, 0, NULL));
    assert_int_equal(st_memory_allocations(), own_before);
    int64_t peak = atomic_load(&peak_bytes) - live_before;
    int64_t kept = atomic_load(&live_bytes) - live_before;
    print_message(
        "%s: libraries (%s) take at most %lld KiB inside a step, %lld allocations a step, and "
        "keep %lld bytes\n",
        model->name, stator_libraries(), (long long)peak >> 10,
        (long long)(atomic_load(&n_allocations) - calls_before) / 3, (long long)kept);
    assert_true(peak <= LIBRARY_LIMIT_BYTES);
    assert_true(kept <= 4096); /* nothing grows from step to step */
    for (size_t i = 0; i < 2; i++) free((void *)(uintptr_t)feeds[i].data);
    stator_session_destroy(session);
    stator_plan_destroy(plan);
    stator_graph_destroy(step);
    stator_graph_destroy(graph);
    stator_options_destroy(options);
}

static void only_libraries_allocate_after_the_first_step(void **state) {
    (void)state;
#ifdef SANITIZED
    print_message("skipped: sanitizers have an allocator of their own\n");
    skip();
#endif
    static const model_t models[] = {
        {"char Llama, 2 ranks",
         stator_graph_llama,
         {"config", STATOR_SOURCE_DIR "/examples/llama/char.json", "batch", "16", "seq", "128",
          "ranks", "2"}},
        {"ResNet-8, 2 ranks",
         stator_graph_resnet,
         {"depth", "8", "classes", "10", "channels", "1", "image", "28", "batch", "8", "ranks",
          "2"}},
    };
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) check_model(&models[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_libraries_allocate_after_the_first_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
