/* argmax: index of the first maximum along one axis; a NaN is larger than any number. */
#include "ir/op.h"

static const ir_attr_spec_t attrs[] = {
    {"axis", IR_ATTR_INT, true, 0, NULL},
    {"keep", IR_ATTR_BOOL, false, 0, NULL},
    {0},
};

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    char text[IR_TYPE_TEXT_BYTES];
    const ir_type_t *x = &ctx->in[0];
    int64_t axis = ir_ctx_int(ctx, "axis");
    bool keep = ir_ctx_int(ctx, "keep");
    TRY(ir_check_number(ctx, 0));
    TRY(ir_check_axis(axis, x));
    *out = ir_type_scalar(IR_I64);
    for (int32_t i = 0; i < x->rank; i++)
        if (i != axis || keep) out->dims[out->rank++] = i == axis ? 1 : x->dims[i];
    if (x->dims[axis] == 0 && ir_type_elements(out) > 0)
        return FAIL(ST_INVALID, "dim %lld of %s is empty and has no maximum", (long long)axis,
                    ir_type_text(x, text, sizeof text));
    return ST_OK;
}

static void strategies(const ir_op_ctx_t *ctx, ir_strategy_list_t *list) {
    int32_t axis = (int32_t)ir_ctx_int(ctx, "axis");
    bool keep = ir_ctx_int(ctx, "keep");
    int32_t to_out[IR_MAX_RANK];
    for (int32_t i = 0; i < ctx->in[0].rank; i++)
        to_out[i] = i == axis ? -1 : i > axis && !keep ? i - 1 : i;
    ir_strategies_map(ctx, list, 0, to_out);
}

const ir_op_def_t ir_op_argmax = {
    .op = IR_OP_ARGMAX,
    .name = "argmax",
    .min_inputs = 1,
    .max_inputs = 1,
    .n_outputs = 1,
    .flags = IR_PURE,
    .attrs = attrs,
    .shape = shape,
    .no_gradient = "zero",
    .strategies = strategies,
};
