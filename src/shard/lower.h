/* Lowering: from the global program to one rank's program.
 *
 * Problem: every value of the global graph gets a placement over the ranks (replicated, split along
 * a dim, or partial sums), every node a way to run that its partition rule allows, and where a
 * value is needed in another placement than it has, a conversion: a collective, a slice, or both.
 *
 * In: a graph without composites, and without collectives over this axis. Out: for each rank a
 * graph of the same nodes in the same order, with that rank's shapes and attributes; only sizes,
 * offsets and constants' contents differ. A collective starts right after the node that makes its
 * input and is waited for right before its first consumer.
 *
 * A mesh is lowered one axis after another (mesh.h): what is global to one axis is a rank's to
 * those before it, whose collectives it has.
 *
 * A value that is whole on every rank is cut where the rank's coordinate says (axis_index), so that
 * programs do not differ for that. What is made of split states alone (a weight, its cast) is put
 * together right before it is needed, in each phase anew, the next one ahead of its time: whole
 * weights do not pile up.
 *
 * Algorithm: inputs with a batch axis are split there, if the axis is one for that; a walk in graph
 * order lets each node choose the strategy whose conversions move the fewest bytes, the first
 * listed among equals; a walk backward marks what is needed, and a last walk emits it. Decisions
 * look at global types only, hence are the same on every rank. Linear in the graph times the
 * strategies of a node. */
#ifndef STATOR_SHARD_LOWER_H
#define STATOR_SHARD_LOWER_H

#include "shard/settle.h"

typedef struct shard_lowering shard_lowering_t;

/* One axis of the mesh, and what is settled about it. */
typedef struct shard_axis {
    const char *name;  /* static */
    uint32_t n_ranks;  /* along it */
    bool splits_batch; /* inputs are split along their batch axis; else every rank has all */
    /* The decisions for a graph of the same nodes, whose sizes alone differ: the same are made.
     * NULL: they are free. */
    const shard_lowering_t *like;
    bool has_others; /* there are such: nothing may be shared because sizes are equal by chance */
    const shard_forced_t *forced; /* [nodes]: settled ways of nodes; NULL: all are free */
    const ir_placement_t *homes;  /* [nodes]: of states; NULL: all are whole */
    bool places_inputs;           /* `homes` says it of inputs, too */
} shard_axis_t;

/* `graph` must outlive the result. FAILs where batch extents of inputs do not fit together. */
st_status_t shard_decide(const ir_graph_t *graph, const shard_axis_t *axis,
                         shard_lowering_t **out_lowering) ST_WARN_UNUSED;
void shard_lowering_destroy(shard_lowering_t *lowering); /* NULL is fine */
/* The placement that a value has where its node makes it; of a graph output: how the ranks deliver
 * it (never partial). */
ir_placement_t shard_value_placement(const shard_lowering_t *lowering, ir_value_t value);
ir_placement_t shard_output_placement(const shard_lowering_t *lowering, size_t output);
/* Whether two ranks have the same graph, as far as that is known without making it. */
bool shard_same_graph(const shard_lowering_t *lowering, uint32_t a, uint32_t b);
/* Whether a node is control flow over parts of the batch that every rank runs whole, because ranks
 * would have to meet in its bodies. */
bool shard_runs_whole(const shard_lowering_t *lowering, ir_node_t node);
/* The graph of one rank. */
st_status_t shard_emit(const shard_lowering_t *lowering, uint32_t rank,
                       ir_graph_t **out_graph) ST_WARN_UNUSED;

/* A graph that says how much memory a smaller batch would take on one rank: that of the first
 * `n_parts` of the ranks together, without the collectives, sums being of one term. ST_UNSUPPORTED
 * where a rank gathers what others have. */
st_status_t shard_emit_first(const shard_lowering_t *lowering, uint32_t n_parts,
                             ir_graph_t **out_graph) ST_WARN_UNUSED;

#endif
