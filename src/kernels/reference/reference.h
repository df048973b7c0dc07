/* The reference kernels: one plain loop an op over elements of any dtype, all arithmetic in double
 * (or int64 for integers) and one rounding at the store. They are what the fast kernels are
 * compared with first, what runs where nothing faster can, and what constant folding falls back to.
 */
#ifndef STATOR_KERNELS_REFERENCE_REFERENCE_H
#define STATOR_KERNELS_REFERENCE_REFERENCE_H

#include "ir/convert.h"
#include "kernels/problem.h"

typedef const kern_impl_t *const ref_array_t[];

#define REF_IMPL(op_enum, text, launch_fn)                                         \
    static const kern_impl_t ref_impl_##text = {.name = "cpu." #text ".reference", \
                                                .op = IR_OP_##op_enum,             \
                                                .reference = true,                 \
                                                .launch = (launch_fn)};

static inline double ref_get(const kern_call_t *call, uint32_t input, int64_t i) {
    return ir_element_load(call->problem->in[input].dtype, call->in[input], (size_t)i);
}
static inline int64_t ref_get_int(const kern_call_t *call, uint32_t input, int64_t i) {
    return ir_element_load_i64(call->problem->in[input].dtype, call->in[input], (size_t)i);
}
static inline void ref_put(const kern_call_t *call, uint32_t output, int64_t i, double value) {
    ir_element_store(call->problem->out[output].dtype, call->out[output], (size_t)i, value);
}
static inline void ref_put_int(const kern_call_t *call, uint32_t output, int64_t i, int64_t value) {
    ir_element_store_i64(call->problem->out[output].dtype, call->out[output], (size_t)i, value);
}
static inline bool ref_is_float(const kern_call_t *call, uint32_t input) {
    return ir_dtype_is_float(call->problem->in[input].dtype);
}
static inline int64_t ref_elements_out(const kern_call_t *call, uint32_t output) {
    return ir_type_elements(&call->problem->out[output]);
}
static inline int64_t ref_elements_in(const kern_call_t *call, uint32_t input) {
    return ir_type_elements(&call->problem->in[input]);
}

/* Walks the elements of `type` in row-major order and keeps up to 4 strided offsets along. */
enum { REF_WALK_OFFSETS = 4 };
typedef struct ref_walk {
    int32_t rank, n;
    int64_t dims[IR_MAX_RANK], coord[IR_MAX_RANK];
    int64_t stride[REF_WALK_OFFSETS][IR_MAX_RANK];
    int64_t at[REF_WALK_OFFSETS];
} ref_walk_t;
static inline ref_walk_t ref_walk_over(const ir_type_t *type, int32_t n) {
    ref_walk_t walk = {.rank = type->rank, .n = n};
    for (int32_t i = 0; i < type->rank; i++) walk.dims[i] = type->dims[i];
    return walk;
}
static inline void ref_walk_next(ref_walk_t *walk) {
    for (int32_t d = walk->rank - 1; d >= 0; d--) {
        for (int32_t k = 0; k < walk->n; k++) walk->at[k] += walk->stride[k][d];
        if (++walk->coord[d] < walk->dims[d]) return;
        for (int32_t k = 0; k < walk->n; k++) walk->at[k] -= walk->stride[k][d] * walk->dims[d];
        walk->coord[d] = 0;
    }
}
/* Copies one element of `bytes` bytes. */
static inline void ref_copy(size_t bytes, void *to, int64_t to_index, const void *from,
                            int64_t from_index) {
    __builtin_memcpy((char *)to + (size_t)to_index * bytes,
                     (const char *)from + (size_t)from_index * bytes, bytes);
}

#endif
