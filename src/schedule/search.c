/* Bounded exact search for a packing (search.h). */
#include "schedule/search.h"

#include <string.h>

#include "base/memory.h"

/* What a placement changed, to be put back: the floor at a time, or the lowest offset of an
 * item. */
typedef struct change {
    uint64_t *where, old;
} change_t;

typedef struct state {
    uint32_t n, n_times;
    sched_search_item_t *items;
    bool *placed;      /* [n] */
    uint64_t *lowest;  /* [n]: on what is placed and lives with the item; placed: its offset */
    uint64_t *floor;   /* [times] */
    uint64_t *to_come; /* [times]: bytes of the items that are not placed */
    change_t *changes; /* [n · (n + times)] */
    size_t n_changes;
    uint64_t capacity, bound, n_nodes;
    bool stopped, found;
} state_t;

static uint64_t larger(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

static void set(state_t *s, uint64_t *where, uint64_t value) {
    s->changes[s->n_changes++] = (change_t){where, *where};
    *where = value;
}

static void put(state_t *s, uint32_t i) {
    const sched_search_item_t *item = &s->items[i];
    uint64_t end = s->lowest[i] + item->bytes;
    s->placed[i] = true;
    for (uint32_t t = item->first; t <= item->last; t++) {
        set(s, &s->floor[t], end);
        s->to_come[t] -= item->bytes;
    }
    for (uint32_t j = 0; j < s->n; j++)
        if (!s->placed[j] && s->items[j].first <= item->last && item->first <= s->items[j].last)
            set(s, &s->lowest[j], larger(s->lowest[j], end));
}

static void take_back(state_t *s, uint32_t i, size_t n_changes) {
    while (s->n_changes > n_changes) {
        const change_t *change = &s->changes[--s->n_changes];
        *change->where = change->old;
    }
    for (uint32_t t = s->items[i].first; t <= s->items[i].last; t++)
        s->to_come[t] += s->items[i].bytes;
    s->placed[i] = false;
}

/* Whether what is to come may still fit when nothing begins below `from`; *out_limit: the next item
 * begins below it. */
static bool may_fit(const state_t *s, uint64_t from, uint64_t *out_limit) {
    *out_limit = UINT64_MAX;
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->placed[i]) continue;
        uint64_t end = larger(s->lowest[i], from) + s->items[i].bytes;
        if (end > s->capacity) return false;
        if (end < *out_limit) *out_limit = end;
    }
    for (uint32_t t = 0; t < s->n_times; t++)
        if (s->to_come[t] && larger(s->floor[t], from) + s->to_come[t] > s->capacity) return false;
    return true;
}

/* All items are placed: the next packing has to end lower. */
static void keep(state_t *s) {
    uint64_t total = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        s->items[i].offset = s->lowest[i];
        total = larger(total, s->lowest[i] + s->items[i].bytes);
    }
    s->found = true;
    s->capacity = total ? total - 1 : 0;
    if (total <= s->bound) s->stopped = true;
}

/* Depth: one call an item, and items are few (sched_search's callers limit them). */
static void descend(state_t *s, uint32_t n_left, uint64_t from, uint32_t last) {
    uint64_t limit;
    if (!n_left) {
        keep(s);
        return;
    }
    if (!s->n_nodes) s->stopped = true;
    if (s->stopped || !may_fit(s, from, &limit)) return;
    s->n_nodes--;
    for (uint32_t i = 0; i < s->n && !s->stopped; i++) {
        uint64_t offset = s->lowest[i];
        if (s->placed[i] || offset < from || offset >= limit) continue;
        if (offset == from && last != UINT32_MAX && i < last) continue; /* the same list, sorted */
        if (offset + s->items[i].bytes > s->capacity) continue;
        size_t n_changes = s->n_changes;
        put(s, i);
        descend(s, n_left - 1, offset, i);
        take_back(s, i, n_changes);
    }
}

st_status_t sched_search(uint32_t n, sched_search_item_t *items, uint32_t n_times, uint64_t bound,
                         uint64_t n_nodes, uint64_t *total, bool *out_optimal) {
    state_t s = {.n = n, .n_times = n_times, .items = items, .bound = bound, .n_nodes = n_nodes};
    st_status_t status = ST_OK;
    *out_optimal = *total <= bound;
    if (*out_optimal || !n) return ST_OK;
    size_t n_changes = (size_t)n * ((size_t)n + n_times);
    s.placed = st_calloc(n, sizeof *s.placed);
    s.lowest = st_calloc(n, sizeof *s.lowest);
    s.floor = st_calloc(n_times, sizeof *s.floor);
    s.to_come = st_calloc(n_times, sizeof *s.to_come);
    s.changes = st_calloc(n_changes, sizeof *s.changes);
    if (!s.placed || !s.lowest || !s.floor || !s.to_come || !s.changes)
        TRY_GOTO(st_no_memory(n_changes * sizeof *s.changes, "the search for a packing"), done);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t t = items[i].first; t <= items[i].last; t++) s.to_come[t] += items[i].bytes;
    s.capacity = *total - 1;
    descend(&s, n, 0, UINT32_MAX);
    if (s.found) *total = s.capacity + 1;
    *out_optimal = s.n_nodes > 0;
done:
    st_free(s.placed);
    st_free(s.lowest);
    st_free(s.floor);
    st_free(s.to_come);
    st_free(s.changes);
    return status;
}
