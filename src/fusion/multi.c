/* Multi-tensor nodes (multi.h). */
#include "fusion/multi.h"

#include <stdlib.h>

/* A group to be joined with others. */
typedef struct member {
    group_t group;
    uint32_t level, position, slot;
    uint32_t n_tensors;
    uint64_t bytes; /* of operands other than states */
} member_t;

typedef ST_VEC(member_t) members_t;

static st_status_t add_member(fuse_decision_t *d, group_t g, members_t *members) {
    const ir_graph_t *graph = d->copies.graph;
    const region_t *region = &d->regions.region;
    member_t member = {.group = g,
                       .position = d->groups.position[g],
                       .slot = ir_node(graph, d->groups.first[g])->slot};
    TRY(regions_collect(&d->regions, 1, &g));
    member.n_tensors = (uint32_t)(region->inputs.n + region->outputs.n);
    for (size_t i = 0; i < region->inputs.n; i++) {
        ir_value_t v = region->inputs.data[i];
        if (!(ir_op_def(ir_value_producer(graph, v)->op)->flags & IR_STATE))
            member.bytes += ir_type_bytes(ir_value_type(graph, v));
    }
    return ST_VEC_PUSH(members, member);
}

static int by_level(const void *a, const void *b) {
    const member_t *x = a, *y = b;
    if (x->level != y->level) return x->level < y->level ? -1 : 1;
    if (x->slot != y->slot) return x->slot < y->slot ? -1 : 1;
    return x->position < y->position ? -1 : x->position > y->position;
}

bool multi_makes_state(const fuse_decision_t *d, group_t g) {
    for (ir_node_t n = d->groups.first[g]; n != IR_NONE; n = d->groups.next[n])
        if (d->updates[n]) return true;
    return false;
}

/* The groups, level by level, each in the order of the program. */
static st_status_t find_members(fuse_decision_t *d, members_t *members) {
    size_t n = d->copies.graph->nodes.n;
    bool *marked = st_calloc(n, sizeof *marked);
    uint32_t *level = st_calloc(n, sizeof *level);
    st_status_t status = ST_OK;
    if (!marked || !level) TRY_GOTO(st_no_memory(n * sizeof *level, "the fuse pass"), done);
    for (ir_node_t i = 0; i < n; i++) {
        group_t g = d->groups.of[i];
        if (marked[g] || !d->updates[i]) continue;
        if (d->like && d->sums[g]) continue; /* with those that it has to be with already */
        marked[g] = true;
        TRY_GOTO(add_member(d, g, members), done);
    }
    if (members->n < 2) goto done;
    TRY_GOTO(groups_levels(&d->groups, marked, level), done);
    for (size_t i = 0; i < members->n; i++) members->data[i].level = level[members->data[i].group];
    qsort(members->data, members->n, sizeof *members->data, by_level);
done:
    st_free(marked);
    st_free(level);
    return status;
}

/* Joins the members if that is legal and saves time. */
static st_status_t fuse_chunk(fuse_decision_t *d, const members_t *members, size_t begin,
                              size_t end) {
    uint32_t n = (uint32_t)(end - begin);
    const judgement_t *judgement;
    st_status_t status = ST_OK;
    double us = 0;
    if (n < 2) return ST_OK;
    group_t *list = st_calloc(n, sizeof *list);
    if (!list) return st_no_memory(n * sizeof *list, "the fuse pass");
    for (uint32_t i = 0; i < n; i++) {
        list[i] = members->data[begin + i].group;
        us += d->us[list[i]];
    }
    TRY_GOTO(regions_collect(&d->regions, n, list), done);
    TRY_GOTO(judge_region(&d->judge, &d->regions, &judgement), done);
    if (judgement->legal && judgement->cost.us < us) {
        group_t joined = groups_join_all(&d->groups, n, list);
        d->us[joined] = judgement->cost.us;
        d->fused[joined] = true;
    }
done:
    st_free(list);
    return status;
}

st_status_t multi_fuse(fuse_decision_t *d) {
    members_t members = {0};
    st_status_t status = ST_OK;
    uint64_t total = 0;
    TRY_GOTO(find_members(d, &members), done);
    for (size_t i = 0; i < members.n; i++) total += members.data[i].bytes;
    /* An eighth: eight or so launches, of which each costs little, and no more than an eighth of
     * the gradients wait for each other in memory. */
    uint64_t limit = total / 8 > MULTI_MIN_BYTES ? total / 8 : MULTI_MIN_BYTES;
    for (size_t begin = 0; begin < members.n;) {
        uint64_t bytes = members.data[begin].bytes;
        uint32_t n_tensors = members.data[begin].n_tensors;
        size_t end = begin + 1;
        for (; end < members.n; end++) {
            const member_t *next = &members.data[end];
            if (next->level != members.data[begin].level ||
                next->slot != members.data[begin].slot || bytes + next->bytes > limit ||
                n_tensors + next->n_tensors > MULTI_MAX_TENSORS)
                break;
            bytes += next->bytes;
            n_tensors += next->n_tensors;
        }
        TRY_GOTO(fuse_chunk(d, &members, begin, end), done);
        begin = end;
    }
done:
    ST_VEC_FREE(&members);
    return status;
}
