/* Pooling, convolution and attention, element by element (own.h). */
#include "kernels/cuda/own.cuh"

/* ---- windows ---- */

/* Element i of x or y, of `channels` and `size` positions, in the order of memory. */
struct Place {
    long long n, c, p;
};

__device__ Place place_of(const own_window_t &w, long long i, long long channels, long long size) {
    if (w.last) return {i / channels / size, i % channels, i / channels % size};
    return {i / size / channels, i / size % channels, i % size};
}
__device__ long long x_at(const own_window_t &w, long long n, long long c, long long p) {
    return w.last ? (n * w.in_size + p) * w.c + c : (n * w.c + c) * w.in_size + p;
}
__device__ long long y_at(const own_window_t &w, long long n, long long o, long long p) {
    return w.last ? (n * w.out_size + p) * w.o + o : (n * w.o + o) * w.out_size + p;
}
__device__ long long w_at(const own_window_t &w, long long o, long long c, long long tap) {
    long long each = w.c / w.groups;
    return w.last ? (o * w.kernel_size + tap) * each + c : (o * each + c) * w.kernel_size + tap;
}

struct Taps {
    long long o[3], first[3], last[3];
};

__device__ Taps taps_of(const own_window_t &w, long long position) {
    Taps t;
    for (int d = 2; d >= 0; d--) {
        t.o[d] = position % w.out[d];
        position /= w.out[d];
        long long start = t.o[d] * w.stride[d] - w.low[d], step = w.dilation[d];
        long long begin = start < 0 ? (-start + step - 1) / step : 0, room = w.in[d] - start;
        long long end = room <= 0 ? 0 : (room + step - 1) / step;
        if (end > w.kernel[d]) end = w.kernel[d];
        t.first[d] = begin < end ? begin : end;
        t.last[d] = end;
    }
    return t;
}

__device__ long long input_of(const own_window_t &w, const Taps &t, const long long k[3]) {
    long long x = 0;
    for (int d = 0; d < 3; d++)
        x = x * w.in[d] + t.o[d] * w.stride[d] - w.low[d] + k[d] * w.dilation[d];
    return x;
}

#define FOR_TAPS(k, t)                                        \
    for (k[0] = (t).first[0]; k[0] < (t).last[0]; k[0]++)     \
        for (k[1] = (t).first[1]; k[1] < (t).last[1]; k[1]++) \
            for (k[2] = (t).first[2]; k[2] < (t).last[2]; k[2]++)

__device__ long long counted(const own_window_t &w, const long long o[3], bool count_pad) {
    long long count = 1;
    for (int d = 0; d < 3; d++) {
        long long begin = o[d] * w.stride[d] - w.low[d], end = begin + w.kernel[d];
        long long limit = w.in[d] + (count_pad ? w.high[d] : 0);
        if (end > limit) end = limit;
        if (!count_pad && begin < 0) begin = 0;
        count *= end > begin ? end - begin : 0;
    }
    return count;
}

/* Outputs along dim d that read input position x with some tap: [*first, *last). */
__device__ void outputs_of(const own_window_t &w, int d, long long x, long long *first,
                           long long *last) {
    long long reach = (w.kernel[d] - 1) * w.dilation[d], low = x + w.low[d] - reach;
    *first = low <= 0 ? 0 : (low + w.stride[d] - 1) / w.stride[d];
    *last = (x + w.low[d]) / w.stride[d] + 1;
    if (*last > w.out[d]) *last = w.out[d];
}

/* ---- pooling ---- */

__global__ void max_pool(own_pool_t a) {
    const own_window_t &w = a.window;
    OWN_FOR(i, w.n * w.c * w.out_size) {
        Place at = place_of(w, i, w.c, w.out_size);
        Taps t = taps_of(w, at.p);
        long long k[3], index = -1;
        double best = -INFINITY;
        FOR_TAPS(k, t) {
            long long x = input_of(w, t, k);
            double value = get(a.x, x_at(w, at.n, at.c, x));
            if (index < 0 || value > best || (isnan(value) && !isnan(best))) best = value, index = x;
        }
        put(a.y, i, best);
        put_int(a.index, i, index);
    }
}

cudaError_t own_max_pool(const own_pool_t *a, cudaStream_t stream) {
    OWN_LAUNCH(max_pool, a->window.n * a->window.c * a->window.out_size, a, stream);
}

__global__ void max_pool_grad(own_pool_t a) {
    const own_window_t &w = a.window;
    OWN_FOR(plane, w.n * w.c) {
        long long n = plane / w.c, c = plane % w.c;
        for (long long x = 0; x < w.in_size; x++) put(a.x, x_at(w, n, c, x), 0);
        for (long long p = 0; p < w.out_size; p++) {
            long long from = y_at(w, n, c, p), index = get_int(a.index, from);
            if (index < 0 || index >= w.in_size) continue;
            long long at = x_at(w, n, c, index);
            put(a.x, at, get(a.x, at) + get(a.y, from));
        }
    }
}

__global__ void max_pool_grad_gather(own_pool_t a) {
    const own_window_t &w = a.window;
    OWN_FOR(i, w.n * w.c * w.in_size) {
        Place at = place_of(w, i, w.c, w.in_size);
        long long rest = at.p, first[3], last[3], o[3];
        for (int d = 2; d >= 0; d--) {
            outputs_of(w, d, rest % w.in[d], &first[d], &last[d]);
            rest /= w.in[d];
        }
        double sum = 0;
        for (o[0] = first[0]; o[0] < last[0]; o[0]++)
            for (o[1] = first[1]; o[1] < last[1]; o[1]++)
                for (o[2] = first[2]; o[2] < last[2]; o[2]++) {
                    long long from =
                        y_at(w, at.n, at.c, (o[0] * w.out[1] + o[1]) * w.out[2] + o[2]);
                    if (get_int(a.index, from) == at.p) sum += get(a.y, from);
                }
        put(a.x, i, sum);
    }
}

cudaError_t own_max_pool_grad(const own_pool_t *a, cudaStream_t stream) {
    if (a->window.kernel[0] > 0)
        OWN_LAUNCH(max_pool_grad_gather, a->window.n * a->window.c * a->window.in_size, a, stream);
    OWN_LAUNCH(max_pool_grad, a->window.n * a->window.c, a, stream);
}

__global__ void avg_pool(own_pool_t a) {
    const own_window_t &w = a.window;
    OWN_FOR(i, w.n * w.c * w.out_size) {
        Place at = place_of(w, i, w.c, w.out_size);
        Taps t = taps_of(w, at.p);
        long long k[3];
        double sum = 0;
        FOR_TAPS(k, t) sum += get(a.x, x_at(w, at.n, at.c, input_of(w, t, k)));
        long long count = counted(w, t.o, a.count_pad);
        put(a.y, i, count ? sum / (double)count : 0);
    }
}

cudaError_t own_avg_pool(const own_pool_t *a, cudaStream_t stream) {
    OWN_LAUNCH(avg_pool, a->window.n * a->window.c * a->window.out_size, a, stream);
}

__global__ void avg_pool_grad(own_pool_t a) {
    const own_window_t &w = a.window;
    OWN_FOR(i, w.n * w.c * w.in_size) {
        Place place = place_of(w, i, w.c, w.in_size);
        long long x[3], rest = place.p, first[3], last[3], o[3];
        for (int d = 2; d >= 0; d--) {
            x[d] = rest % w.in[d];
            rest /= w.in[d];
            outputs_of(w, d, x[d], &first[d], &last[d]);
        }
        double sum = 0;
        for (o[0] = first[0]; o[0] < last[0]; o[0]++)
            for (o[1] = first[1]; o[1] < last[1]; o[1]++)
                for (o[2] = first[2]; o[2] < last[2]; o[2]++) {
                    long long count = counted(w, o, a.count_pad);
                    long long at = (o[0] * w.out[1] + o[1]) * w.out[2] + o[2];
                    if (count) sum += get(a.y, y_at(w, place.n, place.c, at)) / (double)count;
                }
        put(a.x, i, sum);
    }
}

cudaError_t own_avg_pool_grad(const own_pool_t *a, cudaStream_t stream) {
    OWN_LAUNCH(avg_pool_grad, a->window.n * a->window.c * a->window.in_size, a, stream);
}

/* ---- convolution ---- */

__device__ long long tap_of(const own_window_t &w, const long long k[3]) {
    return (k[0] * w.kernel[1] + k[1]) * w.kernel[2] + k[2];
}

__global__ void conv(own_conv_t a) {
    const own_window_t &w = a.window;
    long long each = w.c / w.groups, o_each = w.o / w.groups, k[3];
    OWN_FOR(i, w.n * w.o * w.out_size) {
        Place place = place_of(w, i, w.o, w.out_size);
        Taps t = taps_of(w, place.p);
        long long o = place.c, n = place.n;
        double sum = a.bias.data ? get(a.bias, o) : 0;
        for (long long c = 0; c < each; c++) {
            long long in = o / o_each * each + c;
            FOR_TAPS(k, t)
                sum += get(a.x, x_at(w, n, in, input_of(w, t, k))) * get(a.w, w_at(w, o, c, tap_of(w, k)));
        }
        put(a.y, i, sum);
    }
}

cudaError_t own_conv(const own_conv_t *a, cudaStream_t stream) {
    OWN_LAUNCH(conv, a->window.n * a->window.o * a->window.out_size, a, stream);
}

__global__ void conv_grad_input(own_conv_t a) {
    const own_window_t &w = a.window;
    long long each = w.c / w.groups, o_each = w.o / w.groups, k[3];
    OWN_FOR(i, w.n * w.c * w.in_size) {
        Place place = place_of(w, i, w.c, w.in_size);
        long long x[3], o[3], rest = place.p, c = place.c, n = place.n;
        for (int d = 2; d >= 0; d--) x[d] = rest % w.in[d], rest /= w.in[d];
        double sum = 0;
        for (k[0] = 0; k[0] < w.kernel[0]; k[0]++)
            for (k[1] = 0; k[1] < w.kernel[1]; k[1]++)
                for (k[2] = 0; k[2] < w.kernel[2]; k[2]++) {
                    bool meets = true;
                    for (int d = 0; d < 3; d++) {
                        long long at = x[d] + w.low[d] - k[d] * w.dilation[d];
                        o[d] = at / w.stride[d];
                        meets = meets && at >= 0 && at % w.stride[d] == 0 && o[d] < w.out[d];
                    }
                    if (!meets) continue;
                    long long at = (o[0] * w.out[1] + o[1]) * w.out[2] + o[2];
                    for (long long q = 0; q < o_each; q++) {
                        long long out = c / each * o_each + q;
                        sum += get(a.y, y_at(w, n, out, at)) *
                               get(a.w, w_at(w, out, c % each, tap_of(w, k)));
                    }
                }
        put(a.x, i, sum);
    }
}

cudaError_t own_conv_grad_input(const own_conv_t *a, cudaStream_t stream) {
    OWN_LAUNCH(conv_grad_input, a->window.n * a->window.c * a->window.in_size, a, stream);
}

__global__ void conv_grad_weight(own_conv_t a) {
    const own_window_t &w = a.window;
    long long each = w.c / w.groups, o_each = w.o / w.groups, k[3], o[3];
    OWN_FOR(i, w.o * each * w.kernel_size) {
        Place place = place_of(w, i, each, w.kernel_size); /* n: the channel out */
        long long rest = place.p, c = place.c, out = place.n;
        for (int d = 2; d >= 0; d--) k[d] = rest % w.kernel[d], rest /= w.kernel[d];
        double sum = 0;
        for (long long n = 0; n < w.n; n++)
            for (long long p = 0; p < w.out_size; p++) {
                long long at = p, x = 0, stride = 1;
                bool inside = true;
                for (int d = 2; d >= 0; d--) {
                    o[d] = at % w.out[d];
                    at /= w.out[d];
                    long long in = o[d] * w.stride[d] - w.low[d] + k[d] * w.dilation[d];
                    inside = inside && in >= 0 && in < w.in[d];
                    x += in * stride;
                    stride *= w.in[d];
                }
                if (inside)
                    sum += get(a.y, y_at(w, n, out, p)) * get(a.x, x_at(w, n, out / o_each * each + c, x));
            }
        put(a.w, i, sum);
    }
}

cudaError_t own_conv_grad_weight(const own_conv_t *a, cudaStream_t stream) {
    const own_window_t &w = a->window;
    OWN_LAUNCH(conv_grad_weight, w.groups ? w.o * (w.c / w.groups) * w.kernel_size : 0, a, stream);
}

/* ---- attention ---- */

/* First element of row `row` of a head (kern_attention_at). */
__device__ long long row_at(const own_attention_t &a, long long heads, long long rows,
                            long long width, long long b, long long head, long long row) {
    long long outer = a.rows_first ? b * rows + row : b * heads + head;
    return (outer * (a.rows_first ? heads : rows) + (a.rows_first ? head : row)) * width;
}

/* Keys that query m sees (kern_attention_keys). */
struct Keys {
    long long first, last;
};
__device__ Keys keys_of(const own_attention_t &a, long long m) {
    long long at = m + a.offset, begin = 0, end = a.s;
    if (a.causal && at + 1 < end) end = at + 1;
    if (a.window > 0) {
        if (at >= a.window) begin = at - a.window + 1;
        if (a.window < end - at) end = at + a.window;
    }
    if (end < 0) end = 0;
    return {begin < end ? begin : end, end};
}

/* Score of query (b, h, m) and key s, which it sees; -infinity where the mask hides it. */
__device__ double score(const own_attention_t &a, long long b, long long h, long long m, long long s) {
    double bias = 0;
    if (a.has_mask) {
        long long at = b * a.mask_stride[0] + h * a.mask_stride[1] + m * a.mask_stride[2] +
                       s * a.mask_stride[3];
        if (a.mask.dtype == OWN_BOOL) {
            if (!get_int(a.mask, at)) return -INFINITY;
        } else {
            bias = get(a.mask, at);
        }
    }
    long long q = row_at(a, a.h, a.m, a.d, b, h, m), k = row_at(a, a.g, a.s, a.d, b, h * a.g / a.h, s);
    double sum = 0;
    for (long long i = 0; i < a.d; i++) sum += get(a.q, q + i) * get(a.k, k + i);
    return sum * a.scale + bias;
}

__global__ void attention(own_attention_t a) {
    OWN_FOR(r, a.b * a.h * a.m) {
        long long b = r / a.m / a.h, h = r / a.m % a.h, m = r % a.m, g = h * a.g / a.h;
        long long o = row_at(a, a.h, a.m, a.e, b, h, m);
        double most = -INFINITY, sum = 0;
        Keys keys = keys_of(a, m);
        for (long long s = keys.first; s < keys.last; s++) {
            double x = score(a, b, h, m, s);
            if (x > most || isnan(x)) most = x;
        }
        for (long long s = keys.first; s < keys.last && most != -INFINITY; s++) sum += exp(score(a, b, h, m, s) - most);
        put(a.lse, r, most == -INFINITY ? most : most + log(sum));
        for (long long e = 0; e < a.e; e++) {
            double value = 0;
            for (long long s = keys.first; s < keys.last && most != -INFINITY; s++) {
                double p = exp(score(a, b, h, m, s) - most);
                if (p != 0) value += p / sum * get(a.v, row_at(a, a.g, a.s, a.e, b, g, s) + e);
            }
            put(a.o, o + e, value);
        }
    }
}

cudaError_t own_attention(const own_attention_t *a, cudaStream_t stream) {
    OWN_LAUNCH(attention, a->b * a->h * a->m, a, stream);
}

/* Gradient of the score of (b, h, m, s); *p its probability. */
__device__ double score_grad(const own_attention_t &a, long long b, long long h, long long m,
                             long long s, double *p) {
    long long o = row_at(a, a.h, a.m, a.e, b, h, m);
    long long v = row_at(a, a.g, a.s, a.e, b, h * a.g / a.h, s);
    double x = score(a, b, h, m, s), delta = 0, dp = 0;
    *p = x == -INFINITY ? 0 : exp(x - get(a.lse, (b * a.h + h) * a.m + m));
    if (*p == 0) return 0;
    for (long long e = 0; e < a.e; e++) {
        double dy = get(a.d_o, o + e);
        delta += dy * get(a.o, o + e);
        dp += dy * get(a.v, v + e);
    }
    return *p * (dp - delta) * a.scale;
}

__global__ void attention_grad_query(own_attention_t a) {
    OWN_FOR(i, a.b * a.h * a.m * a.d) {
        long long r = i / a.d, d = i % a.d, b = r / a.m / a.h, h = r / a.m % a.h, m = r % a.m;
        double sum = 0, p;
        Keys keys = keys_of(a, m);
        for (long long s = keys.first; s < keys.last; s++)
            sum += score_grad(a, b, h, m, s, &p) * get(a.k, row_at(a, a.g, a.s, a.d, b, h * a.g / a.h, s) + d);
        put(a.dq, row_at(a, a.h, a.m, a.d, b, h, m) + d, sum);
    }
}

__global__ void attention_grad_key(own_attention_t a) {
    long long each = a.h / a.g, width = a.d + a.e;
    OWN_FOR(i, a.b * a.g * a.s * width) {
        long long key = i / width, column = i % width, b = key / a.s / a.g, g = key / a.s % a.g;
        double sum = 0, p;
        for (long long h = g * each; h < (g + 1) * each; h++)
            for (long long m = 0; m < a.m; m++) {
                Keys keys = keys_of(a, m);
                if (key % a.s < keys.first || key % a.s >= keys.last) continue;
                double ds = score_grad(a, b, h, m, key % a.s, &p);
                sum += column < a.d
                           ? ds * get(a.q, row_at(a, a.h, a.m, a.d, b, h, m) + column)
                           : p * get(a.d_o, row_at(a, a.h, a.m, a.e, b, h, m) + column - a.d);
            }
        if (column < a.d) put(a.dk, row_at(a, a.g, a.s, a.d, b, g, key % a.s) + column, sum);
        else put(a.dv, row_at(a, a.g, a.s, a.e, b, g, key % a.s) + column - a.d, sum);
    }
}

cudaError_t own_attention_grad(const own_attention_t *a, cudaStream_t stream) {
    long long queries = a->b * a->h * a->m * a->d, keys = a->b * a->g * a->s * (a->d + a->e);
    if (queries > 0) attention_grad_query<<<own_blocks(queries), OWN_THREADS, 0, stream>>>(*a);
    if (keys > 0) attention_grad_key<<<own_blocks(keys), OWN_THREADS, 0, stream>>>(*a);
    return cudaPeekAtLastError();
}
