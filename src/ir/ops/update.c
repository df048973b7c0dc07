/* update: the parameter or buffer `state` takes `value` at the end of the step; every reader of the
 * state in this step sees the old content. */
#include "ir/op.h"
#include "ir/rules_nn.h"

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    (void)out;
    return ir_need_type(ctx, 1, "value", &ctx->in[0]);
}

static void strategies(const ir_op_ctx_t *ctx, ir_strategy_list_t *list) {
    ir_strategies_dims(ctx, list, UINT32_MAX, ir_first_bits(2), 0, 0);
}

const ir_op_def_t ir_op_update = {
    .op = IR_OP_UPDATE,
    .name = "update",
    .min_inputs = 2,
    .max_inputs = 2,
    .n_outputs = 0,
    .flags = IR_SIDE_EFFECT,
    .shape = shape,
    .no_gradient = "state",
    .strategies = strategies,
};
