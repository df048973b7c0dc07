/* Reference kernels of softmax and cross entropy.
 *
 * Cross entropy of a row with class y, smoothing e, class weights w and C classes:
 *   loss = (1 - e) · w[y] · -log p[y]  +  e / C · sum over c of w[c] · -log p[c],   weight = w[y]
 * An ignored row gives 0 and 0. The mean divides by the sum of the rows' weights, unless that is 0.
 */
#include <math.h>

#include "kernels/reference/reference.h"

static double max_of(const kern_call_t *call, uint32_t input, int64_t base, int64_t n,
                     int64_t step) {
    double max = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        double x = ref_get(call, input, base + i * step);
        if (x > max || isnan(x)) max = x;
    }
    return max;
}

static double log_sum_exp(const kern_call_t *call, uint32_t input, int64_t base, int64_t n,
                          int64_t step) {
    double max = max_of(call, input, base, n, step), sum = 0;
    if (isinf(max)) return max;
    for (int64_t i = 0; i < n; i++) sum += exp(ref_get(call, input, base + i * step) - max);
    return max + log(sum);
}

#define FOR_LINES(split, base)                                                           \
    for (int64_t o_ = 0; o_ < (split).outer; o_++)                                       \
        for (int64_t base = o_ * (split).n * (split).inner, end_ = base + (split).inner; \
             base < end_; base++)

static st_status_t softmax_of(const kern_call_t *call, bool logarithm) {
    kern_split_t x = kern_split_axis(call->problem, &call->problem->in[0]);
    FOR_LINES(x, base) {
        double lse = log_sum_exp(call, 0, base, x.n, x.inner);
        if (lse == -INFINITY) lse = NAN; /* no finite entry: not a distribution */
        for (int64_t i = 0; i < x.n; i++) {
            double y = ref_get(call, 0, base + i * x.inner) - lse;
            ref_put(call, 0, base + i * x.inner, logarithm ? y : exp(y));
        }
    }
    return ST_OK;
}

static st_status_t softmax(const kern_call_t *call) {
    return softmax_of(call, false);
}

static st_status_t log_softmax(const kern_call_t *call) {
    return softmax_of(call, true);
}

static st_status_t softmax_grad(const kern_call_t *call) {
    kern_split_t x = kern_split_axis(call->problem, &call->problem->in[0]);
    FOR_LINES(x, base) {
        double sum = 0;
        for (int64_t i = 0; i < x.n; i++)
            sum += ref_get(call, 0, base + i * x.inner) * ref_get(call, 1, base + i * x.inner);
        for (int64_t i = 0; i < x.n; i++) {
            int64_t at = base + i * x.inner;
            ref_put(call, 0, at, ref_get(call, 1, at) * (ref_get(call, 0, at) - sum));
        }
    }
    return ST_OK;
}

static st_status_t log_softmax_grad(const kern_call_t *call) {
    kern_split_t x = kern_split_axis(call->problem, &call->problem->in[0]);
    FOR_LINES(x, base) {
        double sum = 0;
        for (int64_t i = 0; i < x.n; i++) sum += ref_get(call, 0, base + i * x.inner);
        for (int64_t i = 0; i < x.n; i++) {
            int64_t at = base + i * x.inner;
            ref_put(call, 0, at, ref_get(call, 0, at) - exp(ref_get(call, 1, at)) * sum);
        }
    }
    return ST_OK;
}

/* ---- cross entropy ---- */

typedef struct row_loss {
    double loss, weight, lse;
} row_loss_t;

static row_loss_t row_loss(const kern_call_t *call, int64_t r, int64_t classes) {
    int64_t label = ref_get_int(call, 1, r);
    double smoothing = kern_float(call->problem, "smoothing");
    row_loss_t row = {0, 0, log_sum_exp(call, 0, r * classes, classes, 1)};
    if (label == kern_int(call->problem, "ignore_index")) return row;
    bool weighted = call->problem->n_in > 2;
    row.weight = weighted ? ref_get(call, 2, label) : 1;
    row.loss = (1 - smoothing) * row.weight * (row.lse - ref_get(call, 0, r * classes + label));
    if (smoothing != 0) {
        double sum = 0;
        for (int64_t c = 0; c < classes; c++)
            sum += (weighted ? ref_get(call, 2, c) : 1) *
                   (row.lse - ref_get(call, 0, r * classes + c));
        row.loss += smoothing / (double)classes * sum;
    }
    return row;
}

static st_status_t cross_entropy(const kern_call_t *call) {
    const ir_type_t *x = &call->problem->in[0];
    TRY(kern_check_labels(call->problem, 1, call->in[1], x->dims[1]));
    double loss = 0, weight = 0;
    for (int64_t r = 0; r < x->dims[0]; r++) {
        row_loss_t row = row_loss(call, r, x->dims[1]);
        loss += row.loss;
        weight += row.weight;
    }
    bool divide = kern_int(call->problem, "mean") && weight != 0;
    ref_put(call, 0, 0, divide ? loss / weight : loss);
    ref_put(call, 1, 0, weight);
    return ST_OK;
}

static st_status_t cross_entropy_rows(const kern_call_t *call) {
    const ir_type_t *x = &call->problem->in[0];
    TRY(kern_check_labels(call->problem, 1, call->in[1], x->dims[1]));
    for (int64_t r = 0; r < x->dims[0]; r++) {
        row_loss_t row = row_loss(call, r, x->dims[1]);
        ref_put(call, 0, r, row.loss);
        ref_put(call, 1, r, row.weight);
        ref_put(call, 2, r, row.lse);
    }
    return ST_OK;
}

static st_status_t cross_entropy_grad(const kern_call_t *call) {
    const kern_problem_t *problem = call->problem;
    int64_t rows = problem->in[1].dims[0], classes = problem->in[1].dims[1];
    TRY(kern_check_labels(problem, 2, call->in[2], classes));
    bool weighted = problem->n_in > 4;
    double smoothing = kern_float(problem, "smoothing"), sum_weight = (double)classes;
    if (weighted) {
        sum_weight = 0;
        for (int64_t c = 0; c < classes; c++) sum_weight += ref_get(call, 4, c);
    }
    int64_t ignore = kern_int(problem, "ignore_index");
    for (int64_t r = 0; r < rows; r++) {
        int64_t label = ref_get_int(call, 2, r);
        double dloss = ref_get(call, 0, problem->in[0].rank ? r : 0), lse = ref_get(call, 3, r);
        for (int64_t c = 0; c < classes; c++) {
            double slope = 0;
            if (label != ignore) {
                double p = exp(ref_get(call, 1, r * classes + c) - lse);
                double w = weighted ? ref_get(call, 4, label) : 1;
                slope = (1 - smoothing) * w * (p - (c == label)) +
                        smoothing / (double)classes *
                            (p * sum_weight - (weighted ? ref_get(call, 4, c) : 1));
                slope *= dloss;
            }
            ref_put(call, 0, r * classes + c, slope);
        }
    }
    return ST_OK;
}

REF_IMPL(SOFTMAX, softmax, softmax)
REF_IMPL(LOG_SOFTMAX, log_softmax, log_softmax)
REF_IMPL(SOFTMAX_GRAD, softmax_grad, softmax_grad)
REF_IMPL(LOG_SOFTMAX_GRAD, log_softmax_grad, log_softmax_grad)
REF_IMPL(CROSS_ENTROPY, cross_entropy, cross_entropy)
REF_IMPL(CROSS_ENTROPY_ROWS, cross_entropy_rows, cross_entropy_rows)
REF_IMPL(CROSS_ENTROPY_GRAD, cross_entropy_grad, cross_entropy_grad)

extern ref_array_t kern_reference_loss;
ref_array_t kern_reference_loss = {&ref_impl_softmax,
                                   &ref_impl_log_softmax,
                                   &ref_impl_softmax_grad,
                                   &ref_impl_log_softmax_grad,
                                   &ref_impl_cross_entropy,
                                   &ref_impl_cross_entropy_rows,
                                   &ref_impl_cross_entropy_grad,
                                   NULL};
