/* Packing (pack.h). */
#include "schedule/pack.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

typedef struct item {
    int64_t begin, end;
    uint64_t bytes, offset; /* bytes rounded up to the alignment */
    double key;             /* larger is placed earlier */
    uint32_t index;
} item_t;

static int by_key(const void *a, const void *b) {
    const item_t *x = a, *y = b;
    if (x->key != y->key) return x->key > y->key ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

typedef struct event {
    int64_t time;
    int64_t delta;
} event_t;

/* At one time, births come before deaths (ends are inclusive, and stand at end + 1 here, so that
 * deaths of an earlier piece come first). */
static int by_time(const void *a, const void *b) {
    const event_t *x = a, *y = b;
    if (x->time != y->time) return x->time < y->time ? -1 : 1;
    return (x->delta > y->delta) - (x->delta < y->delta);
}

static st_status_t live_bound(uint32_t n, const item_t *items, uint64_t *out_bound) {
    event_t *events = st_calloc(2 * (size_t)n, sizeof *events);
    if (!events) return st_no_memory(2 * (size_t)n * sizeof *events, "the memory packing");
    for (uint32_t i = 0; i < n; i++) {
        events[2 * i] = (event_t){items[i].begin, (int64_t)items[i].bytes};
        events[2 * i + 1] = (event_t){items[i].end + 1, -(int64_t)items[i].bytes};
    }
    qsort(events, 2 * (size_t)n, sizeof *events, by_time);
    int64_t live = 0, most = 0;
    for (size_t i = 0; i < 2 * (size_t)n; i++) {
        live += events[i].delta;
        if (live > most) most = live;
    }
    st_free(events);
    *out_bound = (uint64_t)most;
    return ST_OK;
}

/* Lowest or smallest gap among the placed items that live at some time of `item`; `placed` is
 * sorted by offset. */
static uint64_t find_gap(const item_t *item, uint32_t n_placed, const item_t *const *placed,
                         bool best) {
    uint64_t end = 0, found = 0, found_size = UINT64_MAX;
    for (uint32_t i = 0; i < n_placed; i++) {
        const item_t *other = placed[i];
        if (other->end < item->begin || item->end < other->begin) continue;
        if (other->offset > end && other->offset - end >= item->bytes) {
            if (!best) return end;
            if (other->offset - end < found_size) found = end, found_size = other->offset - end;
        }
        if (other->offset + other->bytes > end) end = other->offset + other->bytes;
    }
    return found_size == UINT64_MAX ? end : found;
}

/* Places the items in array order; gives the total. `placed` is scratch. */
static uint64_t place_all(uint32_t n, item_t *items, bool best, const item_t **placed,
                          uint64_t stop) {
    uint64_t total = 0;
    for (uint32_t i = 0; i < n; i++) {
        items[i].offset = find_gap(&items[i], i, placed, best);
        uint64_t end = items[i].offset + items[i].bytes;
        if (end > total) total = end;
        if (total >= stop) return total; /* no better than what there is */
        uint32_t low = 0, high = i;      /* first placed item of a larger offset */
        while (low < high) {
            uint32_t middle = low + (high - low) / 2;
            if (placed[middle]->offset <= items[i].offset)
                low = middle + 1;
            else
                high = middle;
        }
        memmove(placed + low + 1, placed + low, (i - low) * sizeof *placed);
        placed[low] = &items[i];
    }
    return total;
}

typedef double (*item_key_t)(const item_t *item);

static double key_size(const item_t *item) {
    return (double)item->bytes;
}
static double key_lifetime(const item_t *item) {
    return (double)(item->end - item->begin + 1);
}
static double key_area(const item_t *item) {
    return key_size(item) * key_lifetime(item);
}

static const item_key_t keys[] = {key_size, key_area, key_lifetime};

static uint64_t pack_best(uint32_t n, item_t *items, const item_t **placed, sched_piece_t *pieces,
                          uint64_t bound) {
    uint64_t best_total = UINT64_MAX;
    for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
        for (uint32_t i = 0; i < n; i++) items[i].key = keys[k](&items[i]);
        qsort(items, n, sizeof *items, by_key);
        for (int best_fit = 0; best_fit < 2; best_fit++) {
            uint64_t total = place_all(n, items, best_fit, placed, best_total);
            if (total >= best_total) continue;
            best_total = total;
            for (uint32_t i = 0; i < n; i++) pieces[items[i].index].offset = items[i].offset;
            if (total <= bound) return total;
        }
    }
    return best_total;
}

st_status_t sched_pack(uint32_t n, sched_piece_t *pieces, uint64_t alignment, uint64_t *out_bytes,
                       uint64_t *out_live_bound) {
    *out_bytes = *out_live_bound = 0;
    st_status_t status = ST_OK;
    item_t *items = st_calloc(n, sizeof *items);
    const item_t **placed = st_calloc(n, sizeof *placed);
    uint32_t n_items = 0;
    if (!items || !placed) TRY_GOTO(st_no_memory(n * sizeof *items, "the memory packing"), done);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        pieces[i].offset = 0;
        if (!pieces[i].bytes) continue;
        size_t bytes = st_size_align(pieces[i].bytes, alignment);
        sum = st_size_add(sum, bytes);
        if (sum > INT64_MAX)
            TRY_GOTO(FAIL(ST_DOES_NOT_FIT, "the sizes of all buffers overflow 63 bits"), done);
        items[n_items++] = (item_t){pieces[i].begin, pieces[i].end, bytes, 0, 0, i};
    }
    if (!n_items) goto done;
    TRY_GOTO(live_bound(n_items, items, out_live_bound), done);
    *out_bytes = pack_best(n_items, items, placed, pieces, *out_live_bound);
done:
    st_free(items);
    st_free(placed);
    return status;
}
