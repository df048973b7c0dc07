/* Vendor libraries, opened when the first kernel wants them. Each is a table of typed functions; a
 * library that is missing or too old is an error that names it and where it was looked for, and
 * costs only the kernels that need it. */
#ifndef STATOR_DEVICE_CUDA_LIBRARIES_H
#define STATOR_DEVICE_CUDA_LIBRARIES_H

#include <cublasLt.h>
#include <cudnn.h>
#include <nccl.h>
#include <nvrtc.h>

#include "device/cuda/cuda.h"

/* clang-format off */
/* cuBLASLt 13 */
#define CUDA_BLAS_FUNCTIONS(X) \
    X(cublasLtCreate) X(cublasLtDestroy) X(cublasLtGetVersion) X(cublasLtGetStatusString) \
    X(cublasLtMatmul) X(cublasLtMatmulDescCreate) X(cublasLtMatmulDescDestroy) \
    X(cublasLtMatmulDescSetAttribute) X(cublasLtMatrixLayoutCreate) \
    X(cublasLtMatrixLayoutDestroy) X(cublasLtMatrixLayoutSetAttribute) \
    X(cublasLtMatmulPreferenceCreate) X(cublasLtMatmulPreferenceDestroy) \
    X(cublasLtMatmulPreferenceSetAttribute) X(cublasLtMatmulAlgoGetHeuristic) \
    X(cublasLtMatmulAlgoCheck)
/* cuDNN 9.16 or later (earlier ones have wrong attention) */
#define CUDA_DNN_FUNCTIONS(X) \
    X(cudnnCreate) X(cudnnDestroy) X(cudnnSetStream) X(cudnnGetVersion) \
    X(cudnnGetErrorString) X(cudnnGetLastErrorString) X(cudnnBackendCreateDescriptor) \
    X(cudnnBackendDestroyDescriptor) X(cudnnBackendSetAttribute) \
    X(cudnnBackendGetAttribute) X(cudnnBackendFinalize) X(cudnnBackendExecute)
/* NVRTC 13 */
#define CUDA_RTC_FUNCTIONS(X) \
    X(nvrtcVersion) X(nvrtcGetErrorString) X(nvrtcCreateProgram) X(nvrtcDestroyProgram) \
    X(nvrtcCompileProgram) X(nvrtcGetProgramLogSize) X(nvrtcGetProgramLog) \
    X(nvrtcGetCUBINSize) X(nvrtcGetCUBIN)
/* NCCL 2.27 or a later 2 */
#define CUDA_NCCL_FUNCTIONS(X) \
    X(ncclGetVersion) X(ncclGetErrorString) X(ncclGetLastError) X(ncclGetUniqueId) \
    X(ncclCommInitRankConfig) X(ncclCommAbort) X(ncclCommGetAsyncError) X(ncclGroupStart) \
    X(ncclGroupEnd) X(ncclAllReduce) X(ncclAllGather) X(ncclReduceScatter) X(ncclBroadcast) \
    X(ncclReduce) X(ncclSend) X(ncclRecv)
/* clang-format on */

#define CUDA_MEMBER(name) __typeof__(name) *name;
typedef struct dev_cuda_blas {
    CUDA_BLAS_FUNCTIONS(CUDA_MEMBER)
} dev_cuda_blas_t;
typedef struct dev_cuda_dnn {
    CUDA_DNN_FUNCTIONS(CUDA_MEMBER)
} dev_cuda_dnn_t;
typedef struct dev_cuda_rtc {
    CUDA_RTC_FUNCTIONS(CUDA_MEMBER)
} dev_cuda_rtc_t;
typedef struct dev_cuda_nccl {
    CUDA_NCCL_FUNCTIONS(CUDA_MEMBER)
} dev_cuda_nccl_t;
#undef CUDA_MEMBER

st_status_t dev_cuda_blas(const dev_cuda_blas_t **out_functions) ST_WARN_UNUSED;
st_status_t dev_cuda_dnn(const dev_cuda_dnn_t **out_functions) ST_WARN_UNUSED;
st_status_t dev_cuda_rtc(const dev_cuda_rtc_t **out_functions) ST_WARN_UNUSED;
st_status_t dev_cuda_nccl(const dev_cuda_nccl_t **out_functions) ST_WARN_UNUSED;

/* Handles of a stream, made at the first call. */
st_status_t dev_cuda_blas_handle(dev_stream_t *stream, cublasLtHandle_t *out_handle) ST_WARN_UNUSED;
st_status_t dev_cuda_dnn_handle(dev_stream_t *stream, cudnnHandle_t *out_handle) ST_WARN_UNUSED;
/* The same while other threads prepare other things: at once if one of them is at it, and a failure
 * is left to the call that needs the handle. */
void dev_cuda_blas_ahead(dev_stream_t *stream);
void dev_cuda_dnn_ahead(dev_stream_t *stream);
/* A handle of cuDNN's for the calling thread alone, until it is given back; it keeps living as long
 * as the stream, whose work its launches are. NULL in *out_handle: all are taken. */
st_status_t dev_cuda_dnn_take(dev_stream_t *stream, cudnnHandle_t *out_handle) ST_WARN_UNUSED;
void dev_cuda_dnn_give(dev_stream_t *stream, cudnnHandle_t handle);
void dev_cuda_libraries_release(dev_stream_t *stream);

#endif
