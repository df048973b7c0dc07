/* Order of execution (order.h). */
#include "schedule/order.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ir/op.h"
#include "schedule/dag.h"
#include "schedule/list.h"

enum { IMPROVE_WORK = 4000000 }; /* nodes that the tried moves look at, at most */

typedef struct orders {
    const sched_dag_t *dag;
    sched_live_t *live;
    ir_node_t *best, *candidate; /* [nodes] */
    uint32_t *rank;              /* [nodes] */
    sched_cost_t cost;           /* of the best */
    const char *found_by;
} orders_t;

/* ---- ranks ---- */

/* Nodes in some order that all dependencies allow. */
static st_status_t any_order(const sched_dag_t *dag, ir_node_t *out) {
    uint32_t n_out = 0, *missing = st_calloc(dag->n, sizeof *missing);
    if (!missing) return st_no_memory(dag->n * sizeof *missing, "the order");
    for (ir_node_t n = 0; n < dag->n; n++) {
        missing[n] = dag->before.first[n + 1] - dag->before.first[n];
        if (!missing[n]) out[n_out++] = n;
    }
    for (uint32_t i = 0; i < n_out; i++)
        for (uint32_t e = dag->after.first[out[i]]; e < dag->after.first[out[i] + 1]; e++)
            if (--missing[dag->after.to[e]] == 0) out[n_out++] = dag->after.to[e];
    ASSERT(n_out == dag->n);
    st_free(missing);
    return ST_OK;
}

/* Breadth first: by the longest path from a source. */
static st_status_t rank_by_depth(const sched_dag_t *dag, uint32_t *rank) {
    ir_node_t *order = st_calloc(dag->n, sizeof *order);
    st_status_t status = ST_OK;
    if (!order) return st_no_memory(dag->n * sizeof *order, "the order");
    TRY_GOTO(any_order(dag, order), done);
    memset(rank, 0, dag->n * sizeof *rank);
    for (uint32_t i = 0; i < dag->n; i++)
        for (uint32_t e = dag->after.first[order[i]]; e < dag->after.first[order[i] + 1]; e++)
            if (rank[dag->after.to[e]] < rank[order[i]] + 1)
                rank[dag->after.to[e]] = rank[order[i]] + 1;
done:
    st_free(order);
    return status;
}

typedef struct operand {
    ir_node_t node;
    int64_t need, keeps; /* bytes while it is made, bytes that stay of it */
} operand_t;

/* The one that needs much and leaves little goes first. */
static int by_need(const void *a, const void *b) {
    const operand_t *x = a, *y = b;
    int64_t first = x->need - x->keeps, second = y->need - y->keeps;
    if (first != second) return first > second ? -1 : 1;
    return x->node < y->node ? -1 : x->node > y->node;
}

/* Sorts each node's list of nodes before it by need, as if the graph were a tree. */
static st_status_t sort_operands(const sched_dag_t *dag, const sched_live_t *live,
                                 ir_node_t *before) {
    ir_node_t *order = st_calloc(dag->n, sizeof *order);
    int64_t *need = st_calloc(dag->n, sizeof *need);
    operand_t *row = st_calloc(dag->edges.n, sizeof *row);
    st_status_t status = ST_OK;
    if (!order || !need || !row) TRY_GOTO(st_no_memory(dag->n * sizeof *need, "the order"), done);
    TRY_GOTO(any_order(dag, order), done);
    for (uint32_t i = 0; i < dag->n; i++) {
        ir_node_t n = order[i];
        uint32_t first = dag->before.first[n], count = dag->before.first[n + 1] - first;
        int64_t kept = 0;
        for (uint32_t j = 0; j < count; j++) {
            ir_node_t operand = before[first + j];
            row[j] = (operand_t){operand, need[operand], sched_live_born(live, operand)};
        }
        qsort(row, count, sizeof *row, by_need);
        for (uint32_t j = 0; j < count; j++) {
            before[first + j] = row[j].node;
            if (need[n] < kept + row[j].need) need[n] = kept + row[j].need;
            kept += row[j].keeps;
        }
        kept += sched_live_born(live, n);
        if (need[n] < kept) need[n] = kept;
    }
done:
    st_free(order);
    st_free(need);
    st_free(row);
    return status;
}

/* Depth first from the ends: a node comes right after the last of what it needs. */
static st_status_t rank_depth_first(const sched_dag_t *dag, const ir_node_t *before,
                                    uint32_t *rank) {
    ir_node_t *stack = st_calloc(dag->n, sizeof *stack);
    uint32_t *next = st_calloc(dag->n, sizeof *next);
    uint32_t depth = 0, count = 0;
    st_status_t status = ST_OK;
    if (!stack || !next) TRY_GOTO(st_no_memory(dag->n * sizeof *stack, "the order"), done);
    for (ir_node_t n = 0; n < dag->n; n++) rank[n] = UINT32_MAX;
    for (ir_node_t sink = 0; sink < dag->n; sink++) {
        if (dag->after.first[sink] != dag->after.first[sink + 1] || rank[sink] != UINT32_MAX)
            continue;
        stack[depth++] = sink;
        while (depth) {
            ir_node_t n = stack[depth - 1];
            uint32_t first = dag->before.first[n], end = dag->before.first[n + 1];
            while (first + next[n] < end && rank[before[first + next[n]]] != UINT32_MAX) next[n]++;
            if (first + next[n] < end)
                stack[depth++] = before[first + next[n]++];
            else
                rank[n] = count++, depth--;
        }
    }
done:
    st_free(stack);
    st_free(next);
    return status;
}

/* ---- least memory ---- */

static void swap_orders(orders_t *o) {
    ir_node_t *better = o->candidate;
    o->candidate = o->best;
    o->best = better;
}

static st_status_t try_rule(orders_t *o, const char *name, const uint32_t *rank, bool frees) {
    TRY(sched_list(o->dag, o->live, &(sched_rule_t){NULL, rank, frees}, o->candidate));
    sched_cost_t cost = sched_live_cost(o->live, o->candidate);
    if (!sched_cost_is_less(cost, o->cost)) return ST_OK;
    swap_orders(o);
    o->cost = cost;
    o->found_by = name;
    return ST_OK;
}

static st_status_t try_depth_first(orders_t *o) {
    const sched_dag_t *dag = o->dag;
    ir_node_t *before = st_malloc(dag->edges.n * sizeof *before);
    st_status_t status = ST_OK;
    if (!before) return st_no_memory(dag->edges.n * sizeof *before, "the order");
    memcpy(before, dag->before.to, dag->edges.n * sizeof *before);
    TRY_GOTO(rank_depth_first(dag, before, o->rank), done);
    TRY_GOTO(try_rule(o, "depth first", o->rank, false), done);
    TRY_GOTO(sort_operands(dag, o->live, before), done);
    TRY_GOTO(rank_depth_first(dag, before, o->rank), done);
    TRY_GOTO(try_rule(o, "depth first by need", o->rank, false), done);
done:
    st_free(before);
    return status;
}

/* The best order with each node that frees nothing right before the first node after it in the
 * dependencies: until then its result only takes room. From the end, so that chains move down
 * together. */
static st_status_t try_late(orders_t *o) {
    const sched_dag_t *dag = o->dag;
    bool *frees = st_calloc(dag->n, sizeof *frees);
    if (!frees) return st_no_memory(dag->n * sizeof *frees, "the order");
    (void)sched_live_begin(o->live);
    for (uint32_t i = 0; i < dag->n; i++)
        frees[o->best[i]] = sched_live_run(o->live, o->best[i], NULL, NULL) < 0;
    for (uint32_t i = dag->n; i-- > 0;) {
        ir_node_t n = o->best[i];
        uint32_t first = UINT32_MAX;
        o->rank[n] = i;
        if (frees[n] || sched_is_collective(dag->graph, n)) continue;
        for (uint32_t e = dag->after.first[n]; e < dag->after.first[n + 1]; e++)
            if (o->rank[dag->after.to[e]] < first) first = o->rank[dag->after.to[e]];
        if (first != UINT32_MAX && first > i) o->rank[n] = first;
    }
    st_free(frees);
    return try_rule(o, "late", o->rank, false);
}

/* ---- small improvements ---- */

/* Positions between which the node at `at` may move, within its slot: o->rank is the position of
 * each node. */
static void find_range(const orders_t *o, uint32_t at, uint32_t *out_low, uint32_t *out_high) {
    const sched_dag_t *dag = o->dag;
    ir_node_t n = o->best[at];
    *out_low = 0;
    *out_high = dag->n - 1;
    for (uint32_t e = dag->before.first[n]; e < dag->before.first[n + 1]; e++)
        if (o->rank[dag->before.to[e]] + 1 > *out_low) *out_low = o->rank[dag->before.to[e]] + 1;
    for (uint32_t e = dag->after.first[n]; e < dag->after.first[n + 1]; e++)
        if (o->rank[dag->after.to[e]] - 1 < *out_high) *out_high = o->rank[dag->after.to[e]] - 1;
    const uint32_t slot = ir_node(dag->graph, n)->slot;
    uint32_t low = at, high = at;
    while (low > *out_low && ir_node(dag->graph, o->best[low - 1])->slot == slot) low--;
    while (high < *out_high && ir_node(dag->graph, o->best[high + 1])->slot == slot) high++;
    *out_low = low;
    *out_high = high;
}

static void move_node(const ir_node_t *from, uint32_t n, uint32_t at, uint32_t to, ir_node_t *out) {
    memcpy(out, from, n * sizeof *out);
    if (to > at)
        memmove(out + at, from + at + 1, (to - at) * sizeof *out);
    else
        memmove(out + to + 1, from + to, (at - to) * sizeof *out);
    out[to] = from[at];
}

/* Tries the node at `at` everywhere; whether that was better somewhere. */
static bool improve_node(orders_t *o, uint32_t at, int64_t *work) {
    uint32_t n = o->dag->n, low, high;
    for (uint32_t i = 0; i < n; i++) o->rank[o->best[i]] = i;
    find_range(o, at, &low, &high);
    for (uint32_t to = low; to <= high && *work > 0; to++) {
        if (to == at) continue;
        *work -= n;
        move_node(o->best, n, at, to, o->candidate);
        sched_cost_t cost = sched_live_cost(o->live, o->candidate);
        if (!sched_cost_is_less(cost, o->cost)) continue;
        swap_orders(o);
        o->cost = cost;
        return true;
    }
    return false;
}

/* Moves single nodes as long as that helps and the work lasts: what small graphs need, and all that
 * can be afforded. */
static void improve(orders_t *o) {
    int64_t work = IMPROVE_WORK;
    const sched_cost_t before = o->cost;
    for (bool again = true; again && work > 0;) {
        again = false;
        for (uint32_t at = 0; at < o->dag->n; at++) again |= improve_node(o, at, &work);
    }
    if (sched_cost_is_less(o->cost, before)) o->found_by = "moved nodes";
}

static st_status_t find_least(orders_t *o) {
    const sched_dag_t *dag = o->dag;
    o->cost = (sched_cost_t){INT64_MAX, INFINITY};
    for (ir_node_t n = 0; n < dag->n; n++) o->rank[n] = n;
    TRY(try_rule(o, "given", o->rank, false));
    TRY(try_rule(o, "most freed", NULL, true));
    TRY(try_rule(o, "least made", NULL, false));
    TRY(try_depth_first(o));
    TRY(rank_by_depth(dag, o->rank));
    TRY(try_rule(o, "breadth first", o->rank, false));
    TRY(try_late(o));
    if ((uint64_t)dag->n * dag->n <= IMPROVE_WORK) improve(o);
    return ST_OK;
}

/* ---- entry ---- */

st_status_t sched_order(const ir_graph_t *graph, const ir_target_t *target, ir_node_t *out_order,
                        sched_order_info_t *out_info) {
    sched_dag_t dag;
    sched_live_t live = {0};
    orders_t o = {.dag = &dag, .live = &live};
    st_status_t status = ST_OK;
    TRY(sched_dag_build(graph, &dag));
    TRY_GOTO(sched_live_build(&dag, target, &live), done);
    o.best = st_calloc(dag.n, sizeof *o.best);
    o.candidate = st_calloc(dag.n, sizeof *o.candidate);
    o.rank = st_calloc(dag.n, sizeof *o.rank);
    if (!o.best || !o.candidate || !o.rank)
        TRY_GOTO(st_no_memory(dag.n * sizeof *o.rank, "the order"), done);
    if (dag.n) TRY_GOTO(find_least(&o), done);
    memcpy(out_order, o.best, dag.n * sizeof *out_order);
    if (out_info) *out_info = (sched_order_info_t){o.cost.peak, o.found_by};
done:
    st_free(o.best);
    st_free(o.candidate);
    st_free(o.rank);
    sched_live_free(&live);
    sched_dag_free(&dag);
    return status;
}

st_status_t sched_apply(const ir_graph_t *graph, const ir_node_t *order, ir_graph_t **out_graph) {
    return ir_graph_rewrite(graph, order, NULL, NULL, out_graph);
}
