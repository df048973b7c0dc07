/* What deciding (decide.c) hands to emitting (emit.c). */
#ifndef STATOR_SHARD_INTERNAL_H
#define STATOR_SHARD_INTERNAL_H

#include "shard/lower.h"

/* A placement other than the home one in which a value is needed. */
typedef struct shard_want {
    ir_placement_t placement;
    struct shard_want *next;
} shard_want_t;

typedef struct shard_value {
    ir_placement_t home; /* as its node makes it */
    ir_placement_t
        have; /* as later nodes should regard it: replicated once its sum has been asked for */
    uint32_t n_uses; /* readers and graph outputs */
    bool home_used;
    bool lazy; /* gathered when it is needed, in each phase anew: of states alone, or settled so */
    shard_want_t *made;  /* deciding: conversions already paid for */
    shard_want_t *wants; /* emitting: conversions that needed nodes ask for, in order of demand */
} shard_value_t;

typedef struct shard_node {
    bool needed;
    bool whole; /* control flow that every rank runs whole, for lack of a way in parts */
    const ir_placement_t *in;    /* [n_inputs] */
    shard_lowering_t *bodies[2]; /* of control flow that runs in parts; NULL: its bodies stay */
} shard_node_t;

struct shard_lowering {
    const ir_graph_t *graph;
    shard_axis_t axis;
    uint32_t n_ranks; /* axis.n_ranks */
    st_arena_t arena;
    shard_value_t *values;
    shard_node_t *nodes;
    bool local;                    /* of a body: conversions that need a collective are none */
    const ir_placement_t *deliver; /* of a body: placements of its outputs */
    ST_VEC(int64_t) granules;      /* numbers of granules that splits have, each once */
    bool by_place; /* what a rank has depends on where its parts lie, not only on their sizes */
    shard_lowering_t *bodies; /* owned: a list by `next` */
    shard_lowering_t *next;
};

/* Whether a node can make its output split without having all of it: constants, iota, broadcast
 * along a new dim; or as a part of a sum: constants that are zero. *out_input is what the only
 * input has to be (set for nodes with one). */
bool shard_can_localize(const ir_graph_t *graph, ir_value_t value, ir_placement_t wanted,
                        ir_placement_t *out_input);
/* A view, cast or transpose of one value: its elements, in another place or type. */
static inline bool shard_moves(const ir_node_info_t *node) {
    bool moves = (ir_op_def(node->op)->flags & IR_VIEW) || node->op == IR_OP_CAST ||
                 node->op == IR_OP_TRANSPOSE;
    return moves && node->n_inputs == 1;
}
/* Whether getting from `home` to `wanted` takes a collective. */
static inline bool shard_needs_link(ir_placement_t home, ir_placement_t wanted) {
    return home.kind != IR_REPLICATE && !ir_placement_equal(home, wanted);
}
/* Whether a collective makes the part without making the whole: a sum is scattered, parts along one
 * dim are exchanged for parts along another. */
static inline bool shard_makes_part(ir_placement_t home, ir_placement_t wanted) {
    return wanted.kind == IR_SPLIT &&
           (home.kind == IR_PARTIAL || (home.kind == IR_SPLIT && home.dim != wanted.dim));
}
/* Whether the value is made whole on the way: where somebody needs it whole, parts are cut from
 * that. */
static inline bool shard_needs_full(const shard_want_t *wants, ir_placement_t home,
                                    ir_placement_t wanted) {
    if (!shard_needs_link(home, wanted)) return false;
    if (!shard_makes_part(home, wanted)) return true;
    for (; wants; wants = wants->next)
        if (wants->placement.kind == IR_REPLICATE) return true;
    return false;
}

/* ---- what is needed (needed.c) ---- */

/* Adds the placement to the list unless it is in it. */
st_status_t shard_add_want(shard_lowering_t *lowering, shard_want_t **list,
                           ir_placement_t placement) ST_WARN_UNUSED;
/* What is needed of the decided nodes, and in which placements. */
st_status_t shard_mark_needed(shard_lowering_t *lowering) ST_WARN_UNUSED;
/* What shard_same_graph looks at. */
st_status_t shard_find_differences(shard_lowering_t *lowering) ST_WARN_UNUSED;

/* ---- keys that go round (ring.c) ---- */

/* The rank's nodes for an attention or its gradient, operands and results in parts of rows:
 * inputs[j] are the rank's values, out[k] its results. */
st_status_t shard_emit_ring(const shard_lowering_t *lowering, ir_node_t n, uint32_t rank,
                            const ir_value_t *inputs, ir_graph_t *to,
                            ir_value_t *out) ST_WARN_UNUSED;

/* ---- control flow (region.c) ---- */

/* Placements of operands and results of a node whose operands arrive as `have`, the bodies'
 * decisions into the node's. ST_UNSUPPORTED: no way without collectives in the bodies. */
st_status_t shard_decide_region(shard_lowering_t *lowering, ir_node_t n, const ir_placement_t *have,
                                ir_placement_t *in, ir_placement_t *out) ST_WARN_UNUSED;
/* Placements of a body whose inputs are `in`, by local conversions; ST_UNSUPPORTED where a node has
 * no way. */
st_status_t shard_decide_body(const ir_graph_t *body, const shard_axis_t *axis,
                              const ir_placement_t *in,
                              shard_lowering_t **out_lowering) ST_WARN_UNUSED;

#endif
