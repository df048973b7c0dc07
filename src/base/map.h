/* Map from strings to uint32_t: names to ids. Open addressing, grown to stay at most half full.
 *
 * Keys are borrowed: they must live, unchanged, as long as the map. Order of insertion and
 * addresses do not show: nothing iterates over the slots. */
#ifndef STATOR_BASE_MAP_H
#define STATOR_BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct st_map_slot {
    const char *key; /* NULL: empty */
    size_t bytes;
    uint64_t hash;
    uint32_t value;
} st_map_slot_t;

/* A zeroed map is empty and valid. */
typedef struct st_map {
    st_map_slot_t *slots;
    size_t n, capacity; /* capacity: 0 or a power of two */
} st_map_t;

/* Adds `key` (of `bytes` bytes, any bytes) with `value`. If the key is there already, the map stays
 * as it is and *out_found is the value it has; else *out_found is `value`. */
st_status_t st_map_add(st_map_t *map, const char *key, size_t bytes, uint32_t value,
                       uint32_t *out_found) ST_WARN_UNUSED;
/* False if the key is absent. */
bool st_map_get(const st_map_t *map, const char *key, size_t bytes, uint32_t *out_value);
void st_map_free(st_map_t *map);

/* NUL-terminated keys; *out_added says whether the key is new. */
st_status_t st_map_add_string(st_map_t *map, const char *key, uint32_t value,
                              bool *out_added) ST_WARN_UNUSED;
bool st_map_get_string(const st_map_t *map, const char *key, uint32_t *out_value);

#endif
