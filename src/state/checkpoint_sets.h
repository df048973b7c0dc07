/* The sets of a checkpoint folder, by name. */
#ifndef STATOR_STATE_CHECKPOINT_SETS_H
#define STATOR_STATE_CHECKPOINT_SETS_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum {
    CHECKPOINT_SET_NAME_BYTES = 64,
    CHECKPOINT_PARTIAL_NAME_BYTES = CHECKPOINT_SET_NAME_BYTES + 48
};

typedef struct checkpoint_set {
    int64_t serial;
    char name[CHECKPOINT_SET_NAME_BYTES];
} checkpoint_set_t;

typedef struct checkpoint_sets {
    checkpoint_set_t *data;
    size_t n, cap;
} checkpoint_sets_t;

/* Newest first. A missing folder has none. Free with ST_VEC_FREE. */
st_status_t checkpoint_list(const char *dir, checkpoint_sets_t *out_sets) ST_WARN_UNUSED;
void checkpoint_set_name(int64_t serial, int64_t step, char out[CHECKPOINT_SET_NAME_BYTES]);
/* Name of a set while it comes ("new") or goes ("old"), this process's own. */
void checkpoint_partial_name(const char *set, const char *word,
                             char out[CHECKPOINT_PARTIAL_NAME_BYTES]);
/* Removes old sets (all but the newest `keep` and the best) and what interrupted saves left;
 * partial files and folders of other processes that still run stay. */
st_status_t checkpoint_prune(const char *dir, int32_t keep) ST_WARN_UNUSED;

#endif
