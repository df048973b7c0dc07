/* Random bodies of elementwise ops, reductions, broadcasts, transposes, reshapes, slices and
 * gathers: the nest kernel against the reference, in f64 and f32. What nest_build refuses is drawn
 * again; that most bodies are nests is part of the test. Each result also runs in the memory of
 * each operand that it may take. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "bodies.h"
#include "ir/nest.h"
#include "ir/text.h"

enum { MAX_POOL = 48, MAX_SUMS = 8 };

typedef struct draw {
    ir_build_t b;
    uint64_t state;
    ir_dtype_t real;
    bool smooth; /* no op whose result jumps: for types that round */
    bool apart;  /* sums of operands that share no axis with the rest */
    ir_value_t pool[MAX_POOL];
    uint32_t n, n_sums;
    ir_value_t sums[MAX_SUMS];
    double terms;
    int n_inputs;
    int64_t dims[4]; /* the extents that shapes are made of */
} draw_t;

static uint32_t below(draw_t *d, uint32_t n) {
    return (uint32_t)(body_random(&d->state) % n);
}
static const ir_type_t *type_of(const draw_t *d, ir_value_t v) {
    return ir_b_type(&d->b, v);
}
static void keep(draw_t *d, ir_value_t v) {
    if (d->b.status != ST_OK) fail_msg("%s", st_last_error());
    if (d->n < MAX_POOL) d->pool[d->n++] = v;
}

/* A shape whose dims are d->dims in order, some 1, some missing. */
static ir_type_t shape(draw_t *d, ir_dtype_t dtype) {
    int64_t dims[4];
    int32_t rank = 0;
    uint32_t first = below(d, 3) ? 0 : below(d, 4);
    for (uint32_t i = first; i < 4; i++) dims[rank++] = below(d, 5) ? d->dims[i] : 1;
    return ir_type_make(dtype, rank, dims);
}

static ir_value_t input(draw_t *d, ir_type_t type) {
    char name[16];
    snprintf(name, sizeof name, "x%d", d->n_inputs++);
    return ir_b_input(&d->b, name, type, -1);
}

/* A value of the pool with a float type; newer ones more often. */
static ir_value_t any(draw_t *d) {
    for (;;) {
        uint32_t i = below(d, d->n), k = below(d, d->n);
        ir_value_t v = d->pool[i > k ? i : k];
        if (ir_dtype_is_float(type_of(d, v)->dtype)) return v;
    }
}

static bool broadcasts(const draw_t *d, ir_value_t a, ir_value_t b) {
    ir_type_t out;
    const ir_type_t *x = type_of(d, a), *y = type_of(d, b);
    for (int32_t i = 1; i <= x->rank && i <= y->rank; i++) {
        int64_t m = x->dims[x->rank - i], n = y->dims[y->rank - i];
        if (m != n && m != 1 && n != 1) return false;
    }
    if (ir_dims_broadcast(x, y, &out) != ST_OK) return false;
    return ir_type_elements(&out) <= 200000;
}

/* Another operand that broadcasts with x, or a new input that does. */
static ir_value_t partner(draw_t *d, ir_value_t x) {
    for (int turn = 0; turn < 6; turn++) {
        ir_value_t v = any(d);
        if (broadcasts(d, x, v) && type_of(d, v)->dtype == type_of(d, x)->dtype) return v;
    }
    ir_type_t type = *type_of(d, x);
    for (int32_t i = 0; i < type.rank; i++)
        if (below(d, 3) == 0) type.dims[i] = 1;
    if (below(d, 3) == 0) return ir_b_scalar(&d->b, type.dtype, (double)below(d, 9) / 4 - 1);
    return input(d, type);
}

static ir_value_t unary(draw_t *d) {
    static const ir_op_t ops[] = {IR_OP_NEG,  IR_OP_ABS,   IR_OP_TANH,  IR_OP_SIGMOID, IR_OP_SQUARE,
                                  IR_OP_SILU, IR_OP_ERF,   IR_OP_SIN,   IR_OP_COS,     IR_OP_GELU,
                                  IR_OP_RELU, IR_OP_FLOOR, IR_OP_ROUND, IR_OP_SIGN,    IR_OP_CEIL};
    ir_value_t x = any(d);
    ir_op_t op = ops[below(d, d->smooth ? 11 : 15)];
    if (op == IR_OP_SQUARE) x = ir_b_unary(&d->b, IR_OP_TANH, x);
    return ir_b_unary(&d->b, op, x);
}

static ir_value_t binary(draw_t *d) {
    static const ir_op_t ops[] = {IR_OP_ADD, IR_OP_SUB, IR_OP_MUL, IR_OP_MAXIMUM, IR_OP_MINIMUM};
    ir_value_t x = any(d), y = partner(d, x);
    uint32_t which = below(d, 8);
    if (which == 5) { /* a quotient that is not too large */
        ir_value_t divisor = ir_b_add_scalar(&d->b, ir_b_unary(&d->b, IR_OP_ABS, y), 1);
        return ir_b_binary(&d->b, IR_OP_DIV, x, divisor);
    }
    if (which == 6) { /* a b + c */
        ir_value_t product = ir_b_binary(&d->b, IR_OP_MUL, ir_b_unary(&d->b, IR_OP_TANH, x), y);
        ir_value_t c = partner(d, product);
        return ir_b_binary(&d->b, below(d, 2) ? IR_OP_ADD : IR_OP_SUB, below(d, 2) ? product : c,
                           below(d, 2) ? product : c);
    }
    if (which == 7 && !d->smooth) {
        ir_value_t less = ir_b_binary(&d->b, IR_OP_LT, x, y);
        ir_value_t chosen = ir_b_select(&d->b, less, x, y);
        if (below(d, 2)) keep(d, ir_b_cast(&d->b, less, below(d, 2) ? IR_I32 : d->real));
        return chosen;
    }
    if (which > 4) which = 0;
    if (ops[which] == IR_OP_MUL) x = ir_b_unary(&d->b, IR_OP_TANH, x);
    return ir_b_binary(&d->b, ops[which], x, y);
}

static ir_value_t reduction(draw_t *d) {
    static const ir_op_t ops[] = {IR_OP_REDUCE_SUM, IR_OP_REDUCE_SUM, IR_OP_REDUCE_MAX,
                                  IR_OP_REDUCE_MIN, IR_OP_REDUCE_PROD};
    ir_value_t x = any(d);
    const ir_type_t type = *type_of(d, x);
    int64_t axes[IR_MAX_RANK];
    int32_t n = 0, before = 0;
    int64_t count = 1;
    if (type.rank == 0) return x;
    while (n == 0)
        for (int32_t i = n = before = 0; i < type.rank; i++)
            if (below(d, 2)) axes[n++] = i;
    for (int32_t i = 0; i < n; i++) count *= type.dims[axes[i]];
    ir_op_t op = ops[below(d, 5)];
    if ((op == IR_OP_REDUCE_MAX || op == IR_OP_REDUCE_MIN) && count == 0) op = IR_OP_REDUCE_SUM;
    if (op == IR_OP_REDUCE_PROD) {
        if (count > 64) op = IR_OP_REDUCE_SUM;
        x = ir_b_unary(&d->b, IR_OP_TANH, x);
    }
    if (op == IR_OP_REDUCE_SUM) d->terms += (double)count;
    bool keep_dims = below(d, 3) > 0;
    ir_value_t y = ir_b_reduce(&d->b, op, x, n, axes, keep_dims);
    if (op == IR_OP_REDUCE_SUM && below(d, 4))
        y = ir_b_scale(&d->b, y, 1 / (double)(count ? count : 1));
    (void)before;
    return y;
}

static ir_value_t view(draw_t *d) {
    ir_value_t x = any(d);
    const ir_type_t type = *type_of(d, x);
    int64_t dims[IR_MAX_RANK];
    switch (below(d, 4)) {
        case 0: { /* transposed, and back more often than not */
            int64_t perm[IR_MAX_RANK], back[IR_MAX_RANK];
            if (type.rank < 2) return x;
            for (int32_t i = 0; i < type.rank; i++) perm[i] = i;
            for (int32_t i = type.rank - 1; i > 0; i--) {
                int32_t k = (int32_t)below(d, (uint32_t)i + 1);
                int64_t swap = perm[i];
                perm[i] = perm[k];
                perm[k] = swap;
            }
            for (int32_t i = 0; i < type.rank; i++) back[perm[i]] = i;
            ir_value_t y = ir_b_transpose(&d->b, x, perm);
            keep(d, ir_b_unary(&d->b, IR_OP_TANH, y));
            return below(d, 3) ? ir_b_transpose(&d->b, d->pool[d->n - 1], back) : y;
        }
        case 1: /* neighbours merged */
            if (type.rank < 2) return x;
            for (int32_t i = 0; i < type.rank - 1; i++)
                dims[i] = i ? type.dims[i + 1] : type.dims[0] * type.dims[1];
            return ir_b_reshape(&d->b, x, type.rank - 1, dims);
        case 2: /* one split */
            for (int32_t i = 0; i < type.rank && type.rank < 5; i++) {
                if (type.dims[i] < 4 || type.dims[i] % 2) continue;
                for (int32_t k = 0; k < type.rank; k++) dims[k + (k > i)] = type.dims[k];
                dims[i] = 2;
                dims[i + 1] = type.dims[i] / 2;
                return ir_b_reshape(&d->b, x, type.rank + 1, dims);
            }
            return x;
        default: { /* broadcast along a new outermost dim */
            if (type.rank > 4 || ir_type_elements(&type) > 20000) return x;
            for (int32_t k = 0; k < type.rank; k++) dims[k + 1] = type.dims[k];
            dims[0] = 3;
            return ir_b_broadcast(&d->b, x, type.rank + 1, dims);
        }
    }
}

/* Slices, rows chosen by an index, iota, random numbers. */
static ir_value_t source(draw_t *d) {
    ir_type_t type = shape(d, d->real);
    int64_t n = ir_type_elements(&type);
    uint32_t which = below(d, 5);
    if (which == 0 && n > 0 && type.rank > 0) {
        int64_t begin[4], end[4], step[4];
        ir_type_t larger = type;
        for (int32_t i = 0; i < type.rank; i++) {
            step[i] = 1 + below(d, 2);
            begin[i] = below(d, 3);
            end[i] = begin[i] + (type.dims[i] - 1) * step[i] + 1;
            larger.dims[i] = end[i] + below(d, 2);
        }
        ir_value_t x = input(d, larger);
        return ir_b_node(
            &d->b, IR_OP_SLICE, 1, &x, 3,
            (ir_arg_t[]){IR_ARG_INTS("begin", begin, type.rank), IR_ARG_INTS("end", end, type.rank),
                         IR_ARG_INTS("step", step, type.rank)});
    }
    if (which == 1 && type.rank > 0) {
        ir_type_t index = type, table = {.dtype = d->real, .rank = 2, .dims = {11}};
        index.dtype = below(d, 2) ? IR_I32 : IR_I64;
        index.rank--;
        index.dims[index.rank] = 0;
        table.dims[1] = type.dims[type.rank - 1];
        return ir_b_gather(&d->b, input(d, table), input(d, index), 0);
    }
    if (which == 2 && type.rank > 0)
        return ir_b_iota(&d->b, type, (int32_t)below(d, (uint32_t)type.rank), -1, 0.25);
    if (which == 3) {
        ir_value_t seeds[2] = {input(d, ir_type_scalar(IR_I64)), input(d, ir_type_scalar(IR_I64))};
        ir_value_t x = input(d, type);
        return ir_b_node(&d->b, IR_OP_DROPOUT, 3, (ir_value_t[]){x, seeds[0], seeds[1]}, 2,
                         (ir_arg_t[]){IR_ARG_FLOAT("p", 0.3), IR_ARG_INT("id", 5)});
    }
    return input(d, type);
}

/* A value with a sum over other axes, which is known later than what the value is made of. */
static ir_value_t with_sum(draw_t *d) {
    ir_value_t x = any(d), total;
    if (below(d, 3) && d->n_sums) {
        total = d->sums[below(d, d->n_sums)];
    } else {
        int64_t axis = 0, n = 17 + below(d, 90);
        ir_value_t y = input(d, ir_type_make(d->real, 1, &n));
        if (d->n_sums && below(d, 2))
            y = ir_b_binary(&d->b, IR_OP_MUL, y, d->sums[below(d, d->n_sums)]);
        total = ir_b_reduce(&d->b, IR_OP_REDUCE_SUM, y, 1, &axis, false);
        total = ir_b_unary(&d->b, IR_OP_TANH, ir_b_scale(&d->b, total, 1 / (double)n));
        d->terms += (double)n;
        if (d->n_sums < MAX_SUMS) d->sums[d->n_sums++] = total;
    }
    return ir_b_binary(&d->b, below(d, 2) ? IR_OP_MUL : IR_OP_ADD, x, total);
}

static ir_graph_t *draw_graph(draw_t *d) {
    static const int64_t extents[] = {1, 2, 3, 4, 5, 8, 12, 16, 33, 70, 130, 0};
    ir_graph_t *graph = NULL;
    assert_int_equal(ir_graph_create("random", &graph), ST_OK);
    d->b = (ir_build_t){.graph = graph};
    bool large = below(d, 12) == 0;
    for (int i = 0; i < 4; i++) d->dims[i] = extents[below(d, i < 2 ? 6 : large ? 11 : 8)];
    if (below(d, 40) == 0) d->dims[below(d, 4)] = 0;
    for (int i = 0; i < 2; i++) keep(d, input(d, shape(d, d->real)));
    uint32_t n = 3 + below(d, 12);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t what = below(d, 12);
        if (d->apart && below(d, 3) == 0) {
            keep(d, with_sum(d));
            continue;
        }
        if (d->apart && what >= 7) what = below(d, 7 + 3 * (below(d, 8) == 0));
        keep(d, what < 3    ? unary(d)
                : what < 7  ? binary(d)
                : what < 9  ? reduction(d)
                : what < 11 ? view(d)
                            : source(d));
    }
    uint32_t n_out = 1 + below(d, 3);
    for (uint32_t k = 0; k < n_out; k++) {
        char name[16];
        snprintf(name, sizeof name, "y%u", k);
        ir_value_t v = d->pool[d->n - 1 - (k ? below(d, d->n) : 0)];
        if (ir_dtype_is_float(type_of(d, v)->dtype) && d->real == IR_F32 && below(d, 4) == 0)
            v = ir_b_cast(&d->b, v, below(d, 2) ? IR_BF16 : IR_F16);
        ir_b_output(&d->b, name, v);
    }
    if (d->b.status != ST_OK) fail_msg("%s", st_last_error());
    return graph;
}

/* Returns how many results stood in an operand's memory. */
static uint32_t run_many(ir_dtype_t real, bool smooth, bool apart, int n_bodies, uint64_t seed) {
    int n_legal = 0, n_drawn = 0;
    uint32_t n_in_place = 0;
    for (; n_legal < n_bodies; n_drawn++) {
        draw_t d = {.state = seed + (uint64_t)n_drawn * 1000003,
                    .real = real,
                    .smooth = smooth,
                    .apart = apart};
        ir_graph_t *graph = draw_graph(&d);
        nest_t *nest = NULL;
        const char *reason;
        assert_int_equal(nest_build(graph, &nest, &reason), ST_OK);
        if (!nest) {
            ir_graph_destroy(graph);
            continue;
        }
        nest_destroy(nest);
        n_legal++;
        char label[64];
        snprintf(label, sizeof label, "body %d", n_drawn);
        char *text = NULL;
        assert_int_equal(ir_graph_print(graph, &text), ST_OK);
        if (getenv("BODY") && atoi(getenv("BODY")) == n_drawn) puts(text);
        st_free(text);
        body_t body = body_make(graph, 11, d.state);
        body_check(&body, d.terms, label);
        n_in_place += body_check_in_place(&body, label);
        body_free(&body);
    }
    if (n_legal * 2 < n_drawn) fail_msg("only %d of %d bodies are nests", n_legal, n_drawn);
    return n_in_place;
}

static void test_f64(void **state) {
    (void)state;
    (void)run_many(IR_F64, false, false, 2000, 1);
}
static void test_f32(void **state) {
    (void)state;
    (void)run_many(IR_F32, true, false, 1500, 2);
}
static void test_several_domains(void **state) {
    (void)state;
    uint32_t n = run_many(IR_F64, false, true, 1000, 3) + run_many(IR_F32, true, true, 1000, 4);
    print_message("%u results in the memory of an operand\n", n);
    assert_true(n > 500);
}

/* The proof, which knows nothing of nests, lets all through that the planner takes: else a plan
 * that is sound would be refused. */
static void test_proofs(void **state) {
    (void)state;
    enum { N_BODIES = 2500 };
    size_t n_planned = 0, n_bodies = 0;
    for (int set = 0; set < 4; set++)
        for (int i = 0; i < N_BODIES; i++) {
            draw_t d = {.state = 900 + (uint64_t)set + (uint64_t)i * 1000003,
                        .real = set % 2 ? IR_F32 : IR_F64,
                        .smooth = set % 2 != 0,
                        .apart = set / 2 != 0};
            ir_graph_t *graph = draw_graph(&d);
            n_planned += body_check_proof(graph);
            n_bodies++;
            ir_graph_destroy(graph);
        }
    print_message("%zu results over operands in %zu bodies\n", n_planned, n_bodies);
    assert_true(n_planned > 5000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f64),
        cmocka_unit_test(test_f32),
        cmocka_unit_test(test_several_domains),
        cmocka_unit_test(test_proofs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
