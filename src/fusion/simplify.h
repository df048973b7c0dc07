/* The simplify pass. */
#ifndef STATOR_FUSION_SIMPLIFY_H
#define STATOR_FUSION_SIMPLIFY_H

#include "ir/target.h"

/* Writes an equivalent graph with dead code, repeated subexpressions, operations that do nothing
 * and constant subexpressions removed. Inputs, state, side effects, collectives, outputs and
 * aliases stay, in their order. Values are the same except that x + 0 and its kin keep the sign of
 * a zero x, and that a sum or mean of equal elements is taken at once. `target` evaluates
 * constants; NULL: only folding that needs no arithmetic. */
st_status_t fuse_simplify(const ir_graph_t *graph, const ir_target_t *target,
                          ir_graph_t **out_graph) ST_WARN_UNUSED;
/* The same, but arithmetic on float constants is left undone: for graphs whose types may yet change
 * (the source graph before its gradient, and before --dtype). */
st_status_t fuse_simplify_exact(const ir_graph_t *graph, const ir_target_t *target,
                                ir_graph_t **out_graph) ST_WARN_UNUSED;
/* The same for the programs of ranks, which differ in extents only: they stay so. What the extents
 * of one allow and those of another do not (a reshape that changes nothing where a part has one
 * row, two equal extents that make one iota of two) is left in all. */
st_status_t fuse_simplify_alike(uint32_t n_graphs, const ir_graph_t *const *graphs,
                                const ir_target_t *target, ir_graph_t **out_graphs) ST_WARN_UNUSED;

#endif
