/* What the CUDA C of nests, and of scatter_add, uses of CUDA, for one thread of a processor: the
 * threads of a block are contexts that take turns at barriers and shuffles, blocks come one after
 * the other. test_emit_host.c compiles this with the nests' source as C++, test_scatter_host.c with
 * the kernels' header. */
#ifndef STATOR_TESTS_CONFORMANCE_CUDA_ON_HOST_H
#define STATOR_TESTS_CONFORMANCE_CUDA_ON_HOST_H

#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#define __global__
#define __device__
#define __constant__
#define __forceinline__ inline
#define __grid_constant__
#define __shared__ static
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

using std::ceil, std::cos, std::erf, std::exp, std::exp2, std::fabs, std::floor, std::fmod,
    std::log, std::pow, std::rint, std::sin, std::sqrt, std::tanh;

struct host_dim {
    unsigned x;
};
static host_dim threadIdx, blockIdx, blockDim, gridDim;

/* ---- threads of a block ---- */

void host_kernel(int kernel, const void *params);

struct host_thread {
    ucontext_t context;
    std::vector<char> stack;
    bool ended;
    unsigned long arrived; /* barriers */
};
static std::vector<host_thread> host_threads;
static ucontext_t host_main;
static unsigned host_now, host_n;
static int host_number;
static const void *host_params;
static unsigned char host_lanes[1024][16];

static void host_body() {
    host_kernel(host_number, host_params);
    host_threads[host_now].ended = true;
    swapcontext(&host_threads[host_now].context, &host_main);
}

static void host_yield() {
    swapcontext(&host_threads[host_now].context, &host_main);
}

/* All threads that have not ended: none goes on before each has come as often. */
static void __syncthreads() {
    const unsigned long mine = ++host_threads[host_now].arrived;
    for (bool all = false; !all;) {
        host_yield();
        all = true;
        for (unsigned i = 0; i < host_n; i++)
            all = all && (host_threads[i].ended || host_threads[i].arrived >= mine);
    }
}

/* The lanes of a warp take the same turns. */
template <class T>
static T __shfl_xor_sync(unsigned, T value, int d) {
    const unsigned from = host_now ^ (unsigned)d;
    T other;
    memcpy(host_lanes[host_now], &value, sizeof value);
    host_yield();
    memcpy(&other, host_lanes[from], sizeof other);
    host_yield();
    return other;
}

static void __syncwarp() {
    host_yield();
}
/* The lanes of the warp, all of them there, that have this value. */
static unsigned __match_any_sync(unsigned, int value) {
    const unsigned first = host_now / 32 * 32;
    unsigned same = 0;
    memcpy(host_lanes[host_now], &value, sizeof value);
    host_yield();
    for (unsigned i = 0; i < 32; i++)
        same |= (unsigned)(memcmp(host_lanes[first + i], &value, sizeof value) == 0) << i;
    host_yield();
    return same;
}

extern "C" void host_run(int number, unsigned kernel, unsigned blocks, unsigned threads,
                         const void *params) {
    enum { STACK = 64 << 10 };
    host_number = number * 64 + (int)kernel;
    host_params = params;
    host_n = threads;
    gridDim.x = blocks;
    blockDim.x = threads;
    if (host_threads.size() < threads) host_threads.resize(threads);
    for (unsigned block = 0; block < blocks; block++) {
        for (unsigned i = 0; i < threads; i++) {
            host_thread &t = host_threads[i];
            t.stack.resize(STACK);
            t.ended = false;
            t.arrived = 0;
            getcontext(&t.context);
            t.context.uc_stack.ss_sp = t.stack.data();
            t.context.uc_stack.ss_size = STACK;
            t.context.uc_link = &host_main;
            makecontext(&t.context, host_body, 0);
        }
        for (unsigned left = threads; left;) {
            left = 0;
            for (unsigned i = 0; i < threads; i++) {
                if (host_threads[i].ended) continue;
                host_now = i;
                threadIdx.x = i;
                blockIdx.x = block;
                swapcontext(&host_main, &host_threads[i].context);
                left += !host_threads[i].ended;
            }
        }
    }
}

/* ---- functions ---- */

template <class To, class From>
static To host_bits(From x) {
    To y;
    static_assert(sizeof x == sizeof y, "");
    memcpy(&y, &x, sizeof y);
    return y;
}
static float __uint_as_float(unsigned x) {
    return host_bits<float>(x);
}
static float __int_as_float(int x) {
    return host_bits<float>(x);
}
static double __longlong_as_double(long long x) {
    return host_bits<double>(x);
}
static unsigned __umulhi(unsigned a, unsigned b) {
    return (unsigned)((uint64_t)a * b >> 32);
}
static unsigned atomicCAS(unsigned *at, unsigned expected, unsigned value) {
    const unsigned old = *at;
    if (old == expected) *at = value;
    return old;
}
static int atomicAdd(int *at, int value) {
    const int old = *at;
    *at += value;
    return old;
}
static int __popc(unsigned x) {
    return __builtin_popcount(x);
}
static long long max(long long a, long long b) {
    return a > b ? a : b;
}
static long long min(long long a, long long b) {
    return a < b ? a : b;
}
static unsigned short host_to_bf16(float x) {
    const unsigned bits = host_bits<unsigned>(x);
    if (x != x) return 0x7fff;
    return (unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
static float host_from_f16(unsigned short x) {
    return (float)host_bits<_Float16>(x);
}
static unsigned short host_to_f16(float x) {
    return host_bits<unsigned short>((_Float16)x);
}

#endif
