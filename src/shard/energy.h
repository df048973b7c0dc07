/* Least labelling: the optimizer behind the choice of placements.
 *
 * Problem: each variable takes one of its labels. A label costs (unary), and so does each pair of
 * labels of two variables that a table joins. Find labels that cost least together, or least among
 * those that keep within a limit of memory. Costs are whole numbers in a scale of the caller's
 * (here picoseconds), 0 … SHARD_ENERGY_LIMIT, or SHARD_FORBIDDEN.
 *
 * No overflow: let T be the largest cost of each variable and of each table, summed. Every energy
 * is at most T, and T is checked to be at most SHARD_ENERGY_LIMIT = 2^56 before anything is solved,
 * prices of memory included. A move's network has arcs of at most 4 T together, twice that where it
 * is doubled: 2^59, below ST_FLOW_LIMIT. What is forbidden never enters a sum: it is an
 * infinite arc in a network and a saturated value elsewhere.
 *
 * Algorithms:
 *   cut        two labels: exact s–t cut where every table is submodular (checked), else roof
 *              duality, which labels what it can prove. More labels: fusion moves (each variable
 *              keeps its label or takes a proposed one), each one cut. The proposals are the
 *              α-expansions of every class of labels, the α-β swaps of every two, and what the
 *              caller gives; then exact choices for small sets of neighbours with the others fixed,
 *              until nothing is gained. A move never raises the energy, so the result is never
 *              worse than the start or any labelling among the proposals. O(rounds · classes² ·
 *              cut).
 *   eliminate  exact dynamic programming: labels that another label of the variable beats whatever
 *              the others take are dropped, then variables go one by one, the one first that joins
 *              the fewest strangers (min-fill, ties by table size, then number). Says so where a
 *              table would exceed its limit. O(variables · largest table).
 *   limit      Lagrange multiplier on memory: the price where the best cheap labelling that is too
 *              large and the best one that fits cost the same is tried next, which ends at the
 *              highest lower bound (limit.c).
 *
 * Everything is deterministic: equal input gives equal labels, and a move that gains nothing is not
 * made.
 *
 * Sources: Kolmogorov, Zabih, "What energy functions can be minimized via graph cuts?", PAMI 2004;
 * Boykov, Veksler, Zabih, "Fast approximate energy minimization via graph cuts", PAMI 2001 (moves);
 * Boros, Hammer, "Pseudo-Boolean optimization", 2002 (roof duality); Lempitsky et al., "Fusion
 * moves for Markov random field optimization", PAMI 2010; Handler, Zang, "A dual algorithm for the
 * constrained shortest path problem", Networks 1980 (prices); Goldstein, Biophys. J. 1994
 * (dominated labels); Dechter, "Bucket elimination", 1999. */
#ifndef STATOR_SHARD_ENERGY_H
#define STATOR_SHARD_ENERGY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/vec.h"

#define SHARD_FORBIDDEN INT64_MAX
#define SHARD_ENERGY_LIMIT ((int64_t)1 << 56)
enum { SHARD_MAX_LABELS = 64 };

typedef struct shard_variable {
    uint32_t n_labels;
    size_t first; /* of its labels in costs[], classes[] and memory[] */
} shard_variable_t;

/* cost of (label x of a, label y of b): tables[first + x · labels of b + y] */
typedef struct shard_pair {
    uint32_t a, b;
    size_t first;
} shard_pair_t;

typedef struct shard_tie {
    uint32_t a, b;
} shard_tie_t;

typedef struct shard_energy {
    ST_VEC(shard_variable_t) variables;
    ST_VEC(int64_t) costs;    /* of labels */
    ST_VEC(uint32_t) classes; /* of labels: what an expansion spreads */
    ST_VEC(uint64_t) memory;  /* of labels: bytes */
    ST_VEC(shard_pair_t) pairs;
    ST_VEC(int64_t) tables;
    ST_VEC(shard_tie_t) ties;
} shard_energy_t;

/* ---- building ---- */

void shard_energy_open(shard_energy_t *out_energy);
void shard_energy_close(shard_energy_t *energy); /* zeroed is fine */
/* A variable of 1 … SHARD_MAX_LABELS labels. `classes` NULL: the label's number; `memory` NULL:
 * 0. */
st_status_t shard_energy_variable(shard_energy_t *energy, uint32_t n_labels, const int64_t *costs,
                                  const uint32_t *classes, const uint64_t *memory,
                                  uint32_t *out_variable) ST_WARN_UNUSED;
/* Costs of label pairs [labels of a][labels of b]; a ≠ b. Several tables of two variables add
 * up. */
st_status_t shard_energy_pair(shard_energy_t *energy, uint32_t a, uint32_t b,
                              const int64_t *table) ST_WARN_UNUSED;
/* Both take the same label from now on: as many labels each. */
st_status_t shard_energy_tie(shard_energy_t *energy, uint32_t a, uint32_t b) ST_WARN_UNUSED;

/* Sum, or SHARD_FORBIDDEN. Labels of tied variables have to be equal, or it is forbidden. */
int64_t shard_energy_of(const shard_energy_t *energy, const uint8_t *labels);
uint64_t shard_energy_memory(const shard_energy_t *energy, const uint8_t *labels);
static inline int64_t shard_cost_add(int64_t a, int64_t b) {
    return a == SHARD_FORBIDDEN || b == SHARD_FORBIDDEN ? SHARD_FORBIDDEN : a + b;
}

/* ---- solving ---- */

typedef struct shard_answer {
    int64_t energy;  /* of the labels; SHARD_FORBIDDEN: no allowed labelling was found */
    bool exact;      /* proved least (and if forbidden: that nothing is allowed) */
    bool submodular; /* cut: two labels at most, every table submodular */
    bool too_wide;   /* eliminate: a table would exceed the limit; the labels are not set */
} shard_answer_t;

/* Start labels and labellings to try as moves, each [variables]. */
typedef struct shard_start {
    uint32_t n; /* labellings, of which the best allowed one is the start; 0: least unary costs */
    const uint8_t *const *labels;
} shard_start_t;

/* By cuts. labels: [variables]. ST_DOES_NOT_FIT: costs exceed SHARD_ENERGY_LIMIT together. */
st_status_t shard_energy_cut(const shard_energy_t *energy, const shard_start_t *start,
                             uint8_t *labels, shard_answer_t *out_answer) ST_WARN_UNUSED;
/* Exactly, where no table exceeds `max_entries`. */
st_status_t shard_energy_eliminate(const shard_energy_t *energy, size_t max_entries,
                                   uint8_t *labels, shard_answer_t *out_answer) ST_WARN_UNUSED;
/* Exactly where that is narrow enough, else by cuts. */
st_status_t shard_energy_solve(const shard_energy_t *energy, const shard_start_t *start,
                               size_t max_entries, uint8_t *labels,
                               shard_answer_t *out_answer) ST_WARN_UNUSED;

typedef struct shard_limited {
    shard_answer_t answer; /* energy without the price of memory; exact: no allowed labelling within
                            * the limit costs less */
    uint64_t memory_bytes; /* of the labels */
    bool fits;             /* else the labels are those of the least memory found */
    int64_t bound;         /* no labelling within the limit costs less, if bound_proved */
    bool bound_proved;
    uint32_t n_solved;
} shard_limited_t;

/* The least energy found whose memory is at most `limit_bytes`. */
st_status_t shard_energy_limited(const shard_energy_t *energy, const shard_start_t *start,
                                 size_t max_entries, uint64_t limit_bytes, uint8_t *labels,
                                 shard_limited_t *out_limited) ST_WARN_UNUSED;

/* ---- between the solvers' files ---- */

/* Without ties and with at most one table for two variables, a < b, sorted; all of its costs
 * checked. The adjacency lists the pairs of each variable. */
typedef struct shard_core {
    shard_energy_t energy;
    uint32_t *of; /* [variables of the original]: variable here */
    uint32_t n_of;
    uint32_t *first;    /* [variables + 1] */
    uint32_t *adjacent; /* pairs of v: adjacent[first[v]] … */
} shard_core_t;

/* Largest costs of all variables and tables together; ST_DOES_NOT_FIT above SHARD_ENERGY_LIMIT. */
st_status_t shard_energy_total(const shard_energy_t *energy, int64_t *out_total) ST_WARN_UNUSED;
st_status_t shard_core_open(const shard_energy_t *energy, shard_core_t *out_core) ST_WARN_UNUSED;
void shard_core_close(shard_core_t *core);
/* Labels of the original from those here, and back (a tied group has the label of its first). */
void shard_core_spread(const shard_core_t *core, const uint8_t *labels, uint8_t *out_labels);
void shard_core_gather(const shard_core_t *core, const uint8_t *labels, uint8_t *out_labels);
/* Energy of the variables with free[v] alone, given the labels of the others; variable i of it is
 * out_variables[i] here. */
st_status_t shard_core_restrict(const shard_core_t *core, const uint32_t *variables, uint32_t n,
                                const uint8_t *labels, uint32_t *scratch,
                                shard_energy_t *out_energy) ST_WARN_UNUSED;

static inline int64_t shard_pair_cost(const shard_energy_t *energy, const shard_pair_t *pair,
                                      uint32_t x, uint32_t y) {
    return energy->tables.data[pair->first + x * energy->variables.data[pair->b].n_labels + y];
}
static inline int64_t shard_label_cost(const shard_energy_t *energy, uint32_t v, uint32_t x) {
    return energy->costs.data[energy->variables.data[v].first + x];
}
/* The pair's cost for label x of v and y of the other end. */
static inline int64_t shard_end_cost(const shard_energy_t *energy, const shard_pair_t *pair,
                                     uint32_t v, uint32_t x, uint32_t y) {
    return pair->a == v ? shard_pair_cost(energy, pair, x, y) : shard_pair_cost(energy, pair, y, x);
}
static inline uint32_t shard_other_end(const shard_pair_t *pair, uint32_t v) {
    return pair->a == v ? pair->b : pair->a;
}

#endif
