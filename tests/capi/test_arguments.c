/* What the public API does with pointers that are NULL and with numbers that are no enumerator: it
 * refuses them and names function and argument; out-pointers hold NULL then. And the rule by which
 * sessions share state. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "capi/capi.h"
#include "stator/stator.h"

#define assert_ok(expr)                                                                      \
    do {                                                                                     \
        stator_status_t status_ = (expr);                                                    \
        if (status_ != STATOR_OK)                                                            \
            fail_msg("%s: %s: %s", #expr, stator_status_text(status_), stator_last_error()); \
    } while (0)

/* `expr` is INVALID, and the message has `words` in it. */
#define assert_invalid(expr, words)                                                            \
    do {                                                                                       \
        stator_status_t status_ = (expr);                                                      \
        if (status_ != STATOR_INVALID)                                                         \
            fail_msg("%s: %s instead of invalid: %s", #expr, stator_status_text(status_),      \
                     stator_last_error());                                                     \
        if (!strstr(stator_last_error(), words))                                               \
            fail_msg("%s: '%s' is not in the message: %s", #expr, words, stator_last_error()); \
    } while (0)

/* The call refuses the argument: "stator_<function>: <argument> is NULL". */
#define assert_null_refused(function, argument, ...) \
    assert_invalid(stator_##function(__VA_ARGS__), "stator_" #function ": " #argument " is NULL")

/* y = x·w, with its plan and session. */
typedef struct world {
    stator_options_t *options;
    stator_graph_t *graph;
    stator_plan_t *plan;
    stator_session_t *session;
    stator_tensors_t *tensors;
} world_t;

enum { BATCH = 2, WIDTH = 3 };
static const stator_tensor_t input = {"x", STATOR_DTYPE_F32, 2, {BATCH, WIDTH}, NULL, 0};

static stator_graph_t *build(int64_t rows, int64_t columns, int transposed) {
    stator_graph_t *graph = NULL;
    stator_tensor_t weight = {"w", STATOR_DTYPE_F32, 2, {rows, columns}, NULL, 0};
    stator_value_t in[2], y;
    assert_ok(stator_graph_create("product", &graph));
    assert_ok(stator_graph_add_port(graph, STATOR_INPUT, &input, &in[0]));
    assert_ok(stator_graph_add_port(graph, STATOR_PARAMETER, &weight, &in[1]));
    assert_ok(
        stator_graph_add(graph, "matmul", NULL, 2, in, transposed ? "transpose_b=true" : NULL, &y));
    assert_ok(stator_graph_add_output(graph, "y", y));
    return graph;
}

static int open_world(void **state) {
    static world_t w;
    w = (world_t){.graph = build(WIDTH, WIDTH + 1, 0)};
    assert_ok(stator_options_create(&w.options));
    assert_ok(stator_options_set(w.options, "threads", "1"));
    assert_ok(stator_plan_compile(w.graph, w.options, NULL, &w.plan));
    assert_ok(stator_session_create(w.plan, NULL, &w.session));
    assert_ok(stator_tensors_create(&w.tensors));
    *state = &w;
    return 0;
}

static int close_world(void **state) {
    world_t *w = *state;
    stator_tensors_destroy(w->tensors);
    stator_session_destroy(w->session);
    stator_plan_destroy(w->plan);
    stator_graph_destroy(w->graph);
    stator_options_destroy(w->options);
    return 0;
}

/* A pointer that a refused call has to replace by NULL. */
#define STALE(type) ((type *)(void *)&stale)
static char stale;

/* ---- NULL ---- */

static void building_refuses_null(void **state) {
    stator_graph_t *g = ((world_t *)*state)->graph, *made = STALE(stator_graph_t);
    stator_value_t value = 0;
    float data[BATCH * WIDTH] = {0};
    stator_tensor_t type = input, nameless = input;
    nameless.name = NULL;
    assert_null_refused(graph_create, out_graph, "g", NULL);
    assert_ok(stator_graph_create(NULL, &made)); /* a name is not needed */
    stator_graph_destroy(made);
    assert_null_refused(graph_add, graph, NULL, "relu", NULL, 1, &value, NULL, NULL);
    assert_null_refused(graph_add, op, g, NULL, NULL, 1, &value, NULL, NULL);
    assert_null_refused(graph_add, inputs, g, "relu", NULL, 1, NULL, NULL, NULL);
    assert_null_refused(graph_add_port, graph, NULL, STATOR_INPUT, &type, &value);
    assert_int_equal(value, STATOR_NO_VALUE);
    assert_null_refused(graph_add_port, tensor, g, STATOR_INPUT, NULL, &value);
    assert_null_refused(graph_add_port, tensor->name, g, STATOR_INPUT, &nameless, &value);
    assert_null_refused(graph_add_port, out_value, g, STATOR_INPUT, &type, NULL);
    type.bytes = sizeof data;
    assert_null_refused(graph_add_constant, tensor->data, g, &type, &value);
    assert_null_refused(graph_add_constant, tensor, g, NULL, &value);
    type.bytes = 0;
    assert_invalid(stator_graph_add_constant(g, &type, &value), "a constant of 0 bytes");
    assert_null_refused(graph_add_output, name, g, NULL, 0);
    assert_null_refused(graph_add_output, graph, NULL, "z", 0);
    assert_null_refused(graph_value_type, graph, NULL, 0, &type);
    assert_null_refused(graph_value_type, out_type, g, 0, NULL);
}

static void kinds_are_those_of_the_header(void **state) {
    stator_graph_t *g = ((world_t *)*state)->graph;
    stator_value_t value = 0;
    stator_tensor_t type = input;
    size_t nodes = stator_graph_node_count(g);
    type.name = "z";
    assert_invalid(stator_graph_add_port(g, (stator_port_kind_t)9, &type, &value), "kind 9");
    assert_int_equal(value, STATOR_NO_VALUE);
    assert_invalid(stator_graph_add_port(g, STATOR_OUTPUT, &type, &value), "add_output");
    assert_int_equal(stator_graph_node_count(g), nodes);
    assert_int_equal(stator_graph_count(g, (stator_port_kind_t)9), 0);
}

static void graphs_refuse_null(void **state) {
    world_t *w = *state;
    stator_graph_t *graph = STALE(stator_graph_t);
    stator_tensors_t *tensors = STALE(stator_tensors_t);
    char *text = &stale;
    assert_null_refused(graph_load, path, NULL, &graph);
    assert_null(graph);
    assert_null_refused(graph_load, out_graph, "g.stator", NULL);
    assert_null_refused(graph_save, path, w->graph, NULL);
    assert_null_refused(graph_save, graph, NULL, "g.stator");
    assert_null_refused(graph_print, graph, NULL, &text);
    assert_null(text);
    assert_null_refused(graph_print, out_text, w->graph, NULL);
    graph = STALE(stator_graph_t);
    assert_null_refused(graph_import, path, NULL, w->options, &graph, &tensors);
    assert_true(!graph && !tensors);
    assert_null_refused(graph_import, options, "g.pt2", NULL, &graph, &tensors);
    assert_null_refused(graph_import, out_tensors, "g.pt2", w->options, &graph, NULL);
    assert_null_refused(graph_settle, weights, w->graph, NULL, NULL);
    assert_null_refused(graph_settle, graph, NULL, w->tensors, NULL);
    assert_null_refused(graph_llama, options, NULL, 1, &graph);
    assert_null_refused(graph_resnet, options, NULL, 1, &graph);
    assert_null_refused(graph_add_gradients, graph, NULL, w->options, &graph);
    assert_null_refused(graph_add_gradients, options, w->graph, NULL, &graph);
    assert_null_refused(graph_make_training, graph, NULL, w->options, &graph);
    assert_null_refused(graph_make_training, options, w->graph, NULL, &graph);
    assert_null_refused(graph_make_training, out_graph, w->graph, w->options, NULL);
}

static void options_and_plans_refuse_null(void **state) {
    world_t *w = *state;
    stator_plan_t *plan = STALE(stator_plan_t);
    char *text = NULL;
    assert_null_refused(options_create, out_options, NULL);
    assert_null_refused(options_set, options, NULL, "seed", "1");
    assert_null_refused(options_set, key, w->options, NULL, "1");
    assert_null_refused(options_set, value, w->options, "seed", NULL);
    assert_null(stator_options_get(w->options, NULL));
    assert_int_equal(stator_options_get_int(w->options, NULL), 0);
    assert_int_equal(stator_options_given(w->options, NULL), 0);
    assert_null_refused(plan_compile, graph, NULL, w->options, NULL, &plan);
    assert_null(plan);
    assert_null_refused(plan_compile, options, w->graph, NULL, NULL, &plan);
    assert_null_refused(plan_compile, out_plan, w->graph, w->options, NULL, NULL);
    assert_null_refused(plan_load, path, NULL, &plan);
    assert_null_refused(plan_save, path, w->plan, NULL);
    assert_null_refused(plan_save, plan, NULL, "g.plan");
    assert_null_refused(plan_print, plan, NULL, &text);
}

static void steps_refuse_null(void **state) {
    world_t *w = *state;
    float x[BATCH * WIDTH] = {0}, y[BATCH * (WIDTH + 1)];
    stator_tensor_t feed = input;
    stator_fetch_t fetch = {"y", y, sizeof y};
    feed.data = x;
    feed.bytes = sizeof x;
    assert_null_refused(session_step, session, NULL, 1, &feed, 1, &fetch);
    assert_null_refused(session_step, feeds, w->session, 1, NULL, 1, &fetch);
    assert_null_refused(session_step, fetches, w->session, 1, &feed, 1, NULL);
    assert_null_refused(session_step_start, session, NULL, 1, &feed, 1, &fetch);
    assert_null_refused(session_step_start, feeds, w->session, 1, NULL, 1, &fetch);
    assert_null_refused(session_step_start, fetches, w->session, 1, &feed, 1, NULL);
    assert_null_refused(session_step_wait, session, NULL);
    assert_ok(stator_session_step(w->session, 1, &feed, 1, &fetch)); /* it still runs */
    assert_null_refused(session_fetch, session, NULL, fetch.name, fetch.data, fetch.bytes);
    assert_null_refused(session_fetch, name, w->session, NULL, fetch.data, fetch.bytes);
    assert_null_refused(session_fetch, data, w->session, fetch.name, NULL, fetch.bytes);
    stator_trace_t *trace;
    stator_trace_row_t row;
    assert_null_refused(trace_create, plan, NULL, w->session, NULL, -1, &trace);
    assert_null_refused(trace_create, out_trace, w->plan, w->session, NULL, -1, NULL);
    assert_invalid(stator_trace_create(w->plan, w->session, NULL, 1, &trace), "ranks 0 to 0");
    assert_invalid(stator_trace_create(w->plan, w->session, NULL, -2, &trace), "no rank -2");
    assert_null_refused(trace_add, trace, NULL);
    assert_null_refused(trace_finish, trace, NULL);
    stator_trace_destroy(NULL);
    assert_ok(stator_trace_create(w->plan, w->session, NULL, -1, &trace));
    assert_ok(stator_session_step(w->session, 1, &feed, 1, &fetch));
    assert_ok(stator_trace_add(trace));
    assert_int_equal(stator_trace_kernel_at(trace, 0, &row), 0); /* not finished */
    assert_ok(stator_trace_finish(trace));
    assert_int_equal(stator_trace_kernel_at(trace, 0, &row), 1);
    assert_true(row.measured_us > 0 && row.predicted_us > 0 &&
                stator_trace_totals(trace).n_measured == 1);
    assert_int_equal(stator_trace_node_at(trace, 1000, &row), 0);
    stator_trace_destroy(trace);
    assert_ok(stator_session_step(w->session, 1, &feed, 0, NULL));
    assert_invalid(stator_session_step(w->session, 0, NULL, 0, NULL), "x");
}

static void state_refuses_null(void **state) {
    world_t *w = *state;
    stator_session_t *session = STALE(stator_session_t);
    stator_tensors_t *tensors = STALE(stator_tensors_t);
    stator_progress_t progress = {0};
    float data[4];
    char *note = &stale;
    assert_null_refused(session_create, plan, NULL, NULL, &session);
    assert_null(session);
    assert_null_refused(session_create, out_session, w->plan, NULL, NULL);
    assert_null_refused(session_initialize, options, w->session, NULL);
    assert_null_refused(session_load, tensors, w->session, NULL);
    assert_null_refused(session_load, session, NULL, w->tensors);
    assert_null_refused(session_restore, tensors, w->session, NULL, 1);
    assert_null_refused(session_write, tensor, w->session, NULL);
    assert_null_refused(session_read, name, w->session, NULL, data, sizeof data);
    assert_null_refused(session_read, data, w->session, "w", NULL, sizeof data);
    assert_null_refused(session_export, session, NULL, &tensors);
    assert_null(tensors);
    assert_null_refused(session_save, session, NULL, "set", &progress, 1, 0);
    assert_null_refused(session_save, dir, w->session, NULL, &progress, 1, 0);
    assert_null_refused(session_save, progress, w->session, "set", NULL, 1, 0);
    assert_null_refused(session_resume, dir, w->session, NULL, &progress);
    assert_null_refused(session_resume, out_progress, w->session, "set", NULL);
    assert_null_refused(checkpoint_read, dir, NULL, &progress, &note);
    assert_null(note);
    assert_null_refused(checkpoint_read, out_progress, "set", NULL, &note);
    assert_null_refused(checkpoint_read, out_note, "set", &progress, NULL);
}

static void tensors_and_data_refuse_null(void **state) {
    world_t *w = *state;
    stator_tensors_t *tensors = STALE(stator_tensors_t);
    stator_data_t *data = STALE(stator_data_t);
    stator_tensor_t found, without = input;
    const stator_tensor_t *feeds;
    size_t n = 0;
    without.bytes = sizeof(float) * BATCH * WIDTH;
    assert_null_refused(tensors_create, out_tensors, NULL);
    assert_null_refused(tensors_load, path, NULL, &tensors);
    assert_null(tensors);
    assert_null_refused(tensors_save, path, w->tensors, NULL);
    assert_null_refused(tensors_save, tensors, NULL, "t.safetensors");
    assert_null_refused(tensors_add, tensor, w->tensors, NULL);
    assert_null_refused(tensors_add, tensor->data, w->tensors, &without);
    assert_null_refused(tensors_find, name, w->tensors, NULL, &found);
    assert_null_refused(tensors_find, out_tensor, w->tensors, "x", NULL);
    assert_null_refused(data_tensors, plan, NULL, w->tensors, NULL, &data);
    assert_null(data);
    assert_null_refused(data_tensors, tensors, w->plan, NULL, NULL, &data);
    assert_null_refused(data_tokens, plan, NULL, "t", 0, 0, &data);
    assert_null_refused(data_tokens, paths, w->plan, NULL, 0, 0, &data);
    assert_null_refused(data_images, plan, NULL, "i", "l", 0, 1, 0, 0, &data);
    assert_null_refused(data_images, images, w->plan, NULL, "l", 0, 1, 0, 0, &data);
    assert_null_refused(data_images, labels, w->plan, "i", NULL, 0, 1, 0, 0, &data);
    assert_null_refused(data_next, data, NULL, &n, &feeds);
    assert_null_refused(data_seek, data, NULL, 0, 0);
    assert_null_refused(data_resume, data, NULL, &(stator_progress_t){0});
    assert_null_refused(data_resume, progress, STALE(stator_data_t), NULL);
}

static void tokenizers_refuse_null(void **state) {
    (void)state;
    stator_tokenizer_t *made = STALE(stator_tokenizer_t), *t = NULL;
    int64_t *tokens = (int64_t *)(void *)&stale;
    char *text = &stale;
    size_t n = 9;
    assert_null_refused(tokenizer_load, path, NULL, &made);
    assert_null(made);
    assert_null_refused(tokenizer_chars, text, NULL, 3, &made);
    assert_null_refused(tokenizer_chars, out, "abc", 3, NULL);
    assert_ok(stator_tokenizer_chars("abc", 3, &t));
    assert_null_refused(tokenizer_save, path, t, NULL);
    assert_null_refused(tokenizer_save, tokenizer, NULL, "v.json");
    assert_null_refused(tokenizer_encode, text, t, NULL, 3, &tokens, &n);
    assert_true(!tokens && n == 0);
    assert_null_refused(tokenizer_encode, tokenizer, NULL, "abc", 3, &tokens, &n);
    assert_null_refused(tokenizer_encode, out_n, t, "abc", 3, &tokens, NULL);
    assert_null_refused(tokenizer_decode, tokens, t, NULL, 2, &text, &n);
    assert_null(text);
    assert_null_refused(tokens_save, path, NULL, NULL, 0, 3);
    assert_null_refused(tokens_save, tokens, "t.tokens", NULL, 2, 3);
    stator_tokenizer_destroy(t);
}

/* ---- sessions ---- */

static void sessions_of_one_plan_share_state(void **state) {
    world_t *w = *state;
    stator_session_t *other = NULL;
    float written[WIDTH * (WIDTH + 1)], read[WIDTH * (WIDTH + 1)] = {0};
    for (size_t i = 0; i < sizeof written / sizeof written[0]; i++) written[i] = (float)i + 1;
    stator_tensor_t weight = {"w",     STATOR_DTYPE_F32, 2, {WIDTH, WIDTH + 1},
                              written, sizeof written};
    assert_ok(stator_session_create(w->plan, w->session, &other));
    assert_ok(stator_session_write(w->session, &weight));
    assert_ok(stator_session_read(other, "w", read, sizeof read));
    assert_memory_equal(read, written, sizeof read);
    stator_session_destroy(other);
    memset(read, 0, sizeof read); /* the owner still has it */
    assert_ok(stator_session_read(w->session, "w", read, sizeof read));
    assert_memory_equal(read, written, sizeof read);
}

static void other_layouts_are_not_shared(void **state) {
    world_t *w = *state;
    stator_graph_t *turned = build(WIDTH + 1, WIDTH, 1); /* as many bytes, another shape */
    stator_plan_t *plan = NULL, *two_ranks = NULL;
    stator_session_t *session = STALE(stator_session_t);
    assert_invalid(stator_plan_compile(turned, w->options, w->plan, &plan), "'w'");
    assert_ok(stator_plan_compile(turned, w->options, NULL, &plan));
    assert_invalid(stator_session_create(plan, w->session, &session), "'w'");
    assert_null(session);
    assert_ok(stator_options_set(w->options, "ranks", "2"));
    assert_ok(stator_plan_compile(w->graph, w->options, NULL, &two_ranks));
    assert_invalid(stator_session_create(two_ranks, w->session, &session), "2 ranks");
    stator_plan_destroy(two_ranks);
    stator_plan_destroy(plan);
    stator_graph_destroy(turned);
}

static void state_of_a_plan_on_another_mesh_is_refused(void **state) {
    world_t *w = *state;
    stator_plan_t *two = NULL, *four = STALE(stator_plan_t);
    assert_ok(stator_options_set(w->options, "mesh", "data=2"));
    assert_ok(stator_plan_compile(w->graph, w->options, NULL, &two));
    assert_ok(stator_options_set(w->options, "mesh", "data=4"));
    assert_invalid(stator_plan_compile(w->graph, w->options, two, &four),
                   "the mesh is data=4, that of the plan whose state is to be shared data=2");
    assert_null(four);
    stator_plan_destroy(two);
}

/* Every row sets options of a compile that would otherwise do less than they ask for. */
static void options_without_effect_are_refused(void **state) {
    world_t *w = *state;
    static const char *const rows[][5] = {
        {"shard", "tp", "mesh", "data=2", "form 'tp' needs an axis 'tensor' in --mesh"},
        {"weight-shadows", "on", "threads", "1", "'on' and option 'dtype' 'auto'"},
        {"weight-shadows", "on", "dtype", "f64", "with --dtype bf16 or --dtype f16"},
        {"weight-shadows", "on", "mode", "eval", "with --dtype bf16 or --dtype f16"},
        {"reduce-dtype", "f32", "ranks", "2", "'f32' and option 'dtype' 'auto'"},
    };
    static const char *const fine[][4] = {{"shard", "tp", "mesh", "data=2,tensor=2"},
                                          {"shard", "tp", "ranks", "2"},
                                          {"weight-shadows", "on", "dtype", "bf16"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        stator_options_t *options = NULL;
        stator_plan_t *plan = STALE(stator_plan_t);
        assert_ok(stator_options_create(&options));
        assert_ok(stator_options_set(options, rows[i][0], rows[i][1]));
        assert_ok(stator_options_set(options, rows[i][2], rows[i][3]));
        assert_invalid(stator_plan_compile(w->graph, options, NULL, &plan), rows[i][4]);
        assert_null(plan);
        stator_options_destroy(options);
    }
    for (size_t i = 0; i < sizeof fine / sizeof fine[0]; i++) {
        stator_options_t *options = NULL;
        stator_plan_t *plan = NULL;
        assert_ok(stator_options_create(&options));
        assert_ok(stator_options_set(options, fine[i][0], fine[i][1]));
        assert_ok(stator_options_set(options, fine[i][2], fine[i][3]));
        assert_ok(stator_plan_compile(w->graph, options, NULL, &plan));
        stator_plan_destroy(plan);
        stator_options_destroy(options);
    }
}

static void a_session_tells_of_other_kernels(void **state) {
    world_t *w = *state;
    plan_t *plan = w->plan->plan;
    stator_session_t *session = NULL;
    size_t changed = 0;
    assert_string_equal(stator_session_notes(w->session), "");
    for (uint32_t i = 0; i < plan->n_options; i++)
        if (strcmp(plan->options[i].key, "kernels") == 0)
            plan->options[i].value = "v9", changed++; /* as a file from another machine has it */
    assert_int_equal(changed, 1);
    assert_ok(stator_session_create(w->plan, NULL, &session));
    assert_non_null(strstr(stator_session_notes(session), "kernels 'v9'"));
    stator_session_destroy(session);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_world, close_world)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(building_refuses_null),
        TEST(kinds_are_those_of_the_header),
        TEST(graphs_refuse_null),
        TEST(options_and_plans_refuse_null),
        TEST(steps_refuse_null),
        TEST(state_refuses_null),
        TEST(tensors_and_data_refuse_null),
        TEST(tokenizers_refuse_null),
        TEST(sessions_of_one_plan_share_state),
        TEST(other_layouts_are_not_shared),
        TEST(state_of_a_plan_on_another_mesh_is_refused),
        TEST(options_without_effect_are_refused),
        TEST(a_session_tells_of_other_kernels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
