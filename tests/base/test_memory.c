/* The one door to the heap: failure injection, alignment, checked arithmetic. */
#include "base/memory.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void zero_bytes_give_distinct_pointers(void **state) {
    (void)state;
    void *a = st_malloc(0), *b = st_malloc(0), *c = st_calloc(0, 8), *d = st_aligned_alloc(64, 0);
    assert_non_null(a);
    assert_non_null(b);
    assert_non_null(c);
    assert_non_null(d);
    assert_ptr_not_equal(a, b);
    st_free(a);
    st_free(b);
    st_free(c);
    st_free(d);
    st_free(NULL);
}

static void aligned_memory_is_aligned(void **state) {
    (void)state;
    for (size_t alignment = sizeof(void *); alignment <= 4096; alignment *= 2) {
        for (size_t bytes = 1; bytes < 300; bytes += 37) {
            unsigned char *memory = st_aligned_alloc(alignment, bytes);
            assert_non_null(memory);
            assert_int_equal((uintptr_t)memory % alignment, 0);
            memset(memory, 0xA5, bytes);
            st_free(memory);
        }
    }
    assert_null(st_aligned_alloc(64, SIZE_MAX));
}

static void calloc_zeroes_and_refuses_overflow(void **state) {
    (void)state;
    unsigned char *memory = st_calloc(100, 7);
    assert_non_null(memory);
    for (int i = 0; i < 700; i++) assert_int_equal(memory[i], 0);
    st_free(memory);
    volatile size_t huge = (size_t)1 << 63;
    assert_null(st_calloc(huge, 2));
}

/* Each kind of call, at each countdown: exactly the one with that index fails. */
static void countdown_hits_one_allocation(void **state) {
    (void)state;
    for (int64_t countdown = 0; countdown < 5; countdown++) {
        st_memory_fail_after(countdown, false);
        void *got[5];
        got[0] = st_malloc(8);
        got[1] = st_calloc(1, 8);
        got[2] = st_realloc(NULL, 8);
        got[3] = st_aligned_alloc(64, 8);
        got[4] = st_strdup("text");
        st_memory_fail_after(-1, false);
        for (int64_t i = 0; i < 5; i++) {
            assert_int_equal(got[i] == NULL, i == countdown);
            st_free(got[i]);
        }
    }
}

static void sticky_failure_lasts(void **state) {
    (void)state;
    st_memory_fail_after(1, true);
    void *first = st_malloc(8);
    assert_non_null(first);
    for (int i = 0; i < 10; i++) assert_null(st_malloc(8));
    st_memory_fail_after(-1, false);
    void *after = st_malloc(8);
    assert_non_null(after);
    st_free(first);
    st_free(after);
}

static void failed_realloc_keeps_the_old_block(void **state) {
    (void)state;
    char *text = st_strdup("still here");
    assert_non_null(text);
    st_memory_fail_after(0, false);
    assert_null(st_realloc(text, 1000));
    st_memory_fail_after(-1, false);
    assert_string_equal(text, "still here");
    st_free(text);
}

enum { THREADS = 4, EACH = 1000 };
static void *allocate_many(void *failures) {
    for (int i = 0; i < EACH; i++) {
        void *memory = st_malloc(16);
        if (!memory) ++*(int *)failures;
        st_free(memory);
    }
    return NULL;
}

/* The count and the countdown are shared: over all threads one allocation fails, none twice. */
static void countdown_counts_all_threads(void **state) {
    (void)state;
    pthread_t threads[THREADS];
    int failures[THREADS] = {0};
    uint64_t before = st_memory_allocations();
    st_memory_fail_after(THREADS * EACH / 2, false);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, allocate_many, &failures[i]), 0);
    }
    int total = 0;
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        total += failures[i];
    }
    st_memory_fail_after(-1, false);
    assert_int_equal(total, 1);
    assert_int_equal(st_memory_allocations() - before, THREADS * EACH);
}

static void no_memory_names_size_and_purpose(void **state) {
    (void)state;
    assert_int_equal(st_no_memory(4096, "the plan's state region"), ST_NO_MEMORY);
    assert_non_null(strstr(st_last_error(), "4096"));
    assert_non_null(strstr(st_last_error(), "the plan's state region"));
}

static void arithmetic_reports_overflow(void **state) {
    (void)state;
    size_t size = 0;
    int64_t number = 0;
    assert_true(st_mul_size(SIZE_MAX / 2, 2, &size));
    assert_int_equal(size, SIZE_MAX - 1);
    assert_false(st_mul_size(SIZE_MAX / 2 + 1, 2, &size));
    assert_true(st_add_size(SIZE_MAX - 1, 1, &size));
    assert_int_equal(size, SIZE_MAX);
    assert_false(st_add_size(SIZE_MAX, 1, &size));
    assert_true(st_mul_i64(INT64_MAX, -1, &number));
    assert_int_equal(number, -INT64_MAX);
    assert_false(st_mul_i64(INT64_MIN, -1, &number));
    assert_true(st_add_i64(INT64_MAX, INT64_MIN, &number));
    assert_int_equal(number, -1);
    assert_false(st_add_i64(INT64_MAX, 1, &number));
    assert_int_equal(st_align_up(0, 64), 0);
    assert_int_equal(st_align_up(1, 64), 64);
    assert_int_equal(st_align_up(64, 64), 64);
    assert_int_equal(st_align_up(65, 64), 128);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zero_bytes_give_distinct_pointers),
        cmocka_unit_test(aligned_memory_is_aligned),
        cmocka_unit_test(calloc_zeroes_and_refuses_overflow),
        cmocka_unit_test(countdown_hits_one_allocation),
        cmocka_unit_test(sticky_failure_lasts),
        cmocka_unit_test(failed_realloc_keeps_the_old_block),
        cmocka_unit_test(countdown_counts_all_threads),
        cmocka_unit_test(no_memory_names_size_and_purpose),
        cmocka_unit_test(arithmetic_reports_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
