/* ATen operators that run along dims: sums, extrema, statistics, scans, softmax. */
#include "import/aten.h"

typedef struct axes {
    int64_t list[IR_MAX_RANK]; /* sorted */
    int32_t n;
    int64_t count; /* elements that become one */
} axes_t;

/* Argument `name` as axes: an integer, a list, or all dims if left out or empty. */
static axes_t read_axes(aten_t *a, const char *name, ir_value_t x) {
    ir_type_t type = aten_type(a, x);
    int64_t given[ATEN_MAX_LIST];
    int32_t n = aten_ints(a, name, given);
    bool chosen[IR_MAX_RANK] = {0};
    for (int32_t i = 0; i < n && aten_ok(a); i++) {
        int32_t axis = aten_axis_of(a, given[i], type.rank);
        if (aten_ok(a) && chosen[axis]) aten_fail(a, ST_INVALID, "dim %d is named twice", axis);
        chosen[axis] = true;
    }
    axes_t axes = {.count = 1};
    for (int32_t i = 0; i < type.rank; i++) {
        if (n > 0 && !chosen[i]) continue;
        axes.list[axes.n++] = i;
        axes.count *= type.dims[i];
    }
    return axes;
}

/* A scalar is its own reduction. */
static ir_value_t reduce(aten_t *a, ir_op_t op, ir_value_t x, const axes_t *axes, bool keep) {
    return axes->n == 0 ? x : ir_b_reduce(&a->b, op, x, axes->n, axes->list, keep);
}

static ir_dtype_t sum_dtype(ir_dtype_t dtype) {
    return ir_dtype_is_float(dtype) ? dtype : IR_I64;
}

/* Sums and products of integers and bools are i64. */
static void sum_like(aten_t *a, ir_op_t op) {
    ir_value_t x = aten_tensor(a, "self");
    axes_t axes = read_axes(a, "dim", x);
    bool keep = aten_bool(a, "keepdim", false);
    ir_dtype_t dtype = aten_dtype(a, "dtype", sum_dtype(aten_type(a, x).dtype));
    aten_return(a, reduce(a, op, ir_b_cast(&a->b, x, dtype), &axes, keep));
}

void aten_sum(aten_t *a) {
    sum_like(a, IR_OP_REDUCE_SUM);
}

void aten_prod(aten_t *a) {
    sum_like(a, IR_OP_REDUCE_PROD);
}

void aten_mean(aten_t *a) {
    ir_value_t x = aten_tensor(a, "self");
    axes_t axes = read_axes(a, "dim", x);
    bool keep = aten_bool(a, "keepdim", false);
    ir_dtype_t dtype = aten_dtype(a, "dtype", aten_type(a, x).dtype);
    if (aten_ok(a) && !ir_dtype_is_float(dtype))
        aten_fail(a, ST_INVALID, "the mean of %s is not defined", ir_dtype_text(dtype));
    aten_return(a, reduce(a, IR_OP_REDUCE_MEAN, ir_b_cast(&a->b, x, dtype), &axes, keep));
}

/* amax, amin, max(), min() */
void aten_extremum(aten_t *a) {
    ir_value_t x = aten_tensor(a, "self");
    axes_t axes = read_axes(a, "dim", x);
    bool keep = aten_bool(a, "keepdim", false);
    aten_return(a, reduce(a, (ir_op_t)a->op->arg, x, &axes, keep));
}

/* First position of the largest item along `axis`, or of the smallest. */
static ir_value_t arg_extremum(aten_t *a, ir_value_t x, int32_t axis, bool keep, bool smallest) {
    if (smallest) x = ir_b_unary(&a->b, IR_OP_NEG, x);
    ir_arg_t args[] = {IR_ARG_INT("axis", axis), IR_ARG_BOOL("keep", keep)};
    return ir_b_node(&a->b, IR_OP_ARGMAX, 1, &x, 2, args);
}

/* max(dim), min(dim): the value is taken at the position, so that its gradient goes to one place,
 * as in PyTorch, and not in shares to all ties. */
void aten_extremum_with_index(aten_t *a) {
    ir_value_t x = aten_tensor(a, "self");
    ir_type_t type = aten_type(a, x);
    int32_t axis = aten_axis(a, "dim", type.rank, 0);
    bool keep = aten_bool(a, "keepdim", false);
    if (aten_ok(a) && type.rank == 0)
        aten_fail(a, ST_UNSUPPORTED, "an extremum with index of a scalar");
    if (!aten_ok(a)) return;
    ir_value_t index = arg_extremum(a, x, axis, true, a->op->arg == IR_OP_REDUCE_MIN);
    ir_arg_t args[] = {IR_ARG_INT("axis", axis)};
    ir_value_t value = ir_b_node(&a->b, IR_OP_GATHER_ALONG, 2, (ir_value_t[]){x, index}, 1, args);
    if (!keep) {
        for (int32_t i = axis; i + 1 < type.rank; i++) type.dims[i] = type.dims[i + 1];
        value = ir_b_reshape(&a->b, value, type.rank - 1, type.dims);
        index = ir_b_reshape(&a->b, index, type.rank - 1, type.dims);
    }
    aten_return(a, value);
    aten_return(a, index);
}

/* argmax, argmin: over all elements in row-major order if no dim is given. */
void aten_argmax(aten_t *a) {
    ir_value_t x = aten_tensor(a, "self");
    ir_type_t type = aten_type(a, x);
    bool keep = aten_bool(a, "keepdim", false), all = !aten_has(a, "dim");
    int32_t axis = all ? 0 : aten_axis(a, "dim", type.rank, 0);
    if (all || type.rank == 0) {
        int64_t elements = ir_type_elements(&type);
        x = ir_b_reshape(&a->b, x, 1, &elements);
    }
    ir_value_t index = arg_extremum(a, x, axis, keep && !all, a->op->arg != 0);
    if (all && keep) {
        for (int32_t i = 0; i < type.rank; i++) type.dims[i] = 1;
        index = ir_b_reshape(&a->b, index, type.rank, type.dims);
    }
    aten_return(a, index);
}

/* var, std, var_mean: sum of squares around the mean over count - correction. */
void aten_variance(aten_t *a) {
    enum { STD = 1, VAR_MEAN = 2 };
    ir_build_t *b = &a->b;
    ir_value_t x = aten_tensor(a, "self");
    axes_t axes = read_axes(a, "dim", x);
    bool keep = aten_bool(a, "keepdim", false), unbiased = aten_bool(a, "unbiased", true);
    double correction = aten_float(a, "correction", unbiased ? 1 : 0);
    ir_dtype_t dtype = aten_type(a, x).dtype;
    if (aten_ok(a) && !ir_dtype_is_float(dtype))
        aten_fail(a, ST_INVALID, "the variance of %s is not defined", ir_dtype_text(dtype));
    ir_value_t mean = reduce(a, IR_OP_REDUCE_MEAN, x, &axes, true);
    ir_value_t squares = ir_b_unary(b, IR_OP_SQUARE, ir_b_binary(b, IR_OP_SUB, x, mean));
    double items = (double)axes.count - correction;
    ir_value_t variance =
        ir_b_binary(b, IR_OP_DIV, reduce(a, IR_OP_REDUCE_SUM, squares, &axes, keep),
                    ir_b_scalar(b, dtype, items > 0 ? items : 0));
    aten_return(a, a->op->arg == STD ? ir_b_unary(b, IR_OP_SQRT, variance) : variance);
    if (a->op->arg != VAR_MEAN) return;
    ir_type_t type = aten_type(a, variance);
    aten_return(a, ir_b_reshape(b, mean, type.rank, type.dims));
}

/* any (arg 0): a sum that is not zero; all (arg 1): not any not. */
void aten_any(aten_t *a) {
    ir_value_t x = aten_tensor(a, "self");
    axes_t axes = read_axes(a, "dim", x);
    bool keep = aten_bool(a, "keepdim", false);
    x = aten_to_bool(a, x);
    if (a->op->arg) x = ir_b_unary(&a->b, IR_OP_LOGICAL_NOT, x);
    x = reduce(a, IR_OP_REDUCE_SUM, ir_b_cast(&a->b, x, IR_I64), &axes, keep);
    x = aten_to_bool(a, x);
    aten_return(a, a->op->arg ? ir_b_unary(&a->b, IR_OP_LOGICAL_NOT, x) : x);
}

void aten_cumsum(aten_t *a) {
    ir_value_t x = aten_tensor(a, "self");
    ir_type_t type = aten_type(a, x);
    int32_t axis = aten_axis(a, "dim", type.rank, 0);
    ir_dtype_t dtype = aten_dtype(a, "dtype", sum_dtype(type.dtype));
    x = ir_b_cast(&a->b, x, dtype);
    ir_arg_t args[] = {IR_ARG_INT("axis", axis)};
    aten_return(a, type.rank == 0 ? x : ir_b_node(&a->b, IR_OP_CUMSUM, 1, &x, 1, args));
}

/* max + log(sum(exp(x - max))), the maximum replaced by 0 where it is infinite */
void aten_logsumexp(aten_t *a) {
    ir_build_t *b = &a->b;
    ir_value_t x = aten_to_float(a, aten_tensor(a, "self"));
    axes_t axes = read_axes(a, "dim", x);
    bool keep = aten_bool(a, "keepdim", false);
    ir_dtype_t dtype = aten_type(a, x).dtype;
    ir_value_t peak = reduce(a, IR_OP_REDUCE_MAX, x, &axes, true);
    ir_value_t finite = ir_b_binary(b, IR_OP_LT, ir_b_unary(b, IR_OP_ABS, peak),
                                    ir_b_scalar(b, dtype, __builtin_inf()));
    peak = ir_b_select(b, finite, peak, ir_b_scalar(b, dtype, 0));
    ir_value_t shifted = ir_b_unary(b, IR_OP_EXP, ir_b_binary(b, IR_OP_SUB, x, peak));
    ir_value_t sum = ir_b_unary(b, IR_OP_LOG, reduce(a, IR_OP_REDUCE_SUM, shifted, &axes, keep));
    ir_type_t type = aten_type(a, sum);
    peak = ir_b_reshape(b, peak, type.rank, type.dims);
    aten_return(a, ir_b_binary(b, IR_OP_ADD, sum, peak));
}

void aten_softmax(aten_t *a) {
    ir_value_t x = aten_to_float(a, aten_tensor(a, "self"));
    ir_type_t type = aten_type(a, x);
    int32_t axis = aten_axis(a, "dim", type.rank, 0);
    ir_dtype_t dtype = aten_dtype(a, "dtype", type.dtype);
    if (aten_bool(a, "half_to_float", false)) dtype = IR_F32;
    x = ir_b_cast(&a->b, x, dtype);
    if (type.rank == 0) x = ir_b_reshape(&a->b, x, 1, (int64_t[]){1});
    ir_arg_t args[] = {IR_ARG_INT("axis", axis)};
    x = ir_b_node(&a->b, (ir_op_t)a->op->arg, 1, &x, 1, args);
    aten_return(a, ir_b_reshape(&a->b, x, type.rank, type.dims));
}
