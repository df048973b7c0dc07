#include "base/vec.h"

#include <stdint.h>

st_status_t st_vec_reserve(void **data, size_t *cap, size_t need, size_t bytes) {
    if (need <= *cap) return ST_OK;
    size_t grown = *cap < 8 ? 8 : *cap * 2;
    if (grown < need) grown = need;
    size_t total;
    if (!st_mul_size(grown, bytes, &total)) return st_no_memory(SIZE_MAX, "a growing array");
    void *moved = st_realloc(*data, total);
    if (!moved) return st_no_memory(total, "a growing array");
    *data = moved;
    *cap = grown;
    return ST_OK;
}
