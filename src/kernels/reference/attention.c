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
    int64_t row_q = ((b * a->h + h) * a->m + m) * a->d;
    int64_t row_k = ((b * a->g + h * a->g / a->h) * a->s + s) * a->d;
    double sum = 0;
    for (int64_t i = 0; i < a->d; i++)
        sum += ref_get(call, q, row_q + i) * ref_get(call, q + 1, row_k + i);
    return sum * a->scale + bias;
}

static st_status_t attention(const kern_call_t *call) {
    kern_attention_t a = kern_attention_of(call->problem, 0, 3);
    for (int64_t r = 0; r < a.b * a.h * a.m; r++) {
        int64_t b = r / a.m / a.h, h = r / a.m % a.h, m = r % a.m;
        double max = -INFINITY, sum = 0;
        for (int64_t s = 0; s < a.s; s++) {
            double x = score(call, &a, 0, 3, b, h, m, s);
            if (x > max || isnan(x)) max = x;
        }
        for (int64_t s = 0; s < a.s; s++) {
            double x = score(call, &a, 0, 3, b, h, m, s);
            if (x != -INFINITY) sum += exp(x - max);
        }
        bool none = max == -INFINITY;
        ref_put(call, 1, r, none ? -INFINITY : max + log(sum));
        for (int64_t e = 0; e < a.e; e++) {
            double value = 0;
            for (int64_t s = 0; s < a.s && !none; s++) {
                double x = score(call, &a, 0, 3, b, h, m, s);
                if (x == -INFINITY) continue;
                int64_t v = ((b * a.g + h * a.g / a.h) * a.s + s) * a.e + e;
                value += exp(x - max) / sum * ref_get(call, 2, v);
            }
            ref_put(call, 0, r * a.e + e, value);
        }
    }
    return ST_OK;
}

/* Probability of key s for query row r, and the gradient of its score. */
typedef struct pair {
    double p, ds;
} pair_t;

static pair_t pair_of(const kern_call_t *call, const kern_attention_t *a, int64_t b, int64_t h,
                      int64_t m, int64_t s) {
    int64_t r = (b * a->h + h) * a->m + m;
    double x = score(call, a, 1, 6, b, h, m, s);
    if (x == -INFINITY) return (pair_t){0, 0};
    double p = exp(x - ref_get(call, 5, r)), dp = 0, delta = 0;
    int64_t v = ((b * a->g + h * a->g / a->h) * a->s + s) * a->e;
    for (int64_t e = 0; e < a->e; e++) {
        double dy = ref_get(call, 0, r * a->e + e);
        dp += dy * ref_get(call, 3, v + e);
        delta += dy * ref_get(call, 4, r * a->e + e);
    }
    return (pair_t){p, p * (dp - delta)};
}

static st_status_t attention_grad(const kern_call_t *call) {
    kern_attention_t a = kern_attention_of(call->problem, 1, 6);
    int64_t each = a.g ? a.h / a.g : 0;
    for (int64_t r = 0; r < a.b * a.h * a.m; r++)
        for (int64_t d = 0; d < a.d; d++)
            ref_put(call, 0, r * a.d + d, 0);
    for (int64_t r = 0; r < a.b * a.h * a.m; r++) {
        int64_t b = r / a.m / a.h, h = r / a.m % a.h, m = r % a.m;
        for (int64_t d = 0; d < a.d; d++) {
            double dq = 0;
            for (int64_t s = 0; s < a.s; s++) {
                int64_t k = ((b * a.g + h * a.g / a.h) * a.s + s) * a.d + d;
                dq += pair_of(call, &a, b, h, m, s).ds * a.scale * ref_get(call, 2, k);
            }
            ref_put(call, 0, r * a.d + d, dq);
        }
    }
    for (int64_t i = 0; i < a.b * a.g * a.s; i++) {
        int64_t b = i / a.s / a.g, g = i / a.s % a.g, s = i % a.s;
        for (int64_t c = 0; c < a.d + a.e; c++) {
            double sum = 0;
            for (int64_t h = g * each; h < (g + 1) * each; h++)
                for (int64_t m = 0; m < a.m; m++) {
                    pair_t pair = pair_of(call, &a, b, h, m, s);
                    int64_t r = (b * a.h + h) * a.m + m;
                    sum += c < a.d ? pair.ds * a.scale * ref_get(call, 1, r * a.d + c)
                                   : pair.p * ref_get(call, 0, r * a.e + c - a.d);
                }
            if (c < a.d)
                ref_put(call, 1, i * a.d + c, sum);
            else
                ref_put(call, 2, i * a.e + c - a.d, sum);
        }
    }
    return ST_OK;
}

REF_IMPL(ATTENTION, attention, attention)
REF_IMPL(ATTENTION_GRAD, attention_grad, attention_grad)

extern ref_array_t kern_reference_attention;
ref_array_t kern_reference_attention = {&ref_impl_attention, &ref_impl_attention_grad, NULL};
