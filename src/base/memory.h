/* Heap allocation behind one door, so that tests can fail any allocation, and checked size
 * arithmetic. Every allocation of the library goes through here or through an arena. */
#ifndef STATOR_BASE_MEMORY_H
#define STATOR_BASE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* NULL when out of memory (or when a test says so). Zero bytes give a unique non-NULL pointer. */
void *st_malloc(size_t bytes);
void *st_calloc(size_t count, size_t bytes);
void *st_realloc(void *old, size_t bytes);
/* Aligned to `alignment` (a power of two ≥ sizeof(void *)); freed with st_free. */
void *st_aligned_alloc(size_t alignment, size_t bytes);
void st_free(void *memory);
/* Copy of a string; NULL when out of memory. */
char *st_strdup(const char *text);

/* Test hook: the allocation with index `countdown` (0 = the next) fails, later ones succeed again
 * unless `sticky`. Negative switches it off. Counts allocations of all threads. */
void st_memory_fail_after(int64_t countdown, bool sticky);
/* Number of allocations made through this door since the process started. */
uint64_t st_memory_allocations(void);

/* Records and returns ST_NO_MEMORY naming `bytes` and `what`. */
st_status_t st_no_memory(size_t bytes, const char *what);

/* *out = a op b; false on overflow. */
static inline bool st_mul_size(size_t a, size_t b, size_t *out) {
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool st_add_size(size_t a, size_t b, size_t *out) {
    return !__builtin_add_overflow(a, b, out);
}
static inline bool st_mul_i64(int64_t a, int64_t b, int64_t *out) {
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool st_add_i64(int64_t a, int64_t b, int64_t *out) {
    return !__builtin_add_overflow(a, b, out);
}
/* Rounds up to a multiple of `alignment` (a power of two). The caller knows it does not overflow.
 */
static inline size_t st_align_up(size_t value, size_t alignment) {
    return (value + alignment - 1) & ~(alignment - 1);
}

/* Sums and products of sizes, of which only the end is checked: ST_SIZE_TOO_LARGE is what does not
 * fit, and what is computed from it. */
#define ST_SIZE_TOO_LARGE SIZE_MAX
static inline size_t st_size_mul(size_t a, size_t b) {
    size_t out;
    if (a == ST_SIZE_TOO_LARGE || b == ST_SIZE_TOO_LARGE) return ST_SIZE_TOO_LARGE;
    return st_mul_size(a, b, &out) ? out : ST_SIZE_TOO_LARGE;
}
static inline size_t st_size_add(size_t a, size_t b) {
    size_t out;
    return st_add_size(a, b, &out) ? out : ST_SIZE_TOO_LARGE;
}
static inline size_t st_size_align(size_t value, size_t alignment) {
    size_t out = st_size_add(value, alignment - 1);
    return out == ST_SIZE_TOO_LARGE ? out : out & ~(alignment - 1);
}

#endif
