/* Choosing among the ways that a library offers for a problem by running them on the device: one
 * mechanism for all libraries.
 *
 * A kernel lists ways whose bits are the same in every run and that keep to the planned scratch,
 * the library's own first choice first, and can run each of them. What is chosen goes into the
 * record (kernels/record.h) of the device, which lies beside the cubins and is read before anything
 * is measured: so a second run takes what the first did, and has its bits. Where no folder can be
 * written, or option tune is off, nothing is measured and the library's first choice runs.
 *
 * Ranks of a process share the record and measure one after the other. */
#ifndef STATOR_KERNELS_CUDA_TUNE_H
#define STATOR_KERNELS_CUDA_TUNE_H

#include "device/cuda/cuda.h"
#include "kernels/kernel.h"
#include "kernels/record.h"

enum { TUNE_MAX_WAYS = 12 };

/* What tells a problem from others: types, attributes, scratch, and the library's version. */
uint64_t tune_key(const kern_problem_t *problem, size_t workspace_bytes, uint64_t library);

/* What is on record for the key. */
st_status_t tune_find(dev_stream_t *stream, uint64_t key, record_choice_t *out,
                      bool *out_found) ST_WARN_UNUSED;

typedef struct tune_job {
    uint64_t key;
    uint32_t n_ways; /* at least 1 */
    const record_choice_t *ways;
    /* Puts one run on the stream. A failing way is left out. */
    st_status_t (*run)(void *context, uint32_t way);
    void *context;
    const kern_noise_t *noise;
} tune_job_t;
/* The way to take: the one on record, else the fastest, which is then on record. */
st_status_t tune_choose(dev_stream_t *stream, const tune_job_t *job,
                        uint32_t *out_way) ST_WARN_UNUSED;
/* Is anything measured or looked up at all? */
st_status_t tune_enabled(dev_stream_t *stream, bool *out_enabled) ST_WARN_UNUSED;
/* A kernel of the stream takes this way: for the hash of choices. */
void tune_took(dev_stream_t *stream, uint64_t key, const record_choice_t *choice);

#endif
