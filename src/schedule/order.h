/* Order of execution.
 *
 * Problem: of all orders that the dependencies (dag.h) allow, one that needs little memory. In: a
 * rank's graph in any topological order. Out: the same nodes in the order of execution; that of a
 * program with collectives is then changed so that they are hidden (hide.h).
 *
 * Algorithm: the best, by the most bytes alive at one time and then by the bytes alive over all
 * nodes (live.h), of several orders: the given one; list orders that take the ready node that frees
 * most, or that makes least; breadth first; depth first from the ends, plainly or with the operand
 * that needs most memory first. In the best one, nodes that free nothing then move down to their
 * first reader, if that is better still, and in small graphs single nodes move as long as that
 * helps.
 *
 * Slots of a pipeline's turns (ir/graph.h) come one after the other; what is said is so within
 * each.
 *
 * The order is found on one rank's graph and applied to all: the graphs differ in sizes only.
 * O((nodes + edges) · log nodes).
 *
 * Sources: the operand that needs most first is Sethi and Ullman's rule for trees (1970), by Liu
 * (1987) optimal for them; list orders by memory are those of the XLA and Inductor schedulers. */
#ifndef STATOR_SCHEDULE_ORDER_H
#define STATOR_SCHEDULE_ORDER_H

#include "ir/target.h"

/* What an order needs, by the same count as the search for it (live.h). */
typedef struct sched_order_info {
    int64_t bytes; /* at the fullest moment */
    const char *found_by;
} sched_order_info_t;

/* `target` tells the workspaces; NULL: there are none. out_order[position] = node; the caller gives
 * room for every node. `out_info` may be NULL. */
st_status_t sched_order(const ir_graph_t *graph, const ir_target_t *target, ir_node_t *out_order,
                        sched_order_info_t *out_info) ST_WARN_UNUSED;
/* The graph with its nodes in that order. */
st_status_t sched_apply(const ir_graph_t *graph, const ir_node_t *order,
                        ir_graph_t **out_graph) ST_WARN_UNUSED;

#endif
