/* Own kernels for what neither a library nor a loop nest serves. One thread an output element and
 * float64 inside, unless the kernel says otherwise: they are the ground that everything runs on,
 * not the fast way. Launchers take plain structs, so that C fills them; all tensors are dense,
 * row-major. Every element of `out` is written. */
#ifndef STATOR_KERNELS_CUDA_OWN_H
#define STATOR_KERNELS_CUDA_OWN_H

#include <cuda_runtime.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels/scatter.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Elements by wire id of their type (ir_dtype_t). */
typedef struct own_tensor {
    void *data;
    int32_t dtype;
} own_tensor_t;

/* A shape around one axis. */
typedef struct own_split {
    int64_t outer, n, inner;
} own_split_t;

typedef struct own_fault {
    void *fault; /* dev_cuda_fault_t on the device */
    uint32_t node;
} own_fault_t;

enum { OWN_RANK = 8 };

/* out[outer, begin + i, inner] = in[outer, i, inner]: one part of a concatenation; bytes a row. */
typedef struct own_concat {
    const void *in;
    void *out;
    int64_t outer, in_bytes, out_bytes, begin_bytes; /* of one outer row */
} own_concat_t;
cudaError_t own_concat(const own_concat_t *a, cudaStream_t stream);

typedef struct own_pad {
    const void *in;
    void *out;
    int32_t rank, width;
    int64_t in_dims[OWN_RANK], out_dims[OWN_RANK], low[OWN_RANK];
    unsigned char value[8]; /* an element */
} own_pad_t;
cudaError_t own_pad(const own_pad_t *a, cudaStream_t stream);

/* Index tuples of length k choose rows of `row` elements among the first k dims. */
typedef struct own_nd {
    own_tensor_t table, rows, index; /* gather_nd: table → rows; scatter_nd_add: rows → table */
    int64_t n, k, row, table_rows;
    int64_t dims[OWN_RANK], strides[OWN_RANK]; /* strides in elements of the table */
    own_fault_t fault;
} own_nd_t;
cudaError_t own_gather_nd(const own_nd_t *a, cudaStream_t stream);
cudaError_t own_scatter_nd_add(const own_nd_t *a, cudaStream_t stream);

/* Adds rows updates[outer, i, :] to out[outer, index[i], :], by a sort and sums in a fixed order
 * (kernels/scatter.h). Sums are f32, f64 for f64. workspace: plan.bytes. */
typedef struct own_scatter {
    own_tensor_t updates, index, out;
    kern_scatter_t plan;
    void *workspace;
    own_fault_t fault;
} own_scatter_t;
cudaError_t own_scatter_add(const own_scatter_t *a, cudaStream_t stream);
/* The index tensor has the updates' shape: out[.., index, ..] += updates[.., i, ..]. */
typedef struct own_along {
    own_tensor_t updates, index, out;
    int32_t rank, axis;
    int64_t in_dims[OWN_RANK], out_dims[OWN_RANK];
    size_t out_bytes;
    own_fault_t fault;
} own_along_t;
cudaError_t own_scatter_along_add(const own_along_t *a, cudaStream_t stream);

typedef struct own_line {
    own_tensor_t in, out;
    own_split_t shape;
    bool exclusive, reverse;
} own_line_t;
cudaError_t own_cumsum(const own_line_t *a, cudaStream_t stream);
cudaError_t own_argmax(const own_line_t *a, cudaStream_t stream);

/* Rotates pairs (f32 inside, f64 for f64). */
typedef struct own_rope {
    own_tensor_t x, cosine, sine, out;
    int64_t rows, heads, m, d; /* rows = B * H * M; heads: 1 unless rows come first */
    bool interleaved, inverse;
} own_rope_t;
cudaError_t own_rope(const own_rope_t *a, cudaStream_t stream);

typedef struct own_rate {
    const void *step; /* i64 */
    void *out;        /* f64 */
    int32_t kind;     /* ir_rate_kind_t */
    double base, min;
    int64_t warmup, total;
} own_rate_t;
cudaError_t own_lr_schedule(const own_rate_t *a, cudaStream_t stream);

/* Windows of up to 3 spatial dims (kern_window_t). */
typedef struct own_window {
    bool last; /* channels, in x, y and w */
    int64_t n, c, o, groups;
    int64_t in[3], out[3], kernel[3], stride[3], low[3], high[3], dilation[3];
    int64_t in_size, out_size, kernel_size;
} own_window_t;
typedef struct own_pool {
    own_tensor_t x, y, index; /* index: i32 */
    own_window_t window;
    bool count_pad;
} own_pool_t;
cudaError_t own_max_pool(const own_pool_t *a, cudaStream_t stream);
/* dy = y, dx = x; a thread adds up one plane in order, or where the pool's window is known
 * (kernel[0] > 0) one element of dx. */
cudaError_t own_max_pool_grad(const own_pool_t *a, cudaStream_t stream);
cudaError_t own_avg_pool(const own_pool_t *a, cudaStream_t stream);
cudaError_t own_avg_pool_grad(const own_pool_t *a, cudaStream_t stream);

/* The two for channels last in vectors of channels: own_pool_vectors says how many, 0: not for this
 * problem. max_pool_grad needs the window. */
int32_t own_pool_vectors(const own_pool_t *a);
cudaError_t own_max_pool_last(const own_pool_t *a, cudaStream_t stream);
cudaError_t own_max_pool_grad_last(const own_pool_t *a, cudaStream_t stream);

typedef struct own_conv {
    own_tensor_t x, w, y, bias; /* bias.data NULL: none */
    own_window_t window;
} own_conv_t;
cudaError_t own_conv(const own_conv_t *a, cudaStream_t stream);             /* writes y */
cudaError_t own_conv_grad_input(const own_conv_t *a, cudaStream_t stream);  /* writes x */
cudaError_t own_conv_grad_weight(const own_conv_t *a, cudaStream_t stream); /* writes w */

typedef struct own_attention {
    own_tensor_t q, k, v, o, lse, mask, d_o, dq, dk, dv;
    int64_t b, h, g, m, s, d, e, window, offset;
    bool causal, has_mask, rows_first;
    double scale;
    int64_t mask_stride[4];
} own_attention_t;
cudaError_t own_attention(const own_attention_t *a, cudaStream_t stream);
cudaError_t own_attention_grad(const own_attention_t *a, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
