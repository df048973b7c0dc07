/* Loops written out: each repeat that is wanted becomes `trip` copies of its body.
 *
 *   in     %h, %y = repeat(%h0, %x, %w) {trip=2, carried=1, scanned=1, body}
 *   out    body(%h0, %x[0], %w), body(…, %x[1], %w); %y is the concatenation of the pieces
 *
 * The copies' nodes keep the phases that they have in the body. Loops in bodies stay; they stand in the
 * graph itself afterwards. Linear in what comes out. */
#ifndef STATOR_IR_UNROLL_H
#define STATOR_IR_UNROLL_H

#include "ir/graph.h"

/* Nodes of a graph that has been written out, at most: more is left to whoever can run loops. */
enum { IR_UNROLL_NODES = 200000 };

/* Nodes that the repeat becomes; 0: it is none. */
double ir_unrolled_nodes(const ir_graph_t *graph, ir_node_t node);
/* `wanted` is asked for repeats only. */
st_status_t ir_unroll(const ir_graph_t *graph, bool (*wanted)(void *context, ir_node_t node),
                      void *context, ir_graph_t **out_graph) ST_WARN_UNUSED;

#endif
