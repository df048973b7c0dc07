/* What the proof of plans lets a fused node write over its operands; tests/kernels checks on random
 * bodies that it lets all that the planner takes. */
#include "compile/plan_reuse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ir/text.h"

#define X "%0 x = input {dtype=f32, shape=[6,10], batch_axis=-1}\n"
#define Y "%1 y = input {dtype=f32, shape=[77], batch_axis=-1}\n"
#define SUM "%2 = reduce_sum(%1) {axes=[0]}\n"

/* Result 0 over operand 0. */
static void expect(const char *nodes, bool expected, const char *why) {
    char text[2048];
    ir_graph_t *body = NULL;
    plan_reuse_t *reuse = NULL;
    bool allows = !expected;
    strcpy(text, "graph \"body\" {\n");
    strcat(text, nodes);
    strcat(text, "}\n");
    if (ir_graph_parse(text, strlen(text), &body) != ST_OK) fail_msg("%s", st_last_error());
    assert_int_equal(plan_reuse_open(body, &reuse), ST_OK);
    assert_int_equal(plan_reuse_allows(reuse, 0, 0, &allows), ST_OK);
    if (allows != expected) fail_msg("%s", why);
    plan_reuse_close(reuse);
    ir_graph_destroy(body);
}

static void test_order_of_reductions(void **state) {
    (void)state;
    expect(X Y SUM
           "%3 = relu(%0)\n%4 = exp(%3)\n%5 = mul(%3, %2)\n"
           "output \"n\" = %4\noutput \"a\" = %5\n",
           false, "a waits for the sum, n does not");
    expect(X Y SUM
           "%3 = relu(%0)\n%4 = add(%3, %2)\n%5 = mul(%3, %2)\n"
           "output \"n\" = %4\noutput \"a\" = %5\n",
           true, "both wait for the sum");
    expect(X Y SUM
           "%3 = reduce_sum(%1) {axes=[0]}\n%4 = add(%0, %2)\n%5 = mul(%0, %3)\n"
           "output \"a\" = %5\noutput \"n\" = %4\n",
           true, "both wait for one sum, written twice");
    expect(X "%1 = reduce_sum(%0) {axes=[1], keep=true}\n%2 = mul(%0, %1)\noutput \"a\" = %2\n",
           false, "a row's sum may be computed again");
}

static void test_elements(void **state) {
    (void)state;
    expect(X "%1 = exp(%0)\noutput \"a\" = %1\n", true, "element by element");
    expect(X
           "%1 = transpose(%0) {perm=[1,0]}\n%2 = reshape(%1) {shape=[5,2,6]}\n%3 = exp(%2)\n"
           "%4 = reshape(%3) {shape=[10,6]}\n%5 = transpose(%4) {perm=[1,0]}\n"
           "output \"a\" = %5\n",
           true, "turned and turned back");
    expect(X "%1 = transpose(%0) {perm=[1,0]}\n%2 = exp(%1)\noutput \"a\" = %2\n", false,
           "turned only");
    expect(X
           "%1 = reshape(%0) {shape=[10,6]}\n%2 = transpose(%1) {perm=[1,0]}\n"
           "%3 = add(%0, %2)\noutput \"a\" = %3\n",
           false, "read at two places");
    expect(X
           "%1 y = input {dtype=f32, shape=[3,6,10], batch_axis=-1}\n%2 = add(%0, %1)\n"
           "%3 = exp(%0)\noutput \"a\" = %3\noutput \"b\" = %2\n",
           false, "read three times");
    expect(X "%1 = flip(%0) {axes=[1]}\n%2 = exp(%1)\noutput \"a\" = %2\n", false, "backwards");
    expect(
        "%0 i = input {dtype=i32, shape=[9], batch_axis=-1}\n"
        "%1 t = input {dtype=f32, shape=[4], batch_axis=-1}\n"
        "%2 = gather(%1, %0) {axis=0}\noutput \"a\" = %2\n",
        true, "an index");
    expect(
        "%0 t = input {dtype=f32, shape=[9], batch_axis=-1}\n"
        "%1 i = input {dtype=i32, shape=[9], batch_axis=-1}\n"
        "%2 = gather(%0, %1) {axis=0}\noutput \"a\" = %2\n",
        false, "a table");
}

static void test_order_of_nodes(void **state) {
    (void)state;
    expect(X "%1 = exp(%0)\n%2 = sin(%0)\noutput \"a\" = %1\noutput \"b\" = %2\n", false,
           "b reads x after a");
    expect(X "%1 = exp(%0)\n%2 = sin(%0)\noutput \"b\" = %2\noutput \"a\" = %1\n", true,
           "a reads x before b");
    expect(X
           "%1 y = input {dtype=f32, shape=[6,10], batch_axis=-1}\n%2 = mul(%0, %1)\n"
           "%3 = exp(%0)\n%4 = add(%2, %1)\noutput \"a\" = %3\noutput \"b\" = %4\n",
           false, "the product is taken with the sum, after a");
    expect(X "%1 = exp(%0)\noutput \"a\" = %1\noutput \"x\" = %0\n", false, "x is a result too");
    expect(X
           "%1 y = input {dtype=f32, shape=[6,10], batch_axis=-1}\n%2 = exp(%1)\n%3 = sin(%0)\n"
           "output \"a\" = %2\noutput \"b\" = %3\n",
           false, "a has nothing to do with x");
}

/* What a kernel takes together with its one reader reads the operand as late as that one. */
static void test_taken_with_readers(void **state) {
    (void)state;
    static const char *const ops[] = {"exp", "sqrt", "silu"};
    for (int i = 0; i < 3; i++) {
        char text[256];
        snprintf(text, sizeof text,
                 "%s%%1 = %s(%%0)\n%%2 = relu(%%0)\n%%3 = neg(%%1)\n"
                 "output \"a\" = %%2\noutput \"b\" = %%3\n",
                 X, ops[i]);
        expect(text, false, ops[i]);
    }
    expect(X
           "%1 = tanh(%0)\n%2 = relu(%0)\n%3 = neg(%1)\n"
           "output \"a\" = %2\noutput \"b\" = %3\n",
           true, "tanh is computed where it stands");
}

/* One computation in two orders of the dims reads the operand once, where it stands first. */
static void test_orders_of_dims(void **state) {
    (void)state;
#define TURNED(op)                                                                       \
    X "%1 = tanh(%0)\n%2 = square(%1)\n%3 = transpose(%0) {perm=[1,0]}\n%4 = " op        \
      "(%3)\n%5 = transpose(%4) {perm=[1,0]}\n%6 = relu(%5)\noutput \"a\" = %2\noutput " \
      "\"b\" = %6\n"
    expect(TURNED("tanh"), true, "one tanh");
    expect(TURNED("sigmoid"), false, "the sigmoid reads x behind the square");
    expect(X
           "%1 = reshape(%0) {shape=[2,30]}\n%2 = reshape(%0) {shape=[2,30]}\n%3 = tanh(%1)\n"
           "%4 = square(%3)\n%5 = transpose(%2) {perm=[1,0]}\n%6 = tanh(%5)\n"
           "%7 = transpose(%6) {perm=[1,0]}\n%8 = relu(%7)\n"
           "output \"a\" = %4\noutput \"b\" = %8\n",
           true, "one tanh, of two views with the same dims");
    expect(X
           "%1 = tanh(%0)\n%2 = transpose(%0) {perm=[1,0]}\n%3 = tanh(%2)\n"
           "%4 = reshape(%3) {shape=[6,10]}\n%5 = mul(%1, %4)\noutput \"a\" = %5\n",
           false, "an element waits for another's place");
}

static void test_one_element(void **state) {
    (void)state;
    static const char counted[] =
        "%0 t = input {dtype=f32, shape=[], batch_axis=-1}\n"
        "%1 y = input {dtype=f32, shape=[77], batch_axis=-1}\n"
        "%2 = constant {dtype=f32, shape=[], data=1}\n%3 = add(%0, %2)\n"
        "%4 = mul(%1, %3)\noutput \"t\" = %3\noutput \"p\" = %4\n";
    expect(counted, true, "t + 1 is computed once");
    static const char read[] =
        "%0 t = input {dtype=f32, shape=[], batch_axis=-1}\n"
        "%1 y = input {dtype=f32, shape=[77], batch_axis=-1}\n"
        "%2 = constant {dtype=f32, shape=[], data=1}\n%3 = mul(%1, %0)\n"
        "%4 = add(%0, %2)\noutput \"t\" = %4\noutput \"p\" = %3\n";
    expect(read, false, "p reads t from its memory");
    static const char counts_nothing[] =
        "%0 t = input {dtype=f32, shape=[], batch_axis=-1}\n"
        "%1 = iota {dtype=f32, shape=[5,1], axis=1, start=0.5}\n%2 = add(%1, %0)\n"
        "%3 = tanh(%0)\noutput \"t\" = %3\noutput \"p\" = %2\n";
    expect(counts_nothing, true, "the five sums are one, computed once");
    static const char stays[] =
        "%0 t = input {dtype=f32, shape=[], batch_axis=-1}\n"
        "%1 = iota {dtype=f32, shape=[5], axis=0, start=2, step=0}\n%2 = add(%1, %0)\n"
        "%3 = tanh(%0)\noutput \"t\" = %3\noutput \"p\" = %2\n";
    expect(stays, true, "2 + t five times, computed once");
    static const char counts[] =
        "%0 t = input {dtype=f32, shape=[], batch_axis=-1}\n"
        "%1 = iota {dtype=f32, shape=[5], axis=0}\n%2 = add(%1, %0)\n"
        "%3 = tanh(%0)\noutput \"t\" = %3\noutput \"p\" = %2\n";
    expect(counts, false, "each sum reads t");
    static const char late[] =
        "%0 t = input {dtype=f32, shape=[], batch_axis=-1}\n"
        "%1 y = input {dtype=f32, shape=[77], batch_axis=-1}\n"
        "%2 = reduce_sum(%1) {axes=[0]}\n%3 = mul(%0, %2)\n%4 = exp(%0)\n"
        "output \"t\" = %4\noutput \"s\" = %3\n";
    expect(late, false, "s waits for the sum, t does not");
}

/* A result that shares some axes and has others takes a kernel through more points. */
static void test_axes_of_other_results(void **state) {
    (void)state;
#define TABLES                                               \
    "%0 x = input {dtype=f32, shape=[2,6], batch_axis=-1}\n" \
    "%1 a = input {dtype=f32, shape=[30], batch_axis=-1}\n"  \
    "%2 b = input {dtype=f32, shape=[30], batch_axis=-1}\n"  \
    "%3 i = input {dtype=i64, shape=[2], batch_axis=-1}\n"   \
    "%4 = sin(%0)\n%5 = reshape(%1) {shape=[5,6]}\n%6 = reshape(%2) {shape=[5,6]}\n"
    expect(TABLES
           "%7 = gather(%5, %3) {axis=0}\n%8 = mul(%4, %7)\n%9 = gather(%6, %3) {axis=0}\n"
           "output \"r\" = %8\noutput \"s\" = %9\n",
           false, "s has the rows of r and columns of its own");
    expect(TABLES
           "%7 = gather(%5, %3) {axis=0}\n%8 = mul(%4, %7)\n%9 = abs(%3)\n"
           "%10 = gather(%5, %9) {axis=0}\noutput \"r\" = %8\noutput \"s\" = %10\n",
           true, "rows of one table, by indices along one axis");
    expect(TABLES
           "%7 = gather(%5, %3) {axis=0}\n%8 = mul(%4, %7)\n%9 = gather(%6, %3) {axis=0}\n"
           "%10 = add(%8, %9)\noutput \"r\" = %10\noutput \"s\" = %9\n",
           true, "the sum makes the columns common");
    expect(TABLES
           "%7 = gather(%5, %3) {axis=0}\n%8 = mul(%4, %7)\n%9 = exp(%5)\n"
           "output \"r\" = %8\noutput \"t\" = %9\n",
           false, "t has the columns of r and all rows of the table");
    expect(TABLES
           "%7 = gather(%5, %3) {axis=0}\n%8 = mul(%4, %7)\n%9 = neg(%3)\n"
           "output \"r\" = %8\noutput \"i\" = %9\n",
           true, "the rows are axes of r");
    expect(TABLES
           "%7 = gather(%5, %3) {axis=0}\n%8 = mul(%4, %7)\n%9 = exp(%2)\n"
           "output \"r\" = %8\noutput \"t\" = %9\n",
           true, "t shares nothing with r");
    expect(TABLES
           "%7 = gather(%5, %3) {axis=0}\n%8 = mul(%4, %7)\n%9 = gather(%6, %3) {axis=0}\n"
           "%10 = reduce_sum(%9) {axes=[1]}\noutput \"r\" = %8\noutput \"s\" = %10\n",
           false, "columns are summed for the rows of r");
#define CUT                                                     \
    X "%1 b = input {dtype=f32, shape=[10], batch_axis=-1}\n"   \
      "%2 c = input {dtype=f32, shape=[4,10], batch_axis=-1}\n" \
      "%3 = reshape(%0) {shape=[2,3,10]}\n%4 = add(%3, %1)\n"
    expect(CUT "%5 = neg(%1)\noutput \"a\" = %4\noutput \"b\" = %5\n", true,
           "b has a's last axis only");
    expect(CUT "%5 = mul(%1, %2)\noutput \"a\" = %4\noutput \"c\" = %5\n", false,
           "c has four rows of a's last axis");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_of_reductions),   cmocka_unit_test(test_elements),
        cmocka_unit_test(test_order_of_nodes),        cmocka_unit_test(test_taken_with_readers),
        cmocka_unit_test(test_orders_of_dims),        cmocka_unit_test(test_one_element),
        cmocka_unit_test(test_axes_of_other_results),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
