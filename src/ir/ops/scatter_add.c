/* scatter_add: adjoint of gather: zeros of `extent` along the axis, to which each slice of the
 * updates is added at its index. Linear in the updates. */
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
    bool fits = axis >= 0 && axis <= updates->rank - idx->rank && extent >= 0 &&
                updates->rank - idx->rank < IR_MAX_RANK;
    for (int32_t i = 0; fits && i < idx->rank; i++) fits = updates->dims[axis + i] == idx->dims[i];
    fits = fits && (extent > 0 || ir_type_elements(idx) == 0);
    if (!fits)
        return FAIL(ST_INVALID,
                    "updates %s, index %s, axis %lld, extent %lld: the updates must have "
                    "the index's dims from the axis on, and the extent room for an index",
                    ir_type_text(updates, tu, sizeof tu), ir_type_text(idx, ti, sizeof ti),
                    (long long)axis, (long long)extent);
    *out = (ir_type_t){.dtype = updates->dtype};
    for (int32_t i = 0; i < axis; i++) out->dims[out->rank++] = updates->dims[i];
    out->dims[out->rank++] = extent;
    for (int32_t i = (int32_t)axis + idx->rank; i < updates->rank; i++)
        out->dims[out->rank++] = updates->dims[i];
    return ST_OK;
}

static st_status_t gradient(ir_graph_t *graph, ir_node_t node, const ir_value_t *dout,
                            const bool *want, ir_value_t *din) {
    const ir_node_info_t info = *ir_node(graph, node);
    if (dout[0] == IR_NONE || !want[0]) return ST_OK;
    ir_build_t b = {.graph = graph};
    din[0] = ir_b_gather(&b, dout[0], info.inputs[1], (int32_t)ir_attr_int(&info, "axis"));
    return b.status;
}

/* Updates that are split along with their indices give partial sums. */
static void strategies(const ir_op_ctx_t *ctx, ir_strategy_list_t *list) {
    int32_t axis = (int32_t)ir_ctx_int(ctx, "axis"), n_index = ctx->in[1].rank;
    int32_t to_out[IR_MAX_RANK];
    for (int32_t i = 0; i < ctx->in[0].rank; i++)
        to_out[i] = i < axis ? i : i < axis + n_index ? -1 : i - n_index + 1;
    ir_strategies_map(ctx, list, 0, to_out);
    for (uint32_t j = 0; j < 2; j++) {
        int32_t dim = list->have[j].dim - (j == 0 ? axis : 0); /* in the index */
        if (list->have[j].kind != IR_SPLIT || dim < 0 || dim >= n_index) continue;
        ir_strategy_t *made = ir_strategy_add(list);
        if (!made) return;
        made->in[0] = IR_PLACE_SPLIT(axis + dim, list->have[j].granules);
        made->in[1] = IR_PLACE_SPLIT(dim, list->have[j].granules);
        made->out[0] = IR_PLACE_PARTIAL;
        ir_strategy_unique(list);
    }
    ir_strategies_partial(ctx, list, 1u << 0);
}

const ir_op_def_t ir_op_scatter_add = {
    .op = IR_OP_SCATTER_ADD,
    .name = "scatter_add",
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
