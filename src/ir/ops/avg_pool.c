/* avg_pool: mean of each window. With count_pad the divisor counts the window's positions inside
 * the padded input (a last window of ceil mode may reach past it), without it those inside the
 * input. */
#include "ir/build.h"
#include "ir/op.h"
#include "ir/rules_nn.h"
#include "ir/window.h"

static const ir_attr_spec_t attrs[] = {
    {"kernel", IR_ATTR_INTS, true, 0, NULL},         {"strides", IR_ATTR_INTS, true, 0, NULL},
    {"pads_low", IR_ATTR_INTS, true, 0, NULL},       {"pads_high", IR_ATTR_INTS, true, 0, NULL},
    {"ceil", IR_ATTR_BOOL, false, 0, NULL},          {"count_pad", IR_ATTR_BOOL, false, 0, NULL},
    {"channels_last", IR_ATTR_BOOL, false, 0, NULL}, {0}};

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    const bool last = ir_ctx_int(ctx, "channels_last");
    const ir_type_t plain = ir_channels_first(&ctx->in[0], last), *x = &plain;
    char text[IR_TYPE_TEXT_BYTES];
    TRY(ir_need_float(ctx, 0, "x"));
    ir_window_t window;
    st_status_t status = ir_window_read(ctx, x->rank - 2, x->dims + 2, NULL, &window);
    if (status == ST_OK && !ir_ctx_int(ctx, "count_pad")) status = ir_window_need_items(&window);
    if (status != ST_OK)
        return st_error_context(status, "x %s", ir_type_text(&ctx->in[0], text, sizeof text));
    ir_type_t y = *x;
    for (int32_t i = 0; i < window.n; i++) y.dims[2 + i] = window.out[i];
    out[0] = ir_channels_stored(&y, last);
    return ST_OK;
}

static st_status_t gradient(ir_graph_t *graph, ir_node_t node, const ir_value_t *dout,
                            const bool *want, ir_value_t *din) {
    const ir_node_info_t info = *ir_node(graph, node);
    if (dout[0] == IR_NONE || !want[0]) return ST_OK;
    const ir_type_t x = ir_channels_first(ir_value_type(graph, info.inputs[0]),
                                          ir_attr_int(&info, "channels_last"));
    ir_build_t b = {.graph = graph};
    enum { OWN = sizeof attrs / sizeof attrs[0] - 1 };
    ir_arg_t args[OWN + 1];
    for (int i = 0; i < OWN; i++) args[i] = (ir_arg_t){attrs[i].key, info.attrs[i]};
    args[OWN] = IR_ARG_INTS("spatial", x.dims + 2, x.rank - 2);
    din[0] = ir_b_node(&b, IR_OP_AVG_POOL_GRAD, 1, dout, OWN + 1, args);
    return b.status;
}

static void strategies(const ir_op_ctx_t *ctx, ir_strategy_list_t *list) {
    ir_strategies_dims(ctx, list, ir_window_free_dims(ctx), 1u << 0, 1u << 0, 0);
    ir_strategies_linear(list, 0);
}

const ir_op_def_t ir_op_avg_pool = {
    .op = IR_OP_AVG_POOL,
    .name = "avg_pool",
    .min_inputs = 1,
    .max_inputs = 1,
    .n_outputs = 1,
    .flags = IR_LINEAR,
    .attrs = attrs,
    .shape = shape,
    .gradient = gradient,
    .strategies = strategies,
};
