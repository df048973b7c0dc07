/* What the orders are made from: the dependencies of a rank's graph, and the memory that an order of
 * its nodes needs.
 *
 * Dependencies beside the data: every reader of a state comes before its update, and before the node
 * that makes the new value where it stood before it (the value can then be written over the state);
 * collectives keep their order among each other, and so do side effects.
 *
 * Memory: a value lives from its node, an input from the start, to its last reader. Views share their root's memory; a wait
 * takes over what is in flight. State and constants are always there and do not count. */
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

typedef struct sched_live {
    const sched_dag_t *dag;
    ir_value_t *owner; /* [values] */
    /* [values], of an owner: the nodes that read it; outputs of the graph count as one more that
     * never runs */
    uint32_t *n_readers;
    uint32_t *left;     /* those still to come */
    ir_node_t *readers; /* exclusive or of the readers' ids, each plus one */
    ir_node_t *waiting; /* the same of those still to come: where one is left, the one */
    ir_node_t *seen;    /* the last node that was counted as a reader, plus one */
    int64_t *bytes;     /* 0 for state and constants */
} sched_live_t;

st_status_t sched_live_build(const sched_dag_t *dag, sched_live_t *out_live) ST_WARN_UNUSED;
void sched_live_free(sched_live_t *live); /* zeroed is fine */
/* Nothing has run: gives the bytes of the inputs, which are fed before. */
int64_t sched_live_begin(sched_live_t *live);
/* Bytes that come alive at node n. */
int64_t sched_live_born(const sched_live_t *live, ir_node_t n);
/* Told of an owner for which only one reader is left. */
typedef void (*sched_last_reader_t)(void *context, ir_node_t reader, int64_t bytes);
/* Node n has run: gives minus the bytes that it was the last to read. `tell` may be NULL. */
int64_t sched_live_run(sched_live_t *live, ir_node_t n, sched_last_reader_t tell, void *context);
/* The one node that will free `owner`; IR_NONE where it is not known yet, or none will. */
ir_node_t sched_live_freed_by(const sched_live_t *live, ir_value_t owner);
/* Most bytes alive at one time in that order. */
int64_t sched_live_peak(sched_live_t *live, const ir_node_t *order);

#endif
