/* Exact elimination (energy.h): dominated labels, then variables one by one. The order is found
 * first, from who joins whom alone, so that an energy whose tables would be too wide costs none of
 * them. */
#include <string.h>

#include "base/arena.h"
#include "base/heap.h"
#include "base/memory.h"
#include "shard/energy.h"

/* A variable with more neighbours is no candidate: its table would have 2^41 entries. */
enum { MOST_NEIGHBOURS = 40 };
/* Higher than any energy, and far from overflowing in a sum with one. */
static const int64_t INFINITE = (int64_t)1 << 60;

typedef struct factor {
    uint32_t n, *scope; /* ascending */
    int64_t *table;     /* row-major over the scope's alive labels */
    bool used;          /* by the elimination of one of its variables */
} factor_t;

/* What is left of an eliminated variable: its best label for each choice of its neighbours. */
typedef struct step {
    uint32_t variable, n, *scope;
    uint8_t *best;
} step_t;

typedef ST_VEC(uint32_t) list_t;

typedef struct candidate {
    uint64_t fill, entries;
    uint32_t variable, version;
} candidate_t;

typedef struct elimination {
    const shard_core_t *core;
    uint32_t n;
    size_t max_entries;
    st_arena_t arena;
    uint8_t *alive;    /* [n][SHARD_MAX_LABELS]: labels that are left, ascending */
    uint8_t *n_alive;  /* [n] */
    list_t *near;      /* [n]: neighbours, ascending */
    list_t *factors;   /* [n]: that have the variable in their scope */
    uint32_t *version; /* [n]: of the candidate that counts; UINT32_MAX: eliminated */
    ST_VEC(factor_t) all;
    ST_VEC(candidate_t) heap;
    ST_VEC(step_t) steps;
} elimination_t;

static void close_elimination(elimination_t *e) {
    for (uint32_t v = 0; v < e->n; v++) {
        if (e->near) ST_VEC_FREE(&e->near[v]);
        if (e->factors) ST_VEC_FREE(&e->factors[v]);
    }
    ST_VEC_FREE(&e->all);
    ST_VEC_FREE(&e->heap);
    ST_VEC_FREE(&e->steps);
    st_arena_clear(&e->arena);
}

static st_status_t open_elimination(const shard_core_t *core, size_t max_entries,
                                    elimination_t *e) {
    *e = (elimination_t){.core = core, .n = (uint32_t)core->energy.variables.n};
    e->max_entries = max_entries;
    e->alive = st_arena_array(&e->arena, e->n, SHARD_MAX_LABELS);
    e->n_alive = st_arena_array(&e->arena, e->n, sizeof *e->n_alive);
    e->near = st_arena_array(&e->arena, e->n, sizeof *e->near);
    e->factors = st_arena_array(&e->arena, e->n, sizeof *e->factors);
    e->version = st_arena_array(&e->arena, e->n, sizeof *e->version);
    if (!e->alive || !e->n_alive || !e->near || !e->factors || !e->version)
        return st_no_memory(e->n * (size_t)SHARD_MAX_LABELS, "an elimination");
    for (uint32_t v = 0; v < e->n; v++) {
        e->n_alive[v] = (uint8_t)core->energy.variables.data[v].n_labels;
        for (uint32_t x = 0; x < e->n_alive[v]; x++)
            e->alive[v * SHARD_MAX_LABELS + x] = (uint8_t)x;
    }
    return ST_OK;
}

static inline uint32_t alive(const elimination_t *e, uint32_t v, uint32_t k) {
    return e->alive[v * SHARD_MAX_LABELS + k];
}
static inline int64_t finite(int64_t cost) {
    return cost == SHARD_FORBIDDEN ? INFINITE : cost;
}

/* ---- dominated labels ---- */

/* Whether label y is at least as good as x whatever the neighbours take. */
static bool beats(const elimination_t *e, uint32_t v, uint32_t y, uint32_t x) {
    const shard_energy_t *energy = &e->core->energy;
    const int64_t cost_x = shard_label_cost(energy, v, x), cost_y = shard_label_cost(energy, v, y);
    if (cost_x == SHARD_FORBIDDEN) return true;
    if (cost_y == SHARD_FORBIDDEN) return false;
    int64_t gain = cost_x - cost_y;
    for (uint32_t k = e->core->first[v]; k < e->core->first[v + 1]; k++) {
        const shard_pair_t *pair = &energy->pairs.data[e->core->adjacent[k]];
        const uint32_t w = shard_other_end(pair, v);
        int64_t least = INT64_MAX;
        for (uint32_t m = 0; m < e->n_alive[w]; m++) {
            const int64_t of_x = shard_end_cost(energy, pair, v, x, alive(e, w, m));
            const int64_t of_y = shard_end_cost(energy, pair, v, y, alive(e, w, m));
            if (of_x == SHARD_FORBIDDEN) continue;
            if (of_y == SHARD_FORBIDDEN) return false;
            if (of_x - of_y < least) least = of_x - of_y;
        }
        if (least == INT64_MAX) return true; /* nothing goes with x */
        gain += least;
    }
    return gain >= 0;
}

/* Each drop keeps at least one least labelling, so the next may rely on it. */
static bool drop_labels(elimination_t *e, uint32_t v) {
    bool any = false;
    for (uint32_t k = e->n_alive[v]; k-- > 0 && e->n_alive[v] > 1;) {
        for (uint32_t m = 0; m < e->n_alive[v]; m++) {
            if (m == k || !beats(e, v, alive(e, v, m), alive(e, v, k))) continue;
            uint8_t *at = &e->alive[v * SHARD_MAX_LABELS + k];
            memmove(at, at + 1, e->n_alive[v] - k - 1u);
            e->n_alive[v]--;
            any = true;
            break;
        }
    }
    return any;
}

/* To a fixed point, looking again only where a neighbour lost something. */
static st_status_t drop_dominated(elimination_t *e) {
    bool *stale = st_arena_array(&e->arena, e->n, sizeof *stale);
    if (!stale) return st_no_memory(e->n, "an elimination");
    memset(stale, true, e->n);
    for (bool again = true; again;) {
        again = false;
        for (uint32_t v = 0; v < e->n; v++) {
            if (!stale[v]) continue;
            stale[v] = false;
            if (!drop_labels(e, v)) continue;
            again = true;
            for (uint32_t k = e->core->first[v]; k < e->core->first[v + 1]; k++)
                stale[shard_other_end(&e->core->energy.pairs.data[e->core->adjacent[k]], v)] = true;
        }
    }
    return ST_OK;
}

/* ---- factors ---- */

static st_status_t add_factor(elimination_t *e, uint32_t n, uint32_t *scope, int64_t *table) {
    const uint32_t f = (uint32_t)e->all.n;
    TRY(ST_VEC_PUSH(&e->all, ((factor_t){n, scope, table, false})));
    for (uint32_t i = 0; i < n; i++) TRY(ST_VEC_PUSH(&e->factors[scope[i]], f));
    return ST_OK;
}

/* Unary costs, with the tables towards variables that have one label left. */
static st_status_t add_unary(elimination_t *e, uint32_t v) {
    const shard_energy_t *energy = &e->core->energy;
    int64_t *table = st_arena_array(&e->arena, e->n_alive[v], sizeof *table);
    uint32_t *scope = st_arena_array(&e->arena, 1, sizeof *scope);
    if (!table || !scope) return st_no_memory(e->n_alive[v] * sizeof *table, "an elimination");
    scope[0] = v;
    for (uint32_t x = 0; x < e->n_alive[v]; x++)
        table[x] = finite(shard_label_cost(energy, v, alive(e, v, x)));
    for (uint32_t k = e->core->first[v]; k < e->core->first[v + 1]; k++) {
        const shard_pair_t *pair = &energy->pairs.data[e->core->adjacent[k]];
        const uint32_t w = shard_other_end(pair, v);
        if (e->n_alive[w] > 1 || (e->n_alive[v] == 1 && w < v)) continue;
        for (uint32_t x = 0; x < e->n_alive[v]; x++) {
            table[x] += finite(shard_end_cost(energy, pair, v, alive(e, v, x), alive(e, w, 0)));
            if (table[x] > INFINITE) table[x] = INFINITE;
        }
    }
    return add_factor(e, 1, scope, table);
}

static st_status_t add_neighbours(elimination_t *e, const shard_pair_t *pair) {
    if (e->n_alive[pair->a] == 1 || e->n_alive[pair->b] == 1) return ST_OK;
    /* pairs come sorted, so that the lists are ascending: all (x, b) stand before all (b, y) */
    TRY(ST_VEC_PUSH(&e->near[pair->a], pair->b));
    return ST_VEC_PUSH(&e->near[pair->b], pair->a);
}

static st_status_t add_pair(elimination_t *e, const shard_pair_t *pair) {
    const uint32_t a = pair->a, b = pair->b;
    if (e->n_alive[a] == 1 || e->n_alive[b] == 1) return ST_OK;
    int64_t *table =
        st_arena_array(&e->arena, (size_t)e->n_alive[a] * e->n_alive[b], sizeof *table);
    uint32_t *scope = st_arena_array(&e->arena, 2, sizeof *scope);
    if (!table || !scope) return st_no_memory(sizeof *table, "an elimination");
    scope[0] = a;
    scope[1] = b;
    for (uint32_t x = 0; x < e->n_alive[a]; x++)
        for (uint32_t y = 0; y < e->n_alive[b]; y++)
            table[x * e->n_alive[b] + y] =
                finite(shard_pair_cost(&e->core->energy, pair, alive(e, a, x), alive(e, b, y)));
    return add_factor(e, 2, scope, table);
}

/* ---- order ---- */

/* Where w is in an ascending list, or would be. */
static size_t place_of(const list_t *list, uint32_t w) {
    size_t low = 0, high = list->n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (list->data[middle] < w)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}
static bool is_near(const list_t *list, uint32_t w) {
    size_t at = place_of(list, w);
    return at < list->n && list->data[at] == w;
}

static bool comes_before(const void *left, const void *right) {
    const candidate_t *a = left, *b = right;
    if (a->fill != b->fill) return a->fill < b->fill;
    if (a->entries != b->entries) return a->entries < b->entries;
    return a->variable < b->variable;
}

/* Enters v with what eliminating it would do now. */
static st_status_t rate(elimination_t *e, uint32_t v) {
    const list_t *near = &e->near[v];
    candidate_t c = {0, 1, v, ++e->version[v]};
    if (near->n > MOST_NEIGHBOURS) return ST_OK;
    for (size_t i = 0; i < near->n; i++) {
        c.entries *= e->n_alive[near->data[i]];
        if (c.entries > e->max_entries) c.entries = (uint64_t)e->max_entries + 1;
        for (size_t j = i + 1; j < near->n; j++)
            c.fill += !is_near(&e->near[near->data[i]], near->data[j]);
    }
    TRY(ST_VEC_PUSH(&e->heap, c));
    st_heap_rise(e->heap.data, e->heap.n, sizeof c, comes_before);
    return ST_OK;
}

static void remove_near(list_t *list, uint32_t w) {
    size_t at = place_of(list, w);
    memmove(&list->data[at], &list->data[at + 1], (list->n - at - 1) * sizeof *list->data);
    list->n--;
}

static st_status_t add_near(list_t *list, uint32_t w) {
    size_t at = place_of(list, w);
    if (at < list->n && list->data[at] == w) return ST_OK;
    TRY(ST_VEC_PUSH(list, w));
    memmove(&list->data[at + 1], &list->data[at], (list->n - at - 1) * sizeof *list->data);
    list->data[at] = w;
    return ST_OK;
}

/* Takes v out: its neighbours become each other's. Rates anew those whose fill may have changed. */
static st_status_t detach(elimination_t *e, uint32_t v, bool *touched) {
    const list_t *near = &e->near[v];
    e->version[v] = UINT32_MAX;
    for (size_t i = 0; i < near->n; i++) {
        list_t *list = &e->near[near->data[i]];
        remove_near(list, v);
        for (size_t j = 0; j < near->n; j++)
            if (j != i) TRY(add_near(list, near->data[j]));
    }
    list_t stale = {0};
    st_status_t status = ST_OK;
    for (size_t i = 0; i < near->n; i++) {
        const list_t *list = &e->near[near->data[i]];
        const size_t from = list->n > MOST_NEIGHBOURS ? list->n : 0; /* too many to look at */
        for (size_t j = from; j <= list->n; j++) {
            const uint32_t w = j < list->n ? list->data[j] : near->data[i];
            if (touched[w]) continue;
            touched[w] = true;
            TRY_GOTO(ST_VEC_PUSH(&stale, w), done);
        }
    }
    for (size_t i = 0; i < stale.n; i++) TRY_GOTO(rate(e, stale.data[i]), done);
done:
    for (size_t i = 0; i < stale.n; i++) touched[stale.data[i]] = false;
    ST_VEC_FREE(&stale);
    return status;
}

/* ---- elimination of one variable ---- */

enum { MOST_FACTORS = 512 };

typedef struct operand {
    const int64_t *table;
    size_t own;                         /* stride of the variable that goes */
    size_t stride[MOST_NEIGHBOURS + 1]; /* of the scope's */
    size_t at;
} operand_t;

static void place_operand(const elimination_t *e, const factor_t *factor, uint32_t v,
                          const list_t *scope, operand_t *out) {
    size_t stride = 1;
    memset(out, 0, sizeof *out);
    out->table = factor->table;
    for (uint32_t i = factor->n; i-- > 0;) {
        if (factor->scope[i] == v)
            out->own = stride;
        else
            out->stride[place_of(scope, factor->scope[i])] = stride;
        stride *= e->n_alive[factor->scope[i]];
    }
}

/* Fills table and best over all choices of the scope. */
static void minimize(const elimination_t *e, uint32_t v, const list_t *scope, operand_t *operands,
                     uint32_t n_operands, size_t n_entries, int64_t *table, uint8_t *best) {
    uint8_t digit[MOST_NEIGHBOURS + 1] = {0};
    const uint32_t n_labels = e->n_alive[v];
    for (size_t entry = 0; entry < n_entries; entry++) {
        int64_t least = INT64_MAX;
        for (uint32_t x = 0; x < n_labels; x++) {
            int64_t sum = 0;
            for (uint32_t f = 0; f < n_operands && sum < INFINITE; f++)
                sum += operands[f].table[operands[f].at + x * operands[f].own];
            if (sum > INFINITE) sum = INFINITE;
            if (sum < least) least = sum, best[entry] = (uint8_t)x;
        }
        table[entry] = least;
        for (size_t i = scope->n; i-- > 0;) {
            const bool wraps = ++digit[i] == e->n_alive[scope->data[i]];
            for (uint32_t f = 0; f < n_operands; f++)
                if (wraps)
                    operands[f].at -= operands[f].stride[i] * (digit[i] - 1u);
                else
                    operands[f].at += operands[f].stride[i];
            if (!wraps) break;
            digit[i] = 0;
        }
    }
}

/* Computes the step's table, which is its neighbours' from then on. *out_wide: of too many
 * factors. */
static st_status_t eliminate_one(elimination_t *e, step_t *step, bool *out_wide) {
    const list_t *factors = &e->factors[step->variable];
    const list_t scope = {.data = step->scope, .n = step->n};
    size_t n_entries = 1;
    uint32_t n_operands = 0;
    *out_wide = factors->n > MOST_FACTORS;
    if (*out_wide) return ST_OK;
    for (uint32_t i = 0; i < step->n; i++) n_entries *= e->n_alive[step->scope[i]];
    step->best = st_arena_array(&e->arena, n_entries, 1);
    int64_t *table = st_arena_array(&e->arena, n_entries, sizeof *table);
    operand_t *operands = st_malloc(factors->n * sizeof *operands);
    st_status_t status = ST_OK;
    if (!step->best || !table || !operands)
        TRY_GOTO(st_no_memory(n_entries * sizeof *table, "an elimination"), done);
    for (size_t i = 0; i < factors->n; i++) {
        factor_t *factor = &e->all.data[factors->data[i]];
        if (factor->used) continue;
        factor->used = true;
        place_operand(e, factor, step->variable, &scope, &operands[n_operands++]);
    }
    minimize(e, step->variable, &scope, operands, n_operands, n_entries, table, step->best);
    status = add_factor(e, step->n, step->scope, table);
done:
    st_free(operands);
    return status;
}

/* The variables in the order in which they go, with their neighbours then. */
static st_status_t find_order(elimination_t *e, bool *out_wide) {
    bool *touched = st_arena_array(&e->arena, e->n, sizeof *touched);
    if (!touched) return st_no_memory(e->n, "an elimination");
    for (uint32_t v = 0; v < e->n; v++) TRY(rate(e, v));
    while (e->steps.n < e->n) {
        if (!e->heap.n) { /* only variables with too many neighbours are left */
            *out_wide = true;
            return ST_OK;
        }
        st_heap_drop(e->heap.data, e->heap.n--, sizeof(candidate_t), comes_before);
        const candidate_t c = e->heap.data[e->heap.n];
        if (c.version != e->version[c.variable]) continue;
        const list_t *near = &e->near[c.variable];
        if (c.entries > e->max_entries) {
            *out_wide = true;
            return ST_OK;
        }
        step_t step = {.variable = c.variable, .n = (uint32_t)near->n};
        step.scope = st_arena_copy(&e->arena, near->data, near->n * sizeof *near->data);
        if (!step.scope) return st_no_memory(near->n * sizeof *near->data, "an elimination");
        TRY(ST_VEC_PUSH(&e->steps, step));
        TRY(detach(e, c.variable, touched));
    }
    return ST_OK;
}

static st_status_t run(elimination_t *e, bool *out_wide) {
    const shard_energy_t *energy = &e->core->energy;
    for (size_t p = 0; p < energy->pairs.n; p++) TRY(add_neighbours(e, &energy->pairs.data[p]));
    TRY(find_order(e, out_wide));
    if (*out_wide) return ST_OK;
    for (uint32_t v = 0; v < e->n; v++) TRY(add_unary(e, v));
    for (size_t p = 0; p < energy->pairs.n; p++) TRY(add_pair(e, &energy->pairs.data[p]));
    for (size_t s = 0; s < e->steps.n && !*out_wide; s++)
        TRY(eliminate_one(e, &e->steps.data[s], out_wide));
    return ST_OK;
}

/* Labels of the core, the last eliminated first. */
static void look_back(const elimination_t *e, uint8_t *labels) {
    uint8_t *index = labels; /* among the alive ones, until all are known */
    for (size_t s = e->steps.n; s-- > 0;) {
        const step_t *step = &e->steps.data[s];
        size_t at = 0;
        for (uint32_t i = 0; i < step->n; i++)
            at = at * e->n_alive[step->scope[i]] + index[step->scope[i]];
        index[step->variable] = step->best[at];
    }
    for (uint32_t v = 0; v < e->n; v++) labels[v] = (uint8_t)alive(e, v, index[v]);
}

st_status_t shard_energy_eliminate(const shard_energy_t *energy, size_t max_entries,
                                   uint8_t *labels, shard_answer_t *out_answer) {
    shard_core_t core;
    elimination_t e = {0};
    uint8_t *found = NULL;
    bool wide = false;
    st_status_t status = ST_OK;
    *out_answer = (shard_answer_t){.energy = SHARD_FORBIDDEN};
    TRY(shard_core_open(energy, &core));
    TRY_GOTO(open_elimination(&core, max_entries, &e), done);
    TRY_GOTO(drop_dominated(&e), done);
    TRY_GOTO(run(&e, &wide), done);
    out_answer->too_wide = wide;
    if (wide) goto done;
    found = st_calloc(e.n, 1);
    if (!found) TRY_GOTO(st_no_memory(e.n, "an elimination"), done);
    look_back(&e, found);
    shard_core_spread(&core, found, labels);
    out_answer->energy = shard_energy_of(energy, labels);
    out_answer->exact = true;
done:
    st_free(found);
    close_elimination(&e);
    shard_core_close(&core);
    return status;
}
