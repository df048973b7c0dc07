/* Ways to run: what every node of a graph could do along one axis of the mesh.
 *
 * Problem: partition rules propose strategies for placements that their operands have. Without any
 * decision made, all that operands could have must be asked about. Find for each value the
 * placements that its node can make, and for each node all strategies, without asking about equal
 * nodes twice.
 *
 * Algorithm: sources have what they may be given: whole, split along the batch axis or another dim
 * (inputs that carry the batch), or along each dim (states; in as many granules as the dim has
 * elements, and in the coarser ones that reshapes of the graph cut such a dim into, heads for
 * instance). In graph order each rule is asked about each placement of each operand, the others
 * whole; what comes out are placements of the results. So after one pass all is closed: inputs
 * stand before their readers. Nodes of the same op, attributes and types whose operands have the
 * same placements are one kind. Lists are bounded; what would exceed them is left out, never what
 * runs whole. O(kinds · operands · placements) rules.
 *
 * Kinds are content alone, hence the same on every run and rank. */
#ifndef STATOR_SHARD_KINDS_H
#define STATOR_SHARD_KINDS_H

#include "shard/price.h"

enum { SHARD_MAX_PLACES = 14, SHARD_MAX_WAYS = 48 };

/* Distinct placements; the first is whole. */
typedef struct shard_places {
    uint32_t n;
    ir_placement_t items[SHARD_MAX_PLACES];
} shard_places_t;

typedef struct shard_kind {
    ir_node_t node; /* the first of them */
    uint32_t n_ways;
    ir_strategy_t *ways; /* the first runs whole */
    uint32_t *out;       /* [n_outputs]: places of each result */
    uint64_t hash;       /* of what makes the kind */
} shard_kind_t;

typedef struct shard_kinds {
    st_arena_t arena;
    uint32_t *of_node;  /* [nodes] */
    uint32_t *of_value; /* [values]: its places */
    ST_VEC(shard_kind_t) kinds;
    ST_VEC(shard_places_t) places;
} shard_kinds_t;

/* `splits_inputs`: inputs that carry the batch may be split, else all are whole. Splits that leave
 * ranks without a granule are left out, but for that of a small batch: not every op has a result
 * for no elements. UNSUPPORTED: a node with bodies. */
st_status_t shard_kinds_open(const ir_graph_t *graph, const shard_ring_t *ring, bool splits_inputs,
                             shard_kinds_t *out_kinds) ST_WARN_UNUSED;
void shard_kinds_close(shard_kinds_t *kinds);
/* Adds a placement unless it is there, or the list is full. */
void shard_places_add(shard_places_t *places, ir_placement_t placement);

#endif
