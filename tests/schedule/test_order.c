/* The order of execution: legal and small. */
#include "schedule/order.h"

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
#include "ir/text.h"
#include "ir/verify.h"

static ir_graph_t *ordered(const char *text) {
    ir_graph_t *graph = NULL, *result = NULL;
    st_status_t status = ir_graph_parse(text, strlen(text), &graph);
    if (status != ST_OK) print_error("%s\n", st_last_error());
    assert_int_equal(status, ST_OK);
    ir_node_t *order = st_calloc(graph->nodes.n, sizeof *order);
    assert_int_equal(sched_order(graph, NULL, order, NULL), ST_OK);
    assert_int_equal(sched_apply(graph, order, &result), ST_OK);
    assert_int_equal(ir_graph_verify(result), ST_OK);
    st_free(order);
    ir_graph_destroy(graph);
    return result;
}

static ir_node_t position(const ir_graph_t *graph, const char *name) {
    for (ir_node_t n = 0; n < graph->nodes.n; n++)
        if (strcmp(ir_node(graph, n)->name, name) == 0) return n;
    fail_msg("no node '%s'", name);
    return 0;
}

static void readers_come_before_the_update(void **state) {
    (void)state;
    ir_graph_t *graph = ordered(
        "graph \"g\" {\n"
        "  %0 w = parameter {dtype=f32, shape=[4]}\n"
        "  %1 new = exp(%0)\n"
        "  u = update(%0, %1)\n"
        "  %2 v = reshape(%0) {shape=[2,2]}\n"
        "  %3 y = tanh(%2)\n"
        "  output \"y\" = %3\n"
        "}\n");
    assert_true(position(graph, "y") < position(graph, "u"));
    ir_graph_destroy(graph);
}

/* Three large values, each reduced to a scalar: one alive at a time is enough. */
static void large_values_are_not_kept(void **state) {
    (void)state;
    ir_graph_t *graph = ordered(
        "graph \"g\" {\n"
        "  %0 x = input {dtype=f32, shape=[4]}\n"
        "  %1 a = broadcast(%0) {shape=[1000,4]}\n"
        "  %2 b = broadcast(%0) {shape=[1000,4]}\n"
        "  %3 c = broadcast(%0) {shape=[1000,4]}\n"
        "  %4 ra = reduce_sum(%1) {axes=[0]}\n"
        "  %5 rb = reduce_sum(%2) {axes=[0]}\n"
        "  %6 rc = reduce_sum(%3) {axes=[0]}\n"
        "  output \"a\" = %4\n"
        "  output \"b\" = %5\n"
        "  output \"c\" = %6\n"
        "}\n");
    assert_int_equal(position(graph, "ra"), position(graph, "a") + 1);
    assert_int_equal(position(graph, "rb"), position(graph, "b") + 1);
    assert_int_equal(position(graph, "rc"), position(graph, "c") + 1);
    ir_graph_destroy(graph);
}

/* ---- what nodes need ---- */

enum { WORKSPACE = 1 << 20 };

/* Products take a workspace, nothing else does. */
static void cost_of_products(void *context, const ir_op_ctx_t *ctx, const ir_type_t *out_types,
                             ir_cost_t *out) {
    (void)context;
    (void)out_types;
    *out = (ir_cost_t){.us = 1, .workspace = ctx->op == IR_OP_MATMUL ? WORKSPACE : 0};
}

static sched_order_info_t order_of(const char *text, const ir_target_t *target) {
    ir_graph_t *graph = NULL;
    ir_node_t order[32];
    sched_order_info_t info;
    assert_int_equal(ir_graph_parse(text, strlen(text), &graph), ST_OK);
    assert_true(graph->nodes.n <= 32);
    assert_int_equal(sched_order(graph, target, order, &info), ST_OK);
    ir_graph_destroy(graph);
    return info;
}

/* Values alone want the large one and its sum before the product; with a workspace as large as four
 * of them the product runs while nothing but its operand is alive. */
static void workspaces_count(void **state) {
    (void)state;
    static const char text[] =
        "graph \"g\" {\n"
        "  %0 x = input {dtype=f32, shape=[256,256]}\n"
        "  %1 big = broadcast(%0) {shape=[3,256,256]}\n"
        "  %2 sum = reduce_sum(%1) {axes=[0]}\n"
        "  %3 m = matmul(%0, %0)\n"
        "  %4 y = add(%3, %2)\n"
        "  output \"y\" = %4\n"
        "}\n";
    const ir_target_t target = {.name = "test", .cost = cost_of_products};
    const int64_t value = 256 * 256 * 4;
    assert_int_equal(order_of(text, NULL).bytes, 5 * value);
    assert_int_equal(order_of(text, &target).bytes, 2 * value + WORKSPACE);
}

/* Sums and exponentials stand in the memory of what they are made from, and the new parameter in
 * the parameter's; what is read once more does not give its memory away. */
static void results_in_place_take_no_memory(void **state) {
    (void)state;
    const int64_t value = 1000 * 4;
    assert_int_equal(order_of("graph \"g\" {\n"
                              "  %0 w = parameter {dtype=f32, shape=[1000]}\n"
                              "  %1 x = input {dtype=f32, shape=[1000]}\n"
                              "  %2 a = exp(%1)\n"
                              "  %3 b = tanh(%2)\n"
                              "  %4 new = add(%0, %3)\n"
                              "  u = update(%0, %4)\n"
                              "}\n",
                              NULL)
                         .bytes,
                     value);
    assert_int_equal(order_of("graph \"g\" {\n"
                              "  %0 x = input {dtype=f32, shape=[1000]}\n"
                              "  %1 a = exp(%0)\n"
                              "  %2 b = tanh(%0)\n"
                              "  %3 c = mul(%1, %2)\n"
                              "  output \"c\" = %3\n"
                              "}\n",
                              NULL)
                         .bytes,
                     2 * value);
}

/* Of orders with one peak, the one that frees sooner: each gradient of a weight right after what it
 * is made from, not all of them at the end. The peak is the large value before them. */
static void ties_go_to_the_smaller_area(void **state) {
    (void)state;
    ir_graph_t *graph = ordered(
        "graph \"g\" {\n"
        "  %0 x = input {dtype=f32, shape=[8,8]}\n"
        "  %1 huge = broadcast(%0) {shape=[1000,8,8]}\n"
        "  %2 d0 = reduce_sum(%1) {axes=[0]}\n"
        "  %3 d1 = matmul(%2, %0)\n"
        "  %4 d2 = matmul(%3, %0)\n"
        "  %5 d3 = matmul(%4, %0)\n"
        "  %6 w1 = reduce_sum(%3) {axes=[0]}\n"
        "  %7 w2 = reduce_sum(%4) {axes=[0]}\n"
        "  %8 w3 = reduce_sum(%5) {axes=[0]}\n"
        "  output \"w1\" = %6\n"
        "  output \"w2\" = %7\n"
        "  output \"w3\" = %8\n"
        "}\n");
    assert_true(position(graph, "w1") < position(graph, "d3"));
    assert_true(position(graph, "w2") < position(graph, "w3"));
    ir_graph_destroy(graph);
}

/* ---- against all orders ---- */

enum { SMALL = 14, ROUNDS = 150 };

/* Random values of random sizes, some of them outputs. */
static ir_graph_t *random_graph(unsigned *seed) {
    ir_graph_t *graph = NULL;
    ir_value_t values[SMALL];
    assert_int_equal(ir_graph_create("random", &graph), ST_OK);
    ir_build_t b = {.graph = graph};
    for (int i = 0; i < SMALL; i++) {
        ir_value_t x = i ? values[rand_r(seed) % i] : IR_NONE;
        ir_value_t two[] = {x, i ? values[rand_r(seed) % i] : IR_NONE};
        int64_t size = i ? ir_value_type(graph, x)->dims[0] : 0;
        int64_t end = 1 + rand_r(seed) % (int)(size + 1);
        char name[16];
        snprintf(name, sizeof name, "x%d", i);
        int kind = i < 2 ? 0 : rand_r(seed) % 6;
        if (kind == 0)
            values[i] = ir_b_input(&b, name,
                                   ir_type_make(IR_F32, 1, (int64_t[]){1 + rand_r(seed) % 30}), -1);
        else if (kind == 1)
            values[i] = ir_b_unary(&b, IR_OP_EXP, x);
        else if (kind < 4)
            values[i] = ir_b_node(&b, IR_OP_CONCAT, 2, two, 1, (ir_arg_t[]){IR_ARG_INT("axis", 0)});
        else
            values[i] = ir_b_slice_axis(&b, x, 0, 0, end > size ? size : end);
    }
    ir_b_output(&b, "last", values[SMALL - 1]);
    ir_b_output(&b, "some", values[rand_r(seed) % SMALL]);
    assert_int_equal(b.status, ST_OK);
    return graph;
}

/* Whether node i is written over its operand: elementwise, and the last to read it after `set`. */
static bool is_in_place(const ir_graph_t *graph, const uint32_t *readers, uint32_t set,
                        uint32_t i) {
    const ir_node_info_t *node = ir_node(graph, i);
    if (node->op != IR_OP_EXP) return false;
    return (readers[graph->values.data[node->inputs[0]].producer] & ~(set | 1u << i)) == 0;
}

/* Least peak of all orders: over the sets of nodes that have run, whatever their order, the memory
 * is the same. */
static int64_t exact_peak(const ir_graph_t *graph) {
    uint32_t n = (uint32_t)graph->nodes.n, needs[SMALL], readers[SMALL];
    static int64_t least[1 << SMALL];
    assert_int_equal(n, SMALL);
    for (uint32_t i = 0; i < n; i++) {
        const ir_node_info_t *node = ir_node(graph, i);
        needs[i] = readers[i] = 0;
        for (uint32_t j = 0; j < node->n_inputs; j++) {
            ir_node_t producer = graph->values.data[node->inputs[j]].producer;
            needs[i] |= 1u << producer;
            readers[producer] |= 1u << i;
        }
    }
    for (size_t o = 0; o < graph->outputs.n; o++) /* a reader that never runs */
        readers[graph->values.data[graph->outputs.data[o].value].producer] |= 1u << n;
    for (uint32_t set = 1; set < 1u << n; set++) least[set] = INT64_MAX;
    for (uint32_t set = 0; set < 1u << n; set++) {
        if (least[set] == INT64_MAX) continue;
        int64_t live = 0;
        for (uint32_t i = 0; i < n; i++)
            if (((set >> i & 1) || ir_node(graph, i)->op == IR_OP_INPUT) && (readers[i] & ~set))
                live +=
                    (int64_t)ir_type_bytes(ir_value_type(graph, ir_node(graph, i)->first_output));
        for (uint32_t i = 0; i < n; i++) {
            if ((set >> i & 1) || (needs[i] & ~set)) continue;
            int64_t now = live;
            if (ir_node(graph, i)->op != IR_OP_INPUT && !is_in_place(graph, readers, set, i))
                now +=
                    (int64_t)ir_type_bytes(ir_value_type(graph, ir_node(graph, i)->first_output));
            if (now < least[set]) now = least[set];
            if (now < least[set | 1u << i]) least[set | 1u << i] = now;
        }
    }
    return least[(1u << n) - 1];
}

static void orders_are_near_the_best_of_all(void **state) {
    (void)state;
    unsigned seed = 1;
    int exact = 0;
    double sum = 0, worst = 0;
    for (int round = 0; round < ROUNDS; round++) {
        ir_graph_t *graph = random_graph(&seed);
        ir_node_t order[SMALL];
        sched_order_info_t info;
        assert_int_equal(sched_order(graph, NULL, order, &info), ST_OK);
        int64_t least = exact_peak(graph);
        assert_true(info.bytes >= least);
        double ratio = (double)info.bytes / (double)least;
        exact += info.bytes == least;
        sum += ratio;
        if (ratio > worst) worst = ratio;
        ir_graph_destroy(graph);
    }
    print_message("%d of %d orders are the best, mean %.4f, worst %.3f of the least peak\n", exact,
                  ROUNDS, sum / ROUNDS, worst);
    assert_true(exact >= 130);
    assert_true(sum / ROUNDS < 1.01);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(readers_come_before_the_update),
        cmocka_unit_test(large_values_are_not_kept),
        cmocka_unit_test(workspaces_count),
        cmocka_unit_test(results_in_place_take_no_memory),
        cmocka_unit_test(ties_go_to_the_smaller_area),
        cmocka_unit_test(orders_are_near_the_best_of_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
