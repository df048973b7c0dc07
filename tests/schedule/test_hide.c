/* Hiding collectives: groups against all groups, merged graphs as text, orders within their
 * memory. */
#include "schedule/hide.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "schedule/merge.h"
#include "schedule/transfer.h"
#include "support/golden.h"

/* Takes `graph`. */
static void expect_text(ir_graph_t *graph, const char *text) {
    ir_graph_t *wanted = golden_read(text);
    assert_prints_as(graph, wanted);
    ir_graph_destroy(wanted);
    ir_graph_destroy(graph);
}

/* ---- merging ---- */

/* Starts in the text's order belong to these groups. */
static ir_graph_t *merged(const char *text, const uint32_t *groups, uint32_t n_groups) {
    ir_graph_t *graph = golden_read(text), *made = NULL;
    uint32_t of[64], n = 0;
    assert_true(graph->nodes.n <= 64);
    for (ir_node_t i = 0; i < graph->nodes.n; i++)
        of[i] = ir_op_def(ir_node(graph, i)->op)->flags & IR_START ? groups[n++] : IR_NONE;
    assert_int_equal(sched_merge(graph, NULL, of, n_groups, &made), ST_OK);
    ir_graph_destroy(graph);
    return made;
}

static void sums_become_one(void **state) {
    (void)state;
    expect_text(merged("graph \"g\" {\n"
                       "  %0 x = input {dtype=f32, shape=[4]}\n"
                       "  %1 = exp(%0)\n"
                       "  %2 = all_reduce_start(%1)\n"
                       "  %3 = tanh(%0)\n"
                       "  %4 = all_reduce_start(%3)\n"
                       "  %5 = all_reduce_wait(%4)\n"
                       "  %6 = all_reduce_wait(%2)\n"
                       "  %7 = add(%5, %6)\n"
                       "  output \"z\" = %7\n"
                       "}\n",
                       (uint32_t[]){0, 0}, 1),
                "graph \"g\" {\n"
                "  %0 x = input {dtype=f32, shape=[4]}\n"
                "  %1 = exp(%0)\n"
                "  %2 = tanh(%0)\n"
                "  %3, %4 = all_reduce_start(%1, %2)\n"
                "  %5, %6 = all_reduce_wait(%3, %4)\n"
                "  %7 = add(%6, %5)\n"
                "  output \"z\" = %7\n"
                "}\n");
}

/* Each operand keeps its own axis and sizes; those of other groups stay alone. */
static void gathers_and_scattered_sums_keep_their_sizes(void **state) {
    (void)state;
    expect_text(merged("graph \"g\" {\n"
                       "  %0 x = input {dtype=f32, shape=[4,3]}\n"
                       "  %1 = all_gather_start(%0) {axis=[0], granules=[8], extent=[8]}\n"
                       "  %2 = all_gather_start(%0) {axis=[1], granules=[6], extent=[6]}\n"
                       "  %3 = reduce_scatter_start(%0) {axis=[0], granules=[4], part=[2]}\n"
                       "  %4 = reduce_scatter_start(%0) {axis=[1], granules=[3], part=[1]}\n"
                       "  %5 = all_gather_start(%0) {axis=[0], granules=[12], extent=[12]}\n"
                       "  %6 = all_gather_wait(%2)\n"
                       "  %7 = all_gather_wait(%1)\n"
                       "  %8 = reduce_scatter_wait(%3)\n"
                       "  %9 = reduce_scatter_wait(%4)\n"
                       "  %10 = all_gather_wait(%5)\n"
                       "  output \"a\" = %6\n"
                       "  output \"b\" = %7\n"
                       "  output \"c\" = %8\n"
                       "  output \"d\" = %9\n"
                       "  output \"e\" = %10\n"
                       "}\n",
                       (uint32_t[]){2, 2, 0, 0, 1}, 3),
                "graph \"g\" {\n"
                "  %0 x = input {dtype=f32, shape=[4,3]}\n"
                "  %1, %2 = all_gather_start(%0, %0) {axis=[0,1], granules=[8,6], extent=[8,6]}\n"
                "  %3, %4 = reduce_scatter_start(%0, %0) {axis=[0,1], granules=[4,3], part=[2,1]}\n"
                "  %5 = all_gather_start(%0) {axis=[0], granules=[12], extent=[12]}\n"
                "  %6, %7 = all_gather_wait(%1, %2)\n"
                "  %8, %9 = reduce_scatter_wait(%3, %4)\n"
                "  %10 = all_gather_wait(%5)\n"
                "  output \"a\" = %7\n"
                "  output \"b\" = %6\n"
                "  output \"c\" = %8\n"
                "  output \"d\" = %9\n"
                "  output \"e\" = %10\n"
                "}\n");
}

static void a_wait_before_its_group_is_refused(void **state) {
    (void)state;
    ir_graph_t *graph = golden_read(
        "graph \"g\" {\n"
        "  %0 x = input {dtype=f32, shape=[4]}\n"
        "  %1 = all_reduce_start(%0)\n"
        "  %2 = all_reduce_wait(%1)\n"
        "  %3 = all_reduce_start(%2)\n"
        "  %4 = all_reduce_wait(%3)\n"
        "  output \"z\" = %4\n"
        "}\n");
    ir_graph_t *made = NULL;
    const uint32_t of[] = {IR_NONE, 0, IR_NONE, 0, IR_NONE};
    assert_int_equal(sched_merge(graph, NULL, of, 1, &made), ST_INTERNAL);
    assert_null(made);
    ir_graph_destroy(graph);
}

/* ---- times ---- */

/* Four ranks, two to a host: each has 128 bytes, of which a quarter goes to its neighbour, at
 * 10,000 bytes a microsecond, and half to the other host, at 1,000. */
static void an_exchange_takes_what_its_parts_take(void **state) {
    (void)state;
    ir_graph_t *graph = golden_read(
        "graph \"g\" {\n"
        "  %0 x = input {dtype=f32, shape=[4,8]}\n"
        "  %1 = all_to_all_start(%0) {axis=0, granules=16, extent=16, to=1, to_granules=8, "
        "part=2}\n"
        "  %2 = all_to_all_wait(%1)\n"
        "  output \"y\" = %2\n"
        "}\n");
    const ir_machine_t machine = {.mesh = ir_mesh_of_ranks(4),
                                  .link_us = 2,
                                  .link_gbps = 10,
                                  .host_ranks = 2,
                                  .host_link_us = 5,
                                  .host_link_gbps = 1};
    const ir_target_t target = {.name = "test", .machine = &machine};
    const double us[4] = {0};
    const ir_node_t order[] = {0, 1, 2};
    sched_dag_t dag;
    sched_transfers_t transfers;
    assert_int_equal(graph->nodes.n, 3);
    assert_int_equal(sched_dag_build(graph, &dag), ST_OK);
    assert_int_equal(sched_transfers_open(&dag, &target, us, order, &transfers), ST_OK);
    assert_int_equal(transfers.n, 1);
    const double got = sched_transfer_us(&transfers.list[0], transfers.list[0].bytes);
    assert_true(fabs(got - (2 + 32 / 10e3 + 5 + 64 / 1e3)) < 1e-9);
    sched_transfers_close(&transfers);
    sched_dag_free(&dag);
    ir_graph_destroy(graph);
}

/* ---- groups, against all of them ---- */

enum { MOST = 9, PLACES = 20, ROUNDS = 300 };

typedef struct sample {
    sched_dag_t dag;
    sched_transfers_t t;
    sched_transfer_t list[MOST];
    double when[PLACES + 1];
} sample_t;

static void make_sample(sample_t *s, bool ahead, unsigned *seed) {
    *s = (sample_t){.dag = {.n = PLACES}};
    s->t = (sched_transfers_t){.dag = &s->dag, .list = s->list, .when = s->when};
    s->t.n = 1 + (uint32_t)(rand_r(seed) % MOST);
    for (int i = 0; i < PLACES; i++) s->when[i + 1] = s->when[i] + rand_r(seed) % 30;
    const double latency = 1 + rand_r(seed) % 20;
    uint32_t at = 0;
    for (uint32_t i = 0; i < s->t.n; i++) {
        at += (uint32_t)rand_r(seed) % 3;
        if (at > PLACES) at = PLACES;
        s->list[i] =
            (sched_transfer_t){.ready = ahead ? 0 : at,
                               .need = ahead ? at : PLACES,
                               .bytes = 1000.0 * (1 + rand_r(seed) % 40),
                               .ahead = ahead,
                               .op = ahead ? IR_OP_ALL_GATHER_START : IR_OP_ALL_REDUCE_START,
                               .dtype = IR_F32,
                               .mesh = "data",
                               .links = {2, 2, latency, 1, 0, 0}};
    }
}

/* When the link is free again, where bit i of `cuts` ends a group after collective i; of those
 * ahead the delay. */
static double outcome(const sample_t *s, bool ahead, uint32_t cuts) {
    double now = 0, delay = 0;
    for (uint32_t first = 0, i = 0; i < s->t.n; i++) {
        if (i + 1 < s->t.n && !(cuts >> i & 1)) continue;
        double bytes = 0;
        for (uint32_t k = first; k <= i; k++) bytes += s->list[k].bytes;
        if (!ahead) now = fmax(now, s->when[s->list[i].ready]);
        now += sched_transfer_us(&s->list[i], bytes);
        delay = fmax(delay, now - s->when[s->list[first].need]);
        first = i + 1;
    }
    return ahead ? delay : now;
}

/* Of the groups in the sample; they are runs of the list. */
static uint32_t cuts_of(const sample_t *s) {
    uint32_t cuts = 0;
    for (uint32_t i = 0; i + 1 < s->t.n; i++)
        cuts |= (uint32_t)(s->list[i].group != s->list[i + 1].group) << i;
    return cuts;
}

static void check_groups(bool ahead) {
    unsigned seed = 7;
    uint32_t n_merged = 0;
    for (int round = 0; round < ROUNDS; round++) {
        sample_t s;
        double best = INFINITY, all_us = 0;
        make_sample(&s, ahead, &seed);
        assert_int_equal(sched_transfers_group(&s.t, 1e12, 1e12), ST_OK);
        for (uint32_t cuts = 0; cuts < 1u << (s.t.n - 1); cuts++)
            best = fmin(best, outcome(&s, ahead, cuts));
        for (uint32_t i = 0; i < s.t.n; i++)
            all_us += sched_transfer_us(&s.list[i], s.list[i].bytes);
        const double got = outcome(&s, ahead, cuts_of(&s));
        assert_true(got >= best * (1 - 1e-9));
        assert_true(got <= best + all_us / 400);
        n_merged += s.t.n - s.t.n_groups;
    }
    assert_true(n_merged > ROUNDS);
}

static void gradients_are_sent_as_early_as_any_groups_can(void **state) {
    (void)state;
    check_groups(false);
}

static void gathers_are_there_as_early_as_any_groups_can_be(void **state) {
    (void)state;
    check_groups(true);
}

static void groups_keep_to_their_size(void **state) {
    (void)state;
    unsigned seed = 3;
    for (int round = 0; round < 50; round++) {
        sample_t s;
        double bytes[MOST] = {0};
        uint32_t members[MOST] = {0};
        make_sample(&s, round % 2, &seed);
        assert_int_equal(sched_transfers_group(&s.t, 30e3, 30e3), ST_OK);
        for (uint32_t i = 0; i < s.t.n; i++) {
            bytes[s.list[i].group] += s.list[i].bytes;
            members[s.list[i].group]++;
        }
        for (uint32_t g = 0; g < s.t.n_groups; g++)
            assert_true(members[g] == 1 || bytes[g] <= 30e3);
        assert_int_equal(sched_transfers_group(&s.t, 0, 0), ST_OK);
        assert_int_equal(s.t.n_groups, s.t.n);
    }
}

/* ---- the whole ---- */

/* Products take 100 us, all else 1. */
static void cost_of_products(void *context, const ir_op_ctx_t *ctx, const ir_type_t *out_types,
                             ir_cost_t *out) {
    (void)context;
    (void)out_types;
    *out = (ir_cost_t){.us = ctx->op == IR_OP_MATMUL ? 100 : 1};
}

static ir_graph_t *hidden_by(void (*cost)(void *, const ir_op_ctx_t *, const ir_type_t *,
                                          ir_cost_t *),
                             const char *text, sched_hidden_t *out) {
    ir_graph_t *graph = golden_read(text), *made = NULL;
    ir_machine_t machine = {.mesh = ir_mesh_of_ranks(2), .link_us = 10, .link_gbps = 0.1};
    const ir_target_t target = {.name = "test", .machine = &machine, .cost = cost};
    assert_int_equal(sched_hide(graph, &target, 0, out), ST_OK);
    assert_int_equal(sched_hide_apply(out, graph, &made), ST_OK);
    assert_int_equal(ir_graph_verify(made), ST_OK);
    ir_graph_destroy(graph);
    return made;
}

static ir_graph_t *hidden(const char *text, sched_hidden_t *out) {
    return hidden_by(cost_of_products, text, out);
}

static ir_node_t position(const ir_graph_t *graph, const char *name) {
    for (ir_node_t n = 0; n < graph->nodes.n; n++)
        if (strcmp(ir_node(graph, n)->name, name) == 0) return n;
    fail_msg("no node '%s'", name);
    return 0;
}

/* A sum that is wanted at once is on its way while a product runs that comes later in the given
 * order. */
static void what_does_not_wait_runs_meanwhile(void **state) {
    (void)state;
    sched_hidden_t out;
    ir_graph_t *graph = hidden(
        "graph \"g\" {\n"
        "  %0 x = input {dtype=f32, shape=[8,8]}\n"
        "  %1 m0 = matmul(%0, %0)\n"
        "  %2 s0 = all_reduce_start(%1)\n"
        "  %3 w0 = all_reduce_wait(%2)\n"
        "  %4 m1 = matmul(%3, %3)\n"
        "  %5 m2 = matmul(%0, %0)\n"
        "  %6 y = add(%4, %5)\n"
        "  output \"y\" = %6\n"
        "}\n",
        &out);
    assert_true(position(graph, "s0") < position(graph, "m2"));
    assert_true(position(graph, "m2") < position(graph, "w0"));
    assert_true(out.exposed_us == 0 && out.link_us > 20);
    sched_hidden_free(&out);
    ir_graph_destroy(graph);
}

/* The second weight is gathered while the first product runs, the third not yet: it would be
 * memory. */
static void weights_are_gathered_one_ahead(void **state) {
    (void)state;
    sched_hidden_t out;
    ir_graph_t *graph = hidden(
        "graph \"g\" {\n"
        "  %0 x = input {dtype=f32, shape=[2048,64]}\n"
        "  %1 v0 = parameter {dtype=f32, shape=[32,64]}\n"
        "  %2 v1 = parameter {dtype=f32, shape=[32,64]}\n"
        "  %3 v2 = parameter {dtype=f32, shape=[32,64]}\n"
        "  %4 g0 = all_gather_start(%1) {axis=[0], granules=[64], extent=[64]}\n"
        "  %5 = all_gather_wait(%4)\n"
        "  %6 m0 = matmul(%0, %5)\n"
        "  %7 g1 = all_gather_start(%2) {axis=[0], granules=[64], extent=[64]}\n"
        "  %8 = all_gather_wait(%7)\n"
        "  %9 m1 = matmul(%6, %8)\n"
        "  %10 g2 = all_gather_start(%3) {axis=[0], granules=[64], extent=[64]}\n"
        "  %11 = all_gather_wait(%10)\n"
        "  %12 m2 = matmul(%9, %11)\n"
        "  output \"y\" = %12\n"
        "}\n",
        &out);
    assert_true(position(graph, "g1") < position(graph, "m0"));
    assert_true(position(graph, "g2") < position(graph, "m1"));
    assert_true(position(graph, "g2") > position(graph, "m0"));
    assert_true(out.bytes <= out.least_bytes + out.least_bytes / 100 * SCHED_HIDE_PERCENT);
    sched_hidden_free(&out);
    ir_graph_destroy(graph);
}

/* What a scattered sum reads is kept until it is waited for: not to the end of the step. */
static void scattered_sums_do_not_pile_up(void **state) {
    (void)state;
    char text[8192];
    int at =
        snprintf(text, sizeof text, "graph \"g\" {\n  %%x0 x = input {dtype=f32, shape=[64,64]}\n");
    enum { N = 12 };
    for (int i = 0; i < N; i++)
        at +=
            snprintf(text + at, sizeof text - (size_t)at,
                     "  %%x%d = matmul(%%x%d, %%x%d)\n  %%g%d = matmul(%%x%d, %%x%d)\n"
                     "  %%s%d = reduce_scatter_start(%%g%d) {axis=[0], granules=[64], part=[32]}\n",
                     i + 1, i, i, i, i + 1, i + 1, i, i);
    for (int i = 0; i < N; i++)
        at += snprintf(text + at, sizeof text - (size_t)at,
                       "  %%w%d = reduce_scatter_wait(%%s%d)\n", i, i);
    for (int i = 0; i < N; i++)
        at += snprintf(text + at, sizeof text - (size_t)at, "  output \"o%d\" = %%w%d\n", i, i);
    snprintf(text + at, sizeof text - (size_t)at, "  output \"y\" = %%x%d\n}\n", N);
    sched_hidden_t out;
    ir_graph_t *graph = hidden(text, &out);
    const int64_t whole = 64 * 64 * 4;
    assert_true(out.bytes < (N / 2 + 6) * whole); /* the parts, and a few gradients */
    assert_true(out.exposed_us < 0.3 * out.link_us);
    sched_hidden_free(&out);
    ir_graph_destroy(graph);
}

/* ---- no order is slower than the given one ---- */

enum { LINES = 16, WIDTH = 8, VALUE_BYTES = WIDTH * WIDTH * 4 };

static void cost_of_two(void *context, const ir_op_ctx_t *ctx, const ir_type_t *out_types,
                        ir_cost_t *out) {
    (void)context;
    (void)out_types;
    *out = (ir_cost_t){.us = ctx->op == IR_OP_MATMUL ? 40 : ctx->op == IR_OP_TANH ? 3 : 0};
}

/* Products, sums over the ranks that are waited for at any time, and what is left as outputs. */
static void random_program(char *text, size_t capacity, unsigned *seed) {
    size_t at = 0;
    int n_values = 1, n_starts = 0, is_waited[LINES] = {0}, is_read[2 * LINES] = {0};
#define PUT(...) at += (size_t)snprintf(text + at, capacity - at, __VA_ARGS__)
    PUT("graph \"g\" {\n  %%v0 x = input {dtype=f32, shape=[%d,%d]}\n", WIDTH, WIDTH);
    for (int i = 0; i < 2 * LINES; i++) {
        const int of = rand_r(seed) % n_values, start = n_starts ? rand_r(seed) % n_starts : 0;
        is_read[of] |= i < LINES;
        const int kind = i < LINES ? rand_r(seed) % 4 : 3; /* the rest is waited for */
        if (kind == 0) PUT("  %%v%d = matmul(%%v%d, %%v%d)\n", n_values++, of, of);
        if (kind == 1) PUT("  %%v%d = tanh(%%v%d)\n", n_values++, of);
        if (kind == 2) PUT("  %%s%d = all_reduce_start(%%v%d)\n", n_starts++, of);
        for (int k = 0; kind == 3 && k < n_starts; k++) {
            const int s = (start + k) % n_starts;
            if (is_waited[s]++) continue;
            PUT("  %%v%d = all_reduce_wait(%%s%d)\n", n_values++, s);
            break;
        }
    }
    for (int v = 0; v < n_values; v++)
        if (v == n_values - 1 || !is_read[v]) PUT("  output \"o%d\" = %%v%d\n", v, v);
    PUT("}\n");
#undef PUT
}

/* By hand: two ranks, 10 us and half the bytes at 100 a microsecond, there and back. */
static double clock_of(const ir_graph_t *graph) {
    double now = 0, link = 0, end[256] = {0};
    assert_true(graph->nodes.n <= 256);
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(graph, n);
        if (node->op == IR_OP_MATMUL) now += 40;
        if (node->op == IR_OP_TANH) now += 3;
        if (node->op == IR_OP_ALL_REDUCE_START)
            end[n] = link = fmax(now, link) + 2 * (10 + node->n_inputs * VALUE_BYTES / 2 / 100.0);
        if (node->op == IR_OP_ALL_REDUCE_WAIT)
            now = fmax(now, end[graph->values.data[node->inputs[0]].producer]);
    }
    return fmax(now, link);
}

static void the_given_order_stays_unless_another_is_faster(void **state) {
    (void)state;
    unsigned seed = 11;
    int n_faster = 0;
    for (int round = 0; round < 3000; round++) {
        char text[8192];
        sched_hidden_t out;
        random_program(text, sizeof text, &seed);
        ir_graph_t *given = golden_read(text), *made = hidden_by(cost_of_two, text, &out);
        const double before = clock_of(given), after = clock_of(made);
        if (after > before * (1 + 1e-6)) fail_msg("%g us of %g in\n%s", after, before, text);
        if (fabs(out.step_us - after) > 1e-6 * after)
            fail_msg("%g us are %g in\n%s", out.step_us, after, text);
        n_faster += after < before * (1 - 1e-6);
        sched_hidden_free(&out);
        ir_graph_destroy(given);
        ir_graph_destroy(made);
    }
    assert_true(n_faster > 100);
}

/* ---- programs that differ ---- */

static void other_programs_need_the_same_nodes(void **state) {
    (void)state;
    sched_hidden_t out;
    ir_graph_t *made = NULL, *graph = golden_read(
                                 "graph \"g\" {\n"
                                 "  %0 x = input {dtype=f32, shape=[8,8]}\n"
                                 "  output \"x\" = %0\n"
                                 "}\n");
    ir_graph_t *other = golden_read(
        "graph \"g\" {\n"
        "  %0 x = input {dtype=f32, shape=[8,8]}\n"
        "  %1 y = exp(%0)\n"
        "  output \"y\" = %1\n"
        "}\n");
    assert_int_equal(sched_hide(graph, NULL, 0, &out), ST_OK);
    assert_int_equal(sched_hide_apply(&out, other, &made), ST_INTERNAL);
    sched_hidden_free(&out);
    ir_graph_destroy(graph);
    ir_graph_destroy(other);
}

/* Turns of a stage: each takes what comes, and sends on what it makes of it. The sum of the first
 * turn's gradient runs behind the second turn; what is sent and received keeps its order, all of
 * it, and its place before what is computed. */
static void sums_hide_behind_turns_that_keep_their_order(void **state) {
    (void)state;
    static const char *const pairs[] = {"r0", "w0", "s0", "r1", "q0", "w1", "s1", "q1"};
    sched_hidden_t out;
    ir_graph_t *graph = hidden(
        "graph \"g\" {\n"
        "  %0 r0 = receive_start {dtype=f32, shape=[8,8], peer=0}\n"
        "  %1 w0 = receive_wait(%0)\n"
        "  %2 m0 = matmul(%1, %1)\n"
        "  %3 s0 = send_start(%2) {peer=0}\n"
        "  %4 r1 = receive_start {dtype=f32, shape=[8,8], peer=0}\n"
        "  %5 g = all_reduce_start(%2)\n"
        "  %6 sum = all_reduce_wait(%5)\n"
        "  %7 norm = exp(%6)\n"
        "  %8 q0 = send_wait(%3)\n"
        "  %9 w1 = receive_wait(%4)\n"
        "  %10 m1 = matmul(%9, %9)\n"
        "  %11 s1 = send_start(%10) {peer=0}\n"
        "  %12 q1 = send_wait(%11)\n"
        "  %13 y = add(%7, %10)\n"
        "  %14 x = input {dtype=f32, shape=[64,64]}\n" /* of its bytes the limit is a part */
        "  %15 z = exp(%14)\n"
        "  output \"y\" = %13\n"
        "  output \"z\" = %15\n"
        "}\n",
        &out);
    for (size_t i = 1; i < sizeof pairs / sizeof pairs[0]; i++)
        assert_true(position(graph, pairs[i - 1]) < position(graph, pairs[i]));
    assert_true(position(graph, "g") < position(graph, "w1"));
    assert_true(position(graph, "m1") < position(graph, "sum"));
    assert_true(out.exposed_us < 0.2 * out.link_us);
    sched_hidden_free(&out);
    ir_graph_destroy(graph);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_become_one),
        cmocka_unit_test(gathers_and_scattered_sums_keep_their_sizes),
        cmocka_unit_test(a_wait_before_its_group_is_refused),
        cmocka_unit_test(an_exchange_takes_what_its_parts_take),
        cmocka_unit_test(gradients_are_sent_as_early_as_any_groups_can),
        cmocka_unit_test(gathers_are_there_as_early_as_any_groups_can_be),
        cmocka_unit_test(groups_keep_to_their_size),
        cmocka_unit_test(what_does_not_wait_runs_meanwhile),
        cmocka_unit_test(weights_are_gathered_one_ahead),
        cmocka_unit_test(scattered_sums_do_not_pile_up),
        cmocka_unit_test(the_given_order_stays_unless_another_is_faster),
        cmocka_unit_test(other_programs_need_the_same_nodes),
        cmocka_unit_test(sums_hide_behind_turns_that_keep_their_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
