/* Reference kernels of attention and its gradient: one row of scores at a time. */
#include <math.h>

#include "kernels/reference/reference.h"

/* Scaled and masked score of query (b, h, m) and key s; -inf where it does not attend. q, k: input
 * numbers of q and k; the mask is input `mask`. */
static double score(const kern_call_t *call, const kern_attention_t *a, uint32_t q, uint32_t mask,
                    int64_t b, int64_t h, int64_t m, int64_t s) {
    int64_t first, last;
    kern_attention_keys(a, m, &first, &last);
    if (s < first || s >= last) return -INFINITY;
    double bias = 0;
    if (a->mask) {
        int64_t at = b * a->mask_stride[0] + h * a->mask_stride[1] + m * a->mask_stride[2] +
                     s * a->mask_stride[3];
        if (a->mask->dtype == IR_BOOL) {
            if (!ref_get_int(call, mask, at)) return -INFINITY;
        } else {
            bias = ref_get(call, mask, at);
        }
    }
    int64_t row_q = kern_attention_at(a, a->h, a->m, a->d, b, h, m);
    int64_t row_k = kern_attention_at(a, a->g, a->s, a->d, b, h * a->g / a->h, s);
    double sum = 0;
    for (int64_t i = 0; i < a->d; i++)
        sum += ref_get(call, q, row_q + i) * ref_get(call, q + 1, row_k + i);
    return sum * a->scale + bias;
}

static size_t workspace(const kern_problem_t *problem, int n_threads) {
    kern_attention_t a = kern_attention_of(problem, 0, 3);
    (void)n_threads;
    return st_size_mul((size_t)a.s, sizeof(double));
}

static st_status_t attention(const kern_call_t *call) {
    kern_attention_t a = kern_attention_of(call->problem, 0, 3);
    double *p = call->workspace;
    for (int64_t r = 0; r < a.b * a.h * a.m; r++) {
        int64_t b = r / a.m / a.h, h = r / a.m % a.h, m = r % a.m;
        double max = -INFINITY, sum = 0;
        for (int64_t s = 0; s < a.s; s++) {
            p[s] = score(call, &a, 0, 3, b, h, m, s);
            if (p[s] > max || isnan(p[s])) max = p[s];
        }
        bool none = max == -INFINITY;
        for (int64_t s = 0; s < a.s; s++) {
            p[s] = none || p[s] == -INFINITY ? 0 : exp(p[s] - max);
            sum += p[s];
        }
        ref_put(call, 1, r, none ? -INFINITY : max + log(sum));
        for (int64_t e = 0; e < a.e; e++) {
            double value = 0;
            for (int64_t s = 0; s < a.s; s++) {
                if (p[s] == 0) continue;
                int64_t v = kern_attention_at(&a, a.g, a.s, a.e, b, h * a.g / a.h, s);
                value += p[s] / sum * ref_get(call, 2, v + e);
            }
            ref_put(call, 0, kern_attention_at(&a, a.h, a.m, a.e, b, h, m) + e, value);
        }
    }
    return ST_OK;
}

/* [probabilities, score gradients: S each][dk, dv of one key head: S · (D + E)] */
static size_t grad_workspace(const kern_problem_t *problem, int n_threads) {
    kern_attention_t a = kern_attention_of(problem, 1, 6);
    (void)n_threads;
    size_t row = st_size_add(st_size_add((size_t)a.d, (size_t)a.e), 2);
    return st_size_mul(st_size_mul((size_t)a.s, row), sizeof(double));
}

/* Row r of the query heads that read key head bg: its dq, and its parts of dk and dv. */
static void grad_row(const kern_call_t *call, const kern_attention_t *a, int64_t b, int64_t h,
                     int64_t m, double *p, double *ds, double *dk, double *dv) {
    const int64_t g = h * a->g / a->h, o = kern_attention_at(a, a->h, a->m, a->e, b, h, m);
    const int64_t q = kern_attention_at(a, a->h, a->m, a->d, b, h, m);
    double delta = 0, lse = ref_get(call, 5, (b * a->h + h) * a->m + m);
    for (int64_t e = 0; e < a->e; e++) delta += ref_get(call, 0, o + e) * ref_get(call, 4, o + e);
    double sum = 0;
    for (int64_t s = 0; s < a->s; s++) {
        double x = score(call, a, 1, 6, b, h, m, s);
        p[s] = x == -INFINITY ? 0 : exp(x - lse);
        sum += p[s];
    }
    bool whole = a->part || fabs(lse) < 1e3 || sum == 0; /* lse has room for the log of the sum */
    for (int64_t s = 0; s < a->s; s++) {
        double dp = 0;
        if (!whole) p[s] /= sum;
        ds[s] = 0;
        if (p[s] == 0) continue;
        for (int64_t e = 0; e < a->e; e++) {
            double dy = ref_get(call, 0, o + e);
            dp += dy * ref_get(call, 3, kern_attention_at(a, a->g, a->s, a->e, b, g, s) + e);
            dv[s * a->e + e] += p[s] * dy;
        }
        ds[s] = p[s] * (dp - delta) * a->scale;
        for (int64_t d = 0; d < a->d; d++) dk[s * a->d + d] += ds[s] * ref_get(call, 1, q + d);
    }
    for (int64_t d = 0; d < a->d; d++) {
        double dq = 0;
        for (int64_t s = 0; s < a->s; s++)
            if (ds[s] != 0)
                dq += ds[s] * ref_get(call, 2, kern_attention_at(a, a->g, a->s, a->d, b, g, s) + d);
        ref_put(call, 0, q + d, dq);
    }
}

static st_status_t attention_grad(const kern_call_t *call) {
    kern_attention_t a = kern_attention_of(call->problem, 1, 6);
    int64_t each = a.g ? a.h / a.g : 0;
    double *p = call->workspace, *ds = p + a.s, *dk = ds + a.s, *dv = dk + a.s * a.d;
    for (int64_t bg = 0; bg < a.b * a.g; bg++) {
        for (int64_t i = 0; i < a.s * (a.d + a.e); i++) dk[i] = 0;
        for (int64_t h = bg % a.g * each; h < (bg % a.g + 1) * each; h++)
            for (int64_t m = 0; m < a.m; m++) grad_row(call, &a, bg / a.g, h, m, p, ds, dk, dv);
        for (int64_t s = 0; s < a.s; s++) {
            const int64_t k = kern_attention_at(&a, a.g, a.s, a.d, bg / a.g, bg % a.g, s);
            const int64_t v = kern_attention_at(&a, a.g, a.s, a.e, bg / a.g, bg % a.g, s);
            for (int64_t i = 0; i < a.d; i++) ref_put(call, 1, k + i, dk[s * a.d + i]);
            for (int64_t i = 0; i < a.e; i++) ref_put(call, 2, v + i, dv[s * a.e + i]);
        }
    }
    return ST_OK;
}

static const kern_impl_t ref_impl_attention = {.name = "cpu.attention.reference",
                                               .op = IR_OP_ATTENTION,
                                               .reference = true,
                                               .workspace = workspace,
                                               .launch = attention};
static const kern_impl_t ref_impl_attention_grad = {.name = "cpu.attention_grad.reference",
                                                    .op = IR_OP_ATTENTION_GRAD,
                                                    .reference = true,
                                                    .workspace = grad_workspace,
                                                    .launch = attention_grad};

extern ref_array_t kern_reference_attention;
ref_array_t kern_reference_attention = {&ref_impl_attention, &ref_impl_attention_grad, NULL};
