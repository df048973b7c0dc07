/* The public API as a C program uses it: a graph built node by node, trained, saved, loaded,
 * resumed; options, tensors and tokenizers; what is refused and what the messages say. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "stator/stator.h"

#define assert_ok(expr)                                                                      \
    do {                                                                                     \
        stator_status_t status_ = (expr);                                                    \
        if (status_ != STATOR_OK)                                                            \
            fail_msg("%s: %s: %s", #expr, stator_status_text(status_), stator_last_error()); \
    } while (0)

/* `expr` is refused with `wanted`, and the message has `words` in it. */
#define assert_refused(expr, wanted, words)                                                    \
    do {                                                                                       \
        stator_status_t status_ = (expr);                                                      \
        if (status_ != (wanted))                                                               \
            fail_msg("%s: %s instead of %s: %s", #expr, stator_status_text(status_),           \
                     stator_status_text(wanted), stator_last_error());                         \
        if (!strstr(stator_last_error(), words))                                               \
            fail_msg("%s: '%s' is not in the message: %s", #expr, words, stator_last_error()); \
    } while (0)

enum { BATCH = 8, FEATURES = 4, HIDDEN = 16, CLASSES = 3 };

static stator_tensor_t tensor(const char *name, stator_dtype_t dtype, int32_t rank, int64_t first,
                              int64_t second) {
    stator_tensor_t t = {.name = name, .dtype = dtype, .rank = rank, .dims = {first, second}};
    t.bytes = stator_dtype_bytes(dtype);
    for (int32_t i = 0; i < rank; i++) t.bytes *= (size_t)t.dims[i];
    return t;
}

/* ---- a multilayer perceptron, built ---- */

static stator_value_t port(stator_graph_t *graph, stator_port_kind_t kind, const char *name,
                           stator_dtype_t dtype, int32_t rank, int64_t first, int64_t second) {
    stator_tensor_t type = tensor(name, dtype, rank, first, second);
    stator_value_t value = STATOR_NO_VALUE;
    assert_ok(stator_graph_add_port(graph, kind, &type, &value));
    return value;
}

static stator_value_t add(stator_graph_t *graph, const char *op, stator_value_t a, stator_value_t b,
                          const char *attributes) {
    stator_value_t inputs[] = {a, b}, out = STATOR_NO_VALUE;
    assert_ok(
        stator_graph_add(graph, op, NULL, b == STATOR_NO_VALUE ? 1 : 2, inputs, attributes, &out));
    return out;
}

static stator_graph_t *build_perceptron(void) {
    stator_graph_t *g = NULL;
    assert_ok(stator_graph_create("perceptron", &g));
    stator_value_t x = port(g, STATOR_INPUT, "x", STATOR_DTYPE_F32, 2, BATCH, FEATURES);
    stator_value_t y = port(g, STATOR_INPUT, "y", STATOR_DTYPE_I64, 1, BATCH, 0);
    stator_value_t w1 =
        port(g, STATOR_PARAMETER, "1.weight", STATOR_DTYPE_F32, 2, HIDDEN, FEATURES);
    stator_value_t b1 = port(g, STATOR_PARAMETER, "1.bias", STATOR_DTYPE_F32, 1, HIDDEN, 0);
    stator_value_t w2 = port(g, STATOR_PARAMETER, "2.weight", STATOR_DTYPE_F32, 2, CLASSES, HIDDEN);
    stator_value_t h = add(g, "matmul", x, w1, "transpose_b=true");
    h = add(g, "relu", add(g, "add", h, b1, NULL), STATOR_NO_VALUE, NULL);
    stator_value_t logits = add(g, "matmul", h, w2, "transpose_b=true");
    stator_value_t loss = add(g, "cross_entropy", logits, y, "smoothing=0.1, mean=true");
    stator_tensor_t type;
    assert_ok(stator_graph_value_type(g, logits, &type));
    assert_int_equal(type.rank, 2);
    assert_int_equal(type.dims[0], BATCH);
    assert_int_equal(type.dims[1], CLASSES);
    assert_ok(stator_graph_add_output(g, "loss", loss));
    assert_ok(stator_graph_add_output(g, "logits", logits));
    return g;
}

static stator_options_t *make_options(const char *ranks) {
    stator_options_t *options = NULL;
    assert_ok(stator_options_create(&options));
    assert_ok(stator_options_set(options, "ranks", ranks));
    assert_ok(stator_options_set(options, "threads", "1"));
    assert_ok(stator_options_set(options, "lr", "0.02"));
    assert_ok(stator_options_set(options, "seed", "3"));
    return options;
}

/* The class is the place of the largest of the first three features. */
static void fill_batch(int step, float *x, int64_t *y) {
    uint32_t random = 12345u + 977u * (uint32_t)step;
    for (int i = 0; i < BATCH; i++) {
        y[i] = 0;
        for (int k = 0; k < FEATURES; k++) {
            random = random * 1664525u + 1013904223u;
            x[i * FEATURES + k] = (float)(random >> 8) / 8388608.0f - 1;
            if (k < CLASSES && x[i * FEATURES + k] > x[i * FEATURES + y[i]]) y[i] = k;
        }
    }
}

static float step(stator_session_t *session, int number) {
    float x[BATCH * FEATURES], loss = NAN;
    int64_t y[BATCH];
    fill_batch(number, x, y);
    stator_tensor_t feeds[] = {tensor("x", STATOR_DTYPE_F32, 2, BATCH, FEATURES),
                               tensor("y", STATOR_DTYPE_I64, 1, BATCH, 0)};
    feeds[0].data = x;
    feeds[1].data = y;
    stator_fetch_t fetch = {"loss", &loss, sizeof loss};
    assert_ok(stator_session_step(session, 2, feeds, 1, &fetch));
    return loss;
}

typedef struct trained {
    stator_options_t *options;
    stator_graph_t *graph, *step_graph;
    stator_plan_t *plan;
    stator_session_t *session;
} trained_t;

static trained_t open_training(const char *ranks) {
    trained_t t = {.options = make_options(ranks), .graph = build_perceptron()};
    assert_ok(stator_graph_make_training(t.graph, t.options, &t.step_graph));
    assert_ok(stator_plan_compile(t.step_graph, t.options, NULL, &t.plan));
    assert_ok(stator_session_create(t.plan, NULL, &t.session));
    assert_ok(stator_session_initialize(t.session, t.options));
    return t;
}

static void close_training(trained_t *t) {
    stator_session_destroy(t->session);
    stator_plan_destroy(t->plan);
    stator_graph_destroy(t->step_graph);
    stator_graph_destroy(t->graph);
    stator_options_destroy(t->options);
}

static void a_built_graph_learns(void **state) {
    (void)state;
    trained_t one = open_training("1"), three = open_training("3");
    float first = 0, last = 0;
    for (int i = 0; i < 300; i++) {
        float loss = step(one.session, i), other = step(three.session, i);
        /* the same mathematics in another order: float32 rounding, grown over a few steps */
        if (i < 20 && !(fabsf(loss - other) <= 1e-4f * fabsf(loss)))
            fail_msg("step %d: %.9g on one rank, %.9g on three", i, (double)loss, (double)other);
        if (i < 10) first += loss / 10;
        if (i >= 290) last += loss / 10;
    }
    /* with smoothing 0.1 the least possible mean loss is 0.29 */
    if (!(first > 0.9f && last < 0.55f))
        fail_msg("loss %g at first, %g at last", (double)first, (double)last);
    close_training(&three);
    close_training(&one);
}

/* One step of plain SGD against the same worked out by hand: p = p0 - lr * gradient. */
static void a_step_of_sgd_is_what_it_says(void **state) {
    (void)state;
    stator_options_t *options = make_options("2");
    assert_ok(stator_options_set(options, "optimizer", "sgd"));
    assert_ok(stator_options_set(options, "lr", "0.5"));
    stator_graph_t *graph = NULL, *training = NULL, *gradient = NULL;
    stator_plan_t *plan = NULL, *gradient_plan = NULL;
    stator_session_t *session = NULL, *gradient_session = NULL;
    graph = build_perceptron();
    assert_ok(stator_graph_make_training(graph, options, &training));
    assert_ok(stator_graph_add_gradients(graph, options, &gradient));
    assert_ok(stator_plan_compile(training, options, NULL, &plan));
    assert_ok(stator_plan_compile(gradient, options, NULL, &gradient_plan));
    assert_ok(stator_session_create(plan, NULL, &session));
    assert_ok(stator_session_create(gradient_plan, NULL, &gradient_session));
    assert_ok(stator_session_initialize(session, options));
    assert_ok(stator_session_initialize(gradient_session, options));
    float before[CLASSES * HIDDEN], after[CLASSES * HIDDEN], slope[CLASSES * HIDDEN];
    float x[BATCH * FEATURES];
    int64_t y[BATCH];
    fill_batch(0, x, y);
    stator_tensor_t feeds[] = {tensor("y", STATOR_DTYPE_I64, 1, BATCH, 0),
                               tensor("x", STATOR_DTYPE_F32, 2, BATCH, FEATURES)};
    feeds[0].data = y;
    feeds[1].data = x;
    assert_ok(stator_session_read(session, "2.weight", before, sizeof before));
    stator_fetch_t fetch = {"grad.2.weight", slope, sizeof slope};
    assert_ok(stator_session_step(gradient_session, 2, feeds, 1, &fetch));
    assert_ok(stator_session_step(session, 2, feeds, 0, NULL));
    assert_ok(stator_session_read(session, "2.weight", after, sizeof after));
    double moved = 0;
    for (int i = 0; i < CLASSES * HIDDEN; i++) {
        double wanted = (double)before[i] - 0.5 * (double)slope[i];
        if (!(fabs((double)after[i] - wanted) <= 1e-6))
            fail_msg("element %d is %.9g, %.9g is right", i, (double)after[i], wanted);
        moved += fabs((double)slope[i]);
    }
    assert_true(moved > 0.01);
    stator_session_destroy(gradient_session);
    stator_session_destroy(session);
    stator_plan_destroy(gradient_plan);
    stator_plan_destroy(plan);
    stator_graph_destroy(gradient);
    stator_graph_destroy(training);
    stator_graph_destroy(graph);
    stator_options_destroy(options);
}

/* ---- sessions that share state; files ---- */

static void an_evaluation_sees_the_trained_state(void **state) {
    (void)state;
    trained_t t = open_training("2");
    stator_plan_t *plan = NULL;
    stator_session_t *eval = NULL;
    assert_ok(stator_options_set(t.options, "mode", "eval"));
    assert_ok(stator_plan_compile(t.graph, t.options, t.plan, &plan));
    assert_ok(stator_session_create(plan, t.session, &eval));
    float untrained = step(eval, 1000);
    for (int i = 0; i < 200; i++) step(t.session, i);
    float trained = step(eval, 1000), again = step(eval, 1000);
    assert_true(trained < untrained - 0.2f);
    assert_memory_equal(&trained, &again, sizeof trained); /* an evaluation changes nothing */
    float a[HIDDEN], b[HIDDEN];
    assert_ok(stator_session_read(t.session, "1.bias", a, sizeof a));
    assert_ok(stator_session_read(eval, "1.bias", b, sizeof b));
    assert_memory_equal(a, b, sizeof a);
    stator_session_destroy(eval);
    stator_plan_destroy(plan);
    close_training(&t);
}

static void files_bring_back_what_was_saved(void **state) {
    (void)state;
    char folder[] = "api.XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    trained_t t = open_training("1");
    for (int i = 0; i < 5; i++) step(t.session, i);
    stator_progress_t saved = {.step = 5, .epoch = 1, .sample = 40, .seed = 3, .n_samples = 48},
                      back = {0};
    assert_ok(stator_session_save(t.session, folder, &saved, 1, 0));
    snprintf(path, sizeof path, "%s/g.plan", folder);
    assert_ok(stator_plan_save(t.plan, path));

    /* a program that has nothing but the plan and the checkpoint goes on with the same bits */
    stator_plan_t *plan = NULL;
    stator_session_t *session = NULL;
    assert_ok(stator_plan_load(path, &plan));
    assert_ok(stator_session_create(plan, NULL, &session));
    assert_ok(stator_session_resume(session, folder, &back));
    assert_int_equal(back.step, 5);
    assert_int_equal(back.epoch, 1);
    assert_int_equal(back.sample, 40);
    assert_int_equal(back.n_samples, 48);
    for (int i = 5; i < 10; i++) {
        float a = step(t.session, i), b = step(session, i);
        assert_memory_equal(&a, &b, sizeof a);
    }
    stator_tensors_t *weights = NULL;
    assert_ok(stator_session_export(session, &weights));
    assert_int_equal(stator_tensors_count(weights), 3);
    assert_string_equal(stator_tensors_at(weights, 0).name, "1.bias");
    stator_tensors_destroy(weights);

    /* the graph: written, read, printed, the same text */
    stator_graph_t *graph = NULL;
    char *text = NULL, *again = NULL;
    snprintf(path, sizeof path, "%s/g.stator", folder);
    assert_ok(stator_graph_save(t.step_graph, path));
    assert_ok(stator_graph_load(path, &graph));
    assert_ok(stator_graph_print(t.step_graph, &text));
    assert_ok(stator_graph_print(graph, &again));
    assert_string_equal(text, again);
    stator_free(text);
    stator_free(again);
    stator_graph_destroy(graph);
    stator_session_destroy(session);
    stator_plan_destroy(plan);
    close_training(&t);
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

/* ---- refusals ---- */

static void wrong_feeds_are_refused(void **state) {
    (void)state;
    trained_t t = open_training("2");
    float x[BATCH * FEATURES], loss;
    int64_t y[BATCH];
    fill_batch(0, x, y);
    stator_tensor_t right[] = {tensor("x", STATOR_DTYPE_F32, 2, BATCH, FEATURES),
                               tensor("y", STATOR_DTYPE_I64, 1, BATCH, 0)};
    right[0].data = x;
    right[1].data = y;
    stator_tensor_t feeds[3];
    memcpy(feeds, right, sizeof right);
    feeds[0].dims[1] = FEATURES + 1;
    feeds[0].bytes = sizeof(float) * BATCH * (FEATURES + 1);
    assert_refused(stator_session_step(t.session, 2, feeds, 0, NULL), STATOR_INVALID, "f32[8,5]");
    memcpy(feeds, right, sizeof right);
    feeds[1].dtype = STATOR_DTYPE_F32;
    feeds[1].bytes /= 2;
    assert_refused(stator_session_step(t.session, 2, feeds, 0, NULL), STATOR_INVALID, "i64[8]");
    memcpy(feeds, right, sizeof right);
    feeds[1].name = "z";
    assert_refused(stator_session_step(t.session, 2, feeds, 0, NULL), STATOR_NOT_FOUND, "'z'");
    memcpy(feeds, right, sizeof right);
    feeds[0].data = NULL;
    assert_refused(stator_session_step(t.session, 2, feeds, 0, NULL), STATOR_INVALID, "'x'");
    assert_refused(stator_session_step(t.session, 1, right, 0, NULL), STATOR_INVALID, "'y'");
    memcpy(feeds, right, sizeof right);
    feeds[2] = right[0];
    assert_refused(stator_session_step(t.session, 3, feeds, 0, NULL), STATOR_INVALID, "twice");
    stator_fetch_t none = {"logit", &loss, sizeof loss}, small = {"logits", &loss, sizeof loss};
    assert_refused(stator_session_step(t.session, 2, right, 1, &none), STATOR_NOT_FOUND, "logits");
    assert_refused(stator_session_step(t.session, 2, right, 1, &small), STATOR_INVALID, "'logits'");
    /* refused before anything ran: the session still works */
    assert_true(isfinite(step(t.session, 0)));
    assert_refused(stator_session_read(t.session, "3.weight", &loss, sizeof loss), STATOR_NOT_FOUND,
                   "3.weight");
    assert_refused(stator_session_read(t.session, "1.bias", &loss, sizeof loss), STATOR_INVALID,
                   "1.bias");
    close_training(&t);
}

static void labels_out_of_range_stop_the_session(void **state) {
    (void)state;
    trained_t t = open_training("2");
    float x[BATCH * FEATURES];
    int64_t y[BATCH];
    fill_batch(0, x, y);
    y[BATCH - 1] = CLASSES; /* on the second rank */
    stator_tensor_t feeds[] = {tensor("x", STATOR_DTYPE_F32, 2, BATCH, FEATURES),
                               tensor("y", STATOR_DTYPE_I64, 1, BATCH, 0)};
    feeds[0].data = x;
    feeds[1].data = y;
    assert_refused(stator_session_step(t.session, 2, feeds, 0, NULL), STATOR_INVALID, "3");
    y[BATCH - 1] = 0; /* the failure stays, state can still be read */
    assert_refused(stator_session_step(t.session, 2, feeds, 0, NULL), STATOR_INVALID, "3");
    float bias[HIDDEN];
    assert_ok(stator_session_read(t.session, "1.bias", bias, sizeof bias));
    close_training(&t);
}

/* Options are known to be wrong before anything is built, and by their names. */
static void wrong_training_options_are_refused(void **state) {
    (void)state;
    static const char *const rows[][3] = {
        {"eps", "0", "option 'eps' is 0"},
        {"eps", "inf", "'eps'"},
        {"groups", "*=decay:nan", "'decay:nan'"},
        {"groups", "*=", "a setting is empty"},
        {"groups", "*=lr:1,lr:1", "sets again"},
        {"no-decay", ",", "option 'no-decay'"},
        {"min-lr", "1", "option 'min-lr' is 1, above option 'lr'"},
        {"schedule", "cosine", "'steps'"},
    };
    stator_graph_t *g = build_perceptron(), *out = NULL;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        stator_options_t *options = make_options("1");
        stator_status_t status = stator_options_set(options, rows[i][0], rows[i][1]);
        if (status == STATOR_OK) status = stator_graph_make_training(g, options, &out);
        assert_refused(status, STATOR_INVALID, rows[i][2]);
        assert_null(out);
        stator_options_destroy(options);
    }
    /* A warm-up as long as the run, also with the constant rate. */
    stator_options_t *options = make_options("1");
    assert_ok(stator_options_set(options, "steps", "3"));
    assert_ok(stator_options_set(options, "warmup", "3"));
    assert_refused(stator_graph_make_training(g, options, &out), STATOR_INVALID,
                   "option 'warmup' is 3");
    assert_ok(stator_options_set(options, "warmup", "2"));
    assert_ok(stator_graph_make_training(g, options, &out));
    stator_graph_destroy(out);
    stator_options_destroy(options);
    stator_graph_destroy(g);
}

static void wrong_graphs_are_refused(void **state) {
    (void)state;
    stator_graph_t *g = NULL, *out = NULL;
    stator_options_t *options = make_options("1");
    assert_ok(stator_graph_create("wrong", &g));
    stator_value_t x = port(g, STATOR_INPUT, "x", STATOR_DTYPE_F32, 2, 4, 5), value = 0;
    stator_value_t w = port(g, STATOR_PARAMETER, "w", STATOR_DTYPE_F32, 2, 4, 3);
    stator_value_t inputs[] = {x, w};
    assert_refused(stator_graph_add(g, "matmul", "m", 2, inputs, NULL, &value), STATOR_INVALID,
                   "matmul");
    assert_int_equal(value, STATOR_NO_VALUE);
    assert_refused(stator_graph_add(g, "matmull", "m", 2, inputs, NULL, &value), STATOR_INVALID,
                   "matmull");
    assert_refused(stator_graph_add(g, "relu", "r", 2, inputs, NULL, &value), STATOR_INVALID,
                   "relu");
    assert_refused(stator_graph_add(g, "softmax", "s", 1, inputs, "axes=1", &value), STATOR_INVALID,
                   "axes");
    assert_refused(stator_graph_add(g, "softmax", "s", 1, inputs, "axis=7", &value), STATOR_INVALID,
                   "axis");
    inputs[0] = 1000;
    assert_refused(stator_graph_add(g, "relu", "r", 1, inputs, NULL, &value), STATOR_INVALID,
                   "1000");
    stator_tensor_t again = tensor("x", STATOR_DTYPE_F32, 1, 4, 0);
    assert_refused(stator_graph_add_port(g, STATOR_INPUT, &again, &value), STATOR_INVALID, "'x'");
    again.rank = STATOR_MAX_RANK + 1;
    again.name = "z";
    assert_refused(stator_graph_add_port(g, STATOR_INPUT, &again, &value), STATOR_INVALID, "");
    assert_refused(stator_graph_make_training(g, options, &out), STATOR_NOT_FOUND,
                   "the graph has no outputs");
    assert_null(out);
    assert_refused(stator_graph_load("absent.stator", &out), STATOR_NOT_FOUND, "absent.stator");
    assert_null(out);
    stator_options_destroy(options);
    stator_graph_destroy(g);
}

/* ---- options, tensors, tokenizers, tables ---- */

static void options_know_their_kinds(void **state) {
    (void)state;
    stator_options_t *o = NULL;
    assert_ok(stator_options_create(&o));
    assert_string_equal(stator_options_get(o, "optimizer"), "adamw");
    assert_int_equal(stator_options_given(o, "optimizer"), 0);
    assert_ok(stator_options_set(o, "optimizer", "sgd"));
    assert_int_equal(stator_options_given(o, "optimizer"), 1);
    assert_ok(stator_options_set(o, "bucket-size", "2KiB"));
    assert_int_equal(stator_options_get_int(o, "bucket-size"), 2048);
    assert_ok(stator_options_set(o, "nesterov", "true"));
    assert_int_equal(stator_options_get_int(o, "nesterov"), 1);
    assert_ok(stator_options_set(o, "lr", "2.5e-4"));
    assert_true(stator_options_get_float(o, "lr") == 2.5e-4);
    assert_null(stator_options_get(o, "nothing"));
    assert_refused(stator_options_set(o, "momentun", "0.9"), STATOR_INVALID, "momentum");
    assert_refused(stator_options_set(o, "ranks", "two"), STATOR_INVALID, "two");
    assert_refused(stator_options_set(o, "optimizer", "lion"), STATOR_INVALID, "lion");
    assert_string_equal(stator_options_get(o, "optimizer"), "sgd"); /* refused, not changed */
    stator_option_info_t info;
    size_t n = 0;
    while (stator_option_at(n, &info)) {
        assert_non_null(stator_options_get(o, info.key));
        n++;
    }
    assert_true(n > 40);
    stator_options_destroy(o);
    stator_options_destroy(NULL);
}

static void tensors_are_found_by_name(void **state) {
    (void)state;
    stator_tensors_t *set = NULL, *read = NULL;
    const float values[] = {1, 2, 3, 4, 5, 6};
    stator_tensor_t t = tensor("b", STATOR_DTYPE_F32, 2, 2, 3), found;
    t.data = values;
    assert_ok(stator_tensors_create(&set));
    assert_ok(stator_tensors_add(set, &t));
    assert_refused(stator_tensors_add(set, &t), STATOR_INVALID, "'b'");
    t.name = "a";
    t.bytes--;
    assert_refused(stator_tensors_add(set, &t), STATOR_INVALID, "'a'");
    t.bytes++;
    assert_ok(stator_tensors_add(set, &t));
    assert_int_equal(stator_tensors_count(set), 2);
    assert_string_equal(stator_tensors_at(set, 0).name, "a");
    assert_refused(stator_tensors_find(set, "c", &found), STATOR_NOT_FOUND, "'c'");
    assert_ok(stator_tensors_save(set, "api.safetensors"));
    assert_ok(stator_tensors_load("api.safetensors", &read));
    assert_ok(stator_tensors_find(read, "b", &found));
    assert_int_equal(found.rank, 2);
    assert_int_equal(found.dims[1], 3);
    assert_memory_equal(found.data, values, sizeof values);
    unlink("api.safetensors");
    stator_tensors_destroy(read);
    stator_tensors_destroy(set);
    stator_tensors_destroy(NULL);
}

static void weights_may_differ_by_a_prefix(void **state) {
    (void)state;
    trained_t t = open_training("1");
    float w1[HIDDEN * FEATURES] = {1}, b1[HIDDEN] = {2}, w2[CLASSES * HIDDEN] = {3}, read[HIDDEN];
    stator_tensor_t all[] = {tensor("net.1.weight", STATOR_DTYPE_F32, 2, HIDDEN, FEATURES),
                             tensor("net.1.bias", STATOR_DTYPE_F32, 1, HIDDEN, 0),
                             tensor("net.2.weight", STATOR_DTYPE_F32, 2, CLASSES, HIDDEN)};
    all[0].data = w1;
    all[1].data = b1;
    all[2].data = w2;
    stator_tensors_t *set = NULL, *less = NULL, *more = NULL;
    assert_ok(stator_tensors_create(&set));
    assert_ok(stator_tensors_create(&less));
    assert_ok(stator_tensors_create(&more));
    for (int i = 0; i < 3; i++) {
        assert_ok(stator_tensors_add(set, &all[i]));
        assert_ok(stator_tensors_add(more, &all[i]));
        if (i != 1) assert_ok(stator_tensors_add(less, &all[i]));
    }
    stator_tensor_t extra = tensor("net.3.weight", STATOR_DTYPE_F32, 1, HIDDEN, 0);
    extra.data = b1;
    assert_ok(stator_tensors_add(more, &extra));
    assert_ok(stator_session_load(t.session, set));
    assert_ok(stator_session_read(t.session, "1.bias", read, sizeof read));
    assert_memory_equal(read, b1, sizeof b1);
    assert_refused(stator_session_load(t.session, less), STATOR_INVALID, "1.bias");
    assert_refused(stator_session_load(t.session, more), STATOR_INVALID, "net.3.weight");
    /* settling gives the graph the file's names */
    assert_ok(stator_graph_settle(t.graph, set, NULL));
    assert_string_equal(stator_graph_at(t.graph, STATOR_PARAMETER, 0).name, "net.1.weight");
    assert_refused(stator_graph_settle(t.graph, less, NULL), STATOR_INVALID, "1.bias");
    stator_tensors_destroy(more);
    stator_tensors_destroy(less);
    stator_tensors_destroy(set);
    close_training(&t);
}

static void characters_come_back(void **state) {
    (void)state;
    static const char text[] = "to be or not to be";
    stator_tokenizer_t *made = NULL, *loaded = NULL;
    int64_t *tokens = NULL;
    char *back = NULL;
    size_t n = 0, bytes = 0;
    assert_ok(stator_tokenizer_chars(text, sizeof text - 1, &made));
    assert_int_equal(stator_tokenizer_vocabulary(made), 7); /* space b e n o r t */
    assert_int_equal(stator_tokenizer_begin(made), -1);
    assert_ok(stator_tokenizer_save(made, "api.vocab.json"));
    assert_ok(stator_tokenizer_load("api.vocab.json", &loaded));
    unlink("api.vocab.json");
    assert_ok(stator_tokenizer_encode(loaded, "robot", 5, &tokens, &n));
    assert_int_equal(n, 5);
    assert_int_equal(tokens[0], 5);
    assert_ok(stator_tokenizer_decode(made, tokens, n, &back, &bytes));
    assert_int_equal(bytes, 5);
    assert_memory_equal(back, "robot", 5);
    stator_free(back);
    stator_free(tokens);
    assert_refused(stator_tokenizer_encode(loaded, "bee!", 4, &tokens, &n), STATOR_INVALID, "");
    stator_tokenizer_destroy(loaded);
    stator_tokenizer_destroy(made);
}

static void tables_can_be_read(void **state) {
    (void)state;
    stator_op_info_t op;
    size_t n = 0, seen = 0;
    for (; stator_op_at(n, &op); n++) {
        assert_true(op.name[0] != 0 && op.summary[0] != 0);
        seen += strcmp(op.name, "matmul") == 0;
    }
    assert_true(n > 80);
    assert_int_equal(seen, 1);
    assert_string_equal(stator_status_text(STATOR_OK), "ok");
    assert_int_equal(strncmp(stator_version(), "0.1", 3), 0);
    assert_non_null(stator_libraries());
    assert_int_equal(stator_dtype_bytes(STATOR_DTYPE_BF16), 2);
    assert_string_equal(stator_dtype_text(STATOR_DTYPE_I64), "i64");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_built_graph_learns),
        cmocka_unit_test(a_step_of_sgd_is_what_it_says),
        cmocka_unit_test(an_evaluation_sees_the_trained_state),
        cmocka_unit_test(files_bring_back_what_was_saved),
        cmocka_unit_test(wrong_feeds_are_refused),
        cmocka_unit_test(labels_out_of_range_stop_the_session),
        cmocka_unit_test(wrong_graphs_are_refused),
        cmocka_unit_test(wrong_training_options_are_refused),
        cmocka_unit_test(options_know_their_kinds),
        cmocka_unit_test(tensors_are_found_by_name),
        cmocka_unit_test(weights_may_differ_by_a_prefix),
        cmocka_unit_test(characters_come_back),
        cmocka_unit_test(tables_can_be_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
