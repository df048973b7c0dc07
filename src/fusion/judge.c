/* Judging regions (judge.h). O(region) for one that is known, else what its nest and cost take. */
#include "fusion/judge.h"

#include "ir/nest.h"
#include "ir/node_ctx.h"

void judge_close(judge_t *judge) {
    st_free(judge->slots);
    st_arena_clear(&judge->arena);
    *judge = (judge_t){0};
}

static judgement_t **find(const judge_t *judge, uint64_t hash) {
    size_t i = (size_t)hash & (judge->capacity - 1);
    while (judge->slots[i] && judge->slots[i]->hash != hash) i = (i + 1) & (judge->capacity - 1);
    return &judge->slots[i];
}

static st_status_t grow(judge_t *judge) {
    size_t old_capacity = judge->capacity, capacity = old_capacity ? 2 * old_capacity : 256;
    judgement_t **old = judge->slots, **made = st_calloc(capacity, sizeof *made);
    if (!made) return st_no_memory(capacity * sizeof *made, "the fuse pass");
    judge->slots = made;
    judge->capacity = capacity;
    for (size_t i = 0; i < old_capacity; i++)
        if (old[i]) *find(judge, old[i]->hash) = old[i];
    st_free(old);
    return ST_OK;
}

/* Cost of the region as a `fused` node of this body, and the target's reason where it has no kernel
 * that runs it. */
static st_status_t ask_fused(judge_t *judge, const regions_t *regions, ir_graph_t *body,
                             judgement_t *out) {
    const region_t *region = &regions->region;
    const ir_target_t *target = judge->target;
    const ir_attr_t attr = {.kind = IR_ATTR_GRAPH, .graph = body};
    const char *reason = "";
    ir_node_ctx_t ctx;
    TRY(ir_node_ctx_open_values(&ctx, regions->groups->graph, IR_OP_FUSED, &attr,
                                (uint32_t)region->inputs.n, region->inputs.data,
                                (uint32_t)region->outputs.n, region->outputs.data));
    target->cost(target->context, &ctx.op, ctx.out, &out->cost);
    if (!out->cost.kernel && target->can_run)
        out->legal = target->can_run(target->context, &ctx.op, ctx.out, &reason);
    if (!out->legal) out->reason = st_arena_strdup(&judge->arena, reason);
    ir_node_ctx_close(&ctx);
    if (out->cost.status != ST_OK) return out->cost.status;
    return out->reason ? ST_OK : st_no_memory(0, "a reason");
}

static st_status_t ask_single(const judge_t *judge, const regions_t *regions, ir_cost_t *out_cost) {
    const ir_graph_t *graph = regions->groups->graph;
    ir_node_t n = regions->region.nodes.data[0];
    return ir_target_cost(judge->target, graph, n, out_cost);
}

/* ---- judging ---- */

static st_status_t find_reuse(judge_t *judge, const regions_t *regions, const nest_t *nest,
                              judgement_t *out) {
    const region_t *region = &regions->region;
    const ir_graph_t *graph = regions->groups->graph;
    if (region->inputs.n > 64) return ST_OK;
    out->reuse = st_arena_array(&judge->arena, region->outputs.n, sizeof *out->reuse);
    if (!out->reuse) return st_no_memory(region->outputs.n, "a judgement");
    for (uint32_t k = 0; k < region->outputs.n; k++)
        for (uint32_t j = 0; j < region->inputs.n; j++)
            if (ir_type_equal(ir_value_type(graph, region->outputs.data[k]),
                              ir_value_type(graph, region->inputs.data[j])) &&
                nest_may_reuse(nest, k, j))
                out->reuse[k] |= (uint64_t)1 << j;
    return ST_OK;
}

static st_status_t make(judge_t *judge, regions_t *regions, judgement_t *out) {
    const region_t *region = &regions->region;
    ir_graph_t *body;
    const char *reason = NULL;
    st_status_t status = ST_OK;
    TRY(regions_body(regions, regions->groups->graph, &body));
    nest_t *nest = NULL;
    TRY_GOTO(nest_build(body, &nest, &reason), done);
    out->legal = nest != NULL;
    out->adds = nest && nest_has_sums(nest);
    out->reason = out->legal ? "" : st_arena_strdup(&judge->arena, reason);
    if (!out->reason) TRY_GOTO(st_no_memory(0, "a reason"), done);
    if (region->nodes.n == 1) {
        TRY_GOTO(ask_single(judge, regions, &out->cost), done);
    } else if (out->legal) {
        TRY_GOTO(ask_fused(judge, regions, body, out), done);
        if (out->legal) TRY_GOTO(find_reuse(judge, regions, nest, out), done);
    }
done:
    nest_destroy(nest);
    ir_graph_destroy(body);
    return status;
}

static st_status_t find_judgement(judge_t *judge, regions_t *regions, judgement_t **out_judgement) {
    if (judge->n >= judge->capacity / 2) TRY(grow(judge));
    uint64_t hash = regions_hash(regions);
    judgement_t **slot = find(judge, hash);
    judge->n_asked++;
    if (!*slot) {
        judgement_t *made = st_arena_alloc(&judge->arena, sizeof *made);
        if (!made) return st_no_memory(sizeof *made, "a judgement");
        made->hash = hash;
        TRY(make(judge, regions, made));
        *slot = made;
        judge->n++;
    }
    *out_judgement = *slot;
    return ST_OK;
}

st_status_t judge_region(judge_t *judge, regions_t *regions, const judgement_t **out_judgement) {
    judgement_t *found;
    TRY(find_judgement(judge, regions, &found));
    *out_judgement = found;
    return ST_OK;
}

/* ---- sums ---- */

static st_status_t ask_sums(const ir_target_t *target, ir_node_ctx_t *ctx, uint64_t *out_sums) {
    st_status_t status = target->sums(target->context, &ctx->op, ctx->out, out_sums);
    ir_node_ctx_close(ctx);
    if (!*out_sums) *out_sums = 1; /* 0 means that there are none */
    return status;
}

st_status_t judge_sums(judge_t *judge, regions_t *regions, uint64_t *out_sums) {
    const region_t *region = &regions->region;
    const ir_graph_t *graph = regions->groups->graph;
    judgement_t *found;
    ir_node_ctx_t ctx;
    *out_sums = 0;
    TRY(find_judgement(judge, regions, &found));
    if (!found->adds || !judge->target->sums) return ST_OK;
    if (!found->sums && region->nodes.n == 1) {
        TRY(ir_node_ctx_open(&ctx, graph, region->nodes.data[0]));
        TRY(ask_sums(judge->target, &ctx, &found->sums));
    } else if (!found->sums) {
        ir_graph_t *body;
        TRY(regions_body(regions, graph, &body));
        const ir_attr_t attr = {.kind = IR_ATTR_GRAPH, .graph = body};
        st_status_t status = ir_node_ctx_open_values(
            &ctx, graph, IR_OP_FUSED, &attr, (uint32_t)region->inputs.n, region->inputs.data,
            (uint32_t)region->outputs.n, region->outputs.data);
        if (status == ST_OK) status = ask_sums(judge->target, &ctx, &found->sums);
        ir_graph_destroy(body);
        TRY(status);
    }
    *out_sums = found->sums;
    return ST_OK;
}
