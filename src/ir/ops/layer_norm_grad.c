/* layer_norm_grad: with xhat = (x - mean) * rstd, g = dy * w and means over the normalized dims,
 *
 *   dx = rstd * (g - mean(g) - xhat * mean(g * xhat))
 *   dw = sum over rows of dy * xhat
 *   db = sum over rows of dy */
#include "ir/define.h"
#include "ir/op.h"
#include "ir/rules_nn.h"

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    const ir_attr_t eps = {.kind = IR_ATTR_FLOAT, .f = 1e-5};
    ir_type_t forward_in[3] = {ctx->in[1], ctx->in[4], ctx->in[4]}, forward_out[3];
    ir_op_ctx_t forward = {IR_OP_LAYER_NORM, 3, 3, forward_in, &eps, ctx->name};
    TRY(ir_op_layer_norm.shape(&forward, forward_out));
    TRY(ir_need_type(ctx, 0, "dy", &forward_out[0]));
    TRY(ir_need_type(ctx, 2, "mean", &forward_out[1]));
    TRY(ir_need_type(ctx, 3, "rstd", &forward_out[2]));
    for (int k = 0; k < 3; k++) out[k] = forward_in[k];
    return ST_OK;
}

static void strategies(const ir_op_ctx_t *ctx, ir_strategy_list_t *list) {
    uint32_t rows = ir_first_bits(ctx->in[1].rank - ctx->in[4].rank);
    ir_strategies_dims(ctx, list, rows, ir_first_bits(4), 1u << 0, 1u << 1 | 1u << 2);
}

const ir_op_def_t ir_op_layer_norm_grad = {
    .op = IR_OP_LAYER_NORM_GRAD,
    .name = "layer_norm_grad",
    .min_inputs = 5,
    .max_inputs = 5,
    .n_outputs = 3,
    .flags = IR_BACKWARD,
    .shape = shape,
    .no_gradient = "backward op",
    .strategies = strategies,
    .define = ir_define_layer_norm_grad,
};
