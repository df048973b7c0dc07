/* The cases of ../shared/cases: loss, every gradient, running statistics and training curves
 * against PyTorch's own numbers, through .pt2 and ONNX, on one to four ranks.
 *
 * Tolerances (from the cases' README): step 0 in float32, loss 1e-5 relative, each gradient and
 * running statistic 1e-4 in |a-b|/|b|, and 1e-6 of the largest gradient where it is zero in exact
 * arithmetic. Curves in float64: 1e-6 relative. In float32: Llamas 1e-4; ResNets 1e-3 for three
 * losses and two norms. */
#include <json-c/json.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
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

typedef struct case_row {
    const char *name, *model;
} case_row_t;
static const case_row_t cases[] = {
    {"llama_tiny", "model.pt2"},
    {"llama_tiny", "model.dynamo.onnx"},
    {"llama_tiny_tied", "model.pt2"},
    {"llama_tiny_tied", "model.dynamo.onnx"},
    {"resnet_tiny", "model.pt2"},
    {"resnet_tiny", "model.torchscript.onnx"},
    {"resnet_tiny_smoothing", "model.pt2"},
};
enum { N_CASES = sizeof cases / sizeof cases[0], N_STEPS = 20 };

static const char *path_of(const case_row_t *row, const char *file) {
    static char paths[4][512];
    static int turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof paths[0], "%s/cases/%s/%s", STATOR_SHARED_DIR, row->name, file);
    return path;
}

static bool shared_is_there(void) {
    if (access(STATOR_SHARED_DIR "/cases/README.md", R_OK) == 0) return true;
    print_message("skipped: %s/cases is absent\n", STATOR_SHARED_DIR);
    return false;
}

/* ---- a case, opened ---- */

typedef struct opened {
    stator_options_t *options;
    stator_graph_t *graph, *step;
    stator_tensors_t *values, *weights, *batches;
    stator_plan_t *plan;
    stator_session_t *session;
    stator_data_t *data;
} opened_t;

static void set(opened_t *o, const char *key, const char *value) {
    assert_ok(stator_options_set(o->options, key, value));
}

static void open_case(opened_t *o, const case_row_t *row, int ranks, const char *dtype) {
    char text[16];
    *o = (opened_t){0};
    assert_ok(stator_options_create(&o->options));
    snprintf(text, sizeof text, "%d", ranks);
    set(o, "ranks", text);
    set(o, "threads", "1");
    set(o, "dtype", dtype);
    assert_ok(stator_graph_import(path_of(row, row->model), o->options, &o->graph, &o->values));
    assert_ok(stator_tensors_load(path_of(row, "weights.safetensors"), &o->weights));
    assert_ok(stator_tensors_load(path_of(row, "batches.safetensors"), &o->batches));
    assert_ok(stator_graph_settle(o->graph, o->weights, o->values));
}

static void start_case(opened_t *o) {
    assert_ok(stator_plan_compile(o->step, o->options, NULL, &o->plan));
    assert_ok(stator_session_create(o->plan, NULL, &o->session));
    assert_ok(stator_session_initialize(o->session, o->options));
    assert_ok(stator_session_restore(o->session, o->values, 0));
    assert_ok(stator_session_load(o->session, o->weights));
    assert_ok(stator_data_tensors(o->plan, o->batches, "x=x.*,y=y.*", &o->data));
}

static void close_case(opened_t *o) {
    stator_data_destroy(o->data);
    stator_session_destroy(o->session);
    stator_plan_destroy(o->plan);
    stator_tensors_destroy(o->batches);
    stator_tensors_destroy(o->weights);
    stator_tensors_destroy(o->values);
    stator_graph_destroy(o->step);
    stator_graph_destroy(o->graph);
    stator_options_destroy(o->options);
}

/* ---- step 0 ---- */

typedef struct norms {
    double difference, reference;
} norms_t;

static norms_t compare(const float *got, const stator_tensor_t *reference) {
    norms_t n = {0};
    const float *expected = reference->data;
    for (size_t i = 0; i < reference->bytes / sizeof *expected; i++) {
        double d = (double)got[i] - (double)expected[i];
        n.difference += d * d;
        n.reference += (double)expected[i] * (double)expected[i];
    }
    n.difference = sqrt(n.difference);
    n.reference = sqrt(n.reference);
    return n;
}

/* Fails unless `got` agrees; `largest` is the norm of the largest tensor of its kind. */
static void check_close(const case_row_t *row, const char *name, const float *got,
                        const stator_tensor_t *reference, double largest) {
    norms_t n = compare(got, reference);
    bool zero = n.reference <= 1e-6 * largest;
    double limit = zero ? 1e-6 * largest : 1e-4 * n.reference;
    if (!(n.difference <= limit))
        fail_msg("%s/%s: %s differs by %g, reference norm %g, limit %g", row->name, row->model,
                 name, n.difference, n.reference, limit);
}

static double largest_gradient(const stator_tensors_t *reference) {
    double largest = 0;
    for (size_t i = 0; i < stator_tensors_count(reference); i++) {
        stator_tensor_t t = stator_tensors_at(reference, i);
        if (strncmp(t.name, "grad.", 5) != 0) continue;
        double sum = 0;
        for (size_t k = 0; k < t.bytes / sizeof(float); k++)
            sum += (double)((const float *)t.data)[k] * (double)((const float *)t.data)[k];
        if (sqrt(sum) > largest) largest = sqrt(sum);
    }
    return largest;
}

static void check_step0(const case_row_t *row, int ranks, const char *fusion) {
    opened_t o;
    stator_tensors_t *reference = NULL;
    open_case(&o, row, ranks, "auto");
    set(&o, "fusion", fusion);
    assert_ok(stator_graph_add_gradients(o.graph, o.options, &o.step));
    start_case(&o);
    assert_ok(stator_tensors_load(path_of(row, "reference_step0.safetensors"), &reference));
    size_t n_outputs = stator_plan_count(o.plan, STATOR_OUTPUT), n_feeds = 0, n_checked = 0;
    stator_fetch_t *fetches = calloc(n_outputs, sizeof *fetches);
    for (size_t i = 0; i < n_outputs; i++) {
        stator_tensor_t port = stator_plan_at(o.plan, STATOR_OUTPUT, i);
        fetches[i] = (stator_fetch_t){port.name, calloc(1, port.bytes), port.bytes};
    }
    const stator_tensor_t *feeds;
    assert_ok(stator_data_next(o.data, &n_feeds, &feeds));
    assert_ok(stator_session_step(o.session, n_feeds, feeds, n_outputs, fetches));
    double largest = largest_gradient(reference);
    for (size_t i = 0; i < n_outputs; i++) {
        stator_tensor_t expected;
        if (stator_tensors_find(reference, fetches[i].name, &expected) != STATOR_OK)
            fail_msg("%s/%s: the reference has no '%s'", row->name, row->model, fetches[i].name);
        assert_int_equal(expected.bytes, fetches[i].bytes);
        if (strcmp(fetches[i].name, "loss") == 0) {
            double a = (double)*(float *)fetches[i].data, b = (double)*(const float *)expected.data;
            if (!(fabs(a - b) <= 1e-5 * fabs(b)))
                fail_msg("%s/%s on %d ranks: loss %.9g, reference %.9g", row->name, row->model,
                         ranks, a, b);
        } else {
            check_close(row, fetches[i].name, fetches[i].data, &expected, largest);
        }
        n_checked++;
        free(fetches[i].data);
    }
    free(fetches);
    for (size_t i = 0; i < stator_tensors_count(reference); i++) {
        stator_tensor_t expected = stator_tensors_at(reference, i);
        if (strncmp(expected.name, "after.", 6) != 0) continue;
        float *got = calloc(1, expected.bytes);
        assert_ok(stator_session_read(o.session, expected.name + 6, got, expected.bytes));
        check_close(row, expected.name, got, &expected, 0);
        n_checked++;
        free(got);
    }
    /* everything in the reference but the logits, which the graph does not give out */
    assert_int_equal(n_checked, stator_tensors_count(reference) - 1);
    stator_tensors_destroy(reference);
    close_case(&o);
}

static void step_0_agrees_with_pytorch(void **state) {
    (void)state;
    if (!shared_is_there()) skip();
    for (int c = 0; c < N_CASES; c++)
        for (int ranks = 1; ranks <= 4; ranks++)
            check_step0(&cases[c], ranks, ranks == 2 ? "on" : "off");
}

/* ---- curves ---- */

typedef struct recipe {
    const char *name;
    const char *options[12]; /* key, value, … */
} recipe_t;
static const recipe_t recipes[] = {
    {"adamw_clip1",
     {"optimizer", "adamw", "lr", "1e-3", "betas", "0.9,0.95", "weight-decay", "0.1", "clip",
      "1.0"}},
    {"sgd", {"optimizer", "sgd", "lr", "0.05", "momentum", "0.9", "weight-decay", "5e-5"}},
    {"sgd_nesterov", {"optimizer", "sgd", "lr", "0.05", "momentum", "0.9", "nesterov", "true"}},
};

static double number_at(json_object *curve, const char *key, int step) {
    json_object *list = NULL;
    assert_true(json_object_object_get_ex(curve, key, &list));
    return json_object_get_double(json_object_array_get_idx(list, (size_t)step));
}

static void check_number(const case_row_t *row, const recipe_t *recipe, int ranks,
                         const char *dtype, const char *what, int step, double got, double expected,
                         double limit) {
    if (!(fabs(got - expected) <= limit * fabs(expected)))
        fail_msg(
            "%s/%s, %s in %s on %d ranks: %s at step %d is %.12g, reference %.12g (%.2g, limit %g)",
            row->name, row->model, recipe->name, dtype, ranks, what, step + 1, got, expected,
            fabs(got - expected) / fabs(expected), limit);
}

static void check_curve(const case_row_t *row, const recipe_t *recipe, json_object *curve,
                        int ranks, const char *dtype) {
    opened_t o;
    bool f64 = strcmp(dtype, "f64") == 0, resnet = strncmp(row->name, "resnet", 6) == 0;
    double limit = f64 ? 1e-6 : resnet ? 1e-3 : 1e-4;
    int n_losses = f64 || !resnet ? N_STEPS : 3, n_norms = f64 || !resnet ? N_STEPS : 2;
    open_case(&o, row, ranks, dtype);
    for (int i = 0; recipe->options[i]; i += 2) set(&o, recipe->options[i], recipe->options[i + 1]);
    assert_ok(stator_graph_make_training(o.graph, o.options, &o.step));
    start_case(&o);
    for (int step = 0; step < n_losses; step++) {
        union {
            double f64;
            float f32;
        } loss, norm;
        size_t bytes = f64 ? sizeof(double) : sizeof(float), n_feeds;
        const stator_tensor_t *feeds;
        stator_fetch_t fetches[] = {{"loss", &loss, bytes}, {"grad_norm", &norm, bytes}};
        assert_ok(stator_data_next(o.data, &n_feeds, &feeds));
        assert_ok(stator_session_step(o.session, n_feeds, feeds, 2, fetches));
        double loss_value = f64 ? loss.f64 : (double)loss.f32;
        double norm_value = f64 ? norm.f64 : (double)norm.f32;
        check_number(row, recipe, ranks, dtype, "loss", step, loss_value,
                     number_at(curve, "losses", step), limit);
        if (step < n_norms)
            check_number(row, recipe, ranks, dtype, "gradient norm", step, norm_value,
                         number_at(curve, "grad_norms", step), limit);
    }
    close_case(&o);
}

static void check_curves(const char *dtype, const char *suffix) {
    for (int c = 0; c < N_CASES; c++) {
        json_object *root = json_object_from_file(path_of(&cases[c], "reference_training.json"));
        json_object *trajectories = NULL, *curve = NULL;
        int n_checked = 0;
        assert_true(json_object_object_get_ex(root, "trajectories", &trajectories));
        for (size_t r = 0; r < sizeof recipes / sizeof recipes[0]; r++) {
            char key[64];
            snprintf(key, sizeof key, "%s%s", recipes[r].name, suffix);
            if (!json_object_object_get_ex(trajectories, key, &curve)) continue;
            for (int ranks = 1; ranks <= 4; ranks++)
                check_curve(&cases[c], &recipes[r], curve, ranks, dtype);
            n_checked++;
        }
        assert_int_equal(2 * n_checked, json_object_object_length(trajectories));
        json_object_put(root);
    }
}

static void curves_in_float64_agree_with_pytorch(void **state) {
    (void)state;
    if (!shared_is_there()) skip();
    check_curves("f64", "_f64");
}

static void curves_in_float32_agree_with_pytorch(void **state) {
    (void)state;
    if (!shared_is_there()) skip();
    check_curves("auto", "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(step_0_agrees_with_pytorch),
        cmocka_unit_test(curves_in_float64_agree_with_pytorch),
        cmocka_unit_test(curves_in_float32_agree_with_pytorch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
