/* Meshes that ranks could form, priced: what is worth compiling where nobody asked for a mesh.
 *
 * Problem: N ranks can be data=N, data=N/2,tensor=2, … , with axes of experts, sequences and stages
 * where the graph has such: of hundreds of meshes a few are to be compiled.
 * In: the global graph as it is lowered, the target, N. Out: the meshes of several axes that are
 * priced least, each with the form of its data axis that is priced least; what fits first.
 *
 * Algorithm: each axis is priced alone at each size: its form lowered and simulated (sharding.h),
 * once for all meshes that have it. Of a mesh computation and memory are those of one rank times
 * the shares that its axes leave; what an axis sends for weights shrinks with the other axes'
 * shares of the states, what it sends for activations with their sizes, and behind computation
 * hides as much as alone in proportion to what computation is left. A pipeline of P stages and M
 * micro-batches takes (M + P - 1) / (M P) of the computation. So prices are rough: the contest of
 * compiled plans decides (contest.h).
 *
 * Time: axes times log N lowerings and simulations; meshes are numbers from there on. */
#ifndef STATOR_COMPILE_MESHES_H
#define STATOR_COMPILE_MESHES_H

#include "compile/sharding.h"

typedef struct meshes_request {
    const ir_graph_t *graph;
    const ir_target_t *target;
    uint32_t n_ranks;
    uint32_t n_micro;      /* micro-batches, written out in the graph; at most 1: no pipelines */
    uint64_t memory_limit; /* 0: none */
} meshes_request_t;

typedef struct mesh_price {
    ir_mesh_t mesh;
    shard_form_t form; /* of the data axis */
    double step_us, exposed_us;
    uint64_t state_bytes, live_bytes;
    bool fits;
} mesh_price_t;

/* The `capacity` that are priced least, the least first: *out_n of them. */
st_status_t meshes_price(const meshes_request_t *request, uint32_t capacity,
                         mesh_price_t *out_prices, uint32_t *out_n) ST_WARN_UNUSED;

#endif
