/* Steps that go on while the caller does other things, and outputs read afterwards. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "exec/models.h"
#include "ir/text.h"

/* Many products, so that a step takes a while; `y` is split, `s` whole. */
static const char text[] =
    "graph \"g\" {\n"
    "  %0 x = input {dtype=f32, shape=[96,96], batch_axis=0}\n"
    "  %1 w = buffer {dtype=f32, shape=[96,96]}\n"
    "  %2 a = matmul(%0, %1)\n"
    "  %3 b = matmul(%2, %1)\n"
    "  %4 c = matmul(%3, %1)\n"
    "  %5 y = add(%4, %0)\n"
    "  %6 s = reduce_sum(%5) {axes=[0,1]}\n"
    "  output \"y\" = %5\n"
    "  output \"s\" = %6\n"
    "}\n";

enum { N = 96 * 96 };
static float x[N], y[N], again[N];
static const ir_type_t type = {IR_F32, 2, {96, 96}};

static plan_t *make_plan_with(uint32_t n_ranks, compile_switch_t feed_ahead) {
    ir_graph_t *graph;
    compile_options_t options = {.n_ranks = n_ranks, .feed_ahead = feed_ahead};
    assert_int_equal(ir_graph_parse(text, strlen(text), &graph), ST_OK);
    plan_t *plan = compile_ok(graph, &options);
    ir_graph_destroy(graph);
    return plan;
}

static plan_t *make_plan(uint32_t n_ranks) {
    return make_plan_with(n_ranks, COMPILE_AUTO);
}

static void expect_error(st_status_t got, st_status_t wanted, const char *message) {
    assert_int_equal(got, wanted);
    if (!strstr(st_last_error(), message)) fail_msg("%s", st_last_error());
}

static void start_and_wait_do_what_step_does(void **state) {
    (void)state;
    for (uint32_t n_ranks = 1; n_ranks <= 3; n_ranks++) {
        plan_t *plan = make_plan(n_ranks);
        exec_session_t *session;
        exec_feed_t feed = {"x", type, x};
        float s = 0, s_again = 0;
        exec_fetch_t fetches[] = {{"y", y, sizeof y}, {"s", &s, sizeof s}};
        assert_int_equal(exec_session_create(plan, NULL, &session), ST_OK);
        fill_states(session, plan);
        fill_random(&type, x, 7, 2);
        assert_int_equal(exec_session_step(session, 1, &feed, 2, fetches), ST_OK);
        fetches[0].data = again;
        fetches[1].data = &s_again;
        for (int i = 0; i < 20; i++) {
            memset(again, 0xff, sizeof again);
            assert_int_equal(exec_session_step_start(session, 1, &feed, 2, fetches), ST_OK);
            if (i % 2)
                while (!exec_session_step_done(session)) continue;
            assert_int_equal(exec_session_step_wait(session), ST_OK);
            assert_memory_equal(y, again, sizeof y);
            assert_memory_equal(&s, &s_again, sizeof s);
            assert_true(exec_last_step_us(session) > 0);
        }
        exec_session_destroy(session);
        plan_destroy(plan);
    }
}

static void calls_out_of_turn_are_errors(void **state) {
    (void)state;
    plan_t *plan = make_plan(2);
    exec_session_t *session;
    exec_feed_t feed = {"x", type, x};
    exec_fetch_t fetch = {"y", y, sizeof y};
    assert_int_equal(exec_session_create(plan, NULL, &session), ST_OK);
    expect_error(exec_session_step_wait(session), ST_INVALID, "no step is in progress");
    assert_int_equal(exec_session_step_start(session, 1, &feed, 0, NULL), ST_OK);
    const char *says = "a step is in progress: wait for it first";
    expect_error(exec_session_step_start(session, 1, &feed, 0, NULL), ST_INVALID, says);
    expect_error(exec_session_step(session, 1, &feed, 0, NULL), ST_INVALID, says);
    expect_error(exec_session_fetch(session, &fetch), ST_INVALID, says);
    expect_error(exec_state_read(session, "w", &type, y), ST_INVALID, says);
    expect_error(exec_state_write(session, "w", &type, y), ST_INVALID, says);
    expect_error(exec_measure(session, true), ST_INVALID, says);
    assert_int_equal(exec_session_step_wait(session), ST_OK);
    expect_error(exec_session_step_wait(session), ST_INVALID, "no step is in progress");
    /* what is wrong with the feeds is said at once, and nothing has begun */
    feed.name = "q";
    expect_error(exec_session_step_start(session, 1, &feed, 0, NULL), ST_NOT_FOUND, "'q'");
    expect_error(exec_session_step_wait(session), ST_INVALID, "no step is in progress");
    feed.name = "x"; /* destroyed in the middle of a step */
    assert_int_equal(exec_session_step_start(session, 1, &feed, 0, NULL), ST_OK);
    exec_session_destroy(session);
    plan_destroy(plan);
}

static void outputs_can_be_fetched_after_the_step(void **state) {
    (void)state;
    for (uint32_t n_ranks = 1; n_ranks <= 3; n_ranks++) {
        plan_t *plan = make_plan(n_ranks);
        exec_session_t *session;
        exec_feed_t feed = {"x", type, x};
        exec_fetch_t in_step = {"y", y, sizeof y}, after = {"y", again, sizeof again};
        assert_int_equal(exec_session_create(plan, NULL, &session), ST_OK);
        fill_states(session, plan);
        fill_random(&type, x, 9, 2);
        expect_error(exec_session_fetch(session, &after), ST_INVALID, "no step was run");
        for (int i = 0; i < 3; i++) {
            assert_int_equal(exec_session_step(session, 1, &feed, 1, &in_step), ST_OK);
            memset(again, 0xff, sizeof again);
            assert_int_equal(exec_session_fetch(session, &after), ST_OK);
            assert_memory_equal(y, again, sizeof y);
            x[i] += 1;
        }
        after.name = "q";
        expect_error(exec_session_fetch(session, &after), ST_NOT_FOUND, "there is no output 'q'");
        exec_session_destroy(session);
        plan_destroy(plan);
    }
}

/* Each step's output is that of its own input, fed at once; the input of the step after is written
 * over the same host memory as soon as it has been handed over. */
static void inputs_fed_ahead_are_those_of_the_next_step(void **state) {
    (void)state;
    enum { STEPS = 12 };
    static float wanted[STEPS][N];
    for (uint32_t n_ranks = 1; n_ranks <= 3; n_ranks++) {
        plan_t *plan = make_plan_with(n_ranks, COMPILE_ON);
        exec_session_t *session;
        exec_feed_t feed = {"x", type, x};
        exec_fetch_t fetch = {"y", y, sizeof y};
        assert_int_equal(exec_session_create(plan, NULL, &session), ST_OK);
        fill_states(session, plan);
        expect_error(exec_session_step(session, 0, NULL, 0, NULL), ST_INVALID, "'x'");
        for (int i = 0; i < STEPS; i++) {
            fill_random(&type, x, (uint64_t)i, 2);
            fetch.data = wanted[i];
            assert_int_equal(exec_session_step(session, 1, &feed, 1, &fetch), ST_OK);
        }
        fetch.data = y;
        fill_random(&type, x, 0, 2);
        assert_int_equal(exec_session_feed(session, 1, &feed), ST_OK);
        for (int i = 0; i < STEPS; i++) {
            assert_int_equal(exec_session_step_start(session, 0, NULL, 1, &fetch), ST_OK);
            fill_random(&type, x, (uint64_t)i + 1, 2);
            if (i + 1 < STEPS) assert_int_equal(exec_session_feed(session, 1, &feed), ST_OK);
            assert_int_equal(exec_session_step_wait(session), ST_OK);
            assert_memory_equal(y, wanted[i], sizeof y);
        }
        /* they stay, beside steps with feeds of their own */
        fill_random(&type, x, 3, 2);
        assert_int_equal(exec_session_step(session, 1, &feed, 1, &fetch), ST_OK);
        assert_memory_equal(y, wanted[3], sizeof y);
        assert_int_equal(exec_session_step(session, 0, NULL, 1, &fetch), ST_OK);
        assert_memory_equal(y, wanted[STEPS - 1], sizeof y);
        feed.name = "q";
        expect_error(exec_session_feed(session, 1, &feed), ST_NOT_FOUND, "'q'");
        exec_session_destroy(session);
        plan_destroy(plan);
    }
    plan_t *plan = make_plan(1);
    exec_session_t *session;
    exec_feed_t feed = {"x", type, x};
    assert_int_equal(exec_session_create(plan, NULL, &session), ST_OK);
    expect_error(exec_session_feed(session, 1, &feed), ST_INVALID, "feed-ahead=on");
    exec_session_destroy(session);
    plan_destroy(plan);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(start_and_wait_do_what_step_does),
        cmocka_unit_test(calls_out_of_turn_are_errors),
        cmocka_unit_test(inputs_fed_ahead_are_those_of_the_next_step),
        cmocka_unit_test(outputs_can_be_fetched_after_the_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
