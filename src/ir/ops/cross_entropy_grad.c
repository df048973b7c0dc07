/* cross_entropy_grad: with p = exp(logits[r] - lse[r]) and W = sum of w[c],
 *
 *   dlogits[r,c] = dloss * ((1 - s) * w[y] * (p[c] - [c = y]) + s / C * (W * p[c] - w[c]))
 *
 * and 0 for ignored rows. */
#include "ir/define.h"
#include "ir/op.h"
#include "ir/rules_nn.h"

static const ir_attr_spec_t attrs[] = {{"ignore_index", IR_ATTR_INT, false, -100, NULL},
                                       {"smoothing", IR_ATTR_FLOAT, false, 0, NULL},
                                       {0}};

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    ir_type_t rows_in[3] = {ctx->in[1], ctx->in[2]}, rows_out[3];
    if (ctx->n_inputs > 4) rows_in[2] = ctx->in[4];
    ir_op_ctx_t rows = {
        IR_OP_CROSS_ENTROPY_ROWS, ctx->n_inputs - 2, 3, rows_in, ctx->attrs, ctx->name};
    TRY(ir_op_cross_entropy_rows.shape(&rows, rows_out));
    ir_type_t scalar = ir_type_scalar(rows_out[0].dtype);
    TRY(ir_need_type(ctx, 0, "dloss", ctx->in[0].rank == 0 ? &scalar : &rows_out[0]));
    TRY(ir_need_type(ctx, 3, "lse", &rows_out[2]));
    out[0] = ctx->in[1];
    return ST_OK;
}

static void strategies(const ir_op_ctx_t *ctx, ir_strategy_list_t *list) {
    uint32_t rows = 1u << 1 | 1u << 2 | 1u << 3;
    if (ctx->in[0].rank) rows |= 1u << 0;
    ir_strategies_dims(ctx, list, 1u << 0, rows, 1u << 0, 0);
}

const ir_op_def_t ir_op_cross_entropy_grad = {
    .op = IR_OP_CROSS_ENTROPY_GRAD,
    .name = "cross_entropy_grad",
    .min_inputs = 4,
    .max_inputs = 5,
    .n_outputs = 1,
    .flags = IR_BACKWARD,
    .attrs = attrs,
    .shape = shape,
    .no_gradient = "backward op",
    .strategies = strategies,
    .define = ir_define_cross_entropy_grad,
    .labels = 3,
};
