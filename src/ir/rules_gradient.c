/* Gradient rules that many ops share. */
#include "ir/build.h"
#include "ir/op.h"

st_status_t ir_gradient_unary(ir_graph_t *graph, ir_node_t node, const ir_value_t *dout,
                              const bool *want, ir_value_t *din, ir_derive_unary_t derive) {
    const ir_node_info_t info = *ir_node(graph, node);
    ir_dtype_t dtype = ir_value_type(graph, info.inputs[0])->dtype;
    if (dout[0] == IR_NONE || !want[0] || !ir_dtype_is_float(dtype)) return ST_OK;
    ir_build_t b = {.graph = graph};
    din[0] = derive(&b, dout[0], info.inputs[0], info.first_output);
    return b.status;
}

st_status_t ir_gradient_binary(ir_graph_t *graph, ir_node_t node, const ir_value_t *dout,
                               const bool *want, ir_value_t *din, ir_derive_binary_t derive) {
    const ir_node_info_t info = *ir_node(graph, node);
    ir_dtype_t dtype = ir_value_type(graph, info.inputs[0])->dtype;
    if (dout[0] == IR_NONE || !ir_dtype_is_float(dtype)) return ST_OK;
    ir_build_t b = {.graph = graph};
    for (uint32_t j = 0; j < 2; j++) {
        if (!want[j]) continue;
        const ir_type_t type = *ir_value_type(graph, info.inputs[j]);
        din[j] = ir_b_sum_to(&b, derive(&b, dout[0], info.inputs, info.first_output, j), &type);
    }
    return b.status;
}

ir_value_t ir_derive_extreme(ir_build_t *b, ir_value_t dz, const ir_value_t *operand,
                             uint32_t which, ir_op_t loses) {
    ir_value_t own = operand[which], other = operand[1 - which];
    ir_value_t zero = ir_b_scalar(b, ir_b_type(b, dz)->dtype, 0);
    ir_value_t tie = ir_b_binary(b, IR_OP_EQ, own, other);
    ir_value_t shared = ir_b_select(b, tie, ir_b_scale(b, dz, 0.5), dz);
    ir_value_t lost = ir_b_binary(b, loses, own, other);
    return ir_b_select(b, lost, zero, shared);
}

ir_dtype_t ir_dtype_wide(ir_dtype_t dtype) {
    return ir_dtype_is_float(dtype) && ir_dtype_bytes(dtype) < 4 ? IR_F32 : dtype;
}

ir_value_t ir_b_div_count(ir_build_t *b, ir_value_t x, int64_t count) {
    ir_dtype_t dtype = ir_b_type(b, x)->dtype, wide = ir_dtype_wide(dtype);
    ir_value_t divisor = ir_b_scalar(b, wide, (double)count);
    ir_value_t quotient = ir_b_binary(b, IR_OP_DIV, ir_b_cast(b, x, wide), divisor);
    return ir_b_cast(b, quotient, dtype);
}

ir_value_t ir_b_reduced_keep(ir_build_t *b, const ir_node_info_t *reduction, ir_value_t value) {
    ir_type_t kept = *ir_value_type(b->graph, reduction->inputs[0]);
    const ir_attr_t *axes = ir_node_attr(reduction, "axes");
    for (uint32_t i = 0; i < axes->ints.n; i++) kept.dims[axes->ints.v[i]] = 1;
    return ir_b_reshape(b, value, kept.rank, kept.dims);
}

st_status_t ir_gradient_extreme(ir_graph_t *graph, ir_node_t node, const ir_value_t *dout,
                                const bool *want, ir_value_t *din) {
    const ir_node_info_t info = *ir_node(graph, node);
    ir_value_t x = info.inputs[0];
    ir_dtype_t dtype = ir_value_type(graph, x)->dtype, wide = ir_dtype_wide(dtype);
    if (dout[0] == IR_NONE || !want[0] || !ir_dtype_is_float(dtype)) return ST_OK;
    const ir_attr_t *axes = ir_node_attr(&info, "axes");
    ir_build_t b = {.graph = graph};
    if (axes->ints.n == 0) { /* a scalar */
        din[0] = dout[0];
        return ST_OK;
    }
    ir_value_t extreme = ir_b_reduced_keep(&b, &info, info.first_output);
    ir_value_t ties = ir_b_cast(&b, ir_b_binary(&b, IR_OP_EQ, x, extreme), wide);
    ir_value_t count =
        ir_b_reduce(&b, IR_OP_REDUCE_SUM, ties, (int32_t)axes->ints.n, axes->ints.v, true);
    ir_value_t dy = ir_b_cast(&b, ir_b_reduced_keep(&b, &info, dout[0]), wide);
    ir_value_t share = ir_b_binary(&b, IR_OP_DIV, dy, count);
    din[0] = ir_b_cast(&b, ir_b_binary(&b, IR_OP_MUL, ties, share), dtype);
    return b.status;
}

st_status_t ir_gradient_scattered(ir_graph_t *graph, ir_node_t node, ir_op_t scatter,
                                  const ir_value_t *dout, const bool *want, ir_value_t *din) {
    const ir_node_info_t info = *ir_node(graph, node);
    if (dout[0] == IR_NONE || !want[0]) return ST_OK;
    ir_build_t b = {.graph = graph};
    int64_t axis = ir_attr_int(&info, "axis");
    int64_t extent = ir_value_type(graph, info.inputs[0])->dims[axis];
    din[0] = ir_b_node(&b, scatter, 2, (ir_value_t[]){dout[0], info.inputs[1]}, 2,
                       (ir_arg_t[]){IR_ARG_INT("axis", axis), IR_ARG_INT("extent", extent)});
    return b.status;
}
