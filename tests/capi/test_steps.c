/* Steps in two calls, values kept by option "fetch", and messages, through the public API. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "stator/stator.h"

#define assert_ok(expr)                                                                      \
    do {                                                                                     \
        stator_status_t status_ = (expr);                                                    \
        if (status_ != STATOR_OK)                                                            \
            fail_msg("%s: %s: %s", #expr, stator_status_text(status_), stator_last_error()); \
    } while (0)
#define assert_fails(expr, wanted, words)                                                    \
    do {                                                                                     \
        stator_status_t status_ = (expr);                                                    \
        if (status_ != (wanted) || !strstr(stator_last_error(), words))                      \
            fail_msg("%s: %s: %s", #expr, stator_status_text(status_), stator_last_error()); \
    } while (0)

enum { ROWS = 6, IN = 3, OUT = 2 };
static const float x[ROWS][IN] = {{1, 2, 3},  {-1, 0, 2}, {4, -2, 1},
                                  {0, 5, -3}, {2, 2, -2}, {-3, 1, 1}};
static const float w[IN][OUT] = {{1, -1}, {0.5f, 2}, {-2, 0.25f}};
static const stator_tensor_t feed = {"x",        STATOR_DTYPE_F32,     2,
                                     {ROWS, IN}, (void *)(uintptr_t)x, sizeof x};
static const stator_tensor_t weight = {"w",       STATOR_DTYPE_F32,     2,
                                       {IN, OUT}, (void *)(uintptr_t)w, sizeof w};

/* loss = sum of relu(x w); the product is "hidden". */
static stator_graph_t *build(void) {
    stator_graph_t *graph;
    stator_value_t in[2], h, r, loss;
    assert_ok(stator_graph_create("g", &graph));
    assert_ok(stator_graph_add_port(graph, STATOR_INPUT, &feed, &in[0]));
    assert_ok(stator_graph_add_port(graph, STATOR_PARAMETER, &weight, &in[1]));
    assert_ok(stator_graph_add(graph, "matmul", "hidden", 2, in, NULL, &h));
    assert_ok(stator_graph_add(graph, "relu", NULL, 1, &h, NULL, &r));
    assert_ok(stator_graph_add(graph, "reduce_sum", NULL, 1, &r, "axes=[0,1]", &loss));
    assert_ok(stator_graph_add_output(graph, "loss", loss));
    return graph;
}

static void hidden_by_hand(float out[ROWS][OUT]) {
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < OUT; j++) {
            out[i][j] = 0;
            for (int k = 0; k < IN; k++) out[i][j] += x[i][k] * w[k][j];
        }
}
/* d loss / d w: each row that is above zero counts. */
static void gradient_by_hand(float out[IN][OUT]) {
    float h[ROWS][OUT];
    hidden_by_hand(h);
    memset(out, 0, IN * OUT * sizeof(float));
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < OUT; j++)
            for (int k = 0; h[i][j] > 0 && k < IN; k++) out[k][j] += x[i][k];
}

typedef struct world {
    stator_options_t *options;
    stator_graph_t *graph, *step;
    stator_plan_t *plan;
    stator_session_t *session;
} world_t;

static void open_world(world_t *o, const char *ranks, const char *fetch) {
    *o = (world_t){.graph = build()};
    assert_ok(stator_options_create(&o->options));
    assert_ok(stator_options_set(o->options, "threads", "1"));
    assert_ok(stator_options_set(o->options, "ranks", ranks));
    assert_ok(stator_options_set(o->options, "optimizer", "sgd"));
    assert_ok(stator_options_set(o->options, "lr", "0"));
    assert_ok(stator_options_set(o->options, "fetch", fetch));
    assert_ok(stator_graph_make_training(o->graph, o->options, &o->step));
    assert_ok(stator_plan_compile(o->step, o->options, NULL, &o->plan));
    assert_ok(stator_session_create(o->plan, NULL, &o->session));
    assert_ok(stator_session_write(o->session, &weight));
}
static void close_world(world_t *o) {
    stator_session_destroy(o->session);
    stator_plan_destroy(o->plan);
    stator_graph_destroy(o->step);
    stator_graph_destroy(o->graph);
    stator_options_destroy(o->options);
}

static void kept_values_are_right_on_any_number_of_ranks(void **state) {
    (void)state;
    static const char *const ranks[] = {"1", "2", "3", "4"};
    float wanted_h[ROWS][OUT], wanted_g[IN][OUT], h[ROWS][OUT], g[IN][OUT];
    hidden_by_hand(wanted_h);
    gradient_by_hand(wanted_g);
    for (int i = 0; i < 4; i++) {
        world_t o;
        open_world(&o, ranks[i], "hidden,grad.w,loss");
        stator_fetch_t with_step = {"hidden", h, sizeof h};
        assert_fails(stator_session_fetch(o.session, "hidden", h, sizeof h), STATOR_INVALID,
                     "no step was run");
        assert_ok(stator_session_step(o.session, 1, &feed, 1, &with_step));
        assert_memory_equal(h, wanted_h, sizeof h); /* small whole numbers and fractions: exact */
        memset(h, 0xff, sizeof h);
        assert_ok(stator_session_fetch(o.session, "hidden", h, sizeof h));
        assert_memory_equal(h, wanted_h, sizeof h);
        assert_ok(stator_session_fetch(o.session, "grad.w", g, sizeof g));
        assert_memory_equal(g, wanted_g, sizeof g);
        assert_fails(stator_session_fetch(o.session, "hidden", h, 4), STATOR_INVALID, "48 bytes");
        close_world(&o);
    }
}

/* The product is value 2 of the graph that the training step is made of, whatever it is in the
 * step's. */
static void a_value_without_a_name_is_fetched_by_its_number(void **state) {
    (void)state;
    world_t o;
    float wanted[ROWS][OUT], h[ROWS][OUT];
    hidden_by_hand(wanted);
    open_world(&o, "3", "%2");
    stator_fetch_t fetch = {"%2", h, sizeof h};
    assert_ok(stator_session_step(o.session, 1, &feed, 1, &fetch));
    assert_memory_equal(h, wanted, sizeof h);
    close_world(&o);
}

static void a_value_that_is_not_kept_says_how_to_keep_it(void **state) {
    (void)state;
    world_t o;
    float h[ROWS][OUT];
    stator_fetch_t fetch = {"hidden", h, sizeof h};
    open_world(&o, "1", "");
    assert_fails(
        stator_session_step(o.session, 1, &feed, 1, &fetch), STATOR_NOT_FOUND,
        "'hidden' is a value of the graph that the plan does not keep: compile with option "
        "fetch=hidden");
    assert_ok(stator_session_step(o.session, 1, &feed, 0, NULL));
    assert_fails(stator_session_fetch(o.session, "hidden", h, sizeof h), STATOR_NOT_FOUND,
                 "fetch=hidden");
    assert_fails(stator_session_fetch(o.session, "hiden", h, sizeof h), STATOR_NOT_FOUND,
                 "there is no output 'hiden'");
    /* and what cannot be kept is said when compiling */
    stator_plan_t *plan;
    assert_ok(stator_options_set(o.options, "fetch", "hiden"));
    assert_fails(stator_plan_compile(o.step, o.options, NULL, &plan), STATOR_NOT_FOUND,
                 "option 'fetch': the graph has no value 'hiden': did you mean 'hidden'?");
    assert_null(plan);
    assert_ok(stator_options_set(o.options, "fetch", "%900"));
    assert_fails(stator_plan_compile(o.step, o.options, NULL, &plan), STATOR_NOT_FOUND,
                 "the graph has no value '%900'; its values are %0 to %");
    stator_graph_t *none;
    assert_fails(stator_graph_make_training(o.graph, o.options, &none), STATOR_NOT_FOUND,
                 "its values are %0 to %4");
    assert_null(none);
    assert_ok(stator_options_set(o.options, "fetch", "loss,,x"));
    assert_fails(stator_plan_compile(o.step, o.options, NULL, &plan), STATOR_INVALID,
                 "a name in 'loss,,x' is empty");
    close_world(&o);
}

static void a_step_in_two_calls(void **state) {
    (void)state;
    world_t o;
    float loss = -1, again = -2;
    stator_fetch_t fetch = {"loss", &loss, sizeof loss};
    open_world(&o, "2", "");
    assert_ok(stator_session_step(o.session, 1, &feed, 1, &fetch));
    fetch.data = &again;
    assert_ok(stator_session_step_start(o.session, 1, &feed, 1, &fetch));
    fetch = (stator_fetch_t){0}; /* the arrays are the caller's again, the room is not */
    assert_fails(stator_session_step_start(o.session, 1, &feed, 0, NULL), STATOR_INVALID,
                 "a step is in progress");
    assert_fails(stator_session_step(o.session, 1, &feed, 0, NULL), STATOR_INVALID,
                 "a step is in progress");
    assert_fails(stator_session_write(o.session, &weight), STATOR_INVALID, "a step is in progress");
    while (!stator_session_step_done(o.session)) continue;
    assert_ok(stator_session_step_wait(o.session));
    assert_true(loss == again);
    assert_fails(stator_session_step_wait(o.session), STATOR_INVALID, "no step is in progress");
    stator_tensor_t wrong = feed;
    wrong.dims[0] = 5;
    wrong.bytes = 5 * IN * sizeof(float);
    assert_fails(stator_session_step_start(o.session, 1, &wrong, 0, NULL), STATOR_INVALID,
                 "input 'x' is f32[5,3], the plan was compiled for f32[6,3]");
    assert_int_equal(stator_session_step_done(o.session), 1);
    close_world(&o);
}

/* ---- messages ---- */

typedef struct heard {
    int n[3];
    char last[3][256];
} heard_t;

static void hear(void *context, stator_log_level_t level, const char *message) {
    heard_t *heard = context;
    assert_true(level >= STATOR_LOG_ERROR && level <= STATOR_LOG_INFO && !strchr(message, '\n'));
    heard->n[level]++;
    snprintf(heard->last[level], sizeof heard->last[level], "%s", message);
}

static void messages_come_to_the_function_up_to_its_level(void **state) {
    (void)state;
    heard_t heard = {{0}, {""}};
    world_t o;
    stator_log_set(hear, &heard, STATOR_LOG_INFO);
    open_world(&o, "2", "");
    assert_true(heard.n[STATOR_LOG_INFO] >= 1 && heard.n[STATOR_LOG_ERROR] == 0);
    if (!strstr(heard.last[STATOR_LOG_INFO], "2 ranks on cpu"))
        fail_msg("'%s'", heard.last[STATOR_LOG_INFO]);
    int before = heard.n[STATOR_LOG_INFO];
    close_world(&o);
    stator_log_set(hear, &heard, STATOR_LOG_WARNING);
    open_world(&o, "2", "");
    assert_int_equal(heard.n[STATOR_LOG_INFO], before);
    close_world(&o);
    stator_log_set(NULL, NULL, STATOR_LOG_INFO);
    open_world(&o, "1", "");
    assert_int_equal(heard.n[STATOR_LOG_INFO], before);
    close_world(&o);
}

/* A rank that fails is told of, whoever else still runs: an index that no table has. */
static void a_failing_rank_is_told_of(void **state) {
    (void)state;
    heard_t heard = {{0}, {""}};
    stator_options_t *options;
    stator_graph_t *graph;
    stator_plan_t *plan;
    stator_session_t *session;
    stator_value_t in[2], y;
    int64_t index[2] = {0, 7};
    const stator_tensor_t which = {"i", STATOR_DTYPE_I64, 1, {2}, index, sizeof index};
    assert_ok(stator_graph_create("g", &graph));
    assert_ok(stator_graph_add_port(graph, STATOR_PARAMETER, &weight, &in[0]));
    assert_ok(stator_graph_add_port(graph, STATOR_INPUT, &which, &in[1]));
    assert_ok(stator_graph_add(graph, "gather", NULL, 2, in, "axis=0", &y));
    assert_ok(stator_graph_add_output(graph, "y", y));
    assert_ok(stator_options_create(&options));
    assert_ok(stator_options_set(options, "ranks", "2"));
    assert_ok(stator_plan_compile(graph, options, NULL, &plan));
    assert_ok(stator_session_create(plan, NULL, &session));
    stator_log_set(hear, &heard, STATOR_LOG_ERROR);
    assert_int_equal(stator_session_step(session, 1, &which, 0, NULL), STATOR_INVALID);
    stator_log_set(NULL, NULL, STATOR_LOG_ERROR);
    assert_int_equal(heard.n[STATOR_LOG_ERROR], 1);
    assert_non_null(strstr(heard.last[STATOR_LOG_ERROR], "rank 1: "));
    assert_string_equal(heard.last[STATOR_LOG_ERROR], stator_last_error());
    stator_session_destroy(session);
    stator_plan_destroy(plan);
    stator_options_destroy(options);
    stator_graph_destroy(graph);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kept_values_are_right_on_any_number_of_ranks),
        cmocka_unit_test(a_value_without_a_name_is_fetched_by_its_number),
        cmocka_unit_test(a_value_that_is_not_kept_says_how_to_keep_it),
        cmocka_unit_test(a_step_in_two_calls),
        cmocka_unit_test(messages_come_to_the_function_up_to_its_level),
        cmocka_unit_test(a_failing_rank_is_told_of),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
