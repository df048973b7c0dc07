/* The dependencies of a rank's graph that every order keeps. Beside the data: every reader of a state
 * comes before its update, and before the node that makes the new value where it stood before it (the
 * value can then be written over the state); collectives keep their order among each other, and so do
 * side effects. */
#ifndef STATOR_SCHEDULE_DAG_H
#define STATOR_SCHEDULE_DAG_H

#include "ir/op.h"

typedef struct sched_edge {
    ir_node_t from, to;
} sched_edge_t;

typedef struct sched_dag {
    const ir_graph_t *graph;
    uint32_t n;
    ST_VEC(sched_edge_t) edges;
    uint32_t *first; /* [n + 1]: successors of node i are to[first[i] … first[i + 1]) */
    ir_node_t *to;
    uint32_t *first_before; /* the same for the nodes before node i, in `before` */
    ir_node_t *before;
    ir_value_t *root; /* [values]: through views */
} sched_dag_t;

st_status_t sched_dag_build(const ir_graph_t *graph, sched_dag_t *out_dag) ST_WARN_UNUSED;
void sched_dag_free(sched_dag_t *dag); /* zeroed is fine */

#endif
