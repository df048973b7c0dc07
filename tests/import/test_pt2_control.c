/* Control flow of torch.export: numbers worked out by hand, how loops are counted, and what is
 * refused, with its reason. Archives of PyTorch's own are in tests/capi/test_control.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "ir/op.h"
#include "ir/verify.h"
#include "pt2_make.h"

#define HOP "torch.ops.higher_order."
#define D(...) ((const double[]){__VA_ARGS__})

/* A graph of up to three nodes "target|arguments|results", NULL for none. */
static char *graph(const char *inputs, const char *outputs, const char *const *nodes) {
    pt2_maker_t m = {0};
    for (; *nodes; nodes++) {
        char parts[3][128];
        assert_int_equal(sscanf(*nodes, "%127[^|]|%127[^|]|%127[^|]", parts[0], parts[1], parts[2]),
                         3);
        pt2_node(&m, parts[0], parts[1], parts[2]);
    }
    return pt2_graph(&m, inputs, outputs);
}
#define GRAPH(inputs, outputs, ...) graph(inputs, outputs, (const char *const[]){__VA_ARGS__, NULL})
#define IDENTITY(name) graph(name, name, (const char *const[]){NULL})

/* Adds a node over graphs, which are freed. */
static void add(pt2_maker_t *m, const char *op, const char *before, char *first, char *second,
                const char *after, const char *results) {
    text_t text = {0};
    text_add(&text, "%sg=%s%s%s %s", before, first, second ? " h=" : "", second ? second : "",
             after);
    pt2_node(m, op, text.data, results);
    free(text.data);
    free(first);
    free(second);
}

static import_result_t *import(pt2_maker_t *m) {
    size_t bytes;
    import_result_t *result = NULL;
    uint8_t *file = pt2_finish(m, &bytes);
    st_status_t status = import_memory(file, bytes, "made", NULL, &result);
    if (status == ST_OK) status = ir_graph_verify(result->graph);
    if (status != ST_OK) fail_msg("%s", st_last_error());
    free(file);
    return result;
}

static void expect_refused(pt2_maker_t *m, const char *text) {
    size_t bytes;
    import_result_t *result = NULL;
    uint8_t *file = pt2_finish(m, &bytes);
    st_clear_error();
    if (import_memory(file, bytes, "made", NULL, &result) == ST_OK)
        fail_msg("imported, not '%s'", text);
    if (!strstr(st_last_error(), text)) fail_msg("'%s', expected '%s'", st_last_error(), text);
    assert_null(result);
    free(file);
}

static void expect_values(const import_result_t *result, const feed_t *feeds, size_t n_feeds,
                          const char *output, size_t n, const double *want) {
    ir_type_t type;
    double *got = run_graph(result, feeds, n_feeds, output, &type);
    assert_int_equal(ir_type_elements(&type), n);
    for (size_t i = 0; i < n; i++)
        if (!(got[i] - want[i] < 1e-6 && want[i] - got[i] < 1e-6))
            fail_msg("%s[%zu] is %g, expected %g", output, i, got[i], want[i]);
    free(got);
}

static int64_t trip_of(const import_result_t *result) {
    for (ir_node_t i = 0; i < result->graph->nodes.n; i++)
        if (ir_node(result->graph, i)->op == IR_OP_REPEAT)
            return ir_attr_int(ir_node(result->graph, i), "trip");
    fail_msg("there is no loop");
    return -1;
}

/* ---- numbers ---- */

static void a_condition_chooses_a_branch(void **state) {
    (void)state;
    pt2_maker_t m = {0};
    pt2_input(&m, "x", "f32[2]");
    pt2_input(&m, "p", "f32[]");
    pt2_node(&m, "gt.Scalar", "self=%p other=0", "c");
    add(&m, HOP "cond", "p=%c ", GRAPH("a", "y,a", "mul.Tensor|self=%a other=2|y"),
        GRAPH("a", "y,y", "add.Tensor|self=%a other=1|y"), "o=[%x]", "y,z");
    pt2_output(&m, "y");
    pt2_output(&m, "z");
    import_result_t *result = import(&m);
    feed_t feeds[] = {{"x", D(3, -4)}, {"p", D(1)}};
    expect_values(result, feeds, 2, "y", 2, D(6, -8));
    expect_values(result, feeds, 2, "z", 2, D(3, -4));
    feeds[1].values = D(-1);
    expect_values(result, feeds, 2, "y", 2, D(4, -3));
    expect_values(result, feeds, 2, "z", 2, D(4, -3));
    import_result_destroy(result);
}

/* A Python bool leaves one branch, without a node. */
static void a_condition_that_is_known_leaves_one_branch(void **state) {
    (void)state;
    for (int known = 0; known < 2; known++) {
        pt2_maker_t m = {0};
        pt2_input(&m, "x", "f32[2]");
        add(&m, HOP "cond", known ? "p=true " : "p=false ",
            GRAPH("a", "y", "mul.Tensor|self=%a other=2|y"),
            GRAPH("a", "y", "add.Tensor|self=%a other=1|y"), "o=[%x]", "y");
        pt2_output(&m, "y");
        import_result_t *result = import(&m);
        for (ir_node_t i = 0; i < result->graph->nodes.n; i++)
            assert_int_not_equal(ir_node(result->graph, i)->op, IR_OP_COND);
        expect_values(result, &(feed_t){"x", D(3, -4)}, 1, "y", 2, known ? D(6, -8) : D(4, -3));
        import_result_destroy(result);
    }
}

static void a_scan_carries_and_stacks(void **state) {
    (void)state;
    pt2_maker_t m = {0};
    pt2_input(&m, "h", "f32[2]");
    pt2_input(&m, "x", "f32[3,2]");
    pt2_input(&m, "w", "f32[]");
    add(&m, HOP "scan", "",
        GRAPH("h,x,w", "n,y", "mul.Tensor|self=%h other=%w|s", "add.Tensor|self=%s other=%x|n",
              "mul.Tensor|self=%n other=10|y"),
        NULL, "i=[%h] x=[%x] a=[%w]", "n,y");
    pt2_output(&m, "n");
    pt2_output(&m, "y");
    import_result_t *result = import(&m);
    const feed_t feeds[] = {{"h", D(1, 2)}, {"x", D(1, 1, 2, 2, 3, 3)}, {"w", D(2)}};
    expect_values(result, feeds, 3, "y", 6, D(30, 50, 80, 120, 190, 270));
    expect_values(result, feeds, 3, "n", 2, D(19, 27));
    import_result_destroy(result);
}

static void a_map_goes_over_slices(void **state) {
    (void)state;
    pt2_maker_t m = {0};
    pt2_input(&m, "x", "f32[3,2]");
    pt2_input(&m, "w", "f32[2]");
    add(&m, HOP "map_impl", "", GRAPH("x,w", "y", "mul.Tensor|self=%x other=%w|y"), NULL,
        "x=[%x] a=[%w]", "y");
    pt2_output(&m, "y");
    import_result_t *result = import(&m);
    const feed_t feeds[] = {{"x", D(1, 2, 3, 4, 5, 6)}, {"w", D(10, 100)}};
    expect_values(result, feeds, 2, "y", 6, D(10, 200, 30, 400, 50, 600));
    assert_int_equal(trip_of(result), 3);
    import_result_destroy(result);
}

/* ---- turns ---- */

#define COUNT_UP "add.Tensor|self=%i other=1|j"
#define DOUBLE "mul.Tensor|self=%x other=2|y"

/* while test(i): i = i + 1, x = 2 x, from the constant i = `start`. */
static void make_while(pt2_maker_t *m, double start, const char *test, const char *count) {
    pt2_input(m, "x", "f32[2]");
    pt2_state(m, "tensor_constant", "start", "i64[]", &start);
    add(m, HOP "while_loop", "", GRAPH("i,x", "c", test), GRAPH("i,x", "j,y", count, DOUBLE),
        "o=[%start,%x] a=[]", "k,y");
    pt2_output(m, "y");
}

static void turns_are_counted(void **state) {
    (void)state;
    static const struct {
        double start;
        const char *test;
        int64_t turns;
    } rows[] = {{0, "lt.Scalar|self=%i other=5|c", 5},
                {5, "lt.Scalar|self=%i other=5|c", 0},
                {-3, "ne.Scalar|self=%i other=0|c", 3}};
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        pt2_maker_t m = {0};
        double scale = 1;
        make_while(&m, rows[r].start, rows[r].test, COUNT_UP);
        import_result_t *result = import(&m);
        assert_int_equal(trip_of(result), rows[r].turns);
        for (int64_t i = 0; i < rows[r].turns; i++) scale *= 2;
        expect_values(result, &(feed_t){"x", D(3, -4)}, 1, "y", 2, D(3 * scale, -4 * scale));
        import_result_destroy(result);
    }
}

static void turns_that_no_one_can_count_are_refused(void **state) {
    (void)state;
    pt2_maker_t m = {0};
    make_while(&m, 0, "lt.Scalar|self=%i other=5|c", "mul.Tensor|self=%i other=1|j");
    expect_refused(&m,
                   "node 'k' (torch.ops.higher_order.while_loop): the loop still goes on after "
                   "100000 turns, the limit");
    pt2_input(&m, "x", "f32[2]");
    pt2_input(&m, "n", "i64[]");
    add(&m, HOP "while_loop", "", GRAPH("i,x", "c", "lt.Scalar|self=%i other=5|c"),
        GRAPH("i,x", "j,y", COUNT_UP, DOUBLE), "o=[%n,%x] a=[]", "k,y");
    pt2_output(&m, "y");
    expect_refused(&m, "whether there is another turn is computed from data");
    /* counted by what a turn computes of the data */
    double start = 0;
    pt2_input(&m, "x", "f32[2]");
    pt2_state(&m, "tensor_constant", "start", "i64[]", &start);
    add(&m, HOP "while_loop", "", GRAPH("i,x", "c", "lt.Scalar|self=%i other=5|c"),
        GRAPH("i,x", "j,x", "argmax.default|self=%x|n", "add.Tensor|self=%i other=%n|j"),
        "o=[%start,%x] a=[]", "k,y");
    pt2_output(&m, "y");
    expect_refused(&m, "whether there is another turn is computed from data");
}

/* ---- what else is refused ---- */

static void what_a_plan_cannot_have_is_refused(void **state) {
    (void)state;
    pt2_maker_t m = {0};
    pt2_input(&m, "x", "f32[2]");
    add(&m, HOP "cond", "p=%x ", IDENTITY("a"), IDENTITY("a"), "o=[%x]", "y");
    expect_refused(&m, "the condition is f32[2], one bool is needed");
    pt2_input(&m, "x", "f32[2]");
    add(&m, HOP "scan", "", GRAPH("h,x", "n", "sum.default|self=%h|n"), NULL, "i=[%x] x=[%x] a=[]",
        "n");
    expect_refused(&m, "the carried value '0' begins as f32[2] and is f32[] after a turn");
    pt2_input(&m, "x", "f32[2]");
    pt2_input(&m, "z", "f32[3]");
    add(&m, HOP "scan", "", GRAPH("h,x,z", "h", "add.Tensor|self=%x other=%z|n"), NULL,
        "i=[%x] x=[%x,%z] a=[]", "n");
    expect_refused(&m, "scanned operand 1 has 3 slices, the first has 2");
    pt2_input(&m, "s", "f32[]");
    add(&m, HOP "map_impl", "", IDENTITY("x"), NULL, "x=[%s] a=[]", "y");
    expect_refused(&m, "operand 0 is a scalar: it has no slices");
    pt2_input(&m, "x", "f32[2]");
    add(&m, HOP "map_impl", "", GRAPH("x", "y", "add_.Tensor|self=%x other=1|y"), NULL,
        "x=[%x] a=[]", "y");
    expect_refused(&m, "node 'y' in it changes 'x', which it is given");
    pt2_input(&m, "x", "f32[2]");
    add(&m, HOP "map_impl", "", GRAPH("x", "y", "dropout.default|input=%x p=0.5 train=true|y"),
        NULL, "x=[%x] a=[]", "y");
    expect_refused(&m, "node 'y' (torch.ops.aten.dropout.default): random numbers inside");
    pt2_input(&m, "x", "f32[2]");
    add(&m, HOP "map_impl", "", IDENTITY("x,z"), NULL, "x=[%x] a=[]", "y");
    expect_refused(&m, "the nested graph has 2 inputs, 1 are given");
    pt2_input(&m, "x", "f32[2]");
    add(&m, HOP "map_impl", "", IDENTITY("x"), NULL, "x=[%x] a=[1,2]", "y");
    expect_refused(&m, "argument 2 is of kind 'as_ints', a list of tensors is needed");
    pt2_input(&m, "x", "f32[2]");
    add(&m, HOP "map_impl", "", GRAPH("x", "y", "unique.default|self=%x|y"), NULL, "x=[%x] a=[]",
        "y");
    expect_refused(&m,
                   "1 node cannot be imported, for want of their operators: "
                   "torch.ops.aten.unique.default (node 'y')");
}

/* A loop is counted by a constant of the code, which must stay one. */
static void a_counter_that_is_written_later_is_refused(void **state) {
    (void)state;
    pt2_maker_t m = {0};
    make_while(&m, 0, "lt.Scalar|self=%i other=5|c", COUNT_UP);
    pt2_node(&m, "add_.Tensor", "self=%start other=1", "later");
    expect_refused(&m, "how often a loop runs depends on 'start', which node 'later' changes");
}

static void lack_of_memory_is_told(void **state) {
    (void)state;
    pt2_maker_t m = {0};
    size_t bytes;
    make_while(&m, 0, "lt.Scalar|self=%i other=5|c", COUNT_UP);
    pt2_node(&m, "gt.Scalar", "self=%start other=0", "p");
    add(&m, HOP "cond", "p=%p ", GRAPH("a", "b", "exp.default|self=%a|b"), IDENTITY("a"), "o=[%y]",
        "z");
    pt2_output(&m, "z");
    uint8_t *file = pt2_finish(&m, &bytes);
    st_status_t status = ST_NO_MEMORY;
    int64_t at = 0;
    for (; status != ST_OK; at++) {
        import_result_t *result = NULL;
        st_memory_fail_after(at, false);
        status = import_memory(file, bytes, "made", NULL, &result);
        st_memory_fail_after(-1, false);
        import_result_destroy(result);
        if (status != ST_OK && status != ST_NO_MEMORY) fail_msg("%s", st_last_error());
    }
    assert_true(at > 40);
    free(file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_condition_chooses_a_branch),
        cmocka_unit_test(a_condition_that_is_known_leaves_one_branch),
        cmocka_unit_test(a_scan_carries_and_stacks),
        cmocka_unit_test(a_map_goes_over_slices),
        cmocka_unit_test(turns_are_counted),
        cmocka_unit_test(turns_that_no_one_can_count_are_refused),
        cmocka_unit_test(what_a_plan_cannot_have_is_refused),
        cmocka_unit_test(a_counter_that_is_written_later_is_refused),
        cmocka_unit_test(lack_of_memory_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
