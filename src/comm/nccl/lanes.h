/* Kernels that say what a stream of collectives is at. */
#ifndef STATOR_COMM_NCCL_LANES_H
#define STATOR_COMM_NCCL_LANES_H

#include <cuda_runtime.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
/* *word = value, seen by the host once all before it on the stream is done. `word` is mapped host
 * memory, as the device has it. */
cudaError_t lanes_mark(uint32_t *word, uint32_t value, cudaStream_t stream);
#ifdef __cplusplus
}
#endif

#endif
