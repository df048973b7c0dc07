/* Dependencies of orders (dag.h). */
#include "schedule/dag.h"

#include "base/memory.h"

void sched_dag_free(sched_dag_t *dag) {
    ST_VEC_FREE(&dag->edges);
    ir_neighbours_free(&dag->after);
    ir_neighbours_free(&dag->before);
    st_free(dag->root);
    *dag = (sched_dag_t){0};
}

st_status_t sched_dag_build(const ir_graph_t *graph, sched_dag_t *dag) {
    *dag = (sched_dag_t){.graph = graph, .n = (uint32_t)graph->nodes.n};
    st_status_t status = ST_OK;
    dag->root = st_calloc(graph->values.n, sizeof *dag->root);
    if (!dag->root) TRY_GOTO(st_no_memory(graph->values.n * sizeof *dag->root, "the order"), fail);
    ir_order_roots(graph, dag->root);
    TRY_GOTO(ir_order_edges(graph, dag->root, true, &dag->edges), fail);
    TRY_GOTO(ir_order_index(&dag->edges, dag->n, true, &dag->after), fail);
    TRY_GOTO(ir_order_index(&dag->edges, dag->n, false, &dag->before), fail);
    return ST_OK;
fail:
    sched_dag_free(dag);
    return status;
}
