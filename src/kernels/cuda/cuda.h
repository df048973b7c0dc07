/* Kernels of the CUDA device: what their files share. */
#ifndef STATOR_KERNELS_CUDA_CUDA_H
#define STATOR_KERNELS_CUDA_CUDA_H

#include "device/cuda/libraries.h"
#include "kernels/problem.h"

/* Arrays that end with NULL, one a file. */
typedef const kern_impl_t *const kern_cuda_array_t[];
extern kern_cuda_array_t kern_cuda_matmul, kern_cuda_conv, kern_cuda_attention, kern_cuda_own,
    kern_cuda_nest;

/* The library's name of a type; false where it has none. */
bool kern_cuda_type(ir_dtype_t dtype, cudaDataType_t *out_type);

#endif
