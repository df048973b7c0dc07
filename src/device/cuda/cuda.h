/* The CUDA device as kernels see it. Everything here is inside libstator_cuda.so. */
#ifndef STATOR_DEVICE_CUDA_CUDA_H
#define STATOR_DEVICE_CUDA_CUDA_H

#include <cuda_runtime.h>
#include <pthread.h>

#include "device/device.h"

/* Written by kernels (mapped host memory): `set` goes from 0 to 1 once a step, by the first thread
 * that finds an index out of range. */
typedef struct dev_cuda_fault {
    unsigned set;
    dev_fault_t fault;
} dev_cuda_fault_t;
/* `Fault` of kernels/cuda/own.cuh and kernels/emit/prelude.cuh. */
_Static_assert(offsetof(dev_cuda_fault_t, fault) == 8 && sizeof(dev_cuda_fault_t) == 40,
               "dev_cuda_fault_t is laid out as device code writes it");

enum { DEV_CUDA_SPARE_DNN = 16 };

struct dev_stream {
    int index; /* the device's number */
    cudaStream_t stream;
    struct cudaDeviceProp properties;
    dev_cuda_fault_t *fault, *device_fault; /* the same memory, seen from both sides */
    char *stage;        /* pinned, for large copies to the device; NULL until the first */
    cudaEvent_t staged; /* after the last of them */
    uint32_t n_marks;
    cudaEvent_t *marks; /* [n_marks] */
    void *blas, *dnn;   /* handles, made when first asked for (libraries.h) */
    void *plans; /* cuDNN plans that equal nodes share (kernels/cuda/dnn.c), released with `dnn` */
    void (*release_plans)(dev_stream_t *stream);
    /* cuDNN handles besides `dnn` for threads that plan, one at a time each; released with it */
    struct dev_cuda_spare {
        void *handle;
        bool taken;
    } spare_dnn[DEV_CUDA_SPARE_DNN];
    pthread_mutex_t mutex; /* of what several threads prepare at once: handles, plans, startup */
    dev_startup_t startup;
};

double dev_cuda_seconds(void);
/* Adds the seconds since `begin` to a field of stream->startup. */
void dev_cuda_spent(dev_stream_t *stream, double *field, double begin);

/* FAILs with the call's text and the runtime's name of the error. */
#define CUDA_TRY(call)                                                            \
    do {                                                                          \
        cudaError_t cuda_error_ = (call);                                         \
        if (cuda_error_ != cudaSuccess) return dev_cuda_fail(cuda_error_, #call); \
    } while (0)
st_status_t dev_cuda_fail(cudaError_t error, const char *call);

extern const dev_device_t dev_cuda;

#endif
