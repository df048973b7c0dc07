/* List scheduling along a clock (overlap.h). */
#include "schedule/overlap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/heap.h"
#include "base/memory.h"

/* Of a transfer, which may take that much longer before what is not forced would wait for it. */
static const double SLACK = 0.25;

typedef struct group {
    uint32_t first;     /* its first transfer; the next ones are in next_of */
    uint32_t n_missing; /* starts whose operands are not there */
    uint32_t need;      /* place of the first reader */
    double bytes, us, end_us;
    bool ahead, issued;
    bool pair;  /* with one other rank, which keeps to the order of the turns as this one does */
    bool frees; /* memory, once it is waited for: of what is summed, or of a state's new value */
} group_t;

/* What is moved at the same time: among ranks, and to and from another stage. */
typedef enum link { LINK_GROUP, LINK_SENDS, LINK_RECEIVES, LINK_END } link_t;

static link_t link_of(const sched_transfer_t *t) {
    if (!t->pair) return LINK_GROUP;
    return t->op == IR_OP_SEND_START ? LINK_SENDS : LINK_RECEIVES;
}

static double end_of_links(double now_us, const double *free_us) {
    for (int l = 0; l < LINK_END; l++) now_us = fmax(now_us, free_us[l]);
    return now_us;
}

typedef struct ready {
    uint32_t rank;
    ir_node_t node;
} ready_t;

typedef struct run {
    const sched_transfers_t *t;
    const sched_dag_t *dag;
    const sched_overlap_rule_t *rule;
    uint32_t *rank;    /* [nodes] */
    uint32_t *missing; /* [nodes] */
    bool *done;        /* [nodes] */
    group_t *groups;
    uint32_t *next_of; /* [transfers]: of its group, IR_NONE: the last */
    uint32_t *ahead;   /* groups made of states alone, by need */
    uint32_t n_ahead, next_ahead;
    uint32_t *under_way, n_under_way; /* groups issued and not waited for */
    uint32_t *to_issue, n_to_issue;   /* groups whose operands have been made */
    ready_t *ready;                   /* heap by rank */
    uint32_t n_ready;
    ir_node_t *out;
    uint32_t n_out;
    double now_us, exposed_us, busy_us, ahead_bytes, kept_bytes;
    double free_us[LINK_END];
} run_t;

/* ---- preparing ---- */

/* What only starts read: as soon as what it is made of is there. */
static void rank_feeders(run_t *r, const ir_node_t *order) {
    const sched_dag_t *dag = r->dag;
    const ir_graph_t *graph = dag->graph;
    bool *feeds = r->done; /* all false until the run */
    for (uint32_t i = dag->n; i-- > 0;) {
        const ir_node_t n = order[i];
        feeds[n] = r->t->of_node[n] == IR_NONE && dag->after.first[n] != dag->after.first[n + 1];
        for (uint32_t e = dag->after.first[n]; e < dag->after.first[n + 1]; e++) {
            const ir_node_t reader = dag->after.to[e];
            feeds[n] &= feeds[reader] || (ir_op_def(ir_node(graph, reader)->op)->flags & IR_START);
        }
    }
    for (uint32_t i = 0; i < dag->n; i++) {
        const ir_node_t n = order[i];
        if (!feeds[n]) continue;
        r->rank[n] = 0;
        for (uint32_t e = dag->before.first[n]; e < dag->before.first[n + 1]; e++)
            if (r->rank[dag->before.to[e]] > r->rank[n]) r->rank[n] = r->rank[dag->before.to[e]];
    }
    memset(feeds, 0, dag->n * sizeof *feeds);
}

static void find_groups(run_t *r) {
    const sched_transfers_t *t = r->t;
    for (uint32_t g = 0; g < t->n_groups; g++)
        r->groups[g] = (group_t){.first = IR_NONE, .need = r->dag->n, .ahead = true};
    for (uint32_t i = t->n; i-- > 0;) {
        const sched_transfer_t *one = &t->list[i];
        group_t *g = &r->groups[one->group];
        r->next_of[i] = g->first;
        g->first = i;
        g->n_missing++;
        g->bytes += one->bytes;
        g->ahead &= one->ahead;
        g->pair |= one->pair;
        g->frees = one->op == IR_OP_REDUCE_SCATTER_START ||
                   (one->op == IR_OP_ALL_GATHER_START && one->need == r->dag->n);
        if (one->need < g->need) g->need = one->need;
    }
    for (uint32_t g = 0; g < t->n_groups; g++)
        r->groups[g].us = sched_transfer_us(&t->list[r->groups[g].first], r->groups[g].bytes);
}

/* By need; the few of one place stay in their order. Insertion: they are nearly sorted. */
static void queue_ahead(run_t *r) {
    for (uint32_t g = 0; g < r->t->n_groups; g++) {
        if (!r->groups[g].ahead) continue;
        uint32_t i = r->n_ahead++;
        for (; i > 0 && r->groups[r->ahead[i - 1]].need > r->groups[g].need; i--)
            r->ahead[i] = r->ahead[i - 1];
        r->ahead[i] = g;
    }
}

/* ---- running ---- */

static bool goes_before(const void *a, const void *b) {
    const ready_t *x = a, *y = b;
    return x->rank != y->rank ? x->rank < y->rank : x->node < y->node;
}

/* A start, a wait and what is made when a start wants it are never among the ready ones. */
static void becomes_ready(run_t *r, ir_node_t n) {
    if (r->t->of_node[n] == IR_NONE) {
        if (r->t->feeds[n]) return;
        r->ready[r->n_ready++] = (ready_t){r->rank[n], n};
        st_heap_rise(r->ready, r->n_ready, sizeof *r->ready, goes_before);
        return;
    }
    const sched_transfer_t *of = &r->t->list[r->t->of_node[n]];
    group_t *group = &r->groups[of->group];
    if (of->start == n && --group->n_missing == 0 && !group->ahead)
        r->to_issue[r->n_to_issue++] = of->group;
}

static void emit(run_t *r, ir_node_t n) {
    const sched_dag_t *dag = r->dag;
    r->out[r->n_out++] = n;
    r->done[n] = true;
    r->now_us += r->t->us[n];
    for (uint32_t e = dag->after.first[n]; e < dag->after.first[n + 1]; e++)
        if (--r->missing[dag->after.to[e]] == 0) becomes_ready(r, dag->after.to[e]);
}

static void run_first(run_t *r) {
    st_heap_drop(r->ready, r->n_ready--, sizeof *r->ready, goes_before);
    emit(r, r->ready[r->n_ready].node);
}

/* What a start made of states reads; as deep as casts and views over a state are. */
static void make_operands(run_t *r, ir_node_t n) {
    const sched_dag_t *dag = r->dag;
    for (uint32_t e = dag->before.first[n]; e < dag->before.first[n + 1]; e++) {
        const ir_node_t operand = dag->before.to[e];
        if (r->done[operand] || !r->t->feeds[operand]) continue;
        make_operands(r, operand);
        emit(r, operand);
    }
}

static void issue(run_t *r, uint32_t g) {
    group_t *group = &r->groups[g];
    for (uint32_t i = group->first; group->ahead && i != IR_NONE; i = r->next_of[i])
        make_operands(r, r->t->list[i].start);
    for (uint32_t i = group->first; i != IR_NONE; i = r->next_of[i]) emit(r, r->t->list[i].start);
    double *free_us = &r->free_us[link_of(&r->t->list[group->first])];
    group->issued = true;
    *free_us = group->end_us = fmax(r->now_us, *free_us) + group->us;
    r->busy_us += group->us;
    if (group->ahead) r->ahead_bytes += group->bytes;
    if (group->frees) r->kept_bytes += group->bytes;
    r->under_way[r->n_under_way++] = g;
}

static void wait_for(run_t *r, uint32_t at) {
    group_t *group = &r->groups[r->under_way[at]];
    r->under_way[at] = r->under_way[--r->n_under_way];
    if (group->end_us > r->now_us) {
        r->exposed_us += group->end_us - r->now_us;
        r->now_us = group->end_us;
    }
    if (group->ahead) r->ahead_bytes -= group->bytes;
    if (group->frees) r->kept_bytes -= group->bytes;
    for (uint32_t i = group->first; i != IR_NONE; i = r->next_of[i]) emit(r, r->t->list[i].wait);
}

static bool can_go_ahead(const run_t *r) {
    if (r->next_ahead == r->n_ahead) return false;
    const group_t *next = &r->groups[r->ahead[r->next_ahead]];
    if (r->rule->ahead_bytes > 0)
        return !(r->ahead_bytes > 0) || r->ahead_bytes + next->bytes <= r->rule->ahead_bytes;
    return !r->n_ready || next->need <= r->ready[0].rank;
}

/* What goes to another stage, or comes from there, begins at its own place. */
static bool is_due(const run_t *r, uint32_t g) {
    const group_t *group = &r->groups[g];
    return !group->pair || !r->n_ready ||
           r->t->place[r->t->list[group->first].start] <= r->ready[0].rank;
}

/* Issuing one may bring another. */
static void issue_all(run_t *r) {
    uint32_t n_kept = 0;
    for (uint32_t i = 0; i < r->n_to_issue; i++) {
        const uint32_t g = r->to_issue[i];
        if (is_due(r, g))
            issue(r, g);
        else
            r->to_issue[n_kept++] = g;
    }
    r->n_to_issue = n_kept;
    while (can_go_ahead(r)) issue(r, r->ahead[r->next_ahead++]);
}

/* What keeps an order of its own is waited for in it. */
static bool is_its_turn(const run_t *r, const group_t *group) {
    return !group->pair || !r->missing[r->t->list[group->first].wait];
}

/* Under way: what is waited for now, because it frees memory, or because its reader would come
 * next; IR_NONE: nothing is. *out_first: the one whose reader comes first. */
static uint32_t find_wait(const run_t *r, uint32_t *out_first) {
    const bool full = r->kept_bytes > r->rule->kept_bytes;
    uint32_t found = IR_NONE;
    *out_first = IR_NONE;
    for (uint32_t i = 0; i < r->n_under_way; i++) {
        const group_t *g = &r->groups[r->under_way[i]];
        if (!is_its_turn(r, g)) continue;
        const bool there = g->end_us + SLACK * g->us <= r->now_us;
        if (full && g->frees &&
            (found == IR_NONE || g->end_us < r->groups[r->under_way[found]].end_us))
            found = i;
        if (!full && there && (g->frees || !r->n_ready || g->need <= r->ready[0].rank)) found = i;
        if (*out_first == IR_NONE || g->need < r->groups[r->under_way[*out_first]].need)
            *out_first = i;
    }
    return found;
}

/* Where nothing is ready, what goes between stages and is there first brings the next turn. */
static uint32_t first_of_turns(const run_t *r, uint32_t first) {
    for (uint32_t i = 0; i < r->n_under_way; i++) {
        const group_t *g = &r->groups[r->under_way[i]];
        if (g->pair && is_its_turn(r, g) && g->end_us < r->groups[r->under_way[first]].end_us)
            first = i;
    }
    return first;
}

static st_status_t step(run_t *r) {
    uint32_t first;
    issue_all(r);
    const uint32_t at = find_wait(r, &first);
    if (at != IR_NONE) {
        wait_for(r, at);
        return ST_OK;
    }
    const group_t *next = first == IR_NONE ? NULL : &r->groups[r->under_way[first]];
    const uint64_t limit =
        !next ? UINT64_MAX : (uint64_t)next->need + (next->pair ? 0 : r->rule->window);
    if (r->n_ready && r->ready[0].rank < limit) {
        run_first(r);
    } else if (first != IR_NONE) {
        wait_for(r, r->n_ready ? first : first_of_turns(r, first));
    } else {
        if (r->next_ahead == r->n_ahead)
            return FAIL(ST_INTERNAL, "collectives were merged that wait for each other");
        issue(r, r->ahead[r->next_ahead++]);
    }
    return ST_OK;
}

/* ---- entry ---- */

static st_status_t allocate(run_t *r) {
    const size_t n = r->dag->n, n_groups = r->t->n_groups;
    r->rank = st_calloc(n, sizeof *r->rank);
    r->missing = st_calloc(n, sizeof *r->missing);
    r->done = st_calloc(n, sizeof *r->done);
    r->ready = st_calloc(n, sizeof *r->ready);
    r->groups = st_calloc(n_groups, sizeof *r->groups);
    r->next_of = st_calloc(r->t->n, sizeof *r->next_of);
    r->ahead = st_calloc(n_groups, sizeof *r->ahead);
    r->under_way = st_calloc(n_groups, sizeof *r->under_way);
    r->to_issue = st_calloc(n_groups, sizeof *r->to_issue);
    return r->rank && r->missing && r->done && r->ready && r->groups && r->next_of && r->ahead &&
                   r->under_way && r->to_issue
               ? ST_OK
               : st_no_memory(n * sizeof *r->ready, "the order");
}

static void release(run_t *r) {
    st_free(r->rank);
    st_free(r->missing);
    st_free(r->done);
    st_free(r->ready);
    st_free(r->groups);
    st_free(r->next_of);
    st_free(r->ahead);
    st_free(r->under_way);
    st_free(r->to_issue);
}

static bool is_there_before(const run_t *r, ir_node_t n) {
    const ir_op_t op = ir_node(r->dag->graph, n)->op;
    return (ir_op_def(op)->flags & IR_STATE) || op == IR_OP_INPUT || ir_op_is_lasting(op);
}

static st_status_t run(run_t *r, const ir_node_t *order) {
    memcpy(r->rank, r->t->place, r->dag->n * sizeof *r->rank);
    if (r->rule->feeds_early) rank_feeders(r, order);
    find_groups(r);
    queue_ahead(r);
    for (ir_node_t n = 0; n < r->dag->n; n++)
        r->missing[n] = r->dag->before.first[n + 1] - r->dag->before.first[n];
    for (ir_node_t n = 0; n < r->dag->n; n++)
        if (!r->missing[n] && is_there_before(r, n)) emit(r, n);
    for (ir_node_t n = 0; n < r->dag->n; n++)
        if (r->dag->before.first[n + 1] == r->dag->before.first[n] && !r->done[n])
            becomes_ready(r, n);
    while (r->n_out < r->dag->n) TRY(step(r));
    return ST_OK;
}

st_status_t sched_overlap(const sched_transfers_t *transfers, const ir_node_t *order,
                          const sched_overlap_rule_t *rule, ir_node_t *out_order,
                          sched_overlap_time_t *out_time) {
    run_t r = {.t = transfers, .dag = transfers->dag, .rule = rule, .out = out_order};
    st_status_t status = allocate(&r);
    if (status == ST_OK) status = run(&r, order);
    const double end_us = end_of_links(r.now_us, r.free_us);
    *out_time = (sched_overlap_time_t){end_us, r.exposed_us + end_us - r.now_us, r.busy_us};
    release(&r);
    return status;
}

st_status_t sched_overlap_as_given(const sched_transfers_t *t, const ir_node_t *order,
                                   sched_overlap_time_t *out_time) {
    double now_us = 0, exposed_us = 0, busy_us = 0, free_us[LINK_END] = {0};
    double *end_us = st_calloc(t->n, sizeof *end_us);
    *out_time = (sched_overlap_time_t){0};
    if (!end_us) return st_no_memory(t->n * sizeof *end_us, "the order");
    for (uint32_t i = 0; i < t->dag->n; i++) {
        const ir_node_t n = order[i];
        const uint32_t at = t->of_node[n];
        if (at == IR_NONE) {
            now_us += t->us[n];
        } else if (t->list[at].start == n) {
            const double us = sched_transfer_us(&t->list[at], t->list[at].bytes);
            double *link_us = &free_us[link_of(&t->list[at])];
            end_us[at] = *link_us = fmax(now_us, *link_us) + us;
            busy_us += us;
        } else if (end_us[at] > now_us) {
            exposed_us += end_us[at] - now_us;
            now_us = end_us[at];
        }
    }
    st_free(end_us);
    const double step_us = end_of_links(now_us, free_us);
    *out_time = (sched_overlap_time_t){step_us, exposed_us + step_us - now_us, busy_us};
    return ST_OK;
}
