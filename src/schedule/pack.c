/* Packing (pack.h). */
#include "schedule/pack.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "schedule/occupied.h"
#include "schedule/search.h"

enum {
    MANY_ITEMS = 4096,  /* from here on a packing near the bound is enough */
    ENOUGH_PART = 1024, /* that part of the bound above it */
    WORK = 20000000,    /* list entries looked at, the first packing not counted: about 0.1 s */
    REPAIRS = 64,       /* rounds an order */
    SEARCH_ITEMS = 64,  /* at most, so that the search gets somewhere */
    SEARCH_NODES = 100000,
    SEARCH_PART = 100, /* search where the gap is over that part of the bound */
};

typedef struct item {
    int64_t begin, end;
    uint64_t bytes, offset; /* bytes rounded up to the alignment */
    double key;             /* larger is placed earlier */
    uint32_t index;
    uint32_t first, last; /* begin and end as times of the packing */
} item_t;

typedef struct packing {
    uint32_t n, n_times;
    item_t *items; /* without those that live all the time */
    sched_piece_t *pieces;
    uint64_t base; /* the offset on which the items stand: the bytes that live all the time */
    uint64_t bound, enough; /* of the items alone */
    uint64_t best;          /* least total so far; its offsets are in `pieces` */
    sched_occupied_t *occupied;
} packing_t;

/* ---- times ---- */

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
static st_status_t number_times(packing_t *p) {
    int64_t *times = st_calloc(p->n, sizeof *times);
    uint32_t kept = 0;
    if (!times) return st_no_memory(p->n * sizeof *times, "the memory packing");
    for (uint32_t i = 0; i < p->n; i++) times[i] = p->items[i].begin;
    qsort(times, p->n, sizeof *times, by_begin);
    for (uint32_t i = 0; i < p->n; i++)
        if (!i || times[i] != times[kept - 1]) times[kept++] = times[i];
    for (uint32_t i = 0; i < p->n; i++) {
        p->items[i].first = count_until(kept, times, p->items[i].begin) - 1;
        p->items[i].last = count_until(kept, times, p->items[i].end) - 1;
    }
    st_free(times);
    p->n_times = kept;
    return ST_OK;
}

/* What lives all the time takes the bottom: nothing can be won by lifting it. */
static void place_base(packing_t *p) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        const item_t *item = &p->items[i];
        if (item->first > 0 || item->last + 1 < p->n_times) {
            p->items[kept++] = *item;
            continue;
        }
        p->pieces[item->index].offset = p->base;
        p->base += item->bytes;
    }
    p->n = kept;
}

static st_status_t find_bound(packing_t *p) {
    int64_t *change = st_calloc((size_t)p->n_times + 1, sizeof *change), live = 0;
    if (!change) return st_no_memory((p->n_times + 1) * sizeof *change, "the memory packing");
    for (uint32_t i = 0; i < p->n; i++) {
        change[p->items[i].first] += (int64_t)p->items[i].bytes;
        change[p->items[i].last + 1] -= (int64_t)p->items[i].bytes;
    }
    for (uint32_t t = 0; t < p->n_times; t++) {
        live += change[t];
        if ((uint64_t)live > p->bound) p->bound = (uint64_t)live;
    }
    st_free(change);
    p->enough = p->bound + (p->n < MANY_ITEMS ? 0 : (p->base + p->bound) / ENOUGH_PART);
    return ST_OK;
}

/* ---- one packing ---- */

static int by_key(const void *a, const void *b) {
    const item_t *x = a, *y = b;
    if (x->key != y->key) return x->key > y->key ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

/* Places the items in array order, as long as the total is below `stop` and the work lasts.
 * *out_total is UINT64_MAX for a packing that was not finished. */
static st_status_t place_all(packing_t *p, bool best_fit, uint64_t stop, uint64_t work,
                             uint64_t *out_total) {
    uint64_t total = 0;
    *out_total = UINT64_MAX;
    sched_occupied_clear(p->occupied);
    for (uint32_t i = 0; i < p->n; i++) {
        item_t *item = &p->items[i];
        item->offset =
            sched_occupied_find(p->occupied, item->first, item->last, item->bytes, best_fit);
        uint64_t end = item->offset + item->bytes;
        if (end > total) total = end;
        if (total >= stop || sched_occupied_work(p->occupied) > work) return ST_OK;
        TRY(sched_occupied_add(p->occupied, item->first, item->last, item->offset, item->bytes));
    }
    *out_total = total;
    return ST_OK;
}

static void keep(packing_t *p, uint64_t total) {
    if (total >= p->best) return;
    p->best = total;
    for (uint32_t i = 0; i < p->n; i++)
        p->pieces[p->items[i].index].offset = p->base + p->items[i].offset;
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
enum { N_KEYS = sizeof keys / sizeof keys[0] };

static void sort_items(packing_t *p, item_key_t key) {
    for (uint32_t i = 0; key && i < p->n; i++) p->items[i].key = key(&p->items[i]);
    qsort(p->items, p->n, sizeof *p->items, by_key);
}

static uint64_t work_left_until(const packing_t *p) {
    return sched_occupied_work(p->occupied) + WORK;
}

/* ---- several ---- */

static st_status_t pack_greedily(packing_t *p, uint64_t *out_work) {
    uint64_t total;
    *out_work = UINT64_MAX;
    for (size_t k = 0; k < N_KEYS && p->best > p->enough; k++) {
        sort_items(p, keys[k]);
        for (int best_fit = 0; best_fit < 2 && p->best > p->enough; best_fit++) {
            TRY(place_all(p, best_fit, p->best, *out_work, &total));
            keep(p, total);
            if (*out_work == UINT64_MAX) *out_work = work_left_until(p);
        }
    }
    return ST_OK;
}

/* Pieces that end above the middle between the bound and the best total count double the next time.
 */
static st_status_t repair(packing_t *p, uint64_t work) {
    uint64_t total;
    for (size_t k = 0; k < N_KEYS; k++) {
        sort_items(p, keys[k]);
        for (int round = 0; round < REPAIRS; round++) {
            if (p->best <= p->enough || sched_occupied_work(p->occupied) > work) return ST_OK;
            TRY(place_all(p, false, UINT64_MAX, work, &total));
            keep(p, total);
            uint64_t wanted = p->bound + (p->best - p->bound) / 2;
            for (uint32_t i = 0; i < p->n; i++)
                if (p->items[i].offset + p->items[i].bytes > wanted) p->items[i].key *= 2;
            sort_items(p, NULL);
        }
    }
    return ST_OK;
}

static st_status_t search(packing_t *p) {
    if (p->n > SEARCH_ITEMS || p->best - p->bound <= (p->base + p->bound) / SEARCH_PART)
        return ST_OK;
    sched_search_item_t items[SEARCH_ITEMS];
    uint64_t total = p->best;
    bool optimal;
    sort_items(p, key_area);
    for (uint32_t i = 0; i < p->n; i++)
        items[i] = (sched_search_item_t){p->items[i].first, p->items[i].last, p->items[i].bytes, 0};
    TRY(sched_search(p->n, items, p->n_times, p->bound, SEARCH_NODES, &total, &optimal));
    if (total >= p->best) return ST_OK;
    for (uint32_t i = 0; i < p->n; i++) p->items[i].offset = items[i].offset;
    keep(p, total);
    return ST_OK;
}

static st_status_t pack_items(packing_t *p) {
    uint64_t work;
    st_status_t status = ST_OK;
    TRY(number_times(p));
    place_base(p);
    TRY(find_bound(p));
    if (!p->n) return ST_OK;
    p->best = UINT64_MAX;
    TRY(sched_occupied_create(p->n_times, &p->occupied));
    TRY_GOTO(pack_greedily(p, &work), done);
    TRY_GOTO(repair(p, work), done);
    TRY_GOTO(search(p), done);
done:
    sched_occupied_destroy(p->occupied);
    return status;
}

st_status_t sched_pack(uint32_t n, sched_piece_t *pieces, uint64_t alignment, uint64_t *out_bytes,
                       uint64_t *out_live_bound) {
    *out_bytes = *out_live_bound = 0;
    st_status_t status = ST_OK;
    packing_t p = {.items = st_calloc(n, sizeof *p.items), .pieces = pieces};
    if (!p.items) TRY_GOTO(st_no_memory(n * sizeof *p.items, "the memory packing"), done);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        pieces[i].offset = 0;
        if (!pieces[i].bytes) continue;
        size_t bytes = st_size_align(pieces[i].bytes, alignment);
        sum = st_size_add(sum, bytes);
        if (sum > INT64_MAX)
            TRY_GOTO(FAIL(ST_DOES_NOT_FIT, "the sizes of all buffers overflow 63 bits"), done);
        p.items[p.n++] =
            (item_t){.begin = pieces[i].begin, .end = pieces[i].end, .bytes = bytes, .index = i};
    }
    if (!p.n) goto done;
    TRY_GOTO(pack_items(&p), done);
    *out_bytes = p.base + p.best;
    *out_live_bound = p.base + p.bound;
done:
    st_free(p.items);
    return status;
}
