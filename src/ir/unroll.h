/* Loops written out: each repeat that is wanted becomes `trip` copies of its body.
 *
 *   in     %h, %y = repeat(%h0, %x, %w) {trip=2, carried=1, scanned=1, body}
 *   out    body(%h0, %x[0], %w), body(…, %x[1], %w); %y is the concatenation of the pieces
 *
 * Problem: ranks cannot meet in a body that some of them run in parts.
 * In:  any verified graph. Out: an equivalent one without the wanted repeats of its own nodes; the
 *      copies' nodes keep the phases that they have in the body. Loops in bodies stay: they stand
 *      in the graph itself afterwards, so that asking again writes them out too.
 * Algorithm: each turn clones the body with its inputs mapped: carried values to the turn before,
 * scanned ones to their slice, captured ones to themselves. Pieces that are stacked are joined
 * once, at the end; a loop that goes backwards takes its turns, not its pieces, in the other order.
 * No turn at all gives the carries as they begin and empty stacks.
 * Complexity: linear in what comes out, which ir_unrolled_nodes tells beforehand.
 * Source: a scan's meaning as its turns written out, as in any definition of one. */
#ifndef STATOR_IR_UNROLL_H
#define STATOR_IR_UNROLL_H

#include "ir/graph.h"

/* Nodes of a graph that has been written out, at most: more is left to whoever can run loops. */
enum { IR_UNROLL_NODES = 200000 };

/* Nodes that the repeat becomes; 0: it is none. */
double ir_unrolled_nodes(const ir_graph_t *graph, ir_node_t node);
/* Of a loop of `n_turns` that was written out: the turn whose slice of an input the node takes;
 * IR_NONE: it does no such thing. */
uint32_t ir_turn_taken(const ir_graph_t *graph, const ir_node_info_t *node, uint32_t n_turns);
/* `wanted` is asked for repeats only. */
st_status_t ir_unroll(const ir_graph_t *graph, bool (*wanted)(void *context, ir_node_t node),
                      void *context, ir_graph_t **out_graph) ST_WARN_UNUSED;

#endif
