/* An open checkpoint, between opening (checkpoint.c) and loading (checkpoint_load.c). */
#ifndef STATOR_STATE_CHECKPOINT_INTERNAL_H
#define STATOR_STATE_CHECKPOINT_INTERNAL_H

#include "state/checkpoint.h"
#include "state/checkpoint_parts.h"

enum { CHECKPOINT_SKIPPED_BYTES = 1024 };

struct checkpoint {
    char *folder;
    checkpoint_progress_t progress;
    uint32_t n_parts;
    safetensors_t **files[CHECKPOINT_N_KINDS]; /* [n_parts] */
    char skipped[CHECKPOINT_SKIPPED_BYTES];
};

#endif
