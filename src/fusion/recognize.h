/* Recognition of composite ops.
 *
 * Problem: exporters write softmax, norms, rotary embeddings, attention, activations and losses as
 * chains of primitives, each in its own spelling. A composite has one kernel, a stable gradient
 * that keeps little, and partition rules of its own; the chain has none of that.
 * In: a graph, best simplified (equal nodes merged, masks folded). Out: the same with every chain
 * that is provably one of the composites replaced by it; nodes that nothing reads any more are
 * gone.
 * Equality is proved, never guessed from names: constants (masks, tables, numbers) are evaluated
 * element by element. What changes is stated with each pattern: the rounding of intermediates, no
 * more. A chain whose inner values of full size have other readers stays: the composite would come
 * on top of it.
 * Patterns are rows of the tables in recognize_*.c, in the language of fusion/match.h; a row has a
 * check (is it really that, and with which attributes) and a build (what to put there).
 * Algorithm: from the back, so that the largest pattern around a node is seen before its parts,
 * each node tries the rows that can start with its op. Then liveness with all matches in place says
 * which matches do not get rid of their chain; these are forbidden and the search is done again,
 * until none is left. Linear in the graph for a bounded pattern. */
#ifndef STATOR_FUSION_RECOGNIZE_H
#define STATOR_FUSION_RECOGNIZE_H

#include "ir/target.h"

/* *out_n_found (may be NULL): composites put in. `target` evaluates constants. */
st_status_t fuse_recognize(const ir_graph_t *graph, const ir_target_t *target,
                           ir_graph_t **out_graph, size_t *out_n_found) ST_WARN_UNUSED;

/* Simplify (exactly: see fuse_simplify_exact) and recognize by turns until nothing is found: one
 * composite may be part of the next, and simplifying brings chains into the patterns' form. */
st_status_t fuse_capture(const ir_graph_t *graph, const ir_target_t *target,
                         ir_graph_t **out_graph) ST_WARN_UNUSED;

#endif
