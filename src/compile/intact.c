/* Intact values by place (intact.h). */
#include "compile/intact.h"

#include <stdlib.h>

#include "base/memory.h"

typedef struct row {
    plan_region_t region;
    uint64_t offset;
    ir_value_t value;
} row_t;

static int by_place(const void *a, const void *b) {
    const row_t *x = a, *y = b;
    if (x->region != y->region) return x->region < y->region ? -1 : 1;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return (x->value > y->value) - (x->value < y->value);
}

static st_status_t sort_values(intact_t *t) {
    row_t *rows = st_calloc(t->n, sizeof *rows);
    if (!rows) return st_no_memory(t->n * sizeof *rows, "the plan's proof");
    for (ir_value_t v = 0; v < t->n; v++)
        rows[v] = (row_t){t->places[v].region, t->places[v].offset, v};
    qsort(rows, t->n, sizeof *rows, by_place);
    for (uint32_t i = 0; i < t->n; i++) {
        t->sorted[i] = rows[i].value;
        t->leaf[rows[i].value] = i;
    }
    st_free(rows);
    return ST_OK;
}

st_status_t intact_open(intact_t *t, size_t n_values, const plan_place_t *places) {
    *t = (intact_t){.places = places, .n = (uint32_t)n_values, .n_leaves = 1};
    st_status_t status = ST_OK;
    while (t->n_leaves < n_values) t->n_leaves *= 2;
    t->sorted = st_calloc(n_values, sizeof *t->sorted);
    t->leaf = st_calloc(n_values, sizeof *t->leaf);
    t->end = st_calloc(2 * t->n_leaves, sizeof *t->end);
    if (!t->sorted || !t->leaf || !t->end)
        TRY_GOTO(st_no_memory(2 * t->n_leaves * sizeof *t->end, "the plan's proof"), fail);
    TRY_GOTO(sort_values(t), fail);
    return ST_OK;
fail:
    intact_close(t);
    return status;
}

void intact_close(intact_t *t) {
    st_free(t->sorted);
    st_free(t->leaf);
    st_free(t->end);
    *t = (intact_t){0};
}

static void set_end(intact_t *t, ir_value_t v, uint64_t end) {
    size_t i = t->n_leaves + t->leaf[v];
    t->end[i] = end;
    for (i /= 2; i; i /= 2) {
        uint64_t left = t->end[2 * i], right = t->end[2 * i + 1];
        t->end[i] = left > right ? left : right;
    }
}

void intact_add(intact_t *t, ir_value_t v) {
    const plan_place_t *place = &t->places[v];
    if (place->region == PLAN_NOWHERE || !place->bytes) return;
    set_end(t, v, place->offset + place->bytes);
}

/* How many sorted values begin in a lower region, or in this one before `offset`. */
static size_t count_before(const intact_t *t, plan_region_t region, uint64_t offset) {
    size_t low = 0, high = t->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const plan_place_t *place = &t->places[t->sorted[middle]];
        if (place->region < region || (place->region == region && place->offset < offset))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Leaf in first … last - 1 whose end is above `offset`, below node i with `width` leaves from
 * `begin`; n_leaves: none. Only the nodes on the two borders can lead nowhere. */
static size_t find_leaf(const intact_t *t, size_t i, size_t begin, size_t width, size_t first,
                        size_t last, uint64_t offset) {
    if (begin >= last || begin + width <= first || t->end[i] <= offset) return t->n_leaves;
    if (width == 1) return begin;
    size_t found = find_leaf(t, 2 * i, begin, width / 2, first, last, offset);
    if (found != t->n_leaves) return found;
    return find_leaf(t, 2 * i + 1, begin + width / 2, width / 2, first, last, offset);
}

ir_value_t intact_find(const intact_t *t, const plan_place_t *place) {
    if (place->region == PLAN_NOWHERE || !place->bytes) return IR_NONE;
    size_t first = count_before(t, place->region, 0);
    size_t last = count_before(t, place->region, place->offset + place->bytes);
    size_t leaf = find_leaf(t, 1, 0, t->n_leaves, first, last, place->offset);
    return leaf == t->n_leaves ? IR_NONE : t->sorted[leaf];
}

ir_value_t intact_take(intact_t *t, const plan_place_t *place) {
    ir_value_t v = intact_find(t, place);
    if (v != IR_NONE) set_end(t, v, 0);
    return v;
}
