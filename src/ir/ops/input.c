/* input: a tensor that is fed each step. Its batch axis, if it has one, is what ranks split. */
#include "ir/op.h"

static const ir_attr_spec_t attrs[] = {
    {"dtype", IR_ATTR_DTYPE, true, 0, NULL},
    {"shape", IR_ATTR_INTS, true, 0, NULL},
    {"batch_axis", IR_ATTR_INT, false, 0, NULL}, /* -1: every rank gets all of it */
    {0},
};

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    TRY(ir_shape_attributes(ctx, out));
    int64_t axis = ir_ctx_int(ctx, "batch_axis");
    if (axis == -1 || (axis >= 0 && axis < out->rank)) return ST_OK;
    char text[IR_TYPE_TEXT_BYTES];
    return FAIL(ST_INVALID, "batch_axis %lld is not a dim of %s: use -1 for an input without batch",
                (long long)axis, ir_type_text(out, text, sizeof text));
}

static void strategies(const ir_op_ctx_t *ctx, ir_strategy_list_t *list) {
    ir_type_t type;
    ir_ctx_outputs(ctx, &type);
    int64_t axis = ir_ctx_int(ctx, "batch_axis");
    ir_strategy_t *made = axis >= 0 ? ir_strategy_add(list) : NULL;
    if (made) made->out[0] = IR_PLACE_SPLIT((int32_t)axis, type.dims[axis]);
}

const ir_op_def_t ir_op_input = {
    .op = IR_OP_INPUT,
    .name = "input",
    .min_inputs = 0,
    .max_inputs = 0,
    .n_outputs = 1,
    .flags = IR_SOURCE,
    .attrs = attrs,
    .shape = shape,
    .no_gradient = "zero",
    .strategies = strategies,
    .localize = ir_localize_shape,
};
