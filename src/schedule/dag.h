/* The dependencies of a rank's graph that every order keeps: the data's and those of ir/order.h. */
#ifndef STATOR_SCHEDULE_DAG_H
#define STATOR_SCHEDULE_DAG_H

#include "ir/op.h"
#include "ir/order.h"

typedef struct sched_dag {
    const ir_graph_t *graph;
    uint32_t n;
    ir_edges_t edges;
    ir_neighbours_t after, before;
    ir_value_t *root; /* [values]: through views */
} sched_dag_t;

static inline bool sched_is_collective(const ir_graph_t *graph, ir_node_t n) {
    return ir_op_def(ir_node(graph, n)->op)->flags & IR_COLLECTIVE;
}
static inline bool sched_is_start(const ir_graph_t *graph, ir_node_t n) {
    return ir_op_def(ir_node(graph, n)->op)->flags & IR_START;
}

st_status_t sched_dag_build(const ir_graph_t *graph, sched_dag_t *out_dag) ST_WARN_UNUSED;
void sched_dag_free(sched_dag_t *dag); /* zeroed is fine */

#endif
