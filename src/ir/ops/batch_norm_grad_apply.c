/* batch_norm_grad_apply: dx through the statistics too. With xhat = (x - mean) * invstd:
 *
 *   dx = w * invstd * (dy - sum_dy / count - xhat * sum_dy_xhat / count)
 *
 * The sums and the count are those of the whole batch. */
#include "ir/define.h"
#include "ir/op.h"
#include "ir/rules_nn.h"

static const ir_attr_spec_t attrs[] = {{"count", IR_ATTR_INT, true, 0, NULL}, {0}};

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    static const char *const names[7] = {"dy",     "x",      "mean",       "invstd",
                                         "weight", "sum_dy", "sum_dy_xhat"};
    const ir_type_t *dy = &ctx->in[0];
    char text[IR_TYPE_TEXT_BYTES];
    TRY(ir_need_float(ctx, 0, "dy"));
    if (dy->rank < 2)
        return FAIL(ST_INVALID, "dy is %s, at least [batch, channels] is needed",
                    ir_type_text(dy, text, sizeof text));
    TRY(ir_need_type(ctx, 1, "x", dy));
    for (uint32_t j = 2; j < 7; j++)
        TRY(j == 4 ? ir_need_beside(ctx, j, names[j], dy->dtype, 1, &dy->dims[1])
                   : ir_need_shape(ctx, j, names[j], ir_dtype_wide(dy->dtype), 1, &dy->dims[1]));
    if (ir_ctx_int(ctx, "count") < 1)
        return FAIL(ST_INVALID, "count is %lld, the number of items a channel is needed",
                    (long long)ir_ctx_int(ctx, "count"));
    out[0] = *dy;
    return ST_OK;
}

static void strategies(const ir_op_ctx_t *ctx, ir_strategy_list_t *list) {
    ir_strategies_dims(ctx, list, ~(1u << 1), ir_first_bits(2), 1u << 0, 0);
}

const ir_op_def_t ir_op_batch_norm_grad_apply = {
    .op = IR_OP_BATCH_NORM_GRAD_APPLY,
    .name = "batch_norm_grad_apply",
    .min_inputs = 7,
    .max_inputs = 7,
    .n_outputs = 1,
    .flags = IR_BACKWARD,
    .attrs = attrs,
    .shape = shape,
    .no_gradient = "backward op",
    .strategies = strategies,
    .define = ir_define_batch_norm_grad_apply,
};
