/* Building energies, and bringing them into the form that the solvers take (energy.h). */
#include "shard/energy.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

/* ---- building ---- */

void shard_energy_open(shard_energy_t *out_energy) {
    *out_energy = (shard_energy_t){0};
}

void shard_energy_close(shard_energy_t *energy) {
    ST_VEC_FREE(&energy->variables);
    ST_VEC_FREE(&energy->costs);
    ST_VEC_FREE(&energy->classes);
    ST_VEC_FREE(&energy->memory);
    ST_VEC_FREE(&energy->pairs);
    ST_VEC_FREE(&energy->tables);
    ST_VEC_FREE(&energy->ties);
}

static st_status_t check_cost(int64_t cost, const char *what, uint32_t which) {
    if (cost == SHARD_FORBIDDEN || (cost >= 0 && cost <= SHARD_ENERGY_LIMIT)) return ST_OK;
    return FAIL(ST_INVALID, "%s %u costs %lld, which is not in 0 … 2^56", what, which,
                (long long)cost);
}

st_status_t shard_energy_variable(shard_energy_t *energy, uint32_t n_labels, const int64_t *costs,
                                  const uint32_t *classes, const uint64_t *memory,
                                  uint32_t *out_variable) {
    const uint32_t v = (uint32_t)energy->variables.n;
    if (n_labels < 1 || n_labels > SHARD_MAX_LABELS)
        return FAIL(ST_INVALID, "variable %u has %u labels: 1 to %d are possible", v, n_labels,
                    SHARD_MAX_LABELS);
    if (v == UINT32_MAX - 1) return FAIL(ST_DOES_NOT_FIT, "an energy of 2^32 variables");
    for (uint32_t x = 0; x < n_labels; x++) TRY(check_cost(costs[x], "variable", v));
    const size_t first = energy->costs.n;
    TRY(ST_VEC_RESERVE(&energy->costs, first + n_labels));
    TRY(ST_VEC_RESERVE(&energy->classes, first + n_labels));
    TRY(ST_VEC_RESERVE(&energy->memory, first + n_labels));
    TRY(ST_VEC_PUSH(&energy->variables, ((shard_variable_t){n_labels, first})));
    for (uint32_t x = 0; x < n_labels; x++) {
        energy->costs.data[first + x] = costs[x];
        energy->classes.data[first + x] = classes ? classes[x] : x;
        energy->memory.data[first + x] = memory ? memory[x] : 0;
    }
    energy->costs.n = energy->classes.n = energy->memory.n = first + n_labels;
    if (out_variable) *out_variable = v;
    return ST_OK;
}

st_status_t shard_energy_pair(shard_energy_t *energy, uint32_t a, uint32_t b,
                              const int64_t *table) {
    ASSERT(a < energy->variables.n && b < energy->variables.n && a != b);
    const size_t n =
        (size_t)energy->variables.data[a].n_labels * energy->variables.data[b].n_labels;
    const uint32_t p = (uint32_t)energy->pairs.n;
    if (p == UINT32_MAX - 1) return FAIL(ST_DOES_NOT_FIT, "an energy of 2^32 tables");
    for (size_t i = 0; i < n; i++) TRY(check_cost(table[i], "pair", p));
    const size_t first = energy->tables.n;
    TRY(ST_VEC_RESERVE(&energy->tables, first + n));
    TRY(ST_VEC_PUSH(&energy->pairs, ((shard_pair_t){a, b, first})));
    memcpy(energy->tables.data + first, table, n * sizeof *table);
    energy->tables.n += n;
    return ST_OK;
}

st_status_t shard_energy_tie(shard_energy_t *energy, uint32_t a, uint32_t b) {
    ASSERT(a < energy->variables.n && b < energy->variables.n);
    const uint32_t n_a = energy->variables.data[a].n_labels;
    const uint32_t n_b = energy->variables.data[b].n_labels;
    if (n_a != n_b)
        return FAIL(ST_INVALID, "variables %u and %u have %u and %u labels: they cannot be tied", a,
                    b, n_a, n_b);
    return ST_VEC_PUSH(&energy->ties, ((shard_tie_t){a, b}));
}

int64_t shard_energy_of(const shard_energy_t *energy, const uint8_t *labels) {
    int64_t sum = 0;
    for (size_t i = 0; i < energy->ties.n; i++)
        if (labels[energy->ties.data[i].a] != labels[energy->ties.data[i].b])
            return SHARD_FORBIDDEN;
    for (uint32_t v = 0; v < energy->variables.n; v++)
        sum = shard_cost_add(sum, shard_label_cost(energy, v, labels[v]));
    for (size_t p = 0; p < energy->pairs.n; p++) {
        const shard_pair_t *pair = &energy->pairs.data[p];
        sum = shard_cost_add(sum, shard_pair_cost(energy, pair, labels[pair->a], labels[pair->b]));
    }
    return sum;
}

uint64_t shard_energy_memory(const shard_energy_t *energy, const uint8_t *labels) {
    uint64_t sum = 0;
    for (uint32_t v = 0; v < energy->variables.n; v++)
        sum += energy->memory.data[energy->variables.data[v].first + labels[v]];
    return sum;
}

/* ---- the solvers' form ---- */

static int64_t largest(const int64_t *costs, size_t n) {
    int64_t most = 0;
    for (size_t i = 0; i < n; i++)
        if (costs[i] != SHARD_FORBIDDEN && costs[i] > most) most = costs[i];
    return most;
}

/* Bytes may not overflow either. */
st_status_t shard_energy_total(const shard_energy_t *energy, int64_t *out_total) {
    int64_t total = 0;
    uint64_t bytes = 0;
    for (uint32_t v = 0; v < energy->variables.n; v++) {
        const shard_variable_t *variable = &energy->variables.data[v];
        uint64_t most = 0;
        for (uint32_t x = 0; x < variable->n_labels; x++)
            if (energy->memory.data[variable->first + x] > most)
                most = energy->memory.data[variable->first + x];
        if (most > (uint64_t)INT64_MAX - bytes)
            return FAIL(ST_DOES_NOT_FIT, "the memory of an energy's labels exceeds 2^63 bytes");
        bytes += most;
        total += largest(energy->costs.data + variable->first, variable->n_labels);
        if (total > SHARD_ENERGY_LIMIT) break;
    }
    for (size_t p = 0; p < energy->pairs.n && total <= SHARD_ENERGY_LIMIT; p++) {
        const shard_pair_t *pair = &energy->pairs.data[p];
        total += largest(energy->tables.data + pair->first,
                         (size_t)energy->variables.data[pair->a].n_labels *
                             energy->variables.data[pair->b].n_labels);
    }
    if (total > SHARD_ENERGY_LIMIT)
        return FAIL(ST_DOES_NOT_FIT, "the largest costs of an energy exceed 2^56 together");
    *out_total = total;
    return ST_OK;
}

static uint32_t find_root(uint32_t *parent, uint32_t v) {
    while (parent[v] != v) v = parent[v] = parent[parent[v]];
    return v;
}

/* of[v]: the group of v, numbered by the smallest member. */
static void number_groups(const shard_energy_t *energy, uint32_t *of, uint32_t *out_n) {
    const uint32_t n = (uint32_t)energy->variables.n;
    uint32_t n_groups = 0;
    for (uint32_t v = 0; v < n; v++) of[v] = v;
    for (size_t i = 0; i < energy->ties.n; i++) {
        uint32_t a = find_root(of, energy->ties.data[i].a);
        uint32_t b = find_root(of, energy->ties.data[i].b);
        if (a < b)
            of[b] = a;
        else
            of[a] = b;
    }
    for (uint32_t v = 0; v < n; v++) of[v] = find_root(of, v);
    /* a root is the smallest of its group, so it is numbered before any other reads it */
    for (uint32_t v = 0; v < n; v++) of[v] = of[v] == v ? n_groups++ : of[of[v]];
    *out_n = n_groups;
}

static st_status_t add_groups(const shard_energy_t *energy, shard_core_t *core, uint32_t n_groups) {
    uint32_t made = 0;
    for (uint32_t v = 0; v < energy->variables.n; v++) {
        const shard_variable_t *variable = &energy->variables.data[v];
        const int64_t *costs = energy->costs.data + variable->first;
        const uint64_t *memory = energy->memory.data + variable->first;
        if (core->of[v] == made) {
            TRY(shard_energy_variable(&core->energy, variable->n_labels, costs,
                                      energy->classes.data + variable->first, memory, NULL));
            made++;
            continue;
        }
        const size_t first = core->energy.variables.data[core->of[v]].first;
        for (uint32_t x = 0; x < variable->n_labels; x++) {
            int64_t *cost = &core->energy.costs.data[first + x];
            *cost = shard_cost_add(*cost, costs[x]);
            core->energy.memory.data[first + x] += memory[x];
        }
    }
    ASSERT(made == n_groups);
    return ST_OK;
}

typedef struct edge {
    uint32_t a, b, pair; /* a < b: variables of the core */
} edge_t;

static int by_ends(const void *left, const void *right) {
    const edge_t *l = left, *r = right;
    if (l->a != r->a) return l->a < r->a ? -1 : 1;
    if (l->b != r->b) return l->b < r->b ? -1 : 1;
    return l->pair < r->pair ? -1 : l->pair > r->pair;
}

/* A table between two members of one group is a unary cost. */
static void add_own(shard_energy_t *core, uint32_t v, const shard_energy_t *energy,
                    const shard_pair_t *pair) {
    const shard_variable_t *variable = &core->variables.data[v];
    for (uint32_t x = 0; x < variable->n_labels; x++) {
        int64_t *cost = &core->costs.data[variable->first + x];
        *cost = shard_cost_add(*cost, shard_pair_cost(energy, pair, x, x));
    }
}

/* Adds the table of `pair`, whose ends may lie the other way round. */
static void add_table(int64_t *table, const shard_energy_t *energy, const shard_pair_t *pair,
                      bool turned) {
    const uint32_t n_a = energy->variables.data[turned ? pair->b : pair->a].n_labels;
    const uint32_t n_b = energy->variables.data[turned ? pair->a : pair->b].n_labels;
    for (uint32_t x = 0; x < n_a; x++)
        for (uint32_t y = 0; y < n_b; y++)
            table[x * n_b + y] =
                shard_cost_add(table[x * n_b + y], turned ? shard_pair_cost(energy, pair, y, x)
                                                          : shard_pair_cost(energy, pair, x, y));
}

static st_status_t add_edges(const shard_energy_t *energy, shard_core_t *core, edge_t *edges) {
    int64_t table[SHARD_MAX_LABELS * SHARD_MAX_LABELS];
    size_t n = 0;
    for (uint32_t p = 0; p < energy->pairs.n; p++) {
        const shard_pair_t *pair = &energy->pairs.data[p];
        uint32_t a = core->of[pair->a], b = core->of[pair->b];
        if (a == b)
            add_own(&core->energy, a, energy, pair);
        else
            edges[n++] = a < b ? (edge_t){a, b, p} : (edge_t){b, a, p};
    }
    qsort(edges, n, sizeof *edges, by_ends);
    for (size_t i = 0; i < n;) {
        const uint32_t a = edges[i].a, b = edges[i].b;
        memset(table, 0,
               sizeof table[0] * core->energy.variables.data[a].n_labels *
                   core->energy.variables.data[b].n_labels);
        for (; i < n && edges[i].a == a && edges[i].b == b; i++) {
            const shard_pair_t *pair = &energy->pairs.data[edges[i].pair];
            add_table(table, energy, pair, core->of[pair->a] == b);
        }
        TRY(shard_energy_pair(&core->energy, a, b, table));
    }
    return ST_OK;
}

static st_status_t list_adjacent(shard_core_t *core) {
    const size_t n = core->energy.variables.n, n_pairs = core->energy.pairs.n;
    core->first = st_calloc(n + 2, sizeof *core->first);
    core->adjacent = st_calloc(2 * n_pairs, sizeof *core->adjacent);
    if (!core->first || !core->adjacent)
        return st_no_memory(2 * n_pairs * sizeof *core->adjacent, "an energy");
    for (size_t p = 0; p < n_pairs; p++) {
        core->first[core->energy.pairs.data[p].a + 2]++;
        core->first[core->energy.pairs.data[p].b + 2]++;
    }
    for (size_t v = 0; v < n; v++) core->first[v + 2] += core->first[v + 1];
    for (uint32_t p = 0; p < n_pairs; p++) {
        core->adjacent[core->first[core->energy.pairs.data[p].a + 1]++] = p;
        core->adjacent[core->first[core->energy.pairs.data[p].b + 1]++] = p;
    }
    return ST_OK;
}

st_status_t shard_core_open(const shard_energy_t *energy, shard_core_t *out_core) {
    shard_core_t *core = out_core;
    st_status_t status = ST_OK;
    uint32_t n_groups;
    int64_t total;
    edge_t *edges = NULL;
    *core = (shard_core_t){.n_of = (uint32_t)energy->variables.n};
    TRY(shard_energy_total(energy, &total));
    core->of = st_calloc(energy->variables.n, sizeof *core->of);
    edges = st_calloc(energy->pairs.n, sizeof *edges);
    if (!core->of || !edges)
        TRY_GOTO(st_no_memory(energy->pairs.n * sizeof *edges, "an energy"), fail);
    number_groups(energy, core->of, &n_groups);
    TRY_GOTO(add_groups(energy, core, n_groups), fail);
    TRY_GOTO(add_edges(energy, core, edges), fail);
    TRY_GOTO(list_adjacent(core), fail);
    st_free(edges);
    return ST_OK;
fail:
    st_free(edges);
    shard_core_close(core);
    return status;
}

void shard_core_close(shard_core_t *core) {
    shard_energy_close(&core->energy);
    st_free(core->of);
    st_free(core->first);
    st_free(core->adjacent);
    *core = (shard_core_t){0};
}

void shard_core_spread(const shard_core_t *core, const uint8_t *labels, uint8_t *out_labels) {
    for (uint32_t v = 0; v < core->n_of; v++) out_labels[v] = labels[core->of[v]];
}

void shard_core_gather(const shard_core_t *core, const uint8_t *labels, uint8_t *out_labels) {
    for (uint32_t v = core->n_of; v-- > 0;) out_labels[core->of[v]] = labels[v];
}

st_status_t shard_core_restrict(const shard_core_t *core, const uint32_t *variables, uint32_t n,
                                const uint8_t *labels, uint32_t *scratch,
                                shard_energy_t *out_energy) {
    const shard_energy_t *energy = &core->energy;
    int64_t costs[SHARD_MAX_LABELS];
    for (uint32_t i = 0; i < n; i++) scratch[variables[i]] = i + 1;
    st_status_t status = ST_OK;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t v = variables[i];
        const shard_variable_t *variable = &energy->variables.data[v];
        memcpy(costs, energy->costs.data + variable->first, variable->n_labels * sizeof *costs);
        for (uint32_t k = core->first[v]; k < core->first[v + 1]; k++) {
            const shard_pair_t *pair = &energy->pairs.data[core->adjacent[k]];
            const uint32_t w = shard_other_end(pair, v);
            for (uint32_t x = 0; !scratch[w] && x < variable->n_labels; x++)
                costs[x] = shard_cost_add(costs[x], shard_end_cost(energy, pair, v, x, labels[w]));
        }
        TRY_GOTO(shard_energy_variable(out_energy, variable->n_labels, costs,
                                       energy->classes.data + variable->first,
                                       energy->memory.data + variable->first, NULL),
                 done);
    }
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = core->first[variables[i]]; k < core->first[variables[i] + 1]; k++) {
            const shard_pair_t *pair = &energy->pairs.data[core->adjacent[k]];
            if (pair->a != variables[i] || !scratch[pair->b]) continue;
            TRY_GOTO(shard_energy_pair(out_energy, i, scratch[pair->b] - 1,
                                       energy->tables.data + pair->first),
                     done);
        }
done:
    for (uint32_t i = 0; i < n; i++) scratch[variables[i]] = 0;
    return status;
}
