/* What dnn.c, which makes graphs, and dnn_plan.c, which plans and runs them, share. */
#ifndef STATOR_KERNELS_CUDA_DNN_GRAPH_H
#define STATOR_KERNELS_CUDA_DNN_GRAPH_H

#include "base/arena.h"
#include "base/vec.h"
#include "kernels/cuda/dnn.h"

typedef struct dnn_operand {
    cudnnBackendDescriptor_t descriptor;
    int64_t id;
    const void *address; /* NULL: virtual */
} dnn_operand_t;

struct dnn {
    const dev_cuda_dnn_t *f;
    dev_stream_t *stream;
    bool bound;                      /* else it is only planned, with a handle for this thread */
    cudnnHandle_t handle;            /* NULL: for a device that is described */
    cudnnBackendDescriptor_t device; /* described by text; NULL: the handle's */
    st_arena_t arena;
    st_status_t failed;
    ST_VEC(cudnnBackendDescriptor_t) all, operations;
    ST_VEC(dnn_operand_t) tensors;
    struct dnn_shared *shared; /* its plan */
    cudnnBackendDescriptor_t pack;
};

/* One for a device that is not here: `device` is cuDNN's own description of it. */
st_status_t dnn_create_described(const char *device, dnn_t **out_dnn) ST_WARN_UNUSED;
st_status_t dnn_fail(const dnn_t *dnn, cudnnStatus_t error, const char *what);
/* False, and the graph has failed, if `error` is one. */
bool dnn_ok(dnn_t *dnn, cudnnStatus_t error, const char *what);
/* The following do nothing once the graph has failed. Made descriptors are freed with the graph. */
cudnnBackendDescriptor_t dnn_make(dnn_t *dnn, cudnnBackendDescriptorType_t type, const char *what);
void dnn_set(dnn_t *dnn, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
             cudnnBackendAttributeType_t type, int64_t n, const void *values, const char *what);
void dnn_finalize(dnn_t *dnn, cudnnBackendDescriptor_t d, const char *what);

#endif
