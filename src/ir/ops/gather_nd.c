/* gather_nd: the last dim of the index holds k indices, which choose along x's k first dims. */
#include "ir/build.h"
#include "ir/op.h"

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    char tx[IR_TYPE_TEXT_BYTES], ti[IR_TYPE_TEXT_BYTES];
    const ir_type_t *x = &ctx->in[0], *idx = &ctx->in[1];
    TRY(ir_check_index(ctx, 1));
    int64_t k = idx->rank > 0 ? idx->dims[idx->rank - 1] : 0;
    if (k < 1 || k > x->rank || idx->rank - 1 + x->rank - k > IR_MAX_RANK)
        return FAIL(ST_INVALID,
                    "x %s and index %s: its last dim must be 1 to %d, and the result has at "
                    "most %d dims",
                    ir_type_text(x, tx, sizeof tx), ir_type_text(idx, ti, sizeof ti), (int)x->rank,
                    IR_MAX_RANK);
    for (int32_t i = 0; i < k; i++)
        if (x->dims[i] == 0 && ir_type_elements(idx) > 0)
            return FAIL(ST_INVALID, "index %s has nothing to choose from in dim %d of x %s",
                        ir_type_text(idx, ti, sizeof ti), (int)i, ir_type_text(x, tx, sizeof tx));
    *out = ir_type_make(x->dtype, idx->rank - 1, idx->dims);
    for (int32_t i = (int32_t)k; i < x->rank; i++) out->dims[out->rank++] = x->dims[i];
    return ST_OK;
}

static st_status_t gradient(ir_graph_t *graph, ir_node_t node, const ir_value_t *dout,
                            const bool *want, ir_value_t *din) {
    const ir_node_info_t info = *ir_node(graph, node);
    if (dout[0] == IR_NONE || !want[0]) return ST_OK;
    ir_build_t b = {.graph = graph};
    const ir_type_t x = *ir_value_type(graph, info.inputs[0]);
    din[0] = ir_b_node(&b, IR_OP_SCATTER_ND_ADD, 2, (ir_value_t[]){dout[0], info.inputs[1]}, 1,
                       (ir_arg_t[]){IR_ARG_INTS("shape", x.dims, x.rank)});
    return b.status;
}

static void strategies(const ir_op_ctx_t *ctx, ir_strategy_list_t *list) {
    int32_t n_lead = ctx->in[1].rank - 1, k = (int32_t)ctx->in[1].dims[n_lead];
    int32_t from_x[IR_MAX_RANK], from_idx[IR_MAX_RANK];
    for (int32_t i = 0; i < ctx->in[0].rank; i++) from_x[i] = i < k ? -1 : n_lead + i - k;
    for (int32_t i = 0; i <= n_lead; i++) from_idx[i] = i < n_lead ? i : -1;
    ir_strategies_map(ctx, list, 0, from_x);
    ir_strategies_map(ctx, list, 1, from_idx);
    ir_strategies_partial(ctx, list, 1u << 0);
}

const ir_op_def_t ir_op_gather_nd = {
    .op = IR_OP_GATHER_ND,
    .name = "gather_nd",
    .min_inputs = 2,
    .max_inputs = 2,
    .n_outputs = 1,
    .flags = IR_PURE,
    .shape = shape,
    .gradient = gradient,
    .strategies = strategies,
};
