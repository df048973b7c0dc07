/* What stands before the kernels of a nest: types, conversions, arithmetic, combiners. The build
 * puts this file into the library as text (emit_prelude). */
struct bf16 {
    unsigned short bits;
};
struct f16 {
    unsigned short bits;
};
struct Fault { // dev_cuda_fault_t of device/cuda/cuda.h
    unsigned set;
    unsigned pad;
    unsigned node;
    unsigned pad2;
    long long index, position, size;
};
static_assert(sizeof(Fault) == 40, "laid out as dev_cuda_fault_t");
struct Params {
    void *t[N_TENSORS];
    char *work;
    Fault *fault;
    unsigned node;
};
#define EACH _Pragma("unroll") for (int v = 0; v < V; ++v)

/* conversions */
__device__ __forceinline__ float real(float x) { return x; }
__device__ __forceinline__ double real(double x) { return x; }
__device__ __forceinline__ float real(bf16 x) { return __uint_as_float((unsigned)x.bits << 16); }
__device__ __forceinline__ float real(f16 x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
}
template <class T>
__device__ __forceinline__ long long real(T x) {
    return (long long)x;
}
template <class T>
struct To {
    template <class X>
    static __device__ __forceinline__ T of(X x) {
        return (T)x;
    }
};
template <>
struct To<bf16> {
    template <class X>
    static __device__ __forceinline__ bf16 of(X x) {
        bf16 y;
        asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"((float)x));
        return y;
    }
};
template <>
struct To<f16> {
    template <class X>
    static __device__ __forceinline__ f16 of(X x) {
        f16 y;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"((float)x));
        return y;
    }
};
template <class T, class X>
__device__ __forceinline__ T to(X x) {
    return To<T>::of(x);
}

/* vectors */
template <int N, class T>
struct __align__(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Pack {
    T e[N];
};
template <int N, class T, class R>
__device__ __forceinline__ void load(const T *from, R *out) {
    const Pack<N, T> pack = *(const Pack<N, T> *)from;
    _Pragma("unroll") for (int v = 0; v < N; ++v) out[v] = (R)real(pack.e[v]);
}
template <int N, class T, class R>
__device__ __forceinline__ void store(T *at, const R *from) {
    Pack<N, T> pack;
    _Pragma("unroll") for (int v = 0; v < N; ++v) pack.e[v] = to<T>(from[v]);
    *(Pack<N, T> *)at = pack;
}

/* data errors */
__device__ __forceinline__ long long checked(const Params &p, long long index, long long size,
                                             long long position) {
    if (index < -size || index >= size) {
        if (atomicCAS(&p.fault->set, 0u, 1u) == 0u) {
            p.fault->node = p.node;
            p.fault->index = index;
            p.fault->position = position;
            p.fault->size = size;
        }
        return 0;
    }
    return index < 0 ? index + size : index;
}

/* arithmetic */
__device__ __forceinline__ float maximum(float a, float b) { // no number where one is none
    float y;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
    return y;
}
__device__ __forceinline__ float minimum(float a, float b) {
    float y;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
    return y;
}
__device__ __forceinline__ double maximum(double a, double b) {
    return a != a ? a : b != b ? b : a > b ? a : b;
}
__device__ __forceinline__ double minimum(double a, double b) {
    return a != a ? a : b != b ? b : a < b ? a : b;
}
#define REAL(T)                                                                                 \
    __device__ __forceinline__ T sigmoid(T x) { return (T)1 / ((T)1 + exp(-x)); }               \
    __device__ __forceinline__ T relu(T x) { return maximum(x, (T)0); }                         \
    __device__ __forceinline__ T sign(T x) { return x != x ? x : (T)((x > 0) - (x < 0)); }      \
    __device__ __forceinline__ T modulo(T a, T b) {                                             \
        T r = fmod(a, b);                                                                       \
        return r != 0 && (r < 0) != (b < 0) ? r + b : r;                                        \
    }                                                                                           \
    __device__ __forceinline__ T silu_grad(T d, T x) {                                          \
        T s = sigmoid(x);                                                                       \
        return d * s * ((T)1 + x * ((T)1 - s));                                                 \
    }                                                                                           \
    __device__ __forceinline__ T gelu(T x) {                                                    \
        return (T)0.5 * x * ((T)1 + erf(x * (T)0.70710678118654752440));                        \
    }                                                                                           \
    __device__ __forceinline__ T gelu_grad(T d, T x) {                                          \
        return d * ((T)0.5 * ((T)1 + erf(x * (T)0.70710678118654752440)) +                      \
                    x * exp((T)-0.5 * x * x) * (T)0.39894228040143267794);                      \
    }                                                                                           \
    __device__ __forceinline__ T gelu_inner(T x) {                                              \
        return (T)0.79788456080286535588 * (x + (T)0.044715 * x * x * x);                       \
    }                                                                                           \
    __device__ __forceinline__ T gelu_tanh(T x) {                                               \
        return (T)0.5 * x * ((T)1 + tanh(gelu_inner(x)));                                       \
    }                                                                                           \
    __device__ __forceinline__ T gelu_tanh_grad(T d, T x) {                                     \
        T t = tanh(gelu_inner(x));                                                              \
        return d *                                                                              \
               ((T)0.5 * ((T)1 + t) + (T)0.5 * x * ((T)1 - t * t) * (T)0.79788456080286535588 * \
                                          ((T)1 + (T)0.134145 * x * x));                        \
    }
REAL(float)
REAL(double)
__device__ __forceinline__ long long int_div(long long a, long long b) {
    return b == 0 ? 0 : b == -1 ? -a : a / b;
}
__device__ __forceinline__ long long int_mod(long long a, long long b) {
    if (b == 0 || b == -1) return 0;
    long long r = a % b;
    return r && (r < 0) != (b < 0) ? r + b : r;
}
__device__ __forceinline__ long long int_pow(long long a, long long b) {
    if (b < 0) return a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0;
    long long r = 1;
    for (; b; b >>= 1, a *= a)
        if (b & 1) r *= a;
    return r;
}

/* Philox4x32-10 */
__device__ __forceinline__ float uniform24(long long seed, long long id, long long step,
                                           long long element) {
    unsigned k0 = (unsigned)seed, k1 = (unsigned)((unsigned long long)seed >> 32);
    unsigned long long low = (unsigned long long)element >> 2;
    unsigned c0 = (unsigned)low, c1 = (unsigned)(low >> 32), c2 = (unsigned)step, c3 = (unsigned)id;
    for (int round = 0; round < 10; ++round) {
        unsigned h0 = __umulhi(0xD2511F53u, c0), l0 = 0xD2511F53u * c0,
                 h1 = __umulhi(0xCD9E8D57u, c2), l1 = 0xCD9E8D57u * c2;
        c0 = h1 ^ c1 ^ k0;
        c2 = h0 ^ c3 ^ k1;
        c1 = l1;
        c3 = l0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    unsigned word = (element & 3) == 0   ? c0
                    : (element & 3) == 1 ? c1
                    : (element & 3) == 2 ? c2
                                         : c3;
    return (float)(word >> 8) * 5.9604644775390625e-8f;
}

/* combiners: what a sum begins with, and how two join */
template <class T>
struct Limits;
template <>
struct Limits<float> {
    static __device__ __forceinline__ float most() { return __int_as_float(0x7f800000); }
};
template <>
struct Limits<double> {
    static __device__ __forceinline__ double most() {
        return __longlong_as_double(0x7ff0000000000000ll);
    }
};
struct Sum {
    template <class T>
    static __device__ __forceinline__ T first() {
        return 0;
    }
    template <class T>
    static __device__ __forceinline__ T of(T a, T b) {
        return a + b;
    }
};
struct Product {
    template <class T>
    static __device__ __forceinline__ T first() {
        return 1;
    }
    template <class T>
    static __device__ __forceinline__ T of(T a, T b) {
        return a * b;
    }
};
template <class T>
struct Extreme {
    static __device__ __forceinline__ T high() { return Limits<T>::most(); }
    static __device__ __forceinline__ T low() { return -Limits<T>::most(); }
    static __device__ __forceinline__ T max(T a, T b) { return maximum(a, b); }
    static __device__ __forceinline__ T min(T a, T b) { return minimum(a, b); }
};
template <>
struct Extreme<long long> {
    static __device__ __forceinline__ long long high() { return 0x7fffffffffffffffll; }
    static __device__ __forceinline__ long long low() { return -0x7fffffffffffffffll - 1; }
    static __device__ __forceinline__ long long max(long long a, long long b) {
        return a > b ? a : b;
    }
    static __device__ __forceinline__ long long min(long long a, long long b) {
        return a < b ? a : b;
    }
};
struct Maximum {
    template <class T>
    static __device__ __forceinline__ T first() {
        return Extreme<T>::low();
    }
    template <class T>
    static __device__ __forceinline__ T of(T a, T b) {
        return Extreme<T>::max(a, b);
    }
};
struct Minimum {
    template <class T>
    static __device__ __forceinline__ T first() {
        return Extreme<T>::high();
    }
    template <class T>
    static __device__ __forceinline__ T of(T a, T b) {
        return Extreme<T>::min(a, b);
    }
};

/* count, mean and squares around the mean of a part */
template <class T>
struct Moments {
    T n, mean, squares;
};
/* sums of differences to an element, and of their squares; those to the same element add up */
template <class T>
struct Spread {
    T sum, squares;
    template <class N>
    __device__ __forceinline__ Moments<T> moments(T element, N count) const {
        if (count == 0) return {0, 0, 0};
        const T n = (T)count, mean = sum / n, rest = squares - sum * mean;
        return {n, element + mean, rest < 0 ? (T)0 : rest};
    }
};
/* what a thread sums: differences to its first element, and their squares */
template <class T>
struct Shifted {
    T first, sum, squares;
    __device__ __forceinline__ void clear() { first = sum = squares = 0; }
    __device__ __forceinline__ void add(T x, bool is_first) {
        first = is_first ? x : first;
        const T d = x - first;
        sum += d;
        squares += d * d;
    }
    template <class N> /* the same to another element, of `count` that there are */
    __device__ __forceinline__ Spread<T> about(T other, N count) const {
        if (count == 0) return {0, 0};
        const T n = (T)count, d = first - other;
        return {sum + n * d, squares + (T)2 * d * sum + n * d * d};
    }
};
struct Both {
    template <class S>
    static __device__ __forceinline__ S first() {
        return {0, 0};
    }
    template <class T>
    static __device__ __forceinline__ Spread<T> of(Spread<T> a, Spread<T> b) {
        return {a.sum + b.sum, a.squares + b.squares};
    }
};
/* Chan, Golub, LeVeque 1979 */
struct Chan {
    template <class M>
    static __device__ __forceinline__ M first() {
        return {0, 0, 0};
    }
    template <class T>
    static __device__ __forceinline__ Moments<T> of(Moments<T> a, Moments<T> b) {
        const T n = a.n + b.n;
        if (n == 0) return a;
        const T share = b.n / n, d = b.mean - a.mean;
        return {n, a.mean + d * share, a.squares + b.squares + d * d * a.n * share};
    }
};

/* e^x for sums of it, 1 at 0: its relative error is 2^-22 and x/2^24, and the larger that is, the
 * less of the sum is the term. A third of the instructions of exp, where those are what a sum
 * takes. */
__device__ __forceinline__ float term(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.44269504f));
    return y;
}
__device__ __forceinline__ double term(double x) { return exp(x); }

/* the largest of some values, and the sum of e^(value - largest) */
template <class T>
struct Peak {
    T most, sum;
    __device__ __forceinline__ void clear() {
        most = -Limits<T>::most();
        sum = 0;
    }
    template <int N>
    __device__ __forceinline__ void add(const T *x) {
        T top = most, part = 0;
        _Pragma("unroll") for (int v = 0; v < N; ++v) top = maximum(top, x[v]);
        if (top == -Limits<T>::most()) return; // none yet
        _Pragma("unroll") for (int v = 0; v < N; ++v) part += term(x[v] - top);
        sum = sum * term(most - top) + part;
        most = top;
    }
    /* no number where nothing is finite, as e^(value - largest) is none */
    __device__ __forceinline__ T total() const { return sum + (most - most); }
};

/* of the lane whose number differs in the bits of d */
template <class T>
__device__ __forceinline__ T across(T a, int d) {
    return __shfl_xor_sync(0xffffffffu, a, d);
}
template <class T>
__device__ __forceinline__ Moments<T> across(Moments<T> a, int d) {
    return {across(a.n, d), across(a.mean, d), across(a.squares, d)};
}
template <class T>
__device__ __forceinline__ Spread<T> across(Spread<T> a, int d) {
    return {across(a.sum, d), across(a.squares, d)};
}

/* The same result in all threads of a warp or block; of moments, in the first thread. */
template <class Op, class T>
__device__ __forceinline__ T warp_all(T a) {
    _Pragma("unroll") for (int d = 16; d; d >>= 1) a = Op::of(a, across(a, d));
    return a;
}
template <class Op, int N, class T>
__device__ __forceinline__ T block_all(T a) {
    __shared__ T parts[N / 32];
    a = warp_all<Op>(a);
    __syncthreads();
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = a;
    __syncthreads();
    constexpr int M = N / 32;
    if ((M & (M - 1)) == 0) {
        a = parts[threadIdx.x % M];
        _Pragma("unroll") for (int d = M / 2; d; d >>= 1) a = Op::of(a, across(a, d));
        return a;
    }
    a = parts[0];
    _Pragma("unroll") for (int i = 1; i < M; ++i) a = Op::of(a, parts[i]);
    return a;
}
/* Peaks of many threads: first the largest, so that each takes one exponential. */
template <class T>
__device__ __forceinline__ T below(Peak<T> a, T top) {
    return top == -Limits<T>::most() ? a.sum : a.sum * exp(a.most - top);
}
template <class T>
__device__ __forceinline__ Peak<T> warp_peak(Peak<T> a) {
    const T top = warp_all<Maximum>(a.most);
    return {top, warp_all<Sum>(below(a, top))};
}
template <int N, class T>
__device__ __forceinline__ Peak<T> block_peak(Peak<T> a) {
    const T top = block_all<Maximum, N>(a.most);
    return {top, block_all<Sum, N>(below(a, top))};
}

/* Values of X lanes by Y rows of threads, N each, joined over the rows into those of row 0: halves
 * onto halves, so the tree is a function of Y alone. */
template <class Op, int N, int X, int Y, class T>
__device__ __forceinline__ void rows_of_block(T *a, int x, int y) {
    constexpr int M = N > 1 && N * X * Y * sizeof(T) > 24576 ? N / 2 : N; // of N at a time
    __shared__ T parts[Y][X * M];
    _Pragma("unroll") for (int at = 0; at < N; at += M) {
        __syncthreads();
        _Pragma("unroll") for (int v = 0; v < M; ++v) parts[y][v * X + x] = a[at + v];
        _Pragma("unroll") for (int d = Y / 2; d; d >>= 1) {
            __syncthreads();
            if (y < d)
                _Pragma("unroll") for (int v = 0; v < M; ++v) parts[y][v * X + x] =
                    Op::of(parts[y][v * X + x], parts[y + d][v * X + x]);
        }
        if (y == 0) _Pragma("unroll") for (int v = 0; v < M; ++v) a[at + v] = parts[0][v * X + x];
    }
}

/* Moments of what a block's threads have summed: all to the first element of its first row of
 * threads, which has one where any row has. `count` is the thread's elements, `all` the block's. */
template <int N, class T, class C>
__device__ __forceinline__ Moments<T> block_moments(const Shifted<T> &a, C count, C all) {
    __shared__ T first;
    __syncthreads();
    if (threadIdx.x == 0) first = a.first;
    __syncthreads();
    const T element = first;
    return block_all<Both, N>(a.about(element, count)).moments(element, all);
}
/* Of N columns a thread, X lanes by Y rows of threads; the result is in row 0. */
template <int N, int X, int Y, class T, class C>
__device__ __forceinline__ void columns_of_block(const Shifted<T> *a, C count, C all, int x, int y,
                                                 Moments<T> *out) {
    __shared__ T first[X * N];
    Spread<T> spread[N];
    T element[N];
    __syncthreads();
    if (y == 0) _Pragma("unroll") for (int v = 0; v < N; ++v) first[v * X + x] = a[v].first;
    __syncthreads();
    _Pragma("unroll") for (int v = 0; v < N; ++v) element[v] = first[v * X + x];
    _Pragma("unroll") for (int v = 0; v < N; ++v) spread[v] = a[v].about(element[v], count);
    rows_of_block<Both, N, X, Y>(spread, x, y);
    if (y == 0)
        _Pragma("unroll") for (int v = 0; v < N; ++v) out[v] = spread[v].moments(element[v], all);
}
