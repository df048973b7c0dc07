#include "exec/recompute_checks.h"

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
#include "ir/body.h"
#include "ir/build.h"

enum { N_STEPS = 2 };

void same_bits(const ir_graph_t *graph, compile_options_t options, uint32_t least_nodes) {
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

void same_bits_on_ranks(ir_graph_t *forward, const char *optimizer, int64_t accumulate,
                        uint32_t least_nodes) {
    ir_graph_t *graph = model_train_with(forward, optimizer, 1.0, accumulate, 0);
    for (uint32_t ranks = 1; ranks <= 3; ranks++)
        same_bits(graph,
                  (compile_options_t){.n_ranks = ranks,
                                      .n_threads = 1,
                                      .dtype = ranks == 2 ? IR_F64 : IR_DTYPE_NONE,
                                      .no_fusion = ranks == 3},
                  least_nodes);
    ir_graph_destroy(graph);
    ir_graph_destroy(forward);
}

ir_graph_t *model_deep(int64_t batch, int n) {
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

ir_graph_t *model_recurrent(int64_t batch, int n) {
    ir_graph_t *graph = NULL;
    assert_int_equal(ir_graph_create("recurrent", &graph), ST_OK);
    ir_build_t b = {.graph = graph};
    enum { STEPS = 16, WIDTH_R = 16 };
    const ir_type_t weight = ir_type_make(IR_F32, 2, (int64_t[]){WIDTH_R, WIDTH_R});
    const ir_type_t item = ir_type_make(IR_F32, 2, (int64_t[]){batch, WIDTH_R});
    ir_value_t x = ir_b_input(&b, "x", ir_type_add_first(&item, STEPS), 1);
    for (int i = 0; i < n; i++) {
        char name[2][32];
        for (int k = 0; k < 2; k++) snprintf(name[k], sizeof name[k], "layer%d.w%d", i, k);
        ir_value_t w = ir_b_parameter(&b, name[0], weight), u = ir_b_parameter(&b, name[1], weight);
        ir_build_t in = {0};
        assert_int_equal(ir_graph_create("", &in.graph), ST_OK);
        ir_value_t h = ir_b_body_input(&in, &item), slice = ir_b_body_input(&in, &item);
        ir_value_t bw = ir_b_body_input(&in, &weight), bu = ir_b_body_input(&in, &weight);
        ir_value_t sum = ir_b_binary(&in, IR_OP_ADD, ir_b_matmul(&in, slice, bw, false, false),
                                     ir_b_matmul(&in, h, bu, false, false));
        ir_value_t next = ir_b_unary(&in, IR_OP_TANH, sum);
        ir_b_body_output(&in, next);
        ir_b_body_output(&in, next);
        assert_int_equal(in.status, ST_OK);
        ir_value_t operands[] = {ir_b_splat(&b, item, 0), x, w, u};
        ir_value_t first =
            ir_b_node(&b, IR_OP_REPEAT, 4, operands, 4,
                      (ir_arg_t[]){IR_ARG_GRAPH("body", in.graph), IR_ARG_INT("trip", STEPS),
                                   IR_ARG_INT("carried", 1), IR_ARG_INT("scanned", 1)});
        ir_graph_destroy(in.graph);
        x = ir_b_unary(&b, IR_OP_SIN, first + 1);
    }
    ir_b_output(
        &b, "loss",
        ir_b_reduce(&b, IR_OP_REDUCE_MEAN, ir_b_unary(&b, IR_OP_SQUARE, x), 0, NULL, false));
    assert_int_equal(b.status, ST_OK);
    return graph;
}

static uint64_t bytes_with(const ir_graph_t *graph, compile_options_t options, double *out_us) {
    plan_t *plan = compile_ok(graph, &options);
    uint64_t bytes = compile_rank_bytes(plan);
    if (out_us) *out_us = plan->recompute.extra_us;
    assert_int_equal(plan_check(plan), ST_OK);
    plan_destroy(plan);
    return bytes;
}

void keep_limits(ir_graph_t *forward, int64_t accumulate, double saved) {
    enum { N_LIMITS = 6 };
    ir_graph_t *graph = model_train_with(forward, "sgd", 0, accumulate, 0);
    compile_options_t options = {.n_ranks = 1, .n_threads = 1, .no_fusion = true};
    uint64_t most = bytes_with(graph, options, NULL);
    options.recompute = COMPILE_RECOMPUTE_FULL;
    uint64_t least = bytes_with(graph, options, NULL);
    assert_true((double)least < (double)most * (1 - saved));
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
    ir_graph_destroy(graph);
    ir_graph_destroy(forward);
}
