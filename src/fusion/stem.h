/* Stem: strided convolutions over few channels as dense ones over many.
 *
 * Problem: the first convolution of an image network has three channels and stride two; kernels
 * that take eight or sixteen channels at a time run it at a tenth of their rate, padded or not.
 * In: a rank's graph before layout. Out: the same values; a convolution over channels-first images
 * of few channels, and its weight's gradient, over blocks of positions instead where the target
 * says that this is faster. One over an input's gradient is left as it is.
 *
 *   a block is s × s positions; q = ceil(low / s), z = q s - low
 *
 *   o s - low + i = s (o - q) + (i + z): tap i + z = s j + r is position r of block o - q + j, so
 *   that
 *
 * C is filled up with zeros to a multiple of 8 a block;
 *
 *   x [N, C, H, W]  → blocks  [N, H/s, W/s, s s C]
 *   w [O, C, k, k]  → z zeros before, zeros after up to a multiple of s → [O, K, K, s s C]
 *   y               = convolution of stride 1 with K = ceil((k + z) / s) taps and q blocks of
 *                   padding
 *
 * The zeros that fill up the weight's taps meet elements of x that the convolution does not read:
 * what is not finite there makes NaN in outputs whose windows end just before it.
 * Algorithm: each convolution's cost with channels last against that of its blocks, both asked of
 * the target. Not on processors, whose sums keep their order. O(nodes).
 * Source: space to depth for the first layer of ResNet, MLPerf's submissions for TPUs (2018). */
#ifndef STATOR_FUSION_STEM_H
#define STATOR_FUSION_STEM_H

#include "ir/target.h"

/* Sets out_marks[node] for the convolutions of `graph` that are to be blocks; [graph->nodes.n]. The
 * target needs `cost` and `can_run`. */
st_status_t stem_decide(const ir_graph_t *graph, const ir_target_t *target,
                        bool *out_marks) ST_WARN_UNUSED;
/* `graph` may differ in its batch from the one that was decided on. */
st_status_t stem_apply(const bool *marks, const ir_graph_t *graph,
                       ir_graph_t **out_graph) ST_WARN_UNUSED;

#endif
