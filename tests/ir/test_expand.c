/* Composites replaced by their definitions: text in, text out. */
#include "ir/expand.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/golden.h"

static st_status_t expand_for_gradient(const ir_graph_t *graph, ir_graph_t **out_graph) {
    return ir_expand_composites(graph, ir_expand_for_gradient, out_graph);
}

#define X "  %0 x = input {dtype=f32, shape=[4,3]}\n"

/* The row's largest element, what is left, and a factor a row: no division an element. */
static void softmax_is_primitives(void **state) {
    (void)state;
    assert_becomes(ir_expand_definitions,
                   X
                   "  %1 = softmax(%0) {axis=1}\n"
                   "  output \"y\" = %1\n",
                   X
                   "  %1 = reduce_max(%0) {axes=[1], keep=true}\n"
                   "  %2 = sub(%0, %1)\n"
                   "  %3 = exp(%2)\n"
                   "  %4 = reduce_sum(%3) {axes=[1], keep=true}\n"
                   "  %5 = reciprocal(%4)\n"
                   "  %6 = mul(%3, %5)\n"
                   "  output \"y\" = %6\n");
}

/* Small floats are computed with as f32, and cast back. */
static void definitions_compute_in_wide_floats(void **state) {
    (void)state;
    assert_becomes(ir_expand_definitions,
                   "  %0 x = input {dtype=bf16, shape=[4,3]}\n"
                   "  %1 = log_softmax(%0) {axis=1}\n"
                   "  output \"y\" = %1\n",
                   "  %0 x = input {dtype=bf16, shape=[4,3]}\n"
                   "  %1 = cast(%0) {dtype=f32}\n"
                   "  %2 = reduce_max(%1) {axes=[1], keep=true}\n"
                   "  %3 = sub(%1, %2)\n"
                   "  %4 = exp(%3)\n"
                   "  %5 = reduce_sum(%4) {axes=[1], keep=true}\n"
                   "  %6 = log(%5)\n"
                   "  %7 = add(%2, %6)\n"
                   "  %8 = sub(%1, %7)\n"
                   "  %9 = cast(%8) {dtype=bf16}\n"
                   "  output \"y\" = %9\n");
}

/* Also what stands in a body, and beside what is no composite. */
static void bodies_are_expanded(void **state) {
    (void)state;
    assert_becomes(ir_expand_definitions,
                   X
                   "  %1 = repeat(%0) {body=graph {\n"
                   "    %0 \"0\" = input {dtype=f32, shape=[4,3], batch_axis=-1}\n"
                   "    %1 = softmax(%0) {axis=1}\n"
                   "    output \"0\" = %1\n"
                   "  }, trip=2, carried=1}\n"
                   "  %2 = exp(%1)\n"
                   "  output \"y\" = %2\n",
                   X
                   "  %1 = repeat(%0) {body=graph {\n"
                   "    %0 \"0\" = input {dtype=f32, shape=[4,3], batch_axis=-1}\n"
                   "    %1 = reduce_max(%0) {axes=[1], keep=true}\n"
                   "    %2 = sub(%0, %1)\n"
                   "    %3 = exp(%2)\n"
                   "    %4 = reduce_sum(%3) {axes=[1], keep=true}\n"
                   "    %5 = reciprocal(%4)\n"
                   "    %6 = mul(%3, %5)\n"
                   "    output \"0\" = %6\n"
                   "  }, trip=2, carried=1}\n"
                   "  %2 = exp(%1)\n"
                   "  output \"y\" = %2\n");
}

/* An op with a gradient rule stays one for reverse mode. */
static void what_has_a_gradient_stays_for_it(void **state) {
    (void)state;
    assert_becomes(expand_for_gradient,
                   X
                   "  %1 = softmax(%0) {axis=1}\n"
                   "  output \"y\" = %1\n",
                   X
                   "  %1 = softmax(%0) {axis=1}\n"
                   "  output \"y\" = %1\n");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(softmax_is_primitives),
        cmocka_unit_test(definitions_compute_in_wide_floats),
        cmocka_unit_test(bodies_are_expanded),
        cmocka_unit_test(what_has_a_gradient_stays_for_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
