/* The search of the fuse pass (fuse.h). */
#include "fusion/fuse.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "fusion/decision.h"
#include "fusion/like.h"
#include "fusion/multi.h"
#include "fusion/queue.h"

enum {
    MAX_ROUNDS = 4,
    SIBLING_DISTANCE = 256,   /* positions between two readers of one value */
    SIBLING_MIN_BYTES = 4096, /* of the value that they share */
    SCALAR_BYTES = 16,
    MAX_FAN_OUT = 32, /* readers of a value that are looked at when a group has changed */
};

/* ---- life ---- */

void fuse_decision_destroy(fuse_decision_t *d) {
    if (!d) return;
    regions_close(&d->regions);
    groups_close(&d->groups);
    copies_close(&d->copies);
    judge_close(&d->judge);
    st_free(d->chain);
    st_free(d->fusable_given);
    st_free(d->fusable);
    st_free(d->updates);
    st_free(d->us);
    st_free(d->fused);
    st_free(d->alone);
    st_free(d->sums);
    ST_VEC_FREE(&d->unlike);
    st_free(d->order);
    st_free(d->names);
    st_arena_clear(&d->arena);
    st_free(d);
}

bool fuse_is_candidate(const ir_graph_t *graph, ir_node_t n) {
    const ir_node_info_t *node = ir_node(graph, n);
    const uint32_t never = IR_SIDE_EFFECT | IR_COLLECTIVE | IR_STATE | IR_CONTRACTION;
    if ((ir_op_def(node->op)->flags & never) || node->op == IR_OP_INPUT || !node->n_outputs)
        return false;
    return node->op != IR_OP_CONSTANT || copies_is_splat(graph, node);
}

/* Which nodes of the given graph have a nest by themselves. */
static st_status_t find_fusable(fuse_decision_t *d, const ir_graph_t *graph) {
    groups_t groups;
    regions_t regions = {0};
    st_status_t status = ST_OK;
    TRY(groups_open(graph, &groups));
    TRY_GOTO(regions_open(&groups, &regions), done);
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        const judgement_t *judgement;
        if (!fuse_is_candidate(graph, n)) continue;
        TRY_GOTO(regions_collect(&regions, 1, &n), done);
        TRY_GOTO(judge_region(&d->judge, &regions, &judgement), done);
        d->fusable_given[n] = judgement->legal;
        if (judgement->adds) TRY_GOTO(judge_sums(&d->judge, &regions, &d->alone[n]), done);
    }
done:
    regions_close(&regions);
    groups_close(&groups);
    return status;
}

/* A view that something outside of all groups reads: it costs nothing, as an output it would. */
static bool is_shared_view(const fuse_decision_t *d, ir_node_t n) {
    const ir_graph_t *graph = d->copies.graph;
    const ir_node_info_t *node = ir_node(graph, n);
    const ir_uses_t *uses = &d->groups.uses;
    if (!(ir_op_def(node->op)->flags & IR_VIEW)) return false;
    if (d->regions.is_output[node->first_output]) return true;
    uint32_t end = uses->first[node->first_output + 1];
    for (uint32_t u = uses->first[node->first_output]; u < end; u++)
        if (!d->fusable_given[d->copies.origin[uses->node[u]]]) return true;
    return false;
}

static st_status_t open_groups(fuse_decision_t *d) {
    size_t n = d->copies.graph->nodes.n;
    TRY(groups_open(d->copies.graph, &d->groups));
    TRY(regions_open(&d->groups, &d->regions));
    d->fusable = st_calloc(n, sizeof *d->fusable);
    d->updates = st_calloc(n, sizeof *d->updates);
    d->us = st_calloc(n, sizeof *d->us);
    d->fused = st_calloc(n, sizeof *d->fused);
    d->sums = st_calloc(n, sizeof *d->sums);
    d->order = st_calloc(n, sizeof *d->order);
    d->names = st_calloc(n, sizeof *d->names);
    if (!d->fusable || !d->updates || !d->us || !d->fused || !d->sums || !d->order || !d->names)
        return st_no_memory(n * sizeof *d->us, "the fuse pass");
    for (ir_node_t i = 0; i < n; i++) {
        ir_cost_t cost;
        d->fusable[i] = d->fusable_given[d->copies.origin[i]] && !is_shared_view(d, i);
        TRY(ir_target_cost(&d->target, d->copies.graph, i, &cost));
        d->us[i] = cost.us;
        d->sums[i] = d->alone[d->copies.origin[i]];
        const ir_node_info_t *node = ir_node(d->copies.graph, i);
        if (node->op != IR_OP_UPDATE) continue;
        const ir_node_t maker = d->copies.graph->values.data[node->inputs[1]].producer;
        d->updates[maker] = d->fusable[maker];
    }
    return ST_OK;
}

/* ---- joining ---- */

/* Whether what the region at hand makes for states that it reads may be written over them. */
static bool keeps_in_place(const fuse_decision_t *d, const judgement_t *judgement) {
    const ir_graph_t *graph = d->copies.graph;
    const region_t *region = &d->regions.region;
    const ir_uses_t *uses = &d->groups.uses;
    for (size_t k = 0; k < region->outputs.n; k++) {
        ir_value_t v = region->outputs.data[k];
        for (uint32_t u = uses->first[v]; u < uses->first[v + 1]; u++) {
            const ir_node_info_t *update = ir_node(graph, uses->node[u]);
            if (update->op != IR_OP_UPDATE || update->inputs[1] != v) continue;
            for (size_t j = 0; j < region->inputs.n; j++)
                if (region->inputs.data[j] == update->inputs[0] &&
                    !(judgement->reuse && judgement->reuse[k] >> j & 1))
                    return false;
        }
    }
    return true;
}

/* Whether nothing outside the region at hand reads the value, so that its memory is free after
 * it. */
static bool dies(const fuse_decision_t *d, ir_value_t v, uint32_t n, const group_t *list) {
    const ir_graph_t *graph = d->copies.graph;
    const ir_uses_t *uses = &d->groups.uses;
    const uint32_t lasting = IR_STATE | IR_SOURCE;
    if (d->regions.is_output[v] || (ir_op_def(ir_value_producer(graph, v)->op)->flags & lasting))
        return false;
    for (uint32_t u = uses->first[v]; u < uses->first[v + 1]; u++) {
        group_t g = d->groups.of[uses->node[u]];
        if (g != list[0] && (n < 2 || g != list[1])) return false;
    }
    return true;
}

/* Whether output k of the region may stand in the memory of input j: by its nest, or for a node
 * alone by the op's row. */
static bool may_reuse(const fuse_decision_t *d, const judgement_t *judgement, size_t k, size_t j) {
    const region_t *region = &d->regions.region;
    const ir_graph_t *graph = d->copies.graph;
    if (region->nodes.n == 1) {
        const ir_node_info_t *node = ir_node(graph, region->nodes.data[0]);
        const ir_op_def_t *def = ir_op_def(node->op);
        uint32_t index = graph->values.data[region->outputs.data[k]].index;
        if (def->flags & (IR_ELEMENTWISE | IR_VIEW)) return true;
        return index < sizeof def->reuse && def->reuse[index] &&
               node->inputs[def->reuse[index] - 1] == region->inputs.data[j];
    }
    return judgement->reuse && judgement->reuse[k] >> j & 1;
}

/* Bytes of the region at hand that are alive for its sake: results, and operands that die with it,
 * but for results that stand in such an operand. */
static double live_bytes(const fuse_decision_t *d, const judgement_t *judgement, uint32_t n,
                         const group_t *list) {
    const region_t *region = &d->regions.region;
    const ir_graph_t *graph = d->copies.graph;
    uint64_t taken = 0;
    double bytes = 0;
    for (size_t j = 0; j < region->inputs.n; j++)
        if (dies(d, region->inputs.data[j], n, list))
            bytes += (double)ir_type_bytes(ir_value_type(graph, region->inputs.data[j]));
    for (size_t k = 0; k < region->outputs.n; k++) {
        double size = (double)ir_type_bytes(ir_value_type(graph, region->outputs.data[k]));
        bytes += size;
        for (size_t j = 0; j < region->inputs.n && j < 64; j++) {
            ir_value_t v = region->inputs.data[j];
            if ((taken >> j & 1) || !may_reuse(d, judgement, k, j) || !dies(d, v, n, list) ||
                (double)ir_type_bytes(ir_value_type(graph, v)) != size)
                continue;
            taken |= (uint64_t)1 << j;
            bytes -= size;
            break;
        }
    }
    return bytes;
}

/* How much more is alive in a and b at once, whose region is at hand, than in the larger of a, and
 * b beside what a leaves. */
static st_status_t bytes_more(fuse_decision_t *d, group_t a, group_t b,
                              const judgement_t *judgement, double *out_bytes) {
    const ir_graph_t *graph = d->copies.graph;
    const region_t *region = &d->regions.region;
    if (d->groups.position[a] > d->groups.position[b]) {
        group_t first = b;
        b = a;
        a = first;
    }
    const group_t both[2] = {a, b};
    double together = live_bytes(d, judgement, 2, both), left = 0, apart = 0;
    for (size_t k = 0; k < region->outputs.n; k++) {
        ir_value_t v = region->outputs.data[k];
        if (d->groups.of[graph->values.data[v].producer] == a)
            left += (double)ir_type_bytes(ir_value_type(graph, v));
    }
    for (int i = 0; i < 2; i++) {
        const judgement_t *alone;
        TRY(regions_collect(&d->regions, 1, &both[i]));
        TRY(judge_region(&d->judge, &d->regions, &alone));
        double bytes = live_bytes(d, alone, 1, &both[i]) + (i ? left : 0);
        if (bytes > apart) apart = bytes;
    }
    *out_bytes = together > apart ? together - apart : 0;
    return ST_OK;
}

static uint32_t slot_of(const fuse_decision_t *d, group_t g) {
    return ir_node(d->copies.graph, d->groups.first[g])->slot;
}

st_status_t fuse_try(fuse_decision_t *d, group_t a, group_t b, fuse_verdict_t *out) {
    const group_t both[2] = {a, b};
    const region_t *region = &d->regions.region;
    groups_verdict_t verdict;
    const judgement_t *judgement;
    *out = (fuse_verdict_t){.why = FUSE_WHY_END, .us_apart = d->us[a] + d->us[b]};
    if (d->groups.size[a] + d->groups.size[b] > FUSE_MAX_NODES) {
        out->why = FUSE_SIZE;
        return ST_OK;
    }
    if (slot_of(d, a) != slot_of(d, b)) {
        out->why = FUSE_SLOT;
        return ST_OK;
    }
    TRY(groups_test(&d->groups, a, b, &verdict, &out->third));
    if (verdict != GROUPS_FREE) {
        out->why = verdict == GROUPS_CYCLE ? FUSE_CYCLE : FUSE_FAR;
        return ST_OK;
    }
    TRY(regions_collect(&d->regions, 2, both));
    if (region->inputs.n + region->outputs.n > FUSE_MAX_TENSORS) {
        out->why = FUSE_SIZE;
        return ST_OK;
    }
    TRY(judge_region(&d->judge, &d->regions, &judgement));
    if (!judgement->legal) {
        out->why = FUSE_NO_NEST;
        out->reason = judgement->reason;
        return ST_OK;
    }
    if (!keeps_in_place(d, judgement)) {
        out->why = FUSE_IN_PLACE;
        return ST_OK;
    }
    out->us_together = judgement->cost.us;
    bool alike;
    TRY(fuse_keeps_sums(d, a, b, &alike));
    if (!alike) {
        out->why = FUSE_SUMS;
        return ST_OK;
    }
    if (!(out->us_together < out->us_apart)) {
        out->why = FUSE_COST;
        return ST_OK;
    }
    TRY(bytes_more(d, a, b, judgement, &out->bytes_more));
    double saved = (out->us_apart - out->us_together) * d->target.machine->memory_gbps * 1e3;
    if (out->bytes_more > FUSE_MEMORY_PRICE * saved) out->why = FUSE_MEMORY;
    return ST_OK;
}

static st_status_t join(fuse_decision_t *d, group_t a, group_t b, double us, bool fused,
                        group_t *out_joined) {
    const uint64_t sums = d->sums[a] ? d->sums[a] : d->sums[b];
    TRY(groups_join(&d->groups, a, b, out_joined));
    d->sums[*out_joined] = sums;
    d->us[*out_joined] = us;
    d->fused[*out_joined] = fused;
    return ST_OK;
}

/* The one group that reads what node n makes; IR_NONE if there are several, or none. */
static group_t only_reader(const fuse_decision_t *d, ir_node_t n) {
    const ir_node_info_t *node = ir_node(d->copies.graph, n);
    const ir_uses_t *uses = &d->groups.uses;
    group_t reader = IR_NONE;
    if (d->regions.is_output[node->first_output]) return IR_NONE;
    for (uint32_t u = uses->first[node->first_output]; u < uses->first[node->first_output + 1];
         u++) {
        group_t g = d->groups.of[uses->node[u]];
        if (reader != IR_NONE && g != reader) return IR_NONE;
        reader = g;
    }
    return reader;
}

/* Copies join their readers where that is legal. Readers come after what they read, so that a chain
 * of copies joins link by link. */
static st_status_t attach_copies(fuse_decision_t *d) {
    for (ir_node_t n = (ir_node_t)d->copies.graph->nodes.n; n-- > 0;) {
        fuse_verdict_t verdict;
        group_t joined;
        if (!d->chain[d->copies.origin[n]] || !d->fusable[n]) continue;
        if (d->groups.size[d->groups.of[n]] > 1) continue; /* with its reader already (like.h) */
        group_t reader = only_reader(d, n);
        if (reader == IR_NONE || !d->fusable[d->groups.first[reader]]) continue;
        TRY(fuse_try(d, reader, n, &verdict));
        if (verdict.why != FUSE_WHY_END && verdict.why != FUSE_COST) continue;
        /* what costs nothing by itself is no reason for a node, nor is what does not pay yet */
        bool fused = d->fused[reader] || (verdict.why == FUSE_WHY_END && d->us[n] > 0);
        TRY(join(d, reader, n, fused ? verdict.us_together : verdict.us_apart, fused, &joined));
    }
    return ST_OK;
}

/* ---- the queue ---- */

typedef struct search {
    fuse_decision_t *d;
    queue_t queue;
    bool siblings; /* pairs of readers too */
    size_t n_joined;
} search_t;

/* Bytes that a and b together need not move: what one makes and the other reads, and what both
 * read. */
static double shared_bytes(search_t *s, group_t a, group_t b) {
    fuse_decision_t *d = s->d;
    const ir_graph_t *graph = d->copies.graph;
    regions_t *regions = &d->regions;
    double bytes = 0;
    uint32_t inside_a = ++regions->now, counted = ++regions->now;
    for (ir_node_t n = d->groups.first[a]; n != IR_NONE; n = d->groups.next[n]) {
        const ir_node_info_t *node = ir_node(graph, n);
        for (uint32_t j = 0; j < node->n_inputs; j++)
            regions->slots[node->inputs[j]].stamp = inside_a;
        for (uint32_t k = 0; k < node->n_outputs; k++)
            regions->slots[node->first_output + k].stamp = inside_a;
    }
    for (ir_node_t n = d->groups.first[b]; n != IR_NONE; n = d->groups.next[n]) {
        const ir_node_info_t *node = ir_node(graph, n);
        for (uint32_t j = 0; j < node->n_inputs; j++) {
            ir_value_t v = node->inputs[j];
            if (regions->slots[v].stamp != inside_a) continue;
            regions->slots[v].stamp = counted;
            double size = (double)ir_type_bytes(ir_value_type(graph, v));
            uint32_t n_uses = d->groups.uses.first[v + 1] - d->groups.uses.first[v];
            bool made = d->groups.of[graph->values.data[v].producer] == a;
            bytes += made && n_uses == 1 && !regions->is_output[v] ? 2 * size : size;
        }
        for (uint32_t k = 0; k < node->n_outputs; k++)
            if (regions->slots[node->first_output + k].stamp == inside_a)
                bytes += (double)ir_type_bytes(ir_value_type(graph, node->first_output + k));
    }
    return bytes;
}

static bool is_open(const fuse_decision_t *d, group_t g) {
    return d->fusable[d->groups.first[g]];
}

static st_status_t push(search_t *s, group_t a, group_t b) {
    fuse_decision_t *d = s->d;
    const ir_machine_t *machine = d->target.machine;
    if (a == b || !is_open(d, a) || !is_open(d, b)) return ST_OK;
    if (d->groups.size[a] + d->groups.size[b] > FUSE_MAX_NODES) return ST_OK;
    if (slot_of(d, a) != slot_of(d, b)) return ST_OK;
    double bytes = shared_bytes(s, a, b);
    if (bytes <= SCALAR_BYTES && (multi_makes_state(d, a) || multi_makes_state(d, b)))
        return ST_OK; /* what only a learning rate connects is for multi.h */
    double us = bytes / machine->memory_gbps * 1e-3 + machine->launch_us;
    return queue_push(&s->queue, us, d->groups.first[a], d->groups.first[b]);
}

/* Readers of one value, neighbours in order. */
static st_status_t push_readers(search_t *s, ir_value_t v) {
    fuse_decision_t *d = s->d;
    const groups_t *groups = &d->groups;
    group_t last = IR_NONE;
    if ((double)ir_type_bytes(ir_value_type(d->copies.graph, v)) < SIBLING_MIN_BYTES) return ST_OK;
    for (uint32_t u = groups->uses.first[v]; u < groups->uses.first[v + 1]; u++) {
        group_t g = groups->of[groups->uses.node[u]];
        if (!is_open(d, g) || g == last) continue;
        if (last != IR_NONE) {
            uint32_t x = groups->position[g], y = groups->position[last];
            ir_phase_t phase = ir_node(d->copies.graph, groups->first[g])->phase;
            if ((x > y ? x - y : y - x) <= SIBLING_DISTANCE &&
                phase == ir_node(d->copies.graph, groups->first[last])->phase)
                TRY(push(s, last, g));
        }
        last = g;
    }
    return ST_OK;
}

/* All pairs that the node is part of. */
static st_status_t push_node(search_t *s, ir_node_t n, bool inputs, uint32_t max_fan_out) {
    fuse_decision_t *d = s->d;
    const ir_graph_t *graph = d->copies.graph;
    const ir_node_info_t *node = ir_node(graph, n);
    group_t own = d->groups.of[n];
    for (uint32_t j = 0; inputs && j < node->n_inputs; j++)
        TRY(push(s, d->groups.of[graph->values.data[node->inputs[j]].producer], own));
    for (uint32_t k = 0; k < node->n_outputs; k++) {
        ir_value_t v = node->first_output + k;
        uint32_t begin = d->groups.uses.first[v], end = d->groups.uses.first[v + 1];
        if (end - begin > max_fan_out) end = begin + max_fan_out;
        for (uint32_t u = begin; u < end; u++)
            TRY(push(s, own, d->groups.of[d->groups.uses.node[u]]));
        if (s->siblings && !inputs) TRY(push_readers(s, v));
    }
    return ST_OK;
}

static st_status_t take(search_t *s, const queue_pair_t *pair) {
    fuse_decision_t *d = s->d;
    group_t a = d->groups.of[pair->a], b = d->groups.of[pair->b], joined;
    fuse_verdict_t verdict;
    if (a == b || queue_refused(&s->queue, a, d->groups.size[a], b, d->groups.size[b]))
        return ST_OK;
    TRY(fuse_try(d, a, b, &verdict));
    if (verdict.why != FUSE_WHY_END)
        return queue_refuse(&s->queue, a, d->groups.size[a], b, d->groups.size[b]);
    TRY(join(d, a, b, verdict.us_together, true, &joined));
    s->n_joined++;
    /* the smaller part's members now stand at the end of the list */
    for (ir_node_t n = d->groups.first[joined == a ? b : a]; n != IR_NONE; n = d->groups.next[n])
        TRY(push_node(s, n, true, MAX_FAN_OUT));
    return ST_OK;
}

/* One round over all pairs. */
static st_status_t run_round(fuse_decision_t *d, bool siblings, size_t *out_joined) {
    search_t s = {.d = d, .siblings = siblings};
    queue_pair_t pair;
    st_status_t status = ST_OK;
    for (ir_node_t n = 0; n < d->copies.graph->nodes.n; n++)
        TRY_GOTO(push_node(&s, n, false, UINT32_MAX), done);
    while (queue_pop(&s.queue, &pair)) TRY_GOTO(take(&s, &pair), done);
    *out_joined = s.n_joined;
done:
    queue_close(&s.queue);
    return status;
}

/* ---- names ---- */

/* "f3:add+rms_norm": number in order and the ops that cost something, as far as they fit. */
static st_status_t name_group(fuse_decision_t *d, group_t g, uint32_t number) {
    char name[64];
    int used = snprintf(name, sizeof name, "f%u:", number);
    const char *last = "";
    bool first = true;
    TRY(regions_collect(&d->regions, 1, &g));
    for (size_t i = 0; i < d->regions.region.nodes.n; i++) {
        ir_node_t n = d->regions.region.nodes.data[i];
        const char *op = ir_op_def(ir_node(d->copies.graph, n)->op)->name;
        if (d->chain[d->copies.origin[n]] || strcmp(op, last) == 0) continue;
        if ((size_t)used + strlen(op) + 2 > sizeof name) break;
        used += snprintf(name + used, sizeof name - (size_t)used, "%s%s", first ? "" : "+", op);
        first = false;
        last = op;
    }
    d->names[g] = st_arena_strdup(&d->arena, name);
    return d->names[g] ? ST_OK : st_no_memory(0, "a name");
}

static st_status_t name_groups(fuse_decision_t *d) {
    uint32_t number = 0;
    group_t last = IR_NONE;
    for (size_t i = 0; i < d->copies.graph->nodes.n; i++) {
        group_t g = d->groups.of[d->order[i]];
        if (g == last) continue;
        last = g;
        if (d->fused[g]) TRY(name_group(d, g, number++));
    }
    return ST_OK;
}

/* ---- entry ---- */

static st_status_t decide(fuse_decision_t *d, const ir_graph_t *graph) {
    copies_mark(graph, d->chain);
    TRY(find_fusable(d, graph));
    TRY(copies_make(graph, d->chain, d->fusable_given, &d->copies));
    TRY(open_groups(d));
    if (d->like) TRY(fuse_begin_like(d));
    TRY(attach_copies(d));
    size_t n_joined;
    TRY(run_round(d, false, &n_joined)); /* what feeds what comes before siblings */
    for (int round = 1; round < MAX_ROUNDS; round++) {
        TRY(run_round(d, true, &n_joined));
        if (!n_joined) break;
    }
    TRY(multi_fuse(d));
    TRY(groups_order(&d->groups, d->order));
    if (!d->like) TRY(fuse_note_sums(d));
    return name_groups(d);
}

st_status_t fuse_decide(const ir_graph_t *graph, const ir_target_t *target,
                        const fuse_decision_t *like, fuse_decision_t **out_decision) {
    *out_decision = NULL;
    ASSERT(target->machine && target->cost);
    fuse_decision_t *d = st_calloc(1, sizeof *d);
    st_status_t status = ST_OK;
    if (!d) return st_no_memory(sizeof *d, "the fuse pass");
    d->target = *target;
    d->judge.target = &d->target;
    d->like = like;
    d->n_given = graph->nodes.n;
    d->chain = st_calloc(d->n_given, sizeof *d->chain);
    d->fusable_given = st_calloc(d->n_given, sizeof *d->fusable_given);
    d->alone = st_calloc(d->n_given, sizeof *d->alone);
    if (!d->chain || !d->fusable_given || !d->alone)
        TRY_GOTO(st_no_memory(d->n_given, "the fuse pass"), fail);
    TRY_GOTO(decide(d, graph), fail);
    *out_decision = d;
    return ST_OK;
fail:
    fuse_decision_destroy(d);
    return status;
}
