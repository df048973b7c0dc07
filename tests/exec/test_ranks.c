/* The same training on any number of ranks: in float64 the differences are those of the order of
 * sums. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/memory.h"
#include "exec/models.h"
#include "exec/session.h"
#include "ir/text.h"

/* Sums of some hundred terms near 1, a few steps: errors of 1e-15 grow to less than 1e-12. */
static const double tolerance = 1e-12;

static void same_on_all_ranks(const ir_graph_t *graph, bool reference, int n_steps,
                              const uint32_t *ranks, size_t n) {
    double *first = NULL;
    size_t n_first = 0;
    for (size_t i = 0; i < n; i++) {
        compile_options_t options = {.n_ranks = ranks[i],
                                     .dtype = IR_F64,
                                     .bucket_bytes = 700,
                                     .reference_kernels = reference};
        plan_t *plan = compile_ok(graph, &options);
        double *values;
        char what[64];
        size_t n_values = run_plan(plan, n_steps, &values);
        snprintf(what, sizeof what, "%s on %u ranks", graph->name, ranks[i]);
        if (i == 0) {
            first = values;
            n_first = n_values;
        } else {
            assert_int_equal(n_values, n_first);
            assert_close(n_values, first, values, tolerance, what);
            st_free(values);
        }
        plan_destroy(plan);
    }
    assert_true(n_first > 0);
    st_free(first);
}

/* Ranks along an axis that splits nothing all do the same. */
static void axes_without_a_split_train_equally(void **state) {
    (void)state;
    static const char *const meshes[] = {"data=1", "tensor=3", "data=2,tensor=2",
                                         "tensor=2,data=3"};
    ir_graph_t *forward = model_mlp(5);
    ir_graph_t *graph = model_train(forward, "adamw", 1.0);
    double *first = NULL;
    for (size_t i = 0; i < 4; i++) {
        compile_options_t options = {.dtype = IR_F64, .reference_kernels = true};
        double *values;
        assert_int_equal(ir_mesh_parse(meshes[i], &options.mesh), ST_OK);
        plan_t *plan = compile_ok(graph, &options);
        size_t n = run_plan(plan, 3, &values);
        if (first) assert_close(n, first, values, tolerance, meshes[i]);
        if (first) st_free(values);
        if (!first) first = values;
        plan_destroy(plan);
    }
    st_free(first);
    ir_graph_destroy(graph);
    ir_graph_destroy(forward);
}

/* One rank has five tokens of loss 1, the other one of loss 7 and four that do not count: the mean
 * over valid tokens is (5 · 1 + 7) / 6 = 2, that of the ranks' means would be 4. */
static void a_mean_is_over_all_ranks_valid_tokens(void **state) {
    (void)state;
    static const char text[] =
        "graph \"g\" {\n"
        "  %0 x = input {dtype=f64, shape=[10,2]}\n"
        "  %1 y = input {dtype=i64, shape=[10]}\n"
        "  %2, %3 = cross_entropy(%0, %1)\n"
        "  output \"loss\" = %2\n"
        "}\n";
    double x[10][2] = {{0}}, loss = 0;
    int64_t y[10];
    ir_graph_t *graph;
    assert_int_equal(ir_graph_parse(text, sizeof text - 1, &graph), ST_OK);
    for (int r = 0; r < 10; r++) {
        x[r][1] = log(exp(r < 5 ? 1 : 7) - 1); /* log(1 + exp(x)) is the loss */
        y[r] = r <= 5 ? 0 : -100;
    }
    for (uint32_t ranks = 1; ranks <= 2; ranks++) {
        compile_options_t options = {.n_ranks = ranks};
        plan_t *plan = compile_ok(graph, &options);
        exec_session_t *session;
        assert_int_equal(exec_session_create(plan, NULL, &session), ST_OK);
        const exec_feed_t feeds[2] = {{"x", plan->inputs[0].type, x},
                                      {"y", plan->inputs[1].type, y}};
        const exec_fetch_t fetch = {"loss", &loss, sizeof loss};
        assert_int_equal(exec_session_step(session, 2, feeds, 1, &fetch), ST_OK);
        assert_true(fabs(loss - 2) < 1e-12);
        exec_session_destroy(session);
        plan_destroy(plan);
    }
    ir_graph_destroy(graph);
}

static const uint32_t up_to_four[] = {1, 2, 3, 4};

static void mlp_trains_equally(void **state) {
    (void)state;
    for (int64_t batch = 2; batch <= 8;
         batch += 3) { /* 2 on 3 ranks: one of them has nothing to do */
        ir_graph_t *forward = model_mlp(batch);
        ir_graph_t *graph = model_train(forward, "adamw", 1.0);
        for (int reference = 0; reference < 2; reference++)
            same_on_all_ranks(graph, reference, 5, up_to_four, 4);
        ir_graph_destroy(graph);
        ir_graph_destroy(forward);
    }
}

static void micro_batches_train_equally(void **state) {
    (void)state;
    ir_graph_t *forward = model_mlp(5);
    ir_graph_t *graph = model_train_with(forward, "adamw", 1.0, 3, 0.9);
    same_on_all_ranks(graph, true, 5, up_to_four, 4);
    ir_graph_destroy(graph);
    ir_graph_destroy(forward);
}

static void many_ranks_train_equally(void **state) {
    (void)state;
    static const uint32_t many[] = {1, 8, 11, 16};
    ir_graph_t *forward = model_mlp(13);
    ir_graph_t *graph = model_train(forward, "adamw", 1.0);
    same_on_all_ranks(graph, true, 3, many, 4);
    ir_graph_destroy(graph);
    ir_graph_destroy(forward);
}

static void conv_net_trains_equally(void **state) {
    (void)state;
    for (int64_t batch = 3; batch <= 6; batch += 3) {
        ir_graph_t *forward = model_conv(batch);
        ir_graph_t *graph = model_train(forward, "sgd", 0);
        for (int reference = 0; reference < 2; reference++)
            same_on_all_ranks(graph, reference, 4, up_to_four, 4);
        ir_graph_destroy(graph);
        ir_graph_destroy(forward);
    }
}

static void random_graphs_compute_equally(void **state) {
    (void)state;
    static const uint32_t ranks[] = {1, 2, 3, 5};
    for (unsigned seed = 1; seed <= 60; seed++) {
        ir_graph_t *graph = model_random(seed, 4 + seed % 3, 6 + (int)(seed % 40));
        same_on_all_ranks(graph, seed % 2, 2, ranks, 4);
        ir_graph_destroy(graph);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(axes_without_a_split_train_equally),
        cmocka_unit_test(a_mean_is_over_all_ranks_valid_tokens),
        cmocka_unit_test(mlp_trains_equally),
        cmocka_unit_test(micro_batches_train_equally),
        cmocka_unit_test(many_ranks_train_equally),
        cmocka_unit_test(conv_net_trains_equally),
        cmocka_unit_test(random_graphs_compute_equally),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
