/* Least labellings against all labellings of small graphs, and what energies must not do. */
#include "shard/energy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"

enum { MOST_VARIABLES = 9, MOST_PAIRS = 64, MOST = 4 };

static uint64_t seed;

static uint32_t random_below(uint32_t n) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % n;
}

/* The model of the test: nothing of it is the module's. */
typedef struct model {
    uint32_t n, n_pairs;
    uint32_t n_labels[MOST_VARIABLES], a[MOST_PAIRS], b[MOST_PAIRS], tie[MOST_VARIABLES];
    int64_t unary[MOST_VARIABLES][MOST];
    uint64_t bytes[MOST_VARIABLES][MOST];
    int64_t table[MOST_PAIRS][MOST][MOST];
} model_t;

static int64_t cost_of(const model_t *m, const uint8_t *labels) {
    int64_t sum = 0;
    for (uint32_t v = 0; v < m->n; v++) {
        if (labels[v] != labels[m->tie[v]]) return SHARD_FORBIDDEN;
        if (m->unary[v][labels[v]] == SHARD_FORBIDDEN) return SHARD_FORBIDDEN;
        sum += m->unary[v][labels[v]];
    }
    for (uint32_t p = 0; p < m->n_pairs; p++) {
        int64_t cost = m->table[p][labels[m->a[p]]][labels[m->b[p]]];
        if (cost == SHARD_FORBIDDEN) return SHARD_FORBIDDEN;
        sum += cost;
    }
    return sum;
}

static uint64_t bytes_of(const model_t *m, const uint8_t *labels) {
    uint64_t sum = 0;
    for (uint32_t v = 0; v < m->n; v++) sum += m->bytes[v][labels[v]];
    return sum;
}

static bool next(const model_t *m, uint8_t *labels) {
    for (uint32_t v = 0; v < m->n; v++) {
        if (++labels[v] < m->n_labels[v]) return true;
        labels[v] = 0;
    }
    return false;
}

/* Least cost of all labellings of at most `limit` bytes; SHARD_FORBIDDEN: there is none. */
static int64_t least_of(const model_t *m, uint64_t limit) {
    uint8_t labels[MOST_VARIABLES] = {0};
    int64_t best = SHARD_FORBIDDEN;
    do {
        int64_t cost = cost_of(m, labels);
        if (cost < best && bytes_of(m, labels) <= limit) best = cost;
    } while (next(m, labels));
    return best;
}

static void build(const model_t *m, shard_energy_t *energy) {
    shard_energy_open(energy);
    for (uint32_t v = 0; v < m->n; v++)
        assert_int_equal(
            shard_energy_variable(energy, m->n_labels[v], m->unary[v], NULL, m->bytes[v], NULL),
            ST_OK);
    for (uint32_t p = 0; p < m->n_pairs; p++) {
        int64_t flat[MOST * MOST];
        uint32_t n = 0;
        for (uint32_t x = 0; x < m->n_labels[m->a[p]]; x++)
            for (uint32_t y = 0; y < m->n_labels[m->b[p]]; y++) flat[n++] = m->table[p][x][y];
        assert_int_equal(shard_energy_pair(energy, m->a[p], m->b[p], flat), ST_OK);
    }
    for (uint32_t v = 0; v < m->n; v++)
        if (m->tie[v] != v) assert_int_equal(shard_energy_tie(energy, v, m->tie[v]), ST_OK);
}

typedef enum kind { SUBMODULAR, MIXED_TWO, ANY, RESHARDS, N_KINDS } kind_t;

/* Costs are below `largest`; one of `forbids` is forbidden (0: none). Label 0 is always allowed. */
static void make(model_t *m, kind_t kind, uint32_t largest, uint32_t forbids) {
    memset(m, 0, sizeof *m);
    m->n = 2 + random_below(MOST_VARIABLES - 1);
    for (uint32_t v = 0; v < m->n; v++) {
        m->tie[v] = v;
        m->n_labels[v] = kind <= MIXED_TWO ? 2 : 1 + random_below(MOST);
        for (uint32_t x = 0; x < m->n_labels[v]; x++) {
            m->unary[v][x] = random_below(largest);
            m->bytes[v][x] = random_below(1000);
        }
    }
    for (uint32_t a = 0; a < m->n; a++)
        for (uint32_t b = a + 1; b < m->n; b++) {
            if (random_below(3) && b != a + 1) continue;
            const uint32_t p = m->n_pairs++;
            const bool turned = random_below(2);
            m->a[p] = turned ? b : a;
            m->b[p] = turned ? a : b;
            for (uint32_t x = 0; x < MOST; x++)
                for (uint32_t y = 0; y < MOST; y++) {
                    int64_t *cost = &m->table[p][x][y];
                    *cost = random_below(largest);
                    if (kind == RESHARDS) *cost = x == y ? 0 : *cost * (1 + (x + y) % 2);
                    if (forbids && (x || y) && !(kind == SUBMODULAR && x == y) &&
                        !random_below(forbids))
                        *cost = SHARD_FORBIDDEN;
                }
            int64_t(*t)[MOST] = m->table[p];
            if (kind == SUBMODULAR && t[0][1] != SHARD_FORBIDDEN && t[1][0] != SHARD_FORBIDDEN &&
                t[0][0] + t[1][1] > t[0][1] + t[1][0])
                t[0][1] = t[0][0] + t[1][1] - t[1][0] + random_below(3);
        }
}

/* Constant labellings (a variable with fewer labels takes its last): what is given as starts. */
static void constants(const model_t *m, uint8_t labels[MOST][MOST_VARIABLES],
                      const uint8_t **out_list) {
    for (uint32_t x = 0; x < MOST; x++) {
        for (uint32_t v = 0; v < m->n; v++)
            labels[x][v] = (uint8_t)(x < m->n_labels[v] ? x : m->n_labels[v] - 1);
        out_list[x] = labels[x];
    }
}

typedef struct tally {
    uint32_t n, n_exact, n_least, n_wide;
    double excess;
} tally_t;

static void compare(const model_t *m, kind_t kind, tally_t *tally) {
    uint8_t given[MOST][MOST_VARIABLES], labels[MOST_VARIABLES], again[MOST_VARIABLES];
    const uint8_t *list[MOST];
    shard_energy_t energy;
    shard_answer_t answer;
    const int64_t least = least_of(m, UINT64_MAX);
    constants(m, given, list);
    build(m, &energy);
    const shard_start_t start = {MOST, list};
    assert_int_equal(shard_energy_cut(&energy, &start, labels, &answer), ST_OK);
    assert_true(answer.energy == cost_of(m, labels));
    for (uint32_t x = 0; x < MOST; x++) assert_true(answer.energy <= cost_of(m, given[x]));
    if (answer.exact) assert_true(answer.energy == least);
    if (kind == SUBMODULAR) assert_true(answer.submodular && answer.exact);
    if (answer.submodular) assert_true(answer.exact);
    tally->n++;
    tally->n_exact += answer.exact;
    tally->n_least += answer.energy == least;
    if (least != SHARD_FORBIDDEN) {
        assert_true(answer.energy != SHARD_FORBIDDEN);
        tally->excess += (double)(answer.energy - least) / (double)(least ? least : 1);
    }
    assert_int_equal(shard_energy_cut(&energy, &start, again, &answer), ST_OK);
    assert_memory_equal(labels, again, m->n);
    /* the same by elimination, which is exact or says that it is too wide */
    assert_int_equal(shard_energy_eliminate(&energy, 1 << 16, labels, &answer), ST_OK);
    assert_false(answer.too_wide);
    assert_true(answer.exact && answer.energy == least);
    assert_true(answer.energy == cost_of(m, labels));
    assert_int_equal(shard_energy_eliminate(&energy, 4, labels, &answer), ST_OK);
    tally->n_wide += answer.too_wide;
    if (!answer.too_wide) assert_true(answer.energy == least);
    shard_energy_close(&energy);
}

static void random_graphs_are_solved_as_all_labellings_say(void **state) {
    (void)state;
    tally_t tally[N_KINDS] = {0};
    for (uint32_t round = 0; round < 2000; round++) {
        model_t m;
        seed = round + 1;
        kind_t kind = (kind_t)(round % N_KINDS);
        make(&m, kind, round % 5 ? 1000 : 5, round % 3 ? 0 : 6);
        compare(&m, kind, &tally[kind]);
    }
    for (uint32_t k = 0; k < N_KINDS; k++)
        print_message("kind %u: %u graphs, %u proved, %u least, excess %.5f, %u wide\n", k,
                      tally[k].n, tally[k].n_exact, tally[k].n_least, tally[k].excess / tally[k].n,
                      tally[k].n_wide);
    assert_int_equal(tally[SUBMODULAR].n_least, tally[SUBMODULAR].n);
    for (uint32_t k = MIXED_TWO; k < N_KINDS; k++) {
        const tally_t *others = &tally[k];
        assert_true(others->excess / others->n < 0.01);
        assert_true(others->n_wide > 20 && others->n_wide < others->n);
    }
    assert_true(tally[MIXED_TWO].n_exact < tally[MIXED_TWO].n); /* not claimed where not proved */
}

/* Tied variables are one: against all labellings in which they are equal. */
static void tied_variables_take_one_label(void **state) {
    (void)state;
    uint32_t n_tied = 0;
    for (uint32_t round = 0; round < 300; round++) {
        model_t m;
        tally_t tally = {0};
        seed = round + 5000;
        make(&m, round % 2 ? RESHARDS : MIXED_TWO, 100, 0);
        for (uint32_t v = 1; v < m.n; v++)
            if (m.n_labels[v] == m.n_labels[v - 1] && random_below(2))
                m.tie[v] = m.tie[v - 1], n_tied++;
        compare(&m, ANY, &tally);
    }
    assert_true(n_tied > 100);
}

/* Starts that are forbidden, and graphs where everything is. */
static void allowed_labels_are_found_where_there_are_some(void **state) {
    (void)state;
    uint32_t n_none = 0, n_found = 0, n_missed = 0;
    for (uint32_t round = 0; round < 600; round++) {
        model_t m;
        uint8_t labels[MOST_VARIABLES];
        shard_energy_t energy;
        shard_answer_t answer;
        seed = round + 9000;
        make(&m, round % 2 ? ANY : MIXED_TWO, 50, 3);
        for (uint32_t p = 0; p < m.n_pairs; p++) m.table[p][0][0] = SHARD_FORBIDDEN;
        for (uint32_t v = 0; v < m.n; v += 3) m.unary[v][m.n_labels[v] - 1] = SHARD_FORBIDDEN;
        const int64_t least = least_of(&m, UINT64_MAX);
        build(&m, &energy);
        const shard_start_t start = {0};
        assert_int_equal(shard_energy_cut(&energy, &start, labels, &answer), ST_OK);
        if (answer.exact) assert_true(answer.energy == least);
        if (least == SHARD_FORBIDDEN) {
            assert_true(answer.energy == SHARD_FORBIDDEN);
            n_none++;
        } else {
            n_missed += answer.energy == SHARD_FORBIDDEN;
            n_found += answer.energy != SHARD_FORBIDDEN;
        }
        assert_int_equal(shard_energy_eliminate(&energy, 1 << 16, labels, &answer), ST_OK);
        assert_true(answer.energy == least && answer.exact);
        shard_energy_close(&energy);
    }
    print_message("%u have none, %u found, %u missed\n", n_none, n_found, n_missed);
    assert_true(n_none > 100 && n_found > 50 && n_missed * 20 < n_found);
}

/* Too many variables for all labellings; the elimination, held against those above, is the
 * judge. */
static void larger_graphs_come_within_a_percent_of_elimination(void **state) {
    (void)state;
    enum { N = 60, LABELS = 5 };
    double excess = 0, worst = 0;
    uint32_t n_graphs = 0;
    for (uint32_t round = 0; round < 40; round++) {
        shard_energy_t energy;
        shard_answer_t cut, exact;
        uint8_t labels[N], zero[N] = {0};
        const uint8_t *list[] = {zero};
        seed = round + 31;
        shard_energy_open(&energy);
        for (uint32_t v = 0; v < N; v++) {
            int64_t costs[LABELS];
            for (uint32_t x = 0; x < LABELS; x++) costs[x] = random_below(1000);
            assert_int_equal(shard_energy_variable(&energy, LABELS, costs, NULL, NULL, NULL),
                             ST_OK);
        }
        for (uint32_t v = 1; v < N; v++)
            for (uint32_t reach = 1; reach <= 3 && reach <= v; reach++) {
                int64_t table[LABELS][LABELS];
                if (reach > 1 && random_below(2)) continue;
                for (uint32_t x = 0; x < LABELS; x++)
                    for (uint32_t y = 0; y < LABELS; y++)
                        table[x][y] = round % 2 && x == y ? 0 : random_below(1000);
                assert_int_equal(shard_energy_pair(&energy, v, v - reach, table[0]), ST_OK);
            }
        assert_int_equal(shard_energy_eliminate(&energy, 1 << 20, labels, &exact), ST_OK);
        assert_false(exact.too_wide);
        const shard_start_t start = {1, list};
        assert_int_equal(shard_energy_cut(&energy, &start, labels, &cut), ST_OK);
        assert_true(cut.energy >= exact.energy && cut.energy == shard_energy_of(&energy, labels));
        const double more = (double)(cut.energy - exact.energy) / (double)exact.energy;
        excess += more;
        if (more > worst) worst = more;
        n_graphs++;
        shard_energy_close(&energy);
    }
    print_message("excess %.5f, worst %.5f\n", excess / n_graphs, worst);
    assert_true(excess / n_graphs < 0.01);
}

/* Never more than the limit, never less than the bound, and near the best that all labellings
 * have. */
static void memory_is_kept_within_its_limit(void **state) {
    (void)state;
    double excess = 0, gap = 0;
    uint32_t n_fits = 0, n_tight = 0, n_none = 0, n_exact = 0;
    for (uint32_t round = 0; round < 500; round++) {
        model_t m;
        shard_energy_t energy;
        shard_limited_t limited;
        uint8_t labels[MOST_VARIABLES];
        seed = round + 40000;
        make(&m, round % 2 ? RESHARDS : MIXED_TWO, 1000, 0);
        const uint64_t limit = 200 + random_below(500 * m.n);
        const int64_t least = least_of(&m, limit);
        build(&m, &energy);
        const shard_start_t start = {0};
        assert_int_equal(shard_energy_limited(&energy, &start, 1 << 16, limit, labels, &limited),
                         ST_OK);
        assert_true(limited.memory_bytes == bytes_of(&m, labels));
        assert_true(limited.fits == (least != SHARD_FORBIDDEN));
        shard_energy_close(&energy);
        if (!limited.fits) {
            n_none++;
            continue;
        }
        assert_true(limited.memory_bytes <= limit);
        assert_true(limited.answer.energy == cost_of(&m, labels));
        assert_true(limited.bound_proved && limited.bound <= least);
        if (limited.answer.exact) assert_true(limited.answer.energy == least);
        n_exact += limited.answer.exact;
        n_tight += least > least_of(&m, UINT64_MAX);
        n_fits++;
        if (!least) continue;
        excess += (double)(limited.answer.energy - least) / (double)least;
        gap += (double)(least - limited.bound) / (double)least;
    }
    print_message("%u fit, %u of them tight, %u do not; %u proved; excess %.4f, gap %.4f\n", n_fits,
                  n_tight, n_none, n_exact, excess / n_fits, gap / n_fits);
    assert_true(n_tight > 100 && n_none > 20);
    assert_true(excess / n_fits < 0.05 && gap / n_fits < 0.1);
}

/* A higher limit never costs more than a lower one by more than what the bound leaves open. */
static void more_memory_costs_no_more_time(void **state) {
    (void)state;
    enum { N = 20 };
    shard_energy_t energy;
    const shard_start_t start = {0};
    uint8_t labels[N];
    int64_t before = INT64_MAX;
    shard_energy_open(&energy);
    for (uint32_t v = 0; v < N; v++) { /* whole, or in parts that have to be fetched */
        const int64_t costs[2] = {0, 10 + 7 * v % 13};
        const uint64_t bytes[2] = {800, 100};
        assert_int_equal(shard_energy_variable(&energy, 2, costs, NULL, bytes, NULL), ST_OK);
    }
    for (uint64_t limit = 100 * N; limit <= 800 * N; limit += 50) {
        shard_limited_t limited;
        assert_int_equal(shard_energy_limited(&energy, &start, 1 << 16, limit, labels, &limited),
                         ST_OK);
        assert_true(limited.fits && limited.memory_bytes <= limit);
        assert_true(limited.answer.energy <= before);
        before = limited.answer.energy;
    }
    assert_true(before == 0);
    shard_limited_t limited;
    assert_int_equal(shard_energy_limited(&energy, &start, 1 << 16, 100 * N - 1, labels, &limited),
                     ST_OK);
    assert_false(limited.fits);
    assert_true(limited.memory_bytes == 100 * N);
    shard_energy_close(&energy);
}

static void costs_near_the_limit_do_not_overflow(void **state) {
    (void)state;
    const int64_t half = SHARD_ENERGY_LIMIT / 2;
    const int64_t unary[2] = {0, half / 2}, low[2] = {half / 2, 0};
    const int64_t table[4] = {0, half, SHARD_FORBIDDEN, 1};
    const int64_t other[4] = {half, 0, 0, SHARD_FORBIDDEN}; /* not submodular */
    const shard_start_t start = {0};
    shard_energy_t energy;
    shard_answer_t answer;
    uint8_t labels[3];
    for (int round = 0; round < 2; round++) {
        shard_energy_open(&energy);
        assert_int_equal(shard_energy_variable(&energy, 2, unary, NULL, NULL, NULL), ST_OK);
        assert_int_equal(shard_energy_variable(&energy, 2, low, NULL, NULL, NULL), ST_OK);
        assert_int_equal(shard_energy_pair(&energy, 0, 1, round ? other : table), ST_OK);
        assert_int_equal(shard_energy_cut(&energy, &start, labels, &answer), ST_OK);
        assert_true(answer.exact && answer.energy == (round ? 0 : half / 2));
        assert_int_equal(shard_energy_eliminate(&energy, 16, labels, &answer), ST_OK);
        assert_true(answer.energy == (round ? 0 : half / 2));
        /* one more, and the sum is more than the limit */
        assert_int_equal(shard_energy_variable(&energy, 1, (int64_t[]){1}, NULL, NULL, NULL),
                         ST_OK);
        assert_int_equal(shard_energy_cut(&energy, &start, labels, &answer), ST_DOES_NOT_FIT);
        assert_non_null(strstr(st_last_error(), "2^56"));
        assert_int_equal(shard_energy_eliminate(&energy, 16, labels, &answer), ST_DOES_NOT_FIT);
        shard_energy_close(&energy);
    }
    shard_energy_open(&energy);
    assert_int_equal(
        shard_energy_variable(&energy, 1, (int64_t[]){SHARD_ENERGY_LIMIT + 1}, NULL, NULL, NULL),
        ST_INVALID);
    assert_int_equal(shard_energy_variable(&energy, 1, (int64_t[]){-1}, NULL, NULL, NULL),
                     ST_INVALID);
    assert_int_equal(shard_energy_variable(&energy, 0, NULL, NULL, NULL, NULL), ST_INVALID);
    assert_int_equal(energy.variables.n, 0);
    const uint64_t huge[1] = {UINT64_MAX / 2};
    assert_int_equal(shard_energy_variable(&energy, 1, (int64_t[]){0}, NULL, huge, NULL), ST_OK);
    assert_int_equal(shard_energy_variable(&energy, 2, unary, NULL, NULL, NULL), ST_OK);
    assert_int_equal(shard_energy_tie(&energy, 0, 1), ST_INVALID);
    assert_non_null(strstr(st_last_error(), "1 and 2 labels"));
    assert_int_equal(shard_energy_variable(&energy, 1, (int64_t[]){0}, NULL, huge, NULL), ST_OK);
    assert_int_equal(shard_energy_cut(&energy, &start, labels, &answer), ST_DOES_NOT_FIT);
    shard_energy_close(&energy);
}

/* The classes say what an expansion spreads: a ring in which only all together gain. */
static void an_expansion_moves_all_variables_at_once(void **state) {
    (void)state;
    enum { N = 200 };
    shard_energy_t energy;
    shard_answer_t answer;
    const shard_start_t start = {0};
    uint8_t labels[N];
    shard_energy_open(&energy);
    for (uint32_t v = 0; v < N; v++) {
        /* label 0 is a trap; the good class is label 1 of even variables and 2 of odd ones */
        const int64_t costs[3] = {v ? 0 : 500, 1, 1};
        const uint32_t even[3] = {10, 20, 30}, odd[3] = {10, 30, 20};
        assert_int_equal(shard_energy_variable(&energy, 3, costs, v % 2 ? odd : even, NULL, NULL),
                         ST_OK);
    }
    for (uint32_t v = 0; v < N; v++) {
        const int64_t table[9] = {0, 1000, 1000, 1000, 1000, 0, 1000, 0, 1000};
        assert_int_equal(shard_energy_pair(&energy, v, (v + 1) % N, table), ST_OK);
    }
    assert_int_equal(shard_energy_cut(&energy, &start, labels, &answer), ST_OK);
    assert_true(answer.energy == 200);
    assert_int_equal(shard_energy_eliminate(&energy, 100, labels, &answer), ST_OK);
    assert_true(answer.energy == 200);
    shard_energy_close(&energy);
}

static void too_wide_is_said_and_solved_by_cuts(void **state) {
    (void)state;
    enum { N = 14 };
    shard_energy_t energy;
    shard_answer_t answer;
    const shard_start_t start = {0};
    uint8_t labels[N];
    seed = 3;
    shard_energy_open(&energy);
    for (uint32_t v = 0; v < N; v++) {
        const int64_t costs[3] = {random_below(9), random_below(9), random_below(9)};
        assert_int_equal(shard_energy_variable(&energy, 3, costs, NULL, NULL, NULL), ST_OK);
    }
    for (uint32_t a = 0; a < N; a++)
        for (uint32_t b = a + 1; b < N; b++) {
            int64_t table[9];
            for (uint32_t i = 0; i < 9; i++) table[i] = random_below(100);
            assert_int_equal(shard_energy_pair(&energy, a, b, table), ST_OK);
        }
    memset(labels, 77, sizeof labels);
    assert_int_equal(shard_energy_eliminate(&energy, 1000, labels, &answer), ST_OK);
    assert_true(answer.too_wide && !answer.exact && labels[0] == 77);
    assert_int_equal(shard_energy_solve(&energy, &start, 1000, labels, &answer), ST_OK);
    assert_true(!answer.too_wide && answer.energy == shard_energy_of(&energy, labels));
    shard_energy_close(&energy);
}

static void failed_allocations_are_reported(void **state) {
    (void)state;
    int64_t n = 0;
    st_status_t status;
    do {
        model_t m;
        shard_energy_t energy;
        shard_limited_t limited;
        uint8_t labels[MOST_VARIABLES];
        const shard_start_t start = {0};
        seed = 1;
        do make(&m, RESHARDS, 100, 0);
        while (m.n < 7 || least_of(&m, 1400) == SHARD_FORBIDDEN ||
               least_of(&m, 1400) == least_of(&m, UINT64_MAX));
        build(&m, &energy);
        st_memory_fail_after(n, false);
        n++;
        status = shard_energy_limited(&energy, &start, 8, 1400, labels, &limited);
        st_memory_fail_after(-1, false);
        assert_true(status == ST_OK || status == ST_NO_MEMORY);
        shard_energy_close(&energy);
    } while (status != ST_OK);
    assert_true(n > 200);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_graphs_are_solved_as_all_labellings_say),
        cmocka_unit_test(tied_variables_take_one_label),
        cmocka_unit_test(allowed_labels_are_found_where_there_are_some),
        cmocka_unit_test(larger_graphs_come_within_a_percent_of_elimination),
        cmocka_unit_test(memory_is_kept_within_its_limit),
        cmocka_unit_test(more_memory_costs_no_more_time),
        cmocka_unit_test(costs_near_the_limit_do_not_overflow),
        cmocka_unit_test(an_expansion_moves_all_variables_at_once),
        cmocka_unit_test(too_wide_is_said_and_solved_by_cuts),
        cmocka_unit_test(failed_allocations_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
