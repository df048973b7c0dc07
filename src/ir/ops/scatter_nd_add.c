/* scatter_nd_add: adjoint of gather_nd: zeros of `shape`, to which each slice of the updates is
 * added at its k-fold index. Linear in the updates. */
#include "ir/build.h"
#include "ir/op.h"

static const ir_attr_spec_t attrs[] = {{"shape", IR_ATTR_INTS, true, 0, NULL}, {0}};

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    char tu[IR_TYPE_TEXT_BYTES], ti[IR_TYPE_TEXT_BYTES], to[IR_TYPE_TEXT_BYTES];
    const ir_type_t *updates = &ctx->in[0], *idx = &ctx->in[1];
    TRY(ir_check_float(ctx, 0));
    TRY(ir_check_index(ctx, 1));
    TRY(ir_shape_of_attribute(ctx, out));
    int32_t n_lead = idx->rank - 1;
    int64_t k = n_lead >= 0 ? idx->dims[n_lead] : 0;
    bool fits = k >= 1 && k <= out->rank && updates->rank == n_lead + out->rank - k;
    for (int32_t i = 0; fits && i < updates->rank; i++)
        fits = updates->dims[i] == (i < n_lead ? idx->dims[i] : out->dims[i - n_lead + k]);
    for (int32_t i = 0; fits && i < k; i++) fits = out->dims[i] > 0 || ir_type_elements(idx) == 0;
    if (fits) return ST_OK;
    return FAIL(ST_INVALID,
                "updates %s, index %s and result %s do not fit: the index's dims but the "
                "last, then the result's after that many, make the updates'",
                ir_type_text(updates, tu, sizeof tu), ir_type_text(idx, ti, sizeof ti),
                ir_type_text(out, to, sizeof to));
}

static st_status_t gradient(ir_graph_t *graph, ir_node_t node, const ir_value_t *dout,
                            const bool *want, ir_value_t *din) {
    const ir_node_info_t info = *ir_node(graph, node);
    if (dout[0] == IR_NONE || !want[0]) return ST_OK;
    ir_build_t b = {.graph = graph};
    din[0] = ir_b_binary(&b, IR_OP_GATHER_ND, dout[0], info.inputs[1]);
    return b.status;
}

/* Updates that are split along with their indices give partial sums. */
static void strategies(const ir_op_ctx_t *ctx, ir_strategy_list_t *list) {
    int32_t n_lead = ctx->in[1].rank - 1, k = (int32_t)ctx->in[1].dims[n_lead];
    int32_t to_out[IR_MAX_RANK];
    for (int32_t i = 0; i < ctx->in[0].rank; i++) to_out[i] = i < n_lead ? -1 : i - n_lead + k;
    ir_strategies_map(ctx, list, 0, to_out);
    for (uint32_t j = 0; j < 2; j++) {
        if (list->have[j].kind != IR_SPLIT || list->have[j].dim >= n_lead) continue;
        ir_strategy_t *made = ir_strategy_add(list);
        if (!made) return;
        made->in[0] = made->in[1] = list->have[j];
        made->out[0] = IR_PLACE_PARTIAL;
        ir_strategy_unique(list);
    }
    ir_strategies_partial(ctx, list, 1u << 0);
}

const ir_op_def_t ir_op_scatter_nd_add = {
    .op = IR_OP_SCATTER_ND_ADD,
    .name = "scatter_nd_add",
    .min_inputs = 2,
    .max_inputs = 2,
    .n_outputs = 1,
    .flags = IR_PURE,
    .attrs = attrs,
    .shape = shape,
    .gradient = gradient,
    .strategies = strategies,
    .localize = ir_localize_shape,
};
