/* Reference kernels of the normalizations and the rotary embedding. */
#include <math.h>

#include "kernels/reference/reference.h"

/* ---- batch norm ---- */

/* x as [n, c, inner] */
typedef struct planes {
    int64_t n, c, inner;
} planes_t;

static planes_t planes_of(const ir_type_t *type) {
    kern_split_t split = kern_split_at(type, 1);
    return (planes_t){split.outer, split.n, split.inner};
}

#define FOR_CHANNEL(p, c_, i)              \
    for (int64_t n_ = 0; n_ < (p).n; n_++) \
        for (int64_t i = (n_ * (p).c + (c_)) * (p).inner, end_ = i + (p).inner; i < end_; i++)

static st_status_t batch_norm(const kern_call_t *call) {
    planes_t p = planes_of(&call->problem->in[0]);
    double eps = kern_float(call->problem, "eps"), momentum = kern_float(call->problem, "momentum");
    bool unbiased = kern_int(call->problem, "unbiased") != 0;
    bool train = kern_int(call->problem, "train") != 0;
    double count = (double)(p.n * p.inner);
    for (int64_t c = 0; c < p.c; c++) {
        double w = ref_get(call, 1, c), b = ref_get(call, 2, c);
        double running_mean = ref_get(call, 3, c), running_var = ref_get(call, 4, c);
        double mean = running_mean, var = running_var;
        if (train) {
            mean = var = 0;
            FOR_CHANNEL(p, c, i) mean += ref_get(call, 0, i);
            mean /= count;
            FOR_CHANNEL(p, c, i) {
                double d = ref_get(call, 0, i) - mean;
                var += d * d;
            }
            double squares = var;
            var /= count;
            double fresh = unbiased && count > 1 ? squares / (count - 1) : var;
            running_mean += momentum * (mean - running_mean);
            running_var += momentum * (fresh - running_var);
        }
        double invstd = 1 / sqrt(var + eps);
        FOR_CHANNEL(p, c, i) ref_put(call, 0, i, (ref_get(call, 0, i) - mean) * invstd * w + b);
        ref_put(call, 1, c, mean);
        ref_put(call, 2, c, invstd);
        ref_put(call, 3, c, running_mean);
        ref_put(call, 4, c, running_var);
    }
    return ST_OK;
}

static st_status_t channel_sum(const kern_call_t *call) {
    planes_t p = planes_of(&call->problem->in[0]);
    for (int64_t c = 0; c < p.c; c++) {
        double sum = 0;
        FOR_CHANNEL(p, c, i) sum += ref_get(call, 0, i);
        ref_put(call, 0, c, sum);
    }
    return ST_OK;
}

static st_status_t channel_centered_squares(const kern_call_t *call) {
    planes_t p = planes_of(&call->problem->in[0]);
    for (int64_t c = 0; c < p.c; c++) {
        double sum = 0, mean = ref_get(call, 1, c);
        FOR_CHANNEL(p, c, i) {
            double d = ref_get(call, 0, i) - mean;
            sum += d * d;
        }
        ref_put(call, 0, c, sum);
    }
    return ST_OK;
}

static st_status_t batch_norm_apply(const kern_call_t *call) {
    planes_t p = planes_of(&call->problem->in[0]);
    for (int64_t c = 0; c < p.c; c++) {
        double mean = ref_get(call, 1, c), invstd = ref_get(call, 2, c), w = ref_get(call, 3, c),
               b = ref_get(call, 4, c);
        FOR_CHANNEL(p, c, i) ref_put(call, 0, i, (ref_get(call, 0, i) - mean) * invstd * w + b);
    }
    return ST_OK;
}

static st_status_t batch_norm_grad_sums(const kern_call_t *call) {
    planes_t p = planes_of(&call->problem->in[1]);
    for (int64_t c = 0; c < p.c; c++) {
        double mean = ref_get(call, 2, c), invstd = ref_get(call, 3, c), sum = 0, sum_xhat = 0;
        FOR_CHANNEL(p, c, i) {
            double dy = ref_get(call, 0, i);
            sum += dy;
            sum_xhat += dy * (ref_get(call, 1, i) - mean) * invstd;
        }
        ref_put(call, 0, c, sum);
        ref_put(call, 1, c, sum_xhat);
    }
    return ST_OK;
}

static st_status_t batch_norm_grad_apply(const kern_call_t *call) {
    planes_t p = planes_of(&call->problem->in[1]);
    double count = (double)kern_int(call->problem, "count");
    for (int64_t c = 0; c < p.c; c++) {
        double mean = ref_get(call, 2, c), invstd = ref_get(call, 3, c), w = ref_get(call, 4, c);
        double mean_dy = ref_get(call, 5, c) / count, mean_dy_xhat = ref_get(call, 6, c) / count;
        FOR_CHANNEL(p, c, i) {
            double xhat = (ref_get(call, 1, i) - mean) * invstd;
            ref_put(call, 0, i, (ref_get(call, 0, i) - mean_dy - xhat * mean_dy_xhat) * invstd * w);
        }
    }
    return ST_OK;
}

/* ---- layer norm, RMS norm ---- */

static st_status_t layer_norm(const kern_call_t *call) {
    double eps = kern_float(call->problem, "eps");
    int64_t h = ref_elements_in(call, 1), rows = ref_elements_out(call, 1);
    for (int64_t r = 0; r < rows; r++) {
        double mean = 0, var = 0;
        for (int64_t i = 0; i < h; i++) mean += ref_get(call, 0, r * h + i);
        mean /= (double)h;
        for (int64_t i = 0; i < h; i++) {
            double d = ref_get(call, 0, r * h + i) - mean;
            var += d * d;
        }
        double rstd = 1 / sqrt(var / (double)h + eps);
        for (int64_t i = 0; i < h; i++)
            ref_put(call, 0, r * h + i,
                    (ref_get(call, 0, r * h + i) - mean) * rstd * ref_get(call, 1, i) +
                        ref_get(call, 2, i));
        ref_put(call, 1, r, mean);
        ref_put(call, 2, r, rstd);
    }
    return ST_OK;
}

static st_status_t layer_norm_grad(const kern_call_t *call) {
    int64_t h = ref_elements_in(call, 4), rows = ref_elements_in(call, 2);
    for (int64_t r = 0; r < rows; r++) {
        double mean = ref_get(call, 2, r), rstd = ref_get(call, 3, r), sum = 0, sum_xhat = 0;
        for (int64_t i = 0; i < h; i++) {
            double g = ref_get(call, 0, r * h + i) * ref_get(call, 4, i);
            sum += g;
            sum_xhat += g * (ref_get(call, 1, r * h + i) - mean) * rstd;
        }
        for (int64_t i = 0; i < h; i++) {
            double g = ref_get(call, 0, r * h + i) * ref_get(call, 4, i);
            double xhat = (ref_get(call, 1, r * h + i) - mean) * rstd;
            ref_put(call, 0, r * h + i, rstd * (g - (sum + xhat * sum_xhat) / (double)h));
        }
    }
    for (int64_t i = 0; i < h; i++) {
        double dw = 0, db = 0;
        for (int64_t r = 0; r < rows; r++) {
            double dy = ref_get(call, 0, r * h + i);
            dw += dy * (ref_get(call, 1, r * h + i) - ref_get(call, 2, r)) * ref_get(call, 3, r);
            db += dy;
        }
        ref_put(call, 1, i, dw);
        ref_put(call, 2, i, db);
    }
    return ST_OK;
}

static st_status_t rms_norm(const kern_call_t *call) {
    double eps = kern_float(call->problem, "eps");
    int64_t h = ref_elements_in(call, 1), rows = ref_elements_out(call, 1);
    for (int64_t r = 0; r < rows; r++) {
        double sum = 0;
        for (int64_t i = 0; i < h; i++) {
            double x = ref_get(call, 0, r * h + i);
            sum += x * x;
        }
        double rstd = 1 / sqrt(sum / (double)h + eps);
        for (int64_t i = 0; i < h; i++)
            ref_put(call, 0, r * h + i, ref_get(call, 0, r * h + i) * rstd * ref_get(call, 1, i));
        ref_put(call, 1, r, rstd);
    }
    return ST_OK;
}

static st_status_t rms_norm_grad(const kern_call_t *call) {
    int64_t h = ref_elements_in(call, 3), rows = ref_elements_in(call, 2);
    for (int64_t r = 0; r < rows; r++) {
        double rstd = ref_get(call, 2, r), sum = 0;
        for (int64_t i = 0; i < h; i++)
            sum += ref_get(call, 0, r * h + i) * ref_get(call, 3, i) * ref_get(call, 1, r * h + i);
        for (int64_t i = 0; i < h; i++) {
            double g = ref_get(call, 0, r * h + i) * ref_get(call, 3, i);
            double x = ref_get(call, 1, r * h + i);
            ref_put(call, 0, r * h + i, rstd * g - x * rstd * rstd * rstd * sum / (double)h);
        }
    }
    for (int64_t i = 0; i < h; i++) {
        double dw = 0;
        for (int64_t r = 0; r < rows; r++)
            dw += ref_get(call, 0, r * h + i) * ref_get(call, 1, r * h + i) * ref_get(call, 2, r);
        ref_put(call, 1, i, dw);
    }
    return ST_OK;
}

/* ---- rotary embedding ---- */

static st_status_t rope(const kern_call_t *call) {
    const ir_type_t *x = &call->problem->in[0];
    bool interleaved = kern_int(call->problem, "interleaved") != 0;
    double sign = kern_int(call->problem, "inverse") ? -1 : 1;
    const bool rows_first = kern_int(call->problem, "rows_first") != 0;
    int64_t m = x->dims[rows_first ? 1 : 2], heads = rows_first ? x->dims[2] : 1;
    int64_t d = x->dims[3], half = d / 2, rows = x->dims[0] * x->dims[1] * x->dims[2];
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < half; i++) {
            int64_t one = r * d + (interleaved ? 2 * i : i), two = one + (interleaved ? 1 : half);
            double cosine = ref_get(call, 1, r / heads % m * half + i);
            double sine = sign * ref_get(call, 2, r / heads % m * half + i);
            double a = ref_get(call, 0, one), b = ref_get(call, 0, two);
            ref_put(call, 0, one, a * cosine - b * sine);
            ref_put(call, 0, two, b * cosine + a * sine);
        }
    return ST_OK;
}

REF_IMPL(BATCH_NORM, batch_norm, batch_norm)
REF_IMPL(CHANNEL_SUM, channel_sum, channel_sum)
REF_IMPL(CHANNEL_CENTERED_SQUARES, channel_centered_squares, channel_centered_squares)
REF_IMPL(BATCH_NORM_APPLY, batch_norm_apply, batch_norm_apply)
REF_IMPL(BATCH_NORM_GRAD_SUMS, batch_norm_grad_sums, batch_norm_grad_sums)
REF_IMPL(BATCH_NORM_GRAD_APPLY, batch_norm_grad_apply, batch_norm_grad_apply)
REF_IMPL(LAYER_NORM, layer_norm, layer_norm)
REF_IMPL(LAYER_NORM_GRAD, layer_norm_grad, layer_norm_grad)
REF_IMPL(RMS_NORM, rms_norm, rms_norm)
REF_IMPL(RMS_NORM_GRAD, rms_norm_grad, rms_norm_grad)
REF_IMPL(ROPE, rope, rope)

extern ref_array_t kern_reference_norm;
ref_array_t kern_reference_norm = {&ref_impl_batch_norm,
                                   &ref_impl_channel_sum,
                                   &ref_impl_channel_centered_squares,
                                   &ref_impl_batch_norm_apply,
                                   &ref_impl_batch_norm_grad_sums,
                                   &ref_impl_batch_norm_grad_apply,
                                   &ref_impl_layer_norm,
                                   &ref_impl_layer_norm_grad,
                                   &ref_impl_rms_norm,
                                   &ref_impl_rms_norm_grad,
                                   &ref_impl_rope,
                                   NULL};
