/* Kernels on streams of collectives: what a stream is at, and strided copies. */
#ifndef STATOR_COMM_NCCL_LANES_H
#define STATOR_COMM_NCCL_LANES_H

#include <cuda_runtime.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
/* *word = value, seen by the host once all before it on the stream is done. `word` is mapped host
 * memory, as the device has it. */
cudaError_t lanes_mark(uint32_t *word, uint32_t value, cudaStream_t stream);
/* `rows` rows of `width` bytes, each `pitch` bytes behind the one before. */
cudaError_t lanes_copy(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                       size_t rows, cudaStream_t stream);
#ifdef __cplusplus
}
#endif

#endif
