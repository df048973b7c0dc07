/* Recomputation on the cases of ../shared/cases: loss, every gradient and the running statistics
 * have the bits of the plan that keeps everything, in float32 and float64, on one to three ranks.
 * Freed memory is poisoned. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
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

static const char *const cases[] = {"llama_tiny", "llama_tiny_tied", "resnet_tiny"};
enum { N_CASES = sizeof cases / sizeof cases[0] };

static const char *path_of(const char *name, const char *file) {
    static char path[512];
    snprintf(path, sizeof path, "%s/cases/%s/%s", STATOR_SHARED_DIR, name, file);
    return path;
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

static void open_case(opened_t *o, const char *name, int ranks, const char *dtype) {
    char text[16];
    *o = (opened_t){0};
    assert_ok(stator_options_create(&o->options));
    snprintf(text, sizeof text, "%d", ranks);
    set(o, "ranks", text);
    set(o, "threads", "1");
    set(o, "dtype", dtype);
    assert_ok(stator_graph_import(path_of(name, "model.pt2"), o->options, &o->graph, &o->values));
    assert_ok(stator_tensors_load(path_of(name, "weights.safetensors"), &o->weights));
    assert_ok(stator_tensors_load(path_of(name, "batches.safetensors"), &o->batches));
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

static const stator_port_kind_t kinds[] = {STATOR_OUTPUT, STATOR_PARAMETER, STATOR_BUFFER};
enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

/* Number `index` of the step graph's ports, as the plan has it: its own order may be another. */
static stator_tensor_t port_at(const opened_t *o, stator_port_kind_t kind, size_t index) {
    const char *name = stator_graph_at(o->step, kind, index).name;
    size_t i = 0;
    while (strcmp(stator_plan_at(o->plan, kind, i).name, name) != 0) i++;
    return stator_plan_at(o->plan, kind, i);
}

/* Bytes of all outputs of a step, then of parameters and buffers; the caller frees them. */
static unsigned char *gradients_with(const char *name, int ranks, const char *dtype,
                                     const char *recompute, size_t *out_bytes) {
    opened_t o;
    open_case(&o, name, ranks, dtype);
    set(&o, "recompute", recompute);
    assert_ok(stator_graph_add_gradients(o.graph, o.options, &o.step));
    start_case(&o);
    size_t n_outputs = stator_plan_count(o.plan, STATOR_OUTPUT), n_feeds, bytes = 0, at = 0;
    for (int k = 0; k < N_KINDS; k++)
        for (size_t i = 0; i < stator_graph_count(o.step, kinds[k]); i++)
            bytes += port_at(&o, kinds[k], i).bytes;
    unsigned char *all = calloc(1, bytes);
    stator_fetch_t *fetches = calloc(n_outputs, sizeof *fetches);
    for (size_t i = 0; i < n_outputs; i++) {
        stator_tensor_t port = port_at(&o, STATOR_OUTPUT, i);
        fetches[i] = (stator_fetch_t){port.name, all + at, port.bytes};
        at += port.bytes;
    }
    const stator_tensor_t *feeds;
    assert_ok(stator_data_next(o.data, &n_feeds, &feeds));
    assert_ok(stator_session_step(o.session, n_feeds, feeds, n_outputs, fetches));
    for (int k = 1; k < N_KINDS; k++)
        for (size_t i = 0; i < stator_graph_count(o.step, kinds[k]); i++) {
            stator_tensor_t port = port_at(&o, kinds[k], i);
            assert_ok(stator_session_read(o.session, port.name, all + at, port.bytes));
            at += port.bytes;
        }
    assert_int_equal(at, bytes);
    free(fetches);
    close_case(&o);
    *out_bytes = bytes;
    return all;
}

/* Loss, gradients and running statistics, which are updated once, whatever runs again. */
static void recomputation_changes_no_bit(void **state) {
    static const char *const policies[] = {"auto", "fused", "full"};
    (void)state;
    if (access(STATOR_SHARED_DIR "/cases/README.md", R_OK) != 0) {
        print_message("skipped: %s/cases is absent\n", STATOR_SHARED_DIR);
        skip();
    }
    for (int c = 0; c < N_CASES; c++)
        for (int ranks = 1; ranks <= 3; ranks++)
            for (int wide = 0; wide < 2; wide++) {
                const char *dtype = wide ? "f64" : "auto";
                size_t n, n_again;
                unsigned char *kept = gradients_with(cases[c], ranks, dtype, "off", &n);
                for (int p = 0; p < 3; p++) {
                    unsigned char *again =
                        gradients_with(cases[c], ranks, dtype, policies[p], &n_again);
                    assert_int_equal(n, n_again);
                    if (memcmp(kept, again, n) != 0)
                        fail_msg("%s in %s on %d ranks: --recompute %s changes bits", cases[c],
                                 dtype, ranks, policies[p]);
                    free(again);
                }
                free(kept);
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(recomputation_changes_no_bit)};
    setenv("STATOR_POISON", "1", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
