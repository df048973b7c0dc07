/* Copies of cheap producers: a node that is cheaper to compute again than to keep gets one copy for
 * each consumer that could fuse with it, so that no group needs another one's broadcast or
 * constant.
 *
 *   %1 = constant {0.5}            %1 = constant    %3 = constant
 *   %2 = mul(%0, %1)          →    %2 = mul(%0, %1)
 *   %3 = add(%0, %1)               %4 = add(%0, %3)
 *
 * Copies that no group takes become one node again when the pass writes its result. */
#ifndef STATOR_FUSION_COPIES_H
#define STATOR_FUSION_COPIES_H

#include "ir/graph.h"

typedef struct copies {
    ir_graph_t *graph; /* with the copies, each before its reader */
    ir_node_t *origin; /* [graph->nodes]: node of the given graph that it is or stands for */
} copies_t;

/* Whether a constant holds one element for all. */
bool copies_is_splat(const ir_graph_t *graph, const ir_node_info_t *constant);

/* Marks the nodes that are cheaper again than kept: splat constants, iota, and broadcasts, reshapes
 * and casts of what is no larger than their result. They have one input at most and one output.
 * out_chain[node] is 0, or how many marked nodes stand in a row up to this one. */
void copies_mark(const ir_graph_t *graph, uint8_t *out_chain);
/* Each node that is `fusable` gets its own copies of the marked nodes that it reads, and of those
 * that these read; all others share one. Both arrays are [graph->nodes]. */
st_status_t copies_make(const ir_graph_t *graph, const uint8_t *chain, const bool *fusable,
                        copies_t *out_copies) ST_WARN_UNUSED;
void copies_close(copies_t *copies); /* zeroed is fine */

#endif
