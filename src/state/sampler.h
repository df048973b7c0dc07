/* Order of samples: shuffled by seed, each exactly once an epoch, in constant memory.
 *
 * The order of an epoch is a keyed permutation of 0 … n-1, a function of (seed, epoch) alone, so a
 * position (epoch, index) is all there is to save. Batches are global: who splits one over ranks
 * takes rows of it. The samples that do not fill a last batch are dropped for that epoch (others
 * are dropped in the next, since the order changes). */
#ifndef STATOR_STATE_SAMPLER_H
#define STATOR_STATE_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct sampler {
    int64_t n_samples;
    int64_t batch;
    uint64_t seed;
    bool shuffle;
    int64_t epoch; /* position: sample `index` of the order of epoch `epoch` comes next */
    int64_t index;
} sampler_t;

/* At epoch 0, index 0. ST_INVALID when there are fewer samples than a batch needs. */
st_status_t sampler_init(sampler_t *sampler, int64_t n_samples, int64_t batch, uint64_t seed,
                         bool shuffle) ST_WARN_UNUSED;
/* Continues at a saved position. */
st_status_t sampler_seek(sampler_t *sampler, int64_t epoch, int64_t index) ST_WARN_UNUSED;
/* The next `batch` samples; moves to the next epoch where a whole batch is not left. */
void sampler_next(sampler_t *sampler, int64_t *out_samples);
/* Sample at place `index` (0 … n_samples-1) of an epoch's order. */
int64_t sampler_at(const sampler_t *sampler, int64_t epoch, int64_t index);
/* Whole batches an epoch has. */
int64_t sampler_batches(const sampler_t *sampler);

#endif
