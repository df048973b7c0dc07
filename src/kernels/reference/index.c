/* Reference kernels of the ops that choose elements by index, and of their adjoints. All indices
 * are checked before anything is written. */
#include <string.h>

#include "kernels/reference/reference.h"

static int64_t index_of(const kern_call_t *call, uint32_t input, int64_t i, int64_t size) {
    int64_t index = ref_get_int(call, input, i);
    return index < 0 ? index + size : index;
}

/* out[at] += update[i] */
static void accumulate(const kern_call_t *call, int64_t at, int64_t i) {
    const ir_type_t *type = &call->problem->out[0];
    if (ir_dtype_is_float(type->dtype)) {
        double sum = ir_element_load(type->dtype, call->out[0], (size_t)at);
        ref_put(call, 0, at, sum + ref_get(call, 0, i));
    } else {
        int64_t sum = ir_element_load_i64(type->dtype, call->out[0], (size_t)at);
        ref_put_int(call, 0, at, (int64_t)((uint64_t)sum + (uint64_t)ref_get_int(call, 0, i)));
    }
}

static void clear(const kern_call_t *call) {
    size_t bytes = ir_type_bytes(&call->problem->out[0]);
    if (bytes) memset(call->out[0], 0, bytes);
}

static st_status_t gather(const kern_call_t *call) {
    const kern_problem_t *problem = call->problem;
    kern_split_t x = kern_split_axis(problem, &problem->in[0]);
    TRY(kern_check_indices(problem, 1, call->in[1], x.axis, x.n));
    size_t row = (size_t)x.inner * ir_dtype_bytes(problem->out[0].dtype);
    int64_t n = ref_elements_in(call, 1);
    for (int64_t o = 0; o < x.outer && row; o++)
        for (int64_t i = 0; i < n; i++)
            memcpy((char *)call->out[0] + (size_t)(o * n + i) * row,
                   (const char *)call->in[0] + (size_t)(o * x.n + index_of(call, 1, i, x.n)) * row,
                   row);
    return ST_OK;
}

static st_status_t scatter_add(const kern_call_t *call) {
    const kern_problem_t *problem = call->problem;
    kern_split_t out = kern_split_axis(problem, &problem->out[0]);
    TRY(kern_check_indices(problem, 1, call->in[1], out.axis, out.n));
    int64_t n = ref_elements_in(call, 1);
    clear(call);
    for (int64_t o = 0; o < out.outer; o++)
        for (int64_t i = 0; i < n; i++) {
            int64_t row = o * out.n + index_of(call, 1, i, out.n);
            for (int64_t k = 0; k < out.inner; k++)
                accumulate(call, row * out.inner + k, (o * n + i) * out.inner + k);
        }
    return ST_OK;
}

/* The index tensor has the rank of `type`; element with coordinates c of the former meets the
 * element of `type` with the same coordinates but for the one along the axis. */
static ref_walk_t walk_along(const ir_type_t *idx, const ir_type_t *type, int32_t axis) {
    int64_t strides[IR_MAX_RANK];
    ref_walk_t walk = ref_walk_over(idx, 1);
    kern_strides(type, strides);
    for (int32_t d = 0; d < idx->rank; d++) walk.stride[0][d] = d == axis ? 0 : strides[d];
    return walk;
}

static st_status_t gather_along(const kern_call_t *call) {
    const kern_problem_t *problem = call->problem;
    kern_split_t x = kern_split_axis(problem, &problem->in[0]);
    TRY(kern_check_indices(problem, 1, call->in[1], x.axis, x.n));
    ref_walk_t walk = walk_along(&problem->in[1], &problem->in[0], x.axis);
    size_t bytes = ir_dtype_bytes(problem->out[0].dtype);
    int64_t n = ref_elements_out(call, 0);
    for (int64_t i = 0; i < n; i++, ref_walk_next(&walk))
        ref_copy(bytes, call->out[0], i, call->in[0],
                 walk.at[0] + index_of(call, 1, i, x.n) * x.inner);
    return ST_OK;
}

static st_status_t scatter_along_add(const kern_call_t *call) {
    const kern_problem_t *problem = call->problem;
    kern_split_t out = kern_split_axis(problem, &problem->out[0]);
    TRY(kern_check_indices(problem, 1, call->in[1], out.axis, out.n));
    clear(call);
    ref_walk_t walk = walk_along(&problem->in[1], &problem->out[0], out.axis);
    int64_t n = ref_elements_in(call, 1);
    for (int64_t i = 0; i < n; i++, ref_walk_next(&walk))
        accumulate(call, walk.at[0] + index_of(call, 1, i, out.n) * out.inner, i);
    return ST_OK;
}

/* Rows that k indices choose among the first k dims of `type`. */
typedef struct nd_rows {
    int64_t n, k, row; /* index tuples, their length, elements a row */
    int64_t strides[IR_MAX_RANK];
} nd_rows_t;

static nd_rows_t nd_rows_of(const kern_problem_t *problem, const ir_type_t *type) {
    const ir_type_t *idx = &problem->in[1];
    nd_rows_t rows = {.n = 1, .k = idx->dims[idx->rank - 1], .row = 1};
    for (int32_t d = 0; d + 1 < idx->rank; d++) rows.n *= idx->dims[d];
    kern_strides(type, rows.strides);
    for (int32_t d = (int32_t)rows.k; d < type->rank; d++) rows.row *= type->dims[d];
    return rows;
}

static st_status_t nd_check(const kern_call_t *call, const nd_rows_t *rows, const ir_type_t *type) {
    for (int64_t i = 0; i < rows->n * rows->k; i++) {
        int32_t dim = (int32_t)(i % rows->k);
        int64_t index = ref_get_int(call, 1, i), size = type->dims[dim];
        if (index < -size || index >= size) return kern_bad_index(index, i, dim, size);
    }
    return ST_OK;
}

/* First element of the row that tuple i chooses. */
static int64_t nd_base(const kern_call_t *call, const nd_rows_t *rows, const ir_type_t *type,
                       int64_t i) {
    int64_t base = 0;
    for (int32_t d = 0; d < rows->k; d++)
        base += rows->strides[d] * index_of(call, 1, i * rows->k + d, type->dims[d]);
    return base;
}

static st_status_t gather_nd(const kern_call_t *call) {
    const ir_type_t *type = &call->problem->in[0];
    nd_rows_t rows = nd_rows_of(call->problem, type);
    TRY(nd_check(call, &rows, type));
    size_t bytes = ir_dtype_bytes(type->dtype), row = (size_t)rows.row * bytes;
    for (int64_t i = 0; i < rows.n && row; i++)
        memcpy((char *)call->out[0] + (size_t)i * row,
               (const char *)call->in[0] + (size_t)nd_base(call, &rows, type, i) * bytes, row);
    return ST_OK;
}

static st_status_t scatter_nd_add(const kern_call_t *call) {
    const ir_type_t *type = &call->problem->out[0];
    nd_rows_t rows = nd_rows_of(call->problem, type);
    TRY(nd_check(call, &rows, type));
    clear(call);
    for (int64_t i = 0; i < rows.n; i++) {
        int64_t base = nd_base(call, &rows, type, i);
        for (int64_t k = 0; k < rows.row; k++) accumulate(call, base + k, i * rows.row + k);
    }
    return ST_OK;
}

REF_IMPL(GATHER, gather, gather)
REF_IMPL(SCATTER_ADD, scatter_add, scatter_add)
REF_IMPL(GATHER_ALONG, gather_along, gather_along)
REF_IMPL(SCATTER_ALONG_ADD, scatter_along_add, scatter_along_add)
REF_IMPL(GATHER_ND, gather_nd, gather_nd)
REF_IMPL(SCATTER_ND_ADD, scatter_nd_add, scatter_nd_add)

extern ref_array_t kern_reference_index;
ref_array_t kern_reference_index = {&ref_impl_gather,
                                    &ref_impl_scatter_add,
                                    &ref_impl_gather_along,
                                    &ref_impl_scatter_along_add,
                                    &ref_impl_gather_nd,
                                    &ref_impl_scatter_nd_add,
                                    NULL};
