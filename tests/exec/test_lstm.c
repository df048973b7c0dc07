/* An LSTM trains: its gradients against those of the layer written out and against differences of
 * the loss, and its loss on a text. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "autodiff/precision.h"
#include "autodiff/train_graph.h"
#include "base/memory.h"
#include "exec/models.h"
#include "exec/written_out.h"
#include "import/recurrent.h"
#include "ir/build.h"

static ir_type_t f32(int32_t rank, int64_t a, int64_t b, int64_t c) {
    return ir_type_make(IR_F32, rank, (int64_t[]){a, b, c});
}

/* One layer over x[T,B,I], in both directions where asked: [T,B,D·H]. */
static ir_value_t layer(ir_build_t *b, const char *name, ir_value_t x, int64_t hidden,
                        int directions) {
    ir_value_t y[2], h, c;
    const ir_type_t type = *ir_b_type(b, x);
    for (int d = 0; d < directions; d++) {
        char names[3][32];
        static const char *const parts[] = {"w", "r", "b"};
        for (int i = 0; i < 3; i++)
            snprintf(names[i], sizeof names[i], "%s.%d.%s", name, d, parts[i]);
        const ir_value_t zero = ir_b_splat(b, f32(2, type.dims[1], hidden, 0), 0);
        const import_lstm_t one = {
            .x = x,
            .w = ir_b_parameter(b, names[0], f32(2, 4 * hidden, type.dims[2], 0)),
            .r = ir_b_parameter(b, names[1], f32(2, 4 * hidden, hidden, 0)),
            .bias = ir_b_parameter(b, names[2], f32(1, 4 * hidden, 0, 0)),
            .h0 = zero,
            .c0 = zero,
            .gates = {.input = 0, .forget = 1, .cell = 2, .output = 3},
            .reverse = d == 1};
        import_lstm(b, &one, &y[d], &h, &c);
    }
    return directions == 1 ? y[0] : ir_b_concat(b, 2, y, 2);
}

/* Two layers, the first one in both directions, and the mean of the squares of all states. */
static ir_graph_t *deep(void) {
    ir_graph_t *graph;
    assert_int_equal(ir_graph_create("deep", &graph), ST_OK);
    ir_build_t b = {.graph = graph};
    ir_value_t x = ir_b_input(&b, "x", f32(3, 5, 6, 2), 1);
    ir_value_t y = layer(&b, "two", layer(&b, "one", x, 3, 2), 4, 1);
    y = ir_b_unary(&b, IR_OP_SQUARE, y);
    ir_b_output(&b, "loss", ir_b_reduce(&b, IR_OP_REDUCE_MEAN, y, 0, NULL, false));
    if (b.status != ST_OK) fail_msg("%s", st_last_error());
    return graph;
}

static void gradients_equal_the_layers_written_out(void **state) {
    (void)state;
    ir_graph_t *forward = deep(), *flat = written_out(forward);
    ir_graph_t *step = model_train(forward, "adamw", 0.5), *plain = model_train(flat, "adamw", 0.5);
    plan_t *plan = compile_ok(plain, &(compile_options_t){.dtype = IR_F64});
    double *expected, *got;
    size_t n = run_plan(plan, 3, &expected);
    plan_destroy(plan);
    for (uint32_t ranks = 1; ranks <= 3; ranks++) {
        plan = compile_ok(step, &(compile_options_t){.dtype = IR_F64, .n_ranks = ranks});
        assert_int_equal(run_plan(plan, 3, &got), n);
        assert_close(n, expected, got, 1e-11, "lstm");
        st_free(got);
        plan_destroy(plan);
    }
    st_free(expected);
    ir_graph_destroy(forward);
    ir_graph_destroy(flat);
    ir_graph_destroy(step);
    ir_graph_destroy(plain);
}

/* ---- mixed precision ---- */

/* Products in bodies, by dtype. */
static void count_products(const ir_graph_t *graph, bool inside, ir_dtype_t low, int *n_low,
                           int *n_wide) {
    for (ir_node_t i = 0; i < graph->nodes.n; i++) {
        const ir_node_info_t *node = ir_node(graph, i);
        const ir_attr_t *body = node->op == IR_OP_REPEAT ? ir_node_attr(node, "body") : NULL;
        if (body) count_products(body->graph, true, low, n_low, n_wide);
        if (!inside || node->op != IR_OP_MATMUL) continue;
        bool is_low = ir_value_type(graph, node->first_output)->dtype == low;
        *(is_low ? n_low : n_wide) += 1;
    }
}

/* Largest difference of an output, relative to its largest element. */
static double worst_output(const plan_t *plan, size_t n, const double *given,
                           const double *wanted) {
    double worst = 0;
    for (uint32_t o = plan->n_outputs; o-- > 0;) { /* they come last */
        double off = 0, largest = 0;
        for (int64_t left = ir_type_elements(&plan->outputs[o].type); left > 0; left--) {
            n--;
            const double difference = fabs(given[n] - wanted[n]);
            off = difference <= off ? off : difference; /* a NaN stays */
            largest = fmax(largest, fabs(wanted[n]));
        }
        worst = off / largest <= worst ? worst : off / largest;
    }
    return worst;
}

/* The loops' products are 16 bits wide, forward and backward, and the gradients near float64's:
 * each value is rounded by 2^-9 (bf16) or 2^-12 (f16), and about 16 of them add up on the way. */
static void loops_compute_in_16_bits(void **state) {
    (void)state;
    static const struct {
        ir_dtype_t dtype;
        double tolerance;
    } rows[] = {{IR_BF16, 0x1p-5}, {IR_F16, 0x1p-8}};
    ir_graph_t *forward = deep(), *with, *mixed;
    double *wanted, *got;
    assert_int_equal(ad_gradient_graph(forward, NULL, 0, &with), ST_OK);
    plan_t *plan = compile_ok(with, &(compile_options_t){.dtype = IR_F64});
    size_t n = run_plan(plan, 1, &wanted);
    plan_destroy(plan);
    for (int r = 0; r < 2; r++) {
        int n_low = 0, n_wide = 0;
        assert_int_equal(ad_precision(with, rows[r].dtype, &mixed), ST_OK);
        count_products(mixed, false, rows[r].dtype, &n_low, &n_wide);
        ir_graph_destroy(mixed);
        assert_true(n_low >= 9); /* one a loop, at least two more its gradient's */
        assert_int_equal(n_wide, 0);
        for (uint32_t ranks = 1; ranks <= 3; ranks += 2) {
            plan = compile_ok(with, &(compile_options_t){.dtype = rows[r].dtype, .n_ranks = ranks});
            assert_int_equal(run_plan(plan, 1, &got), n);
            const double worst = worst_output(plan, n, got, wanted);
            print_message("%s, %u ranks: off by %g\n", ir_dtype_text(rows[r].dtype), ranks, worst);
            assert_true(worst > 0 && worst <= rows[r].tolerance);
            st_free(got);
            plan_destroy(plan);
        }
    }
    st_free(wanted);
    ir_graph_destroy(forward);
    ir_graph_destroy(with);
}

/* ---- differences ---- */

static const ir_type_t *state_type(const plan_t *plan, const char *name) {
    const ir_graph_t *graph = plan->programs[0].graph;
    return ir_value_type(graph, ir_node(graph, ir_graph_find(graph, name))->first_output);
}

static double loss_at(exec_session_t *session, const plan_t *plan, const double *x) {
    double loss;
    const exec_feed_t feed = {"x", plan->inputs[0].type, x};
    const exec_fetch_t fetch = {"loss", &loss, sizeof loss};
    if (exec_session_step(session, 1, &feed, 1, &fetch) != ST_OK) fail_msg("%s", st_last_error());
    return loss;
}

/* Every eleventh element of every parameter, by fourth-order central differences in float64. */
static void gradients_equal_differences(void **state) {
    (void)state;
    ir_graph_t *forward = deep(), *with;
    assert_int_equal(ad_gradient_graph(forward, NULL, 0, &with), ST_OK);
    const compile_options_t options = {.dtype = IR_F64};
    plan_t *plan = compile_ok(forward, &options), *back = compile_ok(with, &options);
    exec_session_t *session, *other;
    double x[5 * 6 * 2];
    size_t n_checked = 0;
    assert_int_equal(exec_session_create(plan, NULL, &session), ST_OK);
    assert_int_equal(exec_session_create(back, NULL, &other), ST_OK);
    fill_states(session, plan);
    fill_states(other, back);
    fill_random(&plan->inputs[0].type, x, 3, 0);
    for (uint32_t o = 0; o < back->n_outputs; o++) {
        const char *name = back->outputs[o].name;
        if (strncmp(name, "grad.", 5) != 0) continue;
        const ir_type_t *type = state_type(plan, name + 5);
        double *w = st_malloc(ir_type_bytes(type)), *grad = st_malloc(ir_type_bytes(type));
        const exec_feed_t feed = {"x", back->inputs[0].type, x};
        const exec_fetch_t fetch = {name, grad, ir_type_bytes(type)};
        assert_int_equal(exec_session_step(other, 1, &feed, 1, &fetch), ST_OK);
        assert_int_equal(exec_state_read(session, name + 5, type, w), ST_OK);
        for (int64_t i = 0; i < ir_type_elements(type); i += 11) {
            static const double shifts[] = {1, -1, 2, -2};
            double at[4], keep = w[i], h = 1e-3;
            for (int s = 0; s < 4; s++) {
                w[i] = keep + shifts[s] * h;
                assert_int_equal(exec_state_write(session, name + 5, type, w), ST_OK);
                at[s] = loss_at(session, plan, x);
            }
            w[i] = keep;
            double slope = (8 * (at[0] - at[1]) - (at[2] - at[3])) / (12 * h);
            if (!(fabs(slope - grad[i]) <= 1e-9))
                fail_msg("%s[%lld] is %.12g, differences give %.12g", name, (long long)i, grad[i],
                         slope);
            n_checked++;
        }
        assert_int_equal(exec_state_write(session, name + 5, type, w), ST_OK);
        st_free(w);
        st_free(grad);
    }
    assert_true(n_checked > 20);
    exec_session_destroy(session);
    exec_session_destroy(other);
    plan_destroy(plan);
    plan_destroy(back);
    ir_graph_destroy(forward);
    ir_graph_destroy(with);
}

/* ---- a text ---- */

/* The next letter of a rhyme whose lines begin alike, from windows of 16 letters. */
static const char rhyme[] =
    "this is the house that jack built. this is the malt that lay in the house that jack built. "
    "this is the rat that ate the malt that lay in the house that jack built. ";
enum { STEPS = 16, BATCH = 12, LETTERS = 28, HIDDEN = 24, ROUNDS = 120 };

static int64_t letter(size_t at) {
    char c = rhyme[at % (sizeof rhyme - 1)];
    return c == ' ' ? 26 : c == '.' ? 27 : c - 'a';
}

static ir_graph_t *speller(void) {
    ir_graph_t *graph;
    assert_int_equal(ir_graph_create("speller", &graph), ST_OK);
    ir_build_t b = {.graph = graph};
    const int64_t tokens[] = {STEPS, BATCH};
    ir_value_t x = ir_b_input(&b, "x", ir_type_make(IR_I64, 2, tokens), 1);
    ir_value_t y = ir_b_input(&b, "y", ir_type_make(IR_I64, 2, tokens), 1);
    ir_value_t table = ir_b_parameter(&b, "embed", f32(2, LETTERS, 12, 0));
    ir_value_t h = layer(&b, "lstm", ir_b_gather(&b, table, x, 0), HIDDEN, 1);
    h = ir_b_reshape(&b, h, 2, (int64_t[]){STEPS * BATCH, HIDDEN});
    ir_value_t w = ir_b_parameter(&b, "out", f32(2, LETTERS, HIDDEN, 0));
    ir_value_t logits = ir_b_matmul(&b, h, w, false, true);
    ir_value_t labels = ir_b_reshape(&b, y, 1, (int64_t[]){STEPS * BATCH});
    ir_b_output(&b, "loss",
                ir_b_node(&b, IR_OP_CROSS_ENTROPY, 2, (ir_value_t[]){logits, labels}, 0, NULL));
    if (b.status != ST_OK) fail_msg("%s", st_last_error());
    return graph;
}

static void its_loss_falls_on_a_text(void **state) {
    (void)state;
    ir_graph_t *forward = speller(), *step;
    ad_train_options_t options;
    assert_int_equal(ad_train_defaults("adam", &options), ST_OK);
    options.lr = 0.02;
    options.clip_norm = 1;
    assert_int_equal(ad_train_graph(forward, &options, &step), ST_OK);
    plan_t *plan = compile_ok(step, &(compile_options_t){.n_ranks = 2});
    exec_session_t *session;
    assert_int_equal(exec_session_create(plan, NULL, &session), ST_OK);
    fill_states(session, plan);
    for (ir_node_t n = 0; n < plan->programs[0].graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(plan->programs[0].graph, n);
        if (node->op != IR_OP_BUFFER) continue;
        const ir_type_t *type = ir_value_type(plan->programs[0].graph, node->first_output);
        void *data = st_calloc(1, ir_type_bytes(type));
        assert_int_equal(exec_state_write(session, node->name, type, data), ST_OK);
        st_free(data);
    }
    float first = 0, loss = 0;
    for (int round = 0; round < ROUNDS; round++) {
        int64_t x[STEPS][BATCH], y[STEPS][BATCH];
        for (size_t i = 0; i < BATCH; i++)
            for (size_t t = 0; t < STEPS; t++) {
                size_t at = (size_t)round * 5 + i * 14 + t;
                x[t][i] = letter(at);
                y[t][i] = letter(at + 1);
            }
        const ir_type_t type = ir_type_make(IR_I64, 2, (const int64_t[]){STEPS, BATCH});
        const exec_feed_t feeds[] = {{"x", type, x}, {"y", type, y}};
        const exec_fetch_t fetch = {"loss", &loss, sizeof loss};
        if (exec_session_step(session, 2, feeds, 1, &fetch) != ST_OK)
            fail_msg("%s", st_last_error());
        if (round == 0) first = loss;
    }
    print_message("loss %.3f, then %.3f\n", (double)first, (double)loss);
    assert_true(first > 3 && first < 4); /* log 28 is 3.33 */
    assert_true(loss < 0.5f);            /* letters alone, without memory, stay above 1.5 */
    exec_session_destroy(session);
    plan_destroy(plan);
    ir_graph_destroy(step);
    ir_graph_destroy(forward);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_equal_the_layers_written_out),
        cmocka_unit_test(gradients_equal_differences),
        cmocka_unit_test(loops_compute_in_16_bits),
        cmocka_unit_test(its_loss_falls_on_a_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
