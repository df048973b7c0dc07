/* What is settled of an axis before the rest is decided: where states live, where values are turned
 * into another placement, how nodes run. Rules of forms (forms.h), a user's pins and a solver all
 * say it this way; shard_decide completes it.
 *
 * In:  a graph along one axis, and what is settled, none of it contradicting another.
 * Out: shard_prepare gives an equivalent graph with a node at each place where a value is turned,
 *      and for each node what is forced of it; nothing is moved yet.
 * Algorithm: the graph is copied in its order; where a node reads a value that is pinned in its
 * phase, the turning node is put before it, once a pin, and remembered for the readers that follow.
 * A sum of squares over operands of both kinds becomes one of those that are split and one of the
 * others, since each rank adds its own.
 * Complexity: linear in the nodes and uses, times the pins of one value.
 *
 * Everything refers to one graph by its ids. It holds for every graph of the same nodes, whatever
 * its sizes: granules are IR_GRANULES_EACH, every element, or a number that divides all of them. */
#ifndef STATOR_SHARD_SETTLE_H
#define STATOR_SHARD_SETTLE_H

#include "ir/mesh.h"

/* Readers of `value` in the phases of `phases` (bits) get it in `placement`, turned into it right
 * before the first of them; by_phase: anew in each phase, so that it does not live in between. */
typedef struct shard_pin {
    ir_value_t value;
    ir_placement_t placement;
    uint32_t phases;
    bool by_phase;
} shard_pin_t;

/* Node `node` runs so: [n_inputs], [n_outputs]. */
typedef struct shard_choice {
    ir_node_t node;
    const ir_placement_t *in, *out;
    bool parts; /* it is replaced by what ranks do with parts of the vocabulary (vocabulary.h) */
    bool ring;  /* attention whose keys go from rank to rank (internal.h) */
} shard_choice_t;

typedef struct shard_settled {
    const char *axis; /* and its size: of nodes that are replaced */
    uint32_t n_ranks;
    st_arena_t arena;      /* of choices' placements and of homes */
    ir_placement_t *homes; /* [nodes]: of states; NULL: all are whole */
    bool places_inputs;    /* homes are those of inputs, too; else their batch is split */
    ST_VEC(shard_pin_t) pins;
    ST_VEC(shard_choice_t) choices;
} shard_settled_t;

enum { SHARD_ALL_PHASES = (1u << IR_PHASE_END) - 1 };

st_status_t shard_settled_open(const ir_graph_t *graph, shard_settled_t *out) ST_WARN_UNUSED;
void shard_settled_free(shard_settled_t *settled);
st_status_t shard_settle_pin(shard_settled_t *settled, ir_value_t value, ir_placement_t placement,
                             uint32_t phases, bool by_phase) ST_WARN_UNUSED;
/* Adds a choice with everything whole, for the caller to fill in. */
st_status_t shard_settle_choice(shard_settled_t *settled, const ir_graph_t *graph, ir_node_t node,
                                ir_placement_t **out_in, ir_placement_t **out_out) ST_WARN_UNUSED;

/* The node is replaced (shard_has_parts). */
st_status_t shard_settle_parts(shard_settled_t *settled, ir_node_t node) ST_WARN_UNUSED;

/* A choice for a node of the graph that is decided. NULL: free. */
typedef struct shard_forced {
    const ir_placement_t *in, *out;
    bool turns;    /* the node only turns its operand into another placement, and is left out */
    bool by_phase; /* with `turns`: what is split is put together in each phase anew */
    bool ring;     /* as in shard_choice_t */
    bool trusted;  /* it stands for what ranks do with parts, which no rule of its op knows */
} shard_forced_t;

typedef struct shard_prepared {
    ir_graph_t *graph;
    st_arena_t arena;
    shard_forced_t *forced; /* [nodes] */
    ir_placement_t *homes;  /* [nodes] */
    bool places_inputs;
} shard_prepared_t;

/* Works it into a graph: shadows (IR_SHADOW_PREFIX) live where their parameters do, whatever is
 * settled of them, for each rank casts its own part; values that are pinned get a node that turns
 * them, sums of squares become one of the operands that are split and one of the others. */
st_status_t shard_prepare(const ir_graph_t *graph, const shard_settled_t *settled,
                          shard_prepared_t *out) ST_WARN_UNUSED;
void shard_prepared_free(shard_prepared_t *prepared);

#endif
