/* Kernels of control flow (turns.h). */
#include "device/cuda/turns.h"

enum { THREADS = 256, MAX_BLOCKS = 4096 };

__global__ void begin(int64_t *index, int64_t first, turns_handle_t handle) {
    *index = first;
    if (handle) cudaGraphSetConditional(handle, 1);
}

__global__ void next(int64_t *index, int64_t step, int64_t n, turns_handle_t handle) {
    const int64_t i = *index + step;
    *index = i;
    if (handle) cudaGraphSetConditional(handle, 0 <= i && i < n);
}

__global__ void choose(const unsigned char *condition, turns_handle_t handle) {
    cudaGraphSetConditional(handle, *condition != 0);
}

/* Words of T; `n` of them, strides in words. */
template <typename T>
__global__ void copy(T *to, size_t to_stride, const T *from, size_t from_stride, size_t n,
                     const int64_t *index) {
    const size_t turn = (size_t)*index, step = (size_t)gridDim.x * blockDim.x;
    to += turn * to_stride;
    from += turn * from_stride;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) to[i] = from[i];
}

cudaError_t turns_begin(int64_t *index, int64_t first, turns_handle_t handle, cudaStream_t stream) {
    begin<<<1, 1, 0, stream>>>(index, first, handle);
    return cudaPeekAtLastError();
}

cudaError_t turns_next(int64_t *index, int64_t step, int64_t n, turns_handle_t handle,
                       cudaStream_t stream) {
    next<<<1, 1, 0, stream>>>(index, step, n, handle);
    return cudaPeekAtLastError();
}

cudaError_t turns_choose(const unsigned char *condition, turns_handle_t handle,
                         cudaStream_t stream) {
    choose<<<1, 1, 0, stream>>>(condition, handle);
    return cudaPeekAtLastError();
}

static unsigned blocks_of(size_t n) {
    const size_t blocks = (n + THREADS - 1) / THREADS;
    return (unsigned)(blocks > MAX_BLOCKS ? MAX_BLOCKS : blocks);
}

cudaError_t turns_copy(void *to, size_t to_stride, const void *from, size_t from_stride,
                       size_t bytes, const int64_t *index, cudaStream_t stream) {
    const size_t parts = (size_t)to | (size_t)from | to_stride | from_stride | bytes;
    if (bytes == 0) return cudaSuccess;
    if (parts % sizeof(int4) == 0) {
        const size_t width = sizeof(int4), n = bytes / width;
        copy<<<blocks_of(n), THREADS, 0, stream>>>((int4 *)to, to_stride / width, (const int4 *)from,
                                                   from_stride / width, n, index);
    } else {
        copy<<<blocks_of(bytes), THREADS, 0, stream>>>((char *)to, to_stride, (const char *)from,
                                                       from_stride, bytes, index);
    }
    return cudaPeekAtLastError();
}
