/* Shape rules: what each op makes of its inputs' types, and what it refuses, saying why. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ir/build.h"
#include "ir/op.h"

#define T(dtype, ...)                                                                      \
    {                                                                                      \
        IR_##dtype, (int32_t)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), { \
            __VA_ARGS__                                                                    \
        }                                                                                  \
    }
#define SCALAR(name) \
    { .dtype = IR_##name }
#define INTS(key, ...)                                 \
    IR_ARG_INTS(key, ((const int64_t[]){__VA_ARGS__}), \
                sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))
#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* `error` NULL: the op gives `out`; else it fails with a message that has `error` in it. */
typedef struct row {
    ir_op_t op;
    uint32_t n_inputs;
    ir_type_t in[3];
    size_t n_args;
    ir_arg_t args[8];
    const char *error;
    ir_type_t out;
} row_t;

static void check(const row_t *rows, size_t n_rows) {
    for (size_t r = 0; r < n_rows; r++) {
        const row_t *row = &rows[r];
        const char *name = ir_op_def(row->op)->name;
        ir_graph_t *graph;
        assert_int_equal(ir_graph_create("shapes", &graph), ST_OK);
        ir_build_t b = {.graph = graph};
        ir_value_t in[3], out = 0;
        const char *names[] = {"x", "y", "z"};
        for (uint32_t j = 0; j < row->n_inputs; j++) in[j] = ir_b_buffer(&b, names[j], row->in[j]);
        if (b.status != ST_OK) fail_msg("row %zu (%s): %s", r, name, st_last_error());
        size_t n_nodes = graph->nodes.n, n_values = graph->values.n;
        st_clear_error();
        st_status_t status =
            ir_graph_add(graph, row->op, "it", row->n_inputs, in, row->n_args, row->args, &out);
        if (!row->error) {
            char given[IR_TYPE_TEXT_BYTES], expected[IR_TYPE_TEXT_BYTES];
            if (status != ST_OK) fail_msg("row %zu (%s): %s", r, name, st_last_error());
            if (!ir_type_equal(ir_value_type(graph, out), &row->out))
                fail_msg("row %zu (%s): %s, %s expected", r, name,
                         ir_type_text(ir_value_type(graph, out), given, sizeof given),
                         ir_type_text(&row->out, expected, sizeof expected));
        } else {
            if (status == ST_OK) fail_msg("row %zu (%s) was accepted", r, name);
            if (!strstr(st_last_error(), row->error) || !strstr(st_last_error(), "'it'"))
                fail_msg("row %zu (%s): \"%s\" does not say \"%s\"", r, name, st_last_error(),
                         row->error);
            assert_int_equal(out, IR_NONE);
            assert_int_equal(graph->nodes.n, n_nodes);
            assert_int_equal(graph->values.n, n_values);
        }
        ir_graph_destroy(graph);
    }
}

static void sources(void **state) {
    (void)state;
    static const float data[6];
#define SOURCE(dtype, ...) IR_ARG_DTYPE("dtype", IR_##dtype), INTS("shape", __VA_ARGS__)
    const row_t rows[] = {
        {IR_OP_INPUT, 0, {{0}}, 2, {SOURCE(I64, 4, 8)}, NULL, T(I64, 4, 8)},
        {IR_OP_INPUT,
         0,
         {{0}},
         3,
         {SOURCE(I64, 4, 8), IR_ARG_INT("batch_axis", -1)},
         NULL,
         T(I64, 4, 8)},
        {IR_OP_INPUT,
         0,
         {{0}},
         3,
         {SOURCE(I64, 4, 8), IR_ARG_INT("batch_axis", 2)},
         "i64[4,8]",
         {0}},
        {IR_OP_INPUT, 0, {{0}}, 1, {IR_ARG_DTYPE("dtype", IR_F32)}, "'shape' is missing", {0}},
        {IR_OP_INPUT, 0, {{0}}, 2, {SOURCE(F32, 4, -1)}, "negative", {0}},
        {IR_OP_INPUT, 0, {{0}}, 2, {SOURCE(F32, 1, 1, 1, 1, 1, 1, 1, 1, 1)}, "9 dims", {0}},
        {IR_OP_INPUT, 0, {{0}}, 2, {SOURCE(F32, 1ll << 40, 1ll << 40)}, "overflows", {0}},
        {IR_OP_INPUT, 0, {{0}}, 2, {SOURCE(F32, 0, 1ll << 40, 1ll << 40)}, "overflows", {0}},
        {IR_OP_INPUT, 0, {{0}}, 2, {IR_ARG_DTYPE("dtype", 77), INTS("shape", 2)}, "77", {0}},
        {IR_OP_PARAMETER, 0, {{0}}, 2, {SOURCE(BF16, 0)}, NULL, T(BF16, 0)},
        {IR_OP_PARAMETER, 0, {{0}}, 2, {SOURCE(I32, 3)}, "declare a buffer", {0}},
        {IR_OP_BUFFER, 0, {{0}}, 2, {SOURCE(I32, 3)}, NULL, T(I32, 3)},
        {IR_OP_CONSTANT,
         0,
         {{0}},
         3,
         {SOURCE(F32, 2, 3), IR_ARG_DATA("data", data, 24)},
         NULL,
         T(F32, 2, 3)},
        {IR_OP_CONSTANT,
         0,
         {{0}},
         3,
         {SOURCE(F32, 2, 3), IR_ARG_DATA("data", data, 4)},
         NULL,
         T(F32, 2, 3)},
        {IR_OP_CONSTANT,
         0,
         {{0}},
         3,
         {SOURCE(F32, 0, 3), IR_ARG_DATA("data", data, 0)},
         NULL,
         T(F32, 0, 3)},
        {IR_OP_CONSTANT,
         0,
         {{0}},
         3,
         {SOURCE(F32, 0, 3), IR_ARG_DATA("data", data, 4)},
         NULL,
         T(F32, 0, 3)},
        {IR_OP_CONSTANT,
         0,
         {{0}},
         3,
         {SOURCE(F32, 2, 3), IR_ARG_DATA("data", data, 20)},
         "20 bytes",
         {0}},
        {IR_OP_IOTA, 0, {{0}}, 3, {SOURCE(I64, 2, 3), IR_ARG_INT("axis", 1)}, NULL, T(I64, 2, 3)},
        {IR_OP_IOTA,
         0,
         {{0}},
         3,
         {SOURCE(I64, 2, 3), IR_ARG_INT("axis", 2)},
         "0 to 1 expected",
         {0}},
        {IR_OP_IOTA, 0, {{0}}, 3, {SOURCE(BOOL, 2), IR_ARG_INT("axis", 0)}, "bool", {0}},
        {IR_OP_RANDOM_UNIFORM,
         2,
         {SCALAR(I64), SCALAR(I64)},
         3,
         {SOURCE(F16, 2, 3), IR_ARG_INT("id", 1)},
         NULL,
         T(F16, 2, 3)},
        {IR_OP_RANDOM_UNIFORM,
         2,
         {SCALAR(I64), SCALAR(I32)},
         3,
         {SOURCE(F16, 2), IR_ARG_INT("id", 1)},
         "i32[]",
         {0}},
        {IR_OP_RANDOM_UNIFORM,
         2,
         {SCALAR(I64), SCALAR(I64)},
         3,
         {SOURCE(I32, 2), IR_ARG_INT("id", 1)},
         "i32[2]",
         {0}},
        {IR_OP_RANDOM_UNIFORM,
         2,
         {SCALAR(I64), SCALAR(I64)},
         5,
         {SOURCE(F32, 2), IR_ARG_INT("id", 1), INTS("begin", 3), INTS("global", 5)},
         NULL,
         T(F32, 2)},
        {IR_OP_RANDOM_UNIFORM,
         2,
         {SCALAR(I64), SCALAR(I64)},
         5,
         {SOURCE(F32, 2), IR_ARG_INT("id", 1), INTS("begin", 4), INTS("global", 5)},
         "within 5",
         {0}},
        {IR_OP_RANDOM_UNIFORM,
         2,
         {SCALAR(I64), SCALAR(I64)},
         4,
         {SOURCE(F32, 2), IR_ARG_INT("id", 1), INTS("begin", 0)},
         "global 0",
         {0}},
    };
#undef SOURCE
    check(rows, COUNT(rows));
}

static void elementwise(void **state) {
    (void)state;
    const row_t rows[] = {
        {IR_OP_NEG, 1, {T(I32, 2)}, 0, {{0}}, NULL, T(I32, 2)},
        {IR_OP_NEG, 1, {T(BOOL, 2)}, 0, {{0}}, "bool[2]", {0}},
        {IR_OP_EXP, 1, {T(F16, 0, 2)}, 0, {{0}}, NULL, T(F16, 0, 2)},
        {IR_OP_EXP, 1, {T(I32, 2)}, 0, {{0}}, "i32[2]", {0}},
        {IR_OP_GELU, 1, {T(F32, 2)}, 1, {IR_ARG_BOOL("tanh", 1)}, NULL, T(F32, 2)},
        {IR_OP_LOGICAL_NOT, 1, {T(BOOL, 2)}, 0, {{0}}, NULL, T(BOOL, 2)},
        {IR_OP_LOGICAL_NOT, 1, {T(F32, 2)}, 0, {{0}}, "f32[2]", {0}},
        {IR_OP_CAST, 1, {T(F32, 2, 3)}, 1, {IR_ARG_DTYPE("dtype", IR_BOOL)}, NULL, T(BOOL, 2, 3)},
        {IR_OP_CAST, 1, {T(F32, 2)}, 1, {IR_ARG_DTYPE("dtype", 0)}, "no element type", {0}},
        {IR_OP_CAST, 1, {T(F32, 2)}, 1, {IR_ARG_INT("dtype", 1)}, "wrong kind", {0}},
        {IR_OP_RELU_GRAD, 2, {T(F32, 2), T(F32, 2)}, 0, {{0}}, NULL, T(F32, 2)},
        {IR_OP_RELU_GRAD, 2, {T(F32, 2), T(F32, 1)}, 0, {{0}}, "f32[2] and f32[1]", {0}},
        /* a dim of size 1 broadcasts to 0, not 0 to 1 */
        {IR_OP_ADD, 2, {T(F32, 1), T(F32, 0)}, 0, {{0}}, NULL, T(F32, 0)},
        {IR_OP_ADD, 2, {T(F32, 0), T(F32, 1)}, 0, {{0}}, NULL, T(F32, 0)},
        {IR_OP_ADD, 2, {T(F32, 4, 0), T(F32, 4, 1)}, 0, {{0}}, NULL, T(F32, 4, 0)},
        {IR_OP_ADD, 2, {T(F32, 2), T(F32, 0)}, 0, {{0}}, "f32[2] and f32[0]", {0}},
        {IR_OP_MUL, 2, {T(F32, 4, 1), T(F32, 3)}, 0, {{0}}, NULL, T(F32, 4, 3)},
        {IR_OP_MUL, 2, {T(F32, 2, 3), T(F32, 2)}, 0, {{0}}, "f32[2,3] and f32[2]", {0}},
        {IR_OP_MUL, 2, {T(F32, 2), T(F64, 2)}, 0, {{0}}, "f32[2] and f64[2]", {0}},
        {IR_OP_SUB, 2, {T(BOOL, 2), T(BOOL, 2)}, 0, {{0}}, "bool[2]", {0}},
        {IR_OP_MOD, 2, {T(I64, 2), SCALAR(I64)}, 0, {{0}}, NULL, T(I64, 2)},
        {IR_OP_LT, 2, {T(I64, 2), T(I64, 3, 1)}, 0, {{0}}, NULL, T(BOOL, 3, 2)},
        {IR_OP_EQ, 2, {T(BOOL, 2), T(BOOL, 2)}, 0, {{0}}, NULL, T(BOOL, 2)},
        {IR_OP_LOGICAL_AND, 2, {T(BOOL, 2), T(F32, 2)}, 0, {{0}}, "input 1 is f32[2]", {0}},
        {IR_OP_SELECT, 3, {T(BOOL, 4, 1), T(I8, 3), SCALAR(I8)}, 0, {{0}}, NULL, T(I8, 4, 3)},
        {IR_OP_SELECT, 3, {T(BOOL, 0, 1), T(I8, 1, 3), SCALAR(I8)}, 0, {{0}}, NULL, T(I8, 0, 3)},
        {IR_OP_SELECT, 3, {T(F32, 4), T(I8, 4), T(I8, 4)}, 0, {{0}}, "condition f32[4]", {0}},
        {IR_OP_SELECT, 3, {T(BOOL, 4), T(I8, 3), T(I8, 3)}, 0, {{0}}, "do not broadcast", {0}},
    };
    check(rows, COUNT(rows));
}

static void views(void **state) {
    (void)state;
    const row_t rows[] = {
        {IR_OP_BROADCAST, 1, {T(F32, 3, 1)}, 1, {INTS("shape", 2, 3, 4)}, NULL, T(F32, 2, 3, 4)},
        {IR_OP_BROADCAST, 1, {T(F32, 1)}, 1, {INTS("shape", 0)}, NULL, T(F32, 0)},
        {IR_OP_BROADCAST,
         1,
         {T(F32, 3)},
         1,
         {INTS("shape", 1)},
         "f32[3] does not broadcast to f32[1]",
         {0}},
        {IR_OP_BROADCAST, 1, {T(F32, 2, 3)}, 1, {INTS("shape", 3)}, "f32[3]", {0}},
        {IR_OP_BROADCAST, 1, {T(F32, 0)}, 1, {INTS("shape", 1)}, "does not broadcast", {0}},
        {IR_OP_RESHAPE, 1, {T(F32, 2, 6)}, 1, {INTS("shape", 3, 4)}, NULL, T(F32, 3, 4)},
        {IR_OP_RESHAPE, 1, {T(F32, 1)}, 1, {IR_ARG_INTS("shape", NULL, 0)}, NULL, SCALAR(F32)},
        {IR_OP_RESHAPE, 1, {T(F32, 0, 6)}, 1, {INTS("shape", 5, 0)}, NULL, T(F32, 5, 0)},
        {IR_OP_RESHAPE, 1, {T(F32, 2, 6)}, 1, {INTS("shape", 3, 5)}, "12 and 15", {0}},
        {IR_OP_RESHAPE, 1, {T(F32, 2, 6)}, 1, {INTS("shape", -1)}, "negative", {0}},
        {IR_OP_TRANSPOSE, 1, {T(F32, 2, 3, 4)}, 1, {INTS("perm", 2, 0, 1)}, NULL, T(F32, 4, 2, 3)},
        {IR_OP_TRANSPOSE, 1, {SCALAR(F32)}, 1, {IR_ARG_INTS("perm", NULL, 0)}, NULL, SCALAR(F32)},
        {IR_OP_TRANSPOSE, 1, {T(F32, 2, 3)}, 1, {INTS("perm", 0, 0)}, "f32[2,3]", {0}},
        {IR_OP_TRANSPOSE, 1, {T(F32, 2, 3)}, 1, {INTS("perm", 0)}, "perm", {0}},
        {IR_OP_TRANSPOSE, 1, {T(F32, 2, 3)}, 1, {INTS("perm", 0, -1)}, "perm", {0}},
        {IR_OP_FLIP, 1, {T(F32, 2, 3)}, 1, {INTS("axes", 0, 1)}, NULL, T(F32, 2, 3)},
        {IR_OP_FLIP, 1, {T(F32, 2, 3)}, 1, {INTS("axes", 1, 1)}, "ascend", {0}},
        {IR_OP_FLIP, 1, {T(F32, 2, 3)}, 1, {INTS("axes", 2)}, "f32[2,3]", {0}},
    };
    check(rows, COUNT(rows));
}

static void slices_and_pads(void **state) {
    (void)state;
#define SLICE(x, begin, end, step, error, ...)                                               \
    {                                                                                        \
        IR_OP_SLICE, 1, {T(F32, x)}, 3,                                                      \
            {INTS("begin", begin), INTS("end", end), INTS("step", step)}, error, __VA_ARGS__ \
    }
    const row_t rows[] = {
        SLICE(7, 0, 7, 1, NULL, T(F32, 7)),
        SLICE(7, 1, 7, 2, NULL, T(F32, 3)),
        SLICE(7, 1, 6, 2, NULL, T(F32, 3)),
        SLICE(7, 0, 7, 100, NULL, T(F32, 1)),
        SLICE(7, 0, 7, INT64_MAX, NULL, T(F32, 1)),
        SLICE(7, 7, 7, 1, NULL, T(F32, 0)),
        SLICE(7, 5, 2, 1, NULL, T(F32, 0)),
        SLICE(7, 6, -1, -1, NULL, T(F32, 7)),
        SLICE(7, 6, 0, -4, NULL, T(F32, 2)),
        SLICE(7, 2, 5, -1, NULL, T(F32, 0)),
        SLICE(7, 6, -1, -INT64_MAX, NULL, T(F32, 1)),
        SLICE(0, 0, 0, 1, NULL, T(F32, 0)),
        SLICE(0, -1, -1, -1, NULL, T(F32, 0)), /* a downward walk over nothing */
        SLICE(7, 0, 8, 1, "f32[7]", {0}),
        SLICE(7, -1, 7, 1, "bounds 0 to 7", {0}),
        SLICE(7, 7, -1, -1, "bounds -1 to 6", {0}),
        SLICE(7, 6, -2, -1, "bounds -1 to 6", {0}),
        SLICE(7, 0, 7, 0, "step 0", {0}),
        SLICE(7, 6, -1, INT64_MIN, "step", {0}),
        {IR_OP_SLICE,
         1,
         {T(F32, 2, 3)},
         3,
         {INTS("begin", 0), INTS("end", 2), INTS("step", 1)},
         "f32[2,3] needs 2",
         {0}},
        {IR_OP_PAD,
         1,
         {T(F32, 2, 0)},
         2,
         {INTS("low", 1, 0), INTS("high", 0, 3)},
         NULL,
         T(F32, 3, 3)},
        {IR_OP_PAD, 1, {T(F32, 2)}, 2, {INTS("low", -1), INTS("high", 0)}, "f32[2]", {0}},
        {IR_OP_PAD, 1, {T(F32, 2)}, 2, {INTS("low", 0), INTS("high", INT64_MAX)}, "too large", {0}},
        {IR_OP_PAD, 1, {T(F32, 2)}, 2, {INTS("low", 0, 0), INTS("high", 0)}, "needs 1", {0}},
        {IR_OP_CONCAT,
         3,
         {T(F32, 2, 3), T(F32, 2, 0), T(F32, 2, 1)},
         1,
         {IR_ARG_INT("axis", 1)},
         NULL,
         T(F32, 2, 4)},
        {IR_OP_CONCAT,
         2,
         {T(F32, 2, 3), T(F32, 3, 3)},
         1,
         {IR_ARG_INT("axis", 1)},
         "f32[2,3] and f32[3,3]",
         {0}},
        {IR_OP_CONCAT, 2, {T(F32, 2), T(F64, 2)}, 1, {IR_ARG_INT("axis", 0)}, "f64[2]", {0}},
        {IR_OP_CONCAT, 1, {SCALAR(F32)}, 1, {IR_ARG_INT("axis", 0)}, "axis 0", {0}},
        {IR_OP_CONCAT, 1, {T(F32, 2)}, 1, {IR_ARG_INT("axis", -1)}, "axis -1", {0}},
        {IR_OP_CONCAT, 0, {{0}}, 1, {IR_ARG_INT("axis", 0)}, "0 inputs given", {0}},
    };
#undef SLICE
    check(rows, COUNT(rows));
}

static void gathers_and_scatters(void **state) {
    (void)state;
#define AXIS(axis)               \
    1, {                         \
        IR_ARG_INT("axis", axis) \
    }
#define EXTENT(axis, extent)                                   \
    2, {                                                       \
        IR_ARG_INT("axis", axis), IR_ARG_INT("extent", extent) \
    }
    const row_t rows[] = {
        {IR_OP_GATHER, 2, {T(F32, 4, 5, 6), T(I64, 2, 3)}, AXIS(1), NULL, T(F32, 4, 2, 3, 6)},
        {IR_OP_GATHER, 2, {T(I8, 4, 5), SCALAR(I32)}, AXIS(0), NULL, T(I8, 5)},
        {IR_OP_GATHER, 2, {T(F32, 0, 5), T(I32, 0)}, AXIS(0), NULL, T(F32, 0, 5)},
        {IR_OP_GATHER, 2, {T(F32, 0, 5), T(I32, 1)}, AXIS(0), "nothing to choose", {0}},
        {IR_OP_GATHER, 2, {T(F32, 4, 5), T(F32, 2)}, AXIS(0), "i32 or i64", {0}},
        {IR_OP_GATHER, 2, {T(F32, 4, 5), T(I32, 2)}, AXIS(2), "f32[4,5]", {0}},
        {IR_OP_GATHER,
         2,
         {T(F32, 1, 1, 1, 1, 1), T(I32, 1, 1, 1, 1, 1)},
         AXIS(0),
         "more than 8",
         {0}},
        {IR_OP_SCATTER_ADD,
         2,
         {T(F32, 4, 2, 3, 6), T(I64, 2, 3)},
         EXTENT(1, 5),
         NULL,
         T(F32, 4, 5, 6)},
        {IR_OP_SCATTER_ADD, 2, {T(F32, 5), SCALAR(I64)}, EXTENT(1, 4), NULL, T(F32, 5, 4)},
        {IR_OP_SCATTER_ADD, 2, {T(F32, 0, 5), T(I64, 0)}, EXTENT(0, 0), NULL, T(F32, 0, 5)},
        {IR_OP_SCATTER_ADD,
         2,
         {T(F32, 4, 5), T(I64, 3)},
         EXTENT(0, 7),
         "updates f32[4,5], index i64[3]",
         {0}},
        {IR_OP_SCATTER_ADD, 2, {T(F32, 4, 5), T(I64, 5)}, EXTENT(2, 7), "axis 2", {0}},
        {IR_OP_SCATTER_ADD, 2, {T(F32, 4, 5), T(I64, 4)}, EXTENT(0, -7), "extent -7", {0}},
        {IR_OP_SCATTER_ADD, 2, {T(F32, 4, 5), T(I64, 4)}, EXTENT(0, 0), "extent 0", {0}},
        {IR_OP_SCATTER_ADD, 2, {T(I32, 4, 5), T(I64, 4)}, EXTENT(0, 3), "float", {0}},
        {IR_OP_SCATTER_ADD,
         2,
         {T(F32, 1, 1, 1, 1, 1, 1, 1, 1), SCALAR(I64)},
         EXTENT(0, 3),
         "axis 0",
         {0}},
        {IR_OP_GATHER_ALONG, 2, {T(F32, 4, 5), T(I64, 4, 2)}, AXIS(1), NULL, T(F32, 4, 2)},
        {IR_OP_GATHER_ALONG,
         2,
         {T(F32, 4, 5), T(I64, 3, 2)},
         AXIS(1),
         "f32[4,5] and index i64[3,2]",
         {0}},
        {IR_OP_GATHER_ALONG, 2, {T(F32, 4, 5), T(I64, 4)}, AXIS(0), "index i64[4]", {0}},
        {IR_OP_GATHER_ALONG, 2, {T(F32, 4, 0), T(I64, 4, 1)}, AXIS(1), "one element", {0}},
        {IR_OP_SCATTER_ALONG_ADD,
         2,
         {T(F32, 4, 2), T(I64, 4, 2)},
         EXTENT(1, 5),
         NULL,
         T(F32, 4, 5)},
        {IR_OP_SCATTER_ALONG_ADD, 2, {T(F32, 4, 2), T(I64, 4, 1)}, EXTENT(1, 5), "i64[4,1]", {0}},
        {IR_OP_GATHER_ND, 2, {T(F32, 3, 4, 5), T(I64, 7, 2)}, 0, {{0}}, NULL, T(F32, 7, 5)},
        {IR_OP_GATHER_ND, 2, {T(F32, 3, 4), T(I64, 2)}, 0, {{0}}, NULL, SCALAR(F32)},
        {IR_OP_GATHER_ND,
         2,
         {T(F32, 3, 4), T(I64, 7, 3)},
         0,
         {{0}},
         "f32[3,4] and index i64[7,3]",
         {0}},
        {IR_OP_GATHER_ND, 2, {T(F32, 3, 4), SCALAR(I64)}, 0, {{0}}, "index i64[]", {0}},
        {IR_OP_GATHER_ND, 2, {T(F32, 3, 0), T(I64, 7, 2)}, 0, {{0}}, "dim 1", {0}},
        {IR_OP_SCATTER_ND_ADD,
         2,
         {T(F32, 7, 5), T(I64, 7, 2)},
         1,
         {INTS("shape", 3, 4, 5)},
         NULL,
         T(F32, 3, 4, 5)},
        {IR_OP_SCATTER_ND_ADD,
         2,
         {T(F32, 7, 5), T(I64, 7, 2)},
         1,
         {INTS("shape", 3, 4, 6)},
         "result f32[3,4,6]",
         {0}},
        {IR_OP_SCATTER_ND_ADD,
         2,
         {T(F32, 7), T(I64, 7, 1)},
         1,
         {INTS("shape", 0)},
         "result f32[0]",
         {0}},
    };
#undef AXIS
#undef EXTENT
    check(rows, COUNT(rows));
}

static void reductions(void **state) {
    (void)state;
    const ir_arg_t keep = IR_ARG_BOOL("keep", 1);
    const row_t rows[] = {
        {IR_OP_REDUCE_SUM, 1, {T(F32, 2, 3, 4)}, 1, {INTS("axes", 0, 2)}, NULL, T(F32, 3)},
        {IR_OP_REDUCE_SUM, 1, {T(I64, 2, 3, 4)}, 2, {INTS("axes", 1), keep}, NULL, T(I64, 2, 1, 4)},
        {IR_OP_REDUCE_SUM, 1, {T(F32, 2, 0)}, 1, {INTS("axes", 1)}, NULL, T(F32, 2)},
        {IR_OP_REDUCE_SUM, 1, {SCALAR(F32)}, 1, {IR_ARG_INTS("axes", NULL, 0)}, NULL, SCALAR(F32)},
        {IR_OP_REDUCE_SUM,
         1,
         {T(F32, 2)},
         1,
         {IR_ARG_INTS("axes", NULL, 0)},
         "no axes given for f32[2]",
         {0}},
        {IR_OP_REDUCE_SUM, 1, {T(F32, 2)}, 0, {{0}}, "'axes' is missing", {0}},
        {IR_OP_REDUCE_SUM, 1, {T(F32, 2, 3)}, 1, {INTS("axes", 1, 0)}, "ascend", {0}},
        {IR_OP_REDUCE_SUM, 1, {T(F32, 2, 3)}, 1, {INTS("axes", -1)}, "axis -1", {0}},
        {IR_OP_REDUCE_SUM, 1, {T(BOOL, 2)}, 1, {INTS("axes", 0)}, "bool[2]", {0}},
        {IR_OP_REDUCE_MEAN, 1, {T(BF16, 2, 3)}, 1, {INTS("axes", 1)}, NULL, T(BF16, 2)},
        {IR_OP_REDUCE_MEAN, 1, {T(I32, 2, 3)}, 1, {INTS("axes", 1)}, "i32[2,3]", {0}},
        {IR_OP_REDUCE_MAX, 1, {T(F32, 0, 3)}, 1, {INTS("axes", 1)}, NULL, T(F32, 0)},
        {IR_OP_REDUCE_MAX,
         1,
         {T(F32, 0, 3)},
         1,
         {INTS("axes", 0)},
         "dim 0 of f32[0,3] is empty",
         {0}},
        {IR_OP_REDUCE_MIN, 1, {T(F32, 0, 0)}, 1, {INTS("axes", 0)}, NULL, T(F32, 0)},
        {IR_OP_REDUCE_PROD, 1, {T(F32, 0, 3)}, 1, {INTS("axes", 0)}, NULL, T(F32, 3)},
        {IR_OP_ARGMAX, 1, {T(F32, 2, 3)}, 1, {IR_ARG_INT("axis", 1)}, NULL, T(I64, 2)},
        {IR_OP_ARGMAX, 1, {T(F32, 2, 3)}, 2, {IR_ARG_INT("axis", 1), keep}, NULL, T(I64, 2, 1)},
        {IR_OP_ARGMAX, 1, {T(F32, 2, 0)}, 1, {IR_ARG_INT("axis", 1)}, "f32[2,0] is empty", {0}},
        {IR_OP_CUMSUM, 1, {T(F32, 2, 0)}, 1, {IR_ARG_INT("axis", 1)}, NULL, T(F32, 2, 0)},
        {IR_OP_CUMSUM, 1, {SCALAR(F32)}, 1, {IR_ARG_INT("axis", 0)}, "axis 0", {0}},
        {IR_OP_SUM_SQUARES, 3, {T(F32, 2), SCALAR(F32), T(F32, 0)}, 0, {{0}}, NULL, SCALAR(F32)},
        {IR_OP_SUM_SQUARES, 2, {T(F32, 2), T(F64, 2)}, 0, {{0}}, NULL, SCALAR(F64)},
        {IR_OP_SUM_SQUARES, 2, {T(F16, 2), T(BF16, 2)}, 0, {{0}}, NULL, SCALAR(F32)},
        {IR_OP_SUM_SQUARES, 1, {T(I32, 2)}, 0, {{0}}, "i32[2]", {0}},
    };
    check(rows, COUNT(rows));
}

static void windows_with_channels_last(void **state) {
    (void)state;
#define WINDOW                                                              \
    INTS("strides", 2, 1), INTS("pads_low", 1, 1), INTS("pads_high", 1, 1), \
        IR_ARG_BOOL("channels_last", true)
#define DILATED WINDOW, INTS("dilations", 1, 1)
    static const int64_t whole[] = {3, 3};
    const row_t rows[] = {
        {IR_OP_CONV,
         2,
         {T(F32, 2, 7, 5, 4), T(F32, 6, 3, 3, 4)},
         5,
         {DILATED},
         NULL,
         T(F32, 2, 4, 5, 6)},
        {IR_OP_CONV,
         2,
         {T(F32, 2, 7, 5, 4), T(F32, 6, 4, 3, 3)},
         5,
         {DILATED},
         "weight [O, …, 4 / groups]",
         SCALAR(F32)},
        {IR_OP_CONV_GRAD_INPUT,
         2,
         {T(F32, 2, 4, 5, 6), T(F32, 6, 3, 3, 4)},
         6,
         {DILATED, INTS("spatial", 7, 5)},
         NULL,
         T(F32, 2, 7, 5, 4)},
        {IR_OP_CONV_GRAD_INPUT,
         2,
         {T(F32, 2, 6, 4, 5), T(F32, 6, 3, 3, 4)},
         6,
         {DILATED, INTS("spatial", 7, 5)},
         "dim 3 must be the weight's dim 0",
         SCALAR(F32)},
        {IR_OP_CONV_GRAD_WEIGHT,
         2,
         {T(F32, 2, 7, 5, 4), T(F32, 2, 4, 5, 6)},
         6,
         {DILATED, INTS("kernel", 3, 3)},
         NULL,
         T(F32, 6, 3, 3, 4)},
        {IR_OP_AVG_POOL,
         1,
         {T(F32, 2, 7, 5, 4)},
         5,
         {WINDOW, IR_ARG_INTS("kernel", whole, 2)},
         NULL,
         T(F32, 2, 4, 5, 4)},
        {IR_OP_MAX_POOL_GRAD,
         2,
         {T(F32, 2, 4, 5, 4), T(I32, 2, 4, 5, 4)},
         7,
         {DILATED, INTS("kernel", 3, 3), INTS("spatial", 7, 5)},
         NULL,
         T(F32, 2, 7, 5, 4)},
        {IR_OP_MAX_POOL_GRAD,
         2,
         {T(F32, 2, 4, 4, 4), T(I32, 2, 4, 4, 4)},
         7,
         {DILATED, INTS("kernel", 3, 3), INTS("spatial", 7, 5)},
         "pooling 5 positions gives 5 in spatial dim 1",
         SCALAR(F32)},
    };
    check(rows, COUNT(rows));
#undef WINDOW
#undef DILATED
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows_with_channels_last),
        cmocka_unit_test(sources),
        cmocka_unit_test(elementwise),
        cmocka_unit_test(views),
        cmocka_unit_test(slices_and_pads),
        cmocka_unit_test(gathers_and_scatters),
        cmocka_unit_test(reductions),
    };
    return cmocka_run_group_tests_name("shapes", tests, NULL, NULL);
}
