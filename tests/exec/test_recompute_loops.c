/* Recomputation in loops over micro-batches and turns, and what fits where nothing does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "autodiff/train_graph.h"
#include "base/number.h"
#include "compile/recompute.h"
#include "exec/recompute_checks.h"

static void recurrent_layers_train_to_the_same_bits(void **state) {
    (void)state;
    same_bits_on_ranks(model_recurrent(6, 3), "adamw", 1, 1);
    same_bits_on_ranks(model_recurrent(6, 3), "adamw", 2, 1);
}

/* What is kept stands in the loop's body, and is made again there. */
static void limits_are_kept_in_loops_over_micro_batches(void **state) {
    (void)state;
    keep_limits(model_deep(256, 5), 4, 0.25);
}

static void limits_are_kept_over_recurrent_layers(void **state) {
    (void)state;
    keep_limits(model_recurrent(24, 3), 1, 0.03);
    keep_limits(model_recurrent(24, 3), 2, 0.03);
}

static int64_t accumulate_within = 1;

static st_status_t compile_within(int64_t batch, uint32_t n_ranks, uint64_t limit, bool advice,
                                  uint64_t *out_bytes) {
    ir_graph_t *forward = model_deep(batch, 2);
    ir_graph_t *graph = model_train_with(forward, "sgd", 0, accumulate_within, 0);
    compile_options_t options = {.n_ranks = n_ranks,
                                 .n_threads = 1,
                                 .no_fusion = true,
                                 .memory_limit = limit,
                                 .no_advice = !advice};
    plan_t *plan;
    st_status_t status = compile_plan(graph, &options, &plan);
    if (status == ST_OK) *out_bytes = compile_rank_bytes(plan);
    plan_destroy(plan);
    ir_graph_destroy(graph);
    ir_graph_destroy(forward);
    return status;
}

/* What the error says would fit does, and one item more or one rank less does not. */
static void check_advice(int64_t accumulate) {
    accumulate_within = accumulate;
    uint64_t all, bytes;
    assert_int_equal(compile_within(200, 1, 0, true, &all), ST_OK);
    const uint64_t limit = all / 3;
    long long items = 0, now = 0;
    unsigned ranks = 0, ranks_now = 0;
    assert_int_equal(compile_within(200, 1, limit, true, &bytes), ST_DOES_NOT_FIT);
    assert_non_null(strstr(st_last_error(), "; the largest tensor at its peak is '"));
    assert_non_null(strstr(st_last_error(), "KiB; a batch of"));
    const char *batch = strstr(st_last_error(), "; a batch of");
    const char *more = strstr(st_last_error(), "each") ? strstr(batch + 1, "; ") : NULL;
    assert_non_null(batch);
    assert_non_null(more);
    assert_int_equal(sscanf(batch, "; a batch of %lld (now %lld) needs", &items, &now), 2);
    assert_int_equal(sscanf(more, "; %u ranks (now %u) need", &ranks, &ranks_now), 2);
    assert_true(now == 200 && ranks_now == 1 && items < 200 && ranks > 1);
    assert_int_equal(compile_within(items, 1, limit, false, &bytes), ST_OK);
    assert_true(bytes <= limit);
    assert_int_equal(compile_within(items + 1, 1, limit, false, &bytes), ST_DOES_NOT_FIT);
    assert_int_equal(compile_within(200, ranks, limit, false, &bytes), ST_OK);
    assert_true(bytes <= limit);
    if (ranks > 2)
        assert_int_equal(compile_within(200, ranks - 1, limit, false, &bytes), ST_DOES_NOT_FIT);
}

static void advice_is_true_and_tight(void **state) {
    (void)state;
    check_advice(1);
}

/* The batch is that of one of the micro-batches. */
static void advice_for_micro_batches_is_true_and_tight(void **state) {
    (void)state;
    check_advice(3);
}

/* Where nothing fits it says so, and what the least that was tried needs. */
static void where_nothing_fits_the_least_is_told(void **state) {
    (void)state;
    uint64_t bytes;
    char size[ST_NUMBER_BYTES], alone[96];
    accumulate_within = 1;
    ir_graph_t *forward = model_deep(1, 2);
    ir_graph_t *graph = model_train_with(forward, "sgd", 0, 1, 0);
    compile_options_t options = {.n_threads = 1, .no_fusion = true};
    plan_t *plan = compile_ok(graph, &options);
    const uint64_t state_bytes = plan->programs[0].region_bytes[PLAN_STATE];
    plan_destroy(plan);
    ir_graph_destroy(graph);
    ir_graph_destroy(forward);
    snprintf(alone, sizeof alone, "; no batch fits: the state alone needs %s;",
             st_size_text(state_bytes, size));
    assert_int_equal(compile_within(200, 1, state_bytes / 4, true, &bytes), ST_DOES_NOT_FIT);
    if (!strstr(st_last_error(), alone)) fail_msg("'%s' lacks '%s'", st_last_error(), alone);
    assert_non_null(strstr(st_last_error(),
                           "; 16 ranks (now 1) with --shard zero3 do not fit either: they need "));
}

/* Parameters and both moments of two layers: the limits are below these alone. */
static st_status_t compile_state(const ir_mesh_t *mesh, shard_form_t form, uint64_t limit,
                                 const plan_t *state_of, plan_t **out_plan) {
    ir_graph_t *forward = model_deep(64, 2);
    ir_graph_t *graph = model_train_with(forward, "adamw", 0, 1, 0);
    compile_options_t options = {
        .mesh = *mesh, .form = form, .n_threads = 1, .memory_limit = limit, .state_of = state_of};
    st_status_t status = compile_plan(graph, &options, out_plan);
    ir_graph_destroy(graph);
    ir_graph_destroy(forward);
    return status;
}

/* The mesh that it names fits, and no smaller one of that form does. */
static void where_the_state_alone_does_not_fit_a_mesh_that_splits_it_is_named(void **state) {
    (void)state;
    const ir_mesh_t one = ir_mesh_of_ranks(1), two = ir_mesh_of_ranks(2);
    const ir_mesh_t *const meshes[] = {&one, &two};
    plan_t *owner, *plan;
    assert_int_equal(compile_state(&one, SHARD_FORM_DP, 0, NULL, &owner), ST_OK);
    const uint64_t all = owner->programs[0].region_bytes[PLAN_STATE], limit = all - 1;
    char needs[64], size[ST_NUMBER_BYTES];
    snprintf(needs, sizeof needs, "; no batch fits: the state alone needs %s;",
             st_size_text(all, size));
    for (int m = 0; m < 2; m++) {
        unsigned data = 0, ranks = 0, now = 0;
        assert_int_equal(compile_state(meshes[m], SHARD_FORM_DP, limit, NULL, &plan),
                         ST_DOES_NOT_FIT);
        const char *named = strstr(st_last_error(), "; with --mesh data=");
        if (!named || !strstr(st_last_error(), needs)) fail_msg("%s", st_last_error());
        assert_int_equal(sscanf(named, "; with --mesh data=%u --shard zero3 %u ranks (now %u) need",
                                &data, &ranks, &now),
                         3);
        assert_true(data == ranks && now == ir_mesh_ranks(meshes[m]) && data >= 2);
        ir_mesh_t mesh = ir_mesh_of_ranks(data);
        assert_int_equal(compile_state(&mesh, SHARD_FORM_ZERO3, limit, NULL, &plan), ST_OK);
        assert_true(compile_rank_bytes(plan) <= limit);
        plan_destroy(plan);
        if (data == 2) continue;
        mesh = ir_mesh_of_ranks(data - 1);
        assert_int_equal(compile_state(&mesh, SHARD_FORM_ZERO3, limit, NULL, &plan),
                         ST_DOES_NOT_FIT);
    }
    /* none of 16 ranks has so little; and what shares its state has the ranks that it has */
    assert_int_equal(compile_state(&one, SHARD_FORM_DP, 1024, NULL, &plan), ST_DOES_NOT_FIT);
    assert_non_null(strstr(st_last_error(), "--mesh data=N --shard zero3"));
    assert_int_equal(compile_state(&one, SHARD_FORM_DP, limit, owner, &plan), ST_DOES_NOT_FIT);
    assert_non_null(strstr(st_last_error(), "no batch fits"));
    assert_null(strstr(st_last_error(), "--mesh"));
    plan_destroy(owner);
}

/* Its ranks are those of the plan whose state it shares: only a smaller batch can help. */
static void a_plan_that_shares_state_and_does_not_fit_says_so(void **state) {
    (void)state;
    ir_graph_t *forward = model_deep(200, 2);
    ir_graph_t *graph = model_train_with(forward, "sgd", 0, 1, 0);
    for (uint32_t n_ranks = 1; n_ranks <= 2; n_ranks++) {
        compile_options_t options = {.n_ranks = n_ranks, .n_threads = 1, .no_fusion = true};
        plan_t *owner, *plan = NULL;
        assert_int_equal(compile_plan(graph, &options, &owner), ST_OK);
        options.state_of = owner;
        options.memory_limit = compile_rank_bytes(owner) / 3;
        assert_int_equal(compile_plan(graph, &options, &plan), ST_DOES_NOT_FIT);
        assert_null(plan);
        assert_non_null(strstr(st_last_error(), "the memory limit is"));
        assert_null(strstr(st_last_error(), "ranks (now"));
        assert_true((strstr(st_last_error(), "; a batch of") != NULL) == (n_ranks == 1));
        plan_destroy(owner);
    }
    ir_graph_destroy(graph);
    ir_graph_destroy(forward);
}

/* Plans made only to say what would fit are in no cache. */
static void advice_leaves_the_plan_cache_alone(void **state) {
    (void)state;
    char folder[] = "advice.XXXXXX";
    assert_non_null(mkdtemp(folder));
    ir_graph_t *forward = model_deep(200, 2);
    ir_graph_t *graph = model_train_with(forward, "sgd", 0, 1, 0);
    uint64_t all;
    assert_int_equal(compile_within(200, 1, 0, true, &all), ST_OK);
    compile_options_t options = {.n_ranks = 1,
                                 .n_threads = 1,
                                 .no_fusion = true,
                                 .memory_limit = all / 3,
                                 .plan_cache = folder};
    plan_t *plan = NULL;
    assert_int_equal(compile_plan(graph, &options, &plan), ST_DOES_NOT_FIT);
    assert_non_null(strstr(st_last_error(), "ranks (now 1) need")); /* such plans were made */
    assert_int_equal(rmdir(folder), 0);                             /* it is empty */
    ir_graph_destroy(graph);
    ir_graph_destroy(forward);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recurrent_layers_train_to_the_same_bits),
        cmocka_unit_test(limits_are_kept_in_loops_over_micro_batches),
        cmocka_unit_test(limits_are_kept_over_recurrent_layers),
        cmocka_unit_test(advice_is_true_and_tight),
        cmocka_unit_test(advice_for_micro_batches_is_true_and_tight),
        cmocka_unit_test(a_plan_that_shares_state_and_does_not_fit_says_so),
        cmocka_unit_test(where_nothing_fits_the_least_is_told),
        cmocka_unit_test(where_the_state_alone_does_not_fit_a_mesh_that_splits_it_is_named),
        cmocka_unit_test(advice_leaves_the_plan_cache_alone),
    };
    setenv("STATOR_POISON", "1", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
