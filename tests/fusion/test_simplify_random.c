/* Simplify on random graphs: the same values, a fixed point, and deterministic; and large ones in
 * time proportional to their size. */
#include <math.h>
#include <string.h>

#include "base/hash.h"
#include "fusion/recognize.h"
#include "fusion/simplify.h"
#include "interpret.h"
#include "ir/build.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "support/clock.h"
#include "support/scratch.h"

enum { N_GRAPHS = 400, N_NODES = 60 };

typedef struct generator {
    ir_build_t b;
    uint64_t word;
    size_t n;
    ir_value_t values[4 * N_NODES]; /* floats */
    size_t n_bools;
    ir_value_t bools[4 * N_NODES];
} generator_t;

static int64_t below(generator_t *g, int64_t n) {
    g->word = st_hash64(&n, sizeof n, g->word);
    return (int64_t)(g->word >> 33) % n;
}

static ir_value_t any(generator_t *g) {
    return g->values[below(g, (int64_t)g->n)];
}

/* What does not fit together is left out. */
static void keep(generator_t *g, ir_value_t value) {
    if (g->b.status != ST_OK) {
        g->b.status = ST_OK;
        st_clear_error();
        return;
    }
    bool is_bool = ir_b_type(&g->b, value)->dtype == IR_BOOL;
    if (is_bool)
        g->bools[g->n_bools++] = value;
    else
        g->values[g->n++] = value;
}

static ir_value_t constant(generator_t *g) {
    static const double numbers[] = {0, 1, -1, 2, 0.5, 4, 0.3};
    if (below(g, 2)) return ir_b_scalar(&g->b, IR_F64, numbers[below(g, 7)]);
    int64_t rank = 1 + below(g, 2), dims[2] = {2 + below(g, 2), 3};
    return ir_b_iota(&g->b, ir_type_make(IR_F64, (int32_t)rank, rank == 1 ? dims + 1 : dims), 0,
                     (double)below(g, 3), 0.25);
}

static ir_value_t unary(generator_t *g, ir_value_t x) {
    static const ir_op_t ops[] = {IR_OP_NEG,     IR_OP_NEG,  IR_OP_ABS,  IR_OP_RELU, IR_OP_TANH,
                                  IR_OP_SIGMOID, IR_OP_SQRT, IR_OP_SIGN, IR_OP_EXP,  IR_OP_SQUARE};
    if (below(g, 6) == 0)
        return ir_b_cast(&g->b, ir_b_cast(&g->b, x, below(g, 2) ? IR_F32 : IR_I32), IR_F64);
    return ir_b_unary(&g->b, ops[below(g, 10)], x);
}

static ir_value_t binary(generator_t *g, ir_value_t x) {
    static const ir_op_t ops[] = {IR_OP_ADD,     IR_OP_SUB,     IR_OP_MUL,      IR_OP_DIV,
                                  IR_OP_MAXIMUM, IR_OP_MINIMUM, IR_OP_RELU_GRAD};
    ir_op_t op = ops[below(g, 7)];
    ir_value_t y = below(g, 2) ? constant(g) : any(g);
    return below(g, 2) ? ir_b_binary(&g->b, op, x, y) : ir_b_binary(&g->b, op, y, x);
}

static ir_value_t reshape(generator_t *g, ir_value_t x) {
    ir_type_t t = *ir_b_type(&g->b, x);
    int64_t dims[IR_MAX_RANK + 1];
    int32_t rank = t.rank, at = (int32_t)below(g, rank + 1);
    memcpy(dims, t.dims, sizeof t.dims);
    if (below(g, 2) && rank < 5) { /* a dim of 1 more */
        memmove(dims + at + 1, dims + at, (size_t)(rank - at) * sizeof *dims);
        dims[at] = 1;
        return ir_b_reshape(&g->b, x, rank + 1, dims);
    }
    if (rank < 2) return x;
    at = (int32_t)below(g, rank - 1); /* two neighbours in one, or the other way round */
    if (below(g, 2)) {
        dims[at] *= dims[at + 1];
        memmove(dims + at + 1, dims + at + 2, (size_t)(rank - at - 2) * sizeof *dims);
        return ir_b_reshape(&g->b, x, rank - 1, dims);
    }
    int64_t swapped = dims[at];
    dims[at] = dims[at + 1];
    dims[at + 1] = swapped;
    return ir_b_reshape(&g->b, x, rank, dims);
}

static ir_value_t transpose(generator_t *g, ir_value_t x) {
    ir_type_t t = *ir_b_type(&g->b, x);
    int64_t perm[IR_MAX_RANK];
    for (int32_t i = 0; i < t.rank; i++) perm[i] = i;
    for (int32_t i = t.rank - 1; i > 0; i--) {
        int64_t j = below(g, i + 1), swapped = perm[i];
        perm[i] = perm[j];
        perm[j] = swapped;
    }
    return ir_b_transpose(&g->b, x, perm);
}

static ir_value_t slice(generator_t *g, ir_value_t x) {
    ir_type_t t = *ir_b_type(&g->b, x);
    int64_t begin[IR_MAX_RANK], end[IR_MAX_RANK], step[IR_MAX_RANK];
    for (int32_t i = 0; i < t.rank; i++) {
        step[i] = below(g, 4) ? 1 : 2;
        begin[i] = below(g, 3) ? 0 : below(g, t.dims[i]);
        end[i] = below(g, 3) ? t.dims[i] : begin[i] + 1 + below(g, t.dims[i] - begin[i]);
    }
    return ir_b_node(
        &g->b, IR_OP_SLICE, 1, &x, 3,
        (ir_arg_t[]){IR_ARG_INTS("begin", begin, t.rank), IR_ARG_INTS("end", end, t.rank),
                     IR_ARG_INTS("step", step, t.rank)});
}

static ir_value_t joined(generator_t *g, ir_value_t x) {
    ir_type_t t = *ir_b_type(&g->b, x);
    if (t.rank == 0) return x;
    int32_t axis = (int32_t)below(g, t.rank);
    int64_t at = below(g, t.dims[axis]) + 1;
    if (below(g, 2) || at == t.dims[axis]) return ir_b_concat(&g->b, 2, (ir_value_t[]){x, x}, axis);
    ir_value_t parts[2] = {ir_b_slice_axis(&g->b, x, axis, 0, at),
                           ir_b_slice_axis(&g->b, x, axis, at, t.dims[axis])};
    return ir_b_concat(&g->b, 2, parts, axis);
}

static ir_value_t broadcast(generator_t *g, ir_value_t x) {
    ir_type_t t = *ir_b_type(&g->b, x);
    if (t.rank > 4) return x;
    ir_type_t wide = t;
    for (int32_t i = 0; i < t.rank; i++)
        if (t.dims[i] == 1) wide.dims[i] = 1 + below(g, 3);
    if (below(g, 2)) {
        memmove(wide.dims + 1, wide.dims, (size_t)t.rank * sizeof *wide.dims);
        wide.dims[0] = 2;
        wide.rank++;
    }
    return ir_b_broadcast(&g->b, x, wide.rank, wide.dims);
}

static ir_value_t reduce(generator_t *g, ir_value_t x) {
    static const ir_op_t ops[] = {IR_OP_REDUCE_SUM, IR_OP_REDUCE_MEAN, IR_OP_REDUCE_MAX,
                                  IR_OP_REDUCE_MIN};
    ir_type_t t = *ir_b_type(&g->b, x);
    if (t.rank == 0) return x;
    int64_t axis = below(g, t.rank);
    return ir_b_reduce(&g->b, ops[below(g, 4)], x, 1, &axis, below(g, 2) != 0);
}

static ir_value_t gather(generator_t *g, ir_value_t x) {
    ir_type_t t = *ir_b_type(&g->b, x);
    if (t.rank == 0) return x;
    int32_t axis = (int32_t)below(g, t.rank);
    int64_t n = 1 + below(g, 3), index[3], first = below(g, t.dims[axis]);
    for (int64_t i = 0; i < n; i++)
        index[i] = below(g, 3) ? (first + i < t.dims[axis] ? first + i : first)
                               : below(g, t.dims[axis]) - t.dims[axis];
    ir_value_t idx =
        ir_b_constant(&g->b, ir_type_make(IR_I64, 1, &n), index, (size_t)n * sizeof *index);
    return ir_b_gather(&g->b, x, idx, axis);
}

static ir_value_t logic(generator_t *g, ir_value_t x) {
    static const ir_op_t compare[] = {IR_OP_EQ, IR_OP_NE, IR_OP_LT, IR_OP_GE};
    if (g->n_bools == 0 || below(g, 2))
        return ir_b_binary(&g->b, compare[below(g, 4)], x, below(g, 2) ? constant(g) : any(g));
    ir_value_t p = g->bools[below(g, (int64_t)g->n_bools)];
    ir_value_t q = g->bools[below(g, (int64_t)g->n_bools)];
    int64_t what = below(g, 4);
    if (what == 0) return ir_b_unary(&g->b, IR_OP_LOGICAL_NOT, p);
    if (what == 1) return ir_b_binary(&g->b, IR_OP_LOGICAL_AND, p, q);
    if (what == 2) return ir_b_binary(&g->b, IR_OP_LOGICAL_OR, p, q);
    return ir_b_select(&g->b, p, x, below(g, 2) ? constant(g) : any(g));
}

static ir_value_t product(generator_t *g, ir_value_t x) {
    ir_value_t y = below(g, 2) ? transpose(g, any(g)) : any(g);
    return ir_b_matmul(&g->b, x, y, below(g, 2) != 0, below(g, 2) != 0);
}

static ir_graph_t *random_graph(uint64_t seed) {
    static ir_value_t (*const kinds[])(generator_t *, ir_value_t) = {
        unary,     unary,     binary, binary, binary, reshape, reshape, transpose, transpose,
        broadcast, broadcast, slice,  slice,  joined, reduce,  gather,  logic,     product};
    generator_t g = {.word = seed};
    assert_ok(ir_graph_create("random", &g.b.graph));
    const int64_t shapes[3][3] = {{2, 3, 4}, {2, 1, 3}, {3, 4, 1}};
    for (int i = 0; i < 3; i++) {
        char name[8];
        snprintf(name, sizeof name, "x%d", i);
        keep(&g, ir_b_input(&g.b, name, ir_type_make(IR_F64, 3, shapes[i]), 0));
    }
    for (int i = 0; i < N_NODES; i++) {
        ir_value_t x = any(&g);
        const size_t before = g.n;
        keep(&g, kinds[below(&g, sizeof kinds / sizeof kinds[0])](&g, x));
        /* graphs of a few hundred elements, or the products of products grow */
        if (g.n > before && ir_type_elements(ir_b_type(&g.b, g.values[g.n - 1])) > 600) g.n--;
    }
    for (size_t i = g.n > 6 ? g.n - 6 : 0; i < g.n; i++) {
        char name[32];
        snprintf(name, sizeof name, "y%zu", i);
        ir_b_output(&g.b, name, g.values[i]);
    }
    for (size_t i = g.n_bools > 4 ? g.n_bools - 4 : 0; i < g.n_bools; i++) {
        char name[32];
        snprintf(name, sizeof name, "b%zu", i);
        ir_b_output(&g.b, name, g.bools[i]);
    }
    assert_ok(g.b.status);
    return g.b.graph;
}

static char *printed(const ir_graph_t *graph) {
    char *text;
    assert_ok(ir_graph_print(graph, &text));
    return text;
}

typedef st_status_t simplify_t(const ir_graph_t *graph, const ir_target_t *target,
                               ir_graph_t **out_graph);

/* Sums of n equal elements are taken at once: a tolerance of a few roundings, which later
 * operations may enlarge. */
static void check_random(simplify_t *simplify) {
    size_t n_before = 0, n_after = 0;
    for (uint64_t seed = 1; seed <= N_GRAPHS; seed++) {
        ir_graph_t *graph = random_graph(seed), *made, *same, *again;
        assert_ok(simplify(graph, &interpret_target, &made));
        assert_ok(simplify(graph, &interpret_target, &same));
        assert_ok(simplify(made, &interpret_target, &again));
        assert_ok(ir_graph_verify(made));
        char *text = printed(made), *text_same = printed(same), *text_again = printed(again);
        assert_string_equal(text, text_same);
        assert_string_equal(text, text_again);
        double difference = interpret_difference(graph, made, seed);
        if (!(difference <= 1e-12)) {
            char *before = printed(graph);
            fail_msg("seed %d differs by %g:\n%s\n%s", (int)seed, difference, before, text);
        }
        n_before += graph->nodes.n;
        n_after += made->nodes.n;
        st_free(text);
        st_free(text_same);
        st_free(text_again);
        ir_graph_destroy(graph);
        ir_graph_destroy(made);
        ir_graph_destroy(same);
        ir_graph_destroy(again);
    }
    assert_true(n_after < n_before);
}

static void random_graphs_keep_their_values(void **state) {
    (void)state;
    check_random(fuse_simplify);
}
static void random_graphs_keep_their_values_exactly_folded(void **state) {
    (void)state;
    check_random(fuse_simplify_exact);
}

/* ---- time ---- */

/* Blocks as exporters write them: norms, reshapes, transposes, masks from iotas. */
static ir_graph_t *large_graph(int64_t n_nodes) {
    ir_build_t b = {0};
    assert_ok(ir_graph_create("large", &b.graph));
    ir_value_t x = ir_b_input(&b, "x", ir_type_make(IR_F32, 3, (int64_t[]){2, 4, 8}), 0);
    for (int64_t i = 0; b.status == ST_OK && (int64_t)b.graph->nodes.n < n_nodes; i++) {
        const int64_t last = 2, perm[3] = {0, 2, 1};
        ir_value_t sum =
            ir_b_reduce(&b, IR_OP_REDUCE_MEAN, ir_b_unary(&b, IR_OP_SQUARE, x), 1, &last, true);
        ir_value_t y = ir_b_binary(&b, IR_OP_MUL, x,
                                   ir_b_unary(&b, IR_OP_RSQRT, ir_b_add_scalar(&b, sum, 1e-5)));
        y = ir_b_reshape(&b, ir_b_reshape(&b, y, 2, (int64_t[]){8, 8}), 4, (int64_t[]){2, 4, 2, 4});
        y = ir_b_reshape(&b, y, 3, (int64_t[]){2, 4, 8});
        y = ir_b_transpose(&b, ir_b_unary(&b, IR_OP_TANH, ir_b_transpose(&b, y, perm)), perm);
        ir_value_t mask = ir_b_iota(&b, ir_type_make(IR_F32, 1, (int64_t[]){8}), 0, 0, 1);
        mask = ir_b_scale(&b, ir_b_broadcast(&b, mask, 2, (int64_t[]){4, 8}), 1 + 1e-3 * (double)i);
        x = ir_b_binary(&b, IR_OP_ADD, x, ir_b_binary(&b, IR_OP_MUL, y, mask));
    }
    ir_b_output(&b, "y", x);
    assert_ok(b.status);
    return b.graph;
}

static double seconds_of(simplify_t *simplify, int64_t n_nodes) {
    ir_graph_t *graph = large_graph(n_nodes), *made;
    double begin = processor_seconds();
    assert_ok(simplify(graph, &interpret_target, &made));
    double seconds = processor_seconds() - begin;
    print_message("%zu nodes to %zu in %.3f s\n", graph->nodes.n, made->nodes.n, seconds);
    assert_true(made->nodes.n < graph->nodes.n);
    ir_graph_destroy(graph);
    ir_graph_destroy(made);
    return seconds;
}

static void time_is_proportional_to_the_graph(void **state) {
    (void)state;
    simplify_t *const passes[] = {fuse_simplify, fuse_capture}; /* capture: with recognition */
    for (size_t i = 0; i < sizeof passes / sizeof passes[0]; i++) {
        double small = seconds_of(passes[i], 25000), large = seconds_of(passes[i], 100000);
        assert_true(large < 8 * small + 0.1); /* four times as many nodes */
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_graphs_keep_their_values),
        cmocka_unit_test(random_graphs_keep_their_values_exactly_folded),
        cmocka_unit_test(time_is_proportional_to_the_graph),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
