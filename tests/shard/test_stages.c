/* Stages against all divisions of small graphs. */
#include "shard/stages.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"

enum { MOST = 9 };

static uint64_t seed;

static uint32_t random_below(uint32_t n) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % n;
}

typedef struct graph {
    shard_stage_item_t items[MOST];
    shard_stage_value_t values[MOST];
    uint32_t readers[MOST][MOST];
    shard_stage_input_t in;
} graph_t;

/* A chain, with some values that are read further on; or a graph that branches. */
static void make(graph_t *g, bool chain) {
    memset(g, 0, sizeof *g);
    g->in = (shard_stage_input_t){.items = g->items, .values = g->values};
    g->in.n_items = 3 + random_below(MOST - 2);
    g->in.n_stages = 1 + random_below(g->in.n_items < 4 ? g->in.n_items : 4);
    g->in.n_micro = 1 + random_below(8);
    for (uint32_t i = 0; i < g->in.n_items; i++) {
        g->items[i] = (shard_stage_item_t){random_below(100), random_below(50), random_below(20)};
        shard_stage_value_t *value = &g->values[g->in.n_values++];
        *value = (shard_stage_value_t){i, 0, g->readers[i], random_below(random_below(2) ? 60 : 5)};
        for (uint32_t r = i + 1; r < g->in.n_items; r++)
            if ((chain && r == i + 1) || random_below(chain ? 6 : 3) == 0)
                g->readers[i][value->n_readers++] = r;
    }
    g->in.limit_bytes = random_below(2) ? UINT64_MAX : 40 + random_below(200);
}

/* Step of the given stages, as the header defines it; INT64_MAX: they are none. */
static int64_t step_of(const graph_t *g, const uint32_t *stages) {
    int64_t sum = 0, longest = 0;
    for (uint32_t s = 0; s < g->in.n_stages; s++) {
        int64_t time = 0;
        uint64_t bytes = 0, flight = g->in.n_stages - s, n = 0;
        if (flight > g->in.n_micro) flight = g->in.n_micro;
        for (uint32_t i = 0; i < g->in.n_items; i++) {
            if (stages[i] != s) continue;
            n++;
            time += g->items[i].cost;
            bytes += g->items[i].state_bytes + flight * g->items[i].kept_bytes;
        }
        for (uint32_t v = 0; v < g->in.n_values; v++) {
            const uint32_t first = stages[g->values[v].producer];
            uint32_t last = first;
            for (uint32_t r = 0; r < g->values[v].n_readers; r++) {
                const uint32_t reader = stages[g->readers[v][r]];
                if (reader < first) return INT64_MAX;
                if (reader > last) last = reader;
            }
            time += (first <= s && s < last ? 1 : 0) * g->values[v].cost;
            time += (first < s && s <= last ? 1 : 0) * g->values[v].cost;
        }
        if (!n || bytes > g->in.limit_bytes) return INT64_MAX;
        sum += time;
        if (time > longest) longest = time;
    }
    return sum + (g->in.n_micro - 1) * longest;
}

static int64_t least_step(const graph_t *g) {
    uint32_t stages[MOST] = {0}, i;
    int64_t best = INT64_MAX;
    do {
        const int64_t step = step_of(g, stages);
        if (step < best) best = step;
        for (i = 0; i < g->in.n_items; i++) {
            if (++stages[i] < g->in.n_stages) break;
            stages[i] = 0;
        }
    } while (i < g->in.n_items);
    return best;
}

static void chains_are_divided_as_all_divisions_say(void **state) {
    (void)state;
    uint32_t n_none = 0, n_limited = 0;
    for (uint32_t round = 0; round < 600; round++) {
        graph_t g;
        uint32_t stages[MOST], again[MOST];
        shard_stage_result_t result, priced;
        seed = round + 1;
        make(&g, true);
        const int64_t least = least_step(&g);
        const st_status_t status = shard_stages(&g.in, stages, &result);
        if (least == INT64_MAX) {
            assert_int_equal(status, ST_DOES_NOT_FIT);
            n_none++;
            continue;
        }
        assert_int_equal(status, ST_OK);
        assert_true(result.exact);
        assert_true(result.step == least && step_of(&g, stages) == least);
        assert_true(shard_stages_price(&g.in, stages, &priced));
        assert_memory_equal(&priced.step, &result.step, sizeof priced.step);
        assert_true(result.most_bytes <= g.in.limit_bytes);
        assert_int_equal(shard_stages(&g.in, again, &priced), ST_OK);
        assert_memory_equal(stages, again, g.in.n_items * sizeof *stages);
        n_limited += g.in.limit_bytes != UINT64_MAX;
    }
    assert_true(n_none > 20 && n_limited > 50);
}

static void branching_graphs_come_near_the_best_division(void **state) {
    (void)state;
    double excess = 0;
    uint32_t n = 0, n_least = 0, n_missed = 0, n_none = 0;
    for (uint32_t round = 0; round < 600; round++) {
        graph_t g;
        uint32_t stages[MOST];
        shard_stage_result_t result;
        seed = round + 777;
        make(&g, false);
        const int64_t least = least_step(&g);
        const st_status_t status = shard_stages(&g.in, stages, &result);
        if (least == INT64_MAX) {
            assert_int_equal(status, ST_DOES_NOT_FIT);
            n_none++;
            continue;
        }
        if (status != ST_OK) {
            assert_int_equal(status, ST_DOES_NOT_FIT);
            n_missed++;
            continue;
        }
        assert_true(result.step >= least && step_of(&g, stages) == result.step);
        assert_true(!result.exact || result.step == least);
        n++;
        n_least += result.step == least;
        excess += least ? (double)(result.step - least) / (double)least : 0;
    }
    print_message("%u of %u least, excess %.4f; %u missed, %u have none\n", n_least, n, excess / n,
                  n_missed, n_none);
    assert_true(n > 300 && n_none > 20 && n_missed * 50 < n);
    assert_true(excess / n < 0.01);
}

/* 32 equal layers, the first stage with more in flight: what does not fit there goes further on. */
static void memory_in_flight_shifts_layers_to_later_stages(void **state) {
    (void)state;
    enum { N = 32 };
    shard_stage_item_t items[N];
    shard_stage_value_t values[N - 1];
    uint32_t readers[N], stages[N], first = 0;
    shard_stage_result_t result;
    for (uint32_t i = 0; i < N; i++) {
        items[i] = (shard_stage_item_t){1000, 10, 10};
        readers[i] = i + 1;
        if (i + 1 < N) values[i] = (shard_stage_value_t){i, 1, &readers[i], 1};
    }
    shard_stage_input_t in = {N, N - 1, 4, 8, items, values, UINT64_MAX};
    assert_int_equal(shard_stages(&in, stages, &result), ST_OK);
    assert_true(result.longest == 8002 && result.sum == 32006 && result.exact);
    assert_true(result.most_bytes == 8 * (10 + 4 * 10));
    in.limit_bytes = 350; /* 7 layers at stage 0, with four micro-batches each */
    assert_int_equal(shard_stages(&in, stages, &result), ST_OK);
    while (stages[first] == 0) first++;
    assert_int_equal(first, 7);
    assert_true(result.longest == 9001 && result.most_bytes <= 350);
}

static void what_does_not_fit_names_what_would(void **state) {
    (void)state;
    shard_stage_item_t items[3] = {{1, 3u << 30, 0}, {1, 3u << 30, 0}, {1, 1u << 30, 0}};
    shard_stage_input_t in = {3, 0, 2, 1, items, NULL, 3u << 30};
    uint32_t stages[3];
    shard_stage_result_t result;
    assert_int_equal(shard_stages(&in, stages, &result), ST_DOES_NOT_FIT);
    assert_non_null(strstr(st_last_error(), "2 stages"));
    assert_non_null(strstr(st_last_error(), "3.00 GiB"));
    assert_non_null(strstr(st_last_error(), "4.00 GiB"));
    in.n_stages = 4;
    assert_int_equal(shard_stages(&in, stages, &result), ST_INVALID);
    assert_non_null(strstr(st_last_error(), "3 items cannot make 4 stages"));
    in.n_stages = 0;
    assert_int_equal(shard_stages(&in, stages, &result), ST_INVALID);
    in.n_stages = 2;
    const uint32_t reader = 0;
    const shard_stage_value_t back = {1, 1, &reader, 0};
    in.values = &back;
    in.n_values = 1;
    assert_int_equal(shard_stages(&in, stages, &result), ST_INVALID);
    in.n_values = 0;
    items[0].cost = (int64_t)1 << 57;
    assert_int_equal(shard_stages(&in, stages, &result), ST_DOES_NOT_FIT);
    assert_non_null(strstr(st_last_error(), "2^56"));
}

static void failed_allocations_are_reported(void **state) {
    (void)state;
    int64_t n = 0;
    st_status_t status;
    do {
        graph_t g;
        uint32_t stages[MOST];
        shard_stage_result_t result;
        seed = 5;
        do make(&g, false);
        while (g.in.limit_bytes != UINT64_MAX);
        st_memory_fail_after(n++, false);
        status = shard_stages(&g.in, stages, &result);
        st_memory_fail_after(-1, false);
        assert_true(status == ST_OK || status == ST_NO_MEMORY);
    } while (status != ST_OK);
    assert_true(n > 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chains_are_divided_as_all_divisions_say),
        cmocka_unit_test(branching_graphs_come_near_the_best_division),
        cmocka_unit_test(memory_in_flight_shifts_layers_to_later_stages),
        cmocka_unit_test(what_does_not_fit_names_what_would),
        cmocka_unit_test(failed_allocations_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
