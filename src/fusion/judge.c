/* Judging regions (judge.h). O(region) for one that is known, else what its nest and cost take. */
#include "fusion/judge.h"

#include "ir/nest.h"

void judge_close(judge_t *judge) {
    st_free(judge->slots);
    st_arena_clear(&judge->arena);
    *judge = (judge_t){0};
}

static const judgement_t **find(const judge_t *judge, uint64_t hash) {
    size_t i = (size_t)hash & (judge->capacity - 1);
    while (judge->slots[i] && judge->slots[i]->hash != hash) i = (i + 1) & (judge->capacity - 1);
    return &judge->slots[i];
}

static st_status_t grow(judge_t *judge) {
    size_t old_capacity = judge->capacity, capacity = old_capacity ? 2 * old_capacity : 256;
    const judgement_t **old = judge->slots, **made = st_calloc(capacity, sizeof *made);
    if (!made) return st_no_memory(capacity * sizeof *made, "the fuse pass");
    judge->slots = made;
    judge->capacity = capacity;
    for (size_t i = 0; i < old_capacity; i++)
        if (old[i]) *find(judge, old[i]->hash) = old[i];
    st_free(old);
    return ST_OK;
}

/* Cost of a node with these operands and results. */
static st_status_t ask_cost(const judge_t *judge, const regions_t *regions, ir_op_t op,
                            const ir_attr_t *attrs, uint32_t n_in, const ir_value_t *in,
                            uint32_t n_out, const ir_value_t *out, ir_cost_t *out_cost) {
    const ir_graph_t *graph = regions->groups->graph;
    ir_type_t *types = st_calloc(n_in + n_out, sizeof *types);
    if (!types) return st_no_memory((n_in + n_out) * sizeof *types, "a node's types");
    for (uint32_t j = 0; j < n_in; j++) types[j] = *ir_value_type(graph, in[j]);
    for (uint32_t k = 0; k < n_out; k++) types[n_in + k] = *ir_value_type(graph, out[k]);
    ir_op_ctx_t ctx = {op, n_in, n_out, types, attrs, ""};
    judge->target->cost(judge->target->context, &ctx, types + n_in, out_cost);
    st_free(types);
    return ST_OK;
}

static st_status_t ask_single(const judge_t *judge, const regions_t *regions, ir_cost_t *out_cost) {
    const ir_graph_t *graph = regions->groups->graph;
    ir_node_t n = regions->region.nodes.data[0];
    return ir_target_cost(judge->target, graph, n, out_cost);
}

/* ---- passes ---- */

/* Stage of each statement: how many wide reductions lie on the way to it. */
typedef struct stages {
    const nest_t *nest;
    uint64_t cache_bytes;
    uint8_t *stage;   /* [stmts] */
    uint32_t *needed; /* [stmts]: set of the stages in which the value is computed */
} stages_t;

enum {
    MAX_STAGE = 31,
    ELEMENT_BYTES = 4,
    MIN_CACHE_BYTES = 128 * 1024, /* the nearest cache of this size is what a pass works in */
};

/* Whether the points that one result is reduced from exceed the cache. */
static bool is_wide(const stages_t *s, const nest_stmt_t *stmt) {
    if (stmt->kind != NEST_REDUCE || stmt->domain == NEST_NONE) return false;
    int64_t points = nest_points(&s->nest->domains[stmt->domain], stmt->over);
    return (uint64_t)points > s->cache_bytes / ELEMENT_BYTES;
}

/* Bytes that are read in more than one stage, once for each beyond the first. */
static double bytes_again(const stages_t *s) {
    const nest_t *nest = s->nest;
    double bytes = 0;
    for (uint32_t i = 0; i < nest->n_stmts; i++) {
        const nest_stmt_t *stmt = &nest->stmts[i];
        s->stage[i] = 0;
        s->needed[i] = 0;
        for (uint32_t a = 0; a < stmt->n_args; a++) {
            uint32_t arg = stmt->args[a];
            uint8_t after = (uint8_t)(s->stage[arg] + is_wide(s, &nest->stmts[arg]));
            if (after > s->stage[i]) s->stage[i] = after < MAX_STAGE ? after : MAX_STAGE;
        }
    }
    for (uint32_t i = 0; i < nest->n_stores; i++) {
        uint32_t v = nest->stores[i].value;
        s->needed[v] |= 1u << s->stage[v];
    }
    for (uint32_t i = nest->n_stmts; i-- > 0;) {
        const nest_stmt_t *stmt = &nest->stmts[i];
        /* what is reduced is computed in the stage of the reduction, all else where it is used */
        uint32_t in = stmt->kind == NEST_REDUCE ? 1u << s->stage[i] : s->needed[i];
        for (uint32_t a = 0; a < stmt->n_args; a++) s->needed[stmt->args[a]] |= in;
        if (stmt->kind != NEST_LOAD || stmt->domain == NEST_NONE) continue;
        int again = __builtin_popcount(s->needed[i]) - 1;
        if (again > 0)
            bytes += again * (double)nest_points(&nest->domains[stmt->domain], stmt->mask) *
                     (double)ir_dtype_bytes(stmt->access.dtype);
    }
    return bytes;
}

static st_status_t add_passes(const judge_t *judge, const nest_t *nest, judgement_t *out) {
    const ir_machine_t *machine = judge->target->machine;
    stages_t stages = {.nest = nest};
    st_status_t status = ST_OK;
    for (int i = IR_CACHES; i-- > 0;)
        if (machine->cache_bytes[i] >= MIN_CACHE_BYTES)
            stages.cache_bytes = machine->cache_bytes[i];
    stages.stage = st_calloc(nest->n_stmts, sizeof *stages.stage);
    stages.needed = st_calloc(nest->n_stmts, sizeof *stages.needed);
    if (!stages.stage || !stages.needed)
        TRY_GOTO(st_no_memory(nest->n_stmts * sizeof *stages.needed, "a nest's stages"), done);
    double bytes = bytes_again(&stages);
    out->cost.bytes_read += bytes;
    out->cost.us += bytes / machine->memory_gbps * 1e-3;
done:
    st_free(stages.stage);
    st_free(stages.needed);
    return status;
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
    out->reason = out->legal ? "" : st_arena_strdup(&judge->arena, reason);
    if (!out->reason) TRY_GOTO(st_no_memory(0, "a reason"), done);
    if (region->nodes.n == 1) {
        TRY_GOTO(ask_single(judge, regions, &out->cost), done);
    } else if (out->legal) {
        const ir_attr_t attr = {.kind = IR_ATTR_GRAPH, .graph = body};
        TRY_GOTO(ask_cost(judge, regions, IR_OP_FUSED, &attr, (uint32_t)region->inputs.n,
                          region->inputs.data, (uint32_t)region->outputs.n, region->outputs.data,
                          &out->cost),
                 done);
        TRY_GOTO(add_passes(judge, nest, out), done);
        TRY_GOTO(find_reuse(judge, regions, nest, out), done);
    }
done:
    nest_destroy(nest);
    ir_graph_destroy(body);
    return status;
}

st_status_t judge_region(judge_t *judge, regions_t *regions, const judgement_t **out_judgement) {
    if (judge->n >= judge->capacity / 2) TRY(grow(judge));
    uint64_t hash = regions_hash(regions);
    const judgement_t **slot = find(judge, hash);
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
