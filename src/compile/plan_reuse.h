/* Proof that a fused node may write a result over an operand, from its body alone.
 *
 * The planner asks the nest; this asks the graph, and shares with nests only the definitions of
 * composites. What must hold is said in ir/nest_order.h: kernels may compute a value again wherever
 * they need it, in any phase, and only what needs the same reductions is surely made together. So
 *   - everything computed from the operand goes element by element: an op that reads another
 *     element, or one element for several, ends the proof, as does a reduction;
 *   - what comes out of that is results in the operand's order that need the same reductions as the
 *     result does, which is one of them;
 *   - no node reads the operand itself after the one that makes the result;
 *   - nothing in the result's part, the values that run over common points, is reduced, and no
 *     result there has an axis that this one lacks: its points would be gone through several times.
 * An operand of one element is read by operations on such elements, computed once, that need no
 * reduction that the result does not.
 *
 * Elements are followed as a list of (extent, stride into the operand), outermost first, in the
 * order of the value at hand: a reshape leaves it alone, a transpose splits and reorders it. */
#ifndef STATOR_COMPILE_PLAN_REUSE_H
#define STATOR_COMPILE_PLAN_REUSE_H

#include "ir/graph.h"

typedef struct plan_reuse plan_reuse_t;

/* Time and memory: nodes times reductions / 64. */
st_status_t plan_reuse_open(const ir_graph_t *body, plan_reuse_t **out_reuse) ST_WARN_UNUSED;
void plan_reuse_close(plan_reuse_t *reuse); /* NULL is fine */
/* May the body's output k lie on its input j? Linear in the body. */
st_status_t plan_reuse_allows(plan_reuse_t *reuse, uint32_t k, uint32_t j,
                              bool *out_allows) ST_WARN_UNUSED;

/* The part of it that sees through orders of dims (plan_turned.c): out_canon[v] is the value whose
 * elements `v` has in another order, `v` itself for most. `same[v]`: the value with the same
 * elements in the same order. */
st_status_t plan_find_turned(const ir_graph_t *graph, const bool *live, const ir_value_t *same,
                             ir_value_t *out_canon) ST_WARN_UNUSED;

/* The part of it that knows what runs over common points (plan_axes.c). */
typedef struct plan_axes {
    const ir_graph_t *graph;
    uint32_t *first; /* [values + 1] the number of a value's first dim */
    uint32_t *kin;   /* [dims] union-find: dims that have axes in common, perhaps in pieces */
    uint32_t *part;  /* [dims] union-find: dims that share points of one iteration */
} plan_axes_t;

/* Of the live nodes; in the arena. */
st_status_t plan_axes_find(const ir_graph_t *graph, const bool *live, st_arena_t *arena,
                           plan_axes_t *out_axes) ST_WARN_UNUSED;
/* Do both have axes, and run over common points? */
bool plan_axes_meet(const plan_axes_t *axes, ir_value_t v, ir_value_t w);
/* May `v` have no axis that `w` lacks? True wherever it has none; for pieces of one dim that a
 * reshape cut, also where counting does not tell them apart. */
bool plan_axes_within(const plan_axes_t *axes, ir_value_t v, ir_value_t w);

#endif
