/* Reference kernels of the sources and of dropout. */
#include <string.h>

#include "base/hash.h"
#include "kernels/reference/reference.h"

static st_status_t constant(const kern_call_t *call) {
    const ir_type_t *type = &call->problem->out[0];
    const ir_attr_t *data = kern_attr(call->problem, "data");
    size_t bytes = ir_type_bytes(type), each = ir_dtype_bytes(type->dtype);
    if (!bytes) return ST_OK;
    if (data->data.bytes == bytes) {
        memcpy(call->out[0], data->data.p, bytes);
        return ST_OK;
    }
    int64_t n = ir_type_elements(type);
    for (int64_t i = 0; i < n; i++)
        memcpy((char *)call->out[0] + (size_t)i * each, data->data.p, each);
    return ST_OK;
}

static st_status_t iota(const kern_call_t *call) {
    const ir_type_t *type = &call->problem->out[0];
    kern_split_t split = kern_split_axis(call->problem, type);
    double start = kern_float(call->problem, "start"), step = kern_float(call->problem, "step");
    bool real = ir_dtype_is_float(type->dtype);
    for (int64_t i = 0; i < ir_type_elements(type); i++) {
        int64_t at = i / split.inner % split.n;
        if (real)
            ref_put(call, 0, i, start + step * (double)at);
        else
            ref_put_int(call, 0, i, (int64_t)start + (int64_t)step * at);
    }
    return ST_OK;
}

/* Bits of a random word that a dtype holds without rounding up to 1: the result stays below it. */
static int uniform_bits(ir_dtype_t dtype) {
    switch (dtype) {
        case IR_F16:
            return 11;
        case IR_BF16:
            return 8;
        case IR_F8E4M3:
            return 4;
        case IR_F8E5M2:
            return 3;
        default:
            return 24;
    }
}

static st_status_t random_uniform(const kern_call_t *call) {
    const ir_type_t *type = &call->problem->out[0];
    kern_global_t global = kern_global_of(call->problem, type);
    if (call->problem->n_in > 2) kern_global_at_part(&global, ref_get_int(call, 2, 0));
    int64_t id = kern_int(call->problem, "id");
    int64_t seed = ref_get_int(call, 0, 0), step = ref_get_int(call, 1, 0);
    int bits = uniform_bits(type->dtype);
    for (int64_t i = 0; i < ir_type_elements(type); i++) {
        uint32_t word = kern_random_word(seed, id, step, kern_global_index(&global, i));
        ref_put(call, 0, i, (double)(word >> (32 - bits)) / (double)(1u << bits));
    }
    return ST_OK;
}

static st_status_t dropout(const kern_call_t *call) {
    const ir_type_t *type = &call->problem->out[0];
    kern_global_t global = kern_global_of(call->problem, type);
    if (call->problem->n_in > 3) kern_global_at_part(&global, ref_get_int(call, 3, 0));
    int64_t id = kern_int(call->problem, "id");
    double p = kern_float(call->problem, "p");
    bool train = kern_int(call->problem, "train") != 0;
    int64_t seed = ref_get_int(call, 1, 0), step = ref_get_int(call, 2, 0);
    for (int64_t i = 0; i < ir_type_elements(type); i++) {
        double x = ref_get(call, 0, i);
        if (train) {
            uint32_t word = kern_random_word(seed, id, step, kern_global_index(&global, i));
            x = (double)st_uniform24(word) < p ? 0 : x / (1 - p);
        }
        ref_put(call, 0, i, x);
    }
    return ST_OK;
}

REF_IMPL(CONSTANT, constant, constant)
REF_IMPL(IOTA, iota, iota)
REF_IMPL(RANDOM_UNIFORM, random_uniform, random_uniform)
REF_IMPL(DROPOUT, dropout, dropout)

extern ref_array_t kern_reference_source;
ref_array_t kern_reference_source = {&ref_impl_constant, &ref_impl_iota, &ref_impl_random_uniform,
                                     &ref_impl_dropout, NULL};
