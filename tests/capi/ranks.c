#include "ranks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "feed.h"

#define assert_ok(expr)                                                                      \
    do {                                                                                     \
        stator_status_t status_ = (expr);                                                    \
        if (status_ != STATOR_OK)                                                            \
            fail_msg("%s: %s: %s", #expr, stator_status_text(status_), stator_last_error()); \
    } while (0)

static const double TOLERANCE = 1e-9;

typedef struct trained {
    stator_plan_t *plan;
    stator_session_t *session;
} trained_t;

static void run_steps(const trained_t *t, int n_steps, int64_t n_labels) {
    size_t n = stator_plan_count(t->plan, STATOR_INPUT);
    stator_tensor_t *feeds = calloc(n, sizeof *feeds);
    void **data = calloc(n, sizeof *data);
    uint64_t state = 1;
    for (size_t i = 0; i < n; i++) {
        feeds[i] = stator_plan_at(t->plan, STATOR_INPUT, i);
        feeds[i].data = data[i] = malloc(feeds[i].bytes);
    }
    for (int step = 0; step < n_steps; step++) {
        for (size_t i = 0; i < n; i++) feed_fill(&feeds[i], data[i], n_labels, &state);
        assert_ok(stator_session_step(t->session, n, feeds, 0, NULL));
    }
    for (size_t i = 0; i < n; i++) free(data[i]);
    free(data);
    free(feeds);
}

static trained_t train(const ranks_case_t *row, int ranks) {
    stator_options_t *options = NULL;
    stator_graph_t *graph = NULL, *step = NULL;
    trained_t t = {NULL, NULL};
    char text[16];
    assert_ok(stator_options_create(&options));
    for (int i = 0; row->options[i]; i += 2)
        assert_ok(stator_options_set(options, row->options[i], row->options[i + 1]));
    snprintf(text, sizeof text, "%d", ranks);
    assert_ok(stator_options_set(options, "ranks", text));
    assert_ok(stator_options_set(options, "threads", "1"));
    assert_ok(stator_options_set(options, "dtype", "f64"));
    int llama = strcmp(row->model, "llama") == 0;
    assert_ok(llama ? stator_graph_llama(options, 1, &graph)
                    : stator_graph_resnet(options, 1, &graph));
    assert_ok(stator_graph_make_training(graph, options, &step));
    assert_ok(stator_plan_compile(step, options, NULL, &t.plan));
    assert_ok(stator_session_create(t.plan, NULL, &t.session));
    assert_ok(stator_session_initialize(t.session, options));
    run_steps(&t, row->n_steps, llama ? 63 : 10);
    stator_graph_destroy(step);
    stator_graph_destroy(graph);
    stator_options_destroy(options);
    return t;
}

static void release(trained_t *t) {
    stator_session_destroy(t->session);
    stator_plan_destroy(t->plan);
}

static void compare_tensor(const ranks_case_t *row, const trained_t *one, const trained_t *many,
                           const stator_tensor_t *tensor, int ranks) {
    void *a = malloc(tensor->bytes), *b = malloc(tensor->bytes);
    assert_ok(stator_session_read(one->session, tensor->name, a, tensor->bytes));
    assert_ok(stator_session_read(many->session, tensor->name, b, tensor->bytes));
    if (tensor->dtype != STATOR_DTYPE_F64) {
        assert_memory_equal(a, b, tensor->bytes);
    } else {
        double largest = 0; /* moments are small: they are held against their own size */
        for (size_t i = 0; i < tensor->bytes / sizeof(double); i++)
            largest = fmax(largest, fabs(((double *)a)[i]));
        for (size_t i = 0; i < tensor->bytes / sizeof(double); i++) {
            double x = ((double *)a)[i], y = ((double *)b)[i];
            if (!(fabs(x - y) <= TOLERANCE * largest))
                fail_msg("%s on %d ranks: %s[%zu] is %.17g, on one rank %.17g", row->model, ranks,
                         tensor->name, i, y, x);
        }
    }
    free(a);
    free(b);
}

void ranks_check(const ranks_case_t *row) {
    trained_t one = train(row, 1);
    for (int ranks = 2; ranks <= 4; ranks++) {
        trained_t many = train(row, ranks);
        size_t n_compared = 0;
        for (int kind = STATOR_PARAMETER; kind <= STATOR_BUFFER; kind++) {
            size_t n = stator_session_count(one.session, (stator_port_kind_t)kind);
            assert_int_equal(n, stator_session_count(many.session, (stator_port_kind_t)kind));
            for (size_t i = 0; i < n; i++, n_compared++) {
                stator_tensor_t tensor =
                    stator_session_at(one.session, (stator_port_kind_t)kind, i);
                compare_tensor(row, &one, &many, &tensor, ranks);
            }
        }
        assert_true(n_compared > 20);
        release(&many);
    }
    release(&one);
}
