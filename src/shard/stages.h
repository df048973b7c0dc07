/* Pipeline stages: which part of the graph runs on which stage.
 *
 * Problem: items (layers, or smaller) with costs, in a topological order, and values that some give
 * to others. Give each item a stage, never an earlier one than those it reads from, so that a step
 * of m micro-batches over k stages is shortest: sum of the stages' times + (m - 1) · the longest,
 * where a stage's time is what its items cost and what passing values in and out takes. A value
 * goes from stage to stage up to its last reader. Each stage keeps within a limit of memory: its
 * items' state, and what they keep for the backward pass once for each micro-batch in flight (1F1B:
 * k - s at stage s, m at most).
 *
 * Algorithm: for one order, stages are consecutive parts of it, and dynamic programming over
 * (stages, items) is exact: for a bound on the longest stage the least sum, for bounds from the
 * least possible one upwards, until the bound alone costs more than the best known. O(bounds · k ·
 * n²), few bounds. On a chain there is one order only, so this is the optimum. Where the graph
 * branches, it is done for several orders (as given, depth first, breadth first, by lot), and the
 * best is refined by moving items to the stage before or after while no reader comes before what it
 * reads and the objective falls. Then it need not be the optimum (`exact` is false).
 *
 * Not taken: k-way partitioning of the undirected graph (METIS, Scotch) with a repair of cycles. It
 * balances sums, not the longest stage with what it passes on, it knows no memory in flight, and
 * most of what it finds on a training graph has cycles, whose repair gives up the cut that it was
 * taken for.
 *
 * Sources: Zheng et al., "Alpa", OSDI 2022 (the objective, bounds in ascending order); Herrmann et
 * al., "Multilevel algorithms for acyclic partitioning of directed acyclic graphs", SISC 2019
 * (orders, moves that keep it acyclic). */
#ifndef STATOR_SHARD_STAGES_H
#define STATOR_SHARD_STAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct shard_stage_item {
    int64_t cost;         /* of all that it does for one micro-batch */
    uint64_t state_bytes; /* parameters, moments … */
    uint64_t kept_bytes;  /* for the backward pass, of one micro-batch */
} shard_stage_item_t;

typedef struct shard_stage_value {
    uint32_t producer, n_readers;
    const uint32_t *readers; /* items after the producer */
    int64_t cost; /* of passing it, and its gradient, over one border; on each side of it */
} shard_stage_value_t;

typedef struct shard_stage_input {
    uint32_t n_items, n_values, n_stages, n_micro;
    const shard_stage_item_t *items;   /* in a topological order */
    const shard_stage_value_t *values; /* costs of all together with the items': below 2^56 */
    uint64_t limit_bytes;              /* of a stage; UINT64_MAX: none */
} shard_stage_input_t;

typedef struct shard_stage_result {
    int64_t longest, sum; /* of the stages' times */
    int64_t step;         /* sum + (n_micro - 1) · longest */
    uint64_t most_bytes;  /* of a stage */
    bool exact;           /* no other stages take less */
} shard_stage_result_t;

/* out_stages[item]: 0 … n_stages - 1, none empty. DOES_NOT_FIT: no stages were found that keep
 * within the limit; the message says what the best of them would need. INVALID: fewer items than
 * stages. */
st_status_t shard_stages(const shard_stage_input_t *input, uint32_t *out_stages,
                         shard_stage_result_t *out_result) ST_WARN_UNUSED;
/* What given stages take; false where an item comes before one it reads from, or a stage is
 * empty. */
bool shard_stages_price(const shard_stage_input_t *input, const uint32_t *stages,
                        shard_stage_result_t *out_result) ST_WARN_UNUSED;

#endif
