/* Layout: no byte is moved only to lie in another order.
 *
 * Problem: models write transposes where they need dims in another place (heads before rows for
 * attention), and devices want other orders than models do (channels last for convolutions). As
 * nodes of their own they read and write whole tensors and compute nothing.
 * In: a rank's graph of plain ops, before fusion. Out: the same outputs, states and effects, with a
 * transpose only where no consumer takes the order that there is.
 *
 * A value gets a physical order, a permutation of its dims, outermost first. The pass writes the
 * graph over the stored forms: a value in order [0,2,1,3] becomes a value whose own dims stand so.
 * Thus all tensors of a program stay dense and row-major, and everything after this pass – fusion,
 * storage, kernels, the proof – sees shapes and nothing else; an op that takes another order says
 * so by an attribute (rows_first, channels_last) and in its shape rule. A transpose is then no
 * node: its result is its operand, with another order.
 * The alternative, strides beside each value, would have every kernel and every check of a plan
 * know them, to the same effect.
 *
 * Algorithm: nodes in order; each takes its operands' orders as they come, if it can:
 *   elementwise, broadcast, concat   the order that makes the fewest bytes move
 *   transpose, reshape               pass it on, where dims stay together
 *   slice, reductions, batch norm    pass it on; sums only where their bits may change (not on a
 *                                    CPU)
 *   sums of ranks                    pass it on
 *   products                         last two dims exchanged: the transpose flag
 *   attention, rope, convolutions, pooling   the other form, where a kernel of the target has it
 *   all others, outputs and states   row-major: a copy where it comes otherwise, one a value and
 *                                    order
 * Two graphs are made so, one with convolutions as they stand and one with channels last, and the
 * cheapest by the target is taken, the graph as it was included.
 * Complexity: O(nodes + uses) for each, and one cost question a node.
 * Source: assigning orders by cost of the consumers is XLA's layout assignment; that the result is
 * written as shapes, its layout normalization. */
#ifndef STATOR_FUSION_LAYOUT_H
#define STATOR_FUSION_LAYOUT_H

#include "ir/target.h"

/* Orders of all values and forms of all nodes; good for all graphs that it was found on. */
typedef struct layout_decision layout_decision_t;

/* `graphs` differ in sizes only; costs are those of graphs[largest]. The target needs `cost` and
 * `can_run`. */
st_status_t layout_decide(const ir_graph_t *const *graphs, uint32_t n_graphs, uint32_t largest,
                          const ir_target_t *target,
                          layout_decision_t **out_decision) ST_WARN_UNUSED;
st_status_t layout_apply(const layout_decision_t *decision, const ir_graph_t *graph,
                         ir_graph_t **out_graph) ST_WARN_UNUSED;
void layout_decision_destroy(layout_decision_t *decision); /* NULL is fine */

#endif
