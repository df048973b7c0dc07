/* cross_entropy: PyTorch's loss over rows of logits. With nll(c) = -log softmax(logits[r])[c]:
 *
 *   loss[r]   = (1 - s) * w[y] * nll(y) + s / C * sum over c of w[c] * nll(c)
 *   weight[r] = w[y]
 *   loss      = sum of loss[r] / sum of weight[r] with mean, the plain sum without
 *
 * Rows whose label is ignore_index have loss and weight 0; w is 1 without class weights.
 *
 * The sums run over the whole batch on any number of ranks, so a mean is a mean over its valid rows
 * and never a mean of means. A batch without any valid row gives 0 (PyTorch gives NaN), as its
 * gradient does.
 *
 * Pure composite: it is expanded before differentiation, where its parts have the rules. */
#include "ir/build.h"
#include "ir/op.h"
#include "ir/rules_nn.h"

static const ir_attr_spec_t attrs[] = {{"ignore_index", IR_ATTR_INT, false, -100, NULL},
                                       {"smoothing", IR_ATTR_FLOAT, false, 0, NULL},
                                       {"mean", IR_ATTR_BOOL, false, 1, NULL},
                                       {0}};

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    ir_attr_t rows_attrs[2] = {*ir_ctx_attr(ctx, "ignore_index"), *ir_ctx_attr(ctx, "smoothing")};
    ir_op_ctx_t rows = {IR_OP_CROSS_ENTROPY_ROWS, ctx->n_inputs, 3, ctx->in, rows_attrs, ctx->name};
    ir_type_t rows_out[3];
    TRY(ir_op_cross_entropy_rows.shape(&rows, rows_out));
    out[0] = out[1] = ir_type_scalar(ir_dtype_wide(ctx->in[0].dtype));
    return ST_OK;
}

static st_status_t expand(ir_graph_t *graph, const ir_op_ctx_t *ctx, const ir_value_t *inputs,
                          ir_value_t *out) {
    ir_build_t b = {.graph = graph, .name = ctx->name};
    const ir_dtype_t dtype = ir_dtype_wide(ctx->in[0].dtype);
    ir_value_t rows = ir_b_node(&b, IR_OP_CROSS_ENTROPY_ROWS, ctx->n_inputs, inputs, 2,
                                (ir_arg_t[]){{"ignore_index", *ir_ctx_attr(ctx, "ignore_index")},
                                             {"smoothing", *ir_ctx_attr(ctx, "smoothing")}});
    ir_value_t loss = ir_b_reduce(&b, IR_OP_REDUCE_SUM, rows, 0, NULL, false);
    ir_value_t total = ir_b_reduce(&b, IR_OP_REDUCE_SUM, rows + 1, 0, NULL, false);
    if (ir_ctx_int(ctx, "mean")) {
        ir_value_t none = ir_b_binary(&b, IR_OP_EQ, total, ir_b_scalar(&b, dtype, 0));
        ir_value_t divisor = ir_b_select(&b, none, ir_b_scalar(&b, dtype, 1), total);
        loss = ir_b_binary(&b, IR_OP_DIV, loss, divisor);
    }
    out[0] = loss;
    out[1] = total;
    return b.status;
}

const ir_op_def_t ir_op_cross_entropy = {
    .op = IR_OP_CROSS_ENTROPY,
    .name = "cross_entropy",
    .min_inputs = 2,
    .max_inputs = 3,
    .n_outputs = 2,
    .attrs = attrs,
    .shape = shape,
    .no_gradient = "expands before differentiation",
    .strategies = ir_strategies_none,
    .expand = expand,
    .labels = 2,
};
