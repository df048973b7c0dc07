/* Order of execution (order.h). */
#include "schedule/order.h"

#include <string.h>

#include "ir/op.h"
#include "schedule/storage.h"

/* ---- dependencies ---- */

typedef struct edge {
    ir_node_t from, to;
} edge_t;

typedef struct dag {
    const ir_graph_t *graph;
    uint32_t n;
    ST_VEC(edge_t) edges;
    uint32_t *first; /* [n + 1]: successors of node i are to[first[i] … first[i + 1]) */
    ir_node_t *to;
    uint32_t *n_before; /* [n]: edges into a node */
    ir_value_t *root;   /* [values]: through views */
} dag_t;

static void dag_free(dag_t *dag) {
    ST_VEC_FREE(&dag->edges);
    st_free(dag->first);
    st_free(dag->to);
    st_free(dag->n_before);
    st_free(dag->root);
}

static st_status_t add_edge(dag_t *dag, ir_node_t from, ir_node_t to) {
    return ST_VEC_PUSH(&dag->edges, ((edge_t){from, to}));
}

static st_status_t data_edges(dag_t *dag) {
    ir_node_t last_collective = IR_NONE, last_effect = IR_NONE;
    for (ir_node_t n = 0; n < dag->n; n++) {
        const ir_node_info_t *node = ir_node(dag->graph, n);
        uint32_t flags = ir_op_def(node->op)->flags;
        for (uint32_t j = 0; j < node->n_inputs; j++)
            TRY(add_edge(dag, dag->graph->values.data[node->inputs[j]].producer, n));
        if (flags & IR_COLLECTIVE) {
            if (last_collective != IR_NONE) TRY(add_edge(dag, last_collective, n));
            last_collective = n;
        }
        if ((flags & IR_SIDE_EFFECT) && node->op != IR_OP_UPDATE) {
            if (last_effect != IR_NONE) TRY(add_edge(dag, last_effect, n));
            last_effect = n;
        }
    }
    return ST_OK;
}

/* Readers of a state before its update, and before the node that makes its new value. */
static st_status_t state_edges(dag_t *dag) {
    const ir_graph_t *graph = dag->graph;
    ir_node_t *update = st_calloc(graph->values.n, sizeof *update); /* of a state */
    if (!update) return st_no_memory(graph->values.n * sizeof *update, "the order");
    st_status_t status = ST_OK;
    for (size_t v = 0; v < graph->values.n; v++) update[v] = IR_NONE;
    for (ir_node_t n = 0; n < dag->n; n++)
        if (ir_node(graph, n)->op == IR_OP_UPDATE) update[ir_node(graph, n)->inputs[0]] = n;
    for (ir_node_t n = 0; n < dag->n; n++) {
        const ir_node_info_t *node = ir_node(graph, n);
        for (uint32_t j = node->op == IR_OP_UPDATE; j < node->n_inputs; j++) {
            ir_node_t u = update[dag->root[node->inputs[j]]];
            if (u == IR_NONE || u == n) continue;
            TRY_GOTO(add_edge(dag, n, u), done);
            ir_node_t maker = graph->values.data[ir_node(graph, u)->inputs[1]].producer;
            if (n < maker) TRY_GOTO(add_edge(dag, n, maker), done);
        }
    }
done:
    st_free(update);
    return status;
}

static st_status_t dag_build(const ir_graph_t *graph, dag_t *dag) {
    *dag = (dag_t){.graph = graph, .n = (uint32_t)graph->nodes.n};
    st_status_t status = ST_OK;
    dag->first = st_calloc((size_t)dag->n + 2, sizeof *dag->first);
    dag->n_before = st_calloc(dag->n, sizeof *dag->n_before);
    dag->root = st_calloc(graph->values.n, sizeof *dag->root);
    if (!dag->first || !dag->n_before || !dag->root)
        TRY_GOTO(st_no_memory(dag->n * sizeof *dag->first, "the order"), fail);
    for (ir_value_t v = 0; v < graph->values.n; v++) {
        const ir_node_info_t *node = ir_value_producer(graph, v);
        dag->root[v] = ir_op_def(node->op)->flags & IR_VIEW ? dag->root[node->inputs[0]] : v;
    }
    TRY_GOTO(data_edges(dag), fail);
    TRY_GOTO(state_edges(dag), fail);
    dag->to = st_calloc(dag->edges.n, sizeof *dag->to);
    if (!dag->to) TRY_GOTO(st_no_memory(dag->edges.n * sizeof *dag->to, "the order"), fail);
    for (size_t e = 0; e < dag->edges.n; e++) dag->first[dag->edges.data[e].from + 2]++;
    for (uint32_t i = 0; i < dag->n; i++) dag->first[i + 2] += dag->first[i + 1];
    for (size_t e = 0; e < dag->edges.n; e++) {
        dag->to[dag->first[dag->edges.data[e].from + 1]++] = dag->edges.data[e].to;
        dag->n_before[dag->edges.data[e].to]++;
    }
    return ST_OK;
fail:
    dag_free(dag);
    return status;
}

/* ---- memory of an order ---- */

/* Values with a view share their root's memory; a wait takes over what is in flight. */
typedef struct liveness {
    const dag_t *dag;
    ir_value_t *owner; /* [values] */
    /* [values], of an owner: the nodes that read it; outputs of the graph count as one more that
     * never runs */
    uint32_t *n_readers;
    uint32_t *left;     /* those still to come */
    ir_node_t *readers; /* exclusive or of the readers' ids, each plus one */
    ir_node_t *waiting; /* the same of those still to come: where one is left, the one */
    ir_node_t *seen;    /* the last node that was counted as a reader, plus one */
    int64_t *bytes;     /* 0 for state and constants */
} liveness_t;

static void liveness_free(liveness_t *live) {
    st_free(live->owner);
    st_free(live->n_readers);
    st_free(live->left);
    st_free(live->readers);
    st_free(live->waiting);
    st_free(live->seen);
    st_free(live->bytes);
    *live = (liveness_t){0};
}

/* Whether node n reads `owner` for the first time: each walk over the nodes takes a node once. */
static bool first_read(liveness_t *live, ir_node_t n, ir_value_t owner) {
    bool first = live->seen[owner] != n + 1;
    live->seen[owner] = n + 1;
    return first;
}

static void count_readers(liveness_t *live) {
    const ir_graph_t *graph = live->dag->graph;
    for (ir_node_t n = 0; n < live->dag->n; n++)
        for (uint32_t j = 0; j < ir_node(graph, n)->n_inputs; j++) {
            ir_value_t owner = live->owner[ir_node(graph, n)->inputs[j]];
            if (!first_read(live, n, owner)) continue;
            live->n_readers[owner]++;
            live->readers[owner] ^= n + 1;
        }
    for (size_t o = 0; o < graph->outputs.n; o++)
        live->n_readers[live->owner[graph->outputs.data[o].value]]++;
}

static st_status_t liveness_build(const dag_t *dag, liveness_t *live) {
    const ir_graph_t *graph = dag->graph;
    size_t n = graph->values.n;
    *live = (liveness_t){.dag = dag};
    live->owner = st_calloc(n, sizeof *live->owner);
    live->n_readers = st_calloc(n, sizeof *live->n_readers);
    live->left = st_calloc(n, sizeof *live->left);
    live->readers = st_calloc(n, sizeof *live->readers);
    live->waiting = st_calloc(n, sizeof *live->waiting);
    live->seen = st_calloc(n, sizeof *live->seen);
    live->bytes = st_calloc(n, sizeof *live->bytes);
    if (!live->owner || !live->n_readers || !live->left || !live->readers || !live->waiting ||
        !live->seen || !live->bytes) {
        liveness_free(live);
        return st_no_memory(n * sizeof *live->owner, "the order");
    }
    for (ir_value_t v = 0; v < n; v++) {
        const ir_node_info_t *node = ir_value_producer(graph, v);
        uint32_t flags = ir_op_def(node->op)->flags, index = graph->values.data[v].index;
        bool continues =
            (flags & IR_VIEW) || ((flags & IR_COLLECTIVE) && node->op != IR_OP_ALL_GATHER_START);
        live->owner[v] = continues ? live->owner[node->inputs[index]] : v;
        if (live->owner[v] == v && !(flags & IR_STATE) && node->op != IR_OP_CONSTANT)
            live->bytes[v] = (int64_t)ir_type_bytes(ir_value_type(graph, v));
    }
    count_readers(live);
    return ST_OK;
}

static void liveness_reset(liveness_t *live) {
    size_t n = live->dag->graph->values.n;
    memcpy(live->left, live->n_readers, n * sizeof *live->left);
    memcpy(live->waiting, live->readers, n * sizeof *live->waiting);
    memset(live->seen, 0, n * sizeof *live->seen);
}

/* Bytes that come alive at node n. */
static int64_t born(const liveness_t *live, ir_node_t n) {
    const ir_node_info_t *node = ir_node(live->dag->graph, n);
    int64_t bytes = 0;
    for (uint32_t k = 0; k < node->n_outputs; k++) bytes += live->bytes[node->first_output + k];
    return bytes;
}

/* The one node that will free `owner`; IR_NONE where it is not known yet, or none will. */
static ir_node_t freed_by(const liveness_t *live, ir_value_t owner) {
    return live->left[owner] == 1 && live->waiting[owner] ? live->waiting[owner] - 1 : IR_NONE;
}

/* Told of an owner for which only one reader is left. */
typedef void (*last_reader_t)(void *context, ir_node_t reader, int64_t bytes);

static int64_t run(liveness_t *live, ir_node_t n, last_reader_t tell, void *context) {
    const ir_node_info_t *node = ir_node(live->dag->graph, n);
    int64_t change = 0;
    for (uint32_t j = 0; j < node->n_inputs; j++) {
        ir_value_t owner = live->owner[node->inputs[j]];
        if (!first_read(live, n, owner)) continue;
        live->waiting[owner] ^= n + 1;
        if (--live->left[owner] == 0) change -= live->bytes[owner];
        ir_node_t last = tell ? freed_by(live, owner) : IR_NONE;
        if (last != IR_NONE) tell(context, last, live->bytes[owner]);
    }
    for (uint32_t k = 0; k < node->n_outputs; k++) { /* what no one reads dies at once */
        ir_value_t v = node->first_output + k;
        if (live->owner[v] == v && !live->left[v]) change -= live->bytes[v];
    }
    return change;
}

static int64_t peak_bytes(liveness_t *live, const ir_node_t *order) {
    int64_t now = 0, peak = 0;
    liveness_reset(live);
    for (uint32_t i = 0; i < live->dag->n; i++) {
        now += born(live, order[i]);
        if (now > peak) peak = now;
        now += run(live, order[i], NULL, NULL);
    }
    return peak;
}

/* ---- orders ---- */

/* The ready nodes, a heap with the next one on top. A node's gain may grow while it waits. */
typedef struct ready {
    int64_t *gain;     /* [nodes] */
    uint8_t *class;    /* [nodes]: higher goes first, whatever the gain */
    uint32_t *missing; /* [nodes]: edges into it from nodes still to come */
    ir_node_t *heap;
    uint32_t n;
    uint32_t *position; /* [nodes]: in the heap; IR_NONE: not ready, or gone */
} ready_t;

static void ready_free(ready_t *ready) {
    st_free(ready->gain);
    st_free(ready->class);
    st_free(ready->missing);
    st_free(ready->heap);
    st_free(ready->position);
}

static bool goes_before(const ready_t *ready, ir_node_t a, ir_node_t b) {
    if (ready->class[a] != ready->class[b]) return ready->class[a] > ready->class[b];
    if (ready->gain[a] != ready->gain[b]) return ready->gain[a] > ready->gain[b];
    return a < b;
}

static void heap_put(ready_t *ready, uint32_t at, ir_node_t n) {
    ready->heap[at] = n;
    ready->position[n] = at;
}

/* Node n moves up from place `at`, which is free. */
static void heap_rise(ready_t *ready, uint32_t at, ir_node_t n) {
    while (at > 0 && goes_before(ready, n, ready->heap[(at - 1) / 2])) {
        heap_put(ready, at, ready->heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    heap_put(ready, at, n);
}

static void heap_push(ready_t *ready, ir_node_t n) {
    heap_rise(ready, ready->n++, n);
}

static ir_node_t heap_pop(ready_t *ready) {
    ASSERT(ready->n > 0);
    ir_node_t top = ready->heap[0], last = ready->heap[--ready->n];
    ready->position[top] = IR_NONE;
    if (!ready->n) return top;
    uint32_t at = 0;
    for (uint32_t child; (child = 2 * at + 1) < ready->n; at = child) {
        if (child + 1 < ready->n && goes_before(ready, ready->heap[child + 1], ready->heap[child]))
            child++;
        if (!goes_before(ready, ready->heap[child], last)) break;
        heap_put(ready, at, ready->heap[child]);
    }
    heap_put(ready, at, last);
    return top;
}

static void add_gain(void *context, ir_node_t n, int64_t bytes) {
    ready_t *ready = context;
    ready->gain[n] += bytes;
    if (ready->position[n] != IR_NONE) heap_rise(ready, ready->position[n], n);
}

/* Classes, and gains before anything has run. */
static void rate_nodes(const dag_t *dag, const liveness_t *live, const uint32_t *rank,
                       ready_t *ready) {
    for (ir_node_t n = 0; n < dag->n; n++) {
        uint32_t flags = ir_op_def(ir_node(dag->graph, n)->op)->flags;
        ready->class[n] = flags & IR_START ? 2 : flags & IR_COLLECTIVE ? 0 : 1;
        ready->gain[n] = rank ? -(int64_t)rank[n] : -born(live, n);
        ready->position[n] = IR_NONE;
    }
    for (ir_value_t v = 0; !rank && v < dag->graph->values.n; v++) {
        ir_node_t reader = freed_by(live, v);
        if (reader != IR_NONE) ready->gain[reader] += live->bytes[v];
    }
}

/* Bytes freed less bytes made: larger first. With `rank`, nodes go by rank alone. Starts go before
 * everything, waits after everything. */
static st_status_t list_order(const dag_t *dag, liveness_t *live, const uint32_t *rank,
                              ir_node_t *order) {
    ready_t ready = {0};
    st_status_t status = ST_OK;
    ready.gain = st_calloc(dag->n, sizeof *ready.gain);
    ready.class = st_calloc(dag->n, sizeof *ready.class);
    ready.missing = st_calloc(dag->n, sizeof *ready.missing);
    ready.heap = st_calloc(dag->n, sizeof *ready.heap);
    ready.position = st_calloc(dag->n, sizeof *ready.position);
    if (!ready.gain || !ready.class || !ready.missing || !ready.heap || !ready.position)
        TRY_GOTO(st_no_memory(dag->n * sizeof *ready.gain, "the order"), done);
    memcpy(ready.missing, dag->n_before, dag->n * sizeof *ready.missing);
    liveness_reset(live);
    rate_nodes(dag, live, rank, &ready);
    for (ir_node_t n = 0; n < dag->n; n++)
        if (!ready.missing[n]) heap_push(&ready, n);
    for (uint32_t i = 0; i < dag->n; i++) {
        ir_node_t n = order[i] = heap_pop(&ready);
        run(live, n, rank ? NULL : add_gain, &ready);
        for (uint32_t e = dag->first[n]; e < dag->first[n + 1]; e++)
            if (--ready.missing[dag->to[e]] == 0) heap_push(&ready, dag->to[e]);
    }
done:
    ready_free(&ready);
    return status;
}

/* Position of each node in a depth-first walk that makes what a sink needs right before it. */
static st_status_t depth_first_ranks(const dag_t *dag, uint32_t *rank) {
    uint32_t *first = st_calloc((size_t)dag->n + 2, sizeof *first), count = 0, depth = 0;
    ir_node_t *before = st_calloc(dag->edges.n, sizeof *before);
    ir_node_t *stack = st_calloc((size_t)dag->n + 1, sizeof *stack);
    uint32_t *next = st_calloc(dag->n, sizeof *next); /* next predecessor to look at */
    st_status_t status = ST_OK;
    if (!first || !before || !stack || !next)
        TRY_GOTO(st_no_memory(dag->edges.n * sizeof *before, "the order"), done);
    for (size_t e = 0; e < dag->edges.n; e++) first[dag->edges.data[e].to + 2]++;
    for (uint32_t i = 0; i < dag->n; i++) first[i + 2] += first[i + 1];
    for (size_t e = 0; e < dag->edges.n; e++)
        before[first[dag->edges.data[e].to + 1]++] = dag->edges.data[e].from;
    for (ir_node_t n = 0; n < dag->n; n++) rank[n] = UINT32_MAX;
    for (ir_node_t sink = 0; sink < dag->n; sink++) {
        if (dag->first[sink] != dag->first[sink + 1] || rank[sink] != UINT32_MAX) continue;
        stack[depth++] = sink;
        while (depth) {
            ir_node_t n = stack[depth - 1];
            while (next[n] < first[n + 1] - first[n] &&
                   rank[before[first[n] + next[n]]] != UINT32_MAX)
                next[n]++;
            if (next[n] < first[n + 1] - first[n])
                stack[depth++] = before[first[n] + next[n]++];
            else
                rank[n] = count++, depth--;
        }
    }
done:
    st_free(first);
    st_free(before);
    st_free(stack);
    st_free(next);
    return status;
}

st_status_t sched_order(const ir_graph_t *graph, ir_node_t *out_order) {
    dag_t dag;
    liveness_t live = {0};
    ir_node_t *candidate = NULL;
    uint32_t *rank = NULL;
    st_status_t status = ST_OK;
    TRY(dag_build(graph, &dag));
    TRY_GOTO(liveness_build(&dag, &live), done);
    candidate = st_calloc(dag.n, sizeof *candidate);
    rank = st_calloc(dag.n, sizeof *rank);
    if (!candidate || !rank) TRY_GOTO(st_no_memory(dag.n * sizeof *rank, "the order"), done);
    /* the given order, or what comes close to it where an update stands before a reader */
    for (ir_node_t n = 0; n < dag.n; n++) rank[n] = n;
    bool legal = true;
    for (size_t e = 0; e < dag.edges.n; e++) legal &= dag.edges.data[e].from < dag.edges.data[e].to;
    if (legal)
        memcpy(out_order, rank, dag.n * sizeof *out_order);
    else
        TRY_GOTO(list_order(&dag, &live, rank, out_order), done);
    int64_t best = peak_bytes(&live, out_order);
    for (int depth_first = 0; depth_first < 2; depth_first++) {
        if (depth_first) TRY_GOTO(depth_first_ranks(&dag, rank), done);
        TRY_GOTO(list_order(&dag, &live, depth_first ? rank : NULL, candidate), done);
        int64_t peak = peak_bytes(&live, candidate);
        if (peak >= best) continue;
        best = peak;
        memcpy(out_order, candidate, dag.n * sizeof *out_order);
    }
done:
    st_free(candidate);
    st_free(rank);
    liveness_free(&live);
    dag_free(&dag);
    return status;
}

st_status_t sched_apply(const ir_graph_t *graph, const ir_node_t *order, ir_graph_t **out_graph) {
    return ir_graph_rewrite(graph, order, NULL, NULL, out_graph);
}
