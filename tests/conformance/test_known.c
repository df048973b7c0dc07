/* Answers known from the definitions, for faults that other systems had: ceil-mode pooling, wide
 * pads, unequal pads, strides that leave a remainder, reverse slices, empty dims, indices out of
 * range, batch norm's momentum, epsilon's place, rotary layouts, Adam's first step, NaN. Each on
 * every implementation. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cases.h"
#include "ir/convert.h"

/* Runs `row` on f32 or f64 data given in `in` (NULL: as the case says) on each implementation and
 * compares output 0. */
static void expect(conf_case_t row, ir_dtype_t dtype, int n_given, const double *const *given,
                   int64_t n, const double *expected, double tolerance) {
    conf_built_t built;
    conf_build(&row, dtype, &built);
    for (int j = 0; j < n_given; j++)
        for (int64_t i = 0; given[j] && i < ir_type_elements(&built.in[j]); i++) {
            if (built.in[j].dtype == IR_F64) ((double *)built.in_data[j])[i] = given[j][i];
            if (built.in[j].dtype == IR_F32) ((float *)built.in_data[j])[i] = (float)given[j][i];
            if (built.in[j].dtype == IR_I64)
                ((int64_t *)built.in_data[j])[i] = (int64_t)given[j][i];
        }
    assert_int_equal(ir_type_elements(&built.out[0]), n);
    int n_ran = 0;
    for (const kern_impl_t *const *impl = kern_list("cpu", row.op); *impl; impl++) {
        const char *reason;
        if ((*impl)->can_run && !(*impl)->can_run(&built.problem, &reason)) continue;
        double data[CONF_MAX_OPERANDS][64];
        void *out[CONF_MAX_OPERANDS];
        for (uint32_t k = 0; k < built.problem.n_out; k++) {
            assert_in_range(ir_type_bytes(&built.out[k]), 0, sizeof data[k]);
            out[k] = data[k];
        }
        if (kern_run_impl(*impl, &built.problem, 1, (const void *const *)built.in_data, out) !=
            ST_OK)
            fail_msg("%s: %s", (*impl)->name, st_last_error());
        for (int64_t i = 0; i < n; i++) {
            double got = dtype == IR_F64 ? data[0][i] : (double)((float *)out[0])[i];
            if (got != expected[i] && !(fabs(got - expected[i]) <= tolerance) &&
                !(isnan(expected[i]) && isnan(got)))
                fail_msg("%s, %s: [%lld] is %.9g, %.9g expected", built.name, (*impl)->name,
                         (long long)i, got, expected[i]);
        }
        n_ran++;
    }
    assert_true(n_ran > 0);
    conf_release(&built);
}

#define LIST(...) ((const double[]){__VA_ARGS__})
#define GIVEN(...) ((const double *const[]){__VA_ARGS__})
static const ir_dtype_t reals[2] = {IR_F32, IR_F64};
#define EACH_REAL(type)                     \
    for (int t_ = 0, n_ = 2; t_ < n_; t_++) \
        for (ir_dtype_t type = reals[t_], once_ = 1; once_; once_ = 0)

static void ceil_mode_drops_a_window_that_starts_in_the_padding(void **state) {
    (void)state;
    EACH_REAL(type) {
        expect((conf_case_t){IR_OP_AVG_POOL, "f", "T:1,1,9",
                             "kernel=4 strides=4 pads_low=2 pads_high=2 ceil=1", 0},
               type, 1, GIVEN(LIST(1, 2, 3, 4, 5, 6, 7, 8, 9)), 3, LIST(1.5, 4.5, 8), 1e-6);
        expect((conf_case_t){IR_OP_MAX_POOL, "f", "T:1,1,5",
                             "kernel=2 strides=2 pads_low=1 pads_high=1 dilations=1 ceil=1", 0},
               type, 1, GIVEN(LIST(-1, -2, -3, -4, -5)), 3, LIST(-1, -2, -4), 0);
    }
}

static void average_pool_takes_pads_wider_than_the_kernel(void **state) {
    (void)state;
    EACH_REAL(type)
    expect((conf_case_t){IR_OP_AVG_POOL, "f", "T:1,1,5",
                         "kernel=2 strides=2 pads_low=2 pads_high=3 count_pad=1", 0},
           type, 1, GIVEN(LIST(1, 2, 3, 4, 5)), 5, LIST(0, 1.5, 3.5, 2.5, 0), 1e-6);
}

static void unequal_pads_keep_their_sides(void **state) {
    (void)state;
    EACH_REAL(type) {
        expect((conf_case_t){IR_OP_CONV, "f", "T:1,1,3 T:1,1,2",
                             "strides=1 pads_low=1 pads_high=0 dilations=1", 0},
               type, 2, GIVEN(LIST(1, 2, 3), LIST(1, 10)), 3, LIST(10, 21, 32), 1e-5);
        /* dx[q] = sum over k of dy[q + 1 - k] w[k] */
        expect((conf_case_t){IR_OP_CONV_GRAD_INPUT, "f", "T:1,1,3 T:1,1,2",
                             "strides=1 pads_low=1 pads_high=0 dilations=1 spatial=3", 0},
               type, 2, GIVEN(LIST(1, 2, 3), LIST(1, 10)), 3, LIST(12, 23, 30), 1e-5);
        expect((conf_case_t){IR_OP_CONV_GRAD_WEIGHT, "f", "T:1,1,3 T:1,1,3",
                             "strides=1 pads_low=1 pads_high=0 dilations=1 kernel=2", 0},
               type, 2, GIVEN(LIST(1, 2, 3), LIST(1, 2, 3)), 2, LIST(8, 14), 1e-5);
    }
}

static void stride_remainder_gets_a_zero_gradient(void **state) {
    (void)state;
    EACH_REAL(type)
    expect((conf_case_t){IR_OP_CONV_GRAD_INPUT, "f", "T=1:1,1,2 T=1:1,1,3",
                         "strides=2 pads_low=0 pads_high=0 dilations=1 spatial=6", 0},
           type, 0, NULL, 6, LIST(1, 1, 2, 1, 1, 0), 1e-6);
}

static void reverse_slices_reach_the_front_and_take_empty_dims(void **state) {
    (void)state;
    EACH_REAL(type) {
        expect((conf_case_t){IR_OP_SLICE, "f", "T:4", "begin=3 end=-1 step=-1", 0}, type, 1,
               GIVEN(LIST(0, 1, 2, 3)), 4, LIST(3, 2, 1, 0), 0);
        expect((conf_case_t){IR_OP_SLICE, "f", "T:4", "begin=3 end=3 step=-1", 0}, type, 0, NULL, 0,
               LIST(0), 0);
        expect((conf_case_t){IR_OP_SLICE, "f", "T:0", "begin=-1 end=-1 step=-1", 0}, type, 0, NULL,
               0, LIST(0), 0);
    }
}

static void one_and_zero_broadcast_to_zero(void **state) {
    (void)state;
    EACH_REAL(type)
    expect((conf_case_t){IR_OP_ADD, "f", "T:1 T:0", "", 0}, type, 0, NULL, 0, LIST(0), 0);
}

/* The op on an index that is out of range by one on either side: an error that names index,
 * position and size, and no byte written. */
static void refuse_index(conf_case_t row, uint32_t input, int64_t position, int64_t index,
                         const char *words[3]) {
    conf_built_t built;
    conf_build(&row, IR_F32, &built);
    ((int64_t *)built.in_data[input])[position] = index;
    for (const kern_impl_t *const *impl = kern_list("cpu", row.op); *impl; impl++) {
        const char *reason = "";
        if ((*impl)->can_run && !(*impl)->can_run(&built.problem, &reason)) continue;
        unsigned char data[CONF_MAX_OPERANDS][512];
        void *out[CONF_MAX_OPERANDS];
        memset(data, 0x5A, sizeof data);
        for (uint32_t k = 0; k < built.problem.n_out; k++) out[k] = data[k];
        st_clear_error();
        assert_int_equal(
            kern_run_impl(*impl, &built.problem, 2, (const void *const *)built.in_data, out),
            ST_INVALID);
        for (int w = 0; w < 3; w++)
            if (!strstr(st_last_error(), words[w]))
                fail_msg("%s: '%s' is not in: %s", (*impl)->name, words[w], st_last_error());
        for (size_t i = 0; i < sizeof data; i++) assert_int_equal(((unsigned char *)data)[i], 0x5A);
    }
    conf_release(&built);
}

static void indices_out_of_range_are_errors_and_write_nothing(void **state) {
    (void)state;
    static const struct {
        conf_case_t row;
        int64_t size;
        const char *dim;
    } rows[] = {
        {{IR_OP_GATHER, "f", "T:5,4 l<5:3", "axis=0", 0}, 5, "dim 0 has size 5"},
        {{IR_OP_SCATTER_ADD, "f", "T:3,4 l<5:3", "axis=0 extent=5", 0}, 5, "dim 0 has size 5"},
        {{IR_OP_GATHER_ALONG, "f", "T:3,5 l<5:3,2", "axis=1", 0}, 5, "dim 1 has size 5"},
        {{IR_OP_SCATTER_ALONG_ADD, "f", "T:3,2 l<5:3,2", "axis=1 extent=5", 0},
         5,
         "dim 1 has size 5"},
        {{IR_OP_GATHER_ND, "f", "T:4,4,3 l<4:3,1", "", 0}, 4, "dim 0 has size 4"},
        {{IR_OP_SCATTER_ND_ADD, "f", "T:3,4,3 l<4:3,1", "shape=4,4,3", 0}, 4, "dim 0 has size 4"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int side = 0; side < 2; side++) {
            int64_t index = side ? rows[i].size : -rows[i].size - 1;
            char text[48];
            snprintf(text, sizeof text, "index %lld ", (long long)index);
            refuse_index(rows[i].row, 1, 2, index,
                         (const char *[]){text, "position 2", rows[i].dim});
        }
}

static void bad_labels_are_errors(void **state) {
    (void)state;
    for (int side = 0; side < 2; side++) {
        const char *label = side ? "label 3 " : "label -4 ";
        const char *words[3] = {label, "row 2", "3 classes"};
        int64_t value = side ? 3 : -4;
        refuse_index(
            (conf_case_t){IR_OP_CROSS_ENTROPY_ROWS, "f", "T:4,3 l^3:4", "ignore_index=-1", 0}, 1, 2,
            value, words);
        refuse_index((conf_case_t){IR_OP_CROSS_ENTROPY, "f", "T:4,3 l^3:4", "ignore_index=-1", 0},
                     1, 2, value, words);
        refuse_index((conf_case_t){IR_OP_CROSS_ENTROPY_GRAD, "f", "T:4 T:4,3 l^3:4 T:4",
                                   "ignore_index=-1", 0},
                     2, 2, value, words);
    }
}

static void batch_norm_output_does_not_depend_on_momentum(void **state) {
    (void)state;
    static const char *const attrs[] = {"momentum=0", "momentum=0.5", "momentum=1"};
    const double x[] = {1, 2, 3, 6}, m = 3,
                 s = sqrt(3.5 + 1e-5); /* mean, root of biased variance */
    double y[4];
    for (int i = 0; i < 4; i++) y[i] = (x[i] - m) / s;
    for (int a = 0; a < 3; a++)
        expect((conf_case_t){IR_OP_BATCH_NORM, "f", "T:4,1 T=1:1 T=0:1 T=7:1 T=9:1", attrs[a], 0},
               IR_F64, 1, GIVEN(x), 4, y, 1e-12);
}

static void rms_norm_epsilon_is_inside_the_root(void **state) {
    (void)state;
    double y = 0.70710678;
    EACH_REAL(type)
    expect((conf_case_t){IR_OP_RMS_NORM, "f", "T=0.001:4 T=1:4", "eps=1e-6", 0}, type, 0, NULL, 4,
           LIST(y, y, y, y), 1e-6);
    double z = 0.945245; /* eps = 2^-23 */
    expect((conf_case_t){IR_OP_RMS_NORM, "f", "T=0.001:4 T=1:4", "eps=1.1920929e-7", 0}, IR_F64, 0,
           NULL, 4, LIST(z, z, z, z), 1e-6);
}

static void rotary_pairs_are_halves_or_neighbours(void **state) {
    (void)state;
    const double c[] = {cos(1), cos(0.01)}, s[] = {sin(1), sin(0.01)};
    EACH_REAL(type) {
        expect((conf_case_t){IR_OP_ROPE, "f", "T:1,1,1,4 T:1,2 T:1,2", "interleaved=1", 0}, type, 3,
               GIVEN(LIST(1, 2, 3, 4), c, s), 4, LIST(-1.142640, 1.922076, 2.959851, 4.029800),
               2e-6);
        expect((conf_case_t){IR_OP_ROPE, "f", "T:1,1,1,4 T:1,2 T:1,2", "", 0}, type, 3,
               GIVEN(LIST(1, 2, 3, 4), c, s), 4, LIST(-1.984111, 1.959901, 2.462378, 4.019800),
               2e-6);
    }
}

static void adam_epsilon_comes_after_the_bias_correction(void **state) {
    (void)state;
    EACH_REAL(type)
    expect((conf_case_t){IR_OP_ADAMW, "f",
                         "T=0:1 T=1e-8:1 T=0:1 T=0:1 d=1e-3: l=1: T=1:", "eps=1e-8", 0},
           type, 0, NULL, 1, LIST(-5.0e-4), 1e-9);
}

static void label_smoothing_with_weights_and_ignored_rows(void **state) {
    (void)state;
    /* two classes at equal logits: every log p is -ln 2; rows: class 0, ignored, class 1; weights
     * 1, 3. loss = sum of ((1 - e) w[y] + e (w0 + w1) / 2) ln 2 over 1 + 3 */
    double e = 0.1, expected = ((1 - e) * 4 + 2 * e * 2) * log(2) / 4;
    EACH_REAL(type)
    expect((conf_case_t){IR_OP_CROSS_ENTROPY, "f", "T=0:3,2 l:3 T:2",
                         "smoothing=0.1 ignore_index=-7", 0},
           type, 3, GIVEN(NULL, LIST(0, -7, 1), LIST(1, 3)), 1, LIST(expected), 1e-6);
}

/* Mean over the rows whose label is not the ignored one, of
 * (1 - e) w[y] (lse - x[y]) + e/3 (sum of w[c] (lse - x[c])), divided by the sum of their w[y],
 * with lse = ln sum e^x, e = 0.1 and w = 1, 2, 4: rows 0 and 2 are labelled 2 and 1. */
static void the_ignored_label_may_be_any_number(void **state) {
    (void)state;
    static const double ignored[] = {-100, -1, 0, 3, 1e9};
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++) {
        char attrs[64];
        snprintf(attrs, sizeof attrs, "smoothing=0.1 ignore_index=%lld", (long long)ignored[i]);
        EACH_REAL(type)
        expect((conf_case_t){IR_OP_CROSS_ENTROPY, "f", "T:3,3 l:3 T:3", attrs, 0}, type, 3,
               GIVEN(LIST(1, 2, 3, 3, 1, 2, 0.5, -1, 0), LIST(2, ignored[i], 1), LIST(1, 2, 4)), 1,
               LIST(0.965148071), 1e-6);
    }
}

/* ln of (1, e, 1/e) / (1 + e + 1/e), whatever is added to all scores. */
static void large_scores_keep_their_digits(void **state) {
    (void)state;
    const double rest = -log(1 + exp(1) + exp(-1));
    EACH_REAL(type) {
        expect((conf_case_t){IR_OP_LOG_SOFTMAX, "f", "T:1,3", "axis=1", 0}, type, 1,
               GIVEN(LIST(10000, 10001, 9999)), 3, LIST(rest, rest + 1, rest - 1), 1e-6);
        expect((conf_case_t){IR_OP_CROSS_ENTROPY_ROWS, "f", "T:1,3 l:1", "", 0}, type, 2,
               GIVEN(LIST(10000, 10001, 9999), LIST(1)), 1, LIST(-rest - 1), 1e-6);
    }
}

static void nan_is_not_lost(void **state) {
    (void)state;
    EACH_REAL(type) {
        expect((conf_case_t){IR_OP_RELU, "f", "T:3", "", 0}, type, 1, GIVEN(LIST(NAN, -1, 2)), 3,
               LIST(NAN, 0, 2), 0);
        expect((conf_case_t){IR_OP_MAXIMUM, "f", "T:4 T:4", "", 0}, type, 2,
               GIVEN(LIST(NAN, 1, 3, NAN), LIST(1, NAN, 2, NAN)), 4, LIST(NAN, NAN, 3, NAN), 0);
        expect((conf_case_t){IR_OP_MINIMUM, "f", "T:4 T:4", "", 0}, type, 2,
               GIVEN(LIST(NAN, 1, 3, NAN), LIST(1, NAN, 2, NAN)), 4, LIST(NAN, NAN, 2, NAN), 0);
        expect((conf_case_t){IR_OP_REDUCE_MAX, "f", "T:2,20", "axes=1", 0}, type, 1,
               GIVEN(LIST(0, 1, 2, 3, 4, 5, NAN, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 1,
                          2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, -1)),
               2, LIST(NAN, 19), 0);
        expect((conf_case_t){IR_OP_EXP, "f", "T:5", "", 0}, type, 1,
               GIVEN(LIST(NAN, INFINITY, -INFINITY, 0, -1000)), 5, LIST(NAN, INFINITY, 0, 1, 0), 0);
        expect((conf_case_t){IR_OP_LOG, "f", "T:5", "", 0}, type, 1,
               GIVEN(LIST(NAN, 0, -1, 1, -INFINITY)), 5, LIST(NAN, -INFINITY, NAN, 0, NAN), 0);
        expect((conf_case_t){IR_OP_TANH, "f", "T:3", "", 0}, type, 1, GIVEN(LIST(NAN, 100, -100)),
               3, LIST(NAN, 1, -1), 0);
        expect((conf_case_t){IR_OP_ERF, "f", "T:3", "", 0}, type, 1, GIVEN(LIST(NAN, 100, -100)), 3,
               LIST(NAN, 1, -1), 0);
        expect((conf_case_t){IR_OP_MAX_POOL, "f", "T:1,1,4",
                             "kernel=2 strides=2 pads_low=0 pads_high=0 dilations=1", 0},
               type, 1, GIVEN(LIST(1, NAN, 3, 2)), 2, LIST(NAN, 3), 0);
    }
}

enum { MANY_ROWS = 100000, NORM_SIZE = 8 * 16 };

/* Value i of stream s, in [-1, 1); exact in f32. */
static float wave(uint32_t s, int64_t i) {
    return (float)(((uint32_t)i * 2654435761u + s * 40503u) >> 16) / 32768 - 1;
}

/* dw = sum of dy xhat, db = sum of dy over 100000 rows, and some rows of
 * dx = rstd (dy - mean dy - xhat mean (dy xhat)) for weights of 1, in double. */
static void check_norm_gradient(const float *const *in, const float *const *out, const char *name) {
    static double dw[NORM_SIZE], db[NORM_SIZE];
    memset(dw, 0, sizeof dw);
    memset(db, 0, sizeof db);
    for (int64_t r = 0; r < MANY_ROWS; r++) {
        const float *dy = in[0] + r * NORM_SIZE, *x = in[1] + r * NORM_SIZE;
        double mean = in[2][r], rstd = in[3][r], sum = 0, dot = 0;
        for (int i = 0; i < NORM_SIZE; i++) {
            double xhat = (x[i] - mean) * rstd;
            dw[i] += dy[i] * xhat;
            db[i] += dy[i];
            sum += dy[i];
            dot += dy[i] * xhat;
        }
        if (r % 997 && r != MANY_ROWS - 1) continue;
        for (int i = 0; i < NORM_SIZE; i++) {
            double xhat = (x[i] - mean) * rstd;
            double dx = rstd * (dy[i] - sum / NORM_SIZE - xhat * dot / NORM_SIZE);
            if (!(fabs(out[0][r * NORM_SIZE + i] - dx) <= 1e-5))
                fail_msg("%s: dx[%lld,%d] is %.9g, %.9g expected", name, (long long)r, i,
                         (double)out[0][r * NORM_SIZE + i], dx);
        }
    }
    for (int i = 0; i < NORM_SIZE; i++) /* sums of 100000 terms up to 2: a share of root n of it */
        if (!(fabs(out[1][i] - dw[i]) <= 2e-2) || !(fabs(out[2][i] - db[i]) <= 2e-2))
            fail_msg("%s: dw[%d] is %.9g, %.9g expected; db %.9g, %.9g expected", name, i,
                     (double)out[1][i], dw[i], (double)out[2][i], db[i]);
}

/* Rows of two normalized dims, many times what a task takes, on two threads. */
static void norm_gradients_take_many_rows(void **state) {
    (void)state;
    const size_t sizes[] = {(size_t)MANY_ROWS * NORM_SIZE, (size_t)MANY_ROWS * NORM_SIZE, MANY_ROWS,
                            MANY_ROWS, NORM_SIZE};
    const ir_type_t x = ir_type_make(IR_F32, 3, (int64_t[]){MANY_ROWS, 8, 16}),
                    rows = ir_type_make(IR_F32, 1, (int64_t[]){MANY_ROWS}),
                    w = ir_type_make(IR_F32, 2, (int64_t[]){8, 16});
    const ir_type_t in_types[] = {x, x, rows, rows, w}, out_types[] = {x, w, w};
    const kern_problem_t problem = {IR_OP_LAYER_NORM_GRAD, 5, 3, in_types, out_types, NULL, "norm"};
    float *in[5], *out[3];
    for (uint32_t j = 0; j < 5; j++) {
        in[j] = malloc(sizes[j] * sizeof(float));
        assert_non_null(in[j]);
        for (size_t i = 0; i < sizes[j]; i++)
            in[j][i] = j == 4 ? 1 : j == 3 ? 1.5f + wave(j, (int64_t)i) / 2 : wave(j, (int64_t)i);
    }
    for (uint32_t k = 0; k < 3; k++) { /* exactly as large as they are: ASan watches the ends */
        out[k] = malloc(ir_type_bytes(&out_types[k]));
        assert_non_null(out[k]);
    }
    for (const kern_impl_t *const *impl = kern_list("cpu", IR_OP_LAYER_NORM_GRAD); *impl; impl++) {
        const char *reason = "";
        if ((*impl)->can_run && !(*impl)->can_run(&problem, &reason)) continue;
        if (kern_run_impl(*impl, &problem, 2, (const void *const *)in, (void *const *)out) != ST_OK)
            fail_msg("%s: %s", (*impl)->name, st_last_error());
        check_norm_gradient((const float *const *)in, (const float *const *)out, (*impl)->name);
    }
    for (uint32_t j = 0; j < 5; j++) free(in[j]);
    for (uint32_t k = 0; k < 3; k++) free(out[k]);
}

static void a_row_that_sees_no_key_gives_zero(void **state) {
    (void)state;
    EACH_REAL(type)
    expect((conf_case_t){IR_OP_ATTENTION, "f", "T:1,1,2,2 T:1,1,3,2 T:1,1,3,2 b=0:3", "", 0}, type,
           0, NULL, 4, LIST(0, 0, 0, 0), 0);
}

/* A key that has half a row's weight, where the statistic is too coarse for its digits to be
 * trusted alone: the probabilities that are there add up to a half, and are not made to add up
 * to 1. */
static void a_part_of_the_keys_has_its_part_of_the_weight(void **state) {
    (void)state;
    EACH_REAL(type)
    expect((conf_case_t){IR_OP_ATTENTION_GRAD, "f",
                         "T:1,1,1,1 T:1,1,1,1 T:1,1,1,1 T:1,1,1,1 T:1,1,1,1 W:1,1,1", "part=1", 0},
           type, 6, GIVEN(LIST(1), LIST(2000), LIST(1), LIST(3), LIST(1), LIST(2000 + M_LN2)), 1,
           LIST(1), type == IR_F32 ? 1e-3 : 1e-12);
}

/* Every bit pattern widens to the value that the format says, and floats around every value of the
 * format narrow to the nearest, ties to even: in runs (vector code) and one by one. */
static void small_casts_round_as_the_format_says(void **state) {
    enum { N = 65536 };
    static const ir_dtype_t types[2] = {IR_BF16, IR_F16};
    uint16_t *bits = malloc(N * sizeof *bits), *back = malloc(N * sizeof *back);
    float *wide = malloc(N * sizeof *wide);
    (void)state;
    assert_true(bits && back && wide);
    for (size_t i = 0; i < N; i++) bits[i] = (uint16_t)i;
    for (int t = 0; t < 2; t++) {
        const ir_type_t small = ir_type_make(types[t], 1, (int64_t[]){N}),
                        f32 = ir_type_make(IR_F32, 1, (int64_t[]){N});
        const ir_attr_t to_f32 = {.kind = IR_ATTR_DTYPE, .i = IR_F32};
        const ir_attr_t to_small = {.kind = IR_ATTR_DTYPE, .i = types[t]};
        const kern_problem_t widen = {IR_OP_CAST, 1, 1, &small, &f32, &to_f32, "widen"};
        const kern_problem_t narrow = {IR_OP_CAST, 1, 1, &f32, &small, &to_small, "narrow"};
        assert_int_equal(kern_run_once(&widen, (const void *[]){bits}, (void *[]){wide}), ST_OK);
        for (size_t i = 0; i < N; i++) {
            double value = ir_element_load(types[t], bits, i);
            if (isnan(value) ? !isnan(wide[i]) : (double)wide[i] != value)
                fail_msg("%s: pattern %zu widens to %g, %g expected", ir_dtype_text(types[t]), i,
                         (double)wide[i], value);
        }
        for (int shift = -3; shift <= 3; shift++) { /* steps of f32 around halfway to the next */
            for (size_t i = 0; i < N; i++) {
                float at = (float)ir_element_load(types[t], bits, i);
                float next = (float)ir_element_load(types[t], bits, i < N - 1 ? i + 1 : i);
                wide[i] = shift == 3 ? at : at + (next - at) / 2;
                for (int s = shift; s != 0 && shift != 3 && isfinite(wide[i]); s += s < 0 ? 1 : -1)
                    wide[i] = nextafterf(wide[i], s < 0 ? -INFINITY : INFINITY);
            }
            assert_int_equal(kern_run_once(&narrow, (const void *[]){wide}, (void *[]){back}),
                             ST_OK);
            for (size_t i = 0; i < N; i++) {
                uint16_t expected;
                ir_element_store(types[t], &expected, 0, (double)wide[i]);
                double got = ir_element_load(types[t], back, i);
                if (isnan(wide[i]) ? !isnan(got) : back[i] != expected)
                    fail_msg("%s: %a narrows to %#x, %#x expected", ir_dtype_text(types[t]),
                             (double)wide[i], back[i], expected);
            }
        }
    }
    free(bits);
    free(back);
    free(wide);
}

static void small_casts_round_at_both_levels(void **state) {
    assert_int_equal(kern_set_level("base"), ST_OK);
    small_casts_round_as_the_format_says(state);
    if (kern_set_level("v3") == ST_OK) small_casts_round_as_the_format_says(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_casts_round_at_both_levels),
        cmocka_unit_test(ceil_mode_drops_a_window_that_starts_in_the_padding),
        cmocka_unit_test(average_pool_takes_pads_wider_than_the_kernel),
        cmocka_unit_test(unequal_pads_keep_their_sides),
        cmocka_unit_test(stride_remainder_gets_a_zero_gradient),
        cmocka_unit_test(reverse_slices_reach_the_front_and_take_empty_dims),
        cmocka_unit_test(one_and_zero_broadcast_to_zero),
        cmocka_unit_test(indices_out_of_range_are_errors_and_write_nothing),
        cmocka_unit_test(bad_labels_are_errors),
        cmocka_unit_test(batch_norm_output_does_not_depend_on_momentum),
        cmocka_unit_test(rms_norm_epsilon_is_inside_the_root),
        cmocka_unit_test(rotary_pairs_are_halves_or_neighbours),
        cmocka_unit_test(adam_epsilon_comes_after_the_bias_correction),
        cmocka_unit_test(label_smoothing_with_weights_and_ignored_rows),
        cmocka_unit_test(the_ignored_label_may_be_any_number),
        cmocka_unit_test(large_scores_keep_their_digits),
        cmocka_unit_test(nan_is_not_lost),
        cmocka_unit_test(norm_gradients_take_many_rows),
        cmocka_unit_test(a_row_that_sees_no_key_gives_zero),
        cmocka_unit_test(a_part_of_the_keys_has_its_part_of_the_weight),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
