/* Priority queue of pairs (queue.h): a heap, and a set of hashes by open addressing. */
#include "fusion/queue.h"

#include "base/hash.h"
#include "base/heap.h"

void queue_close(queue_t *queue) {
    ST_VEC_FREE(&queue->heap);
    st_free(queue->refused);
    *queue = (queue_t){0};
}

static bool comes_first(const void *a, const void *b) {
    const queue_pair_t *x = a, *y = b;
    if (x->us != y->us) return x->us > y->us;
    return x->a != y->a ? x->a < y->a : x->b < y->b;
}

st_status_t queue_push(queue_t *queue, double us, ir_node_t a, ir_node_t b) {
    TRY(ST_VEC_PUSH(&queue->heap, ((queue_pair_t){us, a, b})));
    st_heap_rise(queue->heap.data, queue->heap.n, sizeof *queue->heap.data, comes_first);
    return ST_OK;
}

bool queue_pop(queue_t *queue, queue_pair_t *out_pair) {
    if (!queue->heap.n) return false;
    st_heap_drop(queue->heap.data, queue->heap.n--, sizeof *queue->heap.data, comes_first);
    *out_pair = queue->heap.data[queue->heap.n];
    return true;
}

/* ---- refused pairs ---- */

static uint64_t hash_pair(uint32_t a, uint32_t size_a, uint32_t b, uint32_t size_b) {
    const uint32_t words[4] = {a < b ? a : b, a < b ? size_a : size_b, a < b ? b : a,
                               a < b ? size_b : size_a};
    return st_hash64(words, sizeof words, 0) | 1;
}

static uint64_t *find(const queue_t *queue, uint64_t hash) {
    size_t i = (size_t)(hash >> 1) & (queue->capacity - 1);
    while (queue->refused[i] && queue->refused[i] != hash) i = (i + 1) & (queue->capacity - 1);
    return &queue->refused[i];
}

static st_status_t grow(queue_t *queue) {
    size_t old_capacity = queue->capacity, capacity = old_capacity ? 2 * old_capacity : 256;
    uint64_t *old = queue->refused, *made = st_calloc(capacity, sizeof *made);
    if (!made) return st_no_memory(capacity * sizeof *made, "the fuse pass");
    queue->refused = made;
    queue->capacity = capacity;
    for (size_t i = 0; i < old_capacity; i++)
        if (old[i]) *find(queue, old[i]) = old[i];
    st_free(old);
    return ST_OK;
}

st_status_t queue_refuse(queue_t *queue, uint32_t a, uint32_t size_a, uint32_t b, uint32_t size_b) {
    if (queue->n_refused >= queue->capacity / 2) TRY(grow(queue));
    uint64_t hash = hash_pair(a, size_a, b, size_b), *slot = find(queue, hash);
    queue->n_refused += *slot == 0;
    *slot = hash;
    return ST_OK;
}

bool queue_refused(const queue_t *queue, uint32_t a, uint32_t size_a, uint32_t b, uint32_t size_b) {
    return queue->capacity && *find(queue, hash_pair(a, size_a, b, size_b)) != 0;
}
