/* What nodes do and cost. The expected numbers are worked out by hand beside each. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "compile/target.h"
#include "compile/work.h"
#include "ir/build.h"
#include "ir/text.h"

static ir_type_t f32(int32_t rank, int64_t a, int64_t b, int64_t c, int64_t d) {
    return ir_type_make(IR_F32, rank, (int64_t[]){a, b, c, d});
}

static void work_of_node(const ir_graph_t *graph, ir_value_t value, work_t *out) {
    const ir_node_info_t *node = ir_value_producer(graph, value);
    ir_type_t in[8], types[8];
    for (uint32_t j = 0; j < node->n_inputs; j++) in[j] = *ir_value_type(graph, node->inputs[j]);
    for (uint32_t k = 0; k < node->n_outputs; k++)
        types[k] = *ir_value_type(graph, node->first_output + k);
    ir_op_ctx_t ctx = {node->op, node->n_inputs, node->n_outputs, in, node->attrs, node->name};
    work_of(&ctx, types, out);
}

static ir_graph_t *graph_begin(ir_build_t *b) {
    ir_graph_t *graph;
    assert_int_equal(ir_graph_create("g", &graph), ST_OK);
    *b = (ir_build_t){.graph = graph};
    return graph;
}

static void test_products(void **state) {
    (void)state;
    ir_build_t b;
    ir_graph_t *graph = graph_begin(&b);
    work_t w;
    ir_value_t x = ir_b_input(&b, "x", f32(3, 5, 7, 11, 0), 0);
    ir_value_t y = ir_b_input(&b, "y", f32(2, 13, 11, 0, 0), -1);
    work_of_node(graph, ir_b_matmul(&b, x, y, false, true), &w);
    assert_int_equal(b.status, ST_OK);
    assert_int_equal(w.kind, WORK_PRODUCT);
    assert_string_equal(w.variant, "nt");
    /* 5 products of 7 x 11 times 11 x 13 */
    assert_true(w.flop == 2.0 * 5 * 7 * 11 * 13 && w.product_flop == w.flop);
    assert_true(w.bytes_read == 4.0 * (5 * 7 * 11 + 13 * 11));
    assert_true(w.bytes_written == 4.0 * 5 * 7 * 13);
    assert_true(w.dims.b == 5 && w.dims.m == 7 && w.dims.n == 13 && w.dims.k == 11);
    ir_graph_destroy(graph);
}

/* Forward, gradient of the input and of the weight are the same products. */
static void test_convolutions(void **state) {
    (void)state;
    ir_build_t b;
    ir_graph_t *graph = graph_begin(&b);
    work_t w;
    const int64_t two[] = {2, 2}, one[] = {1, 1};
    ir_arg_t args[6] = {IR_ARG_INTS("strides", two, 2), IR_ARG_INTS("pads_low", one, 2),
                        IR_ARG_INTS("pads_high", one, 2), IR_ARG_INTS("dilations", one, 2),
                        IR_ARG_INT("groups", 2)};
    ir_value_t x = ir_b_input(&b, "x", f32(4, 3, 4, 9, 9), 0);
    ir_value_t k = ir_b_input(&b, "k", f32(4, 6, 2, 3, 3), -1);
    ir_value_t y = ir_b_node(&b, IR_OP_CONV, 2, (ir_value_t[]){x, k}, 5, args);
    /* 5 x 5 positions (9 + 2 - 3) / 2 + 1, each 6 channels of 2 · 9 products, 3 images */
    double flop = 2.0 * 3 * 6 * 25 * 2 * 9;
    work_of_node(graph, y, &w);
    assert_true(w.flop == flop && w.product_flop == flop);
    assert_true(w.dims.n == 3 && w.dims.c == 2 && w.dims.o == 3 && w.dims.g == 2);
    assert_true(w.dims.p == 25 && w.dims.i == 81 && w.dims.r == 9 && w.dims.s == 4);
    args[5] = IR_ARG_INTS("spatial", ((int64_t[]){9, 9}), 2);
    work_of_node(graph, ir_b_node(&b, IR_OP_CONV_GRAD_INPUT, 2, (ir_value_t[]){y, k}, 6, args), &w);
    assert_true(w.flop == flop);
    args[5] = IR_ARG_INTS("kernel", ((int64_t[]){3, 3}), 2);
    work_of_node(graph, ir_b_node(&b, IR_OP_CONV_GRAD_WEIGHT, 2, (ir_value_t[]){x, y}, 6, args),
                 &w);
    assert_true(w.flop == flop);
    assert_int_equal(b.status, ST_OK);
    ir_graph_destroy(graph);
}

/* Causal rows count the keys that they see: 1 + 2 + … + 6 pairs of 6 x 6. A window of 3 leaves
 * 1 + 2 + 3 + 3 + 3 + 3. Queries that stand three further see 4 + 5 + 6 + 6 + 6 + 6, and so on. */
static void test_attention(void **state) {
    (void)state;
    static const struct {
        bool causal;
        int64_t window, offset, pairs;
    } rows[] = {{false, 0, 0, 36}, {true, 0, 0, 21},  {true, 3, 0, 15},         {false, 3, 0, 24},
                {true, 0, 3, 33},  {true, 0, -4, 3},  {true, 0, -9, 0},         {false, 0, 3, 36},
                {true, 3, 3, 12},  {false, 3, 3, 15}, {true, INT64_MAX, 3, 33}, {true, 3, 90, 0},
                {false, 3, -6, 3}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ir_build_t b;
        ir_graph_t *graph = graph_begin(&b);
        work_t w;
        ir_arg_t args[3] = {IR_ARG_BOOL("causal", rows[i].causal),
                            IR_ARG_INT("window", rows[i].window),
                            IR_ARG_INT("offset", rows[i].offset)};
        ir_value_t q = ir_b_input(&b, "q", f32(4, 2, 4, 6, 8), 0);
        ir_value_t k = ir_b_input(&b, "k", f32(4, 2, 2, 6, 8), 0);
        ir_value_t v = ir_b_input(&b, "v", f32(4, 2, 2, 6, 16), 0);
        ir_value_t o = ir_b_node(&b, IR_OP_ATTENTION, 3, (ir_value_t[]){q, k, v}, 3, args);
        work_of_node(graph, o, &w);
        assert_int_equal(b.status, ST_OK);
        assert_true(w.product_flop == 2.0 * 2 * 4 * (double)rows[i].pairs * (8 + 16));
        ir_graph_destroy(graph);
    }
}

/* Views cost nothing; a table that is looked up costs the rows that are taken. */
static void test_bytes(void **state) {
    (void)state;
    ir_build_t b;
    ir_graph_t *graph = graph_begin(&b);
    target_t *target;
    ir_target_t ask = {0};
    ir_cost_t cost;
    assert_int_equal(target_open("cpu", &target), ST_OK);
    target_fill(target, &ask);
    ir_value_t x = ir_b_input(&b, "x", f32(2, 1000, 64, 0, 0), -1);
    ir_value_t i = ir_b_input(&b, "i", ir_type_make(IR_I32, 1, (int64_t[]){10}), 0);
    ir_value_t rows = ir_b_node(&b, IR_OP_GATHER, 2, (ir_value_t[]){x, i}, 1,
                                (ir_arg_t[]){IR_ARG_INT("axis", 0)});
    ir_value_t view = ir_b_reshape(&b, rows, 1, (int64_t[]){640});
    ir_value_t y = ir_b_unary(&b, IR_OP_EXP, view);
    assert_int_equal(b.status, ST_OK);
    assert_int_equal(ir_target_cost(&ask, graph, graph->values.data[rows].producer, &cost), ST_OK);
    assert_true(cost.bytes_read == 4 * 640 + 4 * 10 && cost.bytes_written == 4 * 640);
    assert_true(cost.launches == 1 && cost.us > 0 && cost.kernel);
    assert_int_equal(ir_target_cost(&ask, graph, graph->values.data[view].producer, &cost), ST_OK);
    assert_true(cost.us == 0 && cost.launches == 0 && cost.bytes_read == 0 && !cost.kernel);
    assert_int_equal(ir_target_cost(&ask, graph, graph->values.data[y].producer, &cost), ST_OK);
    assert_true(cost.flop == 640 && cost.product_flop == 0);
    ir_graph_destroy(graph);
    target_destroy(target);
}

/* A body with a node of so many operands that reading it takes memory: wherever memory ends, the
 * cost is an error and no other number. */
static void check_no_memory(const char *before, const char *input, const char *after) {
    char text[2048];
    int at = snprintf(text, sizeof text, "%s", before);
    for (int i = 0; i < 32; i++)
        at += snprintf(text + at, sizeof text - (size_t)at, "%s%s", i ? ", " : "", input);
    snprintf(text + at, sizeof text - (size_t)at, "%s", after);
    ir_graph_t *graph;
    target_t *target;
    ir_target_t ask = {0};
    ir_cost_t whole, cost;
    if (ir_graph_parse(text, strlen(text), &graph) != ST_OK) fail_msg("%s", st_last_error());
    assert_int_equal(target_open("cpu", &target), ST_OK);
    target_fill(target, &ask);
    ir_node_t n = (ir_node_t)graph->nodes.n - 1;
    assert_int_equal(ir_target_cost(&ask, graph, n, &whole), ST_OK);
    assert_true(whole.us > 0);
    uint64_t n_allocations = st_memory_allocations();
    assert_int_equal(ir_target_cost(&ask, graph, n, &cost), ST_OK);
    n_allocations = st_memory_allocations() - n_allocations;
    assert_true(n_allocations > 0);
    uint64_t failed = 0;
    for (uint64_t i = 0; i < n_allocations; i++) {
        st_memory_fail_after((int64_t)i, false);
        const st_status_t status = ir_target_cost(&ask, graph, n, &cost);
        st_memory_fail_after(-1, false);
        if (status == ST_NO_MEMORY)
            failed++;
        else if (status != ST_OK || cost.us != whole.us || cost.flop != whole.flop)
            fail_msg("allocation %llu of %llu: %s, %g us instead of %g", (unsigned long long)i,
                     (unsigned long long)n_allocations, st_last_error(), cost.us, whole.us);
    }
    assert_true(failed > 0);
    ir_graph_destroy(graph);
    target_destroy(target);
}

static void no_memory_for_a_body_is_an_error(void **state) {
    (void)state;
    check_no_memory(
        "graph \"g\" {\n"
        "  %p p = input {dtype=bool, shape=[], batch_axis=-1}\n"
        "  %x x = input {dtype=f32, shape=[8,8], batch_axis=-1}\n"
        "  %r = cond(%p, %x) {then=graph {\n"
        "    %a a = input {dtype=f32, shape=[8,8], batch_axis=-1}\n"
        "    %b = concat(",
        "%a",
        ") {axis=0}\n"
        "    output \"y\" = %b\n"
        "  }, else=graph {\n"
        "    %a a = input {dtype=f32, shape=[8,8], batch_axis=-1}\n"
        "    %b = pad(%a) {low=[0,0], high=[248,0]}\n"
        "    output \"y\" = %b\n"
        "  }}\n"
        "  output \"y\" = %r\n"
        "}\n");
    check_no_memory(
        "graph \"g\" {\n"
        "  %x x = input {dtype=f32, shape=[8,8], batch_axis=-1}\n"
        "  %r = fused(%x) {body=graph {\n"
        "    %a a = input {dtype=f32, shape=[8,8], batch_axis=-1}\n"
        "    %b = concat(",
        "%a",
        ") {axis=0}\n"
        "    output \"y\" = %b\n"
        "  }}\n"
        "  output \"y\" = %r\n"
        "}\n");
}

/* An op that is forgotten would cost one operation an element, whatever it does. */
static void test_known(void **state) {
    (void)state;
    for (int op = 1; op < IR_OP_END; op++)
        if (ir_op_def((ir_op_t)op) && !work_is_known((ir_op_t)op))
            fail_msg("work.c has no row for %s", ir_op_def((ir_op_t)op)->name);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known),        cmocka_unit_test(test_products),
        cmocka_unit_test(test_convolutions), cmocka_unit_test(test_attention),
        cmocka_unit_test(test_bytes),        cmocka_unit_test(no_memory_for_a_body_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
