/* What each rank of a pipeline does when: forward passes F, backward passes B and, where these are
 * kept apart, gradients of weights W, of every micro-batch and stage.
 *
 *   1f1b, 4 ranks (two of 4 micro-batches shown as 0 … 3)
 *     rank 0   F0 F1 F2 F3 ............ B0 .... B1 …
 *     rank 3            F0 B0 F1 B1 F2 B2 F3 B3
 *
 * Algorithm: a simulation in which every pass takes its unit of time (B twice an F, or with W apart
 * as long as an F). A rank that is free begins its next pass:
 *
 *   1f1b  forwards until so many micro-batches are in flight that the first B can come, then back
 *         and forth, each kind in its order. Rank r of P holds P - r micro-batches at most. Of
 *         several stages a rank, which are P apart, P micro-batches go through a stage before the
 *         next one has a turn, and 2 (P - r - 1) + P (V - 1) + 1 passes are in flight
 *   zb    a B that can run; else an F, while no more are in flight than with 1f1b and no more wait
 *         for their W than the first rank holds anyway; else the oldest W (ZB-H1)
 *
 * Where everybody waits for somebody, as may be where P does not divide the micro-batches, the
 * first pass that can run goes out of its order.
 *
 * Sources: Narayanan et al., "Efficient large-scale language model training on GPU clusters using
 * Megatron-LM", SC 2021; Qi et al., "Zero bubble pipeline parallelism", ICLR 2024. */
#ifndef STATOR_SHARD_PIPE_ORDER_H
#define STATOR_SHARD_PIPE_ORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef enum shard_schedule {
    SHARD_1F1B = 0,
    SHARD_ZERO_BUBBLE, /* W apart from B */
} shard_schedule_t;

typedef enum pipe_pass { PIPE_F = 0, PIPE_B, PIPE_W, PIPE_PASS_END } pipe_pass_t;

typedef struct pipe_order {
    uint32_t n_ranks, n_stages, n_micro; /* stage s is on rank s % n_ranks */
    uint32_t
        *place; /* [stages][micro-batches][PIPE_PASS_END]: the pass's number on its rank, from 0 */
    uint32_t *n_passes; /* [ranks] */
    uint32_t
        *begin; /* [ranks][PIPE_PASS_END · stages a rank · micro-batches]: when each of a rank's
                * passes begins, in units */
    uint32_t *most_held; /* [ranks]: micro-batches times stages between F and the last of B and W */
} pipe_order_t;

/* `trains`: there are backward passes; without zero bubbles a W is done with its B. */
st_status_t pipe_order_make(uint32_t n_ranks, uint32_t per_rank, uint32_t n_micro,
                            shard_schedule_t schedule, bool trains,
                            pipe_order_t *out_order) ST_WARN_UNUSED;
void pipe_order_free(pipe_order_t *order); /* zeroed is fine */

/* When pass `place` of the rank begins; UINT32_MAX of what comes after all passes. */
static inline uint32_t pipe_begin(const pipe_order_t *order, uint32_t rank, uint32_t place) {
    const size_t most = (size_t)order->n_stages / order->n_ranks * order->n_micro * PIPE_PASS_END;
    return place < order->n_passes[rank] ? order->begin[rank * most + place] : UINT32_MAX;
}
static inline uint32_t pipe_place(const pipe_order_t *order, uint32_t stage, uint32_t micro,
                                  pipe_pass_t pass) {
    return order->place[((size_t)stage * order->n_micro + micro) * PIPE_PASS_END + (uint32_t)pass];
}

#endif
