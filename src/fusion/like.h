/* Sums alike: what recomputation must leave as it is.
 *
 * Problem: what runs again changes what nodes share a nest, and a nest's sums are added up as its
 * tiles, warps and blocks say. A gradient would have other bits for being computed in less memory.
 * Elementwise work has the same bits wherever it is done (ir/nest.h), sums have not.
 * In: a decision for the program before recomputation, the model, and groups of single nodes of the
 * program after it. Out: the sums of each group are added up as the model does it, for good:
 *   - what the model put into one nest with a sum is joined first, whatever it costs;
 *   - a group with sums joins only what leaves their order (judge_sums), and no other with sums;
 *   - where the first is not possible, the nodes that stand against it are named: those that run
 *     again and are read there, or are a sum themselves. Without them it is.
 * Nodes are known by ir_node_info_t.origin. Linear, but for judging. */
#ifndef STATOR_FUSION_LIKE_H
#define STATOR_FUSION_LIKE_H

#include "fusion/decision.h"

/* Before anything is joined. */
st_status_t fuse_begin_like(fuse_decision_t *d) ST_WARN_UNUSED;
/* Whether a and b, whose region is at hand, may be joined. */
st_status_t fuse_keeps_sums(fuse_decision_t *d, group_t a, group_t b,
                            bool *out_alike) ST_WARN_UNUSED;
/* Of a model: how each group adds up its sums, when all are final. */
st_status_t fuse_note_sums(fuse_decision_t *d) ST_WARN_UNUSED;

#endif
