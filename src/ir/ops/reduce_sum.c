/* reduce_sum: sum over axes. */
#include "ir/build.h"
#include "ir/op.h"

static const ir_attr_spec_t attrs[] = {
    {"axes", IR_ATTR_INTS, true, 0, NULL},
    {"keep", IR_ATTR_BOOL, false, 0, NULL},
    {0},
};

static st_status_t gradient(ir_graph_t *graph, ir_node_t node, const ir_value_t *dout,
                            const bool *want, ir_value_t *din) {
    const ir_node_info_t info = *ir_node(graph, node);
    if (dout[0] == IR_NONE || !want[0]) return ST_OK;
    ir_build_t b = {.graph = graph};
    const ir_type_t type = *ir_value_type(graph, info.inputs[0]);
    din[0] = ir_b_broadcast(&b, ir_b_reduced_keep(&b, &info, dout[0]), type.rank, type.dims);
    return b.status;
}

/* A split of a summed dim gives partial sums. */
static void strategies(const ir_op_ctx_t *ctx, ir_strategy_list_t *list) {
    const ir_attr_t *axes = ir_ctx_attr(ctx, "axes");
    ir_strategies_reduce(ctx, list);
    for (uint32_t a = 0; a < axes->ints.n; a++) {
        if (list->have[0].kind != IR_SPLIT || list->have[0].dim != axes->ints.v[a]) continue;
        ir_strategy_t *made = ir_strategy_add(list);
        if (!made) return;
        made->in[0] = list->have[0];
        made->out[0] = IR_PLACE_PARTIAL;
    }
    ir_strategies_partial(ctx, list, 1u << 0);
}

const ir_op_def_t ir_op_reduce_sum = {
    .op = IR_OP_REDUCE_SUM,
    .name = "reduce_sum",
    .min_inputs = 1,
    .max_inputs = 1,
    .n_outputs = 1,
    .flags = IR_LINEAR | IR_REDUCTION,
    .attrs = attrs,
    .shape = ir_shape_reduce,
    .gradient = gradient,
    .strategies = strategies,
};
