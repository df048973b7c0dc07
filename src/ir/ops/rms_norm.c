/* rms_norm: x * rsqrt(mean(x^2, last dim) + eps) * w. The root mean square statistics come out too,
 * since the gradient needs them. */
#include "ir/build.h"
#include "ir/define.h"
#include "ir/op.h"
#include "ir/rules_nn.h"

static const ir_attr_spec_t attrs[] = {{"eps", IR_ATTR_FLOAT, false, 1e-6, NULL}, {0}};

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    const ir_type_t *x = &ctx->in[0], *w = &ctx->in[1];
    char tx[IR_TYPE_TEXT_BYTES], tw[IR_TYPE_TEXT_BYTES];
    if (!ir_dtype_is_float(x->dtype) || x->rank < 1 ||
        (w->dtype != x->dtype && w->dtype != ir_dtype_wide(x->dtype)) || w->rank != 1 ||
        w->dims[0] != x->dims[x->rank - 1])
        return FAIL(ST_INVALID,
                    "x %s and weight %s: a float x and a weight [last dim of x] of its type, or of "
                    "f32 beside a small float, are needed",
                    ir_type_text(x, tx, sizeof tx), ir_type_text(w, tw, sizeof tw));
    out[0] = *x;
    out[1] = ir_type_make(ir_dtype_wide(x->dtype), x->rank - 1, x->dims);
    return ST_OK;
}

static st_status_t gradient(ir_graph_t *graph, ir_node_t node, const ir_value_t *dout,
                            const bool *want, ir_value_t *din) {
    const ir_node_info_t info = *ir_node(graph, node);
    TRY(ir_no_output_gradient(dout, 1, "rstd"));
    if (dout[0] == IR_NONE || (!want[0] && !want[1])) return ST_OK;
    ir_build_t b = {.graph = graph};
    ir_value_t dx = ir_b_node(
        &b, IR_OP_RMS_NORM_GRAD, 4,
        (ir_value_t[]){dout[0], info.inputs[0], info.first_output + 1, info.inputs[1]}, 0, NULL);
    if (b.status == ST_OK) din[0] = dx, din[1] = dx + 1;
    return b.status;
}

static void strategies(const ir_op_ctx_t *ctx, ir_strategy_list_t *list) {
    ir_strategies_rows(ctx, list, 1u << 0, 1u << 0 | 1u << 1, 1);
}

const ir_op_def_t ir_op_rms_norm = {
    .op = IR_OP_RMS_NORM,
    .name = "rms_norm",
    .min_inputs = 2,
    .max_inputs = 2,
    .n_outputs = 2,
    .attrs = attrs,
    .shape = shape,
    .gradient = gradient,
    .strategies = strategies,
    .define = ir_define_rms_norm,
};
