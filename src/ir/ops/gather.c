/* gather: takes slices of x along one axis: the axis is replaced by the dims of the index. A
 * negative index counts from the end. */
#include "ir/build.h"
#include "ir/op.h"

static const ir_attr_spec_t attrs[] = {{"axis", IR_ATTR_INT, true, 0, NULL}, {0}};

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    char tx[IR_TYPE_TEXT_BYTES], ti[IR_TYPE_TEXT_BYTES];
    const ir_type_t *x = &ctx->in[0], *idx = &ctx->in[1];
    int64_t axis = ir_ctx_int(ctx, "axis");
    TRY(ir_check_index(ctx, 1));
    TRY(ir_check_axis(axis, x));
    if (x->rank - 1 + idx->rank > IR_MAX_RANK)
        return FAIL(ST_INVALID, "x %s and index %s give more than %d dims",
                    ir_type_text(x, tx, sizeof tx), ir_type_text(idx, ti, sizeof ti), IR_MAX_RANK);
    if (x->dims[axis] == 0 && ir_type_elements(idx) > 0)
        return FAIL(ST_INVALID, "index %s has nothing to choose from in dim %lld of x %s",
                    ir_type_text(idx, ti, sizeof ti), (long long)axis,
                    ir_type_text(x, tx, sizeof tx));
    *out = (ir_type_t){.dtype = x->dtype};
    for (int32_t i = 0; i < axis; i++) out->dims[out->rank++] = x->dims[i];
    for (int32_t i = 0; i < idx->rank; i++) out->dims[out->rank++] = idx->dims[i];
    for (int32_t i = (int32_t)axis + 1; i < x->rank; i++) out->dims[out->rank++] = x->dims[i];
    return ST_OK;
}

static st_status_t gradient(ir_graph_t *graph, ir_node_t node, const ir_value_t *dout,
                            const bool *want, ir_value_t *din) {
    return ir_gradient_scattered(graph, node, IR_OP_SCATTER_ADD, dout, want, din);
}

static void strategies(const ir_op_ctx_t *ctx, ir_strategy_list_t *list) {
    int32_t axis = (int32_t)ir_ctx_int(ctx, "axis");
    int32_t from_x[IR_MAX_RANK], from_idx[IR_MAX_RANK];
    for (int32_t i = 0; i < ctx->in[0].rank; i++)
        from_x[i] = i < axis ? i : i == axis ? -1 : i - 1 + ctx->in[1].rank;
    for (int32_t i = 0; i < ctx->in[1].rank; i++) from_idx[i] = axis + i;
    ir_strategies_map(ctx, list, 0, from_x);
    ir_strategies_map(ctx, list, 1, from_idx);
    ir_strategies_partial(ctx, list, 1u << 0);
}

const ir_op_def_t ir_op_gather = {
    .op = IR_OP_GATHER,
    .name = "gather",
    .min_inputs = 2,
    .max_inputs = 2,
    .n_outputs = 1,
    .flags = IR_PURE,
    .attrs = attrs,
    .shape = shape,
    .gradient = gradient,
    .strategies = strategies,
};
