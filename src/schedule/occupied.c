/* Occupied offsets by time (occupied.h). */
#include "schedule/occupied.h"

#include <string.h>

#include "base/memory.h"
#include "base/vec.h"

typedef struct interval {
    uint64_t begin, end;
} interval_t;

typedef ST_VEC(interval_t) union_t;

typedef struct span {
    union_t all, whole;
} span_t;

/* A list and how far a query has come in it. */
typedef struct cursor {
    const interval_t *at, *end;
} cursor_t;

enum { MAX_CURSORS = 4 * 33 };

struct sched_occupied {
    uint32_t n_times; /* a power of two */
    span_t *spans;    /* [2 · n_times]: children of i are 2 i and 2 i + 1, the root is 1 */
    cursor_t cursors[MAX_CURSORS];
    uint32_t n_cursors;
    uint64_t work;
};

/* Part of the tree: node `index` with the times first … last. */
typedef struct part {
    size_t index;
    uint32_t first, last;
} part_t;

static part_t left_of(part_t p) {
    return (part_t){2 * p.index, p.first, p.first + (p.last - p.first) / 2};
}
static part_t right_of(part_t p) {
    return (part_t){2 * p.index + 1, p.first + (p.last - p.first) / 2 + 1, p.last};
}

st_status_t sched_occupied_create(uint32_t n_times, sched_occupied_t **out) {
    *out = NULL;
    uint32_t rounded = 1;
    while (rounded < n_times && rounded < (1u << 31)) rounded *= 2;
    sched_occupied_t *made = st_calloc(1, sizeof *made);
    if (!made) return st_no_memory(sizeof *made, "the memory packing");
    made->n_times = rounded;
    made->spans = st_calloc(2 * (size_t)rounded, sizeof *made->spans);
    if (!made->spans) {
        st_free(made);
        return st_no_memory(2 * (size_t)rounded * sizeof *made->spans, "the memory packing");
    }
    *out = made;
    return ST_OK;
}

void sched_occupied_destroy(sched_occupied_t *occupied) {
    if (!occupied) return;
    for (size_t i = 0; i < 2 * (size_t)occupied->n_times; i++) {
        ST_VEC_FREE(&occupied->spans[i].all);
        ST_VEC_FREE(&occupied->spans[i].whole);
    }
    st_free(occupied->spans);
    st_free(occupied);
}

void sched_occupied_clear(sched_occupied_t *occupied) {
    for (size_t i = 0; i < 2 * (size_t)occupied->n_times; i++)
        occupied->spans[i].all.n = occupied->spans[i].whole.n = 0;
}

/* Joins [begin, end) to the list: it takes the place of all that it overlaps or touches. */
static st_status_t unite(union_t *list, interval_t added) {
    size_t low = 0, high = list->n;
    while (low < high) { /* first that ends at or after the begin */
        size_t middle = low + (high - low) / 2;
        if (list->data[middle].end < added.begin)
            low = middle + 1;
        else
            high = middle;
    }
    size_t past = low;
    for (; past < list->n && list->data[past].begin <= added.end; past++) {
        if (list->data[past].begin < added.begin) added.begin = list->data[past].begin;
        if (list->data[past].end > added.end) added.end = list->data[past].end;
    }
    if (past == low) {
        TRY(ST_VEC_RESERVE(list, list->n + 1));
        memmove(list->data + low + 1, list->data + low, (list->n - low) * sizeof *list->data);
        list->n++;
    } else if (past > low + 1) {
        memmove(list->data + low + 1, list->data + past, (list->n - past) * sizeof *list->data);
        list->n -= past - low - 1;
    }
    list->data[low] = added;
    return ST_OK;
}

static st_status_t add(sched_occupied_t *o, part_t p, uint32_t begin, uint32_t end,
                       interval_t interval) {
    if (end < p.first || p.last < begin) return ST_OK;
    TRY(unite(&o->spans[p.index].all, interval));
    if (begin <= p.first && p.last <= end) return unite(&o->spans[p.index].whole, interval);
    TRY(add(o, left_of(p), begin, end, interval));
    return add(o, right_of(p), begin, end, interval);
}

st_status_t sched_occupied_add(sched_occupied_t *o, uint32_t begin, uint32_t end, uint64_t offset,
                               uint64_t bytes) {
    return add(o, (part_t){1, 0, o->n_times - 1}, begin, end, (interval_t){offset, offset + bytes});
}

static void take(sched_occupied_t *o, const union_t *list) {
    if (!list->n) return;
    ASSERT(o->n_cursors < MAX_CURSORS);
    o->cursors[o->n_cursors++] = (cursor_t){list->data, list->data + list->n};
}

static void collect(sched_occupied_t *o, part_t p, uint32_t begin, uint32_t end) {
    if (end < p.first || p.last < begin || !o->spans[p.index].all.n) return;
    if (begin <= p.first && p.last <= end) {
        take(o, &o->spans[p.index].all);
        return;
    }
    take(o, &o->spans[p.index].whole);
    collect(o, left_of(p), begin, end);
    collect(o, right_of(p), begin, end);
}

/* End of what is occupied without a gap from `from` on; *out_next: where the next interval begins,
 * UINT64_MAX: there is none. */
static uint64_t occupied_until(sched_occupied_t *o, uint64_t from, uint64_t *out_next) {
    bool moved = true;
    while (moved) {
        moved = false;
        *out_next = UINT64_MAX;
        o->work += o->n_cursors;
        for (uint32_t i = 0; i < o->n_cursors; i++) {
            cursor_t *c = &o->cursors[i];
            while (c->at < c->end && c->at->begin <= from) {
                if (c->at->end > from) from = c->at->end, moved = true;
                c->at++;
            }
            if (c->at == c->end)
                o->cursors[i--] = o->cursors[--o->n_cursors];
            else if (c->at->begin < *out_next)
                *out_next = c->at->begin;
        }
    }
    return from;
}

uint64_t sched_occupied_find(sched_occupied_t *o, uint32_t begin, uint32_t end, uint64_t bytes,
                             bool best) {
    uint64_t found = 0, found_size = UINT64_MAX, next;
    o->n_cursors = 0;
    collect(o, (part_t){1, 0, o->n_times - 1}, begin, end);
    uint64_t from = occupied_until(o, 0, &next);
    while (next != UINT64_MAX) {
        uint64_t size = next - from;
        if (size >= bytes && !best) return from;
        if (size >= bytes && size < found_size) found = from, found_size = size;
        from = occupied_until(o, next, &next);
    }
    return found_size == UINT64_MAX ? from : found;
}

uint64_t sched_occupied_work(const sched_occupied_t *o) {
    return o->work;
}
