/* Attention by cuDNN: its products and softmax as one graph, which the library fuses.
 *
 * Forward: S = scale q k', masked; row max and sum of exponentials; o = softmax(S) v, lse.
 * Backward, with P = exp(S - lse) and D = the rows' sums of do · o:
 *   dv = P' do      dS = scale P (do v' - D)      dk = dS' q      dq = dS k
 * dq as a product of a whole dS gives the same bits every run, at the price of dS in memory; the
 * library's other form adds with atomics. Query heads of a group share a key head: their dk and dv
 * are summed.
 *
 * The library gets the keys that some query sees and no others, so that queries of a later part
 * of a sequence are its causal attention aligned to the bottom right, and those that see all
 * keys its attention without a mask; gradients of the other keys are set to 0 beside it. A
 * query's place is its row plus a number, held against the key's for the last key it sees and,
 * less the window, for the first: the forms that the library's own front end makes of a band of
 * the diagonal. */
#include <math.h>

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/dnn.h"
#include "kernels/gpu_rules.h"

/* The graph's parts, by dims and strides of [B, H, rows, columns]. */
static dnn_tensor_t strided(dnn_t *dnn, cudnnDataType_t type, const int64_t dims[4],
                            const int64_t strides[4], const void *address) {
    return address ? dnn_tensor(dnn, type, 4, dims, strides, address)
                   : dnn_virtual(dnn, type, 4, dims, strides);
}
static dnn_tensor_t dense(dnn_t *dnn, cudnnDataType_t type, int64_t b, int64_t h, int64_t rows,
                          int64_t columns, const void *address) {
    const int64_t dims[4] = {b, h, rows, columns};
    const int64_t strides[4] = {h * rows * columns, rows * columns, columns, 1};
    return strided(dnn, type, dims, strides, address);
}
/* The same memory as `dense` of [B, H, columns, rows], seen transposed. */
static dnn_tensor_t turned(dnn_t *dnn, cudnnDataType_t type, int64_t b, int64_t h, int64_t rows,
                           int64_t columns, const void *address) {
    const int64_t dims[4] = {b, h, rows, columns};
    const int64_t strides[4] = {h * rows * columns, rows * columns, 1, rows};
    return strided(dnn, type, dims, strides, address);
}
/* q, k, v, o or a gradient of one of them in memory, rows × width of each head: the rows of a
 * head follow each other, or stand `heads` apart. Of `all` rows there the tensor has those from
 * `first` on. */
typedef struct operand {
    int64_t heads, first, rows, all, width;
} operand_t;

static const void *first_of(const kern_attention_t *a, operand_t o, const void *address) {
    enum { BYTES = 2 }; /* of an element: bf16 and f16 */
    const int64_t at = kern_attention_at(a, o.heads, o.all, o.width, 0, 0, o.first) * BYTES;
    return address ? (const char *)address + at : NULL;
}
static dnn_tensor_t heads_of(dnn_t *dnn, const kern_attention_t *a, cudnnDataType_t type,
                             operand_t o, const void *address) {
    const int64_t dims[4] = {a->b, o.heads, o.rows, o.width};
    const int64_t strides[4] = {o.heads * o.all * o.width,
                                a->rows_first ? o.width : o.all * o.width,
                                kern_attention_step(a, o.heads, o.width), 1};
    return strided(dnn, type, dims, strides, first_of(a, o, address));
}
/* The same, seen transposed: width × rows. */
static dnn_tensor_t heads_turned(dnn_t *dnn, const kern_attention_t *a, cudnnDataType_t type,
                                 operand_t o, const void *address) {
    const int64_t dims[4] = {a->b, o.heads, o.width, o.rows};
    const int64_t strides[4] = {o.heads * o.all * o.width,
                                a->rows_first ? o.width : o.all * o.width, 1,
                                kern_attention_step(a, o.heads, o.width)};
    return strided(dnn, type, dims, strides, first_of(a, o, address));
}
static operand_t of_queries(const gpu_seen_t *seen, int64_t width) {
    return (operand_t){seen->a.h, 0, seen->a.m, seen->a.m, width};
}
static operand_t of_keys(const gpu_seen_t *seen, int64_t width) {
    return (operand_t){seen->a.g, seen->first, seen->a.s, seen->keys, width};
}
static dnn_tensor_t scores(dnn_t *dnn, const kern_attention_t *a, cudnnDataType_t type) {
    return dense(dnn, type, a->b, a->h, a->m, a->s, NULL);
}
static dnn_tensor_t row_values(dnn_t *dnn, const kern_attention_t *a, const void *address) {
    return dense(dnn, CUDNN_DATA_FLOAT, a->b, a->h, a->m, 1, address);
}

static dnn_tensor_t pointwise(dnn_t *dnn, cudnnPointwiseMode_t mode, dnn_tensor_t x, dnn_tensor_t b,
                              dnn_tensor_t y) {
    dnn_pointwise(dnn, mode, CUDNN_DATA_FLOAT, x, b, -1, y, 0);
    return y;
}

/* Scores where `keep`(row, column) holds, -infinity elsewhere. */
static dnn_tensor_t keep_where(dnn_t *dnn, const kern_attention_t *a, dnn_tensor_t x,
                               dnn_tensor_t left, cudnnPointwiseMode_t compare,
                               dnn_tensor_t right) {
    dnn_tensor_t keep = scores(dnn, a, CUDNN_DATA_BOOLEAN);
    dnn_tensor_t kept = scores(dnn, a, CUDNN_DATA_FLOAT);
    dnn_pointwise(dnn, compare, CUDNN_DATA_BOOLEAN, left, right, -1, keep, 0);
    dnn_pointwise(dnn, CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, x,
                  dnn_number(dnn, -INFINITY), keep, kept, 0);
    return kept;
}

/* The number of each score along `axis`, plus `more`. */
static dnn_tensor_t places(dnn_t *dnn, const kern_attention_t *a, dnn_tensor_t x, int64_t axis,
                           int64_t more) {
    dnn_tensor_t index = scores(dnn, a, CUDNN_DATA_INT32);
    dnn_pointwise(dnn, CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, x, -1, -1, index, axis);
    if (!more) return index;
    dnn_tensor_t sum = scores(dnn, a, CUDNN_DATA_INT32);
    dnn_pointwise(dnn, CUDNN_POINTWISE_ADD, CUDNN_DATA_INT32, index,
                  dnn_integer(dnn, (int32_t)more), -1, sum, 0);
    return sum;
}

/* Key s of query m: s ≤ m + offset where causal, and s + window > m + offset where there is a
 * window. */
static dnn_tensor_t masked(dnn_t *dnn, const kern_attention_t *a, dnn_tensor_t x) {
    if (a->causal) {
        dnn_tensor_t row = places(dnn, a, x, 2, a->offset);
        x = keep_where(dnn, a, x, row, CUDNN_POINTWISE_CMP_GE, places(dnn, a, x, 3, 0));
    }
    if (a->window) {
        dnn_tensor_t row = places(dnn, a, x, 2, a->offset);
        dnn_tensor_t column = places(dnn, a, x, 3, a->window);
        x = keep_where(dnn, a, x, column, CUDNN_POINTWISE_CMP_GT, row);
    }
    return x;
}

static st_status_t build_forward(const kern_call_t *call, dnn_t *dnn) {
    const kern_attention_t all = kern_attention_of(call->problem, 0, 3);
    const gpu_seen_t seen = gpu_attention_seen(&all);
    const kern_attention_t a = seen.a;
    cudnnDataType_t type;
    dnn_type(call->problem->in[0].dtype, &type);
    dnn_tensor_t q = heads_of(dnn, &a, type, of_queries(&seen, a.d), call->in[0]);
    dnn_tensor_t k = heads_turned(dnn, &a, type, of_keys(&seen, a.d), call->in[1]);
    dnn_tensor_t v = heads_of(dnn, &a, type, of_keys(&seen, a.e), call->in[2]);
    dnn_tensor_t o = heads_of(dnn, &a, type, of_queries(&seen, a.e), call->out[0]);
    dnn_tensor_t lse = row_values(dnn, &a, call->out[1]);
    dnn_tensor_t s = scores(dnn, &a, CUDNN_DATA_FLOAT);
    dnn_matmul(dnn, q, k, s);
    s = pointwise(dnn, CUDNN_POINTWISE_MUL, s, dnn_number(dnn, (float)a.scale),
                  scores(dnn, &a, CUDNN_DATA_FLOAT));
    s = masked(dnn, &a, s);
    dnn_tensor_t most = row_values(dnn, &a, NULL), sum = row_values(dnn, &a, NULL);
    dnn_reduce(dnn, CUDNN_REDUCE_TENSOR_MAX, s, most);
    s = pointwise(dnn, CUDNN_POINTWISE_SUB, s, most, scores(dnn, &a, CUDNN_DATA_FLOAT));
    s = pointwise(dnn, CUDNN_POINTWISE_EXP, s, -1, scores(dnn, &a, CUDNN_DATA_FLOAT));
    dnn_reduce(dnn, CUDNN_REDUCE_TENSOR_ADD, s, sum);
    dnn_tensor_t log = pointwise(dnn, CUDNN_POINTWISE_LOG, sum, -1, row_values(dnn, &a, NULL));
    pointwise(dnn, CUDNN_POINTWISE_ADD, most, log, lse);
    dnn_tensor_t p = pointwise(dnn, CUDNN_POINTWISE_DIV, s, sum, scores(dnn, &a, type));
    dnn_matmul(dnn, p, v, o);
    const dnn_wish_t wish = dnn_wish(dnn, call->problem, false, call->workspace_bytes);
    return dnn_plan(dnn, &wish, call->workspace);
}

/* out = left right, summed over the query heads of a group where there are several. */
static void product_of_group(dnn_t *dnn, const kern_attention_t *a, cudnnDataType_t type,
                             dnn_tensor_t left, dnn_tensor_t right, int64_t columns,
                             dnn_tensor_t out) {
    if (a->h == a->g) {
        dnn_matmul(dnn, left, right, out);
        return;
    }
    dnn_tensor_t each = dense(dnn, type, a->b, a->h, a->s, columns, NULL);
    dnn_matmul(dnn, left, right, each);
    dnn_reduce(dnn, CUDNN_REDUCE_TENSOR_ADD, each, out);
}

/* dq = ds k. The other way, quicker and without the scores' gradient in memory, adds up parts of
 * rows as they come, in float32 that lies behind the rows' sums: bits then depend on which came
 * first. */
static st_status_t product_of_queries(dnn_t *dnn, const kern_attention_t *a,
                                      const kern_call_t *call, dnn_tensor_t ds, dnn_tensor_t k,
                                      dnn_tensor_t dq, size_t *used) {
    const size_t bytes = st_size_align((size_t)(a->b * a->h * a->m * a->d) * sizeof(float), 256);
    if (!dnn_varies(dnn)) {
        dnn_matmul(dnn, ds, k, dq);
        return ST_OK;
    }
    if (*used + bytes > call->workspace_bytes)
        return FAIL(ST_UNSUPPORTED,
                    "--deterministic off: sums of %zu bytes do not fit into the %zu that are "
                    "planned for attention's gradient",
                    bytes, call->workspace_bytes - *used);
    dnn_tensor_t sums =
        dense(dnn, CUDNN_DATA_FLOAT, a->b, a->h, a->m, a->d, (char *)call->workspace + *used);
    dnn_matmul(dnn, ds, k, sums);
    pointwise(dnn, CUDNN_POINTWISE_IDENTITY, sums, -1, dq);
    *used += bytes;
    return ST_OK;
}

static st_status_t build_backward(const kern_call_t *call, dnn_t *dnn) {
    const kern_attention_t all = kern_attention_of(call->problem, 1, 6);
    const gpu_seen_t seen = gpu_attention_seen(&all);
    const kern_attention_t a = seen.a;
    cudnnDataType_t type;
    dnn_type(call->problem->in[1].dtype, &type);
    size_t rows = gpu_attention_row_bytes(&a);
    dnn_tensor_t grad = heads_of(dnn, &a, type, of_queries(&seen, a.e), call->in[0]);
    dnn_tensor_t q = heads_of(dnn, &a, type, of_queries(&seen, a.d), call->in[1]);
    dnn_tensor_t k = heads_turned(dnn, &a, type, of_keys(&seen, a.d), call->in[2]);
    dnn_tensor_t v = heads_turned(dnn, &a, type, of_keys(&seen, a.e), call->in[3]);
    dnn_tensor_t o = heads_of(dnn, &a, type, of_queries(&seen, a.e), call->in[4]);
    dnn_tensor_t lse = row_values(dnn, &a, call->in[5]);
    dnn_tensor_t dq = heads_of(dnn, &a, type, of_queries(&seen, a.d), call->out[0]);
    dnn_tensor_t dk = heads_of(dnn, &a, type, of_keys(&seen, a.d), call->out[1]);
    dnn_tensor_t dv = heads_of(dnn, &a, type, of_keys(&seen, a.e), call->out[2]);
    dnn_tensor_t d = row_values(dnn, &a, call->workspace);
    dnn_tensor_t scale = dnn_number(dnn, (float)a.scale);

    dnn_tensor_t both = pointwise(dnn, CUDNN_POINTWISE_MUL, grad, o,
                                  dense(dnn, CUDNN_DATA_FLOAT, a.b, a.h, a.m, a.e, NULL));
    dnn_tensor_t sums = row_values(dnn, &a, NULL);
    dnn_reduce(dnn, CUDNN_REDUCE_TENSOR_ADD, both, sums);
    pointwise(dnn, CUDNN_POINTWISE_MUL, sums, dnn_number(dnn, 1), d);

    dnn_tensor_t s = scores(dnn, &a, CUDNN_DATA_FLOAT);
    dnn_matmul(dnn, q, k, s);
    s = pointwise(dnn, CUDNN_POINTWISE_MUL, s, scale, scores(dnn, &a, CUDNN_DATA_FLOAT));
    s = pointwise(dnn, CUDNN_POINTWISE_SUB, s, lse, scores(dnn, &a, CUDNN_DATA_FLOAT));
    s = masked(dnn, &a, s);
    dnn_tensor_t p = pointwise(dnn, CUDNN_POINTWISE_EXP, s, -1, scores(dnn, &a, CUDNN_DATA_FLOAT));

    dnn_tensor_t p_turned = turned(dnn, type, a.b, a.h, a.s, a.m, NULL);
    dnn_reshape(dnn, p, p_turned);
    product_of_group(dnn, &a, type, p_turned, grad, a.e, dv);

    dnn_tensor_t dp = scores(dnn, &a, CUDNN_DATA_FLOAT);
    dnn_matmul(dnn, grad, v, dp);
    dp = pointwise(dnn, CUDNN_POINTWISE_SUB, dp, d, scores(dnn, &a, CUDNN_DATA_FLOAT));
    dp = pointwise(dnn, CUDNN_POINTWISE_MUL, dp, p, scores(dnn, &a, CUDNN_DATA_FLOAT));
    dnn_tensor_t ds =
        pointwise(dnn, CUDNN_POINTWISE_MUL, dp, scale, scores(dnn, &a, CUDNN_DATA_FLOAT));
    dnn_tensor_t ds_turned = turned(dnn, type, a.b, a.h, a.s, a.m, NULL);
    dnn_reshape(dnn, ds, ds_turned);
    product_of_group(dnn, &a, type, ds_turned, q, a.d, dk);

    dnn_tensor_t k_rows = heads_of(dnn, &a, type, of_keys(&seen, a.d), NULL);
    dnn_reshape(dnn, k, k_rows);
    TRY(product_of_queries(dnn, &a, call, ds, k_rows, dq, &rows));
    const dnn_wish_t wish = dnn_wish(dnn, call->problem, false, call->workspace_bytes - rows);
    return dnn_plan(dnn, &wish, (char *)call->workspace + rows);
}

static st_status_t forward_bind(kern_call_t *call) {
    return dnn_bind(call, build_forward);
}
static st_status_t forward_warm(const kern_problem_t *problem, dev_stream_t *stream,
                                void **out_prepared) {
    *out_prepared = NULL;
    return dnn_warm(problem, stream, gpu_attention_workspace(problem, 1), build_forward);
}
static st_status_t forward_check(const kern_problem_t *problem, const char *device) {
    return dnn_check(problem, device, gpu_attention_workspace(problem, 1), build_forward);
}
static st_status_t backward_check(const kern_problem_t *problem, const char *device) {
    return dnn_check(problem, device, gpu_attention_grad_workspace(problem, 1), build_backward);
}
static st_status_t backward_bind(kern_call_t *call) {
    return dnn_bind(call, build_backward);
}
static st_status_t backward_warm(const kern_problem_t *problem, dev_stream_t *stream,
                                 void **out_prepared) {
    *out_prepared = NULL;
    return dnn_warm(problem, stream, gpu_attention_grad_workspace(problem, 1), build_backward);
}

static st_status_t launch(const kern_call_t *call) {
    return dnn_launch(call->prepared);
}

/* Keys [begin, end) of a gradient, of all heads: 0. */
static st_status_t clear_keys(const kern_call_t *call, uint32_t out, const gpu_seen_t *seen,
                              int64_t begin, int64_t end) {
    const ir_type_t *type = &call->problem->out[out];
    const kern_attention_t *a = &seen->a;
    const int64_t width = type->dims[3], step = kern_attention_step(a, a->g, width);
    const size_t row = (size_t)step * ir_dtype_bytes(type->dtype);
    if (begin >= end) return ST_OK;
    CUDA_TRY(cudaMemset2DAsync((char *)call->out[out] + (size_t)begin * row,
                               (size_t)seen->keys * row, 0, (size_t)(end - begin) * row,
                               (size_t)(a->rows_first ? a->b : a->b * a->g), call->stream->stream));
    return ST_OK;
}

static st_status_t launch_backward(const kern_call_t *call) {
    const kern_attention_t all = kern_attention_of(call->problem, 1, 6);
    const gpu_seen_t seen = gpu_attention_seen(&all);
    for (uint32_t k = 1; k < 3; k++) {
        TRY(clear_keys(call, k, &seen, 0, seen.first));
        TRY(clear_keys(call, k, &seen, seen.first + seen.a.s, seen.keys));
    }
    return dnn_launch(call->prepared);
}

/* Not tuned: the library offers two engines, and its first was the fastest wherever both were
 * timed. */
static const kern_impl_t attention = {.name = "cudnn.attention",
                                      .op = IR_OP_ATTENTION,
                                      .can_run = gpu_attention_can_run,
                                      .workspace = gpu_attention_workspace,
                                      .warm = forward_warm,
                                      .bind = forward_bind,
                                      .check = forward_check,
                                      .release = dnn_release,
                                      .launch = launch};
static const kern_impl_t attention_grad = {.name = "cudnn.attention",
                                           .op = IR_OP_ATTENTION_GRAD,
                                           .can_run = gpu_attention_grad_can_run,
                                           .workspace = gpu_attention_grad_workspace,
                                           .warm = backward_warm,
                                           .bind = backward_bind,
                                           .check = backward_check,
                                           .release = dnn_release,
                                           .launch = launch_backward};
kern_cuda_array_t kern_cuda_attention = {&attention, &attention_grad, NULL};
