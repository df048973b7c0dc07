/* Loops written out: text in, text out. */
#include "ir/unroll.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "support/golden.h"

static bool wants_any(void *context, ir_node_t node) {
    (void)context, (void)node;
    return true;
}
static bool wants_none(void *context, ir_node_t node) {
    (void)context, (void)node;
    return false;
}
static st_status_t unroll(const ir_graph_t *graph, ir_graph_t **out_graph) {
    return ir_unroll(graph, wants_any, NULL, out_graph);
}
static st_status_t unroll_none(const ir_graph_t *graph, ir_graph_t **out_graph) {
    return ir_unroll(graph, wants_none, NULL, out_graph);
}

/* h' = h · w + x, stacked; the loop's options follow. */
#define LOOP(options)                                              \
    "  %0 h = input {dtype=f32, shape=[3]}\n"                      \
    "  %1 x = input {dtype=f32, shape=[2,3]}\n"                    \
    "  %2 w = parameter {dtype=f32, shape=[3]}\n"                  \
    "  %3, %4 = repeat(%0, %1, %2) {body=graph {\n"                \
    "    %0 \"0\" = input {dtype=f32, shape=[3], batch_axis=-1}\n" \
    "    %1 \"1\" = input {dtype=f32, shape=[3], batch_axis=-1}\n" \
    "    %2 \"2\" = input {dtype=f32, shape=[3], batch_axis=-1}\n" \
    "    %3 = mul(%0, %2)\n"                                       \
    "    %4 = add(%3, %1)\n"                                       \
    "    output \"0\" = %4\n"                                      \
    "    output \"1\" = %3\n"                                      \
    "  }, " options                                                \
    "carried=1, scanned=1}\n"                                      \
    "  output \"h\" = %3\n"                                        \
    "  output \"y\" = %4\n"

static void turns_follow_each_other(void **state) {
    (void)state;
    assert_becomes(unroll, LOOP("trip=2, "),
                   "  %0 h = input {dtype=f32, shape=[3]}\n"
                   "  %1 x = input {dtype=f32, shape=[2,3]}\n"
                   "  %2 w = parameter {dtype=f32, shape=[3]}\n"
                   "  %3 = slice(%1) {begin=[0,0], end=[1,3], step=[1,1]}\n"
                   "  %4 = reshape(%3) {shape=[3]}\n"
                   "  %5 = mul(%0, %2)\n"
                   "  %6 = add(%5, %4)\n"
                   "  %7 = reshape(%5) {shape=[1,3]}\n"
                   "  %8 = slice(%1) {begin=[1,0], end=[2,3], step=[1,1]}\n"
                   "  %9 = reshape(%8) {shape=[3]}\n"
                   "  %10 = mul(%6, %2)\n"
                   "  %11 = add(%10, %9)\n"
                   "  %12 = reshape(%10) {shape=[1,3]}\n"
                   "  %13 = concat(%7, %12) {axis=0}\n"
                   "  output \"h\" = %11\n"
                   "  output \"y\" = %13\n");
}

/* The last slice first; pieces stay in the order of the slices. */
static void a_loop_that_goes_backwards_takes_its_turns_in_that_order(void **state) {
    (void)state;
    assert_becomes(unroll, LOOP("reverse=true, trip=2, "),
                   "  %0 h = input {dtype=f32, shape=[3]}\n"
                   "  %1 x = input {dtype=f32, shape=[2,3]}\n"
                   "  %2 w = parameter {dtype=f32, shape=[3]}\n"
                   "  %3 = slice(%1) {begin=[1,0], end=[2,3], step=[1,1]}\n"
                   "  %4 = reshape(%3) {shape=[3]}\n"
                   "  %5 = mul(%0, %2)\n"
                   "  %6 = add(%5, %4)\n"
                   "  %7 = reshape(%5) {shape=[1,3]}\n"
                   "  %8 = slice(%1) {begin=[0,0], end=[1,3], step=[1,1]}\n"
                   "  %9 = reshape(%8) {shape=[3]}\n"
                   "  %10 = mul(%6, %2)\n"
                   "  %11 = add(%10, %9)\n"
                   "  %12 = reshape(%10) {shape=[1,3]}\n"
                   "  %13 = concat(%12, %7) {axis=0}\n"
                   "  output \"h\" = %11\n"
                   "  output \"y\" = %13\n");
}

static void no_turn_passes_the_carries_on(void **state) {
    (void)state;
    assert_becomes(unroll,
                   "  %0 h = input {dtype=f32, shape=[3]}\n"
                   "  %1, %2 = repeat(%0) {body=graph {\n"
                   "    %0 \"0\" = input {dtype=f32, shape=[3], batch_axis=-1}\n"
                   "    %1 = exp(%0)\n"
                   "    output \"0\" = %1\n"
                   "    output \"1\" = %0\n"
                   "  }, trip=0, carried=1}\n"
                   "  output \"h\" = %1\n"
                   "  output \"y\" = %2\n",
                   "  %0 h = input {dtype=f32, shape=[3]}\n"
                   "  %1 = constant {dtype=f32, shape=[0,3], data=0}\n"
                   "  output \"h\" = %0\n"
                   "  output \"y\" = %1\n");
}

/* A loop in the body is one of the graph's own then. */
static void loops_in_bodies_come_to_the_top(void **state) {
    (void)state;
    assert_becomes(unroll,
                   "  %0 h = input {dtype=f32, shape=[3]}\n"
                   "  %1 = repeat(%0) {body=graph {\n"
                   "    %0 \"0\" = input {dtype=f32, shape=[3], batch_axis=-1}\n"
                   "    %1 = repeat(%0) {body=graph {\n"
                   "      %0 \"0\" = input {dtype=f32, shape=[3], batch_axis=-1}\n"
                   "      %1 = exp(%0)\n"
                   "      output \"0\" = %1\n"
                   "    }, trip=2, carried=1}\n"
                   "    output \"0\" = %1\n"
                   "  }, trip=1, carried=1}\n"
                   "  output \"h\" = %1\n",
                   "  %0 h = input {dtype=f32, shape=[3]}\n"
                   "  %1 = repeat(%0) {body=graph {\n"
                   "    %0 \"0\" = input {dtype=f32, shape=[3], batch_axis=-1}\n"
                   "    %1 = exp(%0)\n"
                   "    output \"0\" = %1\n"
                   "  }, trip=2, carried=1}\n"
                   "  output \"h\" = %1\n");
}

static void what_is_not_wanted_stays(void **state) {
    (void)state;
    assert_becomes(unroll_none, LOOP("trip=2, "), LOOP("trip=2, "));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(turns_follow_each_other),
        cmocka_unit_test(a_loop_that_goes_backwards_takes_its_turns_in_that_order),
        cmocka_unit_test(no_turn_passes_the_carries_on),
        cmocka_unit_test(loops_in_bodies_come_to_the_top),
        cmocka_unit_test(what_is_not_wanted_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
