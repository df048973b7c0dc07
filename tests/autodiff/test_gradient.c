/* The gradient pass: what it differentiates, what it leaves alone, and how it says what it cannot
 * do. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "autodiff/gradient.h"
#include "autodiff/run.h"
#include "ir/build.h"
#include "ir/expand.h"
#include "ir/text.h"
#include "ir/verify.h"

#define OK(call) run_ok((call), #call, __LINE__)
#define FAILS(call, status, part) run_fails((call), (status), (part), __LINE__)

static ir_graph_t *parse(const char *text) {
    ir_graph_t *graph;
    OK(ir_graph_parse(text, strlen(text), &graph));
    return graph;
}

static ir_value_t named(const ir_graph_t *graph, const char *name) {
    ir_node_t node = ir_graph_find(graph, name);
    assert_int_not_equal(node, IR_NONE);
    return ir_node(graph, node)->first_output;
}

static size_t count_op(const ir_graph_t *graph, ir_op_t op) {
    size_t n = 0;
    for (size_t i = 0; i < graph->nodes.n; i++) n += graph->nodes.data[i].op == op;
    return n;
}

/* A weight used as lookup table and, tied, as output projection: one gradient, the sum of both
 * uses. */
static void test_tied_parameter(void **state) {
    (void)state;
    ir_graph_t *graph = parse(
        "graph \"tied\" {\n"
        "  %0 ids = input {dtype=i64, shape=[3]}\n"
        "  %1 \"embed.weight\" = parameter {dtype=f64, shape=[4,2]}\n"
        "  %2 = gather(%1, %0) {axis=0}\n"
        "  %3 = matmul(%2, %1) {transpose_b=true}\n"
        "  %4 = square(%3)\n"
        "  %5 = reduce_sum(%4) {axes=[0,1]}\n"
        "  output \"loss\" = %5\n"
        "  alias \"lm_head.weight\" = \"embed.weight\"\n"
        "}\n");
    const ir_value_t w = named(graph, "lm_head.weight"), loss = ir_graph_find_output(graph, "loss");
    assert_int_equal(w, named(graph, "embed.weight"));
    const ir_node_t n_forward = (ir_node_t)graph->nodes.n;
    ir_value_t grad;
    OK(ad_gradient(graph, loss, 1, &w, &grad));
    OK(ir_graph_verify(graph));
    assert_int_equal(count_op(graph, IR_OP_PARAMETER), 1);
    assert_int_equal(ir_value_producer(graph, grad)->op, IR_OP_ADD);
    run_t run;
    run_open(&run, graph);
    double *table = run.data[w];
    memcpy(run.data[named(graph, "ids")], (int64_t[]){1, 3, 1}, 3 * sizeof(int64_t));
    for (int i = 0; i < 8; i++) table[i] = 0.3 * i - 0.8;
    run_nodes(&run, 0, (ir_node_t)graph->nodes.n);
    for (int i = 0; i < 8; i++) {
        const double kept = table[i], step = 1e-5, given = ((double *)run.data[grad])[i];
        table[i] = kept + step;
        run_nodes(&run, 0, n_forward);
        double above = *(double *)run.data[loss];
        table[i] = kept - step;
        run_nodes(&run, 0, n_forward);
        double expected = (above - *(double *)run.data[loss]) / (2 * step);
        table[i] = kept;
        if (!(fabs(given - expected) <= 1e-7 * (1 + fabs(expected))))
            fail_msg("element %d: %.12g, differences %.12g", i, given, expected);
    }
    run_close(&run);
    ir_graph_destroy(graph);
}

/* Two ops without a rule, one behind the other, and one whose rule does not cover the case: one
 * error names all. */
static void test_missing_rules_are_listed(void **state) {
    (void)state;
    ir_graph_t *graph = parse(
        "graph \"missing\" {\n"
        "  %0 w = parameter {dtype=f32, shape=[2,3,4,4]}\n"
        "  %1 first = softmax_grad(%0, %0) {axis=3}\n"
        "  %2, %3 middle = attention(%1, %1, %1)\n"
        "  %4 fine = neg(%3)\n"
        "  %5 second = softmax_grad(%4, %4) {axis=1}\n"
        "  %6 other = softmax_grad(%0, %0) {axis=0}\n"
        "  %7 = reduce_sum(%5) {axes=[0,1,2]}\n"
        "  output \"loss\" = %7\n"
        "}\n");
    const size_t n_nodes = graph->nodes.n, n_values = graph->values.n;
    const ir_value_t w = named(graph, "w"), loss = ir_graph_find_output(graph, "loss");
    ir_value_t grad = 7;
    FAILS(ad_gradient(graph, loss, 1, &w, &grad), ST_UNSUPPORTED, "3 nodes on the way to the loss");
    assert_non_null(strstr(st_last_error(), "(softmax_grad 'first'): backward op"));
    assert_non_null(strstr(st_last_error(),
                           "(attention 'middle'): there is no gradient through output 1 (lse)"));
    assert_non_null(strstr(st_last_error(), "(softmax_grad 'second'): backward op"));
    assert_null(strstr(st_last_error(), "fine"));
    assert_null(strstr(st_last_error(), "other"));
    assert_int_equal(grad, IR_NONE);
    assert_int_equal(graph->nodes.n, n_nodes);
    assert_int_equal(graph->values.n, n_values);
    OK(ir_graph_verify(graph));
    ir_graph_destroy(graph);
}

/* More nodes without a rule than a message has room for. */
static void test_many_missing_rules(void **state) {
    (void)state;
    enum { N = 300 };
    ir_graph_t *graph;
    OK(ir_graph_create("many", &graph));
    ir_build_t b = {.graph = graph, .name = "a node with quite a long name"};
    const ir_arg_t axis = IR_ARG_INT("axis", 0);
    ir_value_t w = ir_b_parameter(&b, "w", (ir_type_t){.dtype = IR_F32, .rank = 1, .dims = {3}}),
               x = w;
    for (int i = 0; i < N; i++)
        x = ir_b_node(&b, IR_OP_SOFTMAX_GRAD, 2, (ir_value_t[]){x, x}, 1, &axis);
    ir_value_t loss = ir_b_reduce(&b, IR_OP_REDUCE_SUM, x, 0, NULL, false), grad;
    OK(b.status);
    FAILS(ad_gradient(graph, loss, 1, &w, &grad), ST_UNSUPPORTED, "300 nodes on the way");
    assert_non_null(strstr(st_last_error(), "and others"));
    ir_graph_destroy(graph);
}

/* A parameter that the loss does not see, one that it sees through an integer only, and one it
 * sees. */
static void test_no_influence_gives_zeros(void **state) {
    (void)state;
    ir_graph_t *graph = parse(
        "graph \"zeros\" {\n"
        "  %0 unused = parameter {dtype=f64, shape=[2,3]}\n"
        "  %1 chosen = parameter {dtype=f64, shape=[5]}\n"
        "  %2 seen = parameter {dtype=f64, shape=[]}\n"
        "  %3 = argmax(%1) {axis=0}\n"
        "  %4 = cast(%3) {dtype=f64}\n"
        "  %5 = mul(%4, %2)\n"
        "  %6 = exp(%0)\n"
        "  output \"loss\" = %5\n"
        "}\n");
    const ir_value_t wrt[3] = {named(graph, "unused"), named(graph, "chosen"),
                               named(graph, "seen")};
    ir_value_t grads[3];
    OK(ad_gradient(graph, ir_graph_find_output(graph, "loss"), 3, wrt, grads));
    OK(ir_graph_verify(graph));
    run_t run;
    run_open(&run, graph);
    memcpy(run.data[wrt[1]], (double[]){1, 2, 9, 3, 4}, 5 * sizeof(double));
    run_nodes(&run, 0, (ir_node_t)graph->nodes.n);
    for (int w = 0; w < 2; w++) {
        assert_int_equal(ir_value_producer(graph, grads[w])->op, IR_OP_CONSTANT);
        assert_true(ir_type_equal(ir_value_type(graph, grads[w]), ir_value_type(graph, wrt[w])));
        for (int64_t i = 0; i < ir_type_elements(ir_value_type(graph, wrt[w])); i++)
            assert_true(((double *)run.data[grads[w]])[i] == 0);
    }
    assert_true(*(double *)run.data[grads[2]] == 2); /* the index of the maximum */
    run_close(&run);
    ir_graph_destroy(graph);
}

/* Batch norm's statistics have no rule of their own, and need none: batch_norm_apply carries their
 * part. The mean's other use does arrive there and is refused. */
static void test_batch_norm_statistics(void **state) {
    (void)state;
    static const char *const text =
        "graph \"norm\" {\n"
        "  %%0 x = parameter {dtype=f64, shape=[4,3]}\n"
        "  %%1 w = parameter {dtype=f64, shape=[3]}\n"
        "  %%2 b = parameter {dtype=f64, shape=[3]}\n"
        "  %%3 rm = buffer {dtype=f64, shape=[3]}\n"
        "  %%4 rv = buffer {dtype=f64, shape=[3]}\n"
        "  %%5, %%6, %%7, %%8, %%9 norm = batch_norm(%%0, %%1, %%2, %%3, %%4)\n"
        "  update(%%3, %%8)\n"
        "  update(%%4, %%9)\n"
        "  %%10 = reduce_sum(%%5) {axes=[0,1]}\n"
        "  %%11 = reduce_sum(%%6) {axes=[0]}\n"
        "  %%12 = add(%%10, %%11)\n"
        "  output \"loss\" = %s\n"
        "}\n";
    for (int with_mean = 0; with_mean < 2; with_mean++) {
        char source[1000];
        snprintf(source, sizeof source, text, with_mean ? "%12" : "%10");
        ir_graph_t *graph = parse(source), *expanded;
        ir_value_t wrt[3], grads[3];
        wrt[0] = named(graph, "x");
        FAILS(ad_gradient(graph, ir_graph_find_output(graph, "loss"), 1, wrt, grads),
              ST_UNSUPPORTED, "expands before differentiation");
        OK(ir_expand_composites(graph, ir_expand_for_gradient, &expanded));
        OK(ir_graph_verify(expanded));
        wrt[0] = named(expanded, "x"), wrt[1] = named(expanded, "w"), wrt[2] = named(expanded, "b");
        const ir_value_t loss = ir_graph_find_output(expanded, "loss");
        if (with_mean) {
            FAILS(ad_gradient(expanded, loss, 3, wrt, grads), ST_UNSUPPORTED,
                  "statistics of batch norm");
        } else {
            OK(ad_gradient(expanded, loss, 3, wrt, grads));
            OK(ir_graph_verify(expanded));
            assert_int_equal(count_op(expanded, IR_OP_BATCH_NORM_GRAD_SUMS), 1);
        }
        ir_graph_destroy(expanded);
        ir_graph_destroy(graph);
    }
}

static void test_bad_arguments(void **state) {
    (void)state;
    ir_graph_t *graph = parse(
        "graph \"bad\" {\n"
        "  %0 w = parameter {dtype=f32, shape=[2]}\n"
        "  %1 i = input {dtype=i64, shape=[], batch_axis=-1}\n"
        "  %2 = neg(%0)\n"
        "}\n");
    ir_value_t grad, w = named(graph, "w"), i = named(graph, "i");
    FAILS(ad_gradient(graph, 2, 1, &w, &grad), ST_INVALID, "the loss is f32[2], a float scalar");
    FAILS(ad_gradient(graph, i, 1, &w, &grad), ST_INVALID, "the loss is i64[]");
    FAILS(ad_gradient(graph, 99, 1, &w, &grad), ST_INVALID, "does not exist");
    ir_graph_destroy(graph);
    graph = parse(
        "graph \"bad\" {\n"
        "  %0 w = parameter {dtype=f32, shape=[]}\n"
        "  %1 i = input {dtype=i64, shape=[], batch_axis=-1}\n"
        "}\n");
    w = named(graph, "w"), i = named(graph, "i");
    FAILS(ad_gradient(graph, w, 1, &i, &grad), ST_INVALID, "(input 'i') is i64[]");
    OK(ad_gradient(graph, w, 1, &w, &grad)); /* the loss by itself: 1 */
    assert_int_equal(ir_value_producer(graph, grad)->op, IR_OP_CONSTANT);
    ir_graph_destroy(graph);
}

/* Empty tensors on the way: gradients have the types of what they belong to, and zeros where a sum
 * over nothing fills elements. (4,0) + (4,1), and a cumulative sum of (2,0). */
static void test_empty_tensors(void **state) {
    (void)state;
    ir_graph_t *graph = parse(
        "graph \"empty\" {\n"
        "  %0 a = parameter {dtype=f64, shape=[4,0]}\n"
        "  %1 b = parameter {dtype=f64, shape=[4,1]}\n"
        "  %2 c = parameter {dtype=f64, shape=[2,0]}\n"
        "  %3 = add(%0, %1)\n"
        "  %4 = reduce_sum(%3) {axes=[0,1]}\n"
        "  %5 = cumsum(%2) {axis=1}\n"
        "  %6 = reduce_sum(%5) {axes=[0,1]}\n"
        "  %7 = add(%4, %6)\n"
        "  output \"loss\" = %7\n"
        "}\n");
    const ir_value_t of[] = {named(graph, "a"), named(graph, "b"), named(graph, "c")};
    ir_value_t grads[3];
    OK(ad_gradient(graph, ir_graph_find_output(graph, "loss"), 3, of, grads));
    OK(ir_graph_verify(graph));
    for (int i = 0; i < 3; i++)
        assert_true(ir_type_equal(ir_value_type(graph, of[i]), ir_value_type(graph, grads[i])));
    run_t run;
    run_open(&run, graph);
    for (int i = 0; i < 4; i++) {
        ((double *)run.data[of[1]])[i] = i + 1;
        ((double *)run.data[grads[1]])[i] = 7; /* must be written */
    }
    run_nodes(&run, 0, (ir_node_t)graph->nodes.n);
    assert_true(*(double *)run_output(&run, "loss") == 0);
    for (int i = 0; i < 4; i++) assert_true(((double *)run.data[grads[1]])[i] == 0);
    run_close(&run);
    ir_graph_destroy(graph);
}

/* Long chains and values with many uses: no recursion, linear time, and the same graph every time.
 */
static void test_large_and_deterministic(void **state) {
    (void)state;
    enum { N = 50000 };
    char *text[2];
    for (int round = 0; round < 2; round++) {
        ir_graph_t *graph;
        OK(ir_graph_create("chain", &graph));
        ir_build_t b = {.graph = graph};
        ir_value_t w = ir_b_parameter(&b, "w", ir_type_scalar(IR_F32)), x = w, grad;
        for (int i = 0; i < N; i++) x = ir_b_binary(&b, IR_OP_MUL, x, w);
        ir_b_output(&b, "loss", x);
        OK(b.status);
        OK(ad_gradient(graph, x, 1, &w, &grad));
        ir_b_output(&b, "grad", grad);
        OK(ir_graph_print(graph, &text[round]));
        ir_graph_destroy(graph);
    }
    assert_true(strcmp(text[0], text[1]) == 0);
    st_free(text[0]);
    st_free(text[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tied_parameter),
        cmocka_unit_test(test_missing_rules_are_listed),
        cmocka_unit_test(test_many_missing_rules),
        cmocka_unit_test(test_no_influence_gives_zeros),
        cmocka_unit_test(test_batch_norm_statistics),
        cmocka_unit_test(test_bad_arguments),
        cmocka_unit_test(test_empty_tensors),
        cmocka_unit_test(test_large_and_deterministic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
