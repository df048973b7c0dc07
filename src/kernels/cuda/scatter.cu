/* scatter_add: the kernels of scatter.cuh for the types of elements and indices (own.h). */
#include "kernels/cuda/own.cuh"
#include "kernels/cuda/scatter.cuh"

namespace {

struct of_f32 {
    typedef float type, sum;
    static __device__ float real(float x) { return x; }
    static __device__ float rounded(float x) { return x; }
};
struct of_f64 {
    typedef double type, sum;
    static __device__ double real(double x) { return x; }
    static __device__ double rounded(double x) { return x; }
};
struct of_f16 {
    typedef __half type;
    typedef float sum;
    static __device__ float real(__half x) { return __half2float(x); }
    static __device__ __half rounded(float x) { return __float2half_rn(x); }
};
struct of_bf16 {
    typedef __nv_bfloat16 type;
    typedef float sum;
    static __device__ float real(__nv_bfloat16 x) { return __bfloat162float(x); }
    static __device__ __nv_bfloat16 rounded(float x) { return __float2bfloat16_rn(x); }
};

struct checked_keys {
    own_tensor_t index;
    own_fault_t fault;
    long long rows;
    __device__ long long operator()(long long i) const { return checked(index, i, rows, fault); }
};

unsigned threads_for(long long vectors) {
    return vectors >= KERN_SCATTER_THREADS ? KERN_SCATTER_THREADS
                                           : (unsigned)((vectors + 31) / 32 * 32);
}

template <class E, int N>
cudaError_t sums(scatter_args args, cudaStream_t stream) {
    const kern_scatter_t &plan = args.plan;
    const long long vectors = plan.inner / N, rows = plan.outer * plan.rows;
    args.lanes = vectors < KERN_SCATTER_THREADS ? (int)vectors : KERN_SCATTER_THREADS;
    const long long a_block = KERN_SCATTER_THREADS / args.lanes;
    const long long blocks = (rows + a_block - 1) / a_block, parts = plan.n_parts * plan.outer;
    if (blocks > INT32_MAX || parts > INT32_MAX) return cudaErrorInvalidConfiguration;
    scatter_bound<E, N><<<(unsigned)parts, threads_for(vectors), 0, stream>>>(args);
    scatter_add_rows<E, N><<<(unsigned)blocks, KERN_SCATTER_THREADS, 0, stream>>>(args);
    return cudaPeekAtLastError();
}

/* 16 bytes a thread where rows are a multiple of them. */
template <class E>
cudaError_t sums_of(const scatter_args &args, cudaStream_t stream) {
    enum { N = 16 / sizeof(typename E::type) };
    const bool aligned = ((uintptr_t)args.updates | (uintptr_t)args.out) % 16 == 0;
    return aligned && args.plan.inner % N == 0 ? sums<E, N>(args, stream) : sums<E, 1>(args, stream);
}

}  // namespace

cudaError_t own_scatter_add(const own_scatter_t *a, cudaStream_t stream) {
    const kern_scatter_t &plan = a->plan;
    const long long elements = plan.outer * plan.rows * plan.inner;
    const size_t width = a->out.dtype == OWN_F64 ? 8 : a->out.dtype == OWN_F32 ? 4 : 2;
    if (elements <= 0) return cudaSuccess;
    if (plan.n == 0) return cudaMemsetAsync(a->out.data, 0, (size_t)elements * width, stream);
    const scatter_args args = {plan, a->updates.data, a->out.data, (char *)a->workspace, 1};
    const checked_keys keys = {a->index, a->fault, plan.rows};
    const unsigned blocks = (unsigned)plan.n_blocks;
    scatter_count<<<blocks, KERN_SCATTER_THREADS, 0, stream>>>(args, keys);
    for (int pass = 0; pass < plan.n_passes; pass++)
        scatter_place<<<blocks, KERN_SCATTER_THREADS, 0, stream>>>(args, pass);
    switch (a->out.dtype) {
        case OWN_F32: return sums_of<of_f32>(args, stream);
        case OWN_F64: return sums_of<of_f64>(args, stream);
        case OWN_F16: return sums_of<of_f16>(args, stream);
        case OWN_BF16: return sums_of<of_bf16>(args, stream);
        default: return cudaErrorInvalidValue;
    }
}
