/* Partition rules that many ops share: strategies, and the attributes of one rank. */
#include <string.h>

#include "ir/op.h"

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

void ir_strategy_unique(ir_strategy_list_t *list) {
    const ir_strategy_t *newest = &list->items[list->n - 1];
    for (uint32_t s = 0; s + 1 < list->n; s++) {
        bool same = true;
        for (int k = 0; k < IR_MAX_OPERANDS; k++)
            same = same && ir_placement_equal(newest->in[k], list->items[s].in[k]) &&
                   ir_placement_equal(newest->out[k], list->items[s].out[k]);
        if (!same) continue;
        list->n--;
        return;
    }
}

void ir_strategies_partial(const ir_op_ctx_t *ctx, ir_strategy_list_t *list, uint32_t mask) {
    bool any = false;
    for (uint32_t j = 0; j < ctx->n_inputs && j < IR_MAX_OPERANDS; j++)
        any |= (mask >> j & 1) && list->have[j].kind == IR_PARTIAL;
    ir_strategy_t *made = any ? ir_strategy_add(list) : NULL;
    if (!made) return;
    for (uint32_t j = 0; j < ctx->n_inputs && j < IR_MAX_OPERANDS; j++)
        if (mask >> j & 1) made->in[j] = IR_PLACE_PARTIAL;
    made->out[0] = IR_PLACE_PARTIAL;
    ir_strategy_unique(list);
}

void ir_strategies_map(const ir_op_ctx_t *ctx, ir_strategy_list_t *list, uint32_t j,
                       const int32_t *to_out) {
    (void)ctx;
    if (list->have[j].kind != IR_SPLIT || to_out[list->have[j].dim] < 0) return;
    ir_strategy_t *made = ir_strategy_add(list);
    if (!made) return;
    made->in[j] = list->have[j];
    made->out[0] = IR_PLACE_SPLIT(to_out[list->have[j].dim], list->have[j].granules);
    ir_strategy_unique(list);
}

void ir_strategies_elementwise(const ir_op_ctx_t *ctx, ir_strategy_list_t *list) {
    ir_type_t out[IR_MAX_OPERANDS];
    if (ctx->n_inputs > IR_MAX_OPERANDS || ctx->n_outputs > IR_MAX_OPERANDS) return;
    ir_ctx_outputs(ctx, out);
    for (uint32_t j = 0; j < ctx->n_inputs; j++) {
        if (list->have[j].kind != IR_SPLIT) continue;
        int32_t dim = list->have[j].dim + out[0].rank - ctx->in[j].rank; /* in the output */
        int64_t granules = list->have[j].granules;
        if (ctx->in[j].dims[list->have[j].dim] != out[0].dims[dim]) continue;
        ir_strategy_t *made = ir_strategy_add(list);
        if (!made) return;
        made->out[0] = IR_PLACE_SPLIT(dim, granules);
        for (uint32_t i = 0; i < ctx->n_inputs; i++) {
            int32_t own = dim - (out[0].rank - ctx->in[i].rank);
            if (own < 0 || ctx->in[i].dims[own] != out[0].dims[dim]) continue;
            made->in[i] = IR_PLACE_SPLIT(own, granules);
        }
        ir_strategy_unique(list);
    }
    if (ir_op_def(ctx->op)->flags & IR_LINEAR)
        ir_strategies_partial(ctx, list, (1u << ctx->n_inputs) - 1);
}

void ir_strategies_scaling(const ir_op_ctx_t *ctx, ir_strategy_list_t *list, uint32_t mask) {
    ir_strategies_elementwise(ctx, list);
    for (uint32_t j = 0; j < ctx->n_inputs; j++)
        if (mask >> j & 1) ir_strategies_partial(ctx, list, 1u << j);
}

void ir_strategies_reduce(const ir_op_ctx_t *ctx, ir_strategy_list_t *list) {
    const ir_attr_t *axes = ir_ctx_attr(ctx, "axes");
    bool keep = ir_ctx_int(ctx, "keep");
    int32_t to_out[IR_MAX_RANK];
    for (int32_t i = 0, a = 0; i < ctx->in[0].rank; i++) {
        bool reduced = a < (int32_t)axes->ints.n && axes->ints.v[a] == i;
        to_out[i] = reduced ? -1 : keep ? i : i - a;
        a += reduced;
    }
    ir_strategies_map(ctx, list, 0, to_out);
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
        ir_strategy_unique(list);
    }
}

/* ---- attributes of one rank ---- */

ir_attr_t *ir_attr_of(ir_op_t op, ir_attr_t *attrs, const char *key) {
    const ir_op_ctx_t ctx = {.op = op, .attrs = attrs};
    return &attrs[ir_ctx_attr(&ctx, key) - attrs];
}

st_status_t ir_attr_set_int(ir_attr_t *attr, uint32_t index, int64_t value, st_arena_t *arena) {
    size_t bytes = attr->ints.n * sizeof(int64_t);
    int64_t *copy = st_arena_copy(arena, attr->ints.v, bytes);
    if (!copy) return st_no_memory(bytes, "an attribute of one rank");
    copy[index] = value;
    attr->ints.v = copy;
    return ST_OK;
}

st_status_t ir_localize_shape(const ir_op_ctx_t *global, const ir_part_t *in, const ir_part_t *out,
                              st_arena_t *arena, ir_attr_t *attrs) {
    (void)in;
    if (out[0].placement.kind != IR_SPLIT) return ST_OK;
    return ir_attr_set_int(ir_attr_of(global->op, attrs, "shape"), (uint32_t)out[0].placement.dim,
                           out[0].extent, arena);
}

st_status_t ir_localize_extent(const ir_op_ctx_t *global, const ir_part_t *in, const ir_part_t *out,
                               st_arena_t *arena, ir_attr_t *attrs) {
    (void)in;
    (void)arena;
    if (out[0].placement.kind == IR_SPLIT && out[0].placement.dim == ir_ctx_int(global, "axis"))
        ir_attr_of(global->op, attrs, "extent")->i = out[0].extent;
    return ST_OK;
}

st_status_t ir_localize_window(const ir_op_ctx_t *global, const ir_part_t *in, const ir_part_t *out,
                               st_arena_t *arena, ir_attr_t *attrs) {
    (void)in;
    if (out[0].placement.kind != IR_SPLIT) return ST_OK;
    ir_type_t types[IR_MAX_OPERANDS];
    ir_ctx_outputs(global, types);
    ir_attr_t *begin = ir_attr_of(global->op, attrs, "begin");
    ir_attr_t *whole = ir_attr_of(global->op, attrs, "global");
    uint32_t rank = (uint32_t)types[0].rank, dim = (uint32_t)out[0].placement.dim;
    if (begin->ints.n == 0) { /* the whole itself is the window */
        const int64_t zeros[IR_MAX_RANK] = {0};
        size_t bytes = rank * sizeof(int64_t);
        begin->ints.v = st_arena_copy(arena, zeros, bytes);
        whole->ints.v = st_arena_copy(arena, types[0].dims, bytes);
        if (!begin->ints.v || !whole->ints.v)
            return st_no_memory(bytes, "an attribute of one rank");
        begin->ints.n = whole->ints.n = rank;
    }
    return ir_attr_set_int(begin, dim, begin->ints.v[dim] + out[0].begin, arena);
}
