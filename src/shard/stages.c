/* Pipeline stages by dynamic programming over orders (stages.h). */
#include "shard/stages.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/hash.h"
#include "base/memory.h"

/* As given, depth first, breadth first; then the ready ones by lot, for small graphs only. */
enum { N_ORDERS = 3, N_LOTS = 13, MOST_LOTS_ITEMS = 128 };
static const int64_t MOST_COST = (int64_t)1 << 56;

typedef struct splitter {
    const shard_stage_input_t *in;
    uint32_t n, k;
    st_arena_t arena;
    uint32_t *order; /* [n]: the order at hand: item at each place */
    uint32_t *place; /* [n]: of each item */
    int64_t *cost;   /* [n + 1]: sums over the first places */
    uint64_t *state, *kept;
    int64_t *crossing; /* [n + 1]: what passing the values over a border before the place takes */
    int64_t *least;    /* [k + 1][n + 1]: sum (or longest) of the first stages */
    uint32_t *from;    /* [k + 1][n + 1]: where the last of them begins */
    int64_t *bounds;   /* [n (n + 1) / 2] */
    int64_t *load;     /* [k]: for pricing */
    uint64_t *bytes;   /* [k] */
    uint32_t *stages;
} splitter_t;

/* ---- pricing ---- */

static uint64_t in_flight(const shard_stage_input_t *in, uint32_t stage) {
    const uint32_t left = in->n_stages - stage;
    return left < in->n_micro ? left : in->n_micro;
}

static int64_t step_of(const shard_stage_input_t *in, int64_t sum, int64_t longest) {
    int64_t step;
    if (!st_mul_i64(longest, (int64_t)in->n_micro - 1, &step) || !st_add_i64(step, sum, &step))
        return INT64_MAX;
    return step;
}

static bool price(const shard_stage_input_t *in, const uint32_t *stages, int64_t *load,
                  uint64_t *bytes, shard_stage_result_t *out) {
    const uint32_t k = in->n_stages;
    *out = (shard_stage_result_t){0};
    for (uint32_t s = 0; s < k; s++) load[s] = -1, bytes[s] = 0;
    for (uint32_t i = 0; i < in->n_items; i++) {
        const uint32_t s = stages[i];
        if (s >= k) return false;
        load[s] += (load[s] < 0) + in->items[i].cost;
        bytes[s] += in->items[i].state_bytes + in_flight(in, s) * in->items[i].kept_bytes;
    }
    for (uint32_t s = 0; s < k; s++)
        if (load[s] < 0) return false;
    for (uint32_t v = 0; v < in->n_values; v++) {
        const shard_stage_value_t *value = &in->values[v];
        uint32_t last = stages[value->producer];
        for (uint32_t r = 0; r < value->n_readers; r++) {
            if (stages[value->readers[r]] < stages[value->producer]) return false;
            if (stages[value->readers[r]] > last) last = stages[value->readers[r]];
        }
        for (uint32_t s = stages[value->producer]; s < last; s++) {
            load[s] += value->cost;
            load[s + 1] += value->cost;
        }
    }
    for (uint32_t s = 0; s < k; s++) {
        out->sum += load[s];
        if (load[s] > out->longest) out->longest = load[s];
        if (bytes[s] > out->most_bytes) out->most_bytes = bytes[s];
    }
    out->step = step_of(in, out->sum, out->longest);
    return true;
}

bool shard_stages_price(const shard_stage_input_t *input, const uint32_t *stages,
                        shard_stage_result_t *out_result) {
    int64_t *load = st_calloc(input->n_stages, sizeof *load);
    uint64_t *bytes = st_calloc(input->n_stages, sizeof *bytes);
    *out_result = (shard_stage_result_t){0};
    const bool good = load && bytes && price(input, stages, load, bytes, out_result);
    st_free(load);
    st_free(bytes);
    return good;
}

/* ---- one order ---- */

static void add_up(splitter_t *s) {
    const shard_stage_input_t *in = s->in;
    for (uint32_t p = 0; p < s->n; p++) {
        const shard_stage_item_t *item = &in->items[s->order[p]];
        s->place[s->order[p]] = p;
        s->cost[p + 1] = s->cost[p] + item->cost;
        s->state[p + 1] = s->state[p] + item->state_bytes;
        s->kept[p + 1] = s->kept[p] + item->kept_bytes;
    }
    memset(s->crossing, 0, (s->n + 1) * sizeof *s->crossing);
    for (uint32_t v = 0; v < in->n_values; v++) {
        const shard_stage_value_t *value = &in->values[v];
        uint32_t last = s->place[value->producer];
        for (uint32_t r = 0; r < value->n_readers; r++)
            if (s->place[value->readers[r]] > last) last = s->place[value->readers[r]];
        s->crossing[s->place[value->producer] + 1] += value->cost;
        s->crossing[last + 1] -= value->cost;
    }
    for (uint32_t p = 0; p < s->n; p++) s->crossing[p + 1] += s->crossing[p];
}

/* Time of a stage of places begin … end - 1. */
static int64_t time_of(const splitter_t *s, uint32_t begin, uint32_t end) {
    return s->cost[end] - s->cost[begin] + s->crossing[begin] + s->crossing[end];
}

static bool fits(const splitter_t *s, uint32_t stage, uint32_t begin, uint32_t end) {
    const uint64_t limit = s->in->limit_bytes, state = s->state[end] - s->state[begin];
    const uint64_t kept = s->kept[end] - s->kept[begin], flight = in_flight(s->in, stage);
    return state <= limit && kept <= (limit - state) / flight;
}

/* Least sum of stages none of which takes more than `bound`, or with `bound` INT64_MAX and
 * `longest` the least longest one. INT64_MAX: there are none. */
static int64_t divide(splitter_t *s, int64_t bound, bool longest) {
    const uint32_t n = s->n, row = n + 1;
    for (uint32_t i = 0; i <= n; i++) s->least[i] = i ? INT64_MAX : 0;
    for (uint32_t stage = 0; stage < s->k; stage++) {
        const int64_t *before = s->least + (size_t)stage * row;
        int64_t *after = s->least + (size_t)(stage + 1) * row;
        uint32_t *from = s->from + (size_t)(stage + 1) * row;
        for (uint32_t end = 0; end <= n; end++) {
            after[end] = INT64_MAX;
            for (uint32_t begin = end; begin-- > stage;) {
                if (!fits(s, stage, begin, end)) break; /* more items only need more */
                if (before[begin] == INT64_MAX) continue;
                const int64_t time = time_of(s, begin, end);
                if (time > bound) continue; /* a border with less to pass may come */
                const int64_t all =
                    longest ? (time > before[begin] ? time : before[begin]) : before[begin] + time;
                if (all < after[end]) after[end] = all, from[end] = begin;
            }
        }
    }
    return s->least[(size_t)s->k * row + n];
}

static void read_back(const splitter_t *s, uint32_t *out_stages) {
    uint32_t end = s->n;
    for (uint32_t stage = s->k; stage-- > 0;) {
        const uint32_t begin = s->from[(size_t)(stage + 1) * (s->n + 1) + end];
        for (uint32_t p = begin; p < end; p++) out_stages[s->order[p]] = stage;
        end = begin;
    }
}

static int by_size(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* The best consecutive stages of the order; INT64_MAX: none keep within the limit. */
static int64_t solve_order(splitter_t *s, uint32_t *out_stages) {
    int64_t best = INT64_MAX;
    size_t n_bounds = 0;
    add_up(s);
    const int64_t least_longest = divide(s, INT64_MAX, true);
    if (least_longest == INT64_MAX) return INT64_MAX;
    for (uint32_t begin = 0; begin < s->n; begin++)
        for (uint32_t end = begin + 1; end <= s->n; end++)
            if (time_of(s, begin, end) >= least_longest)
                s->bounds[n_bounds++] = time_of(s, begin, end);
    qsort(s->bounds, n_bounds, sizeof *s->bounds, by_size);
    const int64_t least_sum = divide(s, INT64_MAX, false);
    if (s->in->n_micro == 1) { /* the longest stage does not count */
        read_back(s, out_stages);
        return least_sum;
    }
    for (size_t i = 0; i < n_bounds; i++) {
        if (i && s->bounds[i] == s->bounds[i - 1]) continue;
        if (step_of(s->in, least_sum, s->bounds[i]) >= best) break;
        const int64_t step = step_of(s->in, divide(s, s->bounds[i], false), s->bounds[i]);
        if (step >= best) continue;
        best = step;
        read_back(s, out_stages);
    }
    return best;
}

/* ---- orders ---- */

/* Items whose producers are all placed come out next: the newest ready one (order 1), the oldest
 * (2), or one by lot, the same every time (3 …). `pending` counts, `ready` holds up to n. */
static void order_by_readiness(const splitter_t *s, uint32_t which, uint32_t *pending,
                               uint32_t *ready, const uint32_t *first, const uint32_t *reader,
                               uint32_t *out_order) {
    uint32_t n_ready = 0, made = 0, lot[4];
    memset(pending, 0, s->n * sizeof *pending);
    for (uint32_t e = 0; e < first[s->n]; e++) pending[reader[e]]++;
    for (uint32_t i = 0; i < s->n; i++) {
        const uint32_t item = which == 1 ? s->n - 1 - i : i;
        if (!pending[item]) ready[n_ready++] = item;
    }
    while (n_ready) {
        st_philox(which, made, 0, lot);
        const uint32_t at = which == 1 ? n_ready - 1 : which == 2 ? 0 : lot[0] % n_ready;
        const uint32_t item = ready[at];
        memmove(ready + at, ready + at + 1, (n_ready - at - 1) * sizeof *ready);
        n_ready--;
        out_order[made++] = item;
        for (uint32_t e = first[item]; e < first[item + 1]; e++)
            if (--pending[reader[e]] == 0) ready[n_ready++] = reader[e];
    }
    ASSERT(made == s->n);
}

/* Readers of each item, with repeats. */
static st_status_t list_readers(splitter_t *s, uint32_t **out_first, uint32_t **out_reader) {
    const shard_stage_input_t *in = s->in;
    size_t n_edges = 0;
    for (uint32_t v = 0; v < in->n_values; v++) n_edges += in->values[v].n_readers;
    uint32_t *first = *out_first = st_arena_array(&s->arena, s->n + 2u, sizeof *first);
    uint32_t *reader = *out_reader = st_arena_array(&s->arena, n_edges, sizeof *reader);
    if (!first || !reader) return st_no_memory(n_edges * sizeof *reader, "stages");
    for (uint32_t v = 0; v < in->n_values; v++)
        first[in->values[v].producer + 2] += in->values[v].n_readers;
    for (uint32_t i = 0; i < s->n; i++) first[i + 2] += first[i + 1];
    for (uint32_t v = 0; v < in->n_values; v++)
        for (uint32_t r = 0; r < in->values[v].n_readers; r++)
            reader[first[in->values[v].producer + 1]++] = in->values[v].readers[r];
    return ST_OK;
}

/* Each item is read by the next alone: no other order is possible. */
static bool is_chain(const splitter_t *s, const uint32_t *first, const uint32_t *reader) {
    for (uint32_t i = 0; i + 1 < s->n; i++) {
        bool next = false;
        for (uint32_t e = first[i]; e < first[i + 1]; e++) next |= reader[e] == i + 1;
        if (!next) return false;
    }
    return true;
}

/* ---- refinement ---- */

static bool better(const splitter_t *s, const shard_stage_result_t *a,
                   const shard_stage_result_t *b) {
    if (a->most_bytes > s->in->limit_bytes) return false;
    return a->step < b->step;
}

/* Items one by one to the stage before or after, while that helps. */
static void refine(splitter_t *s, uint32_t *stages, shard_stage_result_t *best) {
    for (bool again = true; again;) {
        again = false;
        for (uint32_t i = 0; i < s->n; i++)
            for (int by = -1; by <= 1; by += 2) {
                const uint32_t old = stages[i];
                shard_stage_result_t now;
                if ((by < 0 && old == 0) || (by > 0 && old + 1 == s->k)) continue;
                stages[i] = old + (uint32_t)by;
                if (price(s->in, stages, s->load, s->bytes, &now) && better(s, &now, best)) {
                    *best = now;
                    again = true;
                } else {
                    stages[i] = old;
                }
            }
    }
}

/* ---- entry ---- */

static st_status_t check_input(const shard_stage_input_t *in) {
    int64_t total = 0;
    if (in->n_stages < 1 || in->n_micro < 1)
        return FAIL(ST_INVALID, "%u stages and %u micro-batches: at least one of each is needed",
                    in->n_stages, in->n_micro);
    if (in->n_items < in->n_stages)
        return FAIL(ST_INVALID, "%u items cannot make %u stages: use fewer stages", in->n_items,
                    in->n_stages);
    for (uint32_t i = 0; i < in->n_items; i++) {
        if (in->items[i].cost < 0 || in->items[i].cost > MOST_COST - total)
            return FAIL(ST_DOES_NOT_FIT, "the costs of the stages' items exceed 2^56 together");
        total += in->items[i].cost;
    }
    for (uint32_t v = 0; v < in->n_values; v++) {
        const shard_stage_value_t *value = &in->values[v];
        if (value->cost < 0 || value->cost > MOST_COST - total)
            return FAIL(ST_DOES_NOT_FIT, "the costs of the stages' items exceed 2^56 together");
        total += value->cost;
        for (uint32_t r = 0; r < value->n_readers; r++)
            if (value->readers[r] <= value->producer || value->readers[r] >= in->n_items)
                return FAIL(ST_INVALID, "value %u of item %u is read by item %u: not in order", v,
                            value->producer, value->readers[r]);
    }
    return ST_OK;
}

static st_status_t open_splitter(const shard_stage_input_t *in, splitter_t *s) {
    const size_t n = in->n_items, k = in->n_stages;
    *s = (splitter_t){.in = in, .n = in->n_items, .k = in->n_stages};
    s->order = st_arena_array(&s->arena, n, sizeof *s->order);
    s->place = st_arena_array(&s->arena, n, sizeof *s->place);
    s->cost = st_arena_array(&s->arena, n + 1, sizeof *s->cost);
    s->state = st_arena_array(&s->arena, n + 1, sizeof *s->state);
    s->kept = st_arena_array(&s->arena, n + 1, sizeof *s->kept);
    s->crossing = st_arena_array(&s->arena, n + 2, sizeof *s->crossing);
    s->least = st_arena_array(&s->arena, (k + 1) * (n + 1), sizeof *s->least);
    s->from = st_arena_array(&s->arena, (k + 1) * (n + 1), sizeof *s->from);
    s->bounds = st_arena_array(&s->arena, n * (n + 1) / 2, sizeof *s->bounds);
    s->load = st_arena_array(&s->arena, k, sizeof *s->load);
    s->bytes = st_arena_array(&s->arena, k, sizeof *s->bytes);
    s->stages = st_arena_array(&s->arena, n, sizeof *s->stages);
    if (!s->order || !s->place || !s->cost || !s->state || !s->kept || !s->crossing || !s->least ||
        !s->from || !s->bounds || !s->load || !s->bytes || !s->stages)
        return st_no_memory(n * (n + 1) / 2 * sizeof *s->bounds, "stages");
    return ST_OK;
}

/* What the least limit would be under which the given order can be divided. */
static uint64_t least_limit(splitter_t *s) {
    shard_stage_input_t any = *s->in;
    uint64_t low = s->in->limit_bytes, high = UINT64_MAX >> 16;
    const shard_stage_input_t *own = s->in;
    s->in = &any;
    while (low + 1 < high) {
        any.limit_bytes = low + (high - low) / 2;
        if (divide(s, INT64_MAX, true) == INT64_MAX)
            low = any.limit_bytes;
        else
            high = any.limit_bytes;
    }
    s->in = own;
    return high;
}

static st_status_t try_orders(splitter_t *s, uint32_t *out_stages, shard_stage_result_t *out) {
    uint32_t *first, *reader, *pending, *ready;
    TRY(list_readers(s, &first, &reader));
    const bool chain = is_chain(s, first, reader);
    pending = st_arena_array(&s->arena, s->n, sizeof *pending);
    ready = st_arena_array(&s->arena, s->n, sizeof *ready);
    if (!pending || !ready) return st_no_memory(s->n * sizeof *ready, "stages");
    bool found = false;
    const uint32_t n_orders = chain ? 1 : s->n <= MOST_LOTS_ITEMS ? N_ORDERS + N_LOTS : N_ORDERS;
    for (uint32_t o = 0; o < n_orders; o++) {
        shard_stage_result_t now;
        for (uint32_t i = 0; i < s->n && !o; i++) s->order[i] = i;
        if (o) order_by_readiness(s, o, pending, ready, first, reader, s->order);
        if (solve_order(s, s->stages) == INT64_MAX) continue;
        const bool valid = price(s->in, s->stages, s->load, s->bytes, &now);
        ASSERT(valid);
        if (!chain) refine(s, s->stages, &now);
        if (found && now.step >= out->step) continue;
        found = true;
        *out = now;
        memcpy(out_stages, s->stages, s->n * sizeof *out_stages);
    }
    if (!found) {
        for (uint32_t i = 0; i < s->n; i++) s->order[i] = i;
        add_up(s);
        return FAIL(ST_DOES_NOT_FIT,
                    "no %u stages keep within %.2f GiB each: in the order of the graph they need "
                    "%.2f GiB",
                    s->k, (double)s->in->limit_bytes / 0x1p30, (double)least_limit(s) / 0x1p30);
    }
    out->exact = chain;
    return ST_OK;
}

st_status_t shard_stages(const shard_stage_input_t *input, uint32_t *out_stages,
                         shard_stage_result_t *out_result) {
    splitter_t s;
    *out_result = (shard_stage_result_t){0};
    TRY(check_input(input));
    st_status_t status = open_splitter(input, &s);
    if (status == ST_OK) status = try_orders(&s, out_stages, out_result);
    st_arena_clear(&s.arena);
    return status;
}
