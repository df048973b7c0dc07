/* The memory that an order of a graph's nodes needs.
 *
 * A value lives from its node, an input from the start, to its last reader. Views share their
 * root's memory; a wait takes over what is in flight. What is written over something that is there
 * anyway takes no more: an output over an operand that the node is the last to read, the new value
 * of a state over the state (overwrite.h). While a node runs its workspace is there too. State and
 * constants are always there and do not count.
 *
 *   bytes ^      +-w-+          peak: of values and workspace while one node runs
 *         |   +--+   +--+       area: the bytes of the values, summed over the nodes
 *         | --+         +--
 *         +----------------> nodes */
#ifndef STATOR_SCHEDULE_LIVE_H
#define STATOR_SCHEDULE_LIVE_H

#include "ir/target.h"
#include "schedule/dag.h"

/* `made`, an output of a node, may stand where `over` is, if the node is the last to read that. */
typedef struct sched_reuse {
    ir_value_t made, over; /* both owners */
} sched_reuse_t;

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
    int64_t *bytes;     /* 0 for state, constants and what is written over a state */
    int64_t *workspace; /* [nodes] */
    double *us;         /* [nodes]: what they take; 1 where the target does not say */
    bool *in_comm;      /* [values], of an owner: it lies where collectives put their data */
    ST_VEC(sched_reuse_t) reuse;
    uint32_t *first_reuse;    /* [nodes + 1]: of node n are reuse[first_reuse[n] …] */
    uint32_t n_asked, *taken; /* [values]: the last question in which an output stood there */
} sched_live_t;

/* `target` tells the workspaces; NULL, or one that tells no costs: there are none. */
st_status_t sched_live_build(const sched_dag_t *dag, const ir_target_t *target,
                             sched_live_t *out_live) ST_WARN_UNUSED;
void sched_live_free(sched_live_t *live); /* zeroed is fine */
/* Nothing has run: gives the bytes of the inputs, which are fed before. */
int64_t sched_live_begin(sched_live_t *live);
/* Bytes that come alive at node n. */
int64_t sched_live_born(const sched_live_t *live, ir_node_t n);
/* Bytes that node n, which runs next, needs beside those alive before it. */
int64_t sched_live_need(sched_live_t *live, ir_node_t n);
/* Told of an owner for which only one reader is left. */
typedef void (*sched_last_reader_t)(void *context, ir_node_t reader, int64_t bytes);
/* Node n has run: gives minus the bytes that it was the last to read. `tell` may be NULL. */
int64_t sched_live_run(sched_live_t *live, ir_node_t n, sched_last_reader_t tell, void *context);
/* The one node that will free `owner`; IR_NONE where it is not known yet, or none will. */
ir_node_t sched_live_freed_by(const sched_live_t *live, ir_value_t owner);

typedef struct sched_cost {
    int64_t peak;
    double area;
} sched_cost_t;

/* Of a whole order. */
sched_cost_t sched_live_cost(sched_live_t *live, const ir_node_t *order);
/* The same bytes where what collectives move lies in a region of its own: the sum of both regions'
 * peaks. */
int64_t sched_live_regions(sched_live_t *live, const ir_node_t *order);
/* Peak first: an area can be spared anywhere, and opens the way to a lower peak. */
bool sched_cost_is_less(sched_cost_t a, sched_cost_t b);

#endif
