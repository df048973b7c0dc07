/* cuDNN's graphs from C: operations over tensors, a plan for them, one launch.
 *
 * A dnn_t collects operations; a failure sticks and dnn_plan returns it. Tensors are named by small
 * numbers. Addresses are known when the graph is made (a session's memory stays where it is), so that
 * a launch is one call. */
#ifndef STATOR_KERNELS_CUDA_DNN_H
#define STATOR_KERNELS_CUDA_DNN_H

#include "device/cuda/libraries.h"
#include "kernels/kernel.h"

typedef struct dnn dnn_t;
typedef int32_t dnn_tensor_t; /* -1: none */

st_status_t dnn_create(dev_stream_t *stream, dnn_t **out_dnn) ST_WARN_UNUSED;
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

/* What tells a node's plan from others': types, attributes, workspace. */
uint64_t dnn_key(const kern_problem_t *problem, size_t workspace_bytes);
/* Takes the first engine that the library proposes whose results have the same bits every run and
 * that needs no more than `workspace_bytes`; or the plan that a node of the same key on the same
 * stream got, whose tensors were added in the same order. `exact`: operands are f32 and are not to be
 * rounded to tf32. */
st_status_t dnn_plan(dnn_t *dnn, uint64_t key, bool exact, void *workspace,
                     size_t workspace_bytes) ST_WARN_UNUSED;
st_status_t dnn_launch(const dnn_t *dnn) ST_WARN_UNUSED;

#endif
