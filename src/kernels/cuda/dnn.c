/* Every descriptor is made, filled by a few setters and finalized; all of them live until the graph is
 * destroyed. The library's messages say which attribute or shape it refuses, so they are passed on. */
#include "kernels/cuda/dnn.h"

#include <string.h>

#include "base/arena.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/vec.h"
#include "ir/structure.h"

enum { ALIGNMENT = 16, MAX_CONFIGS = 64, MAX_NOTES = 32, MESSAGE = 900 };

typedef struct tensor {
    cudnnBackendDescriptor_t descriptor;
    int64_t id;
    const void *address; /* NULL: virtual */
} tensor_t;

/* A plan that all equal nodes of a stream use: it knows tensors by number only, so that each node
 * brings its own addresses. Building one takes up to a second where code is made at run time. */
typedef struct shared_plan {
    struct shared_plan *next;
    const dev_cuda_dnn_t *f;
    uint64_t key;
    cudnnBackendDescriptor_t plan;
    ST_VEC(cudnnBackendDescriptor_t) all; /* what it was made of */
} shared_plan_t;

struct dnn {
    const dev_cuda_dnn_t *f;
    dev_stream_t *stream;
    cudnnHandle_t handle;
    st_arena_t arena;
    st_status_t failed;
    bool exact;
    ST_VEC(cudnnBackendDescriptor_t) all, operations;
    ST_VEC(tensor_t) tensors;
    cudnnBackendDescriptor_t plan, pack;
};

static st_status_t dnn_fail(const dnn_t *dnn, cudnnStatus_t error, const char *what) {
    char message[MESSAGE] = "";
    dnn->f->cudnnGetLastErrorString(message, sizeof message);
    /* 3xxx: the library has nothing for this graph */
    return FAIL(error / 1000 == 3 ? ST_UNSUPPORTED : ST_DEVICE, "cuDNN, %s: %s: %s", what,
                dnn->f->cudnnGetErrorString(error), message);
}

static bool ok(dnn_t *dnn, cudnnStatus_t error, const char *what) {
    if (dnn->failed != ST_OK) return false;
    if (error == CUDNN_STATUS_SUCCESS) return true;
    dnn->failed = dnn_fail(dnn, error, what);
    return false;
}

/* ---- descriptors ---- */

static cudnnBackendDescriptor_t make(dnn_t *dnn, cudnnBackendDescriptorType_t type,
                                     const char *what) {
    cudnnBackendDescriptor_t made = NULL;
    if (dnn->failed != ST_OK || !ok(dnn, dnn->f->cudnnBackendCreateDescriptor(type, &made), what))
        return NULL;
    if (ST_VEC_PUSH(&dnn->all, made) == ST_OK) return made;
    dnn->f->cudnnBackendDestroyDescriptor(made);
    dnn->failed = st_no_memory(sizeof made, "a cuDNN graph");
    return NULL;
}

static void set(dnn_t *dnn, cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t n, const void *values, const char *what) {
    if (dnn->failed == ST_OK)
        ok(dnn, dnn->f->cudnnBackendSetAttribute(descriptor, name, type, n, values), what);
}
static void set_ints(dnn_t *dnn, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                     int64_t n, const int64_t *values, const char *what) {
    set(dnn, d, name, CUDNN_TYPE_INT64, n, values, what);
}
static void set_type(dnn_t *dnn, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                     cudnnDataType_t type, const char *what) {
    set(dnn, d, name, CUDNN_TYPE_DATA_TYPE, 1, &type, what);
}
static void set_descriptor(dnn_t *dnn, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                           cudnnBackendDescriptor_t value, const char *what) {
    set(dnn, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value, what);
}
static void set_tensor(dnn_t *dnn, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                       dnn_tensor_t tensor, const char *what) {
    if (dnn->failed == ST_OK && tensor >= 0)
        set_descriptor(dnn, d, name, dnn->tensors.data[tensor].descriptor, what);
}
static void set_float(dnn_t *dnn, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                      float value, const char *what) {
    set(dnn, d, name, CUDNN_TYPE_FLOAT, 1, &value, what);
}
static void finalize(dnn_t *dnn, cudnnBackendDescriptor_t d, const char *what) {
    if (dnn->failed == ST_OK) ok(dnn, dnn->f->cudnnBackendFinalize(d), what);
}
static void add_operation(dnn_t *dnn, cudnnBackendDescriptor_t d, const char *what) {
    finalize(dnn, d, what);
    if (dnn->failed == ST_OK && ST_VEC_PUSH(&dnn->operations, d) != ST_OK)
        dnn->failed = st_no_memory(sizeof d, "a cuDNN graph");
}

/* ---- life ---- */

st_status_t dnn_create(dev_stream_t *stream, dnn_t **out_dnn) {
    *out_dnn = NULL;
    const dev_cuda_dnn_t *functions;
    cudnnHandle_t handle;
    TRY(dev_cuda_dnn(&functions));
    TRY(dev_cuda_dnn_handle(stream, &handle));
    dnn_t *dnn = st_calloc(1, sizeof *dnn);
    if (!dnn) return st_no_memory(sizeof *dnn, "a cuDNN graph");
    dnn->f = functions;
    dnn->handle = handle;
    dnn->stream = stream;
    *out_dnn = dnn;
    return ST_OK;
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
    cudnnBackendDescriptor_t d = make(dnn, CUDNN_BACKEND_TENSOR_DESCRIPTOR, what);
    const int64_t id = (int64_t)dnn->tensors.n + 1, alignment = ALIGNMENT;
    const bool is_virtual = !address;
    set_type(dnn, d, CUDNN_ATTR_TENSOR_DATA_TYPE, type, what);
    set_ints(dnn, d, CUDNN_ATTR_TENSOR_DIMENSIONS, rank, dims, what);
    set_ints(dnn, d, CUDNN_ATTR_TENSOR_STRIDES, rank, strides, what);
    set_ints(dnn, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, 1, &id, what);
    set_ints(dnn, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 1, &alignment, what);
    set(dnn, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual, what);
    if (by_value)
        set(dnn, d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value, what);
    finalize(dnn, d, what);
    if (dnn->failed != ST_OK) return -1;
    tensor_t tensor = {d, id, address};
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

dnn_tensor_t dnn_number(dnn_t *dnn, float value) {
    static const int64_t ones[4] = {1, 1, 1, 1};
    float *kept = st_arena_copy(&dnn->arena, &value, sizeof value);
    if (!kept && dnn->failed == ST_OK) dnn->failed = st_no_memory(sizeof value, "a cuDNN graph");
    return add_tensor(dnn, CUDNN_DATA_FLOAT, 4, ones, ones, kept, true);
}

/* ---- operations ---- */

void dnn_pointwise(dnn_t *dnn, cudnnPointwiseMode_t mode, cudnnDataType_t compute, dnn_tensor_t x,
                   dnn_tensor_t b, dnn_tensor_t t, dnn_tensor_t y, int64_t axis) {
    static const char what[] = "a pointwise operation";
    cudnnBackendDescriptor_t p = make(dnn, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, what);
    set(dnn, p, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode, what);
    set_type(dnn, p, CUDNN_ATTR_POINTWISE_MATH_PREC, compute, what);
    if (mode == CUDNN_POINTWISE_GEN_INDEX)
        set_ints(dnn, p, CUDNN_ATTR_POINTWISE_AXIS, 1, &axis, what);
    finalize(dnn, p, what);
    cudnnBackendDescriptor_t op = make(dnn, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, what);
    set_descriptor(dnn, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, p, what);
    set_tensor(dnn, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x, what);
    set_tensor(dnn, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b, what);
    set_tensor(dnn, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t, what);
    set_tensor(dnn, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y, what);
    add_operation(dnn, op, what);
}

void dnn_reduce(dnn_t *dnn, cudnnReduceTensorOp_t kind, dnn_tensor_t x, dnn_tensor_t y) {
    static const char what[] = "a reduction";
    cudnnBackendDescriptor_t r = make(dnn, CUDNN_BACKEND_REDUCTION_DESCRIPTOR, what);
    set_type(dnn, r, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT, what);
    set(dnn, r, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &kind, what);
    finalize(dnn, r, what);
    cudnnBackendDescriptor_t op = make(dnn, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, what);
    set_descriptor(dnn, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, r, what);
    set_tensor(dnn, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x, what);
    set_tensor(dnn, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y, what);
    add_operation(dnn, op, what);
}

void dnn_matmul(dnn_t *dnn, dnn_tensor_t a, dnn_tensor_t b, dnn_tensor_t c) {
    static const char what[] = "a product";
    cudnnBackendDescriptor_t m = make(dnn, CUDNN_BACKEND_MATMUL_DESCRIPTOR, what);
    set_type(dnn, m, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT, what);
    finalize(dnn, m, what);
    cudnnBackendDescriptor_t op = make(dnn, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, what);
    set_descriptor(dnn, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, m, what);
    set_tensor(dnn, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a, what);
    set_tensor(dnn, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b, what);
    set_tensor(dnn, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c, what);
    add_operation(dnn, op, what);
}

void dnn_reshape(dnn_t *dnn, dnn_tensor_t x, dnn_tensor_t y) {
    static const char what[] = "a reshape";
    cudnnBackendDescriptor_t op = make(dnn, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, what);
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
    cudnnBackendDescriptor_t c = make(dnn, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, what);
    set_type(dnn, c, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT, what);
    set(dnn, c, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode, what);
    set_ints(dnn, c, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 1, &n, what);
    set_ints(dnn, c, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, n, window->low, what);
    set_ints(dnn, c, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, n, window->high, what);
    set_ints(dnn, c, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, n, window->stride, what);
    set_ints(dnn, c, CUDNN_ATTR_CONVOLUTION_DILATIONS, n, window->dilation, what);
    finalize(dnn, c, what);
    cudnnBackendDescriptor_t op = make(dnn, names->type, what);
    set_descriptor(dnn, op, names->conv, c, what);
    set_tensor(dnn, op, names->x, x, what);
    set_tensor(dnn, op, names->w, w, what);
    set_tensor(dnn, op, names->y, y, what);
    set_float(dnn, op, names->alpha, 1, what);
    set_float(dnn, op, names->beta, 0, what);
    add_operation(dnn, op, what);
}

/* ---- plans ---- */

/* Same bits every run, and f32 kept. */
static bool notes_allow(dnn_t *dnn, cudnnBackendDescriptor_t config) {
    cudnnBackendDescriptor_t engine = make(dnn, CUDNN_BACKEND_ENGINE_DESCRIPTOR, "an engine");
    cudnnBackendNumericalNote_t notes[MAX_NOTES];
    int64_t n = 0;
    if (!engine ||
        dnn->f->cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                         CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n,
                                         &engine) != CUDNN_STATUS_SUCCESS ||
        dnn->f->cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                         CUDNN_TYPE_NUMERICAL_NOTE, MAX_NOTES, &n,
                                         notes) != CUDNN_STATUS_SUCCESS)
        return false;
    for (int64_t i = 0; i < n; i++)
        if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC ||
            (dnn->exact && (notes[i] == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS ||
                            notes[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE)))
            return false;
    return true;
}

static bool try_config(dnn_t *dnn, cudnnBackendDescriptor_t config, size_t workspace_bytes) {
    static const char what[] = "a plan";
    if (!notes_allow(dnn, config)) return false;
    cudnnBackendDescriptor_t plan = make(dnn, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, what);
    int64_t needed = 0, n = 0;
    set(dnn, plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &dnn->handle, what);
    set_descriptor(dnn, plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config, what);
    if (dnn->failed != ST_OK || dnn->f->cudnnBackendFinalize(plan) != CUDNN_STATUS_SUCCESS)
        return false;
    if (dnn->f->cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                         CUDNN_TYPE_INT64, 1, &n,
                                         &needed) != CUDNN_STATUS_SUCCESS ||
        needed < 0 || (size_t)needed > workspace_bytes)
        return false;
    dnn->plan = plan;
    return true;
}

static st_status_t choose_plan(dnn_t *dnn, cudnnBackendDescriptor_t graph,
                               cudnnBackendHeurMode_t mode, size_t workspace_bytes) {
    static const char what[] = "its list of engines";
    cudnnBackendDescriptor_t heuristics = make(dnn, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, what);
    cudnnBackendDescriptor_t configs[MAX_CONFIGS];
    int64_t n = 0;
    set_descriptor(dnn, heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph, what);
    set(dnn, heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode, what);
    finalize(dnn, heuristics, what);
    for (int i = 0; i < MAX_CONFIGS; i++)
        configs[i] = make(dnn, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, what);
    if (dnn->failed != ST_OK) return dnn->failed;
    cudnnStatus_t error =
        dnn->f->cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                         CUDNN_TYPE_BACKEND_DESCRIPTOR, MAX_CONFIGS, &n, configs);
    if (error != CUDNN_STATUS_SUCCESS) return dnn_fail(dnn, error, what);
    for (int64_t i = 0; i < n && i < MAX_CONFIGS; i++)
        if (try_config(dnn, configs[i], workspace_bytes)) return ST_OK;
    return ST_OK;
}

static st_status_t make_pack(dnn_t *dnn, void *workspace) {
    static const char what[] = "its arguments";
    size_t n = 0;
    int64_t *ids = st_arena_array(&dnn->arena, dnn->tensors.n, sizeof *ids);
    const void **addresses = st_arena_array(&dnn->arena, dnn->tensors.n, sizeof *addresses);
    if (!ids || !addresses) return st_no_memory(dnn->tensors.n * sizeof *ids, "a cuDNN graph");
    for (size_t i = 0; i < dnn->tensors.n; i++) {
        if (!dnn->tensors.data[i].address) continue;
        ids[n] = dnn->tensors.data[i].id;
        addresses[n++] = dnn->tensors.data[i].address;
    }
    dnn->pack = make(dnn, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, what);
    set_ints(dnn, dnn->pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, (int64_t)n, ids, what);
    set(dnn, dnn->pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, (int64_t)n,
        addresses, what);
    set(dnn, dnn->pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace,
        what);
    finalize(dnn, dnn->pack, what);
    return dnn->failed;
}

/* ---- sharing ---- */

static void release_plans(dev_stream_t *stream) {
    shared_plan_t *next;
    for (shared_plan_t *plan = stream->plans; plan; plan = next) {
        next = plan->next;
        for (size_t i = plan->all.n; i-- > 0;)
            plan->f->cudnnBackendDestroyDescriptor(plan->all.data[i]);
        ST_VEC_FREE(&plan->all);
        st_free(plan);
    }
    stream->plans = NULL;
}

static bool find_plan(dnn_t *dnn, uint64_t key) {
    for (const shared_plan_t *plan = dnn->stream->plans; plan; plan = plan->next) {
        if (plan->key != key) continue;
        dnn->plan = plan->plan;
        return true;
    }
    return false;
}

/* Gives the stream what the plan is made of. */
static st_status_t keep_plan(dnn_t *dnn, uint64_t key) {
    shared_plan_t *plan = st_calloc(1, sizeof *plan);
    if (!plan) return st_no_memory(sizeof *plan, "a cuDNN plan");
    plan->next = dnn->stream->plans;
    plan->f = dnn->f;
    plan->key = key;
    plan->plan = dnn->plan;
    plan->all.data = dnn->all.data;
    plan->all.n = dnn->all.n;
    plan->all.cap = dnn->all.cap;
    dnn->all.data = NULL;
    dnn->all.n = dnn->all.cap = 0;
    dnn->stream->plans = plan;
    dnn->stream->release_plans = release_plans;
    return ST_OK;
}

static st_status_t make_plan(dnn_t *dnn, bool exact, size_t workspace_bytes) {
    static const char what[] = "the graph";
    cudnnBackendDescriptor_t graph = make(dnn, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, what);
    dnn->exact = exact;
    set(dnn, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
        (int64_t)dnn->operations.n, dnn->operations.data, what);
    set(dnn, graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &dnn->handle, what);
    finalize(dnn, graph, what);
    if (dnn->failed != ST_OK) return dnn->failed;
    TRY(choose_plan(dnn, graph, CUDNN_HEUR_MODE_A, workspace_bytes));
    if (!dnn->plan) TRY(choose_plan(dnn, graph, CUDNN_HEUR_MODE_FALLBACK, workspace_bytes));
    if (!dnn->plan)
        return FAIL(ST_UNSUPPORTED,
                    "cuDNN has no engine for this within %zu bytes of workspace that "
                    "gives the same bits every run%s",
                    workspace_bytes, exact ? " and keeps f32" : "");
    return ST_OK;
}

uint64_t dnn_key(const kern_problem_t *problem, size_t workspace_bytes) {
    uint64_t key = ir_attrs_hash(problem->op, problem->attrs, (uint64_t)workspace_bytes);
    key = st_hash64(problem->in, problem->n_in * sizeof *problem->in, key);
    return st_hash64(problem->out, problem->n_out * sizeof *problem->out, key);
}

st_status_t dnn_plan(dnn_t *dnn, uint64_t key, bool exact, void *workspace,
                     size_t workspace_bytes) {
    if (dnn->failed != ST_OK) return dnn->failed;
    if (!find_plan(dnn, key)) {
        TRY(make_plan(dnn, exact, workspace_bytes));
        TRY(keep_plan(dnn, key));
    }
    return make_pack(dnn, workspace);
}

st_status_t dnn_launch(const dnn_t *dnn) {
    cudnnStatus_t error = dnn->f->cudnnBackendExecute(dnn->handle, dnn->plan, dnn->pack);
    return error == CUDNN_STATUS_SUCCESS ? ST_OK : dnn_fail(dnn, error, "a launch");
}
