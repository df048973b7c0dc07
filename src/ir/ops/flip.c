/* flip: reverses the order along the axes. */
#include "ir/build.h"
#include "ir/op.h"

static const ir_attr_spec_t attrs[] = {{"axes", IR_ATTR_INTS, true, 0, NULL}, {0}};

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    TRY(ir_check_axes(ir_ctx_attr(ctx, "axes"), &ctx->in[0]));
    return ir_shape_same(ctx, out);
}

static st_status_t gradient(ir_graph_t *graph, ir_node_t node, const ir_value_t *dout,
                            const bool *want, ir_value_t *din) {
    const ir_node_info_t info = *ir_node(graph, node);
    if (dout[0] == IR_NONE || !want[0]) return ST_OK;
    ir_build_t b = {.graph = graph};
    const ir_attr_t *axes = ir_node_attr(&info, "axes");
    din[0] = ir_b_node(&b, IR_OP_FLIP, 1, dout, 1,
                       (ir_arg_t[]){IR_ARG_INTS("axes", axes->ints.v, axes->ints.n)});
    return b.status;
}

static void strategies(const ir_op_ctx_t *ctx, ir_strategy_list_t *list) {
    const ir_attr_t *axes = ir_ctx_attr(ctx, "axes");
    int32_t to_out[IR_MAX_RANK];
    for (int32_t i = 0; i < ctx->in[0].rank; i++) to_out[i] = i;
    for (uint32_t a = 0; a < axes->ints.n; a++) to_out[axes->ints.v[a]] = -1;
    ir_strategies_map(ctx, list, 0, to_out);
    ir_strategies_partial(ctx, list, 1u << 0);
}

const ir_op_def_t ir_op_flip = {
    .op = IR_OP_FLIP,
    .name = "flip",
    .min_inputs = 1,
    .max_inputs = 1,
    .n_outputs = 1,
    .flags = IR_LINEAR,
    .attrs = attrs,
    .shape = shape,
    .gradient = gradient,
    .strategies = strategies,
};
