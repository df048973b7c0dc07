/* Dead code at the borders of bodies: a tool of the simplify pass. */
#ifndef STATOR_FUSION_TRIM_H
#define STATOR_FUSION_TRIM_H

#include "ir/graph.h"

/* Copies `graph` with the nodes of control flow (IR_REGION) reduced to what is read of them:
 * results no one reads, what in a body only they need, and operands that no body reads then. A
 * carry stays as long as something that is read depends on it, through any number of iterations.
 * `simplify` is run on every body first. *out_changed: something went, or a body changed. */
st_status_t fuse_trim(const ir_graph_t *graph, ir_body_pass_t simplify, void *context,
                      ir_graph_t **out_graph, bool *out_changed) ST_WARN_UNUSED;

#endif
