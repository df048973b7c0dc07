/* Fusion: text in, text out; and what the report says. */
#include "fusion/fuse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "ir/build.h"
#include "ir/expand.h"
#include "ir/text.h"
#include "ir/verify.h"

/* ---- a device: a launch takes 1 us, a byte 1 ns ---- */

static double fused_penalty_us; /* of every fused node */

static void cost(void *context, const ir_op_ctx_t *ctx, const ir_type_t *out_types,
                 ir_cost_t *out) {
    (void)context;
    *out = (ir_cost_t){.limit = "memory"};
    uint32_t flags = ir_op_def(ctx->op)->flags;
    if ((flags & (IR_VIEW | IR_STATE | IR_SIDE_EFFECT)) || ctx->op == IR_OP_INPUT ||
        ctx->op == IR_OP_CONSTANT)
        return;
    out->launches = 1;
    for (uint32_t j = 0; j < ctx->n_inputs; j++)
        out->bytes_read += (double)ir_type_bytes(&ctx->in[j]);
    for (uint32_t k = 0; k < ctx->n_outputs; k++)
        out->bytes_written += (double)ir_type_bytes(&out_types[k]);
    out->us = 1 + (out->bytes_read + out->bytes_written) * 1e-3;
    if (ctx->op == IR_OP_FUSED) out->us += fused_penalty_us;
}

static const ir_machine_t machine = {
    .name = "test", .device = "test", .memory_gbps = 1, .launch_us = 1, .cache_bytes = {1 << 20}};
static const ir_target_t target = {.name = "test", .machine = &machine, .cost = cost};

/* ---- the harness ---- */

static ir_graph_t *parse(const char *text) {
    ir_graph_t *graph = NULL;
    if (ir_graph_parse(text, strlen(text), &graph) != ST_OK) fail_msg("%s", st_last_error());
    return graph;
}

static void assert_ok(st_status_t status) {
    if (status != ST_OK) fail_msg("%s", st_last_error());
}

static ir_graph_t *fuse(const ir_graph_t *graph, fuse_report_t **out_report) {
    fuse_decision_t *decision;
    ir_graph_t *made;
    assert_ok(fuse_decide(graph, &target, NULL, &decision));
    assert_ok(fuse_apply(decision, graph, &made));
    if (out_report) assert_ok(fuse_explain(decision, out_report));
    fuse_decision_destroy(decision);
    assert_ok(ir_graph_verify(made));
    return made;
}

/* `before` and `after` are the statements between the braces. */
static void expect(const char *before, const char *after) {
    char text[8192], *got, *wanted;
    snprintf(text, sizeof text, "graph \"g\" {\n%s}\n", before);
    ir_graph_t *graph = parse(text), *made = fuse(graph, NULL);
    snprintf(text, sizeof text, "graph \"g\" {\n%s}\n", after);
    ir_graph_t *model = parse(text);
    assert_ok(ir_graph_print(made, &got));
    assert_ok(ir_graph_print(model, &wanted));
    assert_string_equal(got, wanted);
    st_free(got);
    st_free(wanted);
    ir_graph_destroy(graph);
    ir_graph_destroy(made);
    ir_graph_destroy(model);
}

#define BODY_X(number, shape) \
    "    %" #number " \"" #number "\" = input {dtype=f32, shape=" shape ", batch_axis=-1}\n"

/* ---- rewrites ---- */

static void a_chain_becomes_one_node(void **state) {
    (void)state;
    expect(
        "  %0 x = input {dtype=f32, shape=[4,8]}\n"
        "  %1 = exp(%0)\n"
        "  %2 = tanh(%1)\n"
        "  %3 = mul(%2, %0)\n"
        "  output \"y\" = %3\n",
        "  %0 x = input {dtype=f32, shape=[4,8]}\n"
        "  %1 \"f0:exp+tanh+mul\" = fused(%0) {body=graph {\n"
        BODY_X(0, "[4,8]")
        "    %1 = exp(%0)\n"
        "    %2 = tanh(%1)\n"
        "    %3 = mul(%2, %0)\n"
        "    output \"0\" = %3\n"
        "  }}\n"
        "  output \"y\" = %1\n");
}

/* Nothing is gained where there is one node, a view or a scalar constant aside. */
static void one_node_stays_as_it_is(void **state) {
    (void)state;
    const char *text =
        "  %0 x = input {dtype=f32, shape=[4,8]}\n"
        "  %1 = reshape(%0) {shape=[32]}\n"
        "  %2 = constant {dtype=f32, shape=[], data=2}\n"
        "  %3 = mul(%1, %2)\n"
        "  output \"y\" = %3\n";
    expect(text, text);
}

/* What others read stays a result beside the last one. */
static void a_value_that_is_read_elsewhere_stays_a_result(void **state) {
    (void)state;
    expect(
        "  %0 x = input {dtype=f32, shape=[8,8]}\n"
        "  %1 = exp(%0)\n"
        "  %2 = matmul(%1, %0)\n"
        "  %3 = tanh(%1)\n"
        "  output \"y\" = %2\n"
        "  output \"z\" = %3\n",
        "  %0 x = input {dtype=f32, shape=[8,8]}\n"
        "  %1, %2 \"f0:exp+tanh\" = fused(%0) {body=graph {\n"
        BODY_X(0, "[8,8]")
        "    %1 = exp(%0)\n"
        "    %2 = tanh(%1)\n"
        "    output \"0\" = %1\n"
        "    output \"1\" = %2\n"
        "  }}\n"
        "  %3 = matmul(%1, %0)\n"
        "  output \"y\" = %3\n"
        "  output \"z\" = %2\n");
}

/* exp → matmul → add and exp → add: one node would have to run before and after the product. */
static void a_path_through_another_node_keeps_them_apart(void **state) {
    (void)state;
    const char *text =
        "  %0 x = input {dtype=f32, shape=[8,8]}\n"
        "  %1 = exp(%0)\n"
        "  %2 = matmul(%1, %0)\n"
        "  %3 = add(%1, %2)\n"
        "  output \"y\" = %3\n";
    expect(text, text);
}

/* Two readers of a large value that do not depend on each other read it once. */
static void siblings_read_their_operand_once(void **state) {
    (void)state;
    expect(
        "  %0 x = input {dtype=f32, shape=[64,64]}\n"
        "  %1 = matmul(%0, %0)\n"
        "  %2 = exp(%1)\n"
        "  %3 = reduce_sum(%1) {axes=[0]}\n"
        "  output \"y\" = %2\n"
        "  output \"z\" = %3\n",
        "  %0 x = input {dtype=f32, shape=[64,64]}\n"
        "  %1 = matmul(%0, %0)\n"
        "  %2, %3 \"f0:exp+reduce_sum\" = fused(%1) {body=graph {\n"
        BODY_X(0, "[64,64]")
        "    %1 = exp(%0)\n"
        "    %2 = reduce_sum(%0) {axes=[0]}\n"
        "    output \"0\" = %1\n"
        "    output \"1\" = %2\n"
        "  }}\n"
        "  output \"y\" = %2\n"
        "  output \"z\" = %3\n");
}

/* A broadcast goes into both of its readers; the product reads one of its own. */
static void cheap_producers_are_copied_into_their_readers(void **state) {
    (void)state;
    expect(
        "  %0 x = input {dtype=f32, shape=[8,8]}\n"
        "  %1 w = parameter {dtype=f32, shape=[8]}\n"
        "  %2 = broadcast(%1) {shape=[8,8]}\n"
        "  %3 = mul(%0, %2)\n"
        "  %4 = matmul(%3, %2)\n"
        "  %5 = add(%4, %2)\n"
        "  output \"y\" = %5\n",
        "  %0 x = input {dtype=f32, shape=[8,8]}\n"
        "  %1 w = parameter {dtype=f32, shape=[8]}\n"
        "  %2 \"f0:mul\" = fused(%1, %0) {body=graph {\n"
        BODY_X(0, "[8]") BODY_X(1, "[8,8]")
        "    %2 = broadcast(%0) {shape=[8,8]}\n"
        "    %3 = mul(%1, %2)\n"
        "    output \"0\" = %3\n"
        "  }}\n"
        "  %3 = broadcast(%1) {shape=[8,8]}\n"
        "  %4 = matmul(%2, %3)\n"
        "  %5 \"f1:add\" = fused(%1, %4) {body=graph {\n"
        BODY_X(0, "[8]") BODY_X(1, "[8,8]")
        "    %2 = broadcast(%0) {shape=[8,8]}\n"
        "    %3 = add(%1, %2)\n"
        "    output \"0\" = %3\n"
        "  }}\n"
        "  output \"y\" = %5\n");
}

/* softmax as its definition: row maximum, exponentials, row sum, quotient. */
static void rows_become_one_node(void **state) {
    (void)state;
    expect(
        "  %0 x = input {dtype=f32, shape=[16,32]}\n"
        "  %1 = reduce_max(%0) {axes=[1], keep=true}\n"
        "  %2 = sub(%0, %1)\n"
        "  %3 = exp(%2)\n"
        "  %4 = reduce_sum(%3) {axes=[1], keep=true}\n"
        "  %5 = div(%3, %4)\n"
        "  output \"y\" = %5\n",
        "  %0 x = input {dtype=f32, shape=[16,32]}\n"
        "  %1 \"f0:reduce_max+sub+exp+reduce_sum+div\" = fused(%0) {body=graph {\n"
        BODY_X(0, "[16,32]")
        "    %1 = reduce_max(%0) {axes=[1], keep=true}\n"
        "    %2 = sub(%0, %1)\n"
        "    %3 = exp(%2)\n"
        "    %4 = reduce_sum(%3) {axes=[1], keep=true}\n"
        "    %5 = div(%3, %4)\n"
        "    output \"0\" = %5\n"
        "  }}\n"
        "  output \"y\" = %1\n");
}

/* A norm with the residual sum before it; its gradient with the sum after it, dx and dw in one. */
static void norms_take_their_neighbours(void **state) {
    (void)state;
    expect(
        "  %0 x = input {dtype=f32, shape=[16,32]}\n"
        "  %1 h = input {dtype=f32, shape=[16,32]}\n"
        "  %2 w = parameter {dtype=f32, shape=[32]}\n"
        "  %3 = add(%0, %1)\n"
        "  %4, %5 = rms_norm(%3, %2)\n"
        "  output \"y\" = %4\n"
        "  output \"x\" = %3\n",
        "  %0 x = input {dtype=f32, shape=[16,32]}\n"
        "  %1 h = input {dtype=f32, shape=[16,32]}\n"
        "  %2 w = parameter {dtype=f32, shape=[32]}\n"
        "  %3, %4 \"f0:add+rms_norm\" = fused(%0, %1, %2) {body=graph {\n"
        BODY_X(0, "[16,32]") BODY_X(1, "[16,32]") BODY_X(2, "[32]")
        "    %3 = add(%0, %1)\n"
        "    %4, %5 = rms_norm(%3, %2)\n"
        "    output \"0\" = %3\n"
        "    output \"1\" = %4\n"
        "  }}\n"
        "  output \"y\" = %4\n"
        "  output \"x\" = %3\n");
    expect(
        "  %0 dy = input {dtype=f32, shape=[16,32]}\n"
        "  %1 x = input {dtype=f32, shape=[16,32]}\n"
        "  %2 r = input {dtype=f32, shape=[16]}\n"
        "  %3 w = parameter {dtype=f32, shape=[32]}\n"
        "  %4, %5 = rms_norm_grad(%0, %1, %2, %3)\n"
        "  %6 = add(%0, %4)\n"
        "  output \"dx\" = %6\n"
        "  output \"dw\" = %5\n",
        "  %0 dy = input {dtype=f32, shape=[16,32]}\n"
        "  %1 x = input {dtype=f32, shape=[16,32]}\n"
        "  %2 r = input {dtype=f32, shape=[16]}\n"
        "  %3 w = parameter {dtype=f32, shape=[32]}\n"
        "  %4, %5 \"f0:rms_norm_grad+add\" = fused(%0, %1, %2, %3) {body=graph {\n"
        BODY_X(0, "[16,32]") BODY_X(1, "[16,32]") BODY_X(2, "[16]") BODY_X(3, "[32]")
        "    %4, %5 = rms_norm_grad(%0, %1, %2, %3)\n"
        "    %6 = add(%0, %4)\n"
        "    output \"0\" = %5\n"
        "    output \"1\" = %6\n"
        "  }}\n"
        "  output \"dx\" = %5\n"
        "  output \"dw\" = %4\n");
}

static void batch_norm_takes_relu_and_the_sum(void **state) {
    (void)state;
    expect(
        "  %0 x = input {dtype=f32, shape=[4,8,6,6]}\n"
        "  %1 r = input {dtype=f32, shape=[4,8,6,6]}\n"
        "  %2 m = buffer {dtype=f32, shape=[8]}\n"
        "  %3 = batch_norm_apply(%0, %2, %2, %2, %2)\n"
        "  %4 = add(%3, %1)\n"
        "  %5 = relu(%4)\n"
        "  output \"y\" = %5\n",
        "  %0 x = input {dtype=f32, shape=[4,8,6,6]}\n"
        "  %1 r = input {dtype=f32, shape=[4,8,6,6]}\n"
        "  %2 m = buffer {dtype=f32, shape=[8]}\n"
        "  %3 \"f0:batch_norm_apply+add+relu\" = fused(%0, %2, %1) {body=graph {\n"
        BODY_X(0, "[4,8,6,6]") BODY_X(1, "[8]") BODY_X(2, "[4,8,6,6]")
        "    %3 = batch_norm_apply(%0, %1, %1, %1, %1)\n"
        "    %4 = add(%3, %2)\n"
        "    %5 = relu(%4)\n"
        "    output \"0\" = %5\n"
        "  }}\n"
        "  output \"y\" = %3\n");
}

/* The gradient of a bias beside the gradient that it is summed from. */
static void a_bias_gradient_is_summed_where_it_is_made(void **state) {
    (void)state;
    expect(
        "  %0 dy = input {dtype=f32, shape=[64,32]}\n"
        "  %1 y = input {dtype=f32, shape=[64,32]}\n"
        "  %2 = relu_grad(%0, %1)\n"
        "  %3 = reduce_sum(%2) {axes=[0]}\n"
        "  %4 = matmul(%2, %1) {transpose_b=true}\n"
        "  output \"db\" = %3\n"
        "  output \"dx\" = %4\n",
        "  %0 dy = input {dtype=f32, shape=[64,32]}\n"
        "  %1 y = input {dtype=f32, shape=[64,32]}\n"
        "  %2, %3 \"f0:relu_grad+reduce_sum\" = fused(%0, %1) {body=graph {\n"
        BODY_X(0, "[64,32]") BODY_X(1, "[64,32]")
        "    %2 = relu_grad(%0, %1)\n"
        "    %3 = reduce_sum(%2) {axes=[0]}\n"
        "    output \"0\" = %2\n"
        "    output \"1\" = %3\n"
        "  }}\n"
        "  %4 = matmul(%2, %1) {transpose_b=true}\n"
        "  output \"db\" = %3\n"
        "  output \"dx\" = %4\n");
}

/* The updates of parameters of any shape are one node, with what only they need; the states'
 * updates stay outside. */
static void optimizer_updates_become_one_node(void **state) {
    (void)state;
    expect(
        "  %0 g = input {dtype=f32, shape=[4,8]}\n"
        "  %1 h = input {dtype=f32, shape=[8]}\n"
        "  %2 lr = input {dtype=f64, shape=[], batch_axis=-1}\n"
        "  %3 s = input {dtype=f32, shape=[], batch_axis=-1}\n"
        "  %4 w = parameter {dtype=f32, shape=[4,8]}\n"
        "  %5 b = parameter {dtype=f32, shape=[8]}\n"
        "  phase optimizer\n"
        "  %6 m = buffer {dtype=f32, shape=[4,8]}\n"
        "  %7 n = buffer {dtype=f32, shape=[8]}\n"
        "  %8, %9 = sgd(%4, %0, %2, %3, %6) {momentum=0.9}\n"
        "  update(%4, %8)\n"
        "  update(%6, %9)\n"
        "  %10, %11 = sgd(%5, %1, %2, %3, %7) {momentum=0.9}\n"
        "  update(%5, %10)\n"
        "  update(%7, %11)\n",
        "  %0 g = input {dtype=f32, shape=[4,8]}\n"
        "  %1 h = input {dtype=f32, shape=[8]}\n"
        "  %2 lr = input {dtype=f64, shape=[], batch_axis=-1}\n"
        "  %3 s = input {dtype=f32, shape=[], batch_axis=-1}\n"
        "  %4 w = parameter {dtype=f32, shape=[4,8]}\n"
        "  %5 b = parameter {dtype=f32, shape=[8]}\n"
        "  phase optimizer\n"
        "  %6 m = buffer {dtype=f32, shape=[4,8]}\n"
        "  %7 n = buffer {dtype=f32, shape=[8]}\n"
        "  %8, %9, %10, %11 \"f0:sgd\" = fused(%4, %0, %2, %3, %6, %5, %1, %7) {body=graph {\n"
        "    %0 \"0\" = input {dtype=f32, shape=[4,8], batch_axis=-1}\n"
        "    %1 \"1\" = input {dtype=f32, shape=[4,8], batch_axis=-1}\n"
        "    %2 \"2\" = input {dtype=f64, shape=[], batch_axis=-1}\n"
        "    %3 \"3\" = input {dtype=f32, shape=[], batch_axis=-1}\n"
        "    %4 \"4\" = input {dtype=f32, shape=[4,8], batch_axis=-1}\n"
        "    %5 \"5\" = input {dtype=f32, shape=[8], batch_axis=-1}\n"
        "    %6 \"6\" = input {dtype=f32, shape=[8], batch_axis=-1}\n"
        "    %7 \"7\" = input {dtype=f32, shape=[8], batch_axis=-1}\n"
        "    phase optimizer\n"
        "    %8, %9 = sgd(%0, %1, %2, %3, %4) {momentum=0.9}\n"
        "    %10, %11 = sgd(%5, %6, %2, %3, %7) {momentum=0.9}\n"
        "    output \"0\" = %8\n"
        "    output \"1\" = %9\n"
        "    output \"2\" = %10\n"
        "    output \"3\" = %11\n"
        "  }}\n"
        "  update(%4, %8)\n"
        "  update(%6, %9)\n"
        "  update(%5, %10)\n"
        "  update(%7, %11)\n");
}

static const char chain[] =
    "  %0 x = input {dtype=f32, shape=[4,8]}\n"
    "  %1 = exp(%0)\n"
    "  %2 = tanh(%1)\n"
    "  output \"y\" = %2\n";

static void what_saves_no_time_is_legal_but_not_done(void **state) {
    (void)state;
    fused_penalty_us = 100;
    expect(chain, chain);
    fused_penalty_us = 0;
}

static void collectives_stay_between_groups(void **state) {
    (void)state;
    const char *text =
        "  %0 x = input {dtype=f32, shape=[8]}\n"
        "  %1 = exp(%0)\n"
        "  %2 = all_reduce_start(%1)\n"
        "  %3 = all_reduce_wait(%2)\n"
        "  %4 = tanh(%3)\n"
        "  output \"y\" = %4\n";
    expect(text, text);
}

/* ---- the report ---- */

static const fuse_boundary_t *find_boundary(const fuse_report_t *report, const char *from,
                                            const char *to) {
    for (uint32_t i = 0; i < report->n_boundaries; i++)
        if (!strcmp(report->boundaries[i].from, from) && !strcmp(report->boundaries[i].to, to))
            return &report->boundaries[i];
    fail_msg("no boundary between %s and %s", from, to);
    return NULL;
}

static void the_report_says_what_was_saved_and_why_not_more(void **state) {
    (void)state;
    fuse_report_t *report;
    ir_graph_t *graph = parse(
        "graph \"g\" {\n"
        "  %0 x = input {dtype=f32, shape=[8,8]}\n"
        "  %1 = exp(%0)\n"
        "  %2 = neg(%1)\n"
        "  %3 first = matmul(%2, %0)\n"
        "  %4 = add(%2, %3)\n"
        "  output \"y\" = %4\n"
        "}\n");
    ir_graph_t *made = fuse(graph, &report);
    assert_int_equal(report->n_rows, 1);
    assert_string_equal(report->rows[0].name, "f0:exp+neg");
    assert_string_equal(report->rows[0].ops, "exp+neg");
    assert_int_equal(report->rows[0].n_nodes, 2);
    assert_int_equal(report->rows[0].launches_apart, 2);
    assert_int_equal(report->rows[0].bytes_saved, 512); /* exp's result, written and read */
    assert_true(report->rows[0].us_apart == 2 + 4 * 0.256);
    assert_true(report->rows[0].us == 1 + 2 * 0.256);
    assert_int_equal(report->launches_apart, 4);
    assert_int_equal(report->launches, 3);
    assert_int_equal(report->bytes_saved, 512);
    assert_int_equal(report->n_boundaries, 3);
    const fuse_boundary_t *b = find_boundary(report, "f0:exp+neg", "matmul 'first'");
    assert_int_equal(b->why, FUSE_NO_NEST);
    assert_non_null(strstr(b->reason, "matmul"));
    assert_int_equal(b->bytes, 256);
    b = find_boundary(report, "f0:exp+neg", "add");
    assert_int_equal(b->why, FUSE_CYCLE);
    assert_non_null(strstr(b->reason, "first"));
    fuse_report_destroy(report);
    ir_graph_destroy(made);
    ir_graph_destroy(graph);
}

static void the_report_has_the_costs_that_decided(void **state) {
    (void)state;
    char text[1024];
    fuse_report_t *report;
    snprintf(text, sizeof text, "graph \"g\" {\n%s}\n", chain);
    ir_graph_t *graph = parse(text);
    fused_penalty_us = 100;
    ir_graph_t *made = fuse(graph, &report);
    fused_penalty_us = 0;
    assert_int_equal(report->n_rows, 0);
    const fuse_boundary_t *b = find_boundary(report, "exp", "tanh");
    assert_int_equal(b->why, FUSE_COST);
    assert_true(b->us_apart == 2 + 4 * 0.128);
    assert_true(b->us_together == 101 + 2 * 0.128);
    assert_int_equal(report->launches, 2);
    fuse_report_destroy(report);
    ir_graph_destroy(made);
    ir_graph_destroy(graph);
}

/* ---- random graphs ---- */

static ir_graph_t *random_graph(unsigned seed, uint32_t n) {
    static const ir_op_t unary[] = {IR_OP_EXP, IR_OP_TANH, IR_OP_NEG, IR_OP_RELU};
    ir_build_t b = {0};
    ir_value_t *values = calloc(n, sizeof *values);
    srand(seed);
    assert_ok(ir_graph_create("random", &b.graph));
    ir_type_t type = ir_type_make(IR_F32, 2, (int64_t[]){8, 8});
    const int64_t flat[] = {64}, square[] = {8, 8}, axis = 1;
    values[0] = ir_b_input(&b, "x", type, 0);
    for (uint32_t k = 1; k < n; k++) {
        uint32_t near = 1 + (unsigned)rand() % 6;
        ir_value_t x = values[k > near ? k - near : 0];
        switch (rand() % 8) {
            case 0:
                values[k] = ir_b_matmul(&b, x, values[k - 1], false, false);
                break;
            case 1: /* softmax-like: a row sum that comes back */
                values[k] =
                    ir_b_binary(&b, IR_OP_MUL, x,
                                ir_b_reduce(&b, IR_OP_REDUCE_SUM, values[k - 1], 1, &axis, true));
                break;
            case 2:
                values[k] = ir_b_reshape(
                    &b, ir_b_unary(&b, IR_OP_SIN, ir_b_reshape(&b, x, 1, flat)), 2, square);
                break;
            case 3:
                values[k] = ir_b_add_scalar(&b, x, 0.5);
                break;
            case 4:
            case 5:
                values[k] = ir_b_binary(&b, IR_OP_ADD, x, values[(unsigned)rand() % k]);
                break;
            default:
                values[k] = ir_b_unary(&b, unary[rand() % 4], x);
                break;
        }
    }
    ir_b_output(&b, "y", values[n - 1]);
    ir_b_output(&b, "z", values[n / 2]);
    assert_ok(b.status);
    free(values);
    return b.graph;
}

static bool is_fused(const ir_op_def_t *def) {
    return def->op == IR_OP_FUSED;
}

static size_t count(const ir_graph_t *graph, ir_op_t op) {
    size_t n = 0;
    for (ir_node_t i = 0; i < graph->nodes.n; i++) n += ir_node(graph, i)->op == op;
    return n;
}

/* Put back into the graph, the bodies are the nodes that were there, but for copies. The same input
 * gives the same output. */
static void bodies_hold_what_was_there(void **state) {
    (void)state;
    static const ir_op_t ops[] = {IR_OP_EXP, IR_OP_TANH,   IR_OP_NEG, IR_OP_RELU,      IR_OP_SIN,
                                  IR_OP_ADD, IR_OP_MATMUL, IR_OP_MUL, IR_OP_REDUCE_SUM};
    size_t n_fused = 0;
    for (unsigned seed = 0; seed < 60; seed++) {
        ir_graph_t *graph = random_graph(seed, 10 + seed * 3), *back;
        ir_graph_t *made = fuse(graph, NULL), *again = fuse(graph, NULL);
        char *a, *b;
        assert_ok(ir_graph_print(made, &a));
        assert_ok(ir_graph_print(again, &b));
        assert_string_equal(a, b);
        n_fused += count(made, IR_OP_FUSED);
        assert_ok(ir_expand_composites(made, is_fused, &back));
        assert_ok(ir_graph_verify(back));
        for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
            /* dead nodes of the random graph may go, never come */
            assert_true(count(back, ops[i]) <= count(graph, ops[i]));
        }
        assert_int_equal(count(back, IR_OP_MATMUL), count(graph, IR_OP_MATMUL));
        st_free(a);
        st_free(b);
        ir_graph_destroy(graph);
        ir_graph_destroy(made);
        ir_graph_destroy(again);
        ir_graph_destroy(back);
    }
    assert_true(n_fused > 200);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chain_becomes_one_node),
        cmocka_unit_test(one_node_stays_as_it_is),
        cmocka_unit_test(a_value_that_is_read_elsewhere_stays_a_result),
        cmocka_unit_test(a_path_through_another_node_keeps_them_apart),
        cmocka_unit_test(siblings_read_their_operand_once),
        cmocka_unit_test(cheap_producers_are_copied_into_their_readers),
        cmocka_unit_test(rows_become_one_node),
        cmocka_unit_test(norms_take_their_neighbours),
        cmocka_unit_test(batch_norm_takes_relu_and_the_sum),
        cmocka_unit_test(a_bias_gradient_is_summed_where_it_is_made),
        cmocka_unit_test(optimizer_updates_become_one_node),
        cmocka_unit_test(what_saves_no_time_is_legal_but_not_done),
        cmocka_unit_test(collectives_stay_between_groups),
        cmocka_unit_test(the_report_says_what_was_saved_and_why_not_more),
        cmocka_unit_test(the_report_has_the_costs_that_decided),
        cmocka_unit_test(bodies_hold_what_was_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
