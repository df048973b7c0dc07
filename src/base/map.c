/* Map from strings to uint32_t. See map.h for the contract. */
#include "base/map.h"

#include <string.h>

#include "base/hash.h"
#include "base/memory.h"

enum { FIRST_CAPACITY = 16 };

/* Slot that holds the key, or the empty one where it belongs. The table is never full. */
static st_map_slot_t *slot_of(st_map_slot_t *slots, size_t capacity, const char *key, size_t bytes,
                              uint64_t hash) {
    size_t i = (size_t)hash & (capacity - 1);
    while (slots[i].key && (slots[i].hash != hash || slots[i].bytes != bytes ||
                            memcmp(slots[i].key, key, bytes) != 0))
        i = (i + 1) & (capacity - 1);
    return &slots[i];
}

static st_status_t grow(st_map_t *map) {
    size_t capacity = map->capacity ? map->capacity * 2 : FIRST_CAPACITY;
    st_map_slot_t *slots = st_calloc(capacity, sizeof *slots);
    if (!slots) return st_no_memory(capacity * sizeof *slots, "a name index");
    for (size_t i = 0; i < map->capacity; i++) {
        const st_map_slot_t *old = &map->slots[i];
        if (old->key) *slot_of(slots, capacity, old->key, old->bytes, old->hash) = *old;
    }
    st_free(map->slots);
    map->slots = slots;
    map->capacity = capacity;
    return ST_OK;
}

st_status_t st_map_add(st_map_t *map, const char *key, size_t bytes, uint32_t value,
                       uint32_t *out_found) {
    *out_found = value;
    if (map->n >= map->capacity / 2) TRY(grow(map));
    uint64_t hash = st_hash64(key, bytes, 0);
    st_map_slot_t *slot = slot_of(map->slots, map->capacity, key, bytes, hash);
    if (slot->key) {
        *out_found = slot->value;
        return ST_OK;
    }
    *slot = (st_map_slot_t){key, bytes, hash, value};
    map->n++;
    return ST_OK;
}

bool st_map_get(const st_map_t *map, const char *key, size_t bytes, uint32_t *out_value) {
    if (map->n == 0) return false;
    const st_map_slot_t *slot =
        slot_of(map->slots, map->capacity, key, bytes, st_hash64(key, bytes, 0));
    if (!slot->key) return false;
    *out_value = slot->value;
    return true;
}

void st_map_free(st_map_t *map) {
    st_free(map->slots);
    *map = (st_map_t){0};
}

st_status_t st_map_add_string(st_map_t *map, const char *key, uint32_t value, bool *out_added) {
    uint32_t found;
    size_t before = map->n;
    *out_added = false;
    TRY(st_map_add(map, key, strlen(key), value, &found));
    *out_added = map->n > before;
    return ST_OK;
}

bool st_map_get_string(const st_map_t *map, const char *key, uint32_t *out_value) {
    return st_map_get(map, key, strlen(key), out_value);
}
