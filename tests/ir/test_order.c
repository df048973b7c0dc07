/* What orders of nodes keep: states are written over after all that reads them. */
#include "ir/order.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "ir/text.h"

static bool has_edge(const ir_edges_t *edges, ir_node_t from, ir_node_t to) {
    for (size_t e = 0; e < edges->n; e++)
        if (edges->data[e].from == from && edges->data[e].to == to) return true;
    return false;
}

/* A gather reads the state until it is waited for; a sum has its own copy from the start on. */
static void states_in_flight_are_written_over_after_the_wait(void **state) {
    (void)state;
    static const char text[] =
        "graph \"g\" {\n"
        "  %0 w = parameter {dtype=f32, shape=[4,3]}\n"
        "  %1 = all_gather_start(%0) {axis=[0], granules=[8], extent=[8]}\n"
        "  %2 v = parameter {dtype=f32, shape=[4,3]}\n"
        "  %3 = all_reduce_start(%2)\n"
        "  %4 = all_gather_wait(%1)\n"
        "  %5 = all_reduce_wait(%3)\n"
        "  %6 new_w = neg(%0)\n"
        "  %7 new_v = neg(%2)\n"
        "  update(%0, %6)\n"
        "  update(%2, %7)\n"
        "  output \"a\" = %4\n"
        "  output \"b\" = %5\n"
        "}\n";
    ir_graph_t *graph;
    ir_value_t root[8];
    ir_edges_t edges = {0};
    st_status_t status = ir_graph_parse(text, strlen(text), &graph);
    if (status != ST_OK) print_error("%s\n", st_last_error());
    assert_int_equal(status, ST_OK);
    ir_order_roots(graph, root);
    assert_int_equal(ir_order_edges(graph, root, true, &edges), ST_OK);
    const ir_node_t gather = 4, sum = 5, new_w = 6, new_v = 7, update_w = 8, update_v = 9;
    assert_true(has_edge(&edges, 1, update_w) && has_edge(&edges, 3, update_v));
    assert_true(has_edge(&edges, gather, update_w) && has_edge(&edges, gather, new_w));
    assert_false(has_edge(&edges, sum, update_v) || has_edge(&edges, sum, new_v));
    ST_VEC_FREE(&edges);
    ir_graph_destroy(graph);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states_in_flight_are_written_over_after_the_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
