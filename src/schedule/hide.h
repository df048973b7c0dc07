/* Hiding communication behind computation: which collectives become one, when each starts, where it
 * is waited for.
 *
 * Problem: of all groupings and orders the one whose step is shortest, where memory beyond the
 * order that needs least costs recomputation, or does not fit. In: a rank's graph in that order
 * (order.h). Out: the same nodes in another order, collectives merged.
 *
 * Algorithm: candidates, each told by a few numbers (group sizes, how far gathers go ahead, how far
 * computation goes on past a reader that has to wait), are ordered along a clock (overlap.h) and
 * their memory is counted (live.h). Coordinate by coordinate the fastest is kept whose memory is
 * within SCHED_HIDE_PERCENT of the given order's (SCHED_HIDE_MOST_PERCENT, where nothing is faster
 * within that and more than a tenth of the step is spent waiting); among equals the one of less
 * memory. What is kept has to be faster than the given order as it stands, with each collective by
 * itself; so there is one, and none is slower. Some thirty orders, each as long as overlap.h says,
 * and grouped as transfer.h says.
 *
 * Decided on one rank's graph and applied to all: the graphs differ in sizes only. The clock takes
 * links as if they worked beside kernels even where the target says otherwise: the order then costs
 * nothing. */
#ifndef STATOR_SCHEDULE_HIDE_H
#define STATOR_SCHEDULE_HIDE_H

#include "ir/target.h"

enum { SCHED_HIDE_PERCENT = 5, SCHED_HIDE_MOST_PERCENT = 10 };

typedef struct sched_hidden {
    uint32_t n_nodes, n_groups;
    ir_node_t *order;   /* [nodes] */
    uint32_t *group_of; /* [nodes]: of starts */
    /* by the model's clock, and the search's count of bytes */
    double step_us, exposed_us, link_us;
    int64_t bytes, least_bytes; /* of the decision, of the given order */
} sched_hidden_t;

/* `bucket_bytes` 0: as the links want it; else no merged collective has more. `target` may be
 * NULL. */
st_status_t sched_hide(const ir_graph_t *graph, const ir_target_t *target, uint64_t bucket_bytes,
                       sched_hidden_t *out_hidden) ST_WARN_UNUSED;
/* On a graph that has the same nodes. */
st_status_t sched_hide_apply(const sched_hidden_t *hidden, const ir_graph_t *graph,
                             ir_graph_t **out_graph) ST_WARN_UNUSED;
void sched_hidden_free(sched_hidden_t *hidden); /* zeroed is fine */

#endif
