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

/* Pinned memory for large copies to the device on one stream. */
typedef struct dev_cuda_stage {
    cudaStream_t stream;
    char *memory; /* NULL until the first */
    size_t used;
    cudaEvent_t done; /* after the last of them */
} dev_cuda_stage_t;

enum { DEV_CUDA_LANDINGS = 32 };
typedef struct dev_cuda_landing {
    void *host;
    size_t at, n_bytes;
} dev_cuda_landing_t;

struct dev_stream {
    int index;   /* the device's number */
    bool varies; /* results may have other bits in another run: option deterministic */
    cudaStream_t stream;
    struct cudaDeviceProp properties;
    dev_cuda_fault_t *fault, *device_fault; /* the same memory, seen from both sides */
    /* copies.c */
    dev_cuda_stage_t stage, aside;
    cudaEvent_t taken, joined; /* between the stream and the one aside */
    cudaEvent_t idle;          /* waited for asleep */
    char *landing;             /* pinned, what small copies from the device end in … */
    size_t landed;
    uint32_t n_landings;
    dev_cuda_landing_t landings[DEV_CUDA_LANDINGS]; /* … and where they go on to */
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

/* Rows of dev_cuda, and their resources (copies.c). */
st_status_t dev_cuda_copies_open(dev_stream_t *stream);
void dev_cuda_copies_close(dev_stream_t *stream);
st_status_t dev_cuda_copy_in(dev_stream_t *stream, void *device, const void *host, size_t n_bytes);
st_status_t dev_cuda_copy_out(dev_stream_t *stream, void *host, const void *device, size_t n_bytes);
st_status_t dev_cuda_synchronize(dev_stream_t *stream);
st_status_t dev_cuda_aside_begin(dev_stream_t *stream);
st_status_t dev_cuda_aside_copy(dev_stream_t *stream, void *device, const void *host,
                                size_t n_bytes);
st_status_t dev_cuda_aside_join(dev_stream_t *stream);

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

/* Control flow (turns.c), as dev_device_t has it. */
st_status_t dev_cuda_repeat(dev_stream_t *stream, const dev_turns_t *turns, dev_branch_t body,
                            void *context);
st_status_t dev_cuda_choose(dev_stream_t *stream, const unsigned char *condition,
                            dev_branch_t bodies, void *context);
st_status_t dev_cuda_copy_turn(dev_stream_t *stream, void *to, size_t to_stride, const void *from,
                               size_t from_stride, size_t n_bytes, const int64_t *index);

/* Collectives (comm/nccl), and what tuning chose (kernels/cuda/tune.c). */
st_status_t dev_cuda_collectives(dev_stream_t *stream, struct comm *host, int64_t timeout_ms,
                                 struct comm **out_comm);
st_status_t dev_cuda_choices_give(dev_stream_t *stream, char **out_text);
st_status_t dev_cuda_choices_take(dev_stream_t *stream, const char *text);

extern const dev_device_t dev_cuda;

#endif
