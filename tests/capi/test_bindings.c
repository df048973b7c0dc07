/* Two bindings of one model share a state: training at two lengths in turn gives the same bits as
 * two sessions that hand the state over. */
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

enum { BATCH = 2, LONGEST = 64, VOCABULARY = 64, STEPS = 6, LARGEST = 1 << 14 };

static const char config[] =
    "{\"model_type\":\"llama\",\"hidden_act\":\"silu\",\"vocab_size\":64,\"hidden_size\":32,"
    "\"intermediate_size\":64,\"num_hidden_layers\":2,\"num_attention_heads\":4,"
    "\"num_key_value_heads\":2,\"max_position_embeddings\":128,\"tie_word_embeddings\":true}";

static stator_options_t *options_with(const char *const *rows, size_t n) {
    stator_options_t *options = NULL;
    assert_ok(stator_options_create(&options));
    for (size_t i = 0; i < n; i++)
        assert_ok(stator_options_set(options, rows[2 * i], rows[2 * i + 1]));
    return options;
}

static stator_graph_t *open_model(void) {
    char path[] = "bindings.XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    assert_int_equal(write(file, config, sizeof config - 1), sizeof config - 1);
    assert_int_equal(close(file), 0);
    const char *const rows[] = {"config", path, "batch", "2", "seq", "32", "symbolic", "batch,seq"};
    stator_options_t *options = options_with(rows, 4);
    stator_graph_t *graph = NULL;
    assert_ok(stator_graph_llama(options, 1, &graph));
    stator_options_destroy(options);
    assert_int_equal(unlink(path), 0);
    return graph;
}

/* The training step for one length; its state lies as `like` has it. */
static stator_plan_t *plan_for(const stator_graph_t *graph, const char *bind,
                               const stator_plan_t *like) {
    const char *const rows[] = {"bind", bind, "optimizer", "adamw", "lr", "0.01", "threads", "1"};
    stator_options_t *options = options_with(rows, 4);
    stator_graph_t *bound = NULL, *step = NULL;
    stator_plan_t *plan = NULL;
    assert_ok(stator_graph_bind(graph, options, &bound));
    assert_ok(stator_graph_make_training(bound, options, &step));
    assert_ok(stator_plan_compile(step, options, like, &plan));
    stator_graph_destroy(step);
    stator_graph_destroy(bound);
    stator_options_destroy(options);
    return plan;
}

static float train(stator_session_t *session, int64_t seq, int number) {
    int64_t x[BATCH * LONGEST], y[BATCH * LONGEST];
    float loss = 0;
    for (int64_t i = 0; i < BATCH * seq; i++) {
        x[i] = (7 * i + number) % VOCABULARY;
        y[i] = (7 * i + 7 + number) % VOCABULARY;
    }
    size_t bytes = sizeof x[0] * BATCH * (size_t)seq;
    stator_tensor_t feeds[] = {{"x", STATOR_DTYPE_I64, 2, {BATCH, seq}, x, bytes},
                               {"y", STATOR_DTYPE_I64, 2, {BATCH, seq}, y, bytes}};
    stator_fetch_t fetch = {"loss", &loss, sizeof loss};
    assert_ok(stator_session_step(session, 2, feeds, 1, &fetch));
    return loss;
}

static size_t read_state(stator_session_t *session, stator_port_kind_t kind, size_t i,
                         unsigned char *out) {
    stator_tensor_t t = stator_session_at(session, kind, i);
    size_t bytes = stator_dtype_bytes(t.dtype);
    for (int32_t d = 0; d < t.rank; d++) bytes *= (size_t)t.dims[d];
    assert_true(bytes <= LARGEST);
    assert_ok(stator_session_read(session, t.name, out, bytes));
    return bytes;
}

static const stator_port_kind_t kinds[] = {STATOR_PARAMETER, STATOR_BUFFER};

static void hand_over(stator_session_t *from, stator_session_t *to) {
    static unsigned char data[LARGEST];
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < stator_session_count(from, kinds[k]); i++) {
            stator_tensor_t t = stator_session_at(from, kinds[k], i);
            t.bytes = read_state(from, kinds[k], i, data);
            t.data = data;
            assert_ok(stator_session_write(to, &t));
        }
}

static void open_sizes_are_told(void **state) {
    (void)state;
    stator_graph_t *graph = open_model();
    stator_symbol_t symbol;
    assert_int_equal(stator_graph_symbol_at(graph, 0, &symbol), 1);
    assert_string_equal(symbol.name, "batch");
    assert_int_equal(symbol.least, 1);
    assert_int_equal(symbol.most, INT64_MAX);
    assert_int_equal(symbol.example, 2);
    assert_int_equal(stator_graph_symbol_at(graph, 1, &symbol), 1);
    assert_string_equal(symbol.name, "seq");
    assert_int_equal(symbol.example, 32);
    assert_true(symbol.most >= 32 && symbol.most < INT64_MAX);
    assert_int_equal(stator_graph_symbol_at(graph, 2, &symbol), 0);
    assert_string_equal(stator_graph_dim_at(graph, STATOR_INPUT, 0, 0), "batch");
    assert_string_equal(stator_graph_dim_at(graph, STATOR_INPUT, 1, 1), "seq");
    assert_null(stator_graph_dim_at(graph, STATOR_INPUT, 0, 2));
    assert_null(stator_graph_dim_at(graph, STATOR_INPUT, 2, 0));
    assert_null(stator_graph_dim_at(graph, STATOR_PARAMETER, 0, 0));
    stator_graph_destroy(graph);
}

static void bindings_share_a_state(void **state) {
    (void)state;
    static unsigned char a[LARGEST], b[LARGEST];
    static const char *const none[] = {"seed", "3"};
    stator_graph_t *graph = open_model();
    stator_options_t *seed = options_with(none, 1);
    stator_plan_t *short_plan = plan_for(graph, "batch=2,seq=32", NULL);
    stator_plan_t *long_plan = plan_for(graph, "batch=2,seq=64", short_plan);
    stator_plan_t *long_alone = plan_for(graph, "batch=2,seq=64", NULL);
    stator_session_t *s32 = NULL, *s64 = NULL, *alone32 = NULL, *alone64 = NULL;
    assert_ok(stator_session_create(short_plan, NULL, &s32));
    assert_ok(stator_session_create(long_plan, s32, &s64));
    assert_ok(stator_session_create(short_plan, NULL, &alone32));
    assert_ok(stator_session_create(long_alone, NULL, &alone64));
    assert_ok(stator_session_initialize(s32, seed));
    assert_ok(stator_session_initialize(alone32, seed));
    stator_session_t *last = alone32;
    float first = 0, loss = 0;
    for (int i = 0; i < STEPS; i++) {
        stator_session_t *next = i % 2 ? alone64 : alone32;
        int64_t seq = i % 2 ? 64 : 32;
        if (next != last) hand_over(last, next);
        loss = train(i % 2 ? s64 : s32, seq, i);
        float other = train(next, seq, i);
        assert_memory_equal(&loss, &other, sizeof loss);
        if (!i) first = loss;
        last = next;
    }
    assert_true(loss != first); /* it did train */
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < stator_session_count(last, kinds[k]); i++) {
            size_t bytes = read_state(last, kinds[k], i, a);
            assert_int_equal(read_state(s64, kinds[k], i, b), bytes);
            assert_memory_equal(a, b, bytes);
        }
    stator_session_destroy(s64);
    stator_session_destroy(s32);
    stator_session_destroy(alone32);
    stator_session_destroy(alone64);
    stator_plan_destroy(short_plan);
    stator_plan_destroy(long_plan);
    stator_plan_destroy(long_alone);
    stator_options_destroy(seed);
    stator_graph_destroy(graph);
}

static void open_sizes_are_refused_by_name(void **state) {
    (void)state;
    stator_graph_t *graph = open_model(), *made = NULL;
    stator_plan_t *plan = NULL;
    const char *const rows[] = {"bind", "batch=4"};
    stator_options_t *options = options_with(rows, 1);
    assert_int_equal(stator_graph_make_training(graph, options, &made), STATOR_INVALID);
    assert_non_null(strstr(stator_last_error(), "batch (1 or more), seq (1 to 128)"));
    assert_int_equal(stator_plan_compile(graph, options, NULL, &plan), STATOR_INVALID);
    assert_non_null(strstr(stator_last_error(), "batch (1 or more), seq (1 to 128)"));
    assert_int_equal(stator_graph_bind(graph, options, &made), STATOR_INVALID);
    assert_non_null(strstr(stator_last_error(), "not bound: seq (1 to 128)"));
    assert_null(made);
    assert_null(plan);
    stator_options_destroy(options);
    stator_graph_destroy(graph);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(open_sizes_are_told),
        cmocka_unit_test(bindings_share_a_state),
        cmocka_unit_test(open_sizes_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
