/* What the optimizer of placements takes things to cost: conversions along one axis of the mesh,
 * and nodes on one rank's part. Times in picoseconds, whole, so that sums are the same everywhere.
 *
 *   partial → replicate   all-reduce       one launch, and over the links of the axis (ir/link.h)
 *   split   → replicate   all-gather
 *   partial → split       reduce-scatter
 *   split   → other split all-to-all
 *   replicate → split     a slice: read and written once; nothing where the producer makes parts by
 *                         itself (constants, iota, broadcast along a new dim)
 *   replicate → partial   zeros but for rank 0: read and written once
 *   split   → partial     made whole, then as above
 *
 * Kernels of one node by itself cost what the target says. Nodes that loop nests take in will share
 * one: they count without their launch, and half (their operands move once for several of them). */
#ifndef STATOR_SHARD_PRICE_H
#define STATOR_SHARD_PRICE_H

#include "ir/link.h"
#include "shard/choices.h"

/* What nodes cost along one axis, kept: a model asks for thousands that are alike. */
typedef struct shard_prices shard_prices_t;
st_status_t shard_prices_create(shard_prices_t **out_prices) ST_WARN_UNUSED;
void shard_prices_destroy(shard_prices_t *prices); /* NULL is fine */

/* One axis of the mesh, as far as prices go. */
typedef struct shard_ring {
    uint32_t n_ranks;
    ir_links_t links;
    /* Of communication that can run beside computation: sums of weights' gradients, gathers of
     * weights. 1: as the links have it; less where most of it will be hidden. */
    double weight;
    bool fine_states; /* kinds.h: the axis is lowered after another */
    /* Costs of nodes that are known already, of this axis and target; a strategy's address stands
     * for what it was first asked for, so strategies outlive it. NULL: nothing is kept. */
    shard_prices_t *prices;
} shard_ring_t;

/* Bytes of the largest rank's part; IR_REPLICATE and IR_PARTIAL have all. */
uint64_t shard_part_bytes(const shard_ring_t *ring, const ir_type_t *type,
                          ir_placement_t placement);
/* Getting a value from one placement into another: over the links, and by local passes. */
typedef struct shard_conversion {
    int64_t link_ps, pass_ps;
} shard_conversion_t;
/* `merges`: it becomes one with others like it, as gradients and gathered weights do, and pays a
 * share of one latency: by its bytes, all of it from SHARD_MERGED times the bytes of a latency
 * on. */
enum { SHARD_MERGED = 4 };
shard_conversion_t shard_convert_merged(const shard_ring_t *ring, const ir_target_t *target,
                                        const ir_type_t *type, ir_placement_t from,
                                        ir_placement_t to, bool merges);
shard_conversion_t shard_convert(const shard_ring_t *ring, const ir_target_t *target,
                                 const ir_type_t *type, ir_placement_t from, ir_placement_t to);
static inline int64_t shard_convert_ps(const shard_ring_t *ring, const ir_target_t *target,
                                       const ir_type_t *type, ir_placement_t from,
                                       ir_placement_t to) {
    const shard_conversion_t both = shard_convert(ring, target, type, from, to);
    return both.link_ps + both.pass_ps;
}
/* The node on the last rank, which has as much as any. `strategy` NULL: all of it. */
st_status_t shard_node_ps(const shard_ring_t *ring, const ir_target_t *target,
                          const ir_graph_t *graph, ir_node_t node, const ir_strategy_t *strategy,
                          int64_t *out_ps) ST_WARN_UNUSED;

#endif
