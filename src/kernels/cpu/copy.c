/* Ops that only move elements, of any type: one engine copies between two strided views. Rows that
 * are contiguous on both sides go through memcpy; where reading runs across (a transpose of the
 * last dim) tiles keep both sides within a few cache lines. */
#include <string.h>

#include "ir/convert.h"
#include "kernels/cpu/cpu.h"

enum { TO = 0, FROM = 1, TILE = 32 };

typedef struct copy_job {
    cpu_walk_t walk; /* operands TO and FROM */
    size_t bytes;    /* of an element */
    char *out;
    const char *in;
    /* transposing: dims `read` (unit stride of FROM) and the last one (unit stride of TO) form a
     * plane */
    int32_t read;
    int64_t read_blocks;
} copy_job_t;

#define COPY_ROW(type)                                                                           \
    static void copy_##type(void *to, int64_t to_stride, const void *from, int64_t from_stride,  \
                            int64_t n) {                                                         \
        type *y = to;                                                                            \
        const type *x = from;                                                                    \
        if (to_stride == 1 && from_stride == 0) {                                                \
            const type value = *x;                                                               \
            for (int64_t i = 0; i < n; i++) y[i] = value;                                        \
        } else if (to_stride == 1) {                                                             \
            for (int64_t i = 0; i < n; i++) y[i] = x[i * from_stride];                           \
        } else {                                                                                 \
            for (int64_t i = 0; i < n; i++) y[i * to_stride] = x[i * from_stride];               \
        }                                                                                        \
    }                                                                                            \
    static void tile_##type(void *to, int64_t to_stride, const void *from, int64_t from_stride,  \
                            int64_t rows, int64_t columns) {                                     \
        type *y = to;                                                                            \
        const type *x = from;                                                                    \
        for (int64_t r = 0; r < rows; r++)                                                       \
            for (int64_t c = 0; c < columns; c++) y[r * to_stride + c] = x[c * from_stride + r]; \
    }
COPY_ROW(uint8_t)
COPY_ROW(uint16_t)
COPY_ROW(uint32_t)
COPY_ROW(uint64_t)

static void copy_row(size_t bytes, char *to, int64_t to_stride, const char *from,
                     int64_t from_stride, int64_t n) {
    if (to_stride == 1 && from_stride == 1) {
        memcpy(to, from, (size_t)n * bytes);
    } else if (bytes == 4) {
        copy_uint32_t(to, to_stride, from, from_stride, n);
    } else if (bytes == 8) {
        copy_uint64_t(to, to_stride, from, from_stride, n);
    } else if (bytes == 2) {
        copy_uint16_t(to, to_stride, from, from_stride, n);
    } else {
        copy_uint8_t(to, to_stride, from, from_stride, n);
    }
}

static void copy_chunk(void *arg, int64_t begin, int64_t end, int thread) {
    const copy_job_t *job = arg;
    (void)thread;
    int32_t last = job->walk.rank - 1;
    cpu_cursor_t cursor = cpu_cursor_at(&job->walk, begin);
    while (begin < end) {
        int64_t n = cpu_min(job->walk.dims[last] - cursor.coord[last], end - begin);
        copy_row(job->bytes, job->out + cursor.at[TO] * (int64_t)job->bytes,
                 job->walk.stride[TO][last], job->in + cursor.at[FROM] * (int64_t)job->bytes,
                 job->walk.stride[FROM][last], n);
        begin += n;
        if (begin < end) cpu_cursor_move(&job->walk, &cursor, n);
    }
}

/* One task: TILE steps of `read` along the whole last dim, for one position of the other dims. */
static void tile_chunk(void *arg, int64_t begin, int64_t end, int thread) {
    const copy_job_t *job = arg;
    const cpu_walk_t *walk = &job->walk;
    (void)thread;
    int32_t last = walk->rank - 1;
    for (int64_t task = begin; task < end; task++) {
        int64_t rest = task / job->read_blocks, first = task % job->read_blocks * TILE;
        int64_t at[2] = {first * walk->stride[TO][job->read], first};
        for (int32_t d = last - 1; d >= 0; d--) {
            if (d == job->read) continue;
            int64_t c = rest % walk->dims[d];
            rest /= walk->dims[d];
            for (int k = 0; k < 2; k++) at[k] += c * walk->stride[k][d];
        }
        int64_t rows = cpu_min(TILE, walk->dims[job->read] - first);
        int64_t bytes = (int64_t)job->bytes, to_stride = walk->stride[TO][job->read];
        int64_t from_stride = walk->stride[FROM][last];
        for (int64_t c = 0; c < walk->dims[last]; c += TILE) {
            int64_t columns = cpu_min(TILE, walk->dims[last] - c);
            char *to = job->out + (at[TO] + c) * bytes;
            const char *from = job->in + (at[FROM] + c * from_stride) * bytes;
            if (bytes == 4)
                tile_uint32_t(to, to_stride, from, from_stride, rows, columns);
            else if (bytes == 8)
                tile_uint64_t(to, to_stride, from, from_stride, rows, columns);
            else if (bytes == 2)
                tile_uint16_t(to, to_stride, from, from_stride, rows, columns);
            else
                tile_uint8_t(to, to_stride, from, from_stride, rows, columns);
        }
    }
}

/* Copies dims[] elements between views that begin at `out` and `in`. */
static void copy_views(dev_team_t *team, size_t bytes, int32_t rank, const int64_t *dims, void *out,
                       const int64_t *out_strides, const void *in, const int64_t *in_strides) {
    copy_job_t job = {.walk = {.rank = rank, .n = 2, .elements = 1},
                      .bytes = bytes,
                      .out = out,
                      .in = in,
                      .read = -1};
    for (int32_t d = 0; d < rank; d++) {
        job.walk.elements *= dims[d];
        job.walk.dims[d] = dims[d];
        job.walk.stride[TO][d] = out_strides[d];
        job.walk.stride[FROM][d] = in_strides[d];
    }
    if (job.walk.elements == 0) return;
    cpu_walk_merge(&job.walk);
    int32_t last = job.walk.rank - 1;
    bool across = job.walk.stride[TO][last] == 1 && job.walk.stride[FROM][last] > 1;
    for (int32_t d = 0; d < last && across; d++)
        if (job.walk.stride[FROM][d] == 1) job.read = d;
    if (job.read < 0) {
        dev_team_for(team, job.walk.elements, CPU_GRAIN, copy_chunk, &job);
        return;
    }
    job.read_blocks = cpu_ceil(job.walk.dims[job.read], TILE);
    int64_t plane = job.walk.dims[job.read] * job.walk.dims[last];
    int64_t tasks = job.walk.elements / plane * job.read_blocks;
    dev_team_for(team, tasks, cpu_row_grain(TILE * job.walk.dims[last]), tile_chunk, &job);
}

static st_status_t broadcast(const kern_call_t *call) {
    const ir_type_t *in = &call->problem->in[0], *out = &call->problem->out[0];
    int64_t to[IR_MAX_RANK], from[IR_MAX_RANK];
    kern_strides(out, to);
    kern_broadcast_strides(in, out, from);
    copy_views(call->team, ir_dtype_bytes(out->dtype), out->rank, out->dims, call->out[0], to,
               call->in[0], from);
    return ST_OK;
}

static st_status_t reshape(const kern_call_t *call) {
    const ir_type_t *out = &call->problem->out[0];
    int64_t n = ir_type_elements(out), one = 1;
    if (call->out[0] != call->in[0])
        copy_views(call->team, ir_dtype_bytes(out->dtype), 1, &n, call->out[0], &one, call->in[0],
                   &one);
    return ST_OK;
}

static st_status_t transpose(const kern_call_t *call) {
    const ir_type_t *out = &call->problem->out[0];
    int64_t to[IR_MAX_RANK], own[IR_MAX_RANK], from[IR_MAX_RANK];
    kern_strides(out, to);
    kern_strides(&call->problem->in[0], own);
    for (int32_t d = 0; d < out->rank; d++)
        from[d] = own[kern_ints(call->problem, "perm", (uint32_t)d, d)];
    copy_views(call->team, ir_dtype_bytes(out->dtype), out->rank, out->dims, call->out[0], to,
               call->in[0], from);
    return ST_OK;
}

static st_status_t slice(const kern_call_t *call) {
    const ir_type_t *out = &call->problem->out[0];
    int64_t to[IR_MAX_RANK], from[IR_MAX_RANK], base = 0;
    if (ir_type_elements(out) == 0) return ST_OK;
    kern_strides(out, to);
    kern_strides(&call->problem->in[0], from);
    for (int32_t d = 0; d < out->rank; d++) {
        base += from[d] * kern_ints(call->problem, "begin", (uint32_t)d, 0);
        from[d] *= kern_ints(call->problem, "step", (uint32_t)d, 1);
    }
    size_t bytes = ir_dtype_bytes(out->dtype);
    copy_views(call->team, bytes, out->rank, out->dims, call->out[0], to,
               (const char *)call->in[0] + base * (int64_t)bytes, from);
    return ST_OK;
}

static st_status_t flip(const kern_call_t *call) {
    const ir_type_t *out = &call->problem->out[0];
    const ir_attr_t *axes = kern_attr(call->problem, "axes");
    int64_t to[IR_MAX_RANK], from[IR_MAX_RANK], base = 0;
    if (ir_type_elements(out) == 0) return ST_OK;
    kern_strides(out, to);
    kern_strides(out, from);
    for (uint32_t i = 0; i < axes->ints.n; i++) {
        int64_t d = axes->ints.v[i];
        base += from[d] * (out->dims[d] - 1);
        from[d] = -from[d];
    }
    size_t bytes = ir_dtype_bytes(out->dtype);
    copy_views(call->team, bytes, out->rank, out->dims, call->out[0], to,
               (const char *)call->in[0] + base * (int64_t)bytes, from);
    return ST_OK;
}

static st_status_t pad(const kern_call_t *call) {
    const ir_type_t *in = &call->problem->in[0], *out = &call->problem->out[0];
    size_t bytes = ir_dtype_bytes(out->dtype);
    uint64_t value = 0;
    ir_element_store(out->dtype, &value, 0, kern_float(call->problem, "value"));
    int64_t n = ir_type_elements(out), one = 1, zero = 0;
    copy_views(call->team, bytes, 1, &n, call->out[0], &one, &value, &zero);
    int64_t to[IR_MAX_RANK], from[IR_MAX_RANK], base = 0;
    if (ir_type_elements(in) == 0) return ST_OK;
    kern_strides(out, to);
    kern_strides(in, from);
    for (int32_t d = 0; d < out->rank; d++)
        base += to[d] * kern_ints(call->problem, "low", (uint32_t)d, 0);
    copy_views(call->team, bytes, in->rank, in->dims, (char *)call->out[0] + base * (int64_t)bytes,
               to, call->in[0], from);
    return ST_OK;
}

static st_status_t concat(const kern_call_t *call) {
    const kern_problem_t *problem = call->problem;
    const ir_type_t *out = &problem->out[0];
    int32_t axis = (int32_t)kern_int(problem, "axis");
    size_t bytes = ir_dtype_bytes(out->dtype);
    int64_t to[IR_MAX_RANK], from[IR_MAX_RANK], base = 0;
    kern_strides(out, to);
    for (uint32_t j = 0; j < problem->n_in; j++) {
        const ir_type_t *in = &problem->in[j];
        kern_strides(in, from);
        if (ir_type_elements(in))
            copy_views(call->team, bytes, in->rank, in->dims,
                       (char *)call->out[0] + base * (int64_t)bytes, to, call->in[j], from);
        base += to[axis] * in->dims[axis];
    }
    return ST_OK;
}

CPU_IMPL(BROADCAST, broadcast, NULL, NULL, broadcast)
CPU_IMPL(RESHAPE, reshape, NULL, NULL, reshape)
CPU_IMPL(TRANSPOSE, transpose, NULL, NULL, transpose)
CPU_IMPL(SLICE, slice, NULL, NULL, slice)
CPU_IMPL(FLIP, flip, NULL, NULL, flip)
CPU_IMPL(PAD, pad, NULL, NULL, pad)
CPU_IMPL(CONCAT, concat, NULL, NULL, concat)

extern cpu_array_t KERN_SYMBOL(kern_cpu_copy);
cpu_array_t KERN_SYMBOL(kern_cpu_copy) = {
    &cpu_impl_broadcast, &cpu_impl_reshape, &cpu_impl_transpose, &cpu_impl_slice,
    &cpu_impl_flip,      &cpu_impl_pad,     &cpu_impl_concat,    NULL};
