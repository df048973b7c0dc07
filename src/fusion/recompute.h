/* Recomputation: which activations are kept for the backward pass, and which are computed again.
 *
 * Problem: what the forward pass makes and the backward pass reads lives from one to the other. A
 * node may run a second time instead, next to its backward readers, if what it reads is there.
 *
 *   forward    x ─► norm ─► y ─► product          kept: x, y
 *   backward   dy, y ─► dw;  dy, x ─► dx
 *
 *   forward    x ─► norm ─► y ─► product          kept: x
 *   backward   x ─► norm ─► y';  dy, y' ─► dw;  dy, x ─► dx
 *
 * In: a rank's graph whose nodes have phases. Out: the same with copies of forward nodes, of the
 * phase backward, each before its first reader. Where the backward pass stands in a loop, as that
 * over micro-batches does, all this is about the loop's body, in which both passes are. The copies
 * compute the same bits: random ops are functions of their place, updates, collectives and side
 * effects are never copied, and the fuse pass leaves sums as they are added up (like.h).
 *
 * Algorithm: a minimum cut (flow.h). A node costs the time that running it again takes, a value
 * that is kept the time that keeping it takes and, at a price a byte, its memory:
 *
 *   source ─time─► node ─kept─► value ─∞─► nodes that read it
 *                                 └───∞──► sink, where a backward node reads it
 *
 * What runs again or is kept stands on the sink's side. Times know of fusion: what loop nests can
 * take in costs its arithmetic only, unless a product reads it and it must be written out; keeping
 * a value that fusion would not have written costs a write; and a value that is kept is read once
 * more.
 *
 * Not run again are: what others may not see twice, reductions to something small, and (below level
 * RECOMPUTE_ALL) what no loop nest takes in: products, convolutions, attention, pooling. Nor what
 * would drag on whole chains of layers: a reader of a value that lies behind the first such op
 * after it (residual sums), and every hundredth or so of a chain of elementwise ops.
 *
 * As the price rises the cuts walk down the lower hull of time over memory; between two of its
 * points the parts of the graph that do not depend on each other, layers most often, change over
 * one by one, first ones first. All these points stand in a row, each with less memory and more
 * time than the one before: the path. The hull comes from cuts at the slopes between points known
 * already, so its length is that of one layer, not of the model. O(points · cut).
 *
 * Sources: Horace He, Shangdi Yu, "Transcending runtime-memory tradeoffs in checkpointing by being
 * fusion aware", MLSys 2023 (the cut and its bans); Eisner and Severance, JACM 1976 (the hull). */
#ifndef STATOR_FUSION_RECOMPUTE_H
#define STATOR_FUSION_RECOMPUTE_H

#include "ir/target.h"

typedef struct recompute recompute_t;

/* A place on the path. Times and sizes are estimates for the graph that the path was made for. */
typedef struct recompute_point {
    uint64_t kept_bytes; /* of values that only the backward pass still needs */
    double extra_us;     /* more than keeping everything takes; less than 0: it saves time */
} recompute_point_t;

/* What is done at a place of the path. */
typedef struct recompute_summary {
    uint32_t n_nodes, n_products; /* computed again; of these, what no loop nest takes in */
    uint64_t freed_bytes;         /* of values that are kept no more */
    double flop, bytes_moved;     /* of the nodes computed again, each a kernel of its own */
    double extra_us;              /* as of the point */
} recompute_summary_t;

/* What else bounds recomputation, by node of the graph or, where there is one, of the loop's body;
 * either may be NULL. */
typedef struct recompute_rules {
    const bool *never; /* does not run again */
    const bool *late;  /* stands with the backward pass, whatever its phase */
} recompute_rules_t;

/* The loop of a graph whose body has the forward pass and the backward pass; IR_NONE: the graph has
 * them itself. */
ir_node_t recompute_loop(const ir_graph_t *graph);
/* The path of a graph for a target. `fuses`: nests will take in what they can; without, every node
 * is a kernel. `rules` may be NULL. Place 0 keeps everything. */
st_status_t recompute_open(const ir_graph_t *graph, const ir_target_t *target, bool fuses,
                           const recompute_rules_t *rules,
                           recompute_t **out_recompute) ST_WARN_UNUSED;
void recompute_destroy(recompute_t *recompute); /* NULL is fine */
uint32_t recompute_n_points(const recompute_t *recompute);
recompute_point_t recompute_point(const recompute_t *recompute, uint32_t place);
/* The first place after `place` that is a corner of the hull; `place` itself if there is none. */
uint32_t recompute_next_corner(const recompute_t *recompute, uint32_t place);
/* The last place where nothing but what nests take in runs again. */
uint32_t recompute_last_fused(const recompute_t *recompute);
/* The place that takes the least time and, of all whose time is at most `slack` of the step's more
 * than if everything were kept, the one with the least memory, up to recompute_last_fused. */
uint32_t recompute_within(const recompute_t *recompute, double slack);

/* Applies a place to `graph`, which differs from the one that the path was made for in sizes
 * only. */
st_status_t recompute_apply(const recompute_t *recompute, uint32_t place, const ir_graph_t *graph,
                            ir_graph_t **out_graph) ST_WARN_UNUSED;
st_status_t recompute_summarize(const recompute_t *recompute, uint32_t place,
                                const ir_graph_t *graph, const ir_target_t *target,
                                recompute_summary_t *out_summary) ST_WARN_UNUSED;

#endif
