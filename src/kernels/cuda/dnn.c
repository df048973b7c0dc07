/* Every descriptor is made, filled by a few setters and finalized; all of them live until the graph
 * is destroyed. The library's messages say which attribute or shape it refuses, so they are passed
 * on. */
#include "kernels/cuda/dnn_graph.h"

#include <string.h>

#include "base/memory.h"

enum { ALIGNMENT = 16, MESSAGE = 900 };

st_status_t dnn_fail(const dnn_t *dnn, cudnnStatus_t error, const char *what) {
    char message[MESSAGE] = "";
    dnn->f->cudnnGetLastErrorString(message, sizeof message);
    /* 3xxx: the library has nothing for this graph */
    return FAIL(error / 1000 == 3 ? ST_UNSUPPORTED : ST_DEVICE, "cuDNN, %s: %s: %s", what,
                dnn->f->cudnnGetErrorString(error), message);
}

bool dnn_ok(dnn_t *dnn, cudnnStatus_t error, const char *what) {
    if (dnn->failed != ST_OK) return false;
    if (error == CUDNN_STATUS_SUCCESS) return true;
    dnn->failed = dnn_fail(dnn, error, what);
    return false;
}

/* ---- descriptors ---- */

cudnnBackendDescriptor_t dnn_make(dnn_t *dnn, cudnnBackendDescriptorType_t type, const char *what) {
    cudnnBackendDescriptor_t made = NULL;
    if (dnn->failed != ST_OK ||
        !dnn_ok(dnn, dnn->f->cudnnBackendCreateDescriptor(type, &made), what))
        return NULL;
    if (ST_VEC_PUSH(&dnn->all, made) == ST_OK) return made;
    dnn->f->cudnnBackendDestroyDescriptor(made);
    dnn->failed = st_no_memory(sizeof made, "a cuDNN graph");
    return NULL;
}

void dnn_set(dnn_t *dnn, cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
             cudnnBackendAttributeType_t type, int64_t n, const void *values, const char *what) {
    if (dnn->failed == ST_OK)
        dnn_ok(dnn, dnn->f->cudnnBackendSetAttribute(descriptor, name, type, n, values), what);
}
static void set_ints(dnn_t *dnn, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                     int64_t n, const int64_t *values, const char *what) {
    dnn_set(dnn, d, name, CUDNN_TYPE_INT64, n, values, what);
}
static void set_type(dnn_t *dnn, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                     cudnnDataType_t type, const char *what) {
    dnn_set(dnn, d, name, CUDNN_TYPE_DATA_TYPE, 1, &type, what);
}
static void set_descriptor(dnn_t *dnn, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                           cudnnBackendDescriptor_t value, const char *what) {
    dnn_set(dnn, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value, what);
}
static void set_tensor(dnn_t *dnn, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                       dnn_tensor_t tensor, const char *what) {
    if (dnn->failed == ST_OK && tensor >= 0)
        set_descriptor(dnn, d, name, dnn->tensors.data[tensor].descriptor, what);
}
static void set_float(dnn_t *dnn, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                      float value, const char *what) {
    dnn_set(dnn, d, name, CUDNN_TYPE_FLOAT, 1, &value, what);
}
void dnn_finalize(dnn_t *dnn, cudnnBackendDescriptor_t d, const char *what) {
    if (dnn->failed == ST_OK) dnn_ok(dnn, dnn->f->cudnnBackendFinalize(d), what);
}
static void add_operation(dnn_t *dnn, cudnnBackendDescriptor_t d, const char *what) {
    dnn_finalize(dnn, d, what);
    if (dnn->failed == ST_OK && ST_VEC_PUSH(&dnn->operations, d) != ST_OK)
        dnn->failed = st_no_memory(sizeof d, "a cuDNN graph");
}

/* ---- life ---- */

static st_status_t create(dnn_t **out_dnn) {
    const dev_cuda_dnn_t *functions;
    TRY(dev_cuda_dnn(&functions));
    *out_dnn = st_calloc(1, sizeof **out_dnn);
    if (!*out_dnn) return st_no_memory(sizeof **out_dnn, "a cuDNN graph");
    (*out_dnn)->f = functions;
    return ST_OK;
}

st_status_t dnn_create(dev_stream_t *stream, dnn_t **out_dnn) {
    *out_dnn = NULL;
    cudnnHandle_t handle;
    TRY(dev_cuda_dnn_handle(stream, &handle));
    TRY(create(out_dnn));
    (*out_dnn)->bound = true;
    (*out_dnn)->handle = handle;
    (*out_dnn)->stream = stream;
    return ST_OK;
}

st_status_t dnn_create_unbound(dev_stream_t *stream, cudnnHandle_t handle, dnn_t **out_dnn) {
    *out_dnn = NULL;
    CUDA_TRY(cudaSetDevice(stream->index));
    TRY(create(out_dnn));
    (*out_dnn)->handle = handle;
    (*out_dnn)->stream = stream;
    return ST_OK;
}

st_status_t dnn_create_described(const char *device, dnn_t **out_dnn) {
    static const char what[] = "a device's description";
    TRY(create(out_dnn));
    dnn_t *dnn = *out_dnn;
    dnn->device = dnn_make(dnn, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, what);
    dnn_set(dnn, dnn->device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
            (int64_t)strlen(device) + 1, device, what);
    dnn_finalize(dnn, dnn->device, what);
    if (dnn->failed == ST_OK) return ST_OK;
    st_status_t status = dnn->failed;
    dnn_destroy(dnn);
    *out_dnn = NULL;
    return status;
}

void dnn_destroy(dnn_t *dnn) {
    if (!dnn) return;
    for (size_t i = dnn->all.n; i-- > 0;) dnn->f->cudnnBackendDestroyDescriptor(dnn->all.data[i]);
    ST_VEC_FREE(&dnn->all);
    ST_VEC_FREE(&dnn->operations);
    ST_VEC_FREE(&dnn->tensors);
    st_arena_clear(&dnn->arena);
    st_free(dnn);
}

bool dnn_type(ir_dtype_t dtype, cudnnDataType_t *out_type) {
    static const struct {
        ir_dtype_t dtype;
        cudnnDataType_t type;
    } types[] = {
        {IR_F32, CUDNN_DATA_FLOAT}, {IR_F16, CUDNN_DATA_HALF}, {IR_BF16, CUDNN_DATA_BFLOAT16}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (types[i].dtype != dtype) continue;
        *out_type = types[i].type;
        return true;
    }
    return false;
}

/* ---- tensors ---- */

static dnn_tensor_t add_tensor(dnn_t *dnn, cudnnDataType_t type, int32_t rank, const int64_t *dims,
                               const int64_t *strides, const void *address, bool by_value) {
    static const char what[] = "a tensor";
    cudnnBackendDescriptor_t d = dnn_make(dnn, CUDNN_BACKEND_TENSOR_DESCRIPTOR, what);
    const int64_t id = (int64_t)dnn->tensors.n + 1, alignment = ALIGNMENT;
    const bool is_virtual = !address;
    set_type(dnn, d, CUDNN_ATTR_TENSOR_DATA_TYPE, type, what);
    set_ints(dnn, d, CUDNN_ATTR_TENSOR_DIMENSIONS, rank, dims, what);
    set_ints(dnn, d, CUDNN_ATTR_TENSOR_STRIDES, rank, strides, what);
    set_ints(dnn, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, 1, &id, what);
    set_ints(dnn, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 1, &alignment, what);
    dnn_set(dnn, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual, what);
    if (by_value)
        dnn_set(dnn, d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value, what);
    dnn_finalize(dnn, d, what);
    if (dnn->failed != ST_OK) return -1;
    dnn_operand_t tensor = {d, id, address};
    if (ST_VEC_PUSH(&dnn->tensors, tensor) != ST_OK) {
        dnn->failed = st_no_memory(sizeof tensor, "a cuDNN graph");
        return -1;
    }
    return (dnn_tensor_t)dnn->tensors.n - 1;
}

dnn_tensor_t dnn_tensor(dnn_t *dnn, cudnnDataType_t type, int32_t rank, const int64_t *dims,
                        const int64_t *strides, const void *address) {
    return add_tensor(dnn, type, rank, dims, strides, address, false);
}

dnn_tensor_t dnn_virtual(dnn_t *dnn, cudnnDataType_t type, int32_t rank, const int64_t *dims,
                         const int64_t *strides) {
    return add_tensor(dnn, type, rank, dims, strides, NULL, false);
}

static dnn_tensor_t add_value(dnn_t *dnn, cudnnDataType_t type, const void *value, size_t bytes) {
    static const int64_t ones[4] = {1, 1, 1, 1};
    const void *kept = st_arena_copy(&dnn->arena, value, bytes);
    if (!kept && dnn->failed == ST_OK) dnn->failed = st_no_memory(bytes, "a cuDNN graph");
    return add_tensor(dnn, type, 4, ones, ones, kept, true);
}
dnn_tensor_t dnn_number(dnn_t *dnn, float value) {
    return add_value(dnn, CUDNN_DATA_FLOAT, &value, sizeof value);
}
dnn_tensor_t dnn_integer(dnn_t *dnn, int32_t value) {
    return add_value(dnn, CUDNN_DATA_INT32, &value, sizeof value);
}

/* ---- operations ---- */

void dnn_pointwise(dnn_t *dnn, cudnnPointwiseMode_t mode, cudnnDataType_t compute, dnn_tensor_t x,
                   dnn_tensor_t b, dnn_tensor_t t, dnn_tensor_t y, int64_t axis) {
    static const char what[] = "a pointwise operation";
    cudnnBackendDescriptor_t p = dnn_make(dnn, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, what);
    dnn_set(dnn, p, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode, what);
    set_type(dnn, p, CUDNN_ATTR_POINTWISE_MATH_PREC, compute, what);
    if (mode == CUDNN_POINTWISE_GEN_INDEX)
        set_ints(dnn, p, CUDNN_ATTR_POINTWISE_AXIS, 1, &axis, what);
    dnn_finalize(dnn, p, what);
    cudnnBackendDescriptor_t op = dnn_make(dnn, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, what);
    set_descriptor(dnn, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, p, what);
    set_tensor(dnn, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x, what);
    set_tensor(dnn, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b, what);
    set_tensor(dnn, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t, what);
    set_tensor(dnn, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y, what);
    add_operation(dnn, op, what);
}

void dnn_reduce(dnn_t *dnn, cudnnReduceTensorOp_t kind, dnn_tensor_t x, dnn_tensor_t y) {
    static const char what[] = "a reduction";
    cudnnBackendDescriptor_t r = dnn_make(dnn, CUDNN_BACKEND_REDUCTION_DESCRIPTOR, what);
    set_type(dnn, r, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT, what);
    dnn_set(dnn, r, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &kind,
            what);
    dnn_finalize(dnn, r, what);
    cudnnBackendDescriptor_t op = dnn_make(dnn, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, what);
    set_descriptor(dnn, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, r, what);
    set_tensor(dnn, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x, what);
    set_tensor(dnn, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y, what);
    add_operation(dnn, op, what);
}

void dnn_matmul(dnn_t *dnn, dnn_tensor_t a, dnn_tensor_t b, dnn_tensor_t c) {
    static const char what[] = "a product";
    cudnnBackendDescriptor_t m = dnn_make(dnn, CUDNN_BACKEND_MATMUL_DESCRIPTOR, what);
    set_type(dnn, m, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT, what);
    dnn_finalize(dnn, m, what);
    cudnnBackendDescriptor_t op = dnn_make(dnn, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, what);
    set_descriptor(dnn, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, m, what);
    set_tensor(dnn, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a, what);
    set_tensor(dnn, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b, what);
    set_tensor(dnn, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c, what);
    add_operation(dnn, op, what);
}

void dnn_reshape(dnn_t *dnn, dnn_tensor_t x, dnn_tensor_t y) {
    static const char what[] = "a reshape";
    cudnnBackendDescriptor_t op = dnn_make(dnn, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, what);
    set_tensor(dnn, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x, what);
    set_tensor(dnn, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y, what);
    add_operation(dnn, op, what);
}

typedef struct conv_names {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t conv, x, w, y, alpha, beta;
} conv_names_t;

static const conv_names_t conv_names[] = {
    [DNN_CONV] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    [DNN_CONV_GRAD_INPUT] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    [DNN_CONV_GRAD_WEIGHT] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
};

void dnn_conv(dnn_t *dnn, dnn_conv_kind_t kind, const dnn_window_t *window, dnn_tensor_t x,
              dnn_tensor_t w, dnn_tensor_t y) {
    static const char what[] = "a convolution";
    const conv_names_t *names = &conv_names[kind];
    const int64_t n = window->spatial;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    cudnnBackendDescriptor_t c = dnn_make(dnn, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, what);
    set_type(dnn, c, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT, what);
    dnn_set(dnn, c, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode, what);
    set_ints(dnn, c, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 1, &n, what);
    set_ints(dnn, c, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, n, window->low, what);
    set_ints(dnn, c, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, n, window->high, what);
    set_ints(dnn, c, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, n, window->stride, what);
    set_ints(dnn, c, CUDNN_ATTR_CONVOLUTION_DILATIONS, n, window->dilation, what);
    dnn_finalize(dnn, c, what);
    cudnnBackendDescriptor_t op = dnn_make(dnn, names->type, what);
    set_descriptor(dnn, op, names->conv, c, what);
    set_tensor(dnn, op, names->x, x, what);
    set_tensor(dnn, op, names->w, w, what);
    set_tensor(dnn, op, names->y, y, what);
    set_float(dnn, op, names->alpha, 1, what);
    set_float(dnn, op, names->beta, 0, what);
    add_operation(dnn, op, what);
}
