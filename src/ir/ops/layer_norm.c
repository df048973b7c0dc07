/* layer_norm: normalizes over the trailing dims that the weight's shape names: (x - mean) * rstd *
 * w + b with rstd = 1 / sqrt(variance + eps), the variance being the mean of (x - mean)^2. The
 * statistics come out too, since the gradient needs them. */
#include "ir/build.h"
#include "ir/define.h"
#include "ir/op.h"
#include "ir/rules_nn.h"

static const ir_attr_spec_t attrs[] = {{"eps", IR_ATTR_FLOAT, false, 1e-5, NULL}, {0}};

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    const ir_type_t *x = &ctx->in[0], *w = &ctx->in[1];
    char tx[IR_TYPE_TEXT_BYTES], tw[IR_TYPE_TEXT_BYTES];
    bool fits = ir_dtype_is_float(x->dtype) &&
                (w->dtype == x->dtype || w->dtype == ir_dtype_wide(x->dtype)) && w->rank >= 1 &&
                w->rank <= x->rank;
    for (int32_t i = 0; fits && i < w->rank; i++)
        fits = w->dims[i] == x->dims[x->rank - w->rank + i];
    if (!fits)
        return FAIL(ST_INVALID,
                    "x %s and weight %s: a float x and a weight shaped as x's trailing dims of its "
                    "type, or of f32 beside a small float, are needed",
                    ir_type_text(x, tx, sizeof tx), ir_type_text(w, tw, sizeof tw));
    TRY(ir_need_type(ctx, 2, "bias", w));
    out[0] = *x;
    out[1] = out[2] = ir_type_make(ir_dtype_wide(x->dtype), x->rank - w->rank, x->dims);
    return ST_OK;
}

static st_status_t gradient(ir_graph_t *graph, ir_node_t node, const ir_value_t *dout,
                            const bool *want, ir_value_t *din) {
    const ir_node_info_t info = *ir_node(graph, node);
    TRY(ir_no_output_gradient(dout, 1, "mean"));
    TRY(ir_no_output_gradient(dout, 2, "rstd"));
    if (dout[0] == IR_NONE || (!want[0] && !want[1] && !want[2])) return ST_OK;
    ir_build_t b = {.graph = graph};
    ir_value_t dx = ir_b_node(&b, IR_OP_LAYER_NORM_GRAD, 5,
                              (ir_value_t[]){dout[0], info.inputs[0], info.first_output + 1,
                                             info.first_output + 2, info.inputs[1]},
                              0, NULL);
    for (uint32_t j = 0; b.status == ST_OK && j < 3; j++) din[j] = dx + j;
    return b.status;
}

static void strategies(const ir_op_ctx_t *ctx, ir_strategy_list_t *list) {
    uint32_t rows = ir_first_bits(ctx->in[0].rank - ctx->in[1].rank);
    ir_strategies_dims(ctx, list, rows, 1u << 0, ir_first_bits(3), 0);
}

const ir_op_def_t ir_op_layer_norm = {
    .op = IR_OP_LAYER_NORM,
    .name = "layer_norm",
    .min_inputs = 3,
    .max_inputs = 3,
    .n_outputs = 3,
    .attrs = attrs,
    .shape = shape,
    .gradient = gradient,
    .strategies = strategies,
    .define = ir_define_layer_norm,
};
