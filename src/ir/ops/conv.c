/* conv: cross-correlation over 1 to 3 spatial dims, as every framework's convolution layer.
 *
 *   y[n, o, p] = bias[o] + sum over i and the channels c of o's group of
 *                          x[n, c, p * stride - low + i * dilation] * w[o, c, i]
 *
 * With channels_last the channels stand last in x, w and y (window.h). */
#include "ir/build.h"
#include "ir/op.h"
#include "ir/rules_nn.h"
#include "ir/window.h"

static const ir_attr_spec_t attrs[] = {{"strides", IR_ATTR_INTS, true, 0, NULL},
                                       {"pads_low", IR_ATTR_INTS, true, 0, NULL},
                                       {"pads_high", IR_ATTR_INTS, true, 0, NULL},
                                       {"dilations", IR_ATTR_INTS, true, 0, NULL},
                                       {"groups", IR_ATTR_INT, false, 1, NULL},
                                       {"channels_last", IR_ATTR_BOOL, false, 0, NULL},
                                       {0}};

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    const bool last = ir_ctx_int(ctx, "channels_last");
    const ir_type_t plain_x = ir_channels_first(&ctx->in[0], last), *x = &plain_x;
    const ir_type_t plain_w = ir_channels_first(&ctx->in[1], last), *w = &plain_w;
    int64_t groups = ir_ctx_int(ctx, "groups");
    char text_x[IR_TYPE_TEXT_BYTES], text_w[IR_TYPE_TEXT_BYTES];
    ir_type_text(&ctx->in[0], text_x, sizeof text_x);
    ir_type_text(&ctx->in[1], text_w, sizeof text_w);
    if (!ir_dtype_is_float(x->dtype) || w->dtype != x->dtype || x->rank < 3 || w->rank != x->rank)
        return FAIL(ST_INVALID,
                    "x %s and weight %s: one float type and equal ranks of 3 to %d are needed",
                    text_x, text_w, 2 + IR_MAX_SPATIAL);
    if (groups < 1 || x->dims[1] % groups || w->dims[0] % groups ||
        x->dims[1] / groups != w->dims[1])
        return FAIL(
            ST_INVALID,
            "x %s and weight %s do not fit %lld groups: weight [O, %s%lld / groups%s] with O "
            "divisible by groups is needed",
            text_x, text_w, (long long)groups, last ? "…, " : "", (long long)x->dims[1],
            last ? "" : ", …");
    if (ctx->n_inputs > 2) TRY(ir_need_shape(ctx, 2, "bias", x->dtype, 1, w->dims));
    ir_window_t window;
    st_status_t status = ir_window_read(ctx, x->rank - 2, x->dims + 2, w->dims + 2, &window);
    if (status != ST_OK) return st_error_context(status, "x %s, weight %s", text_x, text_w);
    ir_type_t y = *x;
    y.dims[1] = w->dims[0];
    for (int32_t i = 0; i < window.n; i++) y.dims[2 + i] = window.out[i];
    out[0] = ir_channels_stored(&y, last);
    return ST_OK;
}

/* dy as channel_sum takes it: [N, C, …], or [N · spatial, C]. */
static ir_value_t by_channels(ir_build_t *b, ir_value_t dy, bool last) {
    const ir_type_t type = *ir_b_type(b, dy);
    int64_t dims[2] = {1, type.dims[type.rank - 1]};
    if (!last) return dy;
    for (int32_t i = 0; i + 1 < type.rank; i++) dims[0] *= type.dims[i];
    return ir_b_reshape(b, dy, 2, dims);
}

static st_status_t gradient(ir_graph_t *graph, ir_node_t node, const ir_value_t *dout,
                            const bool *want, ir_value_t *din) {
    const ir_node_info_t info = *ir_node(graph, node);
    if (dout[0] == IR_NONE) return ST_OK;
    ir_value_t x = info.inputs[0], w = info.inputs[1];
    const bool last = ir_attr_int(&info, "channels_last");
    const ir_type_t tx = ir_channels_first(ir_value_type(graph, x), last);
    const ir_type_t tw = ir_channels_first(ir_value_type(graph, w), last);
    ir_build_t b = {.graph = graph};
    ir_arg_t args[7];
    ir_window_args(&info, args);
    args[4] = IR_ARG_INT("groups", ir_attr_int(&info, "groups"));
    args[5] = IR_ARG_BOOL("channels_last", last);
    if (want[0]) {
        args[6] = IR_ARG_INTS("spatial", tx.dims + 2, tx.rank - 2);
        din[0] = ir_b_node(&b, IR_OP_CONV_GRAD_INPUT, 2, (ir_value_t[]){dout[0], w}, 7, args);
    }
    if (want[1]) {
        args[6] = IR_ARG_INTS("kernel", tw.dims + 2, tw.rank - 2);
        din[1] = ir_b_node(&b, IR_OP_CONV_GRAD_WEIGHT, 2, (ir_value_t[]){x, dout[0]}, 7, args);
    }
    if (info.n_inputs > 2 && want[2])
        din[2] = ir_b_unary(&b, IR_OP_CHANNEL_SUM, by_channels(&b, dout[0], last));
    return b.status;
}

static void strategies(const ir_op_ctx_t *ctx, ir_strategy_list_t *list) {
    ir_strategies_dims(ctx, list, 1u << 0, 1u << 0, 1u << 0, 0);
    if (ctx->n_inputs > 2) return; /* every rank would add the bias to its partial sum */
    ir_strategies_linear(list, 0);
    ir_strategies_linear(list, 1);
}

const ir_op_def_t ir_op_conv = {
    .op = IR_OP_CONV,
    .name = "conv",
    .min_inputs = 2,
    .max_inputs = 3,
    .n_outputs = 1,
    .flags = IR_CONTRACTION,
    .attrs = attrs,
    .shape = shape,
    .gradient = gradient,
    .strategies = strategies,
};
