/* scatter_along_add: adjoint of gather_along: out[..idx[..i..]..] += updates[..i..] over zeros of
 * `extent` along the axis. Linear in the updates. */
#include "ir/build.h"
#include "ir/op.h"

static const ir_attr_spec_t attrs[] = {
    {"axis", IR_ATTR_INT, true, 0, NULL},
    {"extent", IR_ATTR_INT, true, 0, NULL}, /* of the output's axis */
    {0},
};

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    char tu[IR_TYPE_TEXT_BYTES], ti[IR_TYPE_TEXT_BYTES];
    const ir_type_t *updates = &ctx->in[0], *idx = &ctx->in[1];
    int64_t axis = ir_ctx_int(ctx, "axis"), extent = ir_ctx_int(ctx, "extent");
    TRY(ir_check_float(ctx, 0));
    TRY(ir_check_index(ctx, 1));
    TRY(ir_check_axis(axis, updates));
    if (!ir_dims_equal(updates, idx) || extent < 0 || (extent == 0 && ir_type_elements(idx) > 0))
        return FAIL(ST_INVALID,
                    "updates %s and index %s must have one shape, and extent %lld room for "
                    "an index",
                    ir_type_text(updates, tu, sizeof tu), ir_type_text(idx, ti, sizeof ti),
                    (long long)extent);
    *out = *updates;
    out->dims[axis] = extent;
    return ST_OK;
}

static st_status_t gradient(ir_graph_t *graph, ir_node_t node, const ir_value_t *dout,
                            const bool *want, ir_value_t *din) {
    const ir_node_info_t info = *ir_node(graph, node);
    if (dout[0] == IR_NONE || !want[0]) return ST_OK;
    ir_build_t b = {.graph = graph};
    din[0] = ir_b_node(&b, IR_OP_GATHER_ALONG, 2, (ir_value_t[]){dout[0], info.inputs[1]}, 1,
                       (ir_arg_t[]){IR_ARG_INT("axis", ir_attr_int(&info, "axis"))});
    return b.status;
}

/* Both split: on the axis that gives partial sums, on another dim a split. */
static void strategies(const ir_op_ctx_t *ctx, ir_strategy_list_t *list) {
    int64_t axis = ir_ctx_int(ctx, "axis");
    for (uint32_t j = 0; j < 2; j++) {
        ir_placement_t have = list->have[j];
        ir_strategy_t *made = have.kind == IR_SPLIT ? ir_strategy_add(list) : NULL;
        if (!made) continue;
        made->in[0] = made->in[1] = have;
        made->out[0] = have.dim == axis ? IR_PLACE_PARTIAL : have;
        ir_strategy_unique(list);
    }
    ir_strategies_partial(ctx, list, 1u << 0);
}

const ir_op_def_t ir_op_scatter_along_add = {
    .op = IR_OP_SCATTER_ALONG_ADD,
    .name = "scatter_along_add",
    .min_inputs = 2,
    .max_inputs = 2,
    .n_outputs = 1,
    .flags = IR_PURE,
    .attrs = attrs,
    .shape = shape,
    .gradient = gradient,
    .strategies = strategies,
    .localize = ir_localize_extent,
};
