/* Keeping sums (like.h). */
#include "fusion/like.h"

#include "base/memory.h"

/* By origin - 1: where the model has a node, and how it adds up there. */
typedef struct alike {
    fuse_decision_t *d;
    uint32_t n_origins;
    group_t *group;  /* [origins]: of the model, where it is one node; IR_NONE */
    uint64_t *sums;  /* [origins]: of the model's group; 0: none */
    group_t *wanted; /* [nodes]: the model's group that it has to be in; IR_NONE: any */
    bool *named;     /* [origins]: is in d->unlike */
} alike_t;

static const ir_node_info_t *node_at(const fuse_decision_t *d, ir_node_t n) {
    return ir_node(d->copies.graph, n);
}

static bool is_chain(const fuse_decision_t *d, ir_node_t n) {
    return d->chain[d->copies.origin[n]] != 0;
}

/* ---- the model ---- */

st_status_t fuse_note_sums(fuse_decision_t *d) {
    for (ir_node_t n = 0; n < d->copies.graph->nodes.n; n++) {
        const group_t g = d->groups.of[n];
        if (d->groups.first[g] != n || !d->fused[g]) continue;
        bool adds = false;
        for (ir_node_t m = n; m != IR_NONE; m = d->groups.next[m])
            adds |= d->alone[d->copies.origin[m]] != 0;
        d->sums[g] = 0;
        if (!adds) continue;
        TRY(regions_collect(&d->regions, 1, &g));
        TRY(judge_sums(&d->judge, &d->regions, &d->sums[g]));
    }
    return ST_OK;
}

void fuse_mark_late(const fuse_decision_t *d, bool *out) {
    for (ir_node_t first = 0; first < d->copies.graph->nodes.n; first++) {
        const group_t g = d->groups.of[first];
        if (d->groups.first[g] != first || !d->fused[g] || !d->sums[g]) continue;
        bool late = false;
        for (ir_node_t n = first; n != IR_NONE; n = d->groups.next[n])
            late |= node_at(d, n)->phase != IR_PHASE_FORWARD && !is_chain(d, n);
        for (ir_node_t n = first; late && n != IR_NONE; n = d->groups.next[n])
            if (node_at(d, n)->origin && !is_chain(d, n)) out[node_at(d, n)->origin - 1] = true;
    }
}

const ir_node_t *fuse_unlike(const fuse_decision_t *d, size_t *out_n) {
    *out_n = d->unlike.n;
    return d->unlike.data;
}

/* ---- what stands against it ---- */

/* Names the node that runs again, or what the view that does is of. */
static st_status_t name(alike_t *a, ir_node_t n) {
    const ir_graph_t *graph = a->d->copies.graph;
    while ((ir_op_def(ir_node(graph, n)->op)->flags & IR_VIEW) && ir_node(graph, n)->n_inputs)
        n = graph->values.data[ir_node(graph, n)->inputs[0]].producer;
    const ir_node_info_t *node = ir_node(graph, n);
    if (!node->again || !node->origin || a->named[node->origin - 1]) return ST_OK;
    a->named[node->origin - 1] = true;
    return ST_VEC_PUSH(&a->d->unlike, node->origin - 1);
}

static st_status_t name_read(alike_t *a, group_t g) {
    const fuse_decision_t *d = a->d;
    for (ir_node_t n = d->groups.first[g]; n != IR_NONE; n = d->groups.next[n]) {
        TRY(name(a, n));
        for (uint32_t j = 0; j < node_at(d, n)->n_inputs; j++)
            TRY(name(a, d->copies.graph->values.data[node_at(d, n)->inputs[j]].producer));
    }
    return ST_OK;
}

/* All that runs again of what the model has in its group; failing that all that runs again. */
static st_status_t name_all(alike_t *a, group_t model) {
    const fuse_decision_t *d = a->d;
    const size_t before = d->unlike.n;
    for (int turn = 0; turn < 2 && d->unlike.n == before; turn++)
        for (ir_node_t n = 0; n < d->copies.graph->nodes.n; n++) {
            const ir_node_info_t *node = node_at(d, n);
            if (node->again && node->origin && (turn || a->group[node->origin - 1] == model))
                TRY(name(a, n));
        }
    return ST_OK;
}

/* ---- beginning ---- */

static void find_model(alike_t *a) {
    const fuse_decision_t *like = a->d->like;
    for (uint32_t i = 0; i < a->n_origins; i++) a->group[i] = IR_NONE;
    for (ir_node_t n = 0; n < like->copies.graph->nodes.n; n++) {
        const ir_node_info_t *node = node_at(like, n);
        const group_t g = like->groups.of[n];
        if (!node->origin || is_chain(like, n)) continue;
        a->sums[node->origin - 1] = like->sums[g];
        if (like->fused[g] && like->sums[g]) a->group[node->origin - 1] = g;
    }
}

/* The model's group of each node: of an original its own, of a copy of what is cheap its
 * reader's. */
static void find_wanted(alike_t *a) {
    const fuse_decision_t *d = a->d;
    const ir_uses_t *uses = &d->groups.uses;
    for (ir_node_t n = (ir_node_t)d->copies.graph->nodes.n; n-- > 0;) {
        const ir_node_info_t *node = node_at(d, n);
        a->wanted[n] = IR_NONE;
        if (!is_chain(d, n)) {
            if (node->origin && !node->again) a->wanted[n] = a->group[node->origin - 1];
            continue;
        }
        if (!d->fusable[n] || d->regions.is_output[node->first_output]) continue;
        const uint32_t begin = uses->first[node->first_output];
        const uint32_t end = uses->first[node->first_output + 1];
        group_t wanted = begin < end ? a->wanted[uses->node[begin]] : IR_NONE;
        for (uint32_t u = begin; u < end; u++)
            if (a->wanted[uses->node[u]] != wanted) wanted = IR_NONE;
        a->wanted[n] = wanted;
    }
}

/* Joins the node to what is there of its group. */
static st_status_t join_wanted(alike_t *a, ir_node_t n, group_t *so_far, bool *failed) {
    fuse_decision_t *d = a->d;
    const group_t model = a->wanted[n], own = d->groups.of[n];
    groups_verdict_t verdict;
    group_t third;
    if (!d->fusable[n]) failed[model] = true;
    if (failed[model] || so_far[model] == IR_NONE) {
        so_far[model] = own;
        return ST_OK;
    }
    TRY(groups_test(&d->groups, so_far[model], own, &verdict, &third));
    failed[model] = verdict != GROUPS_FREE;
    if (failed[model]) return ST_OK;
    return groups_join(&d->groups, so_far[model], own, &so_far[model]);
}

/* A group of the model is there: one node, which adds up as the model's does. */
static st_status_t check_joined(alike_t *a, group_t model, group_t g, bool failed) {
    fuse_decision_t *d = a->d;
    const judgement_t *judgement;
    uint64_t sums = 0;
    if (failed) return name_all(a, model);
    TRY(regions_collect(&d->regions, 1, &g));
    TRY(judge_region(&d->judge, &d->regions, &judgement));
    if (judgement->legal) TRY(judge_sums(&d->judge, &d->regions, &sums));
    const bool several = d->groups.size[g] > 1;
    d->fused[g] = several && judgement->legal;
    d->us[g] = judgement->cost.us;
    d->sums[g] = sums;
    if (sums == d->like->sums[model]) return ST_OK;
    const size_t before = d->unlike.n;
    TRY(name_read(a, g));
    return d->unlike.n > before ? ST_OK : name_all(a, model);
}

static st_status_t join_all(alike_t *a, group_t *so_far, bool *failed) {
    const fuse_decision_t *d = a->d;
    const size_t n_model = d->like->copies.graph->nodes.n;
    for (size_t g = 0; g < n_model; g++) so_far[g] = IR_NONE;
    for (ir_node_t n = 0; n < d->copies.graph->nodes.n; n++)
        if (a->wanted[n] != IR_NONE) TRY(join_wanted(a, n, so_far, failed));
    for (group_t g = 0; g < n_model; g++)
        if (so_far[g] != IR_NONE) TRY(check_joined(a, g, so_far[g], failed[g]));
    return ST_OK;
}

/* What has not been joined, the copies that run again above all. */
static st_status_t check_alone(alike_t *a) {
    const fuse_decision_t *d = a->d;
    for (ir_node_t n = 0; n < d->copies.graph->nodes.n; n++) {
        const ir_node_info_t *node = node_at(d, n);
        if (a->wanted[n] != IR_NONE || !node->origin || !d->alone[d->copies.origin[n]]) continue;
        if (d->alone[d->copies.origin[n]] != a->sums[node->origin - 1]) TRY(name(a, n));
    }
    return ST_OK;
}

static uint32_t count_origins(const fuse_decision_t *d) {
    uint32_t most = 0;
    for (ir_node_t n = 0; n < d->copies.graph->nodes.n; n++)
        if (node_at(d, n)->origin > most) most = node_at(d, n)->origin;
    return most;
}

st_status_t fuse_begin_like(fuse_decision_t *d) {
    const size_t n_nodes = d->copies.graph->nodes.n, n_model = d->like->copies.graph->nodes.n;
    const uint32_t own = count_origins(d), theirs = count_origins(d->like);
    st_arena_t arena = {0};
    alike_t a = {.d = d, .n_origins = own > theirs ? own : theirs};
    a.group = st_arena_array(&arena, a.n_origins + 1, sizeof *a.group);
    a.sums = st_arena_array(&arena, a.n_origins + 1, sizeof *a.sums);
    a.named = st_arena_array(&arena, a.n_origins + 1, sizeof *a.named);
    a.wanted = st_arena_array(&arena, n_nodes + 1, sizeof *a.wanted);
    group_t *so_far = st_arena_array(&arena, n_model + 1, sizeof *so_far);
    bool *failed = st_arena_array(&arena, n_model + 1, sizeof *failed);
    st_status_t status = ST_OK;
    if (!a.group || !a.sums || !a.named || !a.wanted || !so_far || !failed)
        TRY_GOTO(st_no_memory(n_nodes * sizeof *a.wanted, "the fuse pass"), done);
    find_model(&a);
    find_wanted(&a);
    TRY_GOTO(join_all(&a, so_far, failed), done);
    TRY_GOTO(check_alone(&a), done);
done:
    st_arena_clear(&arena);
    return status;
}

/* ---- joining ---- */

st_status_t fuse_keeps_sums(fuse_decision_t *d, group_t a, group_t b, bool *out_alike) {
    uint64_t together;
    *out_alike = true;
    if (!d->like || (!d->sums[a] && !d->sums[b])) return ST_OK;
    *out_alike = false;
    if (d->sums[a] && d->sums[b]) return ST_OK;
    TRY(judge_sums(&d->judge, &d->regions, &together));
    *out_alike = together == (d->sums[a] ? d->sums[a] : d->sums[b]);
    return ST_OK;
}
