/* Checks and shape rules that many ops share. Messages show the types that do not fit. */
#include "ir/op.h"

static const char *text_of(const ir_type_t *type) {
    static _Thread_local char text[2][IR_TYPE_TEXT_BYTES];
    static _Thread_local int turn;
    turn ^= 1;
    return ir_type_text(type, text[turn], sizeof text[turn]);
}

/* ---- checks ---- */

st_status_t ir_check_float(const ir_op_ctx_t *ctx, uint32_t j) {
    if (ir_dtype_is_float(ctx->in[j].dtype)) return ST_OK;
    return FAIL(ST_INVALID, "input %u is %s, a float type is needed: add a cast", j,
                text_of(&ctx->in[j]));
}

st_status_t ir_check_number(const ir_op_ctx_t *ctx, uint32_t j) {
    ir_dtype_t dtype = ctx->in[j].dtype;
    if (ir_dtype_is_float(dtype) || ir_dtype_is_integer(dtype)) return ST_OK;
    return FAIL(ST_INVALID, "input %u is %s, a float or integer type is needed: add a cast", j,
                text_of(&ctx->in[j]));
}

st_status_t ir_check_index(const ir_op_ctx_t *ctx, uint32_t j) {
    ir_dtype_t dtype = ctx->in[j].dtype;
    if (dtype == IR_I32 || dtype == IR_I64) return ST_OK;
    return FAIL(ST_INVALID, "input %u holds indices but is %s: i32 or i64 is needed", j,
                text_of(&ctx->in[j]));
}

st_status_t ir_check_axis(int64_t axis, const ir_type_t *type) {
    if (axis >= 0 && axis < type->rank) return ST_OK;
    if (type->rank == 0)
        return FAIL(ST_INVALID, "axis %lld given, but %s has no dims", (long long)axis,
                    text_of(type));
    return FAIL(ST_INVALID, "axis %lld is not a dim of %s: 0 to %d expected", (long long)axis,
                text_of(type), (int)type->rank - 1);
}

st_status_t ir_check_axes(const ir_attr_t *axes, const ir_type_t *type) {
    for (uint32_t i = 0; i < axes->ints.n; i++) {
        TRY(ir_check_axis(axes->ints.v[i], type));
        if (i > 0 && axes->ints.v[i] <= axes->ints.v[i - 1])
            return FAIL(ST_INVALID, "axes must ascend: %lld follows %lld",
                        (long long)axes->ints.v[i], (long long)axes->ints.v[i - 1]);
    }
    return ST_OK;
}

st_status_t ir_check_window(const ir_op_ctx_t *ctx, const ir_type_t *type) {
    const ir_attr_t *begin = ir_ctx_attr(ctx, "begin"), *global = ir_ctx_attr(ctx, "global");
    if (begin->ints.n == 0 && global->ints.n == 0) return ST_OK;
    if (begin->ints.n != (uint32_t)type->rank || global->ints.n != (uint32_t)type->rank)
        return FAIL(ST_INVALID, "begin has %u and global %u entries, %s needs %d of each (or none)",
                    begin->ints.n, global->ints.n, text_of(type), (int)type->rank);
    for (int32_t i = 0; i < type->rank; i++) {
        int64_t end;
        if (begin->ints.v[i] < 0 || !st_add_i64(begin->ints.v[i], type->dims[i], &end) ||
            end > global->ints.v[i])
            return FAIL(ST_INVALID, "dim %d of %s, begun at %lld, does not lie within %lld", (int)i,
                        text_of(type), (long long)begin->ints.v[i], (long long)global->ints.v[i]);
    }
    return ST_OK;
}

/* ---- shapes written down ---- */

static st_status_t shape_as(const ir_op_ctx_t *ctx, ir_dtype_t dtype, ir_type_t *out) {
    const ir_attr_t *shape = ir_ctx_attr(ctx, "shape");
    if (shape->ints.n > IR_MAX_RANK)
        return FAIL(ST_INVALID, "attribute 'shape' has %u dims, at most %d are possible",
                    shape->ints.n, IR_MAX_RANK);
    *out = ir_type_make(dtype, (int32_t)shape->ints.n, shape->ints.v);
    return ir_type_check(out);
}

st_status_t ir_shape_of_attribute(const ir_op_ctx_t *ctx, ir_type_t *out) {
    return shape_as(ctx, ctx->in[0].dtype, out);
}

st_status_t ir_shape_attributes(const ir_op_ctx_t *ctx, ir_type_t *out) {
    int64_t dtype = ir_ctx_int(ctx, "dtype");
    if (!ir_dtype_valid(dtype))
        return FAIL(ST_INVALID, "attribute 'dtype' is %lld, which is no element type",
                    (long long)dtype);
    return shape_as(ctx, (ir_dtype_t)dtype, out);
}

/* ---- elementwise ---- */

st_status_t ir_shape_same(const ir_op_ctx_t *ctx, ir_type_t *out) {
    out[0] = ctx->in[0];
    return ST_OK;
}

st_status_t ir_shape_float_unary(const ir_op_ctx_t *ctx, ir_type_t *out) {
    TRY(ir_check_float(ctx, 0));
    return ir_shape_same(ctx, out);
}

st_status_t ir_shape_number_unary(const ir_op_ctx_t *ctx, ir_type_t *out) {
    TRY(ir_check_number(ctx, 0));
    return ir_shape_same(ctx, out);
}

st_status_t ir_shape_binary(const ir_op_ctx_t *ctx, ir_type_t *out) {
    if (ctx->in[0].dtype != ctx->in[1].dtype)
        return FAIL(ST_INVALID, "inputs are %s and %s, one element type is needed: add a cast",
                    text_of(&ctx->in[0]), text_of(&ctx->in[1]));
    return ir_dims_broadcast(&ctx->in[0], &ctx->in[1], out);
}

st_status_t ir_shape_each(const ir_op_ctx_t *ctx, ir_type_t *out) {
    for (uint32_t j = 0; j < ctx->n_inputs; j++) out[j] = ctx->in[j];
    return ST_OK;
}

st_status_t ir_shape_numbers(const ir_op_ctx_t *ctx, ir_type_t *out) {
    for (uint32_t j = 0; j < ctx->n_inputs; j++) {
        TRY(ir_check_number(ctx, j));
        out[j] = ctx->in[j];
    }
    return ST_OK;
}

st_status_t ir_shape_number_binary(const ir_op_ctx_t *ctx, ir_type_t *out) {
    for (uint32_t j = 0; j < 2; j++) TRY(ir_check_number(ctx, j));
    return ir_shape_binary(ctx, out);
}

st_status_t ir_shape_compare(const ir_op_ctx_t *ctx, ir_type_t *out) {
    TRY(ir_shape_binary(ctx, out));
    out->dtype = IR_BOOL;
    return ST_OK;
}

st_status_t ir_shape_bool(const ir_op_ctx_t *ctx, ir_type_t *out) {
    for (uint32_t j = 0; j < ctx->n_inputs; j++)
        if (ctx->in[j].dtype != IR_BOOL)
            return FAIL(ST_INVALID, "input %u is %s, bool is needed: compare it with 0", j,
                        text_of(&ctx->in[j]));
    return ctx->n_inputs == 1 ? ir_shape_same(ctx, out) : ir_shape_binary(ctx, out);
}

st_status_t ir_shape_backward(const ir_op_ctx_t *ctx, ir_type_t *out) {
    TRY(ir_check_float(ctx, 0));
    if (!ir_type_equal(&ctx->in[0], &ctx->in[1]))
        return FAIL(ST_INVALID, "inputs are %s and %s, one type and shape is needed",
                    text_of(&ctx->in[0]), text_of(&ctx->in[1]));
    return ir_shape_same(ctx, out);
}

/* ---- reductions ---- */

st_status_t ir_shape_reduce(const ir_op_ctx_t *ctx, ir_type_t *out) {
    const ir_type_t *x = &ctx->in[0];
    const ir_attr_t *axes = ir_ctx_attr(ctx, "axes");
    bool keep = ir_ctx_int(ctx, "keep");
    TRY(ir_check_number(ctx, 0));
    if (axes->ints.n == 0 && x->rank > 0)
        return FAIL(ST_INVALID, "no axes given for %s: list every dim to reduce", text_of(x));
    TRY(ir_check_axes(axes, x));
    *out = (ir_type_t){.dtype = x->dtype};
    for (int32_t i = 0, a = 0; i < x->rank; i++) {
        bool reduced = a < (int32_t)axes->ints.n && axes->ints.v[a] == i;
        a += reduced;
        if (!reduced || keep) out->dims[out->rank++] = reduced ? 1 : x->dims[i];
    }
    return ST_OK;
}

st_status_t ir_shape_reduce_nonempty(const ir_op_ctx_t *ctx, ir_type_t *out) {
    TRY(ir_shape_reduce(ctx, out));
    const ir_attr_t *axes = ir_ctx_attr(ctx, "axes");
    for (uint32_t i = 0; i < axes->ints.n; i++)
        if (ctx->in[0].dims[axes->ints.v[i]] == 0 && ir_type_elements(out) > 0)
            return FAIL(ST_INVALID, "dim %lld of %s is empty and has no extreme value",
                        (long long)axes->ints.v[i], text_of(&ctx->in[0]));
    return ST_OK;
}
