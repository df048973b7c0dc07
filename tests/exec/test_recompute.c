/* Recomputation changes no bit: losses, gradients' effect on parameters and moments, running
 * statistics and dropout masks are those of the plan that keeps everything, on any number of ranks;
 * and a limit of memory is kept. Freed memory is poisoned, so that what is read too late shows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "compile/recompute.h"
#include "exec/models.h"
#include "ir/build.h"

enum { N_STEPS = 3 };

static void same_bits(const ir_graph_t *graph, compile_options_t options, uint32_t least_nodes) {
    double *expected;
    options.no_fusion = true; /* whose groups, and so whose rounding, depend on what is kept */
    options.recompute = COMPILE_RECOMPUTE_OFF;
    plan_t *plan = compile_ok(graph, &options);
    assert_int_equal(plan->recompute.n_nodes, 0);
    size_t n = run_plan(plan, N_STEPS, &expected);
    plan_destroy(plan);
    for (int policy = COMPILE_RECOMPUTE_FUSED; policy <= COMPILE_RECOMPUTE_FULL; policy++) {
        double *values;
        options.recompute = (compile_recompute_t)policy;
        plan = compile_ok(graph, &options);
        assert_true(plan->recompute.n_nodes >= least_nodes);
        assert_int_equal(plan->recompute.n_products > 0, policy == COMPILE_RECOMPUTE_FULL);
        assert_int_equal(run_plan(plan, N_STEPS, &values), n);
        if (memcmp(values, expected, n * sizeof *values) != 0) {
            size_t i = 0;
            while (memcmp(&values[i], &expected[i], sizeof *values) == 0) i++;
            fail_msg("%s, policy %d, %u ranks: value %zu is %.17g, not %.17g", graph->name, policy,
                     options.n_ranks, i, values[i], expected[i]);
        }
        st_free(values);
        plan_destroy(plan);
    }
    st_free(expected);
}

static void same_bits_on_ranks(ir_graph_t *forward, const char *optimizer, int64_t accumulate,
                               uint32_t least_nodes) {
    ir_graph_t *graph = model_train_with(forward, optimizer, 1.0, accumulate, 0);
    for (uint32_t ranks = 1; ranks <= 3; ranks++)
        for (int wide = 0; wide < 2; wide++)
            same_bits(graph,
                      (compile_options_t){
                          .n_ranks = ranks, .n_threads = 1, .dtype = wide ? IR_F64 : IR_DTYPE_NONE},
                      least_nodes);
    ir_graph_destroy(graph);
    ir_graph_destroy(forward);
}

static void multilayer_perceptrons_train_to_the_same_bits(void **state) {
    (void)state;
    same_bits_on_ranks(model_mlp(6), "adamw", 1, 1);
}

/* With batch norm's running statistics, pooling and dropout. */
static void convolutions_train_to_the_same_bits(void **state) {
    (void)state;
    same_bits_on_ranks(model_conv(6), "sgd", 1, 2);
}

static void micro_batches_train_to_the_same_bits(void **state) {
    (void)state;
    same_bits_on_ranks(model_mlp(4), "sgd", 3, 2);
}

/* Norms, activations, dropout and residual sums, `n` layers of them. */
static ir_graph_t *model_deep(int64_t batch, int n) {
    ir_graph_t *graph = NULL;
    assert_int_equal(ir_graph_create("deep", &graph), ST_OK);
    ir_build_t b = {.graph = graph};
    const ir_type_t weight = ir_type_make(IR_F32, 2, (int64_t[]){32, 32});
    ir_value_t x = ir_b_input(&b, "x", ir_type_make(IR_F32, 2, (int64_t[]){batch, 32}), 0);
    ir_value_t step = ir_b_buffer(&b, "optim.step", ir_type_scalar(IR_I64));
    ir_value_t seed = ir_b_constant(&b, ir_type_scalar(IR_I64), &(int64_t){5}, sizeof(int64_t));
    for (int i = 0; i < n; i++) {
        char name[3][32];
        for (int k = 0; k < 3; k++) snprintf(name[k], sizeof name[k], "layer%d.w%d", i, k);
        ir_value_t scale = ir_b_parameter(&b, name[0], ir_type_make(IR_F32, 1, (int64_t[]){32}));
        ir_value_t h = ir_b_node(&b, IR_OP_RMS_NORM, 2, (ir_value_t[]){x, scale}, 0, NULL);
        h = ir_b_matmul(&b, h, ir_b_parameter(&b, name[1], weight), false, false);
        h = ir_b_unary(&b, IR_OP_SILU, h);
        h = ir_b_node(&b, IR_OP_DROPOUT, 3, (ir_value_t[]){h, seed, step}, 2,
                      (ir_arg_t[]){IR_ARG_FLOAT("p", 0.25), IR_ARG_INT("id", i)});
        h = ir_b_matmul(&b, h, ir_b_parameter(&b, name[2], weight), false, false);
        x = ir_b_binary(&b, IR_OP_ADD, x, h);
    }
    ir_b_output(
        &b, "loss",
        ir_b_reduce(&b, IR_OP_REDUCE_MEAN, ir_b_unary(&b, IR_OP_SQUARE, x), 0, NULL, false));
    assert_int_equal(b.status, ST_OK);
    return graph;
}

static void deep_networks_train_to_the_same_bits(void **state) {
    (void)state;
    same_bits_on_ranks(model_deep(5, 4), "adamw", 1, 12);
}

/* ---- limits of memory ---- */

static uint64_t bytes_with(const ir_graph_t *graph, compile_options_t options, double *out_us) {
    plan_t *plan = compile_ok(graph, &options);
    uint64_t bytes = compile_rank_bytes(plan);
    if (out_us) *out_us = plan->recompute.extra_us;
    assert_int_equal(plan_check(plan), ST_OK);
    plan_destroy(plan);
    return bytes;
}

static void limits_are_kept_and_lower_ones_take_no_less_time(void **state) {
    (void)state;
    enum { N_LIMITS = 16 };
    ir_graph_t *forward = model_deep(512, 12), *graph = model_train(forward, "sgd", 0);
    compile_options_t options = {.n_ranks = 1, .n_threads = 1, .no_fusion = true};
    uint64_t most = bytes_with(graph, options, NULL);
    options.recompute = COMPILE_RECOMPUTE_FULL;
    uint64_t least = bytes_with(graph, options, NULL);
    assert_true(least < most * 3 / 4);
    options.recompute = COMPILE_RECOMPUTE_AUTO;
    double before = 0;
    for (int i = 0; i <= N_LIMITS; i++) {
        double us;
        options.memory_limit = most - (most - least) * (uint64_t)i / N_LIMITS;
        assert_true(bytes_with(graph, options, &us) <= options.memory_limit);
        assert_true(us >= before);
        assert_true(i != 1 || us > 0);
        before = us;
    }

    /* far less: more ranks hold less of the batch each */
    plan_t *plan;
    options.memory_limit = least / 2;
    assert_int_equal(compile_plan(graph, &options, &plan), ST_DOES_NOT_FIT);
    assert_null(plan);
    unsigned ranks;
    const char *advice = strstr(st_last_error(), "GiB; ");
    assert_non_null(advice);
    assert_int_equal(sscanf(advice, "GiB; %u ranks (now 1)", &ranks), 1);
    options.n_ranks = ranks;
    assert_true(bytes_with(graph, options, NULL) <= options.memory_limit);
    options.n_ranks = ranks - 1;
    options.no_advice = true;
    assert_int_equal(compile_plan(graph, &options, &plan), ST_DOES_NOT_FIT);
    assert_null(strstr(st_last_error(), "ranks"));
    options.n_ranks = 1;
    options.no_advice = false;
    options.memory_limit = 1000; /* out of reach */
    assert_int_equal(compile_plan(graph, &options, &plan), ST_DOES_NOT_FIT);
    assert_null(strstr(st_last_error(), "ranks"));
    ir_graph_destroy(graph);
    ir_graph_destroy(forward);
}

/* A plan that fits as it is stays what it is. */
static void limits_that_are_met_change_nothing(void **state) {
    (void)state;
    ir_graph_t *forward = model_conv(8), *graph = model_train(forward, "adamw", 1.0);
    compile_options_t options = {.n_ranks = 2, .n_threads = 1};
    plan_t *plain = compile_ok(graph, &options);
    options.memory_limit = compile_rank_bytes(plain);
    plan_t *limited = compile_ok(graph, &options);
    for (uint32_t p = 0; p < plain->n_programs; p++) {
        const plan_program_t *a = &plain->programs[p], *b = &limited->programs[p];
        assert_int_equal(a->graph->values.n, b->graph->values.n);
        for (ir_value_t v = 0; v < a->graph->values.n; v++)
            assert_true(a->places[v].offset == b->places[v].offset);
    }
    plan_destroy(plain);
    plan_destroy(limited);
    ir_graph_destroy(graph);
    ir_graph_destroy(forward);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(multilayer_perceptrons_train_to_the_same_bits),
        cmocka_unit_test(convolutions_train_to_the_same_bits),
        cmocka_unit_test(micro_batches_train_to_the_same_bits),
        cmocka_unit_test(deep_networks_train_to_the_same_bits),
        cmocka_unit_test(limits_are_kept_and_lower_ones_take_no_less_time),
        cmocka_unit_test(limits_that_are_met_change_nothing),
    };
    setenv("STATOR_POISON", "1", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
