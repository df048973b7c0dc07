/* batch_norm_grad_sums: by channel, the sum of dy and the sum of dy * xhat with xhat = (x - mean) *
 * invstd. They are the gradients of bias and weight, and what dx needs of the whole batch. */
#include "ir/define.h"
#include "ir/op.h"
#include "ir/rules_nn.h"

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    const ir_type_t *dy = &ctx->in[0];
    char text[IR_TYPE_TEXT_BYTES];
    TRY(ir_need_float(ctx, 0, "dy"));
    if (dy->rank < 2)
        return FAIL(ST_INVALID, "dy is %s, at least [batch, channels] is needed",
                    ir_type_text(dy, text, sizeof text));
    TRY(ir_need_type(ctx, 1, "x", dy));
    TRY(ir_need_shape(ctx, 2, "mean", ir_dtype_wide(dy->dtype), 1, &dy->dims[1]));
    TRY(ir_need_shape(ctx, 3, "invstd", ir_dtype_wide(dy->dtype), 1, &dy->dims[1]));
    out[0] = out[1] = ctx->in[2];
    return ST_OK;
}

static void strategies(const ir_op_ctx_t *ctx, ir_strategy_list_t *list) {
    ir_strategies_dims(ctx, list, ~(1u << 1), ir_first_bits(2), 0, ir_first_bits(2));
}

const ir_op_def_t ir_op_batch_norm_grad_sums = {
    .op = IR_OP_BATCH_NORM_GRAD_SUMS,
    .name = "batch_norm_grad_sums",
    .min_inputs = 4,
    .max_inputs = 4,
    .n_outputs = 2,
    .flags = IR_BACKWARD,
    .shape = shape,
    .no_gradient = "backward op",
    .strategies = strategies,
    .define = ir_define_batch_norm_grad_sums,
};
