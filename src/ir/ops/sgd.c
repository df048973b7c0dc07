/* sgd: PyTorch's SGD on one parameter.
 *
 *   d   = scale * g + weight_decay * p
 *   buf = momentum * buf + (1 - dampening) * d        with a momentum buffer, which starts at 0
 *   p'  = p - lr * (nesterov ? d + momentum * buf : buf, or d without a buffer)
 *
 * PyTorch starts its buffer with d at the first step. From 0 that is the same unless dampening is
 * set, which is why the training graph never sets it. Output 1 is the new buffer, or a scalar 0
 * without one. The gradient may be of a smaller float type than the parameter. With `apply`, the
 * last input, false leaves p and buf as they are, bit for bit. */
#include <math.h>

#include "ir/define.h"
#include "ir/op.h"
#include "ir/rules_nn.h"

static const ir_attr_spec_t attrs[] = {{"momentum", IR_ATTR_FLOAT, false, 0, NULL},
                                       {"dampening", IR_ATTR_FLOAT, false, 0, NULL},
                                       {"nesterov", IR_ATTR_BOOL, false, 0, NULL},
                                       {"weight_decay", IR_ATTR_FLOAT, false, 0, NULL},
                                       {0}};

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    const ir_type_t *p = &ctx->in[0];
    const double momentum = ir_ctx_attr(ctx, "momentum")->f;
    const double dampening = ir_ctx_attr(ctx, "dampening")->f;
    TRY(ir_need_float(ctx, 0, "parameter"));
    TRY(ir_need_gradient(ctx, 1, p));
    TRY(ir_need_shape(ctx, 2, "lr", IR_F64, 0, NULL));
    TRY(ir_need_shape(ctx, 3, "scale", p->dtype, 0, NULL));
    if (!(momentum >= 0 && isfinite(momentum)) || !isfinite(dampening) ||
        !isfinite(ir_ctx_attr(ctx, "weight_decay")->f))
        return FAIL(ST_INVALID,
                    "momentum %g, dampening %g, weight_decay %g: finite numbers, momentum ≥ 0",
                    momentum, dampening, ir_ctx_attr(ctx, "weight_decay")->f);
    const uint32_t apply_at = momentum != 0 ? 5 : 4;
    if (ctx->n_inputs < apply_at || ctx->n_inputs > apply_at + 1)
        return FAIL(ST_INVALID,
                    "momentum is %g and %u inputs are given: a momentum buffer goes with a "
                    "momentum other than 0",
                    momentum, ctx->n_inputs);
    if (momentum != 0) TRY(ir_need_type(ctx, 4, "momentum buffer", p));
    if (ctx->n_inputs > apply_at) TRY(ir_need_shape(ctx, apply_at, "apply", IR_BOOL, 0, NULL));
    if (ir_ctx_int(ctx, "nesterov") && (momentum == 0 || dampening != 0))
        return FAIL(ST_INVALID, "nesterov needs a momentum and no dampening");
    out[0] = *p;
    out[1] = momentum != 0 ? *p : ir_type_scalar(p->dtype);
    return ST_OK;
}

static void strategies(const ir_op_ctx_t *ctx, ir_strategy_list_t *list) {
    bool buffer = ir_ctx_attr(ctx, "momentum")->f != 0;
    ir_strategies_dims(ctx, list, UINT32_MAX, ir_first_bits(2) | (buffer ? 1u << 4 : 0),
                       1u << 0 | (buffer ? 1u << 1 : 0), 0);
}

const ir_op_def_t ir_op_sgd = {
    .op = IR_OP_SGD,
    .name = "sgd",
    .min_inputs = 4,
    .max_inputs = 6,
    .n_outputs = 2,
    .flags = IR_STEP,
    .attrs = attrs,
    .shape = shape,
    .no_gradient = "optimizer step",
    .strategies = strategies,
    .define = ir_define_sgd,
    .reuse = {1, 5},
};
