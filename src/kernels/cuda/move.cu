/* Kernels that move elements or add them at computed places (own.h). */
#include "kernels/cuda/own.cuh"

/* ---- concat, pad ---- */

__global__ void concat_bytes(own_concat_t a) {
    OWN_FOR(i, a.outer * a.in_bytes) {
        long long row = i / a.in_bytes, at = i % a.in_bytes;
        ((char *)a.out)[row * a.out_bytes + a.begin_bytes + at] = ((const char *)a.in)[i];
    }
}

__global__ void concat_words(own_concat_t a) {
    long long words = a.in_bytes / 16;
    OWN_FOR(i, a.outer * words) {
        long long row = i / words, at = i % words * 16;
        *(int4 *)((char *)a.out + row * a.out_bytes + a.begin_bytes + at) =
            *(const int4 *)((const char *)a.in + row * a.in_bytes + at);
    }
}

cudaError_t own_concat(const own_concat_t *a, cudaStream_t stream) {
    bool words = a->in_bytes % 16 == 0 && a->out_bytes % 16 == 0 && a->begin_bytes % 16 == 0;
    if (words) OWN_LAUNCH(concat_words, a->outer * a->in_bytes / 16, a, stream);
    OWN_LAUNCH(concat_bytes, a->outer * a->in_bytes, a, stream);
}

static long long product(const int64_t *dims, int rank) {
    long long n = 1;
    for (int d = 0; d < rank; d++) n *= dims[d];
    return n;
}

__global__ void pad(own_pad_t a) {
    long long n = 1;
    for (int d = 0; d < a.rank; d++) n *= a.out_dims[d];
    OWN_FOR(i, n) {
        long long rest = i, at = 0, stride = 1;
        bool inside = true;
        for (int d = a.rank - 1; d >= 0; d--) {
            long long x = rest % a.out_dims[d] - a.low[d];
            rest /= a.out_dims[d];
            inside = inside && x >= 0 && x < a.in_dims[d];
            at += x * stride;
            stride *= a.in_dims[d];
        }
        for (int b = 0; b < a.width; b++)
            ((unsigned char *)a.out)[i * a.width + b] =
                inside ? ((const unsigned char *)a.in)[at * a.width + b] : a.value[b];
    }
}

cudaError_t own_pad(const own_pad_t *a, cudaStream_t stream) {
    OWN_LAUNCH(pad, product(a->out_dims, a->rank), a, stream);
}

/* ---- index tuples ---- */

__device__ long long nd_base(const own_nd_t &a, long long i) {
    long long base = 0;
    for (int d = 0; d < a.k; d++) base += a.strides[d] * checked(a.index, i * a.k + d, a.dims[d], a.fault);
    return base;
}

__global__ void gather_nd(own_nd_t a) {
    OWN_FOR(i, a.n * a.row) {
        long long from = nd_base(a, i / a.row) + i % a.row;
        if (is_real(a.rows.dtype)) put(a.rows, i, get(a.table, from));
        else put_int(a.rows, i, get_int(a.table, from));
    }
}

cudaError_t own_gather_nd(const own_nd_t *a, cudaStream_t stream) {
    OWN_LAUNCH(gather_nd, a->n * a->row, a, stream);
}

__global__ void scatter_nd_add(own_nd_t a) {
    OWN_FOR(i, a.table_rows * a.row) {
        long long base = i / a.row * a.row, k = i % a.row, whole = 0;
        double sum = 0;
        for (long long j = 0; j < a.n; j++) {
            if (nd_base(a, j) != base) continue;
            if (is_real(a.rows.dtype)) sum += get(a.rows, j * a.row + k);
            else whole += get_int(a.rows, j * a.row + k);
        }
        if (is_real(a.table.dtype)) put(a.table, i, sum);
        else put_int(a.table, i, whole);
    }
}

cudaError_t own_scatter_nd_add(const own_nd_t *a, cudaStream_t stream) {
    OWN_LAUNCH(scatter_nd_add, a->table_rows * a->row, a, stream);
}

/* ---- sums along an axis ---- */

static bool real_on_host(int dtype) {
    return dtype == OWN_F32 || dtype == OWN_F64 || dtype == OWN_F16 || dtype == OWN_BF16;
}

__global__ void scatter_along_add(own_along_t a) {
    long long n = 1;
    for (int d = 0; d < a.rank; d++) n *= a.out_dims[d];
    OWN_FOR(i, n) {
        long long rest = i, base = 0, stride = 1, step = 1, at = 0, whole = 0;
        bool inside = true;
        for (int d = a.rank - 1; d >= 0; d--) {
            long long x = rest % a.out_dims[d];
            rest /= a.out_dims[d];
            if (d == a.axis) at = x, step = stride;
            else if (x >= a.in_dims[d]) inside = false;
            else base += x * stride;
            stride *= a.in_dims[d];
        }
        double sum = 0;
        for (long long j = 0; inside && j < a.in_dims[a.axis]; j++) {
            long long from = base + j * step;
            if (checked(a.index, from, a.out_dims[a.axis], a.fault) != at) continue;
            if (is_real(a.updates.dtype)) sum += get(a.updates, from);
            else whole += get_int(a.updates, from);
        }
        if (is_real(a.out.dtype)) put(a.out, i, sum);
        else put_int(a.out, i, whole);
    }
}

/* One update a line, and lines everywhere: nothing is summed, and all else is zero by now. */
__global__ void scatter_along_put(own_along_t a) {
    long long n = 1, inner = 1;
    for (int d = 0; d < a.rank; d++) n *= a.in_dims[d];
    for (int d = a.axis + 1; d < a.rank; d++) inner *= a.in_dims[d];
    OWN_FOR(i, n) {
        const long long extent = a.out_dims[a.axis];
        const long long at = checked(a.index, i, extent, a.fault);
        const long long to = (i / inner * extent + at) * inner + i % inner;
        if (is_real(a.out.dtype)) put(a.out, to, get(a.updates, i));
        else put_int(a.out, to, get_int(a.updates, i));
    }
}

static bool one_a_line(const own_along_t *a) {
    for (int d = 0; d < a->rank; d++)
        if (a->in_dims[d] != (d == a->axis ? 1 : a->out_dims[d])) return false;
    return true;
}

cudaError_t own_scatter_along_add(const own_along_t *a, cudaStream_t stream) {
    if (one_a_line(a)) {
        cudaError_t error = cudaMemsetAsync(a->out.data, 0, a->out_bytes, stream);
        if (error != cudaSuccess) return error;
        OWN_LAUNCH(scatter_along_put, product(a->in_dims, a->rank), a, stream);
    }
    OWN_LAUNCH(scatter_along_add, product(a->out_dims, a->rank), a, stream);
}

/* ---- lines ---- */

__global__ void cumsum(own_line_t a) {
    OWN_FOR(line, a.shape.outer * a.shape.inner) {
        long long base = line / a.shape.inner * a.shape.n * a.shape.inner + line % a.shape.inner;
        double sum = 0;
        long long whole = 0;
        for (long long j = 0; j < a.shape.n; j++) {
            long long at = base + (a.reverse ? a.shape.n - 1 - j : j) * a.shape.inner;
            if (is_real(a.in.dtype)) {
                double before = sum;
                sum += get(a.in, at);
                put(a.out, at, a.exclusive ? before : sum);
            } else {
                long long before = whole;
                whole += get_int(a.in, at);
                put_int(a.out, at, a.exclusive ? before : whole);
            }
        }
    }
}

cudaError_t own_cumsum(const own_line_t *a, cudaStream_t stream) {
    OWN_LAUNCH(cumsum, a->shape.outer * a->shape.inner, a, stream);
}

__global__ void argmax(own_line_t a) {
    OWN_FOR(line, a.shape.outer * a.shape.inner) {
        long long base = line / a.shape.inner * a.shape.n * a.shape.inner + line % a.shape.inner;
        long long best = 0, whole = 0;
        double most = 0;
        for (long long i = 0; i < a.shape.n; i++) {
            bool better = i == 0;
            if (is_real(a.in.dtype)) {
                double x = get(a.in, base + i * a.shape.inner);
                better = better || (!isnan(most) && (isnan(x) || x > most));
                if (better) most = x;
            } else {
                long long x = get_int(a.in, base + i * a.shape.inner);
                better = better || x > whole;
                if (better) whole = x;
            }
            if (better) best = i;
        }
        put_int(a.out, line, best);
    }
}

/* The larger of two, the first of equal ones; not a number is larger than all. at < 0: there is
 * none. */
template <class T>
struct Most {
    T x;
    long long at;
    __device__ void take(T other, long long from) {
        bool more = other > x || (other != other && x == x);
        bool same = other == x || (other != other && x != x);
        if (from >= 0 && (at < 0 || more || (same && from < at))) x = other, at = from;
    }
};

/* A warp a line whose elements lie together. */
template <class T>
__global__ void argmax_rows(own_line_t a) {
    const long long line = (long long)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (line >= a.shape.outer) return;
    Most<T> most = {0, -1};
    for (long long i = threadIdx.x % 32; i < a.shape.n; i += 32)
        most.take(is_real(a.in.dtype) ? (T)get(a.in, line * a.shape.n + i)
                                      : (T)get_int(a.in, line * a.shape.n + i),
                  i);
    for (int d = 16; d; d /= 2)
        most.take(__shfl_xor_sync(0xffffffffu, most.x, d), __shfl_xor_sync(0xffffffffu, most.at, d));
    if (threadIdx.x % 32 == 0) put_int(a.out, line, most.at);
}

cudaError_t own_argmax(const own_line_t *a, cudaStream_t stream) {
    if (a->shape.inner == 1 && a->shape.n > 0) {
        if (real_on_host(a->in.dtype))
            OWN_LAUNCH(argmax_rows<double>, a->shape.outer * 32, a, stream);
        OWN_LAUNCH(argmax_rows<long long>, a->shape.outer * 32, a, stream);
    }
    OWN_LAUNCH(argmax, a->shape.outer * a->shape.inner, a, stream);
}

/* ---- rope, learning rate ---- */

/* One pair a thread: any dtype, any number of features. */
template <class R>
__global__ void rope(own_rope_t a) {
    long long half = a.d / 2;
    OWN_FOR(p, a.rows * half) {
        long long row = p / half, i = p % half;
        long long one = row * a.d + (a.interleaved ? 2 * i : i), two = one + (a.interleaved ? 1 : half);
        long long at = row / a.heads % a.m * half + i;
        R c = (R)get(a.cosine, at), s = (R)get(a.sine, at), x = (R)get(a.x, one), y = (R)get(a.x, two);
        if (a.inverse) s = -s;
        put(a.out, one, x * c - y * s);
        put(a.out, two, y * c + x * s);
    }
}

__device__ inline float real(float x) { return x; }
__device__ inline float real(__half x) { return __half2float(x); }
__device__ inline float real(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ inline void assign(float *to, float x) { *to = x; }
__device__ inline void assign(__half *to, float x) { *to = __float2half_rn(x); }
__device__ inline void assign(__nv_bfloat16 *to, float x) { *to = __float2bfloat16_rn(x); }

/* 16 bytes of each half a thread. [rows][2 halves][vectors][V]; C: what the tables hold, T or
 * f32 */
template <class T, class C>
__global__ void rope_halves(own_rope_t a, unsigned vectors) {
    enum { V = 16 / sizeof(T) };
    struct alignas(16) pack {
        T e[V];
    };
    struct alignas(16) angles {
        C e[V];
    };
    const pack *x = (const pack *)a.x.data;
    const angles *cosine = (const angles *)a.cosine.data, *sine = (const angles *)a.sine.data;
    pack *out = (pack *)a.out.data;
    const unsigned n = (unsigned)a.rows * vectors, heads = (unsigned)a.heads, m = (unsigned)a.m;
    for (unsigned p = blockIdx.x * blockDim.x + threadIdx.x; p < n; p += gridDim.x * blockDim.x) {
        const unsigned row = p / vectors, i = p % vectors, one = row * 2 * vectors + i;
        const unsigned at = row / heads % m * vectors + i;
        const pack first = x[one], second = x[one + vectors];
        const angles c = cosine[at], s = sine[at];
        pack low, high;
#pragma unroll
        for (int v = 0; v < V; v++) {
            float sin = a.inverse ? -real(s.e[v]) : real(s.e[v]), cos = real(c.e[v]);
            float b = real(first.e[v]), d = real(second.e[v]);
            assign(&low.e[v], b * cos - d * sin);
            assign(&high.e[v], d * cos + b * sin);
        }
        out[one] = low;
        out[one + vectors] = high;
    }
}

template <class T>
static bool halves_fit(const own_rope_t *a, unsigned *out_vectors) {
    const long long vectors = a->d / 2 * (long long)sizeof(T) / 16;
    *out_vectors = (unsigned)vectors;
    const bool tables = a->cosine.dtype == a->sine.dtype &&
                        (a->cosine.dtype == a->x.dtype || a->cosine.dtype == OWN_F32);
    return tables && !a->interleaved && a->d / 2 * (long long)sizeof(T) % 16 == 0 &&
           a->rows * a->d < 1ll << 31 && a->m < 1ll << 31;
}

template <class T>
static cudaError_t rope_of(const own_rope_t *a, cudaStream_t stream) {
    unsigned vectors;
    if (!halves_fit<T>(a, &vectors)) OWN_LAUNCH(rope<float>, a->rows * (a->d / 2), a, stream);
    const long long n = a->rows * vectors;
    if (n > 0 && a->cosine.dtype == a->x.dtype)
        rope_halves<T, T><<<own_blocks(n), OWN_THREADS, 0, stream>>>(*a, vectors);
    else if (n > 0)
        rope_halves<T, float><<<own_blocks(n), OWN_THREADS, 0, stream>>>(*a, vectors);
    return cudaPeekAtLastError();
}

cudaError_t own_rope(const own_rope_t *a, cudaStream_t stream) {
    switch (a->x.dtype) {
        case OWN_F32: return rope_of<float>(a, stream);
        case OWN_F16: return rope_of<__half>(a, stream);
        case OWN_BF16: return rope_of<__nv_bfloat16>(a, stream);
        default: OWN_LAUNCH(rope<double>, a->rows * (a->d / 2), a, stream);
    }
}

/* ir/learning_rate.h */
__global__ void lr_schedule(own_rate_t a) {
    long long step = *(const long long *)a.step;
    double rate = a.base;
    if (step <= a.warmup) {
        rate = a.base * (double)step / (double)a.warmup;
    } else if (a.kind != 0) {
        double t = (double)(step - 1 - a.warmup) / (double)(a.total - a.warmup);
        if (t > 1) t = 1;
        rate = a.kind == 1 ? a.base + (a.min - a.base) * t
                           : a.min + (a.base - a.min) * (1 + cospi(t)) / 2;
    }
    *(double *)a.out = rate;
}

cudaError_t own_lr_schedule(const own_rate_t *a, cudaStream_t stream) {
    lr_schedule<<<1, 1, 0, stream>>>(*a);
    return cudaPeekAtLastError();
}
