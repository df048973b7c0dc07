#include "ir/build.h"

#include <string.h>

#include "ir/convert.h"
#include "ir/op.h"

ir_value_t ir_b_node(ir_build_t *b, ir_op_t op, uint32_t n_inputs, const ir_value_t *inputs,
                     size_t n_args, const ir_arg_t *args) {
    ir_value_t out = IR_NONE;
    if (b->status != ST_OK) return IR_NONE;
    b->status = ir_graph_add(b->graph, op, b->name, n_inputs, inputs, n_args, args, &out);
    return out;
}

const ir_type_t *ir_b_type(const ir_build_t *b, ir_value_t value) {
    static const ir_type_t none = {.dtype = IR_F32};
    return b->status == ST_OK && value < b->graph->values.n ? ir_value_type(b->graph, value)
                                                            : &none;
}

ir_value_t ir_b_unary(ir_build_t *b, ir_op_t op, ir_value_t x) {
    return ir_b_node(b, op, 1, &x, 0, NULL);
}
ir_value_t ir_b_binary(ir_build_t *b, ir_op_t op, ir_value_t x, ir_value_t y) {
    return ir_b_node(b, op, 2, (ir_value_t[]){x, y}, 0, NULL);
}
ir_value_t ir_b_select(ir_build_t *b, ir_value_t condition, ir_value_t x, ir_value_t y) {
    return ir_b_node(b, IR_OP_SELECT, 3, (ir_value_t[]){condition, x, y}, 0, NULL);
}
ir_value_t ir_b_cast(ir_build_t *b, ir_value_t x, ir_dtype_t dtype) {
    if (b->status == ST_OK && ir_b_type(b, x)->dtype == dtype) return x;
    return ir_b_node(b, IR_OP_CAST, 1, &x, 1, (ir_arg_t[]){IR_ARG_DTYPE("dtype", dtype)});
}

static ir_value_t source(ir_build_t *b, ir_op_t op, const char *name, ir_type_t type,
                         size_t n_extra, const ir_arg_t *extra) {
    ir_arg_t args[6] = {IR_ARG_DTYPE("dtype", type.dtype),
                        IR_ARG_INTS("shape", type.dims, type.rank)};
    for (size_t i = 0; i < n_extra; i++) args[2 + i] = extra[i];
    const char *outer = b->name;
    if (name) b->name = name;
    ir_value_t out = ir_b_node(b, op, 0, NULL, 2 + n_extra, args);
    b->name = outer;
    return out;
}
ir_value_t ir_b_input(ir_build_t *b, const char *name, ir_type_t type, int64_t batch_axis) {
    return source(b, IR_OP_INPUT, name, type, 1,
                  (ir_arg_t[]){IR_ARG_INT("batch_axis", batch_axis)});
}
ir_value_t ir_b_parameter(ir_build_t *b, const char *name, ir_type_t type) {
    return source(b, IR_OP_PARAMETER, name, type, 0, NULL);
}
ir_value_t ir_b_buffer(ir_build_t *b, const char *name, ir_type_t type) {
    return source(b, IR_OP_BUFFER, name, type, 0, NULL);
}
ir_value_t ir_b_constant(ir_build_t *b, ir_type_t type, const void *data, size_t bytes) {
    return source(b, IR_OP_CONSTANT, NULL, type, 1, (ir_arg_t[]){IR_ARG_DATA("data", data, bytes)});
}
ir_value_t ir_b_splat(ir_build_t *b, ir_type_t type, double value) {
    unsigned char element[8];
    ir_element_store(type.dtype, element, 0, value);
    return ir_b_constant(b, type, element, ir_dtype_bytes(type.dtype));
}
ir_value_t ir_b_scalar(ir_build_t *b, ir_dtype_t dtype, double value) {
    return ir_b_splat(b, ir_type_scalar(dtype), value);
}
ir_value_t ir_b_iota(ir_build_t *b, ir_type_t type, int32_t axis, double start, double step) {
    return source(b, IR_OP_IOTA, NULL, type, 3,
                  (ir_arg_t[]){IR_ARG_INT("axis", axis), IR_ARG_FLOAT("start", start),
                               IR_ARG_FLOAT("step", step)});
}
ir_value_t ir_b_scale(ir_build_t *b, ir_value_t x, double factor) {
    return ir_b_binary(b, IR_OP_MUL, x, ir_b_scalar(b, ir_b_type(b, x)->dtype, factor));
}
ir_value_t ir_b_add_scalar(ir_build_t *b, ir_value_t x, double addend) {
    return ir_b_binary(b, IR_OP_ADD, x, ir_b_scalar(b, ir_b_type(b, x)->dtype, addend));
}

ir_value_t ir_b_reshape(ir_build_t *b, ir_value_t x, int32_t rank, const int64_t *dims) {
    ir_type_t wanted = ir_type_make(ir_b_type(b, x)->dtype, rank, dims);
    if (b->status == ST_OK && ir_dims_equal(ir_b_type(b, x), &wanted)) return x;
    return ir_b_node(b, IR_OP_RESHAPE, 1, &x, 1, (ir_arg_t[]){IR_ARG_INTS("shape", dims, rank)});
}
ir_value_t ir_b_broadcast(ir_build_t *b, ir_value_t x, int32_t rank, const int64_t *dims) {
    ir_type_t wanted = ir_type_make(ir_b_type(b, x)->dtype, rank, dims);
    if (b->status == ST_OK && ir_dims_equal(ir_b_type(b, x), &wanted)) return x;
    return ir_b_node(b, IR_OP_BROADCAST, 1, &x, 1, (ir_arg_t[]){IR_ARG_INTS("shape", dims, rank)});
}
ir_value_t ir_b_transpose(ir_build_t *b, ir_value_t x, const int64_t *perm) {
    int32_t rank = ir_b_type(b, x)->rank;
    return ir_b_node(b, IR_OP_TRANSPOSE, 1, &x, 1, (ir_arg_t[]){IR_ARG_INTS("perm", perm, rank)});
}
ir_value_t ir_b_swap(ir_build_t *b, ir_value_t x, int32_t axis_a, int32_t axis_b) {
    int64_t perm[IR_MAX_RANK];
    int32_t rank = ir_b_type(b, x)->rank;
    for (int32_t i = 0; i < rank; i++) perm[i] = i == axis_a ? axis_b : i == axis_b ? axis_a : i;
    return ir_b_transpose(b, x, perm);
}
ir_value_t ir_b_slice_axis(ir_build_t *b, ir_value_t x, int32_t axis, int64_t begin, int64_t end) {
    const ir_type_t *type = ir_b_type(b, x);
    int64_t begins[IR_MAX_RANK] = {0}, ends[IR_MAX_RANK], steps[IR_MAX_RANK];
    int32_t rank = type->rank;
    for (int32_t i = 0; i < rank; i++) ends[i] = type->dims[i], steps[i] = 1;
    if (axis >= 0 && axis < rank) begins[axis] = begin, ends[axis] = end;
    return ir_b_node(
        b, IR_OP_SLICE, 1, &x, 3,
        (ir_arg_t[]){IR_ARG_INTS("begin", begins, rank), IR_ARG_INTS("end", ends, rank),
                     IR_ARG_INTS("step", steps, rank)});
}
ir_value_t ir_b_concat(ir_build_t *b, uint32_t n, const ir_value_t *xs, int32_t axis) {
    return ir_b_node(b, IR_OP_CONCAT, n, xs, 1, (ir_arg_t[]){IR_ARG_INT("axis", axis)});
}
ir_value_t ir_b_gather(ir_build_t *b, ir_value_t x, ir_value_t idx, int32_t axis) {
    return ir_b_node(b, IR_OP_GATHER, 2, (ir_value_t[]){x, idx}, 1,
                     (ir_arg_t[]){IR_ARG_INT("axis", axis)});
}

ir_value_t ir_b_reduce(ir_build_t *b, ir_op_t op, ir_value_t x, int32_t n_axes, const int64_t *axes,
                       bool keep) {
    int64_t all[IR_MAX_RANK];
    if (n_axes == 0) {
        n_axes = ir_b_type(b, x)->rank;
        for (int32_t i = 0; i < n_axes; i++) all[i] = i;
        axes = all;
    }
    return ir_b_node(b, op, 1, &x, 2,
                     (ir_arg_t[]){IR_ARG_INTS("axes", axes, n_axes), IR_ARG_BOOL("keep", keep)});
}

ir_value_t ir_b_sum_to(ir_build_t *b, ir_value_t x, const ir_type_t *type) {
    ir_type_t from = *ir_b_type(b, x), to = *type;
    if (b->status != ST_OK || ir_dims_equal(&from, &to)) return x;
    int32_t lead = from.rank - to.rank, n_axes = 0;
    int64_t axes[IR_MAX_RANK];
    for (int32_t i = 0; i < from.rank; i++)
        if (i < lead || to.dims[i - lead] != from.dims[i]) axes[n_axes++] = i;
    if (n_axes) x = ir_b_reduce(b, IR_OP_REDUCE_SUM, x, n_axes, axes, true);
    return ir_b_reshape(b, x, to.rank, to.dims);
}

ir_value_t ir_b_matmul(ir_build_t *b, ir_value_t x, ir_value_t y, bool transpose_x,
                       bool transpose_y) {
    return ir_b_node(b, IR_OP_MATMUL, 2, (ir_value_t[]){x, y}, 2,
                     (ir_arg_t[]){IR_ARG_BOOL("transpose_a", transpose_x),
                                  IR_ARG_BOOL("transpose_b", transpose_y)});
}

void ir_b_update(ir_build_t *b, ir_value_t state, ir_value_t value) {
    ir_b_binary(b, IR_OP_UPDATE, state, value);
}

void ir_b_output(ir_build_t *b, const char *name, ir_value_t value) {
    if (b->status == ST_OK) b->status = ir_graph_add_output(b->graph, name, value);
}
