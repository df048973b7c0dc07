/* The placements along one axis of the mesh as an energy (energy.h).
 *
 *   variable   a class of nodes: its labels are the ways to run that their rules list (kinds.h),
 *              with what one rank's part takes as cost. Of inputs and states the ways are their
 *              homes.
 *   variable   a value that several read: the placement into which it is brought for them, once
 *   table      from how a value is made to how it is read: the conversion; of weights that are
 *              gathered, once for each phase that reads them
 *   free       sums of squares read parts as they are: their part of the sum is a number a rank
 *   forbidden  an update whose state lies otherwise: state is not converted in place
 *   tied       a shadow of a weight lives as the weight does
 *   memory     parts of states, and of forward values that the backward pass reads
 *
 * Nodes that look alike decide together: classes are those of equal kinds whose neighbourhoods,
 * some readings and readers away, are of equal kinds (colour refinement). So identical layers are
 * one layer with its costs counted as often as it occurs, and the energy does not grow with depth.
 * Nodes near the ends are classes of their own.
 *
 * What it leaves out, and schedule simulation sees: that communication hides behind computation
 * (`weight` of the ring stands for it), that several collectives share a launch, fusion but for a
 * flat share, and peaks of memory.
 *
 * Source of the refinement: Weisfeiler, Leman, 1968. */
#ifndef STATOR_SHARD_MODEL_H
#define STATOR_SHARD_MODEL_H

#include "shard/choices.h"
#include "shard/energy.h"
#include "shard/kinds.h"
#include "shard/price.h"

typedef struct shard_model shard_model_t;

/* `graph` and `target` (with costs) have to outlive it. `pinned` [nodes], NULL or of NULLs: where
 * states have to live; one that no way of the state's makes is passed over. UNSUPPORTED: a node
 * with bodies. */
st_status_t shard_model_open(const ir_graph_t *graph, const ir_target_t *target,
                             const shard_ring_t *ring, bool splits_inputs,
                             const ir_placement_t *const *pinned,
                             shard_model_t **out_model) ST_WARN_UNUSED;
void shard_model_destroy(shard_model_t *model); /* NULL is fine */
const shard_energy_t *shard_model_energy(const shard_model_t *model);
const ir_graph_t *shard_model_graph(const shard_model_t *model);
/* The energy at another weight of communication than the ring's: the same variables and labels.
 * Closed by the caller, whatever came out. */
st_status_t shard_model_weigh(const shard_model_t *model, double weight,
                              shard_energy_t *out_energy) ST_WARN_UNUSED;

/* Labellings to begin with, owned by the model: all whole; and for each number of granules that
 * occurs the ways that split into so many, wherever there are some. */
shard_start_t shard_model_starts(const shard_model_t *model);
/* What labels mean. `out_choices` has room for all nodes and values of the graph. */
void shard_model_choose(const shard_model_t *model, const uint8_t *labels,
                        shard_choices_t *out_choices);
/* Labels that mean these choices; false where nodes of a class chose differently, or a way that is
 * not listed. */
bool shard_model_find(const shard_model_t *model, const shard_choices_t *choices,
                      uint8_t *out_labels);
/* Nodes that decide together share it: variables 0 … n_classes - 1 of the energy. */
uint32_t shard_model_class(const shard_model_t *model, ir_node_t node);
uint32_t shard_model_n_classes(const shard_model_t *model);
/* The first node of a class, and the ways that its labels stand for. */
ir_node_t shard_model_node(const shard_model_t *model, uint32_t class_of, uint32_t *out_n_ways,
                           const ir_strategy_t **out_ways);
#endif
