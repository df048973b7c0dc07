/* Sessions: feeding and fetching, state, sharing, failures, and what a step costs in allocations.
 */
#include "exec/session.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "exec/models.h"
#include "ir/text.h"

static ir_graph_t *parse(const char *text) {
    ir_graph_t *graph = NULL;
    st_status_t status = ir_graph_parse(text, strlen(text), &graph);
    if (status != ST_OK) print_error("%s\n", st_last_error());
    assert_int_equal(status, ST_OK);
    return graph;
}

static plan_t *plan_of(const char *text, uint32_t n_ranks) {
    ir_graph_t *graph = parse(text);
    compile_options_t options = {.n_ranks = n_ranks, .reference_kernels = true};
    plan_t *plan = compile_ok(graph, &options);
    ir_graph_destroy(graph);
    return plan;
}

static exec_session_t *session_of(const plan_t *plan, exec_session_t *share) {
    exec_session_t *session = NULL;
    exec_options_t options = {.poison = true, .timeout_ms = 30000};
    st_status_t status = exec_session_create_with(plan, share, &options, &session);
    if (status != ST_OK) print_error("%s\n", st_last_error());
    assert_int_equal(status, ST_OK);
    return session;
}

static const ir_type_t f32_4 = {IR_F32, 1, {4}};

static void expect_error(st_status_t got, st_status_t wanted, const char *message) {
    assert_int_equal(got, wanted);
    if (!strstr(st_last_error(), message)) print_error("%s\n", st_last_error());
    assert_non_null(strstr(st_last_error(), message));
}

/* ---- feeds and fetches ---- */

static const char counter[] =
    "graph \"counter\" {\n"
    "  %0 x = input {dtype=f32, shape=[4]}\n"
    "  %1 w = buffer {dtype=f32, shape=[4]}\n"
    "  %2 s = reduce_sum(%0) {axes=[0]}\n"
    "  %3 d = sub(%1, %2)\n"
    "  update(%1, %3)\n"
    "  %4 y = mul(%0, %0)\n"
    "  output \"y\" = %4\n"
    "  output \"old\" = %1\n"
    "  alias \"v\" = \"w\"\n"
    "}\n";

static void a_step_feeds_runs_and_delivers(void **state) {
    (void)state;
    for (uint32_t n_ranks = 1; n_ranks <= 6; n_ranks++) { /* 4 rows on 6 ranks: two have none */
        plan_t *plan = plan_of(counter, n_ranks);
        exec_session_t *session = session_of(plan, NULL);
        float x[4] = {1, 2, 3, 4}, w[4] = {100, 200, 300, 400}, y[4], old[4], now[4];
        exec_feed_t feed = {"x", f32_4, x};
        exec_fetch_t fetch[] = {{"old", old, sizeof old}, {"y", y, sizeof y}};
        assert_int_equal(exec_state_write(session, "v", &f32_4, w), ST_OK);
        for (int step = 1; step <= 3; step++) {
            memset(y, 0xff, sizeof y);
            assert_int_equal(exec_session_step(session, 1, &feed, 2, fetch), ST_OK);
            assert_int_equal(exec_state_read(session, "w", &f32_4, now), ST_OK);
            for (int i = 0; i < 4; i++) {
                assert_true(y[i] == x[i] * x[i]);
                assert_true(old[i] == w[i] - 10 * (float)(step - 1));
                assert_true(now[i] == w[i] - 10 * (float)step);
            }
            assert_true(exec_last_step_us(session) >= exec_last_wait_us(session));
        }
        assert_int_equal(exec_session_step(session, 1, &feed, 0, NULL), ST_OK);
        exec_session_destroy(session);
        plan_destroy(plan);
    }
}

/* Splits along another dim than the first are strided. */
static void inner_dims_split_too(void **state) {
    (void)state;
    plan_t *plan = plan_of(
        "graph \"g\" {\n"
        "  %0 x = input {dtype=i32, shape=[2,3,2], batch_axis=1}\n"
        "  %1 y = neg(%0)\n"
        "  output \"y\" = %1\n"
        "}\n",
        2);
    assert_int_equal(plan->outputs[0].placements[0].kind, IR_SPLIT);
    exec_session_t *session = session_of(plan, NULL);
    int32_t x[12], y[12];
    for (int i = 0; i < 12; i++) x[i] = i + 1;
    exec_feed_t feed = {"x", {IR_I32, 3, {2, 3, 2}}, x};
    exec_fetch_t fetch = {"y", y, sizeof y};
    assert_int_equal(exec_session_step(session, 1, &feed, 1, &fetch), ST_OK);
    for (int i = 0; i < 12; i++) assert_int_equal(y[i], -x[i]);
    exec_session_destroy(session);
    plan_destroy(plan);
}

static void wrong_feeds_are_errors_and_nothing_runs(void **state) {
    (void)state;
    plan_t *plan = plan_of(counter, 2);
    exec_session_t *session = session_of(plan, NULL);
    float x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, y[4];
    exec_feed_t good = {"x", f32_4, x}, two[2] = {{"x", f32_4, x}, {"x", f32_4, x}};
    exec_feed_t other = {"q", f32_4, x}, longer = {"x", {IR_F32, 1, {8}}, x};
    exec_feed_t wider = {"x", {IR_F64, 1, {4}}, x}, none = {"x", f32_4, NULL};
    exec_fetch_t fetch = {"y", y, sizeof y}, unknown = {"q", y, sizeof y}, small = {"y", y, 4};
    exec_fetch_t twice[2] = {fetch, fetch};
    expect_error(exec_session_step(session, 0, NULL, 0, NULL), ST_INVALID,
                 "input 'x' f32[4] is not fed");
    expect_error(exec_session_step(session, 1, &other, 0, NULL), ST_NOT_FOUND, "the inputs are: x");
    expect_error(exec_session_step(session, 1, &longer, 0, NULL), ST_INVALID,
                 "'x' is f32[8], the plan was compiled for f32[4]");
    expect_error(exec_session_step(session, 1, &wider, 0, NULL), ST_INVALID, "'x' is f64[4]");
    expect_error(exec_session_step(session, 1, &none, 0, NULL), ST_INVALID, "no data");
    expect_error(exec_session_step(session, 2, two, 0, NULL), ST_INVALID, "fed twice");
    expect_error(exec_session_step(session, 1, &good, 1, &unknown), ST_NOT_FOUND,
                 "the outputs are: y, old");
    expect_error(exec_session_step(session, 1, &good, 1, &small), ST_INVALID,
                 "has 16 bytes, room is given for 4");
    expect_error(exec_session_step(session, 1, &good, 2, twice), ST_INVALID, "fetched twice");
    float w[4];
    assert_int_equal(exec_state_read(session, "w", &f32_4, w), ST_OK);
    for (int i = 0; i < 4; i++) assert_true(w[i] == 0);
    expect_error(exec_state_read(session, "x", &f32_4, w), ST_NOT_FOUND, "'x'");
    expect_error(exec_state_write(session, "w", &longer.type, x), ST_INVALID,
                 "'w' is f32[4], not f32[8]");
    assert_int_equal(exec_session_step(session, 1, &good, 1, &fetch), ST_OK); /* still usable */
    exec_session_destroy(session);
    exec_session_destroy(NULL);
    plan_destroy(plan);
}

/* ---- failures on a rank ---- */

static const char lookup[] =
    "graph \"lookup\" {\n"
    "  %0 idx = input {dtype=i64, shape=[4]}\n"
    "  %1 table = parameter {dtype=f32, shape=[3,2]}\n"
    "  %2 embed = gather(%1, %0) {axis=0}\n"
    "  %3 s = reduce_sum(%2) {axes=[0]}\n"
    "  %4 e = exp(%3)\n"
    "  output \"e\" = %4\n"
    "}\n";

static void a_rank_that_fails_ends_the_step_for_all(void **state) {
    (void)state;
    plan_t *plan = plan_of(lookup, 2);
    exec_session_t *session = session_of(plan, NULL);
    int64_t idx[4] = {0, 1, 2, 7}; /* the last is on rank 1 */
    exec_feed_t feed = {"idx", {IR_I64, 1, {4}}, idx};
    expect_error(exec_session_step(session, 1, &feed, 0, NULL), ST_INVALID, "rank 1: step 1: node");
    assert_non_null(strstr(st_last_error(), "'embed'"));
    assert_non_null(strstr(st_last_error(), "7"));
    idx[3] = 0; /* latched */
    expect_error(exec_session_step(session, 1, &feed, 0, NULL), ST_INVALID, "rank 1: step 1: node");
    float table[6];
    ir_type_t type = {IR_F32, 2, {3, 2}};
    assert_int_equal(exec_state_read(session, "table", &type, table), ST_OK);
    exec_session_destroy(session);
    plan_destroy(plan);
}

static void a_plan_for_another_build_is_refused(void **state) {
    (void)state;
    plan_t *plan = plan_of(counter, 2);
    exec_session_t *session = NULL;
    for (size_t n = 0; n < plan->programs[0].graph->nodes.n; n++)
        if (plan->programs[0].steps[n].kernel) plan->programs[0].steps[n].kernel = "cpu.none.such";
    expect_error(exec_session_create(plan, NULL, &session), ST_UNSUPPORTED, "cpu.none.such");
    assert_null(session);
    plan_destroy(plan);
}

/* ---- memory ---- */

static void a_plan_of_other_kernels_is_noted(void **state) {
    (void)state;
    ir_graph_t *graph = model_conv(6);
    compile_options_t options = {.n_ranks = 2};
    plan_t *plan = compile_ok(graph, &options);
    exec_session_t *session = session_of(plan, NULL);
    assert_string_equal(exec_session_note(session), "");
    exec_session_destroy(session);
    for (uint32_t i = 0; i < plan->n_options; i++) {
        const char *key = plan->options[i].key;
        if (strcmp(key, "kernels") == 0) plan->options[i].value = "v9";
        if (strcmp(key, "libraries") == 0) plan->options[i].value = "abacus 1.0";
    }
    session = session_of(plan, NULL);
    assert_non_null(strstr(exec_session_note(session), "kernels 'v9', here"));
    assert_non_null(strstr(exec_session_note(session), "libraries 'abacus 1.0', here"));
    exec_session_destroy(session);
    plan_destroy(plan);
    ir_graph_destroy(graph);
}

static void regions_are_those_of_the_plan(void **state) {
    (void)state;
    ir_graph_t *forward = model_mlp(7), *graph = model_train(forward, "adamw", 1.0);
    compile_options_t options = {.n_ranks = 3, .reference_kernels = true, .feed_ahead = COMPILE_ON};
    plan_t *plan = compile_ok(graph, &options);
    exec_session_t *session = session_of(plan, NULL);
    for (uint32_t r = 0; r < 3; r++)
        for (int region = PLAN_STATE; region < PLAN_REGION_END; region++) {
            uint64_t planned = plan->programs[plan->program_of[r]].region_bytes[region];
            assert_true(planned > 0);
            assert_int_equal(exec_region_bytes(session, r, (plan_region_t)region), planned);
        }
    assert_int_equal(exec_region_bytes(session, 9, PLAN_WORK), 0);
    exec_session_destroy(session);
    plan_destroy(plan);
    ir_graph_destroy(graph);
    ir_graph_destroy(forward);
}

static void later_steps_allocate_nothing(void **state) {
    (void)state;
    plan_t *plan = plan_of(counter, 3);
    exec_session_t *session = session_of(plan, NULL);
    float x[4] = {1, 2, 3, 4}, y[4];
    exec_feed_t feed = {"x", f32_4, x};
    exec_fetch_t fetch = {"y", y, sizeof y};
    assert_int_equal(exec_session_step(session, 1, &feed, 1, &fetch), ST_OK);
    uint64_t before = st_memory_allocations();
    for (int step = 0; step < 20; step++)
        assert_int_equal(exec_session_step(session, 1, &feed, 1, &fetch), ST_OK);
    assert_int_equal(st_memory_allocations(), before);
    exec_session_destroy(session);
    plan_destroy(plan);
}

static void a_profile_counts_what_ran(void **state) {
    (void)state;
    plan_t *plan = plan_of(counter, 2);
    exec_session_t *session = NULL;
    exec_options_t options = {.profile = true};
    assert_int_equal(exec_session_create_with(plan, NULL, &options, &session), ST_OK);
    float x[4] = {1, 2, 3, 4};
    exec_feed_t feed = {"x", f32_4, x};
    for (int step = 0; step < 7; step++)
        assert_int_equal(exec_session_step(session, 1, &feed, 0, NULL), ST_OK);
    const exec_profile_row_t *rows;
    size_t n = exec_profile(session, &rows);
    bool seen_wait = false, seen_sum = false;
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(rows[i].n_calls, 6); /* each op once a step, the first is not counted */
        assert_true(i == 0 || rows[i].us <= rows[i - 1].us);
        seen_wait |= strcmp(rows[i].what, "wait") == 0;
        seen_sum |= strcmp(rows[i].what, "cpu.reduce_sum.reference") == 0;
    }
    assert_true(seen_wait && seen_sum);
    exec_session_destroy(session);
    plan_destroy(plan);
}

/* ---- training and evaluation over one state ---- */

static double loss_of(exec_session_t *session, const plan_t *plan) {
    float loss = NAN;
    exec_feed_t feeds[4];
    exec_fetch_t fetch = {"loss", &loss, sizeof loss};
    for (uint32_t i = 0; i < plan->n_inputs; i++) {
        void *data = st_malloc(ir_type_bytes(&plan->inputs[i].type));
        fill_random(&plan->inputs[i].type, data, 17 + i, 5);
        feeds[i] = (exec_feed_t){plan->inputs[i].name, plan->inputs[i].type, data};
    }
    st_status_t status = exec_session_step(session, plan->n_inputs, feeds, 1, &fetch);
    if (status != ST_OK) print_error("%s\n", st_last_error());
    assert_int_equal(status, ST_OK);
    for (uint32_t i = 0; i < plan->n_inputs; i++) st_free((void *)(uintptr_t)feeds[i].data);
    return loss;
}

static void evaluation_sees_the_trained_state(void **state) {
    (void)state;
    ir_graph_t *forward = model_conv(6), *graph = model_train(forward, "sgd", 0);
    compile_options_t options = {.n_ranks = 2, .reference_kernels = true};
    plan_t *train_plan = compile_ok(graph, &options);
    options.evaluation = true;
    options.state_of = train_plan;
    plan_t *eval_plan = compile_ok(forward, &options);
    exec_session_t *train = session_of(train_plan, NULL), *eval = NULL;
    expect_error(exec_session_create(eval_plan, NULL, &eval), ST_INVALID, "state_of");
    eval = session_of(eval_plan, train);
    fill_states(train, train_plan);
    double before = loss_of(eval, eval_plan), again = loss_of(eval, eval_plan);
    assert_true(before == again); /* evaluation changes nothing and draws nothing */
    for (int step = 0; step < 30; step++) loss_of(train, train_plan);
    double after = loss_of(eval, eval_plan);
    assert_true(after < 0.8 * before);
    assert_int_equal(exec_region_bytes(eval, 1, PLAN_STATE),
                     exec_region_bytes(train, 1, PLAN_STATE));
    exec_session_destroy(eval);

    /* laid out by itself it is refused */
    options.state_of = NULL;
    plan_t *own_plan = compile_ok(forward, &options);
    exec_session_t *own = NULL;
    expect_error(exec_session_create(own_plan, train, &own), ST_INVALID, "state_of");
    options.n_ranks = 3;
    plan_t *three = compile_ok(forward, &options);
    expect_error(exec_session_create(three, train, &own), ST_INVALID, "3 ranks");
    plan_destroy(three);
    plan_destroy(own_plan);
    exec_session_destroy(train);
    plan_destroy(eval_plan);
    plan_destroy(train_plan);
    ir_graph_destroy(graph);
    ir_graph_destroy(forward);
}

/* ---- creation under memory pressure ---- */

static void allocation_failures_are_reported(void **state) {
    (void)state;
    plan_t *plan = plan_of(counter, 2);
    float x[4] = {1, 2, 3, 4};
    exec_feed_t feed = {"x", f32_4, x};
    int64_t at = 0;
    for (st_status_t status = ST_NO_MEMORY; status != ST_OK; at++) {
        exec_session_t *session = NULL;
        exec_options_t options = {.timeout_ms = 20000};
        st_memory_fail_after(at, false);
        status = exec_session_create_with(plan, NULL, &options, &session);
        if (status == ST_OK) status = exec_session_step(session, 1, &feed, 0, NULL);
        st_memory_fail_after(-1, false);
        if (status != ST_OK && status != ST_NO_MEMORY) /* another rank may hear of it first */
            assert_int_equal(status, ST_PEER_LOST);
        exec_session_destroy(session);
    }
    assert_true(at > 20);
    plan_destroy(plan);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_feeds_runs_and_delivers),
        cmocka_unit_test(inner_dims_split_too),
        cmocka_unit_test(wrong_feeds_are_errors_and_nothing_runs),
        cmocka_unit_test(a_rank_that_fails_ends_the_step_for_all),
        cmocka_unit_test(a_plan_for_another_build_is_refused),
        cmocka_unit_test(a_plan_of_other_kernels_is_noted),
        cmocka_unit_test(regions_are_those_of_the_plan),
        cmocka_unit_test(later_steps_allocate_nothing),
        cmocka_unit_test(a_profile_counts_what_ran),
        cmocka_unit_test(evaluation_sees_the_trained_state),
        cmocka_unit_test(allocation_failures_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
