/* Turns of a loop that was written out, in a rank's program.
 *
 * Problem: micro-batches between which ranks meet stand one after the other, and nothing but memory
 * holds an order of nodes back from mixing them: sums that wait for all of them, gradients that are
 * all there at once. In:  a rank's graph, of whose inputs each turn takes its slice. Out: the same
 *      with slots (ir/graph.h): what turn k makes has slot k + 1, so that it is ordered and fused
 * by itself, and updates have the last one. Algorithm: a node belongs to the last turn that it
 * depends on, by data or by what every order keeps; what depends on none to the first that reads
 * it, and what is there before the step to none. Complexity: linear in nodes and edges. */
#ifndef STATOR_SCHEDULE_TURNS_H
#define STATOR_SCHEDULE_TURNS_H

#include "ir/graph.h"

st_status_t sched_mark_turns(ir_graph_t *graph, uint32_t n_turns) ST_WARN_UNUSED;

#endif
