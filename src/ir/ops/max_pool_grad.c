/* max_pool_grad: adds each element of dy to the position of dx that its index names. */
#include "ir/op.h"
#include "ir/rules_nn.h"
#include "ir/window.h"

static const ir_attr_spec_t attrs[] = {{"spatial", IR_ATTR_INTS, true, 0, NULL}, {0}};

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    const ir_type_t *dy = &ctx->in[0];
    char text[IR_TYPE_TEXT_BYTES];
    TRY(ir_need_float(ctx, 0, "dy"));
    if (dy->rank < 3 || dy->rank > 2 + IR_MAX_SPATIAL)
        return FAIL(ST_INVALID, "dy is %s, rank 3 to %d is needed",
                    ir_type_text(dy, text, sizeof text), 2 + IR_MAX_SPATIAL);
    TRY(ir_need_shape(ctx, 1, "index", IR_I32, dy->rank, dy->dims));
    out[0] = *dy;
    return ir_window_ints(ctx, "spatial", dy->rank - 2, 0, out[0].dims + 2);
}

static void strategies(const ir_op_ctx_t *ctx, ir_strategy_list_t *list) {
    ir_strategies_dims(ctx, list, 1u << 0 | 1u << 1, 1u << 0 | 1u << 1, 1u << 0, 0);
    ir_strategies_linear(list, 0);
}

const ir_op_def_t ir_op_max_pool_grad = {
    .op = IR_OP_MAX_POOL_GRAD,
    .name = "max_pool_grad",
    .min_inputs = 2,
    .max_inputs = 2,
    .n_outputs = 1,
    .flags = IR_BACKWARD,
    .attrs = attrs,
    .shape = shape,
    .no_gradient = "backward op",
    .strategies = strategies,
};
