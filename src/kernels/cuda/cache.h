/* What is kept on disk beside the cubins: the folder of option cache, else $XDG_CACHE_HOME/stator,
 * else $HOME/.cache/stator. A folder that cannot be made or written only costs making things
 * anew. */
#ifndef STATOR_KERNELS_CUDA_CACHE_H
#define STATOR_KERNELS_CUDA_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { CACHE_PATH_BYTES = 2100 };
/* "<folder>/<key in hex>.<kind>"; "" where there is no folder. */
st_status_t cache_path(uint64_t key, const char *kind, char path[CACHE_PATH_BYTES]) ST_WARN_UNUSED;

typedef struct cache_data {
    uint8_t *data; /* st_free it */
    size_t bytes;
} cache_data_t;
/* Files begin with key and checksum: a torn or foreign one counts as absent (false). Path ""
 * too. */
bool cache_read(const char *path, uint64_t key, cache_data_t *out);
void cache_write(const char *path, uint64_t key, const cache_data_t *data);

#endif
