/* Bodies of several graphs, side by side. Graphs alike have the same nodes and differ in sizes
 * only, as the programs of ranks do; so do the bodies that a node of theirs has. */
#ifndef STATOR_IR_BODIES_H
#define STATOR_IR_BODIES_H

#include "ir/graph.h"

bool ir_has_bodies(const ir_graph_t *graph);

/* Fills made[n] with what bodies alike become; what it made before a failure is the caller's,
 * too. */
typedef st_status_t (*ir_bodies_t)(void *context, uint32_t n, const ir_graph_t *const *bodies,
                                   ir_graph_t **made);
/* Fills out[n], which holds NULLs, with copies of graphs alike in which the bodies of control flow
 * are those that `each` makes, node by node. What it made before a failure is the caller's, too.
 * Linear, but for `each`. */
st_status_t ir_with_bodies(uint32_t n, const ir_graph_t *const *graphs, ir_bodies_t each,
                           void *context, ir_graph_t **out) ST_WARN_UNUSED;

#endif
