/* cumsum: running sum along one axis, from its end if `reverse`, without the element itself if
 * `exclusive`. */
#include "ir/build.h"
#include "ir/op.h"

static const ir_attr_spec_t attrs[] = {
    {"axis", IR_ATTR_INT, true, 0, NULL},
    {"exclusive", IR_ATTR_BOOL, false, 0, NULL},
    {"reverse", IR_ATTR_BOOL, false, 0, NULL},
    {0},
};

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    TRY(ir_check_number(ctx, 0));
    TRY(ir_check_axis(ir_ctx_int(ctx, "axis"), &ctx->in[0]));
    return ir_shape_same(ctx, out);
}

static st_status_t gradient(ir_graph_t *graph, ir_node_t node, const ir_value_t *dout,
                            const bool *want, ir_value_t *din) {
    const ir_node_info_t info = *ir_node(graph, node);
    if (dout[0] == IR_NONE || !want[0]) return ST_OK;
    ir_build_t b = {.graph = graph};
    din[0] = ir_b_node(&b, IR_OP_CUMSUM, 1, dout, 3,
                       (ir_arg_t[]){IR_ARG_INT("axis", ir_attr_int(&info, "axis")),
                                    IR_ARG_BOOL("exclusive", ir_attr_int(&info, "exclusive")),
                                    IR_ARG_BOOL("reverse", !ir_attr_int(&info, "reverse"))});
    return b.status;
}

static void strategies(const ir_op_ctx_t *ctx, ir_strategy_list_t *list) {
    int64_t axis = ir_ctx_int(ctx, "axis");
    int32_t to_out[IR_MAX_RANK];
    for (int32_t i = 0; i < ctx->in[0].rank; i++) to_out[i] = i == axis ? -1 : i;
    ir_strategies_map(ctx, list, 0, to_out);
    ir_strategies_partial(ctx, list, 1u << 0);
}

const ir_op_def_t ir_op_cumsum = {
    .op = IR_OP_CUMSUM,
    .name = "cumsum",
    .min_inputs = 1,
    .max_inputs = 1,
    .n_outputs = 1,
    .flags = IR_LINEAR,
    .attrs = attrs,
    .shape = shape,
    .gradient = gradient,
    .strategies = strategies,
};
