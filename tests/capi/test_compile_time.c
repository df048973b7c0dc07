/* Making the training step of a 12-layer Llama (160 M parameters, batch 32 x 1024) takes under a
 * second, from the model's graph to the plan, on one rank and on four. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "stator/stator.h"
#include "support/clock.h"

#define assert_ok(expr)                                                                      \
    do {                                                                                     \
        stator_status_t status_ = (expr);                                                    \
        if (status_ != STATOR_OK)                                                            \
            fail_msg("%s: %s: %s", #expr, stator_status_text(status_), stator_last_error()); \
    } while (0)

static const char config[] =
    "{\"model_type\": \"llama\", \"vocab_size\": 32000, \"hidden_size\": 768, "
    "\"intermediate_size\": 2048,"
    " \"num_hidden_layers\": 12, \"num_attention_heads\": 12, \"num_key_value_heads\": 12,"
    " \"max_position_embeddings\": 1024, \"hidden_act\": \"silu\"}";

static void check(const char *path, const char *ranks) {
    stator_options_t *options = NULL;
    stator_graph_t *graph = NULL, *step = NULL;
    stator_plan_t *plan = NULL;
    const char *const pairs[] = {"config", path,   "batch", "32",       "seq",    "1024",  "ranks",
                                 ranks,    "clip", "1.0",   "schedule", "cosine", "steps", "1000"};
    assert_ok(stator_options_create(&options));
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i += 2)
        assert_ok(stator_options_set(options, pairs[i], pairs[i + 1]));
    double begin = processor_seconds();
    assert_ok(stator_graph_llama(options, 1, &graph));
    assert_ok(stator_graph_make_training(graph, options, &step));
    assert_ok(stator_plan_compile(step, options, NULL, &plan));
    double taken = processor_seconds() - begin;
    stator_plan_info_t info = stator_plan_info(plan);
    print_message("%s ranks: %.0f ms for %u kernels a step\n", ranks, taken * 1e3, info.n_kernels);
    assert_true(info.n_kernels > 500);
#if defined(NDEBUG) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    assert_true(taken < 1);
#endif
    stator_plan_destroy(plan);
    stator_graph_destroy(step);
    stator_graph_destroy(graph);
    stator_options_destroy(options);
}

static void a_12_layer_llama_compiles_in_under_a_second(void **state) {
    (void)state;
    char path[] = "/tmp/stator-config-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, config, sizeof config - 1), sizeof config - 1);
    close(fd);
    check(path, "1");
    check(path, "4");
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_12_layer_llama_compiles_in_under_a_second),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
