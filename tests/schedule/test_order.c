/* The order of execution: legal, small, and the same collectives in the same order. */
#include "schedule/order.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "ir/text.h"
#include "ir/verify.h"

static ir_graph_t *ordered(const char *text) {
    ir_graph_t *graph = NULL, *result = NULL;
    st_status_t status = ir_graph_parse(text, strlen(text), &graph);
    if (status != ST_OK) print_error("%s\n", st_last_error());
    assert_int_equal(status, ST_OK);
    ir_node_t *order = st_calloc(graph->nodes.n, sizeof *order);
    assert_int_equal(sched_order(graph, order), ST_OK);
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

static void collectives_keep_their_order(void **state) {
    (void)state;
    ir_graph_t *graph = ordered(
        "graph \"g\" {\n"
        "  %0 x = input {dtype=f32, shape=[4]}\n"
        "  %1 big = broadcast(%0) {shape=[1000,4]}\n"
        "  %2 r = reduce_sum(%1) {axes=[0]}\n"
        "  %3 s0 = all_reduce_start(%2)\n"
        "  %4 big2 = broadcast(%0) {shape=[1000,4]}\n"
        "  %5 r2 = reduce_sum(%4) {axes=[0]}\n"
        "  %6 s1 = all_reduce_start(%5)\n"
        "  %7 w0 = all_reduce_wait(%3)\n"
        "  %8 w1 = all_reduce_wait(%6)\n"
        "  %9 z = add(%7, %8)\n"
        "  output \"z\" = %9\n"
        "}\n");
    assert_true(position(graph, "s0") < position(graph, "s1"));
    assert_true(position(graph, "s1") < position(graph, "w0"));
    assert_true(position(graph, "w0") < position(graph, "w1"));
    ir_graph_destroy(graph);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(readers_come_before_the_update),
        cmocka_unit_test(large_values_are_not_kept),
        cmocka_unit_test(collectives_keep_their_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
