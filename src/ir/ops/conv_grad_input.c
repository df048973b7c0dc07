/* conv_grad_input: the adjoint of conv in x; as a forward op it is transposed convolution.
 * `spatial` names dx's spatial dims, which the stride's remainder leaves open. */
#include "ir/build.h"
#include "ir/op.h"
#include "ir/rules_nn.h"
#include "ir/window.h"

static const ir_attr_spec_t attrs[] = {
    {"strides", IR_ATTR_INTS, true, 0, NULL},        {"pads_low", IR_ATTR_INTS, true, 0, NULL},
    {"pads_high", IR_ATTR_INTS, true, 0, NULL},      {"dilations", IR_ATTR_INTS, true, 0, NULL},
    {"groups", IR_ATTR_INT, false, 1, NULL},         {"spatial", IR_ATTR_INTS, true, 0, NULL},
    {"channels_last", IR_ATTR_BOOL, false, 0, NULL}, {0}};

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    const bool last = ir_ctx_int(ctx, "channels_last");
    const ir_type_t plain_y = ir_channels_first(&ctx->in[0], last), *dy = &plain_y;
    const ir_type_t plain_w = ir_channels_first(&ctx->in[1], last), *w = &plain_w;
    int64_t groups = ir_ctx_int(ctx, "groups"), spatial[IR_MAX_SPATIAL];
    char text_y[IR_TYPE_TEXT_BYTES], text_w[IR_TYPE_TEXT_BYTES];
    ir_type_text(&ctx->in[0], text_y, sizeof text_y);
    ir_type_text(&ctx->in[1], text_w, sizeof text_w);
    if (!ir_dtype_is_float(dy->dtype) || w->dtype != dy->dtype || dy->rank < 3 ||
        dy->rank > 2 + IR_MAX_SPATIAL || w->rank != dy->rank)
        return FAIL(ST_INVALID,
                    "dy %s and weight %s: one float type and equal ranks of 3 to %d are needed",
                    text_y, text_w, 2 + IR_MAX_SPATIAL);
    if (groups < 1 || w->dims[0] % groups || dy->dims[1] != w->dims[0])
        return FAIL(
            ST_INVALID,
            "dy %s and weight %s do not fit %lld groups: dy's dim %d must be the weight's dim 0, "
            "a multiple of the groups",
            text_y, text_w, (long long)groups, last ? (int)dy->rank - 1 : 1);
    TRY(ir_window_ints(ctx, "spatial", dy->rank - 2, 0, spatial));
    ir_window_t window;
    st_status_t status = ir_window_read(ctx, dy->rank - 2, spatial, w->dims + 2, &window);
    if (status != ST_OK) return st_error_context(status, "dy %s, weight %s", text_y, text_w);
    ir_type_t dx = *dy;
    if (!st_mul_i64(w->dims[1], groups, &dx.dims[1]))
        return FAIL(ST_DOES_NOT_FIT, "%lld channels times %lld groups overflow",
                    (long long)w->dims[1], (long long)groups);
    for (int32_t i = 0; i < window.n; i++) {
        if (window.out[i] != dy->dims[2 + i])
            return FAIL(
                ST_INVALID,
                "dy %s: a convolution of %lld positions with weight %s gives %lld in spatial dim "
                "%d, not %lld",
                text_y, (long long)spatial[i], text_w, (long long)window.out[i], (int)i,
                (long long)dy->dims[2 + i]);
        dx.dims[2 + i] = spatial[i];
    }
    out[0] = ir_channels_stored(&dx, last);
    return ST_OK;
}

static st_status_t gradient(ir_graph_t *graph, ir_node_t node, const ir_value_t *dout,
                            const bool *want, ir_value_t *din) {
    const ir_node_info_t info = *ir_node(graph, node);
    if (dout[0] == IR_NONE) return ST_OK;
    ir_value_t dy = info.inputs[0], w = info.inputs[1];
    const bool last = ir_attr_int(&info, "channels_last");
    const ir_type_t tw = ir_channels_first(ir_value_type(graph, w), last);
    ir_build_t b = {.graph = graph};
    ir_arg_t args[7];
    ir_window_args(&info, args);
    args[4] = IR_ARG_INT("groups", ir_attr_int(&info, "groups"));
    args[5] = IR_ARG_BOOL("channels_last", last);
    if (want[0]) din[0] = ir_b_node(&b, IR_OP_CONV, 2, (ir_value_t[]){dout[0], w}, 6, args);
    if (want[1]) {
        args[6] = IR_ARG_INTS("kernel", tw.dims + 2, tw.rank - 2);
        din[1] = ir_b_node(&b, IR_OP_CONV_GRAD_WEIGHT, 2, (ir_value_t[]){dout[0], dy}, 7, args);
    }
    return b.status;
}

static void strategies(const ir_op_ctx_t *ctx, ir_strategy_list_t *list) {
    ir_strategies_dims(ctx, list, 1u << 0, 1u << 0, 1u << 0, 0);
    ir_strategies_linear(list, 0);
    ir_strategies_linear(list, 1);
}

const ir_op_def_t ir_op_conv_grad_input = {
    .op = IR_OP_CONV_GRAD_INPUT,
    .name = "conv_grad_input",
    .min_inputs = 2,
    .max_inputs = 2,
    .n_outputs = 1,
    .flags = IR_CONTRACTION,
    .attrs = attrs,
    .shape = shape,
    .gradient = gradient,
    .strategies = strategies,
};
