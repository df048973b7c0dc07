/* broadcast: repeats dims of size 1 and adds leading dims, as NumPy's broadcast_to. */
#include "ir/build.h"
#include "ir/op.h"

static const ir_attr_spec_t attrs[] = {{"shape", IR_ATTR_INTS, true, 0, NULL}, {0}};

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    char tx[IR_TYPE_TEXT_BYTES], tw[IR_TYPE_TEXT_BYTES];
    const ir_type_t *x = &ctx->in[0];
    ir_type_t both;
    TRY(ir_shape_of_attribute(ctx, out));
    TRY(ir_dims_broadcast(x, out, &both));
    if (ir_dims_equal(&both, out)) return ST_OK;
    return FAIL(ST_INVALID, "%s does not broadcast to %s: each dim must be the same or 1",
                ir_type_text(x, tx, sizeof tx), ir_type_text(out, tw, sizeof tw));
}

static st_status_t gradient(ir_graph_t *graph, ir_node_t node, const ir_value_t *dout,
                            const bool *want, ir_value_t *din) {
    const ir_node_info_t info = *ir_node(graph, node);
    if (dout[0] == IR_NONE || !want[0]) return ST_OK;
    ir_build_t b = {.graph = graph};
    const ir_type_t type = *ir_value_type(graph, info.inputs[0]);
    din[0] = ir_b_sum_to(&b, dout[0], &type);
    return b.status;
}

static void strategies(const ir_op_ctx_t *ctx, ir_strategy_list_t *list) {
    ir_type_t out;
    ir_ctx_outputs(ctx, &out);
    int32_t to_out[IR_MAX_RANK], lead = out.rank - ctx->in[0].rank;
    for (int32_t i = 0; i < ctx->in[0].rank; i++)
        to_out[i] = ctx->in[0].dims[i] == out.dims[i + lead] ? i + lead : -1;
    ir_strategies_map(ctx, list, 0, to_out);
    ir_strategies_partial(ctx, list, 1u << 0);
}

const ir_op_def_t ir_op_broadcast = {
    .op = IR_OP_BROADCAST,
    .name = "broadcast",
    .min_inputs = 1,
    .max_inputs = 1,
    .n_outputs = 1,
    .flags = IR_LINEAR,
    .attrs = attrs,
    .shape = shape,
    .gradient = gradient,
    .strategies = strategies,
    .localize = ir_localize_shape,
};
