/* What a node may write over: an output over an input of the same elements, the new value of a
 * state over the state. The order counts with it, the storages decide by it. */
#ifndef STATOR_SCHEDULE_OVERWRITE_H
#define STATOR_SCHEDULE_OVERWRITE_H

#include "ir/nest.h"
#include "ir/op.h"

typedef struct sched_overwrite {
    const ir_graph_t *graph;
    ir_node_t node; /* that was asked about last … */
    nest_t *nest;   /* … and the nest of its body; NULL: it has none */
} sched_overwrite_t;

sched_overwrite_t sched_overwrite_open(const ir_graph_t *graph);
void sched_overwrite_close(sched_overwrite_t *overwrite); /* zeroed is fine */
/* Turns to node n. Neighbours in a walk that ask for the same pay once. */
st_status_t sched_overwrite_look(sched_overwrite_t *overwrite, ir_node_t n) ST_WARN_UNUSED;
/* Whether the op lets output k of the node looked at be written over input j element by element: by
 * its row, or for a fused node by its nest. */
bool sched_may_overwrite(const sched_overwrite_t *overwrite, uint32_t k, uint32_t j);
/* out_takes[value] = the state that the value is written over as soon as it is made: no one reads
 * the state's old content at or after that node but the node itself, element by element. IR_NONE:
 * it has memory of its own. Nodes run in the graph's order. */
st_status_t sched_find_taken(sched_overwrite_t *overwrite, ir_value_t *out_takes) ST_WARN_UNUSED;

#endif
