/* Packing (pack.h). */
#include "schedule/pack.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "schedule/occupied.h"

typedef struct item {
    int64_t begin, end;
    uint64_t bytes, offset; /* bytes rounded up to the alignment */
    double key;             /* larger is placed earlier */
    uint32_t index;
    uint32_t first, last; /* begin and end as times of the packing */
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

static int by_begin(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* How many of the sorted times are ≤ time. */
static uint32_t count_until(uint32_t n, const int64_t *times, int64_t time) {
    uint32_t low = 0, high = n;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (times[middle] <= time)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Items meet at the begin of one of them: these are the only times that packing looks at. */
static st_status_t number_times(uint32_t n, item_t *items, uint32_t *out_times) {
    int64_t *times = st_calloc(n, sizeof *times);
    uint32_t kept = 0;
    if (!times) return st_no_memory(n * sizeof *times, "the memory packing");
    for (uint32_t i = 0; i < n; i++) times[i] = items[i].begin;
    qsort(times, n, sizeof *times, by_begin);
    for (uint32_t i = 0; i < n; i++)
        if (!i || times[i] != times[kept - 1]) times[kept++] = times[i];
    for (uint32_t i = 0; i < n; i++) {
        items[i].first = count_until(kept, times, items[i].begin) - 1;
        items[i].last = count_until(kept, times, items[i].end) - 1;
    }
    st_free(times);
    *out_times = kept;
    return ST_OK;
}

/* Places the items in array order; gives the total. */
static st_status_t place_all(uint32_t n, item_t *items, bool best, sched_occupied_t *occupied,
                             uint64_t stop, uint64_t *out_total) {
    *out_total = 0;
    sched_occupied_clear(occupied);
    for (uint32_t i = 0; i < n; i++) {
        item_t *item = &items[i];
        item->offset = sched_occupied_find(occupied, item->first, item->last, item->bytes, best);
        uint64_t end = item->offset + item->bytes;
        if (end > *out_total) *out_total = end;
        if (*out_total >= stop) return ST_OK; /* no better than what there is */
        TRY(sched_occupied_add(occupied, item->first, item->last, item->offset, item->bytes));
    }
    return ST_OK;
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

static st_status_t pack_best(uint32_t n, item_t *items, sched_piece_t *pieces, uint64_t bound,
                             uint64_t *out_bytes) {
    sched_occupied_t *occupied = NULL;
    uint32_t n_times = 1;
    st_status_t status = ST_OK;
    uint64_t best_total = UINT64_MAX;
    TRY(number_times(n, items, &n_times));
    TRY(sched_occupied_create(n_times, &occupied));
    for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
        for (uint32_t i = 0; i < n; i++) items[i].key = keys[k](&items[i]);
        qsort(items, n, sizeof *items, by_key);
        for (int best_fit = 0; best_fit < 2; best_fit++) {
            uint64_t total;
            TRY_GOTO(place_all(n, items, best_fit, occupied, best_total, &total), done);
            if (total >= best_total) continue;
            best_total = total;
            for (uint32_t i = 0; i < n; i++) pieces[items[i].index].offset = items[i].offset;
            if (total <= bound) goto done;
        }
    }
done:
    sched_occupied_destroy(occupied);
    *out_bytes = best_total;
    return status;
}

st_status_t sched_pack(uint32_t n, sched_piece_t *pieces, uint64_t alignment, uint64_t *out_bytes,
                       uint64_t *out_live_bound) {
    *out_bytes = *out_live_bound = 0;
    st_status_t status = ST_OK;
    item_t *items = st_calloc(n, sizeof *items);
    uint32_t n_items = 0;
    if (!items) TRY_GOTO(st_no_memory(n * sizeof *items, "the memory packing"), done);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        pieces[i].offset = 0;
        if (!pieces[i].bytes) continue;
        size_t bytes = st_size_align(pieces[i].bytes, alignment);
        sum = st_size_add(sum, bytes);
        if (sum > INT64_MAX)
            TRY_GOTO(FAIL(ST_DOES_NOT_FIT, "the sizes of all buffers overflow 63 bits"), done);
        items[n_items++] =
            (item_t){.begin = pieces[i].begin, .end = pieces[i].end, .bytes = bytes, .index = i};
    }
    if (!n_items) goto done;
    TRY_GOTO(live_bound(n_items, items, out_live_bound), done);
    TRY_GOTO(pack_best(n_items, items, pieces, *out_live_bound, out_bytes), done);
done:
    st_free(items);
    return status;
}
