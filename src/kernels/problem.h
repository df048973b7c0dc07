/* What kernels work out from a problem before the loops: axes, convolution and pooling geometry,
 * and the errors for data out of range. Shared by all implementations, so that they agree. */
#ifndef STATOR_KERNELS_PROBLEM_H
#define STATOR_KERNELS_PROBLEM_H

#include "kernels/kernel.h"

static inline int64_t kern_int(const kern_problem_t *problem, const char *key) {
    return kern_attr(problem, key)->i;
}
static inline double kern_float(const kern_problem_t *problem, const char *key) {
    return kern_attr(problem, key)->f;
}
/* Entry i of an INTS attribute; `otherwise` where the list is empty. */
int64_t kern_ints(const kern_problem_t *problem, const char *key, uint32_t i, int64_t otherwise);

/* A shape seen around one axis: [outer, n, inner]. */
typedef struct kern_split {
    int32_t axis;
    int64_t outer, n, inner;
} kern_split_t;
kern_split_t kern_split_at(const ir_type_t *type, int64_t axis);
/* Around attribute `axis` of `type`. */
kern_split_t kern_split_axis(const kern_problem_t *problem, const ir_type_t *type);

/* Row-major strides in elements; broadcast_strides gives 0 along dims that `type` lacks or has
 * once. */
void kern_strides(const ir_type_t *type, int64_t strides[IR_MAX_RANK]);
void kern_broadcast_strides(const ir_type_t *type, const ir_type_t *out,
                            int64_t strides[IR_MAX_RANK]);

/* Which dims a reduction sums over, by attribute `axes`. */
void kern_reduced_dims(const kern_problem_t *problem, bool reduced[IR_MAX_RANK]);

/* Convolution or pooling with its 1 to 3 spatial dims set to the right; missing ones have extent 1.
 * Positions and taps are flat indices over them. */
typedef struct kern_window {
    int64_t n, c, o, groups; /* o = c and groups = c for pooling */
    int32_t spatial;
    bool last; /* channels last in x, y and w */
    int64_t in[3], out[3], kernel[3], stride[3], low[3], high[3], dilation[3];
    int64_t in_size, out_size, kernel_size; /* products */
} kern_window_t;
kern_window_t kern_conv_window(const kern_problem_t *problem, const ir_type_t *x,
                               const ir_type_t *w, const ir_type_t *y);
/* y is the pooled x. */
kern_window_t kern_pool_window(const kern_problem_t *problem, const ir_type_t *x,
                               const ir_type_t *y);
/* Of max_pool_grad: dx is x, dy is y. A window that is not known has kernel[] = 0. */
kern_window_t kern_unpool_window(const kern_problem_t *problem);
/* Element of x, of y, and of w: its channel c of the group's. */
static inline int64_t kern_window_x(const kern_window_t *w, int64_t n, int64_t c,
                                    int64_t position) {
    return w->last ? (n * w->in_size + position) * w->c + c
                   : (n * w->c + c) * w->in_size + position;
}
static inline int64_t kern_window_y(const kern_window_t *w, int64_t n, int64_t o,
                                    int64_t position) {
    return w->last ? (n * w->out_size + position) * w->o + o
                   : (n * w->o + o) * w->out_size + position;
}
static inline int64_t kern_window_w(const kern_window_t *w, int64_t o, int64_t c, int64_t tap) {
    const int64_t each = w->c / w->groups;
    return w->last ? (o * w->kernel_size + tap) * each + c : (o * each + c) * w->kernel_size + tap;
}
/* Output o of dim d reads kernel taps [*first, *last) inside the input; the tap k is at
 * o · stride - low + k · dilation. */
void kern_window_taps(const kern_window_t *w, int d, int64_t o, int64_t *first, int64_t *last);
/* The other way round: outputs [*first, *last) along dim d whose tap k lies inside the input. */
void kern_window_outputs(const kern_window_t *w, int d, int64_t k, int64_t *first, int64_t *last);
/* Divisor of an average pool's window at out position o[3]. 0: no cell counts. */
int64_t kern_pool_count(const kern_window_t *w, const int64_t o[3], bool count_pad);

/* Attention. Query m sees the keys [*first, *last): with `causal` those s ≤ m, with a window those
 * with |m - s| < window. */
typedef struct kern_attention {
    int64_t b, h, g, m, s, d, e;
    bool part;               /* of a gradient: probabilities of a row need not add up to 1 */
    bool causal, rows_first; /* q and its like are [B, rows, heads, width] */
    int64_t window, offset;
    double scale;
    const ir_type_t *mask; /* NULL: none */
    int64_t mask_stride[4];
} kern_attention_t;
/* `first` is the index of q among the inputs; mask comes after `n_fixed` inputs. */
kern_attention_t kern_attention_of(const kern_problem_t *problem, uint32_t first, uint32_t n_fixed);
/* Of q, k, v, o and their gradients: where row `row` of a head begins, and how far the next row
 * is. */
static inline int64_t kern_attention_at(const kern_attention_t *a, int64_t heads, int64_t rows,
                                        int64_t width, int64_t b, int64_t head, int64_t row) {
    int64_t outer = a->rows_first ? b * rows + row : b * heads + head;
    return (outer * (a->rows_first ? heads : rows) + (a->rows_first ? head : row)) * width;
}
static inline int64_t kern_attention_step(const kern_attention_t *a, int64_t heads, int64_t width) {
    return a->rows_first ? heads * width : width;
}
/* Keys [*first, *last) that query m sees, mask aside; none: they are equal. Both grow with m. */
void kern_attention_keys(const kern_attention_t *a, int64_t m, int64_t *first, int64_t *last);
/* Those that some query of [m, m + rows) sees. */
void kern_attention_span(const kern_attention_t *a, int64_t m, int64_t rows, int64_t *first,
                         int64_t *last);

/* Kernels' messages do not name their node: who runs them adds its label. */
st_status_t kern_bad_index(int64_t index, int64_t position, int32_t dim, int64_t size);
st_status_t kern_bad_label(int64_t label, int64_t row, int64_t n_classes, int64_t ignore_index);
/* Reads i32 or i64 element i. */
static inline int64_t kern_index_at(ir_dtype_t dtype, const void *data, int64_t i) {
    return dtype == IR_I32 ? (int64_t)((const int32_t *)data)[i] : ((const int64_t *)data)[i];
}
/* All of an index input within [-size, size)? FAILs on the first that is not. */
st_status_t kern_check_indices(const kern_problem_t *problem, uint32_t input, const void *data,
                               int32_t dim, int64_t size);
/* All labels (input 1 of the cross-entropy ops, input 2 of its gradient) classes or ignored? */
st_status_t kern_check_labels(const kern_problem_t *problem, uint32_t input, const void *data,
                              int64_t n_classes);
st_status_t kern_check_label_range(ir_dtype_t dtype, const void *data, int64_t n, int64_t n_classes,
                                   int64_t ignore);

/* Random 32-bit word of global element `element`: key seed, counter (element / 4, id and step). */
uint32_t kern_random_word(int64_t seed, int64_t id, int64_t step, int64_t element);
/* Local element → global one, for random ops with {begin, global}. */
typedef struct kern_global {
    int32_t rank;
    bool whole; /* local is global */
    int64_t dims[IR_MAX_RANK], begin[IR_MAX_RANK], strides[IR_MAX_RANK];
    int64_t elements; /* of the global tensor */
    int64_t base;     /* of the element before its first */
} kern_global_t;
kern_global_t kern_global_of(const kern_problem_t *problem, const ir_type_t *type);
/* Puts the global tensor after `part` others of its size. */
void kern_global_at_part(kern_global_t *global, int64_t part);
int64_t kern_global_index(const kern_global_t *global, int64_t element);

#endif
