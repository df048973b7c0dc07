/* adamw: PyTorch's AdamW on one parameter (decoupled), or its Adam with L2 decay (not decoupled).
 *
 *   g  = scale * g                                      (+ weight_decay * p if not decoupled)
 *   p  = p * (1 - lr * weight_decay)                    if decoupled
 *   m' = beta1 * m + (1 - beta1) * g,   v' = beta2 * v + (1 - beta2) * g^2
 *   p' = p - lr / (1 - beta1^step) * m' / (sqrt(v') / sqrt(1 - beta2^step) + eps)
 *
 * eps is added after the bias correction. `step` counts from 1. The gradient may be of a smaller
 * float type than the parameter. With `apply`, false leaves p, m and v as they are, bit for bit. */
#include <math.h>

#include "ir/define.h"
#include "ir/op.h"
#include "ir/rules_nn.h"

static const ir_attr_spec_t attrs[] = {
    {"beta1", IR_ATTR_FLOAT, false, 0.9, NULL},  {"beta2", IR_ATTR_FLOAT, false, 0.999, NULL},
    {"eps", IR_ATTR_FLOAT, false, 1e-8, NULL},   {"weight_decay", IR_ATTR_FLOAT, false, 0.01, NULL},
    {"decoupled", IR_ATTR_BOOL, false, 1, NULL}, {0}};

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    const ir_type_t *p = &ctx->in[0];
    const double beta1 = ir_ctx_attr(ctx, "beta1")->f, beta2 = ir_ctx_attr(ctx, "beta2")->f;
    const double eps = ir_ctx_attr(ctx, "eps")->f, decay = ir_ctx_attr(ctx, "weight_decay")->f;
    TRY(ir_need_float(ctx, 0, "parameter"));
    TRY(ir_need_gradient(ctx, 1, p));
    TRY(ir_need_type(ctx, 2, "first moment", p));
    TRY(ir_need_type(ctx, 3, "second moment", p));
    TRY(ir_need_shape(ctx, 4, "lr", IR_F64, 0, NULL));
    TRY(ir_need_shape(ctx, 5, "step", IR_I64, 0, NULL));
    TRY(ir_need_shape(ctx, 6, "scale", p->dtype, 0, NULL));
    if (ctx->n_inputs > 7) TRY(ir_need_shape(ctx, 7, "apply", IR_BOOL, 0, NULL));
    if (!(beta1 >= 0 && beta1 < 1) || !(beta2 >= 0 && beta2 < 1))
        return FAIL(ST_INVALID, "betas are %g and %g, 0 ≤ beta < 1 is needed", beta1, beta2);
    if (!(eps >= 0 && isfinite(eps)) || !isfinite(decay))
        return FAIL(ST_INVALID, "eps is %g and weight_decay %g: finite numbers, eps ≥ 0", eps,
                    decay);
    for (int k = 0; k < 3; k++) out[k] = *p;
    return ST_OK;
}

static void strategies(const ir_op_ctx_t *ctx, ir_strategy_list_t *list) {
    ir_strategies_dims(ctx, list, UINT32_MAX, ir_first_bits(4), ir_first_bits(3), 0);
}

const ir_op_def_t ir_op_adamw = {
    .op = IR_OP_ADAMW,
    .name = "adamw",
    .min_inputs = 7,
    .max_inputs = 8,
    .n_outputs = 3,
    .flags = IR_STEP,
    .attrs = attrs,
    .shape = shape,
    .no_gradient = "optimizer step",
    .strategies = strategies,
    .define = ir_define_adamw,
    .reuse = {1, 3, 4},
};
