/* Sample nodes of the contraction, composite and state ops, over odd shapes: for the tests that
 * hold for every op. A row is one node; data is made by rule (large_fill). */
#ifndef STATOR_TESTS_IR_LARGE_SAMPLES_H
#define STATOR_TESTS_IR_LARGE_SAMPLES_H

#include "ir/convert.h"
#include "ir/op.h"

typedef struct large_sample {
    ir_op_t op;
    uint32_t n_inputs;
    ir_type_t in[8];
    size_t n_args;
    ir_arg_t args[7];
    int64_t n_choices;  /* integer inputs of rank ≥ 1 hold 0 … n_choices - 1; scalars hold 3 */
    uint32_t gradients; /* inputs (bit j) that a gradient is checked for */
} large_sample_t;

#define LS_INTS(key, ...)                              \
    IR_ARG_INTS(key, ((const int64_t[]){__VA_ARGS__}), \
                sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))
#define LS_DIMS(dtype_, ...)                                                                   \
    {                                                                                          \
        .dtype = IR_##dtype_,                                                                  \
        .rank = (int32_t)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), .dims = { \
            __VA_ARGS__                                                                        \
        }                                                                                      \
    }
#define LS_F(...) LS_DIMS(F64, __VA_ARGS__)
#define LS_ONE(dtype_) \
    { .dtype = IR_##dtype_ }
#define LS_TRANSPOSES(a, b)                                          \
    2, {                                                             \
        IR_ARG_BOOL("transpose_a", a), IR_ARG_BOOL("transpose_b", b) \
    }

/* clang-format off */
#define LS_CONV2 LS_INTS("strides", 2, 1), LS_INTS("pads_low", 1, 0), LS_INTS("pads_high", 0, 1), \
                 LS_INTS("dilations", 1, 2), IR_ARG_INT("groups", 2)
#define LS_CONV1 LS_INTS("strides", 2), LS_INTS("pads_low", 1), LS_INTS("pads_high", 0), \
                 LS_INTS("dilations", 1), IR_ARG_INT("groups", 1)
#define LS_POOL LS_INTS("kernel", 3, 2), LS_INTS("strides", 2, 2), LS_INTS("pads_low", 1, 0), \
                LS_INTS("pads_high", 1, 1)

static inline void large_samples_each(void (*visit)(const large_sample_t *sample)) {
    const large_sample_t samples[] = {
    {IR_OP_MATMUL, 2, {LS_F(5, 4), LS_F(4, 3)}, LS_TRANSPOSES(0, 0), 0, 3},
    {IR_OP_MATMUL, 2, {LS_F(4, 5), LS_F(4, 3)}, LS_TRANSPOSES(1, 0), 0, 3},
    {IR_OP_MATMUL, 2, {LS_F(5, 4), LS_F(3, 4)}, LS_TRANSPOSES(0, 1), 0, 3},
    {IR_OP_MATMUL, 2, {LS_F(4, 5), LS_F(3, 4)}, LS_TRANSPOSES(1, 1), 0, 3},
    {IR_OP_MATMUL, 2, {LS_F(5, 2, 4), LS_F(4, 3)}, LS_TRANSPOSES(0, 0), 0, 3},
    {IR_OP_MATMUL, 2, {LS_F(5, 2, 4), LS_F(3, 4)}, LS_TRANSPOSES(0, 1), 0, 3},
    {IR_OP_MATMUL, 2, {LS_F(5, 4, 2), LS_F(4, 3)}, LS_TRANSPOSES(1, 0), 0, 3},
    {IR_OP_MATMUL, 2, {LS_F(5, 4, 2), LS_F(3, 4)}, LS_TRANSPOSES(1, 1), 0, 3},
    {IR_OP_MATMUL, 2, {LS_F(5, 2, 4), LS_F(5, 4, 3)}, LS_TRANSPOSES(0, 0), 0, 3},
    {IR_OP_MATMUL, 2, {LS_F(5, 1, 2, 4), LS_F(4, 3, 4)}, LS_TRANSPOSES(0, 1), 0, 3},
    {IR_OP_MATMUL, 2, {LS_F(2, 4), LS_F(5, 4, 3)}, LS_TRANSPOSES(0, 0), 0, 3},
    {IR_OP_MATMUL, 2, {LS_F(5, 0), LS_F(0, 3)}, LS_TRANSPOSES(0, 0), 0, 3},
    {IR_OP_CONV, 2, {LS_F(5, 4, 6, 5), LS_F(6, 2, 3, 2)}, 5, {LS_CONV2}, 0, 3},
    {IR_OP_CONV, 3, {LS_F(5, 3, 6), LS_F(4, 3, 3), LS_F(4)}, 5, {LS_CONV1}, 0, 7},
    {IR_OP_CONV, 2, {LS_F(4, 1, 3, 4, 3), LS_F(2, 1, 2, 2, 1)}, 4,
     {LS_INTS("strides", 1, 2, 1), LS_INTS("pads_low", 0, 0, 0), LS_INTS("pads_high", 0, 1, 0),
      LS_INTS("dilations", 1, 1, 1)}, 0, 3},
    {IR_OP_CONV_GRAD_INPUT, 2, {LS_F(5, 4, 3), LS_F(4, 3, 3)}, 6, {LS_CONV1, LS_INTS("spatial", 6)}, 0, 3},
    {IR_OP_CONV_GRAD_INPUT, 2, {LS_F(5, 6, 3, 4), LS_F(6, 2, 3, 2)}, 6,
     {LS_CONV2, LS_INTS("spatial", 6, 5)}, 0, 3},
    {IR_OP_CONV_GRAD_WEIGHT, 2, {LS_F(5, 4, 6, 5), LS_F(5, 6, 3, 4)}, 6,
     {LS_CONV2, LS_INTS("kernel", 3, 2)}, 0, 0},
    {IR_OP_MAX_POOL, 1, {LS_F(5, 4, 6, 5)}, 5, {LS_POOL, LS_INTS("dilations", 1, 1)}, 0, 1},
    {IR_OP_MAX_POOL, 1, {LS_F(5, 4, 7, 5)}, 6,
     {LS_POOL, LS_INTS("dilations", 1, 2), IR_ARG_BOOL("ceil", 1)}, 0, 1},
    {IR_OP_MAX_POOL_GRAD, 2, {LS_F(5, 4, 3, 3), LS_DIMS(I32, 5, 4, 3, 3)}, 1,
     {LS_INTS("spatial", 6, 5)}, 30, 0},
    {IR_OP_AVG_POOL, 1, {LS_F(5, 4, 6, 5)}, 4, {LS_POOL}, 0, 1},
    {IR_OP_AVG_POOL, 1, {LS_F(5, 4, 6, 4)}, 6,
     {LS_POOL, IR_ARG_BOOL("ceil", 1), IR_ARG_BOOL("count_pad", 1)}, 0, 1},
    {IR_OP_AVG_POOL_GRAD, 1, {LS_F(5, 4, 3, 3)}, 7,
     {LS_POOL, IR_ARG_BOOL("ceil", 0), IR_ARG_BOOL("count_pad", 0), LS_INTS("spatial", 6, 5)}, 0, 0},
    {IR_OP_ATTENTION, 3, {LS_F(5, 4, 3, 2), LS_F(5, 2, 3, 2), LS_F(5, 2, 3, 3)}, 1,
     {IR_ARG_BOOL("causal", 1)}, 0, 7},
    {IR_OP_ATTENTION, 4, {LS_F(5, 2, 3, 2), LS_F(5, 2, 4, 2), LS_F(5, 2, 4, 2), LS_DIMS(BOOL, 5, 1, 3, 4)}, 0,
     {{0}}, 0, 7},
    {IR_OP_ATTENTION, 4, {LS_F(5, 2, 3, 2), LS_F(5, 1, 4, 2), LS_F(5, 1, 4, 2), LS_F(3, 4)}, 2,
     {IR_ARG_INT("window", 2), IR_ARG_FLOAT("scale", 0.3)}, 0, 7},
    {IR_OP_ATTENTION_GRAD, 6,
     {LS_F(5, 4, 3, 3), LS_F(5, 4, 3, 2), LS_F(5, 2, 3, 2), LS_F(5, 2, 3, 3), LS_F(5, 4, 3, 3), LS_F(5, 4, 3)},
     1, {IR_ARG_BOOL("causal", 1)}, 0, 0},
    {IR_OP_ATTENTION_GRAD, 7,
     {LS_F(5, 2, 3, 2), LS_F(5, 2, 3, 2), LS_F(5, 2, 4, 2), LS_F(5, 2, 4, 2), LS_F(5, 2, 3, 2), LS_F(5, 2, 3),
      LS_DIMS(BOOL, 5, 1, 3, 4)}, 0, {{0}}, 0, 0},
    {IR_OP_SOFTMAX, 1, {LS_F(5, 4, 3)}, 1, {IR_ARG_INT("axis", 2)}, 0, 1},
    {IR_OP_SOFTMAX, 1, {LS_F(5, 4, 3)}, 1, {IR_ARG_INT("axis", 0)}, 0, 1},
    {IR_OP_SOFTMAX_GRAD, 2, {LS_F(5, 4, 3), LS_F(5, 4, 3)}, 1, {IR_ARG_INT("axis", 1)}, 0, 0},
    {IR_OP_LOG_SOFTMAX, 1, {LS_F(5, 4, 3)}, 1, {IR_ARG_INT("axis", 1)}, 0, 1},
    {IR_OP_LOG_SOFTMAX_GRAD, 2, {LS_F(5, 4), LS_F(5, 4)}, 1, {IR_ARG_INT("axis", 1)}, 0, 0},
    {IR_OP_CROSS_ENTROPY, 2, {LS_F(5, 4), LS_DIMS(I64, 5)}, 0, {{0}}, 4, 1},
    {IR_OP_CROSS_ENTROPY, 3, {LS_F(5, 4), LS_DIMS(I32, 5), LS_F(4)}, 3,
     {IR_ARG_INT("ignore_index", 1), IR_ARG_FLOAT("smoothing", 0.1), IR_ARG_BOOL("mean", 1)}, 4, 1},
    {IR_OP_CROSS_ENTROPY_ROWS, 3, {LS_F(5, 4), LS_DIMS(I64, 5), LS_F(4)}, 2,
     {IR_ARG_INT("ignore_index", 2), IR_ARG_FLOAT("smoothing", 0.2)}, 4, 1},
    {IR_OP_CROSS_ENTROPY_GRAD, 4, {LS_F(5), LS_F(5, 4), LS_DIMS(I64, 5), LS_F(5)}, 0, {{0}}, 4, 0},
    {IR_OP_CROSS_ENTROPY_GRAD, 5, {LS_ONE(F64), LS_F(5, 4), LS_DIMS(I32, 5), LS_F(5), LS_F(4)}, 1,
     {IR_ARG_FLOAT("smoothing", 0.2)}, 4, 0},
    {IR_OP_BATCH_NORM, 5, {LS_F(5, 3, 2), LS_F(3), LS_F(3), LS_F(3), LS_F(3)}, 0, {{0}}, 0, 7},
    {IR_OP_BATCH_NORM, 5, {LS_F(5, 3), LS_F(3), LS_F(3), LS_F(3), LS_F(3)}, 1,
     {IR_ARG_BOOL("train", 0)}, 0, 7},
    {IR_OP_CHANNEL_SUM, 1, {LS_F(5, 3, 2, 4)}, 0, {{0}}, 0, 0},
    {IR_OP_CHANNEL_CENTERED_SQUARES, 2, {LS_F(5, 3, 4), LS_F(3)}, 0, {{0}}, 0, 0},
    {IR_OP_BATCH_NORM_APPLY, 5, {LS_F(5, 3, 4), LS_F(3), LS_F(3), LS_F(3), LS_F(3)}, 0, {{0}}, 0, 25},
    {IR_OP_BATCH_NORM_GRAD_SUMS, 4, {LS_F(5, 3, 4), LS_F(5, 3, 4), LS_F(3), LS_F(3)}, 0, {{0}}, 0, 0},
    {IR_OP_BATCH_NORM_GRAD_APPLY, 7,
     {LS_F(5, 3), LS_F(5, 3), LS_F(3), LS_F(3), LS_F(3), LS_F(3), LS_F(3)}, 1, {IR_ARG_INT("count", 5)}, 0, 0},
    {IR_OP_LAYER_NORM, 3, {LS_F(5, 3, 4), LS_F(4), LS_F(4)}, 0, {{0}}, 0, 7},
    {IR_OP_LAYER_NORM, 3, {LS_F(5, 2, 3, 4), LS_F(3, 4), LS_F(3, 4)}, 1, {IR_ARG_FLOAT("eps", 0.1)}, 0, 7},
    {IR_OP_LAYER_NORM_GRAD, 5, {LS_F(5, 3, 4), LS_F(5, 3, 4), LS_F(5, 3), LS_F(5, 3), LS_F(4)}, 0, {{0}}, 0, 0},
    {IR_OP_RMS_NORM, 2, {LS_F(5, 3, 4), LS_F(4)}, 1, {IR_ARG_FLOAT("eps", 0.1)}, 0, 3},
    {IR_OP_RMS_NORM_GRAD, 4, {LS_F(5, 3, 4), LS_F(5, 3, 4), LS_F(5, 3), LS_F(4)}, 0, {{0}}, 0, 0},
    {IR_OP_ROPE, 3, {LS_F(5, 4, 7, 6), LS_F(7, 3), LS_F(7, 3)}, 0, {{0}}, 0, 1},
    {IR_OP_ROPE, 3, {LS_F(5, 1, 2, 4), LS_F(2, 2), LS_F(2, 2)}, 2,
     {IR_ARG_BOOL("interleaved", 1), IR_ARG_BOOL("inverse", 1)}, 0, 1},
    {IR_OP_DROPOUT, 3, {LS_F(5, 4), LS_ONE(I64), LS_ONE(I64)}, 2,
     {IR_ARG_FLOAT("p", 0.4), IR_ARG_INT("id", 7)}, 0, 1},
    {IR_OP_DROPOUT, 3, {LS_F(5, 4), LS_ONE(I64), LS_ONE(I64)}, 4,
     {IR_ARG_FLOAT("p", 0.4), IR_ARG_INT("id", 7), LS_INTS("begin", 2, 0), LS_INTS("global", 9, 4)}, 0, 1},
    {IR_OP_DROPOUT, 3, {LS_F(5, 4), LS_ONE(I64), LS_ONE(I64)}, 3,
     {IR_ARG_FLOAT("p", 0.4), IR_ARG_INT("id", 7), IR_ARG_BOOL("train", 0)}, 0, 1},
    {IR_OP_UPDATE, 2, {LS_F(5, 4), LS_F(5, 4)}, 0, {{0}}, 0, 0},
    {IR_OP_SGD, 4, {LS_F(5, 4), LS_F(5, 4), LS_ONE(F64), LS_ONE(F64)}, 1,
     {IR_ARG_FLOAT("weight_decay", 0.1)}, 0, 0},
    {IR_OP_SGD, 5, {LS_F(5, 4), LS_F(5, 4), LS_ONE(F64), LS_ONE(F64), LS_F(5, 4)}, 2,
     {IR_ARG_FLOAT("momentum", 0.9), IR_ARG_BOOL("nesterov", 1)}, 0, 0},
    {IR_OP_ADAMW, 7,
     {LS_F(5, 4), LS_F(5, 4), LS_F(5, 4), LS_F(5, 4), LS_ONE(F64), LS_ONE(I64), LS_ONE(F64)}, 0, {{0}}, 0, 0},
    {IR_OP_LR_SCHEDULE, 1, {LS_ONE(I64)}, 4,
     {IR_ARG_STRING("kind", "cosine"), IR_ARG_FLOAT("base", 0.1), IR_ARG_INT("warmup", 2),
      IR_ARG_INT("total", 9)}, 0, 0},
};
    for (size_t i = 0; i < sizeof samples / sizeof samples[0]; i++) visit(&samples[i]);
}
/* clang-format on */

/* Elements of input j: floats from 0.3 to 1.9, no two of one tensor alike; integers and bools by a
 * fixed pattern. */
static inline void large_fill(const large_sample_t *sample, uint32_t j, void *data) {
    const ir_type_t *type = &sample->in[j];
    const int64_t n = ir_type_elements(type);
    for (int64_t i = 0; i < n; i++) {
        const uint64_t mixed = (uint64_t)(i + 1) * 0x9e3779b97f4a7c15u + j * 0xbf58476d1ce4e5b9u;
        if (ir_dtype_is_float(type->dtype))
            ir_element_store(type->dtype, data, (size_t)i,
                             0.3 + 1.6 * (double)(mixed >> 40) * 0x1p-24);
        else if (type->rank == 0)
            ir_element_store(type->dtype, data, (size_t)i, 3);
        else if (type->dtype == IR_BOOL)
            ir_element_store(type->dtype, data, (size_t)i, (double)(i % 3 != 1));
        else
            ir_element_store(type->dtype, data, (size_t)i,
                             (double)((int64_t)(mixed >> 33) % sample->n_choices));
    }
}

#endif
