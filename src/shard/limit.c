/* The least energy within a limit of memory (energy.h).
 *
 * At a price q of memory the solver gives labels of least E + q · M. Of the labellings known, take
 * the cheapest that is too large and the cheapest that fits: at the price where both are worth the
 * same, a labelling that is worth less replaces one of them; if there is none, that price gives the
 * highest lower bound, E + q · (M - limit). Labels between the two that no price finds are looked
 * for last, by changing one variable at a time as long as the limit is kept. */
#include <string.h>

#include "base/memory.h"
#include "shard/energy.h"

enum { MAX_PRICES = 60 };

typedef struct point {
    int64_t energy;
    uint64_t bytes, units; /* units: sizes rounded down, as prices count them */
    uint8_t *labels;
    bool known;
} point_t;

typedef struct pricing {
    const shard_energy_t *energy;
    const shard_start_t *start;
    size_t max_entries;
    shard_energy_t priced; /* the same with prices in its costs */
    uint64_t unit, limit_bytes;
    int64_t most_price; /* of a unit */
    uint8_t *labels;    /* of the last solution */
    point_t large,
        small;    /* the cheapest that is too large, and one that fits: the price is theirs */
    point_t best; /* the cheapest that fits */
    shard_limited_t *result;
} pricing_t;

static st_status_t open_point(size_t n, point_t *out_point) {
    out_point->labels = st_calloc(n, 1);
    return out_point->labels ? ST_OK : st_no_memory(n, "labels");
}

static uint64_t units_of(const pricing_t *p, const uint8_t *labels) {
    uint64_t units = 0;
    for (uint32_t v = 0; v < p->energy->variables.n; v++)
        units += p->energy->memory.data[p->energy->variables.data[v].first + labels[v]] / p->unit;
    return units;
}

/* A unit is so small that all sizes are at most 2^28 of them, so that prices have room. */
static st_status_t open_pricing(pricing_t *p) {
    const shard_energy_t *energy = p->energy;
    uint64_t bytes = 0, units = 0;
    int64_t total;
    TRY(shard_energy_total(energy, &total));
    for (uint32_t v = 0; v < energy->variables.n; v++) {
        uint64_t most = 0;
        for (uint32_t x = 0; x < energy->variables.data[v].n_labels; x++) {
            const uint64_t own = energy->memory.data[energy->variables.data[v].first + x];
            if (own > most) most = own;
        }
        bytes += most;
    }
    p->unit = (bytes >> 28) + 1;
    units = bytes / p->unit + 1;
    p->most_price = (SHARD_ENERGY_LIMIT - total) / (int64_t)units;
    for (uint32_t v = 0; v < energy->variables.n; v++) {
        const shard_variable_t *variable = &energy->variables.data[v];
        TRY(shard_energy_variable(
            &p->priced, variable->n_labels, energy->costs.data + variable->first,
            energy->classes.data + variable->first, energy->memory.data + variable->first, NULL));
    }
    for (size_t i = 0; i < energy->pairs.n; i++)
        TRY(shard_energy_pair(&p->priced, energy->pairs.data[i].a, energy->pairs.data[i].b,
                              energy->tables.data + energy->pairs.data[i].first));
    for (size_t i = 0; i < energy->ties.n; i++)
        TRY(shard_energy_tie(&p->priced, energy->ties.data[i].a, energy->ties.data[i].b));
    p->labels = st_calloc(energy->variables.n, 1);
    if (!p->labels) return st_no_memory(energy->variables.n, "labels");
    TRY(open_point(energy->variables.n, &p->large));
    TRY(open_point(energy->variables.n, &p->small));
    return open_point(energy->variables.n, &p->best);
}

static void close_pricing(pricing_t *p) {
    shard_energy_close(&p->priced);
    st_free(p->labels);
    st_free(p->large.labels);
    st_free(p->small.labels);
    st_free(p->best.labels);
}

static void set_point(const pricing_t *p, const uint8_t *labels, point_t *point) {
    point->known = true;
    point->energy = shard_energy_of(p->energy, labels);
    point->bytes = shard_energy_memory(p->energy, labels);
    point->units = units_of(p, labels);
    memcpy(point->labels, labels, p->energy->variables.n);
}

/* Keeps the labels if they are the cheapest that fit. */
static void keep(pricing_t *p, const uint8_t *labels) {
    const int64_t energy = shard_energy_of(p->energy, labels);
    if (energy == SHARD_FORBIDDEN || shard_energy_memory(p->energy, labels) > p->limit_bytes ||
        (p->best.known && p->best.energy <= energy))
        return;
    set_point(p, labels, &p->best);
}

/* Solves at a price, keeps what comes out, and raises the lower bound by it. */
static st_status_t solve_at(pricing_t *p, int64_t price, shard_answer_t *out_answer) {
    const shard_energy_t *energy = p->energy;
    for (size_t i = 0; i < energy->costs.n; i++)
        p->priced.costs.data[i] =
            energy->costs.data[i] == SHARD_FORBIDDEN
                ? SHARD_FORBIDDEN
                : energy->costs.data[i] + price * (int64_t)(energy->memory.data[i] / p->unit);
    TRY(shard_energy_solve(&p->priced, p->start, p->max_entries, p->labels, out_answer));
    p->result->n_solved++;
    keep(p, p->labels);
    if (!out_answer->exact || out_answer->energy == SHARD_FORBIDDEN) return ST_OK;
    const uint64_t limit = p->limit_bytes / p->unit;
    /* a price above 0 is asked for only where the limit binds, so that it is less than all units */
    const int64_t bound = out_answer->energy - (price ? price * (int64_t)limit : 0);
    if (!p->result->bound_proved || bound > p->result->bound) p->result->bound = bound;
    p->result->bound_proved = true;
    return ST_OK;
}

/* Labels of the least memory, whatever they cost. */
static st_status_t solve_memory(pricing_t *p, shard_answer_t *out_answer) {
    shard_energy_t bare;
    int64_t costs[SHARD_MAX_LABELS], table[SHARD_MAX_LABELS * SHARD_MAX_LABELS];
    const shard_energy_t *energy = p->energy;
    st_status_t status = ST_OK;
    shard_energy_open(&bare);
    for (uint32_t v = 0; v < energy->variables.n; v++) {
        const shard_variable_t *variable = &energy->variables.data[v];
        for (uint32_t x = 0; x < variable->n_labels; x++)
            costs[x] = energy->costs.data[variable->first + x] == SHARD_FORBIDDEN
                           ? SHARD_FORBIDDEN
                           : (int64_t)(energy->memory.data[variable->first + x] / p->unit);
        TRY_GOTO(shard_energy_variable(&bare, variable->n_labels, costs,
                                       energy->classes.data + variable->first, NULL, NULL),
                 done);
    }
    for (size_t i = 0; i < energy->pairs.n; i++) {
        const shard_pair_t *pair = &energy->pairs.data[i];
        const size_t n = (size_t)energy->variables.data[pair->a].n_labels *
                         energy->variables.data[pair->b].n_labels;
        for (size_t k = 0; k < n; k++)
            table[k] =
                energy->tables.data[pair->first + k] == SHARD_FORBIDDEN ? SHARD_FORBIDDEN : 0;
        TRY_GOTO(shard_energy_pair(&bare, pair->a, pair->b, table), done);
    }
    for (size_t i = 0; i < energy->ties.n; i++)
        TRY_GOTO(shard_energy_tie(&bare, energy->ties.data[i].a, energy->ties.data[i].b), done);
    TRY_GOTO(shard_energy_solve(&bare, p->start, p->max_entries, p->labels, out_answer), done);
    p->result->n_solved++;
    keep(p, p->labels);
done:
    shard_energy_close(&bare);
    return status;
}

/* Prices at which the two points are worth the same, until nothing is worth less there. */
static st_status_t walk(pricing_t *p) {
    for (int i = 0; i < MAX_PRICES; i++) {
        const point_t *large = &p->large, *small = &p->small;
        shard_answer_t answer;
        if (small->energy <= large->energy || large->units <= small->units) break;
        const int64_t apart = (int64_t)(large->units - small->units);
        int64_t price = (small->energy - large->energy + apart - 1) / apart;
        if (price > p->most_price) price = p->most_price;
        const int64_t worth_large = large->energy + price * (int64_t)large->units;
        const int64_t worth_small = small->energy + price * (int64_t)small->units;
        TRY(solve_at(p, price, &answer));
        if (answer.energy >= worth_large || answer.energy >= worth_small) break;
        const bool fits = shard_energy_memory(p->energy, p->labels) <= p->limit_bytes;
        set_point(p, p->labels, fits ? &p->small : &p->large);
    }
    return ST_OK;
}

/* One variable, with all that are tied to it, at a time, the best change first. */
static st_status_t fill_up(pricing_t *p) {
    shard_core_t core;
    st_status_t status = ST_OK;
    TRY(shard_core_open(p->energy, &core));
    const shard_energy_t *energy = &core.energy;
    uint8_t *labels = st_calloc(energy->variables.n + 1, 1);
    if (!labels) TRY_GOTO(st_no_memory(energy->variables.n, "labels"), done);
    shard_core_gather(&core, p->best.labels, labels);
    for (bool again = true; again;) {
        int64_t best = 0;
        uint32_t best_v = 0;
        uint8_t best_x = 0;
        again = false;
        for (uint32_t v = 0; v < energy->variables.n; v++) {
            const shard_variable_t *variable = &energy->variables.data[v];
            const uint64_t *memory = energy->memory.data + variable->first;
            for (uint32_t x = 0; x < variable->n_labels; x++) {
                if (p->best.bytes - memory[labels[v]] + memory[x] > p->limit_bytes) continue;
                int64_t now = shard_label_cost(energy, v, labels[v]);
                int64_t then = shard_label_cost(energy, v, x);
                for (uint32_t k = core.first[v]; k < core.first[v + 1]; k++) {
                    const shard_pair_t *pair = &energy->pairs.data[core.adjacent[k]];
                    const uint32_t y = labels[shard_other_end(pair, v)];
                    now += shard_end_cost(energy, pair, v, labels[v], y);
                    then = shard_cost_add(then, shard_end_cost(energy, pair, v, x, y));
                }
                if (then == SHARD_FORBIDDEN || now - then <= best) continue;
                best = now - then;
                best_v = v;
                best_x = (uint8_t)x;
                again = true;
            }
        }
        if (!again) break;
        const uint64_t *memory = energy->memory.data + energy->variables.data[best_v].first;
        p->best.bytes = p->best.bytes - memory[labels[best_v]] + memory[best_x];
        p->best.energy -= best;
        labels[best_v] = best_x;
    }
    shard_core_spread(&core, labels, p->best.labels);
    ASSERT(p->best.energy == shard_energy_of(p->energy, p->best.labels));
done:
    st_free(labels);
    shard_core_close(&core);
    return status;
}

static st_status_t solve_limited(pricing_t *p) {
    shard_answer_t least;
    TRY(solve_at(p, 0, &p->result->answer));
    if (p->result->answer.energy == SHARD_FORBIDDEN) return ST_OK;
    const int64_t cheapest = p->result->answer.energy;
    set_point(p, p->labels, &p->large);
    for (uint32_t i = 0; i < p->start->n; i++) keep(p, p->start->labels[i]);
    if (!p->best.known || p->best.energy > cheapest) {
        TRY(solve_memory(p, &least));
        if (!p->best.known) {
            set_point(p, p->labels, &p->best);
            p->result->answer = (shard_answer_t){.energy = p->best.energy};
            return ST_OK;
        }
        set_point(p, p->best.labels, &p->small);
        TRY(walk(p));
        TRY(fill_up(p));
    }
    p->result->fits = true;
    p->result->answer.energy = p->best.energy;
    p->result->answer.exact = p->result->bound_proved && p->best.energy <= p->result->bound;
    return ST_OK;
}

st_status_t shard_energy_limited(const shard_energy_t *energy, const shard_start_t *start,
                                 size_t max_entries, uint64_t limit_bytes, uint8_t *labels,
                                 shard_limited_t *out_limited) {
    pricing_t p = {.energy = energy, .start = start, .max_entries = max_entries};
    st_status_t status = ST_OK;
    *out_limited = (shard_limited_t){.answer.energy = SHARD_FORBIDDEN};
    p.limit_bytes = limit_bytes;
    p.result = out_limited;
    TRY_GOTO(open_pricing(&p), done);
    TRY_GOTO(solve_limited(&p), done);
    memcpy(labels, p.best.labels, energy->variables.n);
    out_limited->memory_bytes = shard_energy_memory(energy, labels);
done:
    close_pricing(&p);
    return status;
}
