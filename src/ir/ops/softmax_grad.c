/* softmax_grad: (dy - sum of dy * y along axis) * y. */
#include "ir/op.h"
#include "ir/rules_nn.h"

static const ir_attr_spec_t attrs[] = {{"axis", IR_ATTR_INT, true, 0, NULL}, {0}};

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    int32_t axis;
    TRY(ir_need_float(ctx, 0, "dy"));
    TRY(ir_need_type(ctx, 1, "y", &ctx->in[0]));
    TRY(ir_need_axis(ctx, &axis));
    out[0] = ctx->in[0];
    return ST_OK;
}

static void strategies(const ir_op_ctx_t *ctx, ir_strategy_list_t *list) {
    uint32_t dims = ir_first_bits(ctx->in[0].rank) & ~(1u << ir_ctx_int(ctx, "axis"));
    ir_strategies_dims(ctx, list, dims, 1u << 0 | 1u << 1, 1u << 0, 0);
    ir_strategies_linear(list, 0);
}

const ir_op_def_t ir_op_softmax_grad = {
    .op = IR_OP_SOFTMAX_GRAD,
    .name = "softmax_grad",
    .summary = "dy, y → dx = (dy - sum(dy * y)) * y",
    .min_inputs = 2,
    .max_inputs = 2,
    .n_outputs = 1,
    .flags = IR_BACKWARD,
    .attrs = attrs,
    .shape = shape,
    .no_gradient = "backward op",
    .strategies = strategies,
};
