/* Minimum cut against all cuts of small networks, and what networks must not do. */
#include "base/flow.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"

static uint64_t seed;

static uint32_t random_below(uint32_t n) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % n;
}

static void add(st_flow_t *flow, uint32_t from, uint32_t to, uint64_t capacity) {
    assert_int_equal(st_flow_arc(flow, from, to, capacity, NULL), ST_OK);
}

/* Cost of the cut whose sink side is the set `side`; UINT64_MAX: through an infinite arc. */
static uint64_t cost_of(const st_flow_t *flow, uint32_t side) {
    uint64_t cost = 0;
    for (size_t i = 0; i < flow->arcs.n; i++) {
        const st_flow_arc_t *arc = &flow->arcs.data[i];
        if ((side >> arc->from & 1) || !(side >> arc->to & 1)) continue;
        if (arc->capacity == ST_FLOW_INFINITE) return UINT64_MAX;
        cost += arc->capacity;
    }
    return cost;
}

/* Vertex 0 is the source, 1 the sink. The least cuts' sink sides have an intersection, which is one
 * of them. */
static void compare_with_all_cuts(const st_flow_t *flow) {
    uint64_t best = UINT64_MAX, value;
    uint32_t expected = 0;
    bool sink[16];
    for (uint32_t side = 2; side < 1u << flow->n; side++) {
        if (!(side & 2) || (side & 1)) continue;
        uint64_t cost = cost_of(flow, side);
        if (cost < best) expected = side;
        if (cost == best) expected &= side;
        if (cost < best) best = cost;
    }
    st_status_t status = st_flow_cut(flow, 0, 1, sink, &value);
    if (best == UINT64_MAX) {
        assert_int_equal(status, ST_INVALID);
        return;
    }
    assert_int_equal(status, ST_OK);
    assert_true(value == best);
    uint32_t side = 0;
    for (uint32_t v = 0; v < flow->n; v++) side |= (uint32_t)sink[v] << v;
    assert_int_equal(side, expected);
    assert_true(cost_of(flow, side) == best);
}

static void small_networks_are_cut_as_all_cuts_say(void **state) {
    (void)state;
    int n_infinite = 0, n_uncuttable = 0;
    for (int round = 0; round < 4000; round++) {
        st_flow_t flow;
        seed = (uint64_t)round + 1;
        uint32_t n = 2 + random_below(9), n_arcs = random_below(4 * n);
        uint32_t largest = round % 3 ? 4 : 1000; /* many equal cuts, or few */
        st_flow_open(n, &flow);
        for (uint32_t i = 0; i < n_arcs; i++) {
            bool infinite = random_below(6) == 0;
            n_infinite += infinite;
            add(&flow, random_below(n), random_below(n),
                infinite ? ST_FLOW_INFINITE : random_below(largest));
        }
        bool sink[16];
        uint64_t value;
        n_uncuttable += st_flow_cut(&flow, 0, 1, sink, &value) != ST_OK;
        compare_with_all_cuts(&flow);
        st_flow_close(&flow);
    }
    assert_true(n_infinite > 1000 && n_uncuttable > 20 && n_uncuttable < 2000);
}

/* The result is that of the network, not of the order in which it was told. */
static void order_of_arcs_does_not_matter(void **state) {
    (void)state;
    for (int round = 0; round < 200; round++) {
        st_flow_t flow, shuffled;
        bool sink[64], again[64];
        uint64_t value, other;
        seed = (uint64_t)round + 77;
        st_flow_open(64, &flow);
        st_flow_open(64, &shuffled);
        for (uint32_t i = 0; i < 300; i++)
            add(&flow, random_below(64), random_below(64), random_below(5));
        for (size_t i = flow.arcs.n; i-- > 0;)
            add(&shuffled, flow.arcs.data[i].from, flow.arcs.data[i].to,
                flow.arcs.data[i].capacity);
        assert_int_equal(st_flow_cut(&flow, 0, 1, sink, &value), ST_OK);
        assert_int_equal(st_flow_cut(&shuffled, 0, 1, again, &other), ST_OK);
        assert_true(value == other);
        assert_memory_equal(sink, again, sizeof sink);
        st_flow_close(&flow);
        st_flow_close(&shuffled);
    }
}

static void large_capacities_do_not_overflow(void **state) {
    (void)state;
    st_flow_t flow;
    bool sink[4];
    uint64_t value;
    st_flow_open(4, &flow);
    add(&flow, 0, 2, ST_FLOW_LIMIT / 2);
    add(&flow, 0, 3, ST_FLOW_LIMIT / 2);
    for (int i = 0; i < 100; i++) { /* in sum far above 2^64, did infinite arcs add up */
        add(&flow, 2, 1, ST_FLOW_INFINITE);
        add(&flow, 3, 1, ST_FLOW_INFINITE);
        add(&flow, 2, 3, ST_FLOW_INFINITE);
    }
    assert_int_equal(st_flow_cut(&flow, 0, 1, sink, &value), ST_OK);
    assert_true(value == ST_FLOW_LIMIT);
    assert_true(sink[2] && sink[3]);
    add(&flow, 0, 1, 1);
    assert_int_equal(st_flow_cut(&flow, 0, 1, sink, &value), ST_DOES_NOT_FIT);
    flow.arcs.data[flow.arcs.n - 1].capacity = ST_FLOW_INFINITE;
    for (int i = 0; i < 100; i++) add(&flow, 0, 1, ST_FLOW_INFINITE);
    assert_int_equal(st_flow_cut(&flow, 0, 1, sink, &value), ST_INVALID);
    st_flow_close(&flow);
}

static void capacities_may_change_between_cuts(void **state) {
    (void)state;
    st_flow_t flow;
    bool sink[3];
    uint64_t value;
    uint32_t first, second;
    st_flow_open(3, &flow);
    assert_int_equal(st_flow_arc(&flow, 0, 2, 5, &first), ST_OK);
    assert_int_equal(st_flow_arc(&flow, 2, 1, 7, &second), ST_OK);
    assert_int_equal(st_flow_cut(&flow, 0, 1, sink, &value), ST_OK);
    assert_true(value == 5 && sink[2]);
    flow.arcs.data[first].capacity = 8;
    assert_int_equal(st_flow_cut(&flow, 0, 1, sink, &value), ST_OK);
    assert_true(value == 7 && !sink[2]);
    flow.arcs.data[second].capacity = 8; /* equal: the fewest vertices on the sink's side */
    assert_int_equal(st_flow_cut(&flow, 0, 1, sink, &value), ST_OK);
    assert_true(value == 8 && !sink[2]);
    st_flow_close(&flow);
}

/* A ladder of 200,000 arcs: time near linear, no recursion. */
static void long_networks_are_cut(void **state) {
    (void)state;
    enum { N = 50000 };
    st_flow_t flow;
    uint64_t value;
    bool *sink = st_malloc(2 * N + 2);
    assert_non_null(sink);
    st_flow_open(2 * N + 2, &flow);
    add(&flow, 0, 2, ST_FLOW_INFINITE);
    for (uint32_t i = 0; i < N; i++) {
        add(&flow, 2 + 2 * i, 3 + 2 * i, 1000 - (i == N / 2)); /* the one place to cut */
        add(&flow, 3 + 2 * i, i + 1 < N ? 4 + 2 * i : 1, ST_FLOW_INFINITE);
        if (i % 10 == 0) add(&flow, 0, 2 + 2 * i, i / 10000);
    }
    assert_int_equal(st_flow_cut(&flow, 0, 1, sink, &value), ST_OK);
    assert_false(sink[0]);
    assert_true(sink[1] && value > 999 && value <= 999 + 5 * 1000 * 3);
    st_free(sink);
    st_flow_close(&flow);
}

static void failed_allocations_are_reported(void **state) {
    (void)state;
    int64_t n = 0;
    st_status_t status;
    do {
        st_flow_t flow;
        bool sink[3];
        uint64_t value;
        st_flow_open(3, &flow);
        st_memory_fail_after(n++, false);
        status = st_flow_arc(&flow, 0, 2, 1, NULL);
        if (status == ST_OK) status = st_flow_arc(&flow, 2, 1, 1, NULL);
        if (status == ST_OK) status = st_flow_cut(&flow, 0, 1, sink, &value);
        st_memory_fail_after(-1, false);
        assert_true(status == ST_OK || status == ST_NO_MEMORY);
        st_flow_close(&flow);
    } while (status != ST_OK);
    assert_true(n > 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_networks_are_cut_as_all_cuts_say),
        cmocka_unit_test(order_of_arcs_does_not_matter),
        cmocka_unit_test(large_capacities_do_not_overflow),
        cmocka_unit_test(capacities_may_change_between_cuts),
        cmocka_unit_test(long_networks_are_cut),
        cmocka_unit_test(failed_allocations_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
