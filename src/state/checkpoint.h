/* Checkpoints: a folder of immutable sets.
 *
 *   DIR/set-000007-step-320/model.safetensors       parameters and buffers, aliases
 *                           optimizer.safetensors   moments and other optimizer state
 *                           trainer.json            step, data position, seed, best metric
 *                           manifest.json           names, sizes and checksums; written last
 *   DIR/model.safetensors   another name (hard link) of the newest set's model
 *   DIR/best                symbolic link to the best set
 *   DIR/.lock               held during a save; the process id of the last holder
 *
 * Where several processes have parts of the state, each writes its own, and nothing is put
 * together:
 *
 *   DIR/set-000007-step-320/model-00000-of-00004.safetensors       what rank 0 has, a box of each
 *                                                                  tensor
 *                           optimizer-00000-of-00004.safetensors   at most (checkpoint_parts.h)
 *                           …
 *
 * and there is no DIR/model.safetensors, until checkpoint_gather writes one where it is wanted. A
 * set loads into any parts, whatever parts it was written in: each process maps the files and takes
 * the runs of bytes that it needs. Memory: a process that saves or loads has a buffer of
 * SAFETENSORS_BUFFER_BYTES at most.
 *
 * A set is written under a partial name, flushed, and appears by one rename of its folder; the two
 * links change by rename too. So a save that is cut short at any point leaves the previous sets and
 * a whole DIR/model.safetensors (the previous one, or the new one). The serial number orders sets
 * by age, whatever their steps. Old sets are removed after the new one is in place.
 *
 * One process saves into a folder at a time: a save takes DIR/.lock, waits up to 10 s for
 * another's, and then fails with its process id. Partial names carry the process id, and a save
 * removes only its own process's and those of processes that no longer run. The lock is not kept
 * between saves: two runs with one folder lose no set to each other's writing, but they share the
 * numbering and the limit on old sets. Where the file system has no locks (some network ones),
 * keeping to one process is left to the user. */
#ifndef STATOR_STATE_CHECKPOINT_H
#define STATOR_STATE_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "ir/box.h"
#include "state/safetensors.h"
#include "state/tensor.h"

typedef struct checkpoint_progress {
    int64_t step;  /* optimizer steps done */
    int64_t epoch; /* data position: sample `sample` of epoch `epoch` comes next */
    int64_t sample;
    uint64_t seed;
    bool has_best;
    double best;       /* best metric so far, finite */
    int64_t n_samples; /* of the data that the position counts in; 0: not known */
} checkpoint_progress_t;

/* What this process writes, or needs, of a tensor. */
typedef struct checkpoint_tensor {
    const char *name;
    ir_type_t type; /* of the whole */
    ir_box_t box;
} checkpoint_tensor_t;

typedef struct checkpoint_contents {
    const checkpoint_tensor_t *model; /* no box of a tensor is that of another process */
    size_t n_model;
    const state_alias_t *aliases; /* of model tensors, of other processes too */
    size_t n_aliases;
    const checkpoint_tensor_t *optimizer;
    size_t n_optimizer;
    safetensors_source_t source; /* of the dense tensors of the boxes */
    checkpoint_progress_t progress;
} checkpoint_contents_t;

/* The processes that save or load together; each calls the same functions in the same order. */
typedef struct checkpoint_group {
    uint32_t rank, size;
    void *context;
    /* the first failure of any rank, on all */
    st_status_t (*agree)(void *context, st_status_t own);
    /* rank 0's bytes on all; the bytes of all in order */
    st_status_t (*tell)(void *context, void *data, size_t bytes);
    st_status_t (*gather)(void *context, const void *own, size_t bytes, void *all);
} checkpoint_group_t;

typedef struct checkpoint_policy {
    int32_t keep; /* newest sets to keep, ≥ 1; the best one is kept besides */
    bool is_best; /* DIR/best becomes this set */
} checkpoint_policy_t;

/* Creates `dir` if needed and writes a set. Data is read during the call only. On failure the
 * checkpoints that were there are still there. ST_IO when another process holds the folder. `group`
 * NULL: this process is alone. */
st_status_t checkpoint_save(const char *dir, const checkpoint_contents_t *contents,
                            const checkpoint_policy_t *policy,
                            const checkpoint_group_t *group) ST_WARN_UNUSED;

typedef struct checkpoint checkpoint_t;
/* Opens the newest set whose manifest and checksums hold; `dir` may also be a set itself, such as
 * DIR/best. The processes of a group share the checking of the parts and open the same set. What is
 * missing or damaged is named with its file, rank, tensor and offset. ST_NOT_FOUND when there is no
 * set, ST_PARSE when none holds. */
st_status_t checkpoint_open(const char *dir, const checkpoint_group_t *group,
                            checkpoint_t **out_checkpoint) ST_WARN_UNUSED;
/* NULL is fine. */
void checkpoint_close(checkpoint_t *checkpoint);
/* Why newer sets were passed over, for the log; "" if none was. */
const char *checkpoint_skipped(const checkpoint_t *checkpoint);
const checkpoint_progress_t *checkpoint_progress(const checkpoint_t *checkpoint);

/* Takes a stored box of a tensor, dense; the one that is wanted may share a part of it only. `data`
 * is there during the call. */
typedef struct checkpoint_sink {
    st_status_t (*write)(void *context, const checkpoint_tensor_t *tensor, const ir_box_t *box,
                         const void *data);
    void *context;
} checkpoint_sink_t;
/* Hands over all stored boxes that share something with those of `tensors`. Names (or aliases),
 * dtypes and shapes must agree exactly and nothing may be left over: otherwise ST_INVALID lists the
 * differences and nothing is handed over. ST_PARSE: boxes of a tensor overlap, or leave some
 * out. */
st_status_t checkpoint_load_model(const checkpoint_t *checkpoint,
                                  const checkpoint_tensor_t *tensors, size_t n_tensors,
                                  const checkpoint_sink_t *sink) ST_WARN_UNUSED;
st_status_t checkpoint_load_optimizer(const checkpoint_t *checkpoint,
                                      const checkpoint_tensor_t *tensors, size_t n_tensors,
                                      const checkpoint_sink_t *sink) ST_WARN_UNUSED;
/* Writes the model as one file of whole tensors: the bytes that a process alone would have
 * saved. */
st_status_t checkpoint_gather_model(const checkpoint_t *checkpoint,
                                    const char *path) ST_WARN_UNUSED;

#endif
