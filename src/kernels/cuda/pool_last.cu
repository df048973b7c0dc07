/* Max pooling with channels last: a thread takes 16 bytes of channels of one position, whose
 * neighbours the next threads take, so that every access is a full line. Forward walks the window's
 * taps in the order of positions; the gradient walks the outputs whose windows cover its position
 * and adds those whose index names it (pool_patch.cuh: of several positions at a time, for common
 * windows): no atomics, the same bits every run. Positions are 32-bit. */
#include <limits.h>

#include "kernels/cuda/own.cuh"
#include "kernels/cuda/pool_patch.cuh"

template <typename T> __device__ inline float wide(T x);
template <> __device__ inline float wide(float x) { return x; }
template <> __device__ inline float wide(__half x) { return __half2float(x); }
template <> __device__ inline float wide(__nv_bfloat16 x) { return __bfloat162float(x); }
template <typename T> __device__ inline T narrow(float x);
template <> __device__ inline float narrow(float x) { return x; }
template <> __device__ inline __half narrow(float x) { return __float2half(x); }
template <> __device__ inline __nv_bfloat16 narrow(float x) { return __float2bfloat16(x); }

template <typename T> struct alignas(16) Vector {
    enum { N = 16 / sizeof(T) };
    T v[N];
};
template <int N> struct alignas(16) Indices {
    int v[N];
};

/* The window in 32 bits. */
struct Window {
    int n, c, in[3], out[3], kernel[3], stride[3], low[3], dilation[3];
};

static Window narrow_window(const own_window_t &w, int channels) {
    Window out = {(int)w.n, channels, {}, {}, {}, {}, {}, {}};
    for (int d = 0; d < 3; d++) {
        out.in[d] = (int)w.in[d], out.out[d] = (int)w.out[d], out.kernel[d] = (int)w.kernel[d];
        out.stride[d] = (int)w.stride[d], out.low[d] = (int)w.low[d];
        out.dilation[d] = (int)w.dilation[d];
    }
    return out;
}

/* Vector i of a tensor with these spatial dims: image and position of each dim. */
__device__ inline void place(unsigned i, unsigned channels, const int dims[3], int *image, int at[3]) {
    unsigned rest = i / channels;
    for (int d = 2; d >= 0; d--) {
        at[d] = (int)(rest % (unsigned)dims[d]);
        rest /= (unsigned)dims[d];
    }
    *image = (int)rest;
}

template <typename T>
__global__ void max_pool_last(Window w, const Vector<T> *x, Vector<T> *y,
                              Indices<Vector<T>::N> *index, unsigned total) {
    enum { N = Vector<T>::N };
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += gridDim.x * blockDim.x) {
        int image, o[3], k[3];
        Vector<T> best;
        Indices<N> chosen;
        place(i, w.c, w.out, &image, o);
        for (int v = 0; v < N; v++) best.v[v] = narrow<T>(-INFINITY), chosen.v[v] = -1;
        for (k[0] = 0; k[0] < w.kernel[0]; k[0]++)
            for (k[1] = 0; k[1] < w.kernel[1]; k[1]++)
                for (k[2] = 0; k[2] < w.kernel[2]; k[2]++) {
                    int at = 0;
                    bool inside = true;
                    for (int d = 0; d < 3; d++) {
                        int p = o[d] * w.stride[d] - w.low[d] + k[d] * w.dilation[d];
                        inside = inside && p >= 0 && p < w.in[d];
                        at = at * w.in[d] + p;
                    }
                    if (!inside) continue;
                    int plane = image * w.in[0] * w.in[1] * w.in[2];
                    const Vector<T> value = x[(unsigned)(plane + at) * w.c + i % w.c];
                    for (int v = 0; v < N; v++) {
                        float a = wide(value.v[v]), b = wide(best.v[v]);
                        if (chosen.v[v] < 0 || a > b || (isnan(a) && !isnan(b)))
                            best.v[v] = value.v[v], chosen.v[v] = at;
                    }
                }
        y[i] = best;
        index[i] = chosen;
    }
}

template <typename T>
__global__ void max_pool_grad_last(Window w, Vector<T> *dx, const Vector<T> *dy,
                                   const Indices<Vector<T>::N> *index, unsigned total) {
    enum { N = Vector<T>::N };
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += gridDim.x * blockDim.x) {
        int image, x[3], o[3], first[3], last[3];
        float sum[N];
        place(i, w.c, w.in, &image, x);
        for (int v = 0; v < N; v++) sum[v] = 0;
        for (int d = 0; d < 3; d++) {
            int low = x[d] + w.low[d] - (w.kernel[d] - 1) * w.dilation[d];
            first[d] = low <= 0 ? 0 : (low + w.stride[d] - 1) / w.stride[d];
            last[d] = (x[d] + w.low[d]) / w.stride[d] + 1;
            if (last[d] > w.out[d]) last[d] = w.out[d];
        }
        const int own = (x[0] * w.in[1] + x[1]) * w.in[2] + x[2];
        for (o[0] = first[0]; o[0] < last[0]; o[0]++)
            for (o[1] = first[1]; o[1] < last[1]; o[1]++)
                for (o[2] = first[2]; o[2] < last[2]; o[2]++) {
                    int at = ((image * w.out[0] + o[0]) * w.out[1] + o[1]) * w.out[2] + o[2];
                    unsigned from = (unsigned)at * w.c + i % w.c;
                    const Indices<N> named = index[from];
                    const Vector<T> slope = dy[from];
                    for (int v = 0; v < N; v++)
                        if (named.v[v] == own) sum[v] += wide(slope.v[v]);
                }
        Vector<T> result;
        for (int v = 0; v < N; v++) result.v[v] = narrow<T>(sum[v]);
        dx[i] = result;
    }
}

int32_t own_pool_vectors(const own_pool_t *a) {
    const own_window_t &w = a->window;
    const int n = a->x.dtype == OWN_F32 ? 4 : a->x.dtype == OWN_F16 || a->x.dtype == OWN_BF16 ? 8 : 0;
    const long long most = w.in_size > w.out_size ? w.in_size : w.out_size;
    if (!w.last || !n || w.c % n || w.n * w.c * most > INT_MAX) return 0;
    for (int d = 0; d < 3; d++) /* no position within a window overflows */
        if (w.kernel[d] * w.dilation[d] + w.out[d] * w.stride[d] + w.low[d] > INT_MAX / 4) return 0;
    return n;
}

template <typename T> static cudaError_t forward(const own_pool_t *a, cudaStream_t stream) {
    enum { N = Vector<T>::N };
    const own_window_t &w = a->window;
    const long long total = w.n * w.out_size * (w.c / N);
    if (total <= 0) return cudaSuccess;
    max_pool_last<T><<<own_blocks(total), OWN_THREADS, 0, stream>>>(
        narrow_window(w, (int)(w.c / N)), (const Vector<T> *)a->x.data, (Vector<T> *)a->y.data,
        (Indices<N> *)a->index.data, (unsigned)total);
    return cudaPeekAtLastError();
}

template <typename T> struct Element {
    static __device__ float real(T x) { return wide(x); }
    static __device__ T rounded(float x) { return narrow<T>(x); }
};

/* Kernel and stride of a 2-d window that pool_patch.cuh is for. */
static bool is_patch(const own_window_t &w, int k, int s) {
    bool fits = w.in[0] == 1 && w.out[0] == 1 && w.kernel[0] == 1 && w.low[0] == 0;
    for (int d = 1; d < 3; d++)
        fits = fits && w.kernel[d] == k && w.stride[d] == s && (w.dilation[d] == 1 || k == 1);
    return fits;
}

template <typename T, int K, int S>
static cudaError_t backward_patch(const own_pool_t *a, cudaStream_t stream) {
    enum { N = Vector<T>::N };
    const own_window_t &w = a->window;
    pool_patch p = {(int)(w.c / N), {}, {}, {}, {}};
    for (int d = 0; d < 2; d++) {
        p.in[d] = (int)w.in[1 + d], p.out[d] = (int)w.out[1 + d], p.low[d] = (int)w.low[1 + d];
        p.patches[d] = (p.low[d] + p.in[d] - 1) / S + 1;
    }
    const long long total = w.n * p.patches[0] * p.patches[1] * p.c;
    if (total <= 0) return cudaSuccess;
    if (total > INT_MAX) return cudaErrorInvalidConfiguration;
    const unsigned blocks = (unsigned)((total + OWN_THREADS - 1) / OWN_THREADS);
    max_pool_grad_patch<Element<T>, N, K, S><<<blocks, OWN_THREADS, 0, stream>>>(
        p, (Vector<T> *)a->x.data, (const Vector<T> *)a->y.data, (const Indices<N> *)a->index.data,
        (unsigned)total);
    return cudaPeekAtLastError();
}

template <typename T> static cudaError_t backward(const own_pool_t *a, cudaStream_t stream) {
    enum { N = Vector<T>::N };
    const own_window_t &w = a->window;
    if (w.n * w.out_size > 0 && is_patch(w, 3, 2)) return backward_patch<T, 3, 2>(a, stream);
    if (w.n * w.out_size > 0 && is_patch(w, 2, 2)) return backward_patch<T, 2, 2>(a, stream);
    const long long total = w.n * w.in_size * (w.c / N);
    if (total <= 0) return cudaSuccess;
    max_pool_grad_last<T><<<own_blocks(total), OWN_THREADS, 0, stream>>>(
        narrow_window(w, (int)(w.c / N)), (Vector<T> *)a->x.data, (const Vector<T> *)a->y.data,
        (const Indices<N> *)a->index.data, (unsigned)total);
    return cudaPeekAtLastError();
}

cudaError_t own_max_pool_last(const own_pool_t *a, cudaStream_t stream) {
    if (a->x.dtype == OWN_F32) return forward<float>(a, stream);
    return a->x.dtype == OWN_F16 ? forward<__half>(a, stream) : forward<__nv_bfloat16>(a, stream);
}

cudaError_t own_max_pool_grad_last(const own_pool_t *a, cudaStream_t stream) {
    if (a->x.dtype == OWN_F32) return backward<float>(a, stream);
    return a->x.dtype == OWN_F16 ? backward<__half>(a, stream) : backward<__nv_bfloat16>(a, stream);
}
