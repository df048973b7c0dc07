/* Kernels of scatter_add (kernels/scatter.h), apart from the types of elements and the source of
 * indices, so that a test can run them on the host.
 *
 * Equal indices keep their order, and the groups in which a run is added up follow from its place
 * among the sorted indices: the same bits every run. The sort is LSD radix, a launch a digit,
 * counting by warps: the lanes of a warp that have the same digit find each other by
 * __match_any_sync, so no atomic decides an order. Atomics only count. */
#ifndef STATOR_KERNELS_CUDA_SCATTER_CUH
#define STATOR_KERNELS_CUDA_SCATTER_CUH

#include "kernels/scatter.h"

struct scatter_args {
    kern_scatter_t plan;
    const void *updates;
    void *out;
    char *workspace;
    int lanes; /* threads along a row's vectors */
};

enum { SCATTER_WARPS = KERN_SCATTER_THREADS / 32, SCATTER_DIGITS = 1 << KERN_SCATTER_BITS };

__device__ inline int *scatter_ints(const scatter_args &a, size_t at) {
    return (int *)(a.workspace + at);
}

__device__ inline int *scatter_counts(const scatter_args &a, int pass, long long block) {
    return scatter_ints(a, a.plan.counts) + ((pass * a.plan.n_blocks + block) << a.plan.bits);
}

__device__ inline int scatter_digit(const scatter_args &a, int key, int pass) {
    return key >> (pass * a.plan.bits) & ((1 << a.plan.bits) - 1);
}

/* `key_of(i)`: index i within 0 … rows - 1. The counts of later passes are cleared. */
template <class Keys>
__global__ void __launch_bounds__(KERN_SCATTER_THREADS) scatter_count(scatter_args a, Keys key_of) {
    __shared__ int counts[SCATTER_DIGITS];
    const int digits = 1 << a.plan.bits;
    const long long first = blockIdx.x * a.plan.block;
    for (int d = threadIdx.x; d < digits; d += KERN_SCATTER_THREADS) {
        counts[d] = 0;
        for (int pass = 1; pass < a.plan.n_passes; pass++)
            scatter_counts(a, pass, blockIdx.x)[d] = 0;
    }
    __syncthreads();
    for (long long i = first + threadIdx.x; i < first + a.plan.block && i < a.plan.n;
         i += KERN_SCATTER_THREADS) {
        const int key = (int)key_of(i);
        scatter_ints(a, a.plan.keys[0])[i] = key;
        atomicAdd(&counts[scatter_digit(a, key, 0)], 1);
    }
    __syncthreads();
    for (int d = threadIdx.x; d < digits; d += KERN_SCATTER_THREADS)
        scatter_counts(a, 0, blockIdx.x)[d] = counts[d];
}

/* next[w][d]: where warp w of this block puts its first key of digit d; on entry how many it
 * has. */
__device__ inline void scatter_places(const scatter_args &a, int pass,
                                      int next[SCATTER_WARPS][SCATTER_DIGITS]) {
    __shared__ int sums[2][SCATTER_DIGITS];
    const int digits = 1 << a.plan.bits;
    for (int d = threadIdx.x; d < digits; d += KERN_SCATTER_THREADS) {
        int all = 0, before = 0;
#pragma unroll 16
        for (long long b = 0; b < a.plan.n_blocks; b++) {
            const int count = scatter_counts(a, pass, b)[d];
            all += count;
            before += b < (long long)blockIdx.x ? count : 0;
        }
        sums[0][d] = all;
        for (int w = 0; w < SCATTER_WARPS; w++) { /* from here on relative to the digit's first */
            const int count = next[w][d];
            next[w][d] = before;
            before += count;
        }
    }
    int from = 0;
    for (int step = 1; step < digits; step *= 2, from = 1 - from) {
        __syncthreads();
        for (int d = threadIdx.x; d < digits; d += KERN_SCATTER_THREADS)
            sums[1 - from][d] = sums[from][d] + (d >= step ? sums[from][d - step] : 0);
    }
    __syncthreads();
    for (int d = threadIdx.x; d < digits; d += KERN_SCATTER_THREADS)
        for (int w = 0; d > 0 && w < SCATTER_WARPS; w++) next[w][d] += sums[from][d - 1];
    __syncthreads();
}

/* One pass: keys and positions by digit `pass` of the key, those of equal digits in their order. A
 * warp has positions that lie together. */
__global__ void __launch_bounds__(KERN_SCATTER_THREADS) scatter_place(scatter_args a, int pass) {
    __shared__ int next[SCATTER_WARPS][SCATTER_DIGITS];
    const int *keys = scatter_ints(a, a.plan.keys[pass % 2]);
    const int *order = scatter_ints(a, a.plan.order[pass % 2]);
    int *to_keys = scatter_ints(a, a.plan.keys[1 - pass % 2]);
    int *to_order = scatter_ints(a, a.plan.order[1 - pass % 2]);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const long long share = a.plan.block / SCATTER_WARPS;
    const long long first = blockIdx.x * a.plan.block + warp * share;
    for (int d = threadIdx.x; d < SCATTER_WARPS * SCATTER_DIGITS; d += KERN_SCATTER_THREADS)
        next[d / SCATTER_DIGITS][d % SCATTER_DIGITS] = 0;
    __syncthreads();
    for (long long i = first + lane; i < first + share && i < a.plan.n; i += 32)
        atomicAdd(&next[warp][scatter_digit(a, keys[i], pass)], 1);
    __syncthreads();
    scatter_places(a, pass, next);
    for (long long begin = first; begin < first + share && begin < a.plan.n; begin += 32) {
        const long long i = begin + lane;
        const bool there = i < a.plan.n;
        const int key = there ? keys[i] : 0, digit = there ? scatter_digit(a, key, pass) : -1;
        const unsigned same = __match_any_sync(0xffffffffu, digit);
        const int before = __popc(same & ((1u << lane) - 1));
        const int at = there ? next[warp][digit] + before : 0;
        __syncwarp();
        if (there && before == 0) next[warp][digit] += __popc(same);
        __syncwarp();
        if (!there) continue;
        to_keys[at] = key;
        to_order[at] = pass ? order[i] : (int)i;
        if (pass + 1 < a.plan.n_passes)
            atomicAdd(&scatter_counts(a, pass + 1, at / a.plan.block)[scatter_digit(a, key, pass + 1)],
                      1);
    }
}

template <int N, class T>
struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) scatter_pack {
    T e[N];
};

/* Adds updates order[first] … order[last - 1] at vector `v` of outer row `outer`. */
template <class E, int N>
__device__ inline void scatter_sum(const scatter_args &a, long long outer, int first, int last,
                                   long long v, typename E::sum *sum) {
    typedef scatter_pack<N, typename E::type> pack;
    const int *order = scatter_ints(a, a.plan.order[a.plan.n_passes % 2]);
    const pack *updates = (const pack *)a.updates;
    const long long vectors = a.plan.inner / N;
#pragma unroll 4
    for (int j = first; j < last; j++) {
        const pack x = updates[(outer * a.plan.n + order[j]) * vectors + v];
#pragma unroll
        for (int e = 0; e < N; e++) sum[e] += E::real(x.e[e]);
    }
}

template <class E, int N>
__device__ inline scatter_pack<N, typename E::sum> *scatter_piece(const scatter_args &a,
                                                                  long long outer, long long part,
                                                                  int goes_on) {
    return (scatter_pack<N, typename E::sum> *)(a.workspace + a.plan.pieces) +
           ((outer * a.plan.n_parts + part) * 2 + goes_on) * (a.plan.inner / N);
}

/* Block: a part of the sorted positions. starts[r]: how many indices are below r. */
template <class E, int N>
__global__ void scatter_bound(scatter_args a) {
    __shared__ int near[KERN_SCATTER_PART + 2]; /* keys of the part and of its neighbours */
    const int *keys = scatter_ints(a, a.plan.keys[a.plan.n_passes % 2]);
    int *starts = scatter_ints(a, a.plan.starts);
    const long long part = blockIdx.x % a.plan.n_parts, outer = blockIdx.x / a.plan.n_parts;
    const int first = (int)part * KERN_SCATTER_PART, threads = (int)blockDim.x;
    const int n = a.plan.n - first < KERN_SCATTER_PART ? (int)(a.plan.n - first) : KERN_SCATTER_PART;
    for (int i = threadIdx.x; i < n + 2; i += threads) {
        const long long at = (long long)first + i - 1;
        near[i] = at < 0 ? -1 : at < a.plan.n ? keys[at] : (int)a.plan.rows;
    }
    __syncthreads();
    if (outer == 0)
        for (int i = 0; i <= n; i++) { /* the last part has what lies behind the last index */
            if (i == n && first + n < a.plan.n) break;
            for (int r = near[i] + 1 + threadIdx.x; r <= near[i + 1]; r += threads)
                starts[r] = first + i;
        }
    int head = 0, tail = n; /* ends of what came in, and begin of what goes on */
    if (near[0] == near[1])
        for (head = 1; head < n && near[head + 1] == near[1];) head++;
    if (head < n && near[n + 1] == near[n])
        for (tail = n - 1; tail > head && near[tail] == near[n];) tail--;
    for (long long v = threadIdx.x; v < a.plan.inner / N; v += threads)
        for (int side = 0; side < 2; side++) {
            const int from = side ? tail : 0, to = side ? n : head;
            scatter_pack<N, typename E::sum> sum = {};
            if (from >= to) continue;
            scatter_sum<E, N>(a, outer, first + from, first + to, v, sum.e);
            scatter_piece<E, N>(a, outer, part, side)[v] = sum;
        }
}

/* A thread: some vectors of an output row. */
template <class E, int N>
__global__ void __launch_bounds__(KERN_SCATTER_THREADS) scatter_add_rows(scatter_args a) {
    typedef scatter_pack<N, typename E::sum> pack;
    const int *starts = scatter_ints(a, a.plan.starts);
    const unsigned x = threadIdx.x % a.lanes, y = threadIdx.x / a.lanes;
    const long long row = (long long)blockIdx.x * (KERN_SCATTER_THREADS / a.lanes) + y;
    if (y >= KERN_SCATTER_THREADS / a.lanes || row >= a.plan.outer * a.plan.rows) return;
    const long long outer = a.plan.outer == 1 ? 0 : row / a.plan.rows, r = row - outer * a.plan.rows;
    const int first = starts[r], last = starts[r + 1];
    const int begin = first / KERN_SCATTER_PART, end = (last - 1) / KERN_SCATTER_PART;
    for (long long v = x; v < a.plan.inner / N; v += a.lanes) {
        pack sum = {};
        if (first < last && begin == end) {
            scatter_sum<E, N>(a, outer, first, last, v, sum.e);
        } else if (first < last) {
            sum = scatter_piece<E, N>(a, outer, begin, 1)[v];
#pragma unroll 8
            for (int p = begin + 1; p <= end; p++) {
                const pack piece = scatter_piece<E, N>(a, outer, p, 0)[v];
#pragma unroll
                for (int e = 0; e < N; e++) sum.e[e] += piece.e[e];
            }
        }
        scatter_pack<N, typename E::type> out;
#pragma unroll
        for (int e = 0; e < N; e++) out.e[e] = E::rounded(sum.e[e]);
        ((scatter_pack<N, typename E::type> *)a.out)[row * (a.plan.inner / N) + v] = out;
    }
}

#endif
