/* Reverse-mode differentiation on the graph.
 *
 *   in    a graph without composites that only expand (see ir_expand_for_gradient); `loss`, a float
 *         scalar of it; `wrt`, the float values to differentiate by
 *   out   the same graph with the backward nodes appended; out_grads[i] has the type of wrt[i] */
#ifndef STATOR_AUTODIFF_GRADIENT_H
#define STATOR_AUTODIFF_GRADIENT_H

#include "ir/op.h"

/* Only nodes between `wrt` and `loss` are differentiated. A value that does not influence the loss
 * (or only through integers, which carry no gradient) gets zeros. Where a node on the way has no
 * rule, or its rule does not cover the case, one error lists every such node with the reason, and
 * the graph is left as it was. Contributions to one value are added in a fixed order (later uses
 * first), so the result is deterministic. The nodes are of the backward phase. */
st_status_t ad_gradient(ir_graph_t *graph, ir_value_t loss, size_t n_wrt, const ir_value_t *wrt,
                        ir_value_t *out_grads) ST_WARN_UNUSED;
/* The same times `seed`, a scalar of the loss's type; IR_NONE: 1. */
st_status_t ad_gradient_scaled(ir_graph_t *graph, ir_value_t loss, ir_value_t seed, size_t n_wrt,
                               const ir_value_t *wrt, ir_value_t *out_grads) ST_WARN_UNUSED;

/* The same from several values, each with the gradient that arrives at it (IR_NONE: none):
 * out_grads[i] is IR_NONE where nothing gets to. After an error the graph is not to be used. */
st_status_t ad_pullback(ir_graph_t *graph, size_t n, const ir_value_t *values,
                        const ir_value_t *seeds, size_t n_wrt, const ir_value_t *wrt,
                        ir_value_t *out_grads) ST_WARN_UNUSED;

#endif
