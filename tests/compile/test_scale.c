/* Compiling takes time near proportional to the graph: four times the nodes take at most 5.3 times
 * the processor time (twice: 2.3 times), where a stage that looks at all pairs would take sixteen
 * times; and 150,000 nodes take less than 20 seconds of it. */
#include "compile/compile.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "autodiff/train_graph.h"
#include "base/memory.h"
#include "fusion/fuse.h"
#include "ir/build.h"
#include "support/clock.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IS_SLOW 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(memory_sanitizer)
#define IS_SLOW 1
#endif
#endif
#ifndef IS_SLOW
#define IS_SLOW 0
#endif

enum { ROUNDS = 5, N_NODES = 750, TIMES = 4, MANY = 150000 };
static const double MOST_GROWTH = 5.3, MOST_SECONDS = 20;

typedef void make_graph_t(ir_build_t *b, uint32_t n);

/* ---- families ---- */

static ir_type_t vector_type(void) {
    return (ir_type_t){.dtype = IR_F32, .rank = 1, .dims = {4}};
}

static void finish(ir_build_t *b, ir_value_t x) {
    ir_b_output(b, "loss", ir_b_reduce(b, IR_OP_REDUCE_SUM, x, 0, NULL, false));
}

/* The sum of n parameters: many states, gradients and updates. */
static void make_parameters(ir_build_t *b, uint32_t n) {
    ir_value_t sum = IR_NONE;
    for (uint32_t i = 0; i < n; i++) {
        char name[32];
        snprintf(name, sizeof name, "w_%u", i);
        ir_value_t w = ir_b_parameter(b, name, vector_type());
        sum = i ? ir_b_binary(b, IR_OP_ADD, sum, w) : w;
    }
    finish(b, sum);
}

/* n elementwise nodes and views over values of some steps before, products among them: groups of
 * all kinds and many pairs that cannot be joined. */
static void make_mesh(ir_build_t *b, uint32_t n) {
    enum { WINDOW = 16 };
    static const int64_t square[] = {2, 2}, flat[] = {4};
    ir_value_t recent[WINDOW];
    uint32_t state = 1;
    recent[0] = ir_b_parameter(b, "w", vector_type());
    for (uint32_t i = 1; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        uint32_t reach = i < WINDOW ? i : WINDOW;
        ir_value_t x = recent[(i - 1) % WINDOW];
        ir_value_t y = recent[(i - 1 - (state >> 8) % reach) % WINDOW];
        if ((state >> 16) % 5 == 0) {
            x = ir_b_reshape(b, x, 2, square);
            x = ir_b_reshape(b, ir_b_matmul(b, x, x, false, false), 1, flat);
        }
        recent[i % WINDOW] =
            (state >> 20) % 3 ? ir_b_binary(b, IR_OP_ADD, x, y) : ir_b_unary(b, IR_OP_TANH, y);
    }
    finish(b, recent[(n - 1) % WINDOW]);
}

/* n sines in a row: as many values are alive when the backward pass begins. */
static void make_chain(ir_build_t *b, uint32_t n) {
    ir_value_t x = ir_b_parameter(b, "w", vector_type());
    for (uint32_t i = 0; i < n; i++) x = ir_b_unary(b, IR_OP_SIN, x);
    finish(b, x);
}

/* As many gradients of one split batch: one all-reduce with n operands. */
static void make_bucket(ir_build_t *b, uint32_t n) {
    const int64_t dims[] = {2, 4};
    ir_value_t x = ir_b_input(b, "x", ir_type_make(IR_F32, 2, dims), 0), sum = x;
    for (uint32_t i = 0; i < n; i++) {
        char name[32];
        snprintf(name, sizeof name, "w_%u", i);
        sum = ir_b_binary(b, IR_OP_MUL, sum, ir_b_parameter(b, name, vector_type()));
    }
    finish(b, sum);
}

/* ---- time ---- */

static void assert_ok(st_status_t status) {
    if (status != ST_OK) print_error("%s\n", st_last_error());
    assert_int_equal(status, ST_OK);
}

/* Processor time from the forward graph to the plan; gives the step's nodes too. */
static double compile_time(make_graph_t *make, uint32_t n, uint32_t n_ranks, size_t *out_nodes) {
    const compile_options_t options = {.n_ranks = n_ranks, .bucket_bytes = 1 << 30};
    ir_build_t b = {0};
    ad_train_options_t train;
    ir_graph_t *step;
    plan_t *plan;
    assert_ok(ir_graph_create("scale", &b.graph));
    make(&b, n);
    assert_ok(b.status);
    assert_ok(ad_train_defaults("adamw", &train));
    double begin = processor_seconds();
    assert_ok(ad_train_graph(b.graph, &train, &step));
    assert_ok(compile_plan(step, &options, &plan));
    double taken = processor_seconds() - begin;
    assert_true(plan->programs[0].graph->nodes.n > 0);
    *out_nodes = step->nodes.n;
    plan_destroy(plan);
    ir_graph_destroy(step);
    ir_graph_destroy(b.graph);
    return taken;
}

static void skip_if_slow(const char *what) {
    if (!IS_SLOW) return;
    print_message("%s: times mean nothing under a sanitizer\n", what);
    skip();
}

/* The least of each size, of as many rounds in turn as it takes: others on the machine only add. */
static void check_growth(const char *what, make_graph_t *make, uint32_t n_ranks) {
    double least[2] = {1e9, INFINITY};
    skip_if_slow(what);
    for (int round = 0; round < ROUNDS && least[1] > MOST_GROWTH * least[0]; round++)
        for (uint32_t i = 0; i < 2; i++) {
            size_t nodes;
            double taken = compile_time(make, i ? TIMES * N_NODES : N_NODES, n_ranks, &nodes);
            if (taken < least[i]) least[i] = taken;
        }
    print_message("%s, %u ranks: %.0f ms for %d nodes, %.0f ms for four times as many\n", what,
                  n_ranks, least[0] * 1e3, N_NODES, least[1] * 1e3);
    if (!(least[1] <= MOST_GROWTH * least[0]))
        fail_msg("%s: four times the nodes take %.2f times as long", what, least[1] / least[0]);
}

static void a_large_step_takes_less_than_20_seconds(void **state) {
    (void)state;
    size_t nodes;
    skip_if_slow("mesh");
    double taken = compile_time(make_mesh, 40000, 1, &nodes);
    print_message("mesh: %.1f s for %zu nodes\n", taken, nodes);
    assert_true(nodes >= MANY);
    assert_true(taken < MOST_SECONDS);
}

static void many_parameters_scale(void **state) {
    (void)state;
    check_growth("parameters", make_parameters, 1);
}
static void a_long_chain_scales(void **state) {
    (void)state;
    check_growth("chain", make_chain, 1);
}

static void a_wide_collective_scales(void **state) {
    (void)state;
    check_growth("bucket", make_bucket, 2);
}
static void a_mesh_scales(void **state) {
    (void)state;
    check_growth("mesh", make_mesh, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_parameters_scale),
        cmocka_unit_test(a_long_chain_scales),
        cmocka_unit_test(a_wide_collective_scales),
        cmocka_unit_test(a_mesh_scales),
        cmocka_unit_test(a_large_step_takes_less_than_20_seconds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
