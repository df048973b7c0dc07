/* Shape and partition rules that many ops share. */
#include <string.h>

#include "ir/op.h"

/* ---- shapes ---- */

st_status_t ir_shape_same(const ir_op_ctx_t *ctx, ir_type_t *out) {
    out[0] = ctx->in[0];
    return ST_OK;
}

st_status_t ir_shape_float_unary(const ir_op_ctx_t *ctx, ir_type_t *out) {
    if (!ir_dtype_is_float(ctx->in[0].dtype))
        return FAIL(ST_INVALID, "input is %s, a float type is needed",
                    ir_dtype_text(ctx->in[0].dtype));
    out[0] = ctx->in[0];
    return ST_OK;
}

st_status_t ir_shape_binary(const ir_op_ctx_t *ctx, ir_type_t *out) {
    if (ctx->in[0].dtype != ctx->in[1].dtype)
        return FAIL(ST_INVALID, "inputs are %s and %s, one type is needed: add a cast",
                    ir_dtype_text(ctx->in[0].dtype), ir_dtype_text(ctx->in[1].dtype));
    return ir_dims_broadcast(&ctx->in[0], &ctx->in[1], out);
}

st_status_t ir_shape_compare(const ir_op_ctx_t *ctx, ir_type_t *out) {
    TRY(ir_shape_binary(ctx, out));
    out->dtype = IR_BOOL;
    return ST_OK;
}

void ir_ctx_outputs(const ir_op_ctx_t *ctx, ir_type_t *out) {
    st_status_t status = ir_op_def(ctx->op)->shape(ctx, out);
    ASSERT(status == ST_OK);
}

/* ---- partition ---- */

void ir_split_range(int64_t size, int64_t granules, int64_t rank, int64_t n_ranks, int64_t *begin,
                    int64_t *extent) {
    int64_t each = granules ? size / granules : 0;
    *begin = ir_granule_begin(granules, rank, n_ranks) * each;
    *extent = ir_granule_begin(granules, rank + 1, n_ranks) * each - *begin;
}

ir_strategy_t *ir_strategy_add(ir_strategy_list_t *list) {
    if (list->n == sizeof list->items / sizeof list->items[0]) return NULL;
    ir_strategy_t *made = &list->items[list->n++];
    memset(made, 0, sizeof *made);
    return made;
}

void ir_strategies_none(const ir_op_ctx_t *ctx, ir_strategy_list_t *list) {
    (void)ctx;
    (void)list;
}

void ir_strategies_elementwise(const ir_op_ctx_t *ctx, ir_strategy_list_t *list) {
    ir_type_t out[IR_MAX_OPERANDS];
    if (ctx->n_inputs > IR_MAX_OPERANDS || ctx->n_outputs > IR_MAX_OPERANDS) return;
    ir_ctx_outputs(ctx, out);
    bool any_partial = false;
    for (uint32_t j = 0; j < ctx->n_inputs; j++) {
        any_partial |= list->have[j].kind == IR_PARTIAL;
        if (list->have[j].kind != IR_SPLIT) continue;
        int32_t dim = list->have[j].dim + out[0].rank - ctx->in[j].rank; /* in the output */
        if (ctx->in[j].dims[list->have[j].dim] != out[0].dims[dim]) continue;
        ir_strategy_t *made = ir_strategy_add(list);
        if (!made) return;
        int64_t granules = list->have[j].granules;
        made->out[0] = IR_PLACE_SPLIT(dim, granules);
        for (uint32_t i = 0; i < ctx->n_inputs; i++) {
            int32_t own = dim - (out[0].rank - ctx->in[i].rank);
            if (own >= 0 && ctx->in[i].dims[own] == out[0].dims[dim] && out[0].dims[dim] != 1)
                made->in[i] = IR_PLACE_SPLIT(own, granules);
        }
    }
    if (any_partial && (ir_op_def(ctx->op)->flags & IR_LINEAR)) {
        ir_strategy_t *made = ir_strategy_add(list);
        if (!made) return;
        for (uint32_t i = 0; i < ctx->n_inputs; i++) made->in[i] = IR_PLACE_PARTIAL;
        made->out[0] = IR_PLACE_PARTIAL;
    }
}

void ir_strategies_rows(const ir_op_ctx_t *ctx, ir_strategy_list_t *list, uint32_t split_inputs,
                        uint32_t split_outputs, int32_t n_last) {
    for (uint32_t j = 0; j < ctx->n_inputs && j < IR_MAX_OPERANDS; j++) {
        if (!(split_inputs >> j & 1) || list->have[j].kind != IR_SPLIT) continue;
        if (list->have[j].dim >= ctx->in[0].rank - n_last) continue;
        ir_strategy_t *made = ir_strategy_add(list);
        if (!made) return;
        for (uint32_t i = 0; i < ctx->n_inputs && i < IR_MAX_OPERANDS; i++)
            if (split_inputs >> i & 1) made->in[i] = list->have[j];
        for (uint32_t k = 0; k < ctx->n_outputs && k < IR_MAX_OPERANDS; k++)
            if (split_outputs >> k & 1) made->out[k] = list->have[j];
    }
}
