/* Matrix products by cuBLASLt.
 *
 * The library counts in columns: a row-major C[M,N] = op(A) op(B) is its C'[N,M] = op(B)' op(A)',
 * so the operands change places and nothing is transposed.
 *
 *   ours                         the library's first operand     its second
 *   b[K,N]                       N × K, not transposed, ld N
 *   b[N,K], transpose_b          K × N, transposed,     ld K
 *   a[M,K]                                                       K × M, not transposed, ld K
 *   a[K,M], transpose_a                                          M × K, transposed,     ld M
 *
 * Leading dims: the last goes to the library as a strided batch, outer ones are a loop of calls.
 * The algorithm is the one on record (tune.h), else the library's first choice within the planned
 * workspace: for one version, device and shape always the same. All that are considered sum in a
 * fixed order. Sums are f32 for f32, bf16 and f16, f64 for f64; f32 operands are not rounded to
 * tf32. A third operand is the library's C, of which it adds 1. */
#include <string.h>

#include "base/hash.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/tune.h"
#include "kernels/gpu_rules.h"
#include "kernels/product.h"

enum { WORKSPACE_ALIGNMENT = 256, OPERAND_ALIGNMENT = 64 /* of planned places */ };
_Static_assert(sizeof(cublasLtMatmulAlgo_t) == RECORD_CHOICE_BYTES, "an algorithm is a choice");

typedef struct product {
    const dev_cuda_blas_t *blas;
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t b, a, c; /* in the library's order */
    cublasLtMatmulAlgo_t algorithm;
    bool recorded; /* the algorithm is that of the tuning record, and counted */
    uint64_t key;
    kern_product_t shape;
    void *workspace; /* aligned as the library wants it */
    size_t workspace_bytes;
    int64_t calls;
} product_t;

static void product_release(void *prepared) {
    product_t *p = prepared;
    if (p->a) p->blas->cublasLtMatrixLayoutDestroy(p->a);
    if (p->b) p->blas->cublasLtMatrixLayoutDestroy(p->b);
    if (p->c) p->blas->cublasLtMatrixLayoutDestroy(p->c);
    if (p->desc) p->blas->cublasLtMatmulDescDestroy(p->desc);
    st_free(p);
}

#define BLAS_TRY(call)                                                             \
    do {                                                                           \
        cublasStatus_t blas_error_ = (call);                                       \
        if (blas_error_ != CUBLAS_STATUS_SUCCESS)                                  \
            return FAIL(ST_DEVICE, "%.*s: %s", (int)strcspn(#call, "(\n "), #call, \
                        p->blas->cublasLtGetStatusString(blas_error_));            \
    } while (0)

static st_status_t make_layout(product_t *p, cudaDataType_t type, int64_t rows, int64_t columns,
                               int64_t batches, int64_t stride, cublasLtMatrixLayout_t *out) {
    int32_t count = (int32_t)batches;
    BLAS_TRY(
        p->blas->cublasLtMatrixLayoutCreate(out, type, (uint64_t)rows, (uint64_t)columns, rows));
    if (batches == 1) return ST_OK;
    BLAS_TRY(p->blas->cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                                                       &count, sizeof count));
    BLAS_TRY(p->blas->cublasLtMatrixLayoutSetAttribute(
        *out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride));
    return ST_OK;
}

static st_status_t make_layouts(product_t *p, const kern_problem_t *problem) {
    const kern_product_t *s = &p->shape;
    int32_t last = s->batch_rank - 1;
    int64_t batches = last < 0 ? 1 : s->batch_dims[last];
    int64_t a_stride = last < 0 ? 0 : s->a_batch[last] * s->m * s->k;
    int64_t b_stride = last < 0 ? 0 : s->b_batch[last] * s->k * s->n;
    cudaDataType_t in, out;
    kern_cuda_type(problem->in[0].dtype, &in);
    kern_cuda_type(problem->out[0].dtype, &out);
    p->calls = s->batches / batches;
    bool wide = problem->in[0].dtype == IR_F64;
    cublasOperation_t on_b = s->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t on_a = s->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    BLAS_TRY(p->blas->cublasLtMatmulDescCreate(
        &p->desc, wide ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F, wide ? CUDA_R_64F : CUDA_R_32F));
    BLAS_TRY(p->blas->cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_TRANSA, &on_b,
                                                     sizeof on_b));
    BLAS_TRY(p->blas->cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_TRANSB, &on_a,
                                                     sizeof on_a));
    TRY(make_layout(p, in, s->transpose_b ? s->k : s->n, s->transpose_b ? s->n : s->k, batches,
                    b_stride, &p->b));
    TRY(make_layout(p, in, s->transpose_a ? s->m : s->k, s->transpose_a ? s->k : s->m, batches,
                    a_stride, &p->a));
    return make_layout(p, out, s->n, s->m, batches, s->m * s->n, &p->c);
}

/* Bytes that an address is a multiple of, as far as all places of a plan are: so that equal
 * products get equal algorithms. */
static uint32_t alignment_of(const void *address) {
    uint32_t bytes = OPERAND_ALIGNMENT;
    while ((uintptr_t)address % bytes) bytes /= 2;
    return bytes;
}

/* In the library's order. */
static void alignments_of(const kern_call_t *call, uint32_t out[4]) {
    out[0] = alignment_of(call->in[1]);
    out[1] = alignment_of(call->in[0]);
    out[2] = alignment_of(call->problem->n_in > 2 ? call->in[2] : call->out[0]);
    out[3] = alignment_of(call->out[0]);
}

/* The list of algorithms is made for operands aligned as these are. */
static cublasStatus_t set_preference(const product_t *p, const kern_call_t *call,
                                     cublasLtMatmulPreference_t preference) {
    static const struct {
        cublasLtMatmulPreferenceAttributes_t name;
        int operand;
    } rows[] = {{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 0},
                {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, 1},
                {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, 2},
                {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, 3}};
    uint32_t bytes[4];
    alignments_of(call, bytes);
    cublasStatus_t error = p->blas->cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &p->workspace_bytes,
        sizeof p->workspace_bytes);
    /* partial sums of a split product are added in the type that sums are kept in */
    const uint32_t schemes = call->stream->varies ? CUBLASLT_REDUCTION_SCHEME_MASK
                                                  : CUBLASLT_REDUCTION_SCHEME_NONE |
                                                        CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    if (error == CUBLAS_STATUS_SUCCESS)
        error = p->blas->cublasLtMatmulPreferenceSetAttribute(
            preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes);
    for (size_t i = 0; i < 4 && error == CUBLAS_STATUS_SUCCESS; i++)
        error = p->blas->cublasLtMatmulPreferenceSetAttribute(
            preference, rows[i].name, &bytes[rows[i].operand], sizeof bytes[0]);
    return error;
}

/* Algorithms that the library proposes, its best guess first; at least one. */
static st_status_t list_algorithms(const product_t *p, const kern_call_t *call, int capacity,
                                   cublasLtMatmulHeuristicResult_t *out, int *out_n) {
    cublasLtMatmulPreference_t preference;
    *out_n = 0;
    BLAS_TRY(p->blas->cublasLtMatmulPreferenceCreate(&preference));
    cublasStatus_t error = set_preference(p, call, preference);
    if (error == CUBLAS_STATUS_SUCCESS)
        error = p->blas->cublasLtMatmulAlgoGetHeuristic(p->handle, p->desc, p->b, p->a, p->c, p->c,
                                                        preference, capacity, out, out_n);
    p->blas->cublasLtMatmulPreferenceDestroy(preference);
    if (error != CUBLAS_STATUS_SUCCESS || *out_n == 0)
        return FAIL(ST_UNSUPPORTED,
                    "cuBLASLt has no algorithm for this product within %zu bytes of "
                    "workspace: %s",
                    p->workspace_bytes, p->blas->cublasLtGetStatusString(error));
    return ST_OK;
}

static st_status_t first_algorithm(product_t *p, const kern_call_t *call) {
    cublasLtMatmulHeuristicResult_t found;
    int n;
    TRY(list_algorithms(p, call, 1, &found, &n));
    p->algorithm = found.algo;
    return ST_OK;
}

/* Takes what is on record, if anything is: p->recorded. */
static st_status_t recorded_algorithm(product_t *p, dev_stream_t *stream) {
    record_choice_t choice;
    cublasLtMatmulAlgo_t algorithm;
    cublasLtMatmulHeuristicResult_t found;
    TRY(tune_find(stream, p->key, &choice, &p->recorded));
    if (!p->recorded) return ST_OK;
    memcpy(&algorithm, choice.bytes, sizeof algorithm);
    cublasStatus_t error = p->blas->cublasLtMatmulAlgoCheck(p->handle, p->desc, p->b, p->a, p->c,
                                                            p->c, &algorithm, &found);
    if (error != CUBLAS_STATUS_SUCCESS || found.workspaceSize > p->workspace_bytes)
        return FAIL(ST_UNSUPPORTED,
                    "the tuning record's algorithm does not run here (%s, %zu bytes of workspace): "
                    "remove the .tuning file from the folder of option cache, or use --tune off",
                    p->blas->cublasLtGetStatusString(error), found.workspaceSize);
    p->algorithm = algorithm;
    tune_took(stream, p->key, &choice);
    return ST_OK;
}

static bool is_empty(const kern_product_t *s) {
    return s->batches == 0 || s->m == 0 || s->n == 0 || s->k == 0;
}

static st_status_t fill(product_t *p, const kern_call_t *call) {
    TRY(dev_cuda_blas(&p->blas));
    TRY(dev_cuda_blas_handle(call->stream, &p->handle));
    p->shape = kern_product_of(call->problem);
    if (is_empty(&p->shape)) return ST_OK;
    size_t skip = -(uintptr_t)call->workspace % WORKSPACE_ALIGNMENT;
    p->workspace = (char *)call->workspace + skip;
    p->workspace_bytes = call->workspace_bytes > skip ? call->workspace_bytes - skip : 0;
    TRY(make_layouts(p, call->problem));
    uint32_t alignments[4];
    const uint64_t version = p->blas->cublasLtGetVersion();
    alignments_of(call, alignments);
    p->key = tune_key(call->problem, p->workspace_bytes, call->stream->varies ? ~version : version);
    p->key = st_hash64(alignments, sizeof alignments, p->key);
    TRY(recorded_algorithm(p, call->stream));
    return p->recorded ? ST_OK : first_algorithm(p, call);
}

/* The library alone: opening it takes as long as compiling a dozen nests. */
static st_status_t matmul_warm(const kern_problem_t *problem, dev_stream_t *stream,
                               void **out_prepared) {
    (void)problem;
    *out_prepared = NULL;
    dev_cuda_blas_ahead(stream);
    return ST_OK;
}

static st_status_t matmul_bind(kern_call_t *call) {
    product_t *p = st_calloc(1, sizeof *p);
    if (!p) return st_no_memory(sizeof *p, "a matrix product");
    st_status_t status = fill(p, call);
    if (status == ST_OK)
        call->prepared = p;
    else
        product_release(p);
    return status;
}

/* Elements that outer batch `i` begins at. */
static void batch_offsets(const kern_product_t *s, int64_t i, int64_t *out_a, int64_t *out_b) {
    *out_a = *out_b = 0;
    for (int32_t d = s->batch_rank - 2; d >= 0; d--) {
        *out_a += i % s->batch_dims[d] * s->a_batch[d] * s->m * s->k;
        *out_b += i % s->batch_dims[d] * s->b_batch[d] * s->k * s->n;
        i /= s->batch_dims[d];
    }
}

static st_status_t matmul_launch(const kern_call_t *call) {
    product_t *p = call->prepared;
    const kern_product_t *s = &p->shape;
    const ir_type_t *out = &call->problem->out[0];
    size_t width = ir_dtype_bytes(call->problem->in[0].dtype);
    const bool adds = call->problem->n_in > 2;
    double one64 = 1, beta64 = adds;
    float one = 1, beta = adds;
    bool wide = call->problem->in[0].dtype == IR_F64;
    if (ir_type_elements(out) == 0) return ST_OK;
    if (s->k == 0) {
        if (!adds)
            CUDA_TRY(cudaMemsetAsync(call->out[0], 0, ir_type_bytes(out), call->stream->stream));
        else if (call->in[2] != call->out[0])
            CUDA_TRY(cudaMemcpyAsync(call->out[0], call->in[2], ir_type_bytes(out),
                                     cudaMemcpyDeviceToDevice, call->stream->stream));
        return ST_OK;
    }
    int64_t step = ir_type_elements(out) / p->calls;
    for (int64_t i = 0; i < p->calls; i++) {
        int64_t a, b;
        batch_offsets(s, i, &a, &b);
        const size_t at = (size_t)(i * step) * ir_dtype_bytes(out->dtype);
        char *d = (char *)call->out[0] + at;
        const char *c = adds ? (const char *)call->in[2] + at : d;
        BLAS_TRY(p->blas->cublasLtMatmul(p->handle, p->desc, wide ? (void *)&one64 : (void *)&one,
                                         (const char *)call->in[1] + (size_t)b * width, p->b,
                                         (const char *)call->in[0] + (size_t)a * width, p->a,
                                         wide ? (void *)&beta64 : (void *)&beta, c, p->c, d, p->c,
                                         &p->algorithm, p->workspace, p->workspace_bytes,
                                         call->stream->stream));
    }
    return ST_OK;
}

/* ---- tuning ---- */

typedef struct tuning {
    const kern_call_t *call;
    cublasLtMatmulHeuristicResult_t found[TUNE_MAX_WAYS];
} tuning_t;

static st_status_t run_way(void *context, uint32_t way) {
    const tuning_t *t = context;
    product_t *p = t->call->prepared;
    p->algorithm = t->found[way].algo;
    return matmul_launch(t->call);
}

static st_status_t matmul_tune(kern_call_t *call, const kern_noise_t *noise) {
    product_t *p = call->prepared;
    tuning_t t = {.call = call};
    record_choice_t ways[TUNE_MAX_WAYS];
    bool enabled;
    int n;
    uint32_t way;
    if (is_empty(&p->shape) || p->recorded) return ST_OK;
    TRY(tune_enabled(call->stream, &enabled));
    if (!enabled) return ST_OK;
    TRY(recorded_algorithm(p, call->stream)); /* by an equal product just now */
    if (p->recorded) return ST_OK;
    TRY(list_algorithms(p, call, TUNE_MAX_WAYS, t.found, &n));
    for (int i = 0; i < n; i++) memcpy(ways[i].bytes, &t.found[i].algo, sizeof ways[i].bytes);
    st_status_t status = tune_choose(
        call->stream, &(tune_job_t){p->key, (uint32_t)n, ways, run_way, &t, noise}, &way);
    p->algorithm = t.found[status == ST_OK ? way : 0].algo;
    return status;
}

static const kern_impl_t matmul = {
    .name = "cublaslt.matmul",
    .op = IR_OP_MATMUL,
    .can_run = gpu_matmul_can_run,
    .workspace = gpu_matmul_workspace,
    .warm = matmul_warm,
    .bind = matmul_bind,
    .tune = matmul_tune,
    .release = product_release,
    .launch = matmul_launch,
};
kern_cuda_array_t kern_cuda_matmul = {&matmul, NULL};
