/* Launches what draw.cu has; `out` is the box's memory, aligned to an element. */
#ifndef STATOR_DEVICE_CUDA_DRAW_H
#define STATOR_DEVICE_CUDA_DRAW_H

#include <cuda_runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

struct st_draw;
cudaError_t dev_cuda_launch_draw(const struct st_draw *draw, void *out, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
