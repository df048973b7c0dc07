/* Dead code out of a rank's program. */
#ifndef STATOR_FUSION_UNREAD_H
#define STATOR_FUSION_UNREAD_H

#include "ir/graph.h"

/* The graph without the nodes whose results nobody reads. What goes follows from the structure
 * alone, never from sizes: ranks' programs stay alike. Sources, effects and collectives stay. */
st_status_t fuse_drop_unread(const ir_graph_t *graph, ir_graph_t **out_graph) ST_WARN_UNUSED;

#endif
