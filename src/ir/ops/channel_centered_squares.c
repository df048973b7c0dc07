/* channel_centered_squares: sum of (x - mean)^2 over all dims but 1: the two-pass variance, which
 * loses no digits where the mean is large. */
#include "ir/define.h"
#include "ir/op.h"
#include "ir/rules_nn.h"

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    char text[IR_TYPE_TEXT_BYTES];
    TRY(ir_need_float(ctx, 0, "x"));
    if (ctx->in[0].rank < 2)
        return FAIL(ST_INVALID, "x is %s, at least [batch, channels] is needed",
                    ir_type_text(&ctx->in[0], text, sizeof text));
    TRY(ir_need_shape(ctx, 1, "mean", ir_dtype_wide(ctx->in[0].dtype), 1, &ctx->in[0].dims[1]));
    out[0] = ctx->in[1];
    return ST_OK;
}

static void strategies(const ir_op_ctx_t *ctx, ir_strategy_list_t *list) {
    ir_strategies_dims(ctx, list, ~(1u << 1), 1u << 0, 0, 1u << 0);
}

const ir_op_def_t ir_op_channel_centered_squares = {
    .op = IR_OP_CHANNEL_CENTERED_SQUARES,
    .name = "channel_centered_squares",
    .min_inputs = 2,
    .max_inputs = 2,
    .n_outputs = 1,
    .shape = shape,
    .no_gradient = "statistics of batch norm: differentiated through batch_norm_apply",
    .strategies = strategies,
    .define = ir_define_channel_centered_squares,
};
