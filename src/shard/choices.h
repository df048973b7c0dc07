/* What is chosen for every node of a graph along one axis, and how the lowering is told.
 *
 * Problem: a search (energy.h, eliminate.c, cut.c) gives a strategy a node and a copy a value; the
 * lowering takes homes of states, turned values and forced nodes (settle.h).
 * In:  one strategy a node, of its op's own list (model.h). Out: settled so that shard_decide gives
 *      just these, on any graph of the same nodes: a split whose granule is one element is said as
 *      "each".
 * Algorithm: a node's choice is forced as it stands, but for those that the lowering places by
 * itself (states, updates, sums of squares). A value is pinned to its copy in the phases in which
 * some read it and none reads it as it is made; weights by phase, or what is gathered for forward
 * would live to backward.
 * Complexity: linear in the nodes and uses. */
#ifndef STATOR_SHARD_CHOICES_H
#define STATOR_SHARD_CHOICES_H

#include "shard/lower.h"

typedef struct shard_choices {
    /* [nodes]: the way that it runs; of inputs and states out[0] is where they lie. */
    const ir_strategy_t **nodes;
    /* [values]: into what a value is brought for all that do not read it as it is made; NULL
     * entries: each reader by itself. NULL: so for all values. */
    const ir_placement_t **copies;
} shard_choices_t;

/* Says them as the lowering takes it. `settled` is open for the graph, and empty. */
st_status_t shard_choices_settle(const ir_graph_t *graph, const shard_choices_t *choices,
                                 shard_settled_t *settled) ST_WARN_UNUSED;
/* Those that a lowering has decided; they live in `arena`, without copies. */
st_status_t shard_choices_of(const shard_lowering_t *lowering, st_arena_t *arena,
                             shard_choices_t *out_choices) ST_WARN_UNUSED;

/* Whether a value is a state, or a cast or view of one: weights, whose parts are gathered anew for
 * each phase that reads them, since what is gathered would otherwise stay. */
bool shard_is_weight(const ir_graph_t *graph, ir_value_t value);
/* Whether a node takes its operand in any parts: sums of squares, of which each rank adds its
 * own. */
bool shard_takes_parts(const ir_node_info_t *reader);
/* Whether the node of a value that is whole everywhere makes a part by itself: nothing has to be
 * cut. */
bool shard_makes_parts(const ir_graph_t *graph, ir_value_t value, ir_placement_t part);

/* What a strategy says of input j: of variadic ops in[0] stands for all. */
static inline ir_placement_t shard_strategy_in(const ir_strategy_t *strategy, uint32_t n_inputs,
                                               uint32_t j) {
    return strategy->in[n_inputs > IR_MAX_OPERANDS ? 0 : j];
}
static inline ir_placement_t shard_strategy_out(const ir_strategy_t *strategy, uint32_t k) {
    return k < IR_MAX_OPERANDS ? strategy->out[k] : IR_PLACE_REPLICATE;
}

#endif
