/* Reference kernels of pooling. */
#include <math.h>

#include "kernels/reference/reference.h"

/* One window: flat output position split into coordinates, taps inside the input per dim. */
typedef struct pool_at {
    int64_t o[3], first[3], last[3];
} pool_at_t;

static pool_at_t pool_at(const kern_window_t *w, int64_t position) {
    pool_at_t at;
    for (int d = 2; d >= 0; d--) {
        at.o[d] = position % w->out[d];
        position /= w->out[d];
        kern_window_taps(w, d, at.o[d], &at.first[d], &at.last[d]);
    }
    return at;
}

static int64_t pool_input(const kern_window_t *w, const pool_at_t *at, const int64_t t[3]) {
    int64_t x = 0;
    for (int d = 0; d < 3; d++)
        x = x * w->in[d] + at->o[d] * w->stride[d] - w->low[d] + t[d] * w->dilation[d];
    return x;
}

#define FOR_TAPS(t, at)                                         \
    for (t[0] = (at).first[0]; t[0] < (at).last[0]; t[0]++)     \
        for (t[1] = (at).first[1]; t[1] < (at).last[1]; t[1]++) \
            for (t[2] = (at).first[2]; t[2] < (at).last[2]; t[2]++)

static st_status_t max_pool(const kern_call_t *call) {
    kern_window_t w =
        kern_pool_window(call->problem, &call->problem->in[0], &call->problem->out[0]);
    int64_t t[3];
    for (int64_t i = 0; i < w.n * w.c; i++)
        for (int64_t p = 0; p < w.out_size; p++) {
            const int64_t n = i / w.c, c = i % w.c;
            pool_at_t at = pool_at(&w, p);
            double best = -INFINITY;
            int64_t index = -1;
            FOR_TAPS(t, at) {
                int64_t x = pool_input(&w, &at, t);
                double value = ref_get(call, 0, kern_window_x(&w, n, c, x));
                if (index < 0 || value > best || (isnan(value) && !isnan(best)))
                    best = value, index = x;
            }
            ref_put(call, 0, kern_window_y(&w, n, c, p), best);
            ref_put_int(call, 1, kern_window_y(&w, n, c, p), index);
        }
    return ST_OK;
}

static st_status_t max_pool_grad(const kern_call_t *call) {
    const kern_window_t w = kern_unpool_window(call->problem);
    const int64_t n_out = w.n * w.c * w.out_size;
    for (int64_t i = 0; i < n_out; i++) {
        int64_t index = ref_get_int(call, 1, i);
        if (index < -1 || index >= w.in_size) return kern_bad_index(index, i, 2, w.in_size);
    }
    for (int64_t i = 0; i < w.n * w.c * w.in_size; i++) ref_put(call, 0, i, 0);
    for (int64_t i = 0; i < w.n * w.c; i++)
        for (int64_t p = 0; p < w.out_size; p++) {
            const int64_t n = i / w.c, c = i % w.c, from = kern_window_y(&w, n, c, p);
            if (ref_get_int(call, 1, from) < 0) continue;
            int64_t at = kern_window_x(&w, n, c, ref_get_int(call, 1, from));
            double sum = ir_element_load(call->problem->out[0].dtype, call->out[0], (size_t)at);
            ref_put(call, 0, at, sum + ref_get(call, 0, from));
        }
    return ST_OK;
}

static st_status_t avg_pool(const kern_call_t *call) {
    kern_window_t w =
        kern_pool_window(call->problem, &call->problem->in[0], &call->problem->out[0]);
    bool count_pad = kern_int(call->problem, "count_pad") != 0;
    int64_t t[3];
    for (int64_t i = 0; i < w.n * w.c; i++)
        for (int64_t p = 0; p < w.out_size; p++) {
            const int64_t n = i / w.c, c = i % w.c;
            pool_at_t at = pool_at(&w, p);
            double sum = 0;
            FOR_TAPS(t, at)
            sum += ref_get(call, 0, kern_window_x(&w, n, c, pool_input(&w, &at, t)));
            int64_t count = kern_pool_count(&w, at.o, count_pad);
            ref_put(call, 0, kern_window_y(&w, n, c, p), count ? sum / (double)count : 0);
        }
    return ST_OK;
}

static st_status_t avg_pool_grad(const kern_call_t *call) {
    kern_window_t w =
        kern_pool_window(call->problem, &call->problem->out[0], &call->problem->in[0]);
    bool count_pad = kern_int(call->problem, "count_pad") != 0;
    int64_t t[3];
    ir_dtype_t dtype = call->problem->out[0].dtype;
    for (int64_t i = 0; i < w.n * w.c * w.in_size; i++) ref_put(call, 0, i, 0);
    for (int64_t i = 0; i < w.n * w.c; i++)
        for (int64_t p = 0; p < w.out_size; p++) {
            const int64_t n = i / w.c, c = i % w.c;
            pool_at_t at = pool_at(&w, p);
            int64_t count = kern_pool_count(&w, at.o, count_pad);
            if (!count) continue;
            double share = ref_get(call, 0, kern_window_y(&w, n, c, p)) / (double)count;
            FOR_TAPS(t, at) {
                int64_t x = kern_window_x(&w, n, c, pool_input(&w, &at, t));
                ref_put(call, 0, x, ir_element_load(dtype, call->out[0], (size_t)x) + share);
            }
        }
    return ST_OK;
}

REF_IMPL(MAX_POOL, max_pool, max_pool)
REF_IMPL(MAX_POOL_GRAD, max_pool_grad, max_pool_grad)
REF_IMPL(AVG_POOL, avg_pool, avg_pool)
REF_IMPL(AVG_POOL_GRAD, avg_pool_grad, avg_pool_grad)

extern ref_array_t kern_reference_pool;
ref_array_t kern_reference_pool = {&ref_impl_max_pool, &ref_impl_max_pool_grad, &ref_impl_avg_pool,
                                   &ref_impl_avg_pool_grad, NULL};
