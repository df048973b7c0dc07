#include "base/memory.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory_limit.h"

static _Atomic int64_t fail_countdown = -1;
static _Atomic bool fail_sticky = false;
static _Atomic uint64_t n_allocations = 0;

static _Atomic size_t fail_above = 0;

static bool allocation_must_fail(size_t bytes) {
    atomic_fetch_add_explicit(&n_allocations, 1, memory_order_relaxed);
    const size_t limit = atomic_load_explicit(&fail_above, memory_order_relaxed);
    if (limit && bytes > limit) return true;
    int64_t left = atomic_load_explicit(&fail_countdown, memory_order_relaxed);
    if (left < 0) return false;
    left = atomic_fetch_sub(&fail_countdown, 1);
    if (left > 0) return false;
    if (left == 0) {
        if (atomic_load(&fail_sticky)) atomic_store(&fail_countdown, 0);
        return true;
    }
    return false;
}

void st_memory_fail_after(int64_t countdown, bool sticky) {
    atomic_store(&fail_sticky, sticky);
    atomic_store(&fail_countdown, countdown);
}

void st_memory_fail_above(size_t bytes) {
    atomic_store(&fail_above, bytes);
}

uint64_t st_memory_allocations(void) {
    return atomic_load(&n_allocations);
}

void *st_malloc(size_t bytes) {
    return allocation_must_fail(bytes) ? NULL : malloc(bytes ? bytes : 1);
}

void *st_calloc(size_t count, size_t bytes) {
    if (allocation_must_fail(st_size_mul(count, bytes))) return NULL;
    return calloc(count ? count : 1, bytes ? bytes : 1);
}

void *st_realloc(void *old, size_t bytes) {
    return allocation_must_fail(bytes) ? NULL : realloc(old, bytes ? bytes : 1);
}

void *st_aligned_alloc(size_t alignment, size_t bytes) {
    if (allocation_must_fail(bytes)) return NULL;
    size_t padded;
    if (!st_add_size(bytes ? bytes : 1, alignment - 1, &padded)) return NULL;
    return aligned_alloc(alignment, padded & ~(alignment - 1));
}

void st_free(void *memory) {
    free(memory);
}

char *st_strdup(const char *text) {
    size_t bytes = strlen(text) + 1;
    char *copy = st_malloc(bytes);
    if (copy) memcpy(copy, text, bytes);
    return copy;
}

st_status_t st_no_memory(size_t bytes, const char *what) {
    return FAIL(ST_NO_MEMORY, "out of memory: %zu bytes for %s", bytes, what);
}
