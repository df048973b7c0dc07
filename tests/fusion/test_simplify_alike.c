/* Simplify, side by side: programs that differ in extents keep the same nodes, each computes what
 * it did, and what all allow is done. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "fusion/simplify.h"
#include "ir/text.h"
#include "ir/verify.h"

/* Every R of the text is the number of rows. */
static ir_graph_t *parse(const char *format, int64_t rows) {
    char text[2048];
    ir_graph_t *graph;
    size_t used = 0;
    for (const char *at = format; *at; at++) {
        assert_true(used + 32 < sizeof text);
        if (*at == 'R')
            used += (size_t)snprintf(text + used, sizeof text - used, "%d", (int)rows);
        else
            text[used++] = *at;
    }
    text[used] = '\0';
    if (ir_graph_parse(text, used, &graph) != ST_OK) fail_msg("%s", st_last_error());
    return graph;
}

static void assert_alike(const ir_graph_t *a, const ir_graph_t *b) {
    assert_int_equal(a->nodes.n, b->nodes.n);
    for (ir_node_t i = 0; i < a->nodes.n; i++) {
        const ir_node_info_t *x = ir_node(a, i), *y = ir_node(b, i);
        assert_int_equal(x->op, y->op);
        assert_int_equal(x->n_inputs, y->n_inputs);
        for (uint32_t j = 0; j < x->n_inputs; j++) assert_int_equal(x->inputs[j], y->inputs[j]);
    }
    assert_int_equal(a->outputs.n, b->outputs.n);
    for (size_t k = 0; k < a->outputs.n; k++)
        assert_int_equal(a->outputs.data[k].value, b->outputs.data[k].value);
}

static void assert_text(const ir_graph_t *graph, const char *format, int64_t rows) {
    ir_graph_t *wanted = parse(format, rows);
    char *got, *expected;
    assert_int_equal(ir_graph_verify(graph), ST_OK);
    assert_int_equal(ir_graph_print(graph, &got), ST_OK);
    assert_int_equal(ir_graph_print(wanted, &expected), ST_OK);
    assert_string_equal(got, expected);
    st_free(got);
    st_free(expected);
    ir_graph_destroy(wanted);
}

/* Simplifies `before` with 3, 5 and 0 rows: each must become `after`. */
static void assert_all_become(const char *before, const char *after) {
    static const int64_t rows[] = {3, 5, 0};
    ir_graph_t *graphs[3], *made[3];
    for (int g = 0; g < 3; g++) graphs[g] = parse(before, rows[g]);
    if (fuse_simplify_alike(3, (const ir_graph_t *const *)graphs, NULL, made) != ST_OK)
        fail_msg("%s", st_last_error());
    for (int g = 0; g < 3; g++) {
        assert_alike(made[0], made[g]);
        assert_text(made[g], after, rows[g]);
    }
    for (int g = 0; g < 3; g++) {
        ir_graph_destroy(graphs[g]);
        ir_graph_destroy(made[g]);
    }
}

/* With 5 rows both iotas are one, with the others they are not. */
static void equal_by_chance_does_not_merge(void **state) {
    (void)state;
    static const char text[] =
        "graph \"g\" {\n"
        "  %0 = iota {dtype=i64, shape=[R], axis=0}\n"
        "  %1 = iota {dtype=i64, shape=[5], axis=0}\n"
        "  output \"rows\" = %0\n"
        "  output \"five\" = %1\n"
        "}\n";
    assert_all_become(text, text);
}

/* What a chance forbids in one place is done elsewhere. */
static void what_all_allow_is_done(void **state) {
    (void)state;
    assert_all_become(
        "graph \"g\" {\n"
        "  %0 x = input {dtype=f32, shape=[R,2]}\n"
        "  %1 = broadcast(%0) {shape=[5,R,2]}\n"
        "  %2 = iota {dtype=i64, shape=[R], axis=0}\n"
        "  %3 = iota {dtype=i64, shape=[5], axis=0}\n"
        "  %4 = exp(%0)\n"
        "  %5 = exp(%0)\n"
        "  %6 = reshape(%5) {shape=[R,2]}\n"
        "  %7 = add(%4, %6)\n"
        "  %8 = tanh(%7)\n"
        "  output \"y\" = %7\n"
        "  output \"rows\" = %2\n"
        "  output \"five\" = %3\n"
        "}\n",
        "graph \"g\" {\n"
        "  %0 x = input {dtype=f32, shape=[R,2]}\n"
        "  %1 = iota {dtype=i64, shape=[R], axis=0}\n"
        "  %2 = iota {dtype=i64, shape=[5], axis=0}\n"
        "  %3 = exp(%0)\n"
        "  %4 = add(%3, %3)\n"
        "  output \"y\" = %4\n"
        "  output \"rows\" = %1\n"
        "  output \"five\" = %2\n"
        "}\n");
}

/* The same in the body of a loop. */
static void bodies_stay_alike(void **state) {
    (void)state;
    assert_all_become(
        "graph \"g\" {\n"
        "  %0 x = input {dtype=i64, shape=[R]}\n"
        "  %1 = repeat(%0) {body=graph {\n"
        "    %0 s = input {dtype=i64, shape=[R], batch_axis=-1}\n"
        "    %1 = iota {dtype=i64, shape=[R], axis=0}\n"
        "    %2 = iota {dtype=i64, shape=[5], axis=0}\n"
        "    %3 = reduce_sum(%2) {axes=[0]}\n"
        "    %4 = iota {dtype=i64, shape=[5], axis=0}\n"
        "    %5 = reduce_sum(%4) {axes=[0]}\n"
        "    %6 = add(%3, %5)\n"
        "    %7 = add(%1, %6)\n"
        "    %8 = add(%0, %7)\n"
        "    output \"0\" = %8\n"
        "  }, trip=3, carried=1}\n"
        "  output \"y\" = %1\n"
        "}\n",
        "graph \"g\" {\n"
        "  %0 x = input {dtype=i64, shape=[R]}\n"
        "  %1 = repeat(%0) {body=graph {\n"
        "    %0 s = input {dtype=i64, shape=[R], batch_axis=-1}\n"
        "    %1 = iota {dtype=i64, shape=[R], axis=0}\n"
        "    %2 = iota {dtype=i64, shape=[5], axis=0}\n"
        "    %3 = reduce_sum(%2) {axes=[0]}\n"
        "    %4 = add(%3, %3)\n"
        "    %5 = add(%1, %4)\n"
        "    %6 = add(%0, %5)\n"
        "    output \"0\" = %6\n"
        "  }, trip=3, carried=1}\n"
        "  output \"y\" = %1\n"
        "}\n");
}

static void graphs_of_other_nodes_are_refused(void **state) {
    (void)state;
    ir_graph_t *made[2];
    ir_graph_t *graphs[] = {parse("graph \"g\" {\n  %0 x = input {dtype=f32, shape=[R]}\n"
                                  "  output \"y\" = %0\n}\n",
                                  2),
                            parse("graph \"g\" {\n  %0 x = input {dtype=f32, shape=[R]}\n"
                                  "  %1 = exp(%0)\n  output \"y\" = %1\n}\n",
                                  2)};
    assert_int_equal(fuse_simplify_alike(2, (const ir_graph_t *const *)graphs, NULL, made),
                     ST_INTERNAL);
    assert_null(made[0]);
    assert_null(made[1]);
    for (int g = 0; g < 2; g++) ir_graph_destroy(graphs[g]);
}

static void lack_of_memory_is_told(void **state) {
    (void)state;
    static const int64_t rows[] = {4, 5};
    ir_graph_t *graphs[2], *made[2];
    for (int g = 0; g < 2; g++)
        graphs[g] = parse(
            "graph \"g\" {\n  %0 x = input {dtype=i64, shape=[R]}\n"
            "  %1 = iota {dtype=i64, shape=[R], axis=0}\n"
            "  %2 = iota {dtype=i64, shape=[5], axis=0}\n  %3 = add(%0, %1)\n"
            "  output \"y\" = %3\n  output \"z\" = %2\n}\n",
            rows[g]);
    st_status_t status = ST_NO_MEMORY;
    int64_t at = 0;
    for (; status != ST_OK; at++) {
        st_memory_fail_after(at, false);
        status = fuse_simplify_alike(2, (const ir_graph_t *const *)graphs, NULL, made);
        st_memory_fail_after(-1, false);
        assert_true(status == ST_OK || status == ST_NO_MEMORY);
        for (int g = 0; g < 2; g++) ir_graph_destroy(made[g]);
    }
    assert_true(at > 10);
    for (int g = 0; g < 2; g++) ir_graph_destroy(graphs[g]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_by_chance_does_not_merge),
        cmocka_unit_test(what_all_allow_is_done),
        cmocka_unit_test(bodies_stay_alike),
        cmocka_unit_test(graphs_of_other_nodes_are_refused),
        cmocka_unit_test(lack_of_memory_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
