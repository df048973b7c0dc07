/* Turns of loops that were written out: slots by what nodes depend on, and by who reads them first.
 * */
#include "schedule/turns.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/golden.h"

/* Two turns over the rows of x; the sum, and a step that reads it. */
static const char program[] =
    "  %0 x = input {dtype=f32, shape=[2,4]}\n"
    "  %1 w = parameter {dtype=f32, shape=[4]}\n"
    "  %2 first = slice(%0) {begin=[0,0], end=[1,4], step=[1,1]}\n"
    "  %3 row0 = reshape(%2) {shape=[4]}\n"
    "  %4 scaled = exp(%1)\n" /* of the weight alone: the first turn reads it */
    "  %5 g0 = mul(%3, %4)\n"
    "  %6 late = tanh(%1)\n" /* the second turn alone reads it */
    "  %7 second = slice(%0) {begin=[1,0], end=[2,4], step=[1,1]}\n"
    "  %8 row1 = reshape(%7) {shape=[4]}\n"
    "  %9 g1 = mul(%8, %6)\n"
    "  %10 sum = add(%5, %9)\n"
    "  %11 some = slice(%0) {begin=[0,0], end=[2,2], step=[1,1]}\n" /* of both: no turn's */
    "  phase optimizer\n"
    "  %12 rate = exp(%1)\n"
    "  %13 step = mul(%10, %12)\n"
    "  %14 new = sub(%1, %13)\n"
    "  update(%1, %14)\n"
    "  output \"some\" = %11\n";

static void nodes_belong_to_the_last_turn_they_depend_on(void **state) {
    (void)state;
    static const struct {
        const char *name;
        uint32_t slot;
    } rows[] = {{"x", 0},   {"w", 0},      {"first", 1}, {"row0", 1}, {"scaled", 1},
                {"g0", 1},  {"second", 2}, {"row1", 2},  {"g1", 2},   {"late", 2},
                {"sum", 2}, {"some", 3},   {"rate", 3},  {"step", 3}, {"new", 3}};
    ir_graph_t *graph = golden_parse(program);
    assert_int_equal(sched_mark_turns(graph, 2), ST_OK);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ir_node_t n = 0;
        while (strcmp(ir_node(graph, n)->name, rows[i].name) != 0)
            assert_true(++n < graph->nodes.n);
        if (ir_node(graph, n)->slot != rows[i].slot)
            fail_msg("'%s' is in slot %u, not %u", rows[i].name, ir_node(graph, n)->slot,
                     rows[i].slot);
    }
    assert_int_equal(ir_node(graph, (ir_node_t)graph->nodes.n - 1)->slot, 3); /* the update */
    ir_graph_destroy(graph);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_belong_to_the_last_turn_they_depend_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
