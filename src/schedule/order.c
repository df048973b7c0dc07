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
    uint32_t *left;    /* [values]: readers of the owner still to come */
    uint32_t
        *n_readers; /* [values]: all of them; outputs of the graph have one more that never comes */
    int64_t *bytes; /* [values]: of an owner; 0 for state and constants */
} liveness_t;

static void liveness_free(liveness_t *live) {
    st_free(live->owner);
    st_free(live->left);
    st_free(live->n_readers);
    st_free(live->bytes);
    *live = (liveness_t){0};
}

static st_status_t liveness_build(const dag_t *dag, liveness_t *live) {
    const ir_graph_t *graph = dag->graph;
    size_t n = graph->values.n;
    *live = (liveness_t){.dag = dag};
    live->owner = st_calloc(n, sizeof *live->owner);
    live->left = st_calloc(n, sizeof *live->left);
    live->n_readers = st_calloc(n, sizeof *live->n_readers);
    live->bytes = st_calloc(n, sizeof *live->bytes);
    if (!live->owner || !live->left || !live->n_readers || !live->bytes) {
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
    for (ir_node_t i = 0; i < dag->n; i++)
        for (uint32_t j = 0; j < ir_node(graph, i)->n_inputs; j++)
            live->n_readers[live->owner[ir_node(graph, i)->inputs[j]]]++;
    for (size_t o = 0; o < graph->outputs.n; o++)
        live->n_readers[live->owner[graph->outputs.data[o].value]]++;
    return ST_OK;
}

static void liveness_reset(liveness_t *live) {
    memcpy(live->left, live->n_readers, live->dag->graph->values.n * sizeof *live->left);
}

/* Bytes that come alive at node n / that die with it. */
static int64_t born(const liveness_t *live, ir_node_t n) {
    const ir_node_info_t *node = ir_node(live->dag->graph, n);
    int64_t bytes = 0;
    for (uint32_t k = 0; k < node->n_outputs; k++) bytes += live->bytes[node->first_output + k];
    return bytes;
}

static int64_t freed(const liveness_t *live, ir_node_t n) {
    const ir_node_info_t *node = ir_node(live->dag->graph, n);
    int64_t bytes = 0;
    for (uint32_t j = 0; j < node->n_inputs; j++) {
        ir_value_t owner = live->owner[node->inputs[j]];
        uint32_t reads = 0;
        bool counted = false;
        for (uint32_t i = 0; i < node->n_inputs; i++)
            if (live->owner[node->inputs[i]] == owner) reads++, counted |= i < j;
        if (!counted && live->left[owner] == reads) bytes += live->bytes[owner];
    }
    return bytes;
}

static int64_t run(liveness_t *live, ir_node_t n) {
    const ir_node_info_t *node = ir_node(live->dag->graph, n);
    int64_t change = -freed(live, n);
    for (uint32_t j = 0; j < node->n_inputs; j++) live->left[live->owner[node->inputs[j]]]--;
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
        now += run(live, order[i]);
    }
    return peak;
}

/* ---- orders ---- */

/* Bytes freed less bytes made: larger first. With `rank`, nodes go by rank alone. Starts go before
 * everything, waits after everything. */
static st_status_t list_order(const dag_t *dag, liveness_t *live, const uint32_t *rank,
                              ir_node_t *order) {
    uint32_t *missing = st_malloc(dag->n * sizeof *missing), n_ready = 0;
    ir_node_t *ready = st_malloc(dag->n * sizeof *ready);
    if (!missing || !ready) {
        st_free(missing);
        st_free(ready);
        return st_no_memory(dag->n * sizeof *ready, "the order");
    }
    memcpy(missing, dag->n_before, dag->n * sizeof *missing);
    liveness_reset(live);
    for (ir_node_t n = 0; n < dag->n; n++)
        if (!missing[n]) ready[n_ready++] = n;
    for (uint32_t position = 0; position < dag->n; position++) {
        ASSERT(n_ready > 0);
        uint32_t best = 0;
        int64_t best_class = INT64_MIN, best_gain = INT64_MIN;
        for (uint32_t i = 0; i < n_ready; i++) {
            const ir_node_info_t *node = ir_node(dag->graph, ready[i]);
            uint32_t flags = ir_op_def(node->op)->flags;
            int64_t class = flags & IR_START ? 2 : flags & IR_COLLECTIVE ? 0 : 1;
            if (class < best_class) continue;
            int64_t gain =
                rank ? -(int64_t)rank[ready[i]] : freed(live, ready[i]) - born(live, ready[i]);
            if (class > best_class || gain > best_gain ||
                (gain == best_gain && ready[i] < ready[best])) {
                best = i;
                best_class = class;
                best_gain = gain;
            }
        }
        ir_node_t n = ready[best];
        ready[best] = ready[--n_ready];
        order[position] = n;
        run(live, n);
        for (uint32_t e = dag->first[n]; e < dag->first[n + 1]; e++)
            if (--missing[dag->to[e]] == 0) ready[n_ready++] = dag->to[e];
    }
    st_free(missing);
    st_free(ready);
    return ST_OK;
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
