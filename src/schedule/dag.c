/* Dependencies of orders (dag.h). */
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
