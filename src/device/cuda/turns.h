/* Kernels of control flow, launched from turns.c. All return the launch's error. */
#ifndef STATOR_DEVICE_CUDA_TURNS_H
#define STATOR_DEVICE_CUDA_TURNS_H

#include <cuda_runtime.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A loop node's handle; 0: the host counts the turns. */
typedef unsigned long long turns_handle_t;

/* *index = first; the loop of `handle` will run. */
cudaError_t turns_begin(int64_t *index, int64_t first, turns_handle_t handle, cudaStream_t stream);
/* *index += step; the loop goes on while 0 <= *index < n. */
cudaError_t turns_next(int64_t *index, int64_t step, int64_t n, turns_handle_t handle,
                       cudaStream_t stream);
/* The node of `handle` takes its first body if *condition is not 0, else its second. */
cudaError_t turns_choose(const unsigned char *condition, turns_handle_t handle,
                         cudaStream_t stream);
/* Bytes from `from` + i * from_stride to `to` + i * to_stride, i being *index. */
cudaError_t turns_copy(void *to, size_t to_stride, const void *from, size_t from_stride,
                       size_t bytes, const int64_t *index, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
