/* A trained Llama from ../shared/data through the public API: its logits for 256 tokens against
 * those of the reference implementation, to 1e-4 absolute (float32, five layers). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "stator/stator.h"

#define assert_ok(expr)                                                                      \
    do {                                                                                     \
        stator_status_t status_ = (expr);                                                    \
        if (status_ != STATOR_OK)                                                            \
            fail_msg("%s: %s: %s", #expr, stator_status_text(status_), stator_last_error()); \
    } while (0)

#define DATA STATOR_SHARED_DIR "/data/stories260K"

enum { TOKENS = 256, VOCABULARY = 512 };
static const double tolerance = 1e-4;

static int64_t token_at(const stator_tensor_t *tokens, size_t i) {
    if (tokens->dtype == STATOR_DTYPE_I64) return ((const int64_t *)tokens->data)[i];
    assert_int_equal(tokens->dtype, STATOR_DTYPE_I32);
    return ((const int32_t *)tokens->data)[i];
}

static void check_logits(const char *threads, const char *dtype) {
    stator_options_t *options = NULL;
    stator_graph_t *graph = NULL;
    stator_plan_t *plan = NULL;
    stator_session_t *session = NULL;
    stator_tensors_t *weights = NULL, *reference = NULL;
    stator_tensor_t tokens, expected;
    assert_ok(stator_tensors_load(DATA ".reference.safetensors", &reference));
    assert_ok(stator_tensors_load(DATA ".safetensors", &weights));
    assert_ok(stator_tensors_find(reference, "tokens", &tokens));
    assert_ok(stator_tensors_find(reference, "logits", &expected));
    assert_int_equal(expected.bytes, sizeof(float) * TOKENS * VOCABULARY);
    assert_ok(stator_options_create(&options));
    assert_ok(stator_options_set(options, "config", DATA ".config.json"));
    assert_ok(stator_options_set(options, "batch", "1"));
    assert_ok(stator_options_set(options, "seq", "256"));
    assert_ok(stator_options_set(options, "mode", "eval"));
    assert_ok(stator_options_set(options, "threads", threads));
    assert_ok(stator_options_set(options, "dtype", dtype));
    assert_ok(stator_graph_llama(options, 0, &graph));
    assert_ok(stator_plan_compile(graph, options, NULL, &plan));
    assert_ok(stator_session_create(plan, NULL, &session));
    assert_ok(stator_session_load(session, weights));
    int64_t ids[TOKENS];
    for (size_t i = 0; i < TOKENS; i++) ids[i] = token_at(&tokens, i);
    stator_tensor_t feed = {.name = "x", .dtype = STATOR_DTYPE_I64, .rank = 2, .dims = {1, TOKENS}};
    feed.data = ids;
    feed.bytes = sizeof ids;
    stator_tensor_t logits = stator_plan_at(plan, STATOR_OUTPUT, 0);
    assert_string_equal(logits.name, "logits");
    void *got = malloc(logits.bytes);
    stator_fetch_t fetch = {"logits", got, logits.bytes};
    assert_ok(stator_session_step(session, 1, &feed, 1, &fetch));
    double largest = 0;
    for (size_t i = 0; i < TOKENS * VOCABULARY; i++) {
        double given =
            logits.dtype == STATOR_DTYPE_F64 ? ((double *)got)[i] : (double)((float *)got)[i];
        double wanted = (double)((const float *)expected.data)[i],
               difference = fabs(given - wanted);
        if (!(difference <= tolerance))
            fail_msg("%s, token %zu, logit %zu: %.7g instead of %.7g", dtype, i / VOCABULARY,
                     i % VOCABULARY, given, wanted);
        if (difference > largest) largest = difference;
    }
    print_message("%s, %s threads: largest difference %.2g\n", dtype, threads, largest);
    free(got);
    stator_session_destroy(session);
    stator_plan_destroy(plan);
    stator_graph_destroy(graph);
    stator_options_destroy(options);
    stator_tensors_destroy(weights);
    stator_tensors_destroy(reference);
}

static void logits_agree_with_the_reference(void **state) {
    (void)state;
    if (access(DATA ".safetensors", R_OK) != 0) {
        print_message("skipped: " DATA ".safetensors is absent\n");
        skip();
    }
    check_logits("1", "auto");
    check_logits("2", "auto");
    check_logits("1", "f64");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(logits_agree_with_the_reference)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
