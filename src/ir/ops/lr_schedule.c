/* lr_schedule: the learning rate of a step, computed from the step counter (formulas in
 * learning_rate.h). */
#include "ir/learning_rate.h"
#include "ir/op.h"
#include "ir/rules_nn.h"

static const ir_attr_spec_t attrs[] = {
    {"kind", IR_ATTR_STRING, false, 0, "constant"}, {"base", IR_ATTR_FLOAT, true, 0, NULL},
    {"warmup", IR_ATTR_INT, false, 0, NULL},        {"total", IR_ATTR_INT, false, 0, NULL},
    {"min", IR_ATTR_FLOAT, false, 0, NULL},         {0}};

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    ir_rate_t rate = {.base = ir_ctx_attr(ctx, "base")->f,
                      .min = ir_ctx_attr(ctx, "min")->f,
                      .warmup = ir_ctx_int(ctx, "warmup"),
                      .total = ir_ctx_int(ctx, "total")};
    TRY(ir_need_shape(ctx, 0, "step", IR_I64, 0, NULL));
    TRY(ir_rate_kind_parse(ir_ctx_attr(ctx, "kind")->s, &rate.kind));
    TRY(ir_rate_check(&rate));
    out[0] = ir_type_scalar(IR_F64);
    return ST_OK;
}

const ir_op_def_t ir_op_lr_schedule = {
    .op = IR_OP_LR_SCHEDULE,
    .name = "lr_schedule",
    .min_inputs = 1,
    .max_inputs = 1,
    .n_outputs = 1,
    .attrs = attrs,
    .shape = shape,
    .no_gradient = "zero",
    .strategies = ir_strategies_none,
};
