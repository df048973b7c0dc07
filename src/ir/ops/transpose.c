/* transpose: permutes dims: output dim i is input dim perm[i]. */
#include "ir/build.h"
#include "ir/op.h"

static const ir_attr_spec_t attrs[] = {{"perm", IR_ATTR_INTS, true, 0, NULL}, {0}};

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    char text[IR_TYPE_TEXT_BYTES];
    const ir_type_t *x = &ctx->in[0];
    const ir_attr_t *perm = ir_ctx_attr(ctx, "perm");
    bool seen[IR_MAX_RANK] = {false}, valid = perm->ints.n == (uint32_t)x->rank;
    *out = *x;
    for (int32_t i = 0; valid && i < x->rank; i++) {
        int64_t from = perm->ints.v[i];
        valid = from >= 0 && from < x->rank && !seen[from];
        if (!valid) break;
        seen[from] = true;
        out->dims[i] = x->dims[from];
    }
    if (valid) return ST_OK;
    return FAIL(ST_INVALID, "perm does not name each of the %d dims of %s once", (int)x->rank,
                ir_type_text(x, text, sizeof text));
}

static void invert(const ir_attr_t *perm, int64_t *inverse) {
    for (uint32_t i = 0; i < perm->ints.n; i++) inverse[perm->ints.v[i]] = i;
}

static st_status_t gradient(ir_graph_t *graph, ir_node_t node, const ir_value_t *dout,
                            const bool *want, ir_value_t *din) {
    const ir_node_info_t info = *ir_node(graph, node);
    if (dout[0] == IR_NONE || !want[0]) return ST_OK;
    ir_build_t b = {.graph = graph};
    int64_t inverse[IR_MAX_RANK];
    invert(ir_node_attr(&info, "perm"), inverse);
    din[0] = ir_b_transpose(&b, dout[0], inverse);
    return b.status;
}

static void strategies(const ir_op_ctx_t *ctx, ir_strategy_list_t *list) {
    int64_t inverse[IR_MAX_RANK];
    int32_t to_out[IR_MAX_RANK];
    invert(ir_ctx_attr(ctx, "perm"), inverse);
    for (int32_t i = 0; i < ctx->in[0].rank; i++) to_out[i] = (int32_t)inverse[i];
    ir_strategies_map(ctx, list, 0, to_out);
    ir_strategies_partial(ctx, list, 1u << 0);
}

const ir_op_def_t ir_op_transpose = {
    .op = IR_OP_TRANSPOSE,
    .name = "transpose",
    .min_inputs = 1,
    .max_inputs = 1,
    .n_outputs = 1,
    .flags = IR_LINEAR,
    .attrs = attrs,
    .shape = shape,
    .gradient = gradient,
    .strategies = strategies,
};
