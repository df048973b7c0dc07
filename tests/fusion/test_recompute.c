/* Recomputation: text in, text out, and what must hold on every place of a path. */
#include "fusion/recompute.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "ir/build.h"
#include "ir/text.h"
#include "ir/verify.h"

/* ---- a machine: 1000 bytes and 100,000 operations of products a microsecond ---- */

static const ir_machine_t machine = {.name = "test", .memory_gbps = 1, .launch_us = 0.5};

static void cost(void *context, const ir_op_ctx_t *ctx, const ir_type_t *out_types,
                 ir_cost_t *out) {
    (void)context;
    const ir_op_def_t *def = ir_op_def(ctx->op);
    *out = (ir_cost_t){.limit = "memory"};
    if (def->flags & (IR_SOURCE | IR_VIEW)) return;
    double bytes = 0;
    for (uint32_t j = 0; j < ctx->n_inputs; j++) bytes += (double)ir_type_bytes(&ctx->in[j]);
    for (uint32_t k = 0; k < ctx->n_outputs; k++) bytes += (double)ir_type_bytes(&out_types[k]);
    out->flop = bytes;
    if (ctx->op == IR_OP_MATMUL)
        out->flop = 2.0 * (double)ir_type_elements(&ctx->in[0]) *
                    (double)out_types[0].dims[out_types[0].rank - 1];
    out->us = machine.launch_us + bytes * 1e-3 + (ctx->op == IR_OP_MATMUL ? out->flop * 1e-5 : 0);
}

static const ir_target_t target = {.name = "test", .machine = &machine, .cost = cost};

/* ---- the harness ---- */

static ir_graph_t *parse(const char *text) {
    ir_graph_t *graph;
    if (ir_graph_parse(text, strlen(text), &graph) != ST_OK) fail_msg("%s", st_last_error());
    return graph;
}

static recompute_t *open_path(const ir_graph_t *graph, bool fuses) {
    recompute_t *path;
    if (recompute_open(graph, &target, fuses, NULL, &path) != ST_OK)
        fail_msg("%s", st_last_error());
    return path;
}

static ir_graph_t *apply(const recompute_t *path, uint32_t place, const ir_graph_t *graph) {
    ir_graph_t *made;
    if (recompute_apply(path, place, graph, &made) != ST_OK) fail_msg("%s", st_last_error());
    if (ir_graph_verify(made) != ST_OK) fail_msg("%s", st_last_error());
    return made;
}

/* Where on the path: */
typedef enum where { AT_NO_COST, WITHOUT_PRODUCTS, AT_THE_END } where_t;

static void expect(const char *before, where_t where, const char *after) {
    char text[4096], expected[4096], *printed;
    snprintf(text, sizeof text, "graph {\n%s}\n", before);
    snprintf(expected, sizeof expected, "graph {\n%s}\n", after);
    ir_graph_t *graph = parse(text), *wanted = parse(expected);
    recompute_t *path = open_path(graph, true);
    uint32_t place = where == AT_NO_COST         ? recompute_within(path, 0)
                     : where == WITHOUT_PRODUCTS ? recompute_last_fused(path)
                                                 : recompute_n_points(path) - 1;
    ir_graph_t *made = apply(path, place, graph);
    char *wanted_text;
    assert_int_equal(ir_graph_print(made, &printed), ST_OK);
    assert_int_equal(ir_graph_print(wanted, &wanted_text), ST_OK);
    assert_string_equal(printed, wanted_text);
    st_free(printed);
    st_free(wanted_text);
    ir_graph_destroy(made);
    ir_graph_destroy(wanted);
    ir_graph_destroy(graph);
    recompute_destroy(path);
}

#define SOURCES                                       \
    "  %0 x = input {dtype=f32, shape=[64,32]}\n"     \
    "  %1 w = parameter {dtype=f32, shape=[32,32]}\n" \
    "  %2 dy = input {dtype=f32, shape=[64,32]}\n"    \
    "  %3 g = parameter {dtype=f32, shape=[32]}\n"

/* A chain between two products: the backward pass makes it again from the product before it, for
 * all of it goes into one kernel with the first backward op; nothing but that product is kept. */
static void elementwise_chains_run_again_where_they_fuse(void **state) {
    (void)state;
    expect(SOURCES
           "  %4 = matmul(%0, %1)\n"
           "  %5 = tanh(%4)\n"
           "  %6 = exp(%5)\n"
           "  %7 = mul(%5, %6)\n"
           "  output \"y\" = %7\n"
           "  phase backward\n"
           "  %8 = mul(%2, %6)\n"
           "  %9 = mul(%8, %5)\n"
           "  output \"d\" = %9\n",
           AT_NO_COST,
           SOURCES
           "  %4 = matmul(%0, %1)\n"
           "  %5 = tanh(%4)\n"
           "  %6 = exp(%5)\n"
           "  %7 = mul(%5, %6)\n"
           "  phase backward\n"
           "  %8 = tanh(%4)\n"
           "  %9 = exp(%8)\n"
           "  %10 = mul(%2, %9)\n"
           "  %11 = mul(%10, %8)\n"
           "  output \"y\" = %7\n"
           "  output \"d\" = %11\n");
}

#define NORM                                        \
    SOURCES                                         \
    "  %4, %5 n = rms_norm(%0, %3)\n"               \
    "  %6 = matmul(%4, %1)\n"                       \
    "  output \"y\" = %6\n"                         \
    "  phase backward\n"                            \
    "  %7 dw = matmul(%4, %2) {transpose_a=true}\n" \
    "  %8 = matmul(%2, %1) {transpose_b=true}\n"    \
    "  %9, %10 = rms_norm_grad(%8, %0, %5, %3)\n"   \
    "  output \"dw\" = %7\n"                        \
    "  output \"dx\" = %9\n"

/* A product of the backward pass reads the norm's result: to make it again takes a write, so it is
 * kept where that counts. */
static void what_products_read_is_kept_at_no_cost(void **state) {
    (void)state;
    expect(NORM, AT_NO_COST, NORM);
}

/* The norm runs again from what is there anyway; its statistic is that of the forward pass. */
static void norms_run_again_and_statistics_stay(void **state) {
    (void)state;
    expect(NORM, WITHOUT_PRODUCTS,
           SOURCES
           "  %4, %5 n = rms_norm(%0, %3)\n"
           "  %6 = matmul(%4, %1)\n"
           "  phase backward\n"
           "  %7, %8 n = rms_norm(%0, %3)\n"
           "  %9 dw = matmul(%7, %2) {transpose_a=true}\n"
           "  %10 = matmul(%2, %1) {transpose_b=true}\n"
           "  %11, %12 = rms_norm_grad(%10, %0, %5, %3)\n"
           "  output \"y\" = %6\n"
           "  output \"dw\" = %9\n"
           "  output \"dx\" = %11\n");
}

/* Dropout is copied with its id, so with its mask; reshapes are copied only where they are views of
 * a copy; batch statistics are not taken twice, nor is the running one updated twice. */
static void random_ops_are_copied_and_updates_are_not(void **state) {
    (void)state;
    expect(
        "  %0 x = input {dtype=f32, shape=[64,32]}\n"
        "  %1 w = parameter {dtype=f32, shape=[32,32]}\n"
        "  %2 running = buffer {dtype=f32, shape=[32]}\n"
        "  %3 seed = constant {dtype=i64, shape=[], data=7}\n"
        "  %4 step = buffer {dtype=i64, shape=[]}\n"
        "  %5 = matmul(%0, %1)\n"
        "  %6 mean = channel_sum(%5)\n"
        "  update(%2, %6)\n"
        "  %7 = sub(%5, %6)\n"
        "  %8 = dropout(%7, %3, %4) {p=0.5, id=3}\n"
        "  %9 = reshape(%8) {shape=[2048]}\n"
        "  %10 = reshape(%5) {shape=[2048]}\n"
        "  phase backward\n"
        "  %11 = mul(%9, %10)\n"
        "  output \"d\" = %11\n",
        AT_NO_COST,
        "  %0 x = input {dtype=f32, shape=[64,32]}\n"
        "  %1 w = parameter {dtype=f32, shape=[32,32]}\n"
        "  %2 running = buffer {dtype=f32, shape=[32]}\n"
        "  %3 seed = constant {dtype=i64, shape=[], data=7}\n"
        "  %4 step = buffer {dtype=i64, shape=[]}\n"
        "  %5 = matmul(%0, %1)\n"
        "  %6 mean = channel_sum(%5)\n"
        "  update(%2, %6)\n"
        "  %7 = sub(%5, %6)\n"
        "  %8 = dropout(%7, %3, %4) {p=0.5, id=3}\n"
        "  %9 = reshape(%8) {shape=[2048]}\n"
        "  %10 = reshape(%5) {shape=[2048]}\n"
        "  phase backward\n"
        "  %11 = sub(%5, %6)\n"
        "  %12 = dropout(%11, %3, %4) {p=0.5, id=3}\n"
        "  %13 = reshape(%12) {shape=[2048]}\n"
        "  %14 = mul(%13, %10)\n"
        "  output \"d\" = %14\n");
}

/* A residual sum is kept, though it fuses: its other operand is of the layer before. */
static void residual_sums_are_kept(void **state) {
    (void)state;
    const char *residual = SOURCES
        "  %4 = matmul(%0, %1)\n"
        "  %5 = tanh(%4)\n"
        "  %6 = matmul(%5, %1)\n"
        "  %7 = add(%5, %6)\n" /* reads %5 behind the product that reads it */
        "  %8 = exp(%7)\n"
        "  output \"y\" = %8\n"
        "  phase backward\n"
        "  %9 = mul(%2, %8)\n"
        "  %10 = mul(%9, %7)\n"
        "  output \"d\" = %10\n";
    expect(residual, AT_NO_COST,
           SOURCES
           "  %4 = matmul(%0, %1)\n"
           "  %5 = tanh(%4)\n"
           "  %6 = matmul(%5, %1)\n"
           "  %7 = add(%5, %6)\n"
           "  %8 = exp(%7)\n"
           "  phase backward\n"
           "  %9 = mul(%2, %8)\n" /* %8 is an output: there anyway */
           "  %10 = mul(%9, %7)\n"
           "  output \"y\" = %8\n"
           "  output \"d\" = %10\n");
}

/* At the end of the path products run again too, from the input. */
static void products_run_again_last(void **state) {
    (void)state;
    expect(
        "  %0 x = input {dtype=f32, shape=[64,32]}\n"
        "  %1 w = parameter {dtype=f32, shape=[32,64]}\n"
        "  %2 v = parameter {dtype=f32, shape=[64,8]}\n"
        "  %3 = matmul(%0, %1)\n"
        "  %4 = tanh(%3)\n"
        "  %5 = matmul(%4, %2)\n"
        "  output \"y\" = %5\n"
        "  phase backward\n"
        "  %6 dv = matmul(%4, %5) {transpose_a=true}\n"
        "  output \"dv\" = %6\n",
        AT_THE_END,
        "  %0 x = input {dtype=f32, shape=[64,32]}\n"
        "  %1 w = parameter {dtype=f32, shape=[32,64]}\n"
        "  %2 v = parameter {dtype=f32, shape=[64,8]}\n"
        "  %3 = matmul(%0, %1)\n"
        "  %4 = tanh(%3)\n"
        "  %5 = matmul(%4, %2)\n"
        "  phase backward\n"
        "  %6 = matmul(%0, %1)\n"
        "  %7 = tanh(%6)\n"
        "  %8 dv = matmul(%7, %5) {transpose_a=true}\n"
        "  output \"y\" = %5\n"
        "  output \"dv\" = %8\n");
}

/* Attention has a definition in primitives, as a norm does: it is a product all the same. */
static void attention_is_a_product(void **state) {
    (void)state;
    ir_graph_t *graph = parse(
        "graph {\n"
        "  %0 q = input {dtype=f32, shape=[1,2,16,8]}\n"
        "  %1 d = input {dtype=f32, shape=[1,2,16,8]}\n"
        "  %2, %3 = attention(%0, %0, %0) {causal=true}\n"
        "  %4 = reduce_sum(%2) {axes=[0,1,2,3]}\n"
        "  output \"y\" = %4\n"
        "  phase backward\n"
        "  %5, %6, %7 = attention_grad(%1, %0, %0, %0, %2, %3) {causal=true}\n"
        "  output \"d\" = %5\n"
        "}\n");
    recompute_t *path = open_path(graph, true);
    const uint32_t last = recompute_n_points(path) - 1;
    recompute_summary_t summary;
    assert_int_equal(
        recompute_summarize(path, recompute_last_fused(path), graph, &target, &summary), ST_OK);
    assert_int_equal(summary.n_nodes, 0);
    assert_int_equal(recompute_summarize(path, last, graph, &target, &summary), ST_OK);
    assert_int_equal(summary.n_nodes, 1);
    assert_int_equal(summary.n_products, 1);
    recompute_destroy(path);
    ir_graph_destroy(graph);
}

static void failed_allocations_are_reported(void **state) {
    (void)state;
    ir_graph_t *graph = parse("graph {\n" NORM "}\n");
    int64_t n = 0;
    st_status_t status;
    do {
        recompute_t *path = NULL;
        ir_graph_t *made = NULL;
        recompute_summary_t summary;
        st_memory_fail_after(n++, false);
        status = recompute_open(graph, &target, true, NULL, &path);
        uint32_t place = status == ST_OK ? recompute_last_fused(path) : 0;
        if (status == ST_OK) status = recompute_apply(path, place, graph, &made);
        if (status == ST_OK) status = recompute_summarize(path, place, graph, &target, &summary);
        st_memory_fail_after(-1, false);
        assert_true(status == ST_OK || status == ST_NO_MEMORY);
        if (status == ST_OK) {
            assert_int_equal(summary.n_nodes, 1);
            assert_int_equal(summary.n_products, 0);
            assert_int_equal(summary.freed_bytes, 64 * 32 * 4); /* the norm's result */
            assert_true(summary.extra_us > 0);
        }
        recompute_destroy(path);
        ir_graph_destroy(made);
        assert_true(n < 2000);
    } while (status != ST_OK);
    assert_true(n > 50);
    ir_graph_destroy(graph);
}

/* A graph without a backward pass keeps nothing, so nothing can run again. */
static void forward_graphs_have_one_place(void **state) {
    (void)state;
    ir_graph_t *graph = parse("graph {\n" SOURCES "  %4 = exp(%0)\n  output \"y\" = %4\n}\n");
    recompute_t *path = open_path(graph, true);
    assert_int_equal(recompute_n_points(path), 1);
    assert_int_equal(recompute_within(path, 1), 0);
    assert_int_equal(recompute_point(path, 0).kept_bytes, 0);
    assert_int_equal(recompute_next_corner(path, 0), 0);
    recompute_destroy(path);
    ir_graph_destroy(graph);
}

/* A long chain of cheap ops is kept at some places, so that no backward op drags on all of it; and
 * the pass takes time near linear in it. */
static void long_chains_are_broken(void **state) {
    (void)state;
    enum { N = 3000 };
    ir_graph_t *graph;
    assert_int_equal(ir_graph_create("chain", &graph), ST_OK);
    ir_build_t b = {.graph = graph};
    ir_value_t values[N];
    values[0] = ir_b_input(&b, "x", ir_type_make(IR_F32, 2, (int64_t[]){64, 32}), 0);
    for (int i = 1; i < N; i++) values[i] = ir_b_unary(&b, IR_OP_SIN, values[i - 1]);
    graph->phase = IR_PHASE_BACKWARD;
    ir_value_t sum = values[N - 1];
    for (int i = N - 2; i > 0; i--) sum = ir_b_binary(&b, IR_OP_MUL, sum, values[i]);
    ir_b_output(&b, "d", sum);
    assert_int_equal(b.status, ST_OK);
    recompute_t *path = open_path(graph, true);
    recompute_point_t last = recompute_point(path, recompute_n_points(path) - 1);
    const uint64_t each = 64 * 32 * 4;
    assert_true(last.kept_bytes >= each * (N / 200) && last.kept_bytes <= each * (N / 50));
    recompute_destroy(path);
    ir_graph_destroy(graph);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elementwise_chains_run_again_where_they_fuse),
        cmocka_unit_test(what_products_read_is_kept_at_no_cost),
        cmocka_unit_test(norms_run_again_and_statistics_stay),
        cmocka_unit_test(random_ops_are_copied_and_updates_are_not),
        cmocka_unit_test(residual_sums_are_kept),
        cmocka_unit_test(products_run_again_last),
        cmocka_unit_test(attention_is_a_product),
        cmocka_unit_test(forward_graphs_have_one_place),
        cmocka_unit_test(long_chains_are_broken),
        cmocka_unit_test(failed_allocations_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
