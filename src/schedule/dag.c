/* Dependencies and memory of orders (dag.h). */
#include "schedule/dag.h"

#include <string.h>

/* ---- dependencies ---- */

void sched_dag_free(sched_dag_t *dag) {
    ST_VEC_FREE(&dag->edges);
    st_free(dag->first);
    st_free(dag->to);
    st_free(dag->first_before);
    st_free(dag->before);
    st_free(dag->root);
    *dag = (sched_dag_t){0};
}

static st_status_t add_edge(sched_dag_t *dag, ir_node_t from, ir_node_t to) {
    return ST_VEC_PUSH(&dag->edges, ((sched_edge_t){from, to}));
}

static st_status_t data_edges(sched_dag_t *dag) {
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
static st_status_t state_edges(sched_dag_t *dag) {
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

/* Lists by node: counts shifted by two, so that after the prefix sum first[i + 1] is where i's list
 * is filled. */
static st_status_t index_edges(sched_dag_t *dag) {
    size_t n_edges = dag->edges.n;
    dag->first = st_calloc((size_t)dag->n + 2, sizeof *dag->first);
    dag->first_before = st_calloc((size_t)dag->n + 2, sizeof *dag->first_before);
    dag->to = st_calloc(n_edges, sizeof *dag->to);
    dag->before = st_calloc(n_edges, sizeof *dag->before);
    if (!dag->first || !dag->first_before || !dag->to || !dag->before)
        return st_no_memory((dag->n + n_edges) * sizeof *dag->to, "the order");
    for (size_t e = 0; e < n_edges; e++) {
        dag->first[dag->edges.data[e].from + 2]++;
        dag->first_before[dag->edges.data[e].to + 2]++;
    }
    for (uint32_t i = 0; i < dag->n; i++) {
        dag->first[i + 2] += dag->first[i + 1];
        dag->first_before[i + 2] += dag->first_before[i + 1];
    }
    for (size_t e = 0; e < n_edges; e++) {
        sched_edge_t edge = dag->edges.data[e];
        dag->to[dag->first[edge.from + 1]++] = edge.to;
        dag->before[dag->first_before[edge.to + 1]++] = edge.from;
    }
    return ST_OK;
}

st_status_t sched_dag_build(const ir_graph_t *graph, sched_dag_t *dag) {
    *dag = (sched_dag_t){.graph = graph, .n = (uint32_t)graph->nodes.n};
    st_status_t status = ST_OK;
    dag->root = st_calloc(graph->values.n, sizeof *dag->root);
    if (!dag->root) TRY_GOTO(st_no_memory(graph->values.n * sizeof *dag->root, "the order"), fail);
    for (ir_value_t v = 0; v < graph->values.n; v++) {
        const ir_node_info_t *node = ir_value_producer(graph, v);
        dag->root[v] = ir_op_def(node->op)->flags & IR_VIEW ? dag->root[node->inputs[0]] : v;
    }
    TRY_GOTO(data_edges(dag), fail);
    TRY_GOTO(state_edges(dag), fail);
    TRY_GOTO(index_edges(dag), fail);
    return ST_OK;
fail:
    sched_dag_free(dag);
    return status;
}

/* ---- memory of an order ---- */

void sched_live_free(sched_live_t *live) {
    st_free(live->owner);
    st_free(live->n_readers);
    st_free(live->left);
    st_free(live->readers);
    st_free(live->waiting);
    st_free(live->seen);
    st_free(live->bytes);
    *live = (sched_live_t){0};
}

/* Whether node n reads `owner` for the first time: each walk over the nodes takes a node once. */
static bool first_read(sched_live_t *live, ir_node_t n, ir_value_t owner) {
    bool first = live->seen[owner] != n + 1;
    live->seen[owner] = n + 1;
    return first;
}

static void count_readers(sched_live_t *live) {
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

st_status_t sched_live_build(const sched_dag_t *dag, sched_live_t *live) {
    const ir_graph_t *graph = dag->graph;
    size_t n = graph->values.n;
    *live = (sched_live_t){.dag = dag};
    live->owner = st_calloc(n, sizeof *live->owner);
    live->n_readers = st_calloc(n, sizeof *live->n_readers);
    live->left = st_calloc(n, sizeof *live->left);
    live->readers = st_calloc(n, sizeof *live->readers);
    live->waiting = st_calloc(n, sizeof *live->waiting);
    live->seen = st_calloc(n, sizeof *live->seen);
    live->bytes = st_calloc(n, sizeof *live->bytes);
    if (!live->owner || !live->n_readers || !live->left || !live->readers || !live->waiting ||
        !live->seen || !live->bytes) {
        sched_live_free(live);
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
    for (ir_value_t v = 0; v < n; v++) /* an input that no one reads takes no part */
        if (ir_value_producer(graph, v)->op == IR_OP_INPUT && !live->n_readers[v])
            live->bytes[v] = 0;
    return ST_OK;
}

static void sched_live_reset(sched_live_t *live) {
    size_t n = live->dag->graph->values.n;
    memcpy(live->left, live->n_readers, n * sizeof *live->left);
    memcpy(live->waiting, live->readers, n * sizeof *live->waiting);
    memset(live->seen, 0, n * sizeof *live->seen);
}

int64_t sched_live_born(const sched_live_t *live, ir_node_t n) {
    const ir_node_info_t *node = ir_node(live->dag->graph, n);
    int64_t bytes = 0;
    if (node->op == IR_OP_INPUT) return 0; /* it is there from the start */
    for (uint32_t k = 0; k < node->n_outputs; k++) bytes += live->bytes[node->first_output + k];
    return bytes;
}

ir_node_t sched_live_freed_by(const sched_live_t *live, ir_value_t owner) {
    return live->left[owner] == 1 && live->waiting[owner] ? live->waiting[owner] - 1 : IR_NONE;
}

int64_t sched_live_run(sched_live_t *live, ir_node_t n, sched_last_reader_t tell, void *context) {
    const ir_node_info_t *node = ir_node(live->dag->graph, n);
    int64_t change = 0;
    for (uint32_t j = 0; j < node->n_inputs; j++) {
        ir_value_t owner = live->owner[node->inputs[j]];
        if (!first_read(live, n, owner)) continue;
        live->waiting[owner] ^= n + 1;
        if (--live->left[owner] == 0) change -= live->bytes[owner];
        ir_node_t last = tell ? sched_live_freed_by(live, owner) : IR_NONE;
        if (last != IR_NONE) tell(context, last, live->bytes[owner]);
    }
    for (uint32_t k = 0; k < node->n_outputs; k++) { /* what no one reads dies at once */
        ir_value_t v = node->first_output + k;
        if (live->owner[v] == v && !live->left[v]) change -= live->bytes[v];
    }
    return change;
}

int64_t sched_live_begin(sched_live_t *live) {
    const ir_graph_t *graph = live->dag->graph;
    int64_t bytes = 0;
    sched_live_reset(live);
    for (ir_node_t n = 0; n < live->dag->n; n++)
        if (ir_node(graph, n)->op == IR_OP_INPUT)
            bytes += live->bytes[ir_node(graph, n)->first_output];
    return bytes;
}

int64_t sched_live_peak(sched_live_t *live, const ir_node_t *order) {
    int64_t now = sched_live_begin(live), peak = now;
    for (uint32_t i = 0; i < live->dag->n; i++) {
        now += sched_live_born(live, order[i]);
        if (now > peak) peak = now;
        now += sched_live_run(live, order[i], NULL, NULL);
    }
    return peak;
}
