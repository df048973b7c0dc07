/* rms_norm_grad: with xhat = x * rstd, g = dy * w and the mean over the last dim,
 *   dx = rstd * (g - xhat * mean(g * xhat)),   dw = sum over rows of dy * xhat. */
#include "ir/define.h"
#include "ir/op.h"
#include "ir/rules_nn.h"

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    const ir_attr_t eps = {.kind = IR_ATTR_FLOAT, .f = 1e-6};
    ir_type_t forward_in[2] = {ctx->in[1], ctx->in[3]}, forward_out[2];
    ir_op_ctx_t forward = {IR_OP_RMS_NORM, 2, 2, forward_in, &eps, ctx->name};
    TRY(ir_op_rms_norm.shape(&forward, forward_out));
    TRY(ir_need_type(ctx, 0, "dy", &forward_out[0]));
    TRY(ir_need_type(ctx, 2, "rstd", &forward_out[1]));
    for (int k = 0; k < 2; k++) out[k] = forward_in[k];
    return ST_OK;
}

static void strategies(const ir_op_ctx_t *ctx, ir_strategy_list_t *list) {
    uint32_t rows = ir_first_bits(ctx->in[1].rank - 1);
    ir_strategies_dims(ctx, list, rows, ir_first_bits(3), 1u << 0, 1u << 1);
}

const ir_op_def_t ir_op_rms_norm_grad = {
    .op = IR_OP_RMS_NORM_GRAD,
    .name = "rms_norm_grad",
    .min_inputs = 4,
    .max_inputs = 4,
    .n_outputs = 2,
    .flags = IR_BACKWARD,
    .shape = shape,
    .no_gradient = "backward op",
    .strategies = strategies,
    .define = ir_define_rms_norm_grad,
};
