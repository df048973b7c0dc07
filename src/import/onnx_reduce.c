/* ONNX's reductions, argmax, cumulative sum, softmax. */
#include <float.h>
#include <string.h>

#include "import/onnx_reader.h"

/* ---- reductions ---- */

/* Smallest finite number of a type. */
static double lowest(ir_dtype_t dtype) {
    return dtype == IR_F64    ? -DBL_MAX
           : dtype == IR_F16  ? -65504
           : dtype == IR_BF16 ? -0x1.fep127
                              : -FLT_MAX;
}

/* log(sum(exp(x))) = log(sum(exp(x - m))) + m, m the largest; rows of -inf alone give -inf. */
static ir_value_t log_sum_exp(onnx_t *o, ir_value_t x, int32_t n, const int64_t *axes, bool keep) {
    ir_build_t *b = &o->b;
    ir_value_t m = ir_b_reduce(b, IR_OP_REDUCE_MAX, x, n, axes, true);
    m = ir_b_binary(b, IR_OP_MAXIMUM, m,
                    ir_b_scalar(b, onnx_type(o, x).dtype, lowest(onnx_type(o, x).dtype)));
    ir_value_t sum = ir_b_unary(b, IR_OP_EXP, ir_b_binary(b, IR_OP_SUB, x, m));
    sum = ir_b_reduce(b, IR_OP_REDUCE_SUM, sum, n, axes, keep);
    ir_type_t type = onnx_type(o, sum);
    return ir_b_binary(b, IR_OP_ADD, ir_b_unary(b, IR_OP_LOG, sum),
                       ir_b_reshape(b, m, type.rank, type.dims));
}

/* Reductions by their row's argument: an IR op, or one of these. */
static ir_value_t reduce(onnx_t *o, ir_value_t x, int32_t n, const int64_t *axes, bool keep) {
    ir_build_t *b = &o->b;
    int32_t how = o->op->arg;
    ir_op_t op = IR_OP_REDUCE_SUM;
    if (how == ONNX_LOG_SUM_EXP) return log_sum_exp(o, x, n, axes, keep);
    if (how == ONNX_L1)
        x = ir_b_unary(b, IR_OP_ABS, x);
    else if (how == ONNX_L2 || how == ONNX_SUM_SQUARE)
        x = ir_b_binary(b, IR_OP_MUL, x, x);
    else if (how != ONNX_LOG_SUM)
        op = (ir_op_t)how;
    ir_value_t y = ir_b_reduce(b, op, x, n, axes, keep);
    if (how == ONNX_L2) return ir_b_unary(b, IR_OP_SQRT, y);
    return how == ONNX_LOG_SUM ? ir_b_unary(b, IR_OP_LOG, y) : y;
}

/* Axes are an attribute, from opset 18 (ReduceSum: 13) an input. No axes means all, unless
 * noop_with_empty_axes. */
void onnx_reduce(onnx_t *o) {
    ir_value_t x = onnx_in(o, 0);
    int64_t axes[ONNX_MAX_LIST];
    bool is_sum = o->op->arg == IR_OP_REDUCE_SUM, keep = onnx_flag(o, "keepdims", true);
    int32_t n = onnx_axes_input(o, is_sum ? 13 : 18, axes), rank = onnx_type(o, x).rank;
    bool noop = onnx_flag(o, "noop_with_empty_axes", false);
    onnx_sort_axes(o, n, axes, rank);
    if (!onnx_ok(o)) return;
    if (n <= 0 && noop && o->op->arg >= ONNX_FIRST_COMPOSED)
        onnx_fail(o, ST_UNSUPPORTED, "attribute 'noop_with_empty_axes' without axes");
    if (n <= 0 && noop)
        onnx_return(o, x);
    else
        onnx_return(o, reduce(o, x, n < 0 ? 0 : n, axes, keep));
}

/* ArgMax; ArgMin (arg 1) of x is ArgMax of -x. The last of equals: counted from the end. */
void onnx_argmax(onnx_t *o) {
    ir_build_t *b = &o->b;
    ir_value_t x = onnx_in(o, 0);
    ir_type_t type = onnx_type(o, x);
    int32_t axis = onnx_axis(o, "axis", type.rank, 0);
    bool keep = onnx_flag(o, "keepdims", true), last = onnx_flag(o, "select_last_index", false);
    int64_t flipped = axis;
    if (o->op->arg) x = ir_b_unary(b, IR_OP_NEG, x);
    if (last)
        x = ir_b_node(b, IR_OP_FLIP, 1, &x, 1, (ir_arg_t[]){IR_ARG_INTS("axes", &flipped, 1)});
    x = ir_b_node(b, IR_OP_ARGMAX, 1, &x, 2,
                  (ir_arg_t[]){IR_ARG_INT("axis", axis), IR_ARG_BOOL("keep", keep)});
    if (last)
        x = ir_b_binary(b, IR_OP_SUB, ir_b_scalar(b, IR_I64, (double)(type.dims[axis] - 1)), x);
    onnx_return(o, x);
}

void onnx_cumsum(onnx_t *o) {
    ir_value_t x = onnx_in(o, 0);
    int32_t axis = onnx_axis_of(o, (int64_t)onnx_known_number(o, 1), onnx_type(o, x).rank);
    ir_arg_t args[] = {IR_ARG_INT("axis", axis),
                       IR_ARG_BOOL("exclusive", onnx_flag(o, "exclusive", false)),
                       IR_ARG_BOOL("reverse", onnx_flag(o, "reverse", false))};
    onnx_return(o, ir_b_node(&o->b, IR_OP_CUMSUM, 1, &x, 3, args));
}

/* ---- softmax ---- */

void onnx_softmax(onnx_t *o) {
    ir_value_t x = onnx_in(o, 0);
    int32_t axis = onnx_axis(o, "axis", onnx_type(o, x).rank, -1);
    onnx_return(
        o, ir_b_node(&o->b, (ir_op_t)o->op->arg, 1, &x, 1, (ir_arg_t[]){IR_ARG_INT("axis", axis)}));
}

/* Opsets to 12: the dims from the axis on are one, whose elements are normalized together. */
void onnx_softmax_flat(onnx_t *o) {
    ir_value_t x = onnx_in(o, 0);
    ir_type_t type = onnx_type(o, x);
    int32_t axis = onnx_axis(o, "axis", type.rank, 1);
    int64_t dims[2] = {onnx_product(&type, 0, axis), onnx_product(&type, axis, type.rank)};
    x = ir_b_reshape(&o->b, x, 2, dims);
    x = ir_b_node(&o->b, (ir_op_t)o->op->arg, 1, &x, 1, (ir_arg_t[]){IR_ARG_INT("axis", 1)});
    onnx_return(o, ir_b_reshape(&o->b, x, type.rank, type.dims));
}

/* GlobalAveragePool, GlobalMaxPool: a reduction over the spatial dims, which stay as 1. */
void onnx_global_pool(onnx_t *o) {
    ir_value_t x = onnx_in(o, 0);
    int32_t rank = onnx_type(o, x).rank;
    int64_t axes[IR_MAX_RANK];
    if (onnx_ok(o) && rank < 3) onnx_fail(o, ST_INVALID, "an input of %d dims", rank);
    for (int32_t i = 2; i < rank; i++) axes[i - 2] = i;
    onnx_return(o, ir_b_reduce(&o->b, (ir_op_t)o->op->arg, x, rank - 2, axes, true));
}
