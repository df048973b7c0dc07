/* cuDNN's graphs from C: operations over tensors, a plan for them, one launch.
 *
 * A dnn_t collects operations; a failure sticks and dnn_plan returns it. Tensors are named by small
 * numbers. Addresses are known when the graph is made (a session's memory stays where it is), so
 * that a launch is one call. */
#ifndef STATOR_KERNELS_CUDA_DNN_H
#define STATOR_KERNELS_CUDA_DNN_H

#include "device/cuda/libraries.h"
#include "kernels/kernel.h"

typedef struct dnn dnn_t;
typedef int32_t dnn_tensor_t; /* -1: none */

st_status_t dnn_create(dev_stream_t *stream, dnn_t **out_dnn) ST_WARN_UNUSED;
/* One that is only planned, with a handle of the calling thread, for others with the same key:
 * addresses of its tensors count as there or not. */
st_status_t dnn_create_unbound(dev_stream_t *stream, cudnnHandle_t handle,
                               dnn_t **out_dnn) ST_WARN_UNUSED;
void dnn_destroy(dnn_t *dnn); /* NULL is fine */

bool dnn_type(ir_dtype_t dtype, cudnnDataType_t *out_type);

/* In device memory at `address`. */
dnn_tensor_t dnn_tensor(dnn_t *dnn, cudnnDataType_t type, int32_t rank, const int64_t *dims,
                        const int64_t *strides, const void *address);
/* Inside the graph only. */
dnn_tensor_t dnn_virtual(dnn_t *dnn, cudnnDataType_t type, int32_t rank, const int64_t *dims,
                         const int64_t *strides);
/* A number that is read when the graph is launched, and frozen in a recorded step. */
dnn_tensor_t dnn_number(dnn_t *dnn, float value);
dnn_tensor_t dnn_integer(dnn_t *dnn, int32_t value);

/* y = mode(x, b, t); b and t -1 where the mode has none. `axis` for GEN_INDEX. */
void dnn_pointwise(dnn_t *dnn, cudnnPointwiseMode_t mode, cudnnDataType_t compute, dnn_tensor_t x,
                   dnn_tensor_t b, dnn_tensor_t t, dnn_tensor_t y, int64_t axis);
void dnn_reduce(dnn_t *dnn, cudnnReduceTensorOp_t op, dnn_tensor_t x, dnn_tensor_t y);
void dnn_matmul(dnn_t *dnn, dnn_tensor_t a, dnn_tensor_t b, dnn_tensor_t c);
void dnn_reshape(dnn_t *dnn, dnn_tensor_t x, dnn_tensor_t y);

typedef enum dnn_conv_kind {
    DNN_CONV = 0,
    DNN_CONV_GRAD_INPUT,
    DNN_CONV_GRAD_WEIGHT
} dnn_conv_kind_t;
typedef struct dnn_window {
    int32_t spatial;
    int64_t stride[3], low[3], high[3], dilation[3];
} dnn_window_t;
/* y = conv(x, w), or the gradient of one of them from the others. f32 sums. */
void dnn_conv(dnn_t *dnn, dnn_conv_kind_t kind, const dnn_window_t *window, dnn_tensor_t x,
              dnn_tensor_t w, dnn_tensor_t y);

/* Plans the graph: the engine on record (tune.h), else the first that the library proposes, of
 * those whose results have the same bits every run and that need no more than `workspace_bytes`.
 * All nodes of one key, made by tune_key of their problems, share a plan on their stream, so their
 * tensors are added in the same order. Plans that took long are kept on disk. `exact`: operands are
 * f32 and are not to be rounded to tf32. */
typedef struct dnn_wish {
    uint64_t key;
    bool exact;
    size_t workspace_bytes;
    bool varies; /* bits may differ from run to run: option deterministic */
} dnn_wish_t;
bool dnn_varies(const dnn_t *dnn);
dnn_wish_t dnn_wish(const dnn_t *dnn, const kern_problem_t *problem, bool exact,
                    size_t workspace_bytes);
st_status_t dnn_plan(dnn_t *dnn, const dnn_wish_t *wish, void *workspace) ST_WARN_UNUSED;
/* Measures the engines (tune.h) once for all nodes of the plan. The next launch takes the
 * choice. */
st_status_t dnn_tune(dnn_t *dnn, const kern_noise_t *noise) ST_WARN_UNUSED;
st_status_t dnn_launch(const dnn_t *dnn) ST_WARN_UNUSED;

/* kern_impl_t's bind, warm, check and release, from the function that adds a call's operations and
 plans them. */
typedef st_status_t (*dnn_build_t)(const kern_call_t *call, dnn_t *dnn);
st_status_t dnn_bind(kern_call_t *call, dnn_build_t build) ST_WARN_UNUSED;
st_status_t dnn_warm(const kern_problem_t *problem, dev_stream_t *stream, size_t workspace_bytes,
                     dnn_build_t build) ST_WARN_UNUSED;
st_status_t dnn_check(const kern_problem_t *problem, const char *device, size_t workspace_bytes,
                      dnn_build_t build) ST_WARN_UNUSED;
void dnn_release(void *prepared);

#endif
