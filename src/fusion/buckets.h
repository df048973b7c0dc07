/* Merging of all-reduces into buckets.
 *
 * Problem: a gradient a parameter means many small all-reduces, each with its own latency.
 * In, out: a rank's graph with start/wait pairs, every start followed by one wait of all its
 * outputs.
 *
 *   s0 · s1 · · s2 · · w1 · w0 · w2      →      · · · s012 · · w012 · ·
 *
 * Algorithm: starts are taken in order. One joins the newest bucket of its element type that has
 * room, of which no wait has been passed, and whose wait no other start separates from its own: so
 * sums that are needed at once (a batch norm's in the middle of the backward pass) neither pull
 * gradients along nor wait for them. The merged start stands where the bucket's last start stood,
 * the merged wait where its first wait stood. What is merged depends on positions and on the
 * sizes in `model`, one rank's graph that is given for all: hence it is the same on every rank, also
 * where their parts are of different sizes. Linear in the graph; starts times buckets.
 */
#ifndef STATOR_FUSION_BUCKETS_H
#define STATOR_FUSION_BUCKETS_H

#include "ir/graph.h"

/* `model` has the nodes of `graph`, of other sizes perhaps. */
st_status_t fuse_buckets(const ir_graph_t *graph, const ir_graph_t *model, uint64_t bucket_bytes,
                         ir_graph_t **out_graph) ST_WARN_UNUSED;

#endif
