/* What the .cu files share: elements of any type, faults, a loop over outputs. */
#ifndef STATOR_KERNELS_CUDA_OWN_CUH
#define STATOR_KERNELS_CUDA_OWN_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/cuda/own.h"

enum {
#define DTYPE(name, text, wire, bytes, kind) OWN_##name = (wire),
#include "ir/dtypes.def"
#undef DTYPE
};

struct Fault { /* dev_cuda_fault_t of device/cuda/cuda.h */
    unsigned set, pad, node, pad2;
    long long index, position, size;
};
static_assert(sizeof(Fault) == 40, "laid out as dev_cuda_fault_t");

__device__ inline void report(const own_fault_t &f, long long index, long long position,
                              long long size) {
    Fault *fault = (Fault *)f.fault;
    if (atomicCAS(&fault->set, 0u, 1u) != 0u) return;
    fault->node = f.node;
    fault->index = index;
    fault->position = position;
    fault->size = size;
}

__device__ inline bool is_real(int dtype) {
    return dtype == OWN_F32 || dtype == OWN_F64 || dtype == OWN_F16 || dtype == OWN_BF16;
}

__device__ inline double get(const own_tensor_t &t, long long i) {
    switch (t.dtype) {
        case OWN_F32: return ((const float *)t.data)[i];
        case OWN_F64: return ((const double *)t.data)[i];
        case OWN_F16: return __half2float(((const __half *)t.data)[i]);
        case OWN_BF16: return __bfloat162float(((const __nv_bfloat16 *)t.data)[i]);
        case OWN_I8: return ((const signed char *)t.data)[i];
        case OWN_U8: case OWN_BOOL: return ((const unsigned char *)t.data)[i];
        case OWN_I32: return ((const int *)t.data)[i];
        default: return (double)((const long long *)t.data)[i];
    }
}

__device__ inline void put(const own_tensor_t &t, long long i, double x) {
    switch (t.dtype) {
        case OWN_F32: ((float *)t.data)[i] = (float)x; break;
        case OWN_F64: ((double *)t.data)[i] = x; break;
        case OWN_F16: ((__half *)t.data)[i] = __double2half(x); break;
        case OWN_BF16: ((__nv_bfloat16 *)t.data)[i] = __double2bfloat16(x); break;
        default: break;
    }
}

__device__ inline long long get_int(const own_tensor_t &t, long long i) {
    switch (t.dtype) {
        case OWN_I8: return ((const signed char *)t.data)[i];
        case OWN_U8: case OWN_BOOL: return ((const unsigned char *)t.data)[i];
        case OWN_I32: return ((const int *)t.data)[i];
        default: return ((const long long *)t.data)[i];
    }
}

__device__ inline void put_int(const own_tensor_t &t, long long i, long long x) {
    switch (t.dtype) {
        case OWN_I8: ((signed char *)t.data)[i] = (signed char)x; break;
        case OWN_U8: case OWN_BOOL: ((unsigned char *)t.data)[i] = (unsigned char)x; break;
        case OWN_I32: ((int *)t.data)[i] = (int)x; break;
        default: ((long long *)t.data)[i] = x; break;
    }
}

/* Index i within [-size, size) as 0 … size - 1; one out of range is reported and becomes 0. */
__device__ inline long long checked(const own_tensor_t &t, long long i, long long size,
                                    const own_fault_t &f) {
    long long index = get_int(t, i);
    if (index < -size || index >= size) {
        report(f, index, i, size);
        return 0;
    }
    return index < 0 ? index + size : index;
}

/* Body of a kernel: i over n, whatever the grid. */
#define OWN_FOR(i, n)                                                                       \
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < (long long)(n); \
         i += (long long)gridDim.x * blockDim.x)

enum { OWN_THREADS = 256, OWN_MAX_BLOCKS = 1 << 20 };

static inline unsigned own_blocks(long long n) {
    long long blocks = (n + OWN_THREADS - 1) / OWN_THREADS;
    return (unsigned)(blocks < 1 ? 1 : blocks > OWN_MAX_BLOCKS ? OWN_MAX_BLOCKS : blocks);
}

#define OWN_LAUNCH(kernel, n, a, stream)                                 \
    do {                                                                 \
        if ((n) <= 0) return cudaSuccess;                                \
        kernel<<<own_blocks(n), OWN_THREADS, 0, stream>>>(*(a));         \
        return cudaPeekAtLastError();                                    \
    } while (0)

#endif
