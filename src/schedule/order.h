/* Order of execution.
 *
 * Problem: of all orders that the dependencies allow, one that needs little memory and leaves
 * collectives time to finish. In: a rank's graph in any topological order. Out: the same nodes in
 * the order of execution.
 *
 * Dependencies beside the data: every reader of a state comes before its update, and before the
 * node that makes the new value where it stood before it (the value can then be written over the
 * state); collectives keep their order among each other, and so do side effects.
 *
 * Algorithm: the best, by the most bytes alive at one time, of the given order, a list order that
 * takes the ready node that frees most, and a depth-first order from the ends. In the latter two a
 * collective starts as soon as it can and is waited for only when nothing else is ready. The order
 * is found on one rank's graph and applied to all: the graphs differ in sizes only. O((nodes +
 * edges) · log nodes): the ready nodes stand in a heap. */
#ifndef STATOR_SCHEDULE_ORDER_H
#define STATOR_SCHEDULE_ORDER_H

#include "ir/graph.h"

/* out_order[position] = node; the caller gives room for every node. */
st_status_t sched_order(const ir_graph_t *graph, ir_node_t *out_order) ST_WARN_UNUSED;
/* The graph with its nodes in that order. */
st_status_t sched_apply(const ir_graph_t *graph, const ir_node_t *order,
                        ir_graph_t **out_graph) ST_WARN_UNUSED;

#endif
