/* PyTorch's control flow: archives written by control/make.py import, and give PyTorch's own loss
 * and gradients, on one to three ranks, fused and not; what a plan cannot have is refused by
 * name. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "stator/stator.h"

#define FOLDER STATOR_SOURCE_DIR "/tests/capi/control/"
#define must(expr)                                                                           \
    do {                                                                                     \
        stator_status_t status_ = (expr);                                                    \
        if (status_ != STATOR_OK)                                                            \
            fail_msg("%s: %s: %s", #expr, stator_status_text(status_), stator_last_error()); \
    } while (0)

static const char *const models[] = {"cond_true", "cond_false",   "cond_in_cond",
                                     "scan",      "scan_reverse", "map",
                                     "while",     "while_twice",  "cond_in_scan"};

static const char *path_of(const char *name, const char *end) {
    static char path[512];
    snprintf(path, sizeof path, FOLDER "%s.%s", name, end);
    return path;
}

/* float32 sums of a few dozen terms. */
static void assert_near(const char *model, const char *name, const stator_tensor_t *expected,
                        const float *got) {
    const float *wanted = expected->data;
    double largest = 0;
    for (size_t i = 0; i < expected->bytes / sizeof *wanted; i++)
        largest = fmax(largest, fabs((double)wanted[i]));
    for (size_t i = 0; i < expected->bytes / sizeof *wanted; i++)
        if (!(fabs((double)wanted[i] - (double)got[i]) <= 1e-5 * largest))
            fail_msg("%s: %s[%zu] is %.9g, PyTorch's %.9g", model, name, i, (double)got[i],
                     (double)wanted[i]);
}

static void compare(const char *model, const char *ranks, const char *fusion) {
    stator_options_t *options;
    stator_graph_t *graph, *step;
    stator_tensors_t *weights, *reference;
    stator_plan_t *plan;
    stator_session_t *session;
    stator_tensor_t x;
    must(stator_options_create(&options));
    must(stator_options_set(options, "ranks", ranks));
    must(stator_options_set(options, "threads", "1"));
    must(stator_options_set(options, "fusion", fusion));
    must(stator_graph_import(path_of(model, "pt2"), options, &graph, &weights));
    must(stator_tensors_load(path_of(model, "safetensors"), &reference));
    must(stator_graph_add_gradients(graph, options, &step));
    must(stator_plan_compile(step, options, NULL, &plan));
    must(stator_session_create(plan, NULL, &session));
    must(stator_session_load(session, weights));
    must(stator_tensors_find(reference, "x", &x));
    assert_int_equal(stator_plan_count(plan, STATOR_INPUT), 1);
    assert_string_equal(stator_plan_at(plan, STATOR_INPUT, 0).name, "x");
    stator_fetch_t fetches[8];
    size_t n = stator_plan_count(plan, STATOR_OUTPUT), n_compared = 0;
    assert_true(n <= 8);
    for (size_t i = 0; i < n; i++) {
        stator_tensor_t port = stator_plan_at(plan, STATOR_OUTPUT, i);
        fetches[i] = (stator_fetch_t){port.name, calloc(1, port.bytes), port.bytes};
    }
    must(stator_session_step(session, 1, &x, n, fetches));
    for (size_t i = 0; i < n; i++) {
        stator_tensor_t expected;
        must(stator_tensors_find(reference, fetches[i].name, &expected));
        assert_int_equal(expected.bytes, fetches[i].bytes);
        assert_near(model, fetches[i].name, &expected, fetches[i].data);
        n_compared++;
        free(fetches[i].data);
    }
    assert_int_equal(n_compared, stator_tensors_count(reference) - 1); /* all but x */
    stator_session_destroy(session);
    stator_plan_destroy(plan);
    stator_tensors_destroy(reference);
    stator_tensors_destroy(weights);
    stator_graph_destroy(step);
    stator_graph_destroy(graph);
    stator_options_destroy(options);
}

static void models_give_pytorchs_loss_and_gradients(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        compare(models[i], "1", "off");
        compare(models[i], "1", "on");
        compare(models[i], "3", "on");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_give_pytorchs_loss_and_gradients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
