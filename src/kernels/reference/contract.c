/* Reference kernels of matrix product and convolution. */
#include "kernels/reference/reference.h"

static st_status_t matmul(const kern_call_t *call) {
    const kern_problem_t *problem = call->problem;
    const ir_type_t *a = &problem->in[0], *b = &problem->in[1], *out = &problem->out[0];
    bool ta = kern_int(problem, "transpose_a") != 0, tb = kern_int(problem, "transpose_b") != 0;
    int64_t m = out->dims[out->rank - 2], n = out->dims[out->rank - 1];
    int64_t k = a->dims[a->rank - (ta ? 2 : 1)];
    ir_type_t batch = *out, batch_a = *a, batch_b = *b;
    batch.rank -= 2, batch_a.rank -= 2, batch_b.rank -= 2;
    ref_walk_t walk = ref_walk_over(&batch, 2);
    kern_broadcast_strides(&batch_a, &batch, walk.stride[0]);
    kern_broadcast_strides(&batch_b, &batch, walk.stride[1]);
    int64_t batches = ir_type_elements(&batch);
    for (int64_t q = 0; q < batches; q++, ref_walk_next(&walk)) {
        int64_t at_a = walk.at[0] * m * k, at_b = walk.at[1] * k * n;
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < n; j++) {
                double sum = problem->n_in > 2 ? ref_get(call, 2, (q * m + i) * n + j) : 0;
                for (int64_t l = 0; l < k; l++)
                    sum += ref_get(call, 0, at_a + (ta ? l * m + i : i * k + l)) *
                           ref_get(call, 1, at_b + (tb ? j * k + l : l * n + j));
                ref_put(call, 0, (q * m + i) * n + j, sum);
            }
    }
    return ST_OK;
}

/* Visits every product of a convolution: tap (t0, t1, t2) of output position o. */
typedef struct conv_tap {
    int64_t x, w; /* position in x, tap of the kernel */
} conv_tap_t;

/* The taps of output position `o` (flat) that lie inside the input; returns how many. */
typedef struct conv_range {
    int64_t o[3], first[3], last[3];
} conv_range_t;

static conv_range_t conv_range(const kern_window_t *w, int64_t position) {
    conv_range_t range;
    for (int d = 2; d >= 0; d--) {
        range.o[d] = position % w->out[d];
        position /= w->out[d];
        kern_window_taps(w, d, range.o[d], &range.first[d], &range.last[d]);
    }
    return range;
}

static conv_tap_t conv_tap(const kern_window_t *w, const conv_range_t *range, const int64_t t[3]) {
    conv_tap_t tap = {0, 0};
    for (int d = 0; d < 3; d++) {
        tap.x = tap.x * w->in[d] + range->o[d] * w->stride[d] - w->low[d] + t[d] * w->dilation[d];
        tap.w = tap.w * w->kernel[d] + t[d];
    }
    return tap;
}

#define FOR_TAPS(t, range)                                            \
    for (t[0] = (range).first[0]; t[0] < (range).last[0]; t[0]++)     \
        for (t[1] = (range).first[1]; t[1] < (range).last[1]; t[1]++) \
            for (t[2] = (range).first[2]; t[2] < (range).last[2]; t[2]++)

static st_status_t conv(const kern_call_t *call) {
    const kern_problem_t *problem = call->problem;
    kern_window_t w = kern_conv_window(problem, &problem->in[0], &problem->in[1], &problem->out[0]);
    int64_t c_each = w.c / w.groups, o_each = w.o / w.groups, t[3];
    for (int64_t n = 0; n < w.n; n++)
        for (int64_t o = 0; o < w.o; o++)
            for (int64_t p = 0; p < w.out_size; p++) {
                conv_range_t range = conv_range(&w, p);
                double sum = problem->n_in > 2 ? ref_get(call, 2, o) : 0;
                for (int64_t c = 0; c < c_each; c++) {
                    int64_t in = o / o_each * c_each + c;
                    FOR_TAPS(t, range) {
                        conv_tap_t tap = conv_tap(&w, &range, t);
                        sum += ref_get(call, 0, kern_window_x(&w, n, in, tap.x)) *
                               ref_get(call, 1, kern_window_w(&w, o, c, tap.w));
                    }
                }
                ref_put(call, 0, kern_window_y(&w, n, o, p), sum);
            }
    return ST_OK;
}

/* Position q of dx along dim d meets tap t at output position (q + low - t · dilation) / stride. */
static bool conv_output_of(const kern_window_t *w, int d, int64_t q, int64_t t, int64_t *out) {
    int64_t at = q + w->low[d] - t * w->dilation[d];
    if (at < 0 || at % w->stride[d]) return false;
    *out = at / w->stride[d];
    return *out < w->out[d];
}

static st_status_t conv_grad_input(const kern_call_t *call) {
    const kern_problem_t *problem = call->problem;
    kern_window_t w = kern_conv_window(problem, &problem->out[0], &problem->in[1], &problem->in[0]);
    int64_t c_each = w.c / w.groups, o_each = w.o / w.groups, t[3];
    const conv_range_t all = {.last = {w.kernel[0], w.kernel[1], w.kernel[2]}};
    for (int64_t n = 0; n < w.n; n++)
        for (int64_t c = 0; c < w.c; c++)
            for (int64_t p = 0; p < w.in_size; p++) {
                int64_t q[3] = {p / w.in[2] / w.in[1], p / w.in[2] % w.in[1], p % w.in[2]};
                double sum = 0;
                FOR_TAPS(t, all) {
                    int64_t at[3];
                    bool meets = true;
                    for (int d = 0; d < 3; d++)
                        meets = meets && conv_output_of(&w, d, q[d], t[d], &at[d]);
                    if (!meets) continue;
                    int64_t position = (at[0] * w.out[1] + at[1]) * w.out[2] + at[2];
                    int64_t tap = (t[0] * w.kernel[1] + t[1]) * w.kernel[2] + t[2];
                    for (int64_t k = 0; k < o_each; k++) {
                        int64_t o = c / c_each * o_each + k;
                        sum += ref_get(call, 0, kern_window_y(&w, n, o, position)) *
                               ref_get(call, 1, kern_window_w(&w, o, c % c_each, tap));
                    }
                }
                ref_put(call, 0, kern_window_x(&w, n, c, p), sum);
            }
    return ST_OK;
}

static st_status_t conv_grad_weight(const kern_call_t *call) {
    const kern_problem_t *problem = call->problem;
    kern_window_t w = kern_conv_window(problem, &problem->in[0], &problem->out[0], &problem->in[1]);
    int64_t c_each = w.c / w.groups, o_each = w.o / w.groups;
    for (int64_t o = 0; o < w.o; o++)
        for (int64_t c = 0; c < c_each; c++)
            for (int64_t k = 0; k < w.kernel_size; k++) {
                int64_t t[3] = {k / w.kernel[2] / w.kernel[1], k / w.kernel[2] % w.kernel[1],
                                k % w.kernel[2]};
                double sum = 0;
                for (int64_t p = 0; p < w.out_size; p++) {
                    conv_range_t range = conv_range(&w, p);
                    bool inside = true;
                    for (int d = 0; d < 3; d++)
                        inside = inside && t[d] >= range.first[d] && t[d] < range.last[d];
                    if (!inside) continue;
                    int64_t x = conv_tap(&w, &range, t).x;
                    for (int64_t n = 0; n < w.n; n++)
                        sum += ref_get(call, 0, kern_window_x(&w, n, o / o_each * c_each + c, x)) *
                               ref_get(call, 1, kern_window_y(&w, n, o, p));
                }
                ref_put(call, 0, kern_window_w(&w, o, c, k), sum);
            }
    return ST_OK;
}

REF_IMPL(MATMUL, matmul, matmul)
REF_IMPL(CONV, conv, conv)
REF_IMPL(CONV_GRAD_INPUT, conv_grad_input, conv_grad_input)
REF_IMPL(CONV_GRAD_WEIGHT, conv_grad_weight, conv_grad_weight)

extern ref_array_t kern_reference_contract;
ref_array_t kern_reference_contract = {&ref_impl_matmul, &ref_impl_conv, &ref_impl_conv_grad_input,
                                       &ref_impl_conv_grad_weight, NULL};
