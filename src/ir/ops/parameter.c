/* parameter: trained state: what the optimizer updates and a checkpoint holds. */
#include "ir/op.h"

static const ir_attr_spec_t attrs[] = {
    {"dtype", IR_ATTR_DTYPE, true, 0, NULL},
    {"shape", IR_ATTR_INTS, true, 0, NULL},
    {"assumed", IR_ATTR_BOOL, false, 0,
     NULL}, /* the source format did not say: may be a constant */
    {0},
};

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    TRY(ir_shape_attributes(ctx, out));
    if (ir_dtype_is_float(out->dtype)) return ST_OK;
    char text[IR_TYPE_TEXT_BYTES];
    return FAIL(ST_INVALID, "a parameter of %s cannot be trained: declare a buffer",
                ir_type_text(out, text, sizeof text));
}

const ir_op_def_t ir_op_parameter = {
    .op = IR_OP_PARAMETER,
    .name = "parameter",
    .min_inputs = 0,
    .max_inputs = 0,
    .n_outputs = 1,
    .flags = IR_SOURCE | IR_STATE,
    .attrs = attrs,
    .shape = shape,
    .no_gradient = "state",
    .strategies = ir_strategies_none,
    .localize = ir_localize_shape,
};
