#include "ir/samples.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define INTS(key, ...)                                 \
    IR_ARG_INTS(key, ((const int64_t[]){__VA_ARGS__}), \
                sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))
#define SHAPED(dtype, ...)                                                                 \
    {                                                                                      \
        IR_##dtype, (int32_t)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), { \
            __VA_ARGS__                                                                    \
        }                                                                                  \
    }
#define SCALAR(name) \
    { .dtype = IR_##name }
#define COUNT(array) (sizeof(array) / sizeof(array)[0])

typedef struct visitor {
    void (*visit)(const sample_t *sample, void *user);
    void *user;
} visitor_t;

static void unary(visitor_t to, ir_op_t op, ir_dtype_t dtype, size_t n_args, const ir_arg_t *args) {
    const ir_type_t shapes[] = {SHAPED(F64, 12, 5), SHAPED(F64, 1, 3), SHAPED(F64, 0, 4),
                                SCALAR(F64)};
    for (size_t s = 0; s < COUNT(shapes); s++) {
        sample_t sample = {.op = op, .n_inputs = 1, .in = {shapes[s]}, .n_args = n_args};
        sample.in[0].dtype = dtype;
        for (size_t a = 0; a < n_args; a++) sample.args[a] = args[a];
        to.visit(&sample, to.user);
    }
}

static void binary(visitor_t to, ir_op_t op, ir_dtype_t dtype, bool broadcasts, size_t n_args,
                   const ir_arg_t *args) {
    const ir_type_t pairs[][2] = {
        {SHAPED(F64, 12, 5), SHAPED(F64, 12, 5)}, {SHAPED(F64, 1, 5), SHAPED(F64, 1, 5)},
        {SHAPED(F64, 0, 3), SHAPED(F64, 0, 3)},   {SCALAR(F64), SCALAR(F64)},
        {SHAPED(F64, 12, 5), SHAPED(F64, 5)},     {SHAPED(F64, 12, 1), SHAPED(F64, 1, 5)},
        {SHAPED(F64, 4), SHAPED(F64, 3, 4)},      {SHAPED(F64, 0, 3), SHAPED(F64, 1, 3)},
        {SHAPED(F64, 1, 4), SCALAR(F64)},
    };
    for (size_t s = 0; s < (broadcasts ? COUNT(pairs) : 4); s++) {
        sample_t sample = {
            .op = op, .n_inputs = 2, .in = {pairs[s][0], pairs[s][1]}, .n_args = n_args};
        sample.in[0].dtype = sample.in[1].dtype = dtype;
        for (size_t a = 0; a < n_args; a++) sample.args[a] = args[a];
        to.visit(&sample, to.user);
    }
}

static void elementwise(visitor_t to) {
    for (int op = IR_OP_NEG; op <= IR_OP_ROUND; op++)
        if (op != IR_OP_CAST)
            unary(to, (ir_op_t)op, op == IR_OP_LOGICAL_NOT ? IR_BOOL : IR_F64, 0, NULL);
    const ir_arg_t tanh_form = IR_ARG_BOOL("tanh", 1);
    unary(to, IR_OP_GELU, IR_F64, 1, &tanh_form);
    unary(to, IR_OP_CAST, IR_F64, 1, &IR_ARG_DTYPE("dtype", IR_F32));
    unary(to, IR_OP_CAST, IR_F64, 1, &IR_ARG_DTYPE("dtype", IR_I32));
    unary(to, IR_OP_CAST, IR_BOOL, 1, &IR_ARG_DTYPE("dtype", IR_F64));
    for (int op = IR_OP_RELU_GRAD; op <= IR_OP_SILU_GRAD; op++)
        binary(to, (ir_op_t)op, IR_F64, false, 0, NULL);
    binary(to, IR_OP_GELU_GRAD, IR_F64, false, 1, &tanh_form);
    for (int op = IR_OP_ADD; op <= IR_OP_GE; op++) binary(to, (ir_op_t)op, IR_F64, true, 0, NULL);
    binary(to, IR_OP_LOGICAL_AND, IR_BOOL, true, 0, NULL);
    binary(to, IR_OP_LOGICAL_OR, IR_BOOL, true, 0, NULL);
    const sample_t selects[] = {
        {IR_OP_SELECT,
         3,
         {SHAPED(BOOL, 12, 5), SHAPED(F64, 12, 5), SHAPED(F64, 12, 5)},
         0,
         {{0}},
         0},
        {IR_OP_SELECT, 3, {SHAPED(BOOL, 4, 1), SHAPED(F64, 3), SCALAR(F64)}, 0, {{0}}, 0},
        {IR_OP_SELECT, 3, {SHAPED(BOOL, 3), SHAPED(F64, 0, 1), SHAPED(F64, 0, 3)}, 0, {{0}}, 0},
    };
    for (size_t s = 0; s < COUNT(selects); s++) to.visit(&selects[s], to.user);
}

static void sources(visitor_t to) {
    static const float all[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, one = 3;
#define SOURCE(...) IR_ARG_DTYPE("dtype", IR_F32), INTS("shape", __VA_ARGS__)
    const sample_t rows[] = {
        {IR_OP_CONSTANT, 0, {{0}}, 3, {SOURCE(4, 3), IR_ARG_DATA("data", all, sizeof all)}, 0},
        {IR_OP_CONSTANT, 0, {{0}}, 3, {SOURCE(4, 3), IR_ARG_DATA("data", &one, sizeof one)}, 0},
        {IR_OP_CONSTANT, 0, {{0}}, 3, {SOURCE(0, 3), IR_ARG_DATA("data", all, 0)}, 0},
        {IR_OP_CONSTANT, 0, {{0}}, 3, {SOURCE(1), IR_ARG_DATA("data", &one, sizeof one)}, 0},
        {IR_OP_IOTA,
         0,
         {{0}},
         5,
         {SOURCE(12, 5), IR_ARG_INT("axis", 0), IR_ARG_FLOAT("start", 2), IR_ARG_FLOAT("step", -3)},
         0},
        {IR_OP_IOTA, 0, {{0}}, 3, {SOURCE(12, 5), IR_ARG_INT("axis", 1)}, 0},
        {IR_OP_RANDOM_UNIFORM,
         2,
         {SCALAR(I64), SCALAR(I64)},
         3,
         {SOURCE(12, 5), IR_ARG_INT("id", 7)},
         1},
        {IR_OP_RANDOM_UNIFORM,
         2,
         {SCALAR(I64), SCALAR(I64)},
         5,
         {SOURCE(4, 5), IR_ARG_INT("id", 7), INTS("begin", 2, 1), INTS("global", 9, 6)},
         1},
    };
#undef SOURCE
    for (size_t s = 0; s < COUNT(rows); s++) to.visit(&rows[s], to.user);
}

static void views(visitor_t to) {
#define X(...) SHAPED(F64, __VA_ARGS__)
    const sample_t rows[] = {
        {IR_OP_RESHAPE, 1, {X(4, 3, 2)}, 1, {INTS("shape", 12, 2)}, 0},
        {IR_OP_RESHAPE, 1, {X(12, 2)}, 1, {INTS("shape", 4, 3, 2)}, 0},
        {IR_OP_RESHAPE, 1, {X(12, 2)}, 1, {INTS("shape", 1, 12, 1, 2)}, 0},
        {IR_OP_RESHAPE, 1, {X(4, 6)}, 1, {INTS("shape", 4, 1, 2, 3)}, 0},
        {IR_OP_RESHAPE, 1, {X(2, 12)}, 1, {INTS("shape", 2, 4, 3)}, 0},
        {IR_OP_RESHAPE, 1, {X(2, 12)}, 1, {INTS("shape", 24)}, 0},
        {IR_OP_RESHAPE, 1, {X(1, 4)}, 1, {INTS("shape", 4)}, 0},
        {IR_OP_RESHAPE, 1, {X(4, 0)}, 1, {INTS("shape", 0, 4)}, 0},
        {IR_OP_RESHAPE, 1, {X(0, 4)}, 1, {INTS("shape", 0, 2, 2)}, 0},
        {IR_OP_RESHAPE, 1, {X(1)}, 1, {IR_ARG_INTS("shape", NULL, 0)}, 0},
        {IR_OP_BROADCAST, 1, {X(12, 1)}, 1, {INTS("shape", 3, 12, 5)}, 0},
        {IR_OP_BROADCAST, 1, {X(1, 4)}, 1, {INTS("shape", 1, 4)}, 0},
        {IR_OP_BROADCAST, 1, {X(1, 4)}, 1, {INTS("shape", 0, 4)}, 0},
        {IR_OP_BROADCAST, 1, {SCALAR(F64)}, 1, {INTS("shape", 4)}, 0},
        {IR_OP_TRANSPOSE, 1, {X(4, 3, 2)}, 1, {INTS("perm", 1, 2, 0)}, 0},
        {IR_OP_TRANSPOSE, 1, {X(0, 4)}, 1, {INTS("perm", 1, 0)}, 0},
        {IR_OP_FLIP, 1, {X(4, 3, 2)}, 1, {INTS("axes", 0, 2)}, 0},
        {IR_OP_FLIP, 1, {X(4, 0)}, 1, {INTS("axes", 1)}, 0},
    };
    for (size_t s = 0; s < COUNT(rows); s++) to.visit(&rows[s], to.user);
}

static void pieces(visitor_t to) {
#define DIMS(...) __VA_ARGS__
#define SLICED(begin_, end_, step_) \
    3, {INTS("begin", begin_), INTS("end", end_), INTS("step", step_)}, 0
    const sample_t rows[] = {
        {IR_OP_SLICE, 1, {X(12, 5)}, SLICED(DIMS(0, 1), DIMS(12, 4), DIMS(1, 1))},
        {IR_OP_SLICE, 1, {X(12, 5)}, SLICED(DIMS(11, 0), DIMS(-1, 5), DIMS(-1, 2))},
        {IR_OP_SLICE, 1, {X(12, 5)}, SLICED(DIMS(10, 3), DIMS(2, 0), DIMS(-3, -1))},
        {IR_OP_SLICE, 1, {X(12, 5)}, SLICED(DIMS(5, 4), DIMS(5, 1), DIMS(1, -2))},
        {IR_OP_SLICE, 1, {X(0, 4)}, SLICED(DIMS(-1, 0), DIMS(-1, 4), DIMS(-1, 1))},
        {IR_OP_PAD, 1, {X(12, 5)}, 2, {INTS("low", 0, 1), INTS("high", 0, 2)}, 0},
        {IR_OP_PAD,
         1,
         {X(4, 0)},
         3,
         {INTS("low", 0, 1), INTS("high", 0, 0), IR_ARG_FLOAT("value", 2)},
         0},
        {IR_OP_CONCAT, 3, {X(12, 2), X(12, 0), X(12, 3)}, 1, {IR_ARG_INT("axis", 1)}, 0},
        {IR_OP_CONCAT, 2, {X(2, 4), X(3, 4)}, 1, {IR_ARG_INT("axis", 0)}, 0},
        {IR_OP_CONCAT, 1, {X(4)}, 1, {IR_ARG_INT("axis", 0)}, 0},
        {IR_OP_GATHER, 2, {X(4, 3, 2), SHAPED(I64, 12)}, 1, {IR_ARG_INT("axis", 1)}, 3},
        {IR_OP_GATHER, 2, {X(5, 4), SHAPED(I32, 4, 3)}, 1, {IR_ARG_INT("axis", 0)}, 5},
        {IR_OP_GATHER, 2, {X(5, 4), SCALAR(I64)}, 1, {IR_ARG_INT("axis", 0)}, 5},
        {IR_OP_GATHER, 2, {X(0, 4), SHAPED(I64, 0)}, 1, {IR_ARG_INT("axis", 0)}, 1},
        {IR_OP_SCATTER_ADD,
         2,
         {X(4, 12, 2), SHAPED(I64, 12)},
         2,
         {IR_ARG_INT("axis", 1), IR_ARG_INT("extent", 3)},
         3},
        {IR_OP_SCATTER_ADD,
         2,
         {X(4, 3, 4), SHAPED(I32, 4, 3)},
         2,
         {IR_ARG_INT("axis", 0), IR_ARG_INT("extent", 5)},
         5},
        {IR_OP_SCATTER_ADD,
         2,
         {X(4), SCALAR(I64)},
         2,
         {IR_ARG_INT("axis", 1), IR_ARG_INT("extent", 2)},
         2},
        {IR_OP_GATHER_ALONG, 2, {X(4, 5, 3), SHAPED(I64, 4, 12, 3)}, 1, {IR_ARG_INT("axis", 1)}, 5},
        {IR_OP_SCATTER_ALONG_ADD,
         2,
         {X(4, 12, 3), SHAPED(I64, 4, 12, 3)},
         2,
         {IR_ARG_INT("axis", 1), IR_ARG_INT("extent", 5)},
         5},
        {IR_OP_GATHER_ND, 2, {X(3, 4, 5), SHAPED(I64, 12, 2, 2)}, 0, {{0}}, 3},
        {IR_OP_GATHER_ND, 2, {X(3, 4), SHAPED(I32, 2)}, 0, {{0}}, 3},
        {IR_OP_SCATTER_ND_ADD,
         2,
         {X(12, 2, 5), SHAPED(I64, 12, 2, 2)},
         1,
         {INTS("shape", 3, 4, 5)},
         3},
        {IR_OP_SCATTER_ND_ADD, 2, {SCALAR(F64), SHAPED(I32, 2)}, 1, {INTS("shape", 3, 4)}, 3},
    };
#undef SLICED
#undef DIMS
    for (size_t s = 0; s < COUNT(rows); s++) to.visit(&rows[s], to.user);
}

static void reductions(visitor_t to) {
    for (int op = IR_OP_REDUCE_SUM; op <= IR_OP_REDUCE_PROD; op++) {
        const sample_t rows[] = {
            {(ir_op_t)op, 1, {X(12, 5, 2)}, 1, {INTS("axes", 1)}, 0},
            {(ir_op_t)op, 1, {X(12, 5, 2)}, 2, {INTS("axes", 0, 2), IR_ARG_BOOL("keep", 1)}, 0},
            {(ir_op_t)op, 1, {X(4, 3)}, 1, {INTS("axes", 0, 1)}, 0},
            {(ir_op_t)op, 1, {X(0, 3)}, 1, {INTS("axes", 1)}, 0},
            {(ir_op_t)op, 1, {SCALAR(F64)}, 1, {IR_ARG_INTS("axes", NULL, 0)}, 0},
        };
        for (size_t s = 0; s < COUNT(rows); s++) to.visit(&rows[s], to.user);
    }
    const sample_t rows[] = {
        {IR_OP_REDUCE_SUM, 1, {X(0, 4)}, 1, {INTS("axes", 0)}, 0},
        {IR_OP_ARGMAX, 1, {X(4, 5, 3)}, 1, {IR_ARG_INT("axis", 1)}, 0},
        {IR_OP_ARGMAX, 1, {X(4, 5)}, 2, {IR_ARG_INT("axis", 0), IR_ARG_BOOL("keep", 1)}, 0},
        {IR_OP_CUMSUM, 1, {X(4, 5, 3)}, 1, {IR_ARG_INT("axis", 1)}, 0},
        {IR_OP_CUMSUM, 1, {X(2, 0)}, 1, {IR_ARG_INT("axis", 1)}, 0},
        {IR_OP_CUMSUM,
         1,
         {X(4, 5)},
         3,
         {IR_ARG_INT("axis", 0), IR_ARG_BOOL("exclusive", 1), IR_ARG_BOOL("reverse", 1)},
         0},
        {IR_OP_SUM_SQUARES, 3, {X(12, 5), SCALAR(F64), X(4)}, 0, {{0}}, 0},
        {IR_OP_SUM_SQUARES, 2, {X(12, 5), X(4, 0)}, 0, {{0}}, 0},
    };
#undef X
    for (size_t s = 0; s < COUNT(rows); s++) to.visit(&rows[s], to.user);
}

void samples_each(void (*visit)(const sample_t *sample, void *user), void *user) {
    visitor_t to = {visit, user};
    sources(to);
    elementwise(to);
    views(to);
    pieces(to);
    reductions(to);
}

static double element(const sample_t *sample, ir_dtype_t dtype, int64_t index, uint64_t *noise) {
    *noise = *noise * 6364136223846793005u + 1442695040888963407u;
    double unit = (double)(*noise >> 33) / 0x1p31; /* in [0, 1) */
    if (dtype == IR_BOOL) return unit < 0.5;
    if (ir_dtype_is_integer(dtype))
        return (double)((int64_t)(*noise >> 33) % (2 * sample->n_choices) - sample->n_choices);
    return 0.4 + 1.6 * unit + 1e-7 * (double)index;
}

void sampled_make(const sample_t *sample, sampled_t *out) {
    *out = (sampled_t){0};
    assert_int_equal(ir_graph_create("sample", &out->graph), ST_OK);
    ir_build_t b = {.graph = out->graph};
    ir_value_t inputs[SAMPLE_INPUTS];
    uint64_t noise = (uint64_t)sample->op * 77 + 5;
    for (uint32_t j = 0; j < sample->n_inputs; j++) {
        char name[8];
        snprintf(name, sizeof name, "x%u", j);
        const ir_type_t *type = &sample->in[j];
        inputs[j] = ir_dtype_is_float(type->dtype) ? ir_b_parameter(&b, name, *type)
                                                   : ir_b_buffer(&b, name, *type);
        out->in[j] = *type;
        int64_t n = ir_type_elements(type);
        out->data[j] = calloc((size_t)n + 1, sizeof(double));
        assert_non_null(out->data[j]);
        for (int64_t i = 0; i < n; i++) out->data[j][i] = element(sample, type->dtype, i, &noise);
    }
    ir_value_t y =
        ir_b_node(&b, sample->op, sample->n_inputs, inputs, sample->n_args, sample->args);
    if (b.status != ST_OK) fail_msg("%s: %s", ir_op_def(sample->op)->name, st_last_error());
    out->node = (ir_node_t)out->graph->nodes.n - 1;
    out->info = ir_node(out->graph, out->node);
    out->out = *ir_value_type(out->graph, y);
    out->ctx = (ir_op_ctx_t){sample->op, sample->n_inputs, 1, out->in, out->info->attrs, ""};
}

void sampled_free(sampled_t *sampled) {
    for (int j = 0; j < SAMPLE_INPUTS; j++) free(sampled->data[j]);
    ir_graph_destroy(sampled->graph);
}
