/* Reference kernels of the ops that only move elements. */
#include <string.h>

#include "kernels/reference/reference.h"

/* out[i] = in[base + strides · coordinates of i] */
static void copy_strided(const kern_call_t *call, int64_t base, const int64_t *strides) {
    const ir_type_t *out = &call->problem->out[0];
    ref_walk_t walk = ref_walk_over(out, 1);
    for (int32_t d = 0; d < out->rank; d++) walk.stride[0][d] = strides[d];
    size_t bytes = ir_dtype_bytes(out->dtype);
    int64_t n = ref_elements_out(call, 0);
    for (int64_t i = 0; i < n; i++, ref_walk_next(&walk))
        ref_copy(bytes, call->out[0], i, call->in[0], base + walk.at[0]);
}

static st_status_t broadcast(const kern_call_t *call) {
    int64_t strides[IR_MAX_RANK];
    kern_broadcast_strides(&call->problem->in[0], &call->problem->out[0], strides);
    copy_strided(call, 0, strides);
    return ST_OK;
}

static st_status_t reshape(const kern_call_t *call) {
    size_t bytes = ir_type_bytes(&call->problem->out[0]);
    if (bytes && call->out[0] != call->in[0]) memmove(call->out[0], call->in[0], bytes);
    return ST_OK;
}

static st_status_t transpose(const kern_call_t *call) {
    int64_t own[IR_MAX_RANK], strides[IR_MAX_RANK];
    kern_strides(&call->problem->in[0], own);
    for (int32_t d = 0; d < call->problem->in[0].rank; d++)
        strides[d] = own[kern_ints(call->problem, "perm", (uint32_t)d, d)];
    copy_strided(call, 0, strides);
    return ST_OK;
}

static st_status_t slice(const kern_call_t *call) {
    int64_t own[IR_MAX_RANK], strides[IR_MAX_RANK], base = 0;
    kern_strides(&call->problem->in[0], own);
    for (int32_t d = 0; d < call->problem->in[0].rank; d++) {
        base += own[d] * kern_ints(call->problem, "begin", (uint32_t)d, 0);
        strides[d] = own[d] * kern_ints(call->problem, "step", (uint32_t)d, 1);
    }
    copy_strided(call, base, strides);
    return ST_OK;
}

static st_status_t flip(const kern_call_t *call) {
    const ir_type_t *type = &call->problem->in[0];
    const ir_attr_t *axes = kern_attr(call->problem, "axes");
    int64_t strides[IR_MAX_RANK], base = 0;
    kern_strides(type, strides);
    for (uint32_t i = 0; i < axes->ints.n; i++) {
        int64_t d = axes->ints.v[i] < 0 ? axes->ints.v[i] + type->rank : axes->ints.v[i];
        base += strides[d] * (type->dims[d] - 1);
        strides[d] = -strides[d];
    }
    copy_strided(call, base, strides);
    return ST_OK;
}

static st_status_t pad(const kern_call_t *call) {
    const ir_type_t *in = &call->problem->in[0], *out = &call->problem->out[0];
    double value = kern_float(call->problem, "value");
    int64_t n = ref_elements_out(call, 0);
    for (int64_t i = 0; i < n; i++) ref_put(call, 0, i, value);
    int64_t strides[IR_MAX_RANK], base = 0;
    kern_strides(out, strides);
    ref_walk_t walk = ref_walk_over(in, 1);
    for (int32_t d = 0; d < in->rank; d++) {
        base += strides[d] * kern_ints(call->problem, "low", (uint32_t)d, 0);
        walk.stride[0][d] = strides[d];
    }
    size_t bytes = ir_dtype_bytes(out->dtype);
    n = ref_elements_in(call, 0);
    for (int64_t i = 0; i < n; i++, ref_walk_next(&walk))
        ref_copy(bytes, call->out[0], base + walk.at[0], call->in[0], i);
    return ST_OK;
}

static st_status_t concat(const kern_call_t *call) {
    const kern_problem_t *problem = call->problem;
    kern_split_t whole = kern_split_axis(problem, &problem->out[0]);
    size_t bytes = ir_dtype_bytes(problem->out[0].dtype);
    int64_t begin = 0;
    for (uint32_t j = 0; j < problem->n_in; j++) {
        int64_t n = problem->in[j].dims[whole.axis];
        size_t run = (size_t)(n * whole.inner) * bytes;
        for (int64_t o = 0; o < whole.outer && run; o++)
            memcpy((char *)call->out[0] + (size_t)((o * whole.n + begin) * whole.inner) * bytes,
                   (const char *)call->in[j] + (size_t)o * run, run);
        begin += n;
    }
    return ST_OK;
}

REF_IMPL(BROADCAST, broadcast, broadcast)
REF_IMPL(RESHAPE, reshape, reshape)
REF_IMPL(TRANSPOSE, transpose, transpose)
REF_IMPL(SLICE, slice, slice)
REF_IMPL(FLIP, flip, flip)
REF_IMPL(PAD, pad, pad)
REF_IMPL(CONCAT, concat, concat)

extern ref_array_t kern_reference_shape;
ref_array_t kern_reference_shape = {
    &ref_impl_broadcast, &ref_impl_reshape, &ref_impl_transpose, &ref_impl_slice,
    &ref_impl_flip,      &ref_impl_pad,     &ref_impl_concat,    NULL};
