/* lstm.input of torch.export archives against the layer's formulas, written down here once more. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "import/pt2_make.h"

enum { T = 4, B = 3, I = 2, H = 3, LAYERS = 2, MAX_WEIGHTS = 16, MOST = 4 * H * 2 * H };

static uint64_t random_state;
static double number(void) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (double)(float)((double)(random_state >> 33) / (double)(1u << 30) - 1);
}

static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

/* One direction over x[T][B][n_in]; weights w[4H][n_in], r[4H][H], b[4H] twice or NULL; gates in
 * the order i, f, g, o. y gets [T][B][stride] from column `at` on; h and c go from the first to the
 * last state. */
static void naive(const double *x, int n_in, const double *w, const double *r, const double *b,
                  const double *b2, bool reverse, double *y, int stride, int at, double *h,
                  double *c) {
    for (int n = 0; n < T; n++) {
        int t = reverse ? T - 1 - n : n;
        for (int i = 0; i < B; i++) {
            double gate[4 * H];
            for (int k = 0; k < 4 * H; k++) {
                gate[k] = b ? b[k] + b2[k] : 0;
                for (int j = 0; j < n_in; j++)
                    gate[k] += w[k * n_in + j] * x[(t * B + i) * n_in + j];
                for (int j = 0; j < H; j++) gate[k] += r[k * H + j] * h[i * H + j];
            }
            for (int k = 0; k < H; k++) {
                double *cell = &c[i * H + k];
                *cell = sigmoid(gate[H + k]) * *cell + sigmoid(gate[k]) * tanh(gate[2 * H + k]);
                h[i * H + k] = sigmoid(gate[3 * H + k]) * tanh(*cell);
                y[(t * B + i) * stride + at + k] = h[i * H + k];
            }
        }
    }
}

typedef struct form {
    int directions;
    bool bias, batch_first;
} form_t;

static const char *described_as; /* what the archive says of hn; NULL: nothing */

/* The archive: x and the states are fed, the weights are parameters. */
static uint8_t *make_archive(const form_t *f, double weights[][MOST], size_t *out_bytes) {
    pt2_maker_t m = {0};
    char list[512] = "", arguments[1024], type[64];
    int n = 0;
    snprintf(type, sizeof type, "f32[%d,%d,%d]", f->batch_first ? B : T, f->batch_first ? T : B, I);
    pt2_input(&m, "x", type);
    snprintf(type, sizeof type, "f32[%d,%d,%d]", LAYERS * f->directions, B, H);
    pt2_input(&m, "h", type);
    pt2_input(&m, "c", type);
    for (int layer = 0; layer < LAYERS; layer++)
        for (int d = 0; d < f->directions; d++)
            for (int k = 0; k < (f->bias ? 4 : 2); k++, n++) {
                char name[16];
                int columns = k == 1 ? H : layer ? H * f->directions : I;
                snprintf(type, sizeof type, k < 2 ? "f32[%d,%d]" : "f32[%d]", 4 * H, columns);
                snprintf(name, sizeof name, "w%d", n);
                pt2_state(&m, "parameter", name, type, weights[n]);
                snprintf(list + strlen(list), sizeof list - strlen(list), "%s%%%s", n ? "," : "",
                         name);
            }
    snprintf(
        arguments, sizeof arguments,
        "input=%%x hx=[%%h,%%c] params=[%s] has_biases=%s num_layers=%d dropout=0.0 train=true "
        "bidirectional=%s batch_first=%s",
        list, f->bias ? "true" : "false", LAYERS, f->directions == 2 ? "true" : "false",
        f->batch_first ? "true" : "false");
    pt2_node(&m, "lstm.input", arguments, "y,hn,cn");
    if (described_as) pt2_describe(&m, "hn", described_as);
    pt2_output(&m, "y");
    pt2_output(&m, "hn");
    pt2_output(&m, "cn");
    return pt2_finish(&m, out_bytes);
}

static void assert_near(const double *got, const double *expected, size_t n, const char *what) {
    for (size_t i = 0; i < n; i++)
        if (!(fabs(got[i] - expected[i]) <= 2e-6))
            fail_msg("%s[%zu] is %.9g, %.9g expected", what, i, got[i], expected[i]);
}

/* [B][T][n] ↔ [T][B][n] */
static void swap_batch(const double *from, double *to, int n, bool to_batch) {
    for (int t = 0; t < T; t++)
        for (int i = 0; i < B; i++)
            for (int k = 0; k < n; k++) {
                int time_first = (t * B + i) * n + k, batch_first = (i * T + t) * n + k;
                if (to_batch)
                    to[batch_first] = from[time_first];
                else
                    to[time_first] = from[batch_first];
            }
}

static void check_form(const form_t *f) {
    double weights[MAX_WEIGHTS][MOST], x[T * B * 2 * H], fed[T * B * I];
    double h0[LAYERS * 2 * B * H], c0[LAYERS * 2 * B * H], h[LAYERS * 2 * B * H];
    double c[LAYERS * 2 * B * H], y[T * B * 2 * H], swapped[T * B * 2 * H];
    const int n_y = T * B * f->directions * H, n_states = LAYERS * f->directions * B * H;
    random_state = 7;
    for (int i = 0; i < MAX_WEIGHTS; i++)
        for (int k = 0; k < MOST; k++) weights[i][k] = number();
    for (int i = 0; i < T * B * I; i++) x[i] = number();
    for (int i = 0; i < n_states; i++) h[i] = h0[i] = number();
    for (int i = 0; i < n_states; i++) c[i] = c0[i] = number();
    memcpy(fed, x, sizeof fed);
    if (f->batch_first) swap_batch(x, fed, I, true);
    for (int layer = 0, n = 0; layer < LAYERS; layer++) {
        int n_in = layer ? H * f->directions : I;
        for (int d = 0; d < f->directions; d++, n += f->bias ? 4 : 2) {
            int at = (layer * f->directions + d) * B * H;
            naive(x, n_in, weights[n], weights[n + 1], f->bias ? weights[n + 2] : NULL,
                  weights[n + 3], d == 1, y, f->directions * H, d * H, &h[at], &c[at]);
        }
        memcpy(x, y, (size_t)n_y * sizeof *y);
    }
    if (f->batch_first) {
        swap_batch(y, swapped, f->directions * H, true);
        memcpy(y, swapped, (size_t)n_y * sizeof *y);
    }
    size_t bytes;
    uint8_t *file = make_archive(f, weights, &bytes);
    import_result_t *result;
    if (import_memory(file, bytes, "lstm", NULL, &result) != ST_OK) fail_msg("%s", st_last_error());
    const feed_t feeds[] = {{"x", fed}, {"h", h0}, {"c", c0}};
    const struct {
        const char *name;
        const double *expected;
        int n;
    } outputs[] = {{"y", y, n_y}, {"hn", h, n_states}, {"cn", c, n_states}};
    for (int o = 0; o < 3; o++) {
        ir_type_t type;
        double *got = run_graph(result, feeds, 3, outputs[o].name, &type);
        assert_int_equal(ir_type_elements(&type), outputs[o].n);
        assert_near(got, outputs[o].expected, (size_t)outputs[o].n, outputs[o].name);
        free(got);
    }
    /* loops, not written out */
    size_t n_loops = 0;
    for (size_t i = 0; i < result->graph->nodes.n; i++)
        n_loops += result->graph->nodes.data[i].op == IR_OP_REPEAT;
    assert_int_equal(n_loops, LAYERS * f->directions);
    import_result_destroy(result);
    free(file);
}

static void layers_follow_their_formulas(void **state) {
    (void)state;
    for (int directions = 1; directions <= 2; directions++)
        for (int bias = 0; bias < 2; bias++)
            for (int batch_first = 0; batch_first < 2; batch_first++)
                check_form(&(form_t){directions, bias == 1, batch_first == 1});
}

/* PyTorch 2.11 writes shapes of the last states that are not theirs. A wrong type is another
 * matter. */
static void a_wrong_description_of_the_states_is_noted(void **state) {
    (void)state;
    static double weights[MAX_WEIGHTS][MOST];
    const form_t form = {1, true, false};
    for (int wrong = 0; wrong < 2; wrong++) {
        size_t bytes;
        described_as = wrong ? "f64[2,3,3]" : "f32[3,2,3]";
        uint8_t *file = make_archive(&form, weights, &bytes);
        described_as = NULL;
        import_result_t *result = NULL;
        const st_status_t status = import_memory(file, bytes, "lstm", NULL, &result);
        if (wrong) {
            assert_int_equal(status, ST_INVALID);
            assert_non_null(strstr(st_last_error(), "result 'hn' is f32[2,3,3] by"));
        } else {
            assert_int_equal(status, ST_OK);
            size_t n = 0;
            for (size_t i = 0; i < result->messages.n; i++)
                n += strstr(result->messages.data[i], "result 'hn' is f32[2,3,3] by") &&
                     strstr(result->messages.data[i], "the archive says f32[3,2,3]");
            assert_int_equal(n, 1);
        }
        import_result_destroy(result);
        free(file);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_follow_their_formulas),
        cmocka_unit_test(a_wrong_description_of_the_states_is_noted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
