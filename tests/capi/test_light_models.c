/* The four ONNX models whose weights are left out: planned for a CPU and for a GPU, as they are
 * and, with a cross-entropy attached, for training. Packing stays within 1 % of the bytes alive at
 * once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
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

static const struct {
    const char *name, *output;
} models[] = {
    {"densenet121", "fc6_1"},
    {"resnet50", "gpu_0/softmax_1"},
    {"shufflenet", "gpu_0/softmax_1"},
    {"squeezenet", "softmaxout_1"},
};
static const char *const targets[] = {"cpu", "h200"};

static stator_value_t value_of_output(const stator_graph_t *graph, const char *name) {
    char *text, wanted[96];
    unsigned value;
    assert_ok(stator_graph_print(graph, &text));
    snprintf(wanted, sizeof wanted, "output \"%s\" = %%", name);
    const char *line = strstr(text, wanted);
    assert_non_null(line);
    assert_int_equal(sscanf(line + strlen(wanted), "%u", &value), 1);
    stator_free(text);
    return value;
}

/* Cross-entropy of the 1,000 classes, to labels of a new input. */
static void attach_loss(stator_graph_t *graph, const char *output) {
    stator_value_t in[2], loss, scores = value_of_output(graph, output);
    stator_tensor_t type;
    assert_ok(stator_graph_value_type(graph, scores, &type));
    assert_int_equal(type.dims[1], 1000);
    const int64_t rows = type.dims[0];
    char shape[48];
    snprintf(shape, sizeof shape, "shape=[%d,1000]", (int)rows);
    assert_ok(stator_graph_add(graph, "reshape", NULL, 1, &scores, shape, &in[0]));
    const stator_tensor_t labels = {
        .name = "labels", .dtype = STATOR_DTYPE_I64, .rank = 1, .dims = {rows}};
    assert_ok(stator_graph_add_port(graph, STATOR_INPUT, &labels, &in[1]));
    assert_ok(stator_graph_add(graph, "cross_entropy", NULL, 2, in, NULL, &loss));
    assert_ok(stator_graph_add_output(graph, "loss", loss));
}

static void plan(const stator_graph_t *graph, const char *target, const char *mode,
                 const char *what) {
    stator_options_t *options;
    stator_plan_t *made;
    assert_ok(stator_options_create(&options));
    assert_ok(stator_options_set(options, "target", target));
    assert_ok(stator_options_set(options, "mode", mode));
    assert_ok(stator_options_set(options, "threads", "1"));
    assert_ok(stator_plan_compile(graph, options, NULL, &made));
    const stator_plan_info_t info = stator_plan_info(made);
    const double gap = (double)info.work_bytes / (double)info.live_bound_bytes - 1;
    print_message("%s, %s, %s: %u kernels, %.1f MiB, %.3f %% over the bound\n", what, target, mode,
                  info.n_kernels, (double)info.work_bytes / 0x1p20, gap * 100);
    assert_true(info.n_kernels > 20);
    assert_true(info.live_bound_bytes > 0);
    assert_true(gap >= 0 && gap <= 0.01);
    stator_plan_destroy(made);
    stator_options_destroy(options);
}

static void light_models_are_planned(void **state) {
    (void)state;
    if (access(STATOR_SHARED_DIR "/data/README.md", R_OK) != 0) skip();
    for (size_t m = 0; m < sizeof models / sizeof models[0]; m++) {
        char path[512];
        stator_options_t *options;
        stator_graph_t *graph, *step;
        stator_tensors_t *weights;
        snprintf(path, sizeof path, "%s/data/light_%s.onnx", STATOR_SHARED_DIR, models[m].name);
        assert_ok(stator_options_create(&options));
        assert_ok(stator_graph_import(path, options, &graph, &weights));
        for (int t = 0; t < 2; t++) plan(graph, targets[t], "eval", models[m].name);
        attach_loss(graph, models[m].output);
        assert_ok(stator_graph_make_training(graph, options, &step));
        for (int t = 0; t < 2; t++) plan(step, targets[t], "train", models[m].name);
        stator_graph_destroy(step);
        stator_graph_destroy(graph);
        stator_tensors_destroy(weights);
        stator_options_destroy(options);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(light_models_are_planned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
