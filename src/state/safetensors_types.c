/* Type table, sizes and checksums of safetensors. */
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "state/safetensors_internal.h"

typedef struct stored_type {
    const char *text;
    size_t bytes;
    ir_dtype_t ir;
} stored_type_t;

static const stored_type_t stored_types[SAFETENSORS_N_DTYPES] = {
#define STORED(name, text, bytes, ir) [SAFETENSORS_##name] = {text, bytes, ir},
#include "state/safetensors.def"
#undef STORED
};

const char *safetensors_dtype_text(safetensors_dtype_t dtype) {
    return (unsigned)dtype < SAFETENSORS_N_DTYPES ? stored_types[dtype].text : "no type";
}

size_t safetensors_dtype_bytes(safetensors_dtype_t dtype) {
    return (unsigned)dtype < SAFETENSORS_N_DTYPES ? stored_types[dtype].bytes : 0;
}

ir_dtype_t safetensors_to_ir(safetensors_dtype_t dtype) {
    return (unsigned)dtype < SAFETENSORS_N_DTYPES ? stored_types[dtype].ir : IR_DTYPE_NONE;
}

safetensors_dtype_t safetensors_from_ir(ir_dtype_t dtype) {
    for (int i = 0; i < SAFETENSORS_N_DTYPES && dtype != IR_DTYPE_NONE; i++) {
        if (stored_types[i].ir == dtype) return (safetensors_dtype_t)i;
    }
    return SAFETENSORS_N_DTYPES;
}

uint64_t safetensors_tensor_seed(const safetensors_tensor_t *tensor) {
    uint64_t seed = st_hash_string(tensor->name);
    seed = st_hash64(tensor->dims, sizeof(int64_t) * (size_t)tensor->rank, seed);
    const char *type = safetensors_dtype_text(tensor->dtype);
    return st_hash64(type, strlen(type), seed);
}

uint64_t safetensors_tensor_hash(const safetensors_tensor_t *tensor) {
    return st_hash64(tensor->data, tensor->bytes, safetensors_tensor_seed(tensor));
}

uint64_t safetensors_metadata_hash(uint64_t hash, const char *key, const char *value) {
    hash = st_hash64(key, strlen(key), hash);
    return st_hash64(value, strlen(value), hash);
}

bool safetensors_shape_bytes(safetensors_dtype_t dtype, int32_t rank, const int64_t *dims,
                             size_t *out_bytes) {
    size_t bytes = safetensors_dtype_bytes(dtype);
    bool is_empty = false;
    for (int32_t i = 0; i < rank; i++) {
        if (dims[i] < 0) return false;
        if (dims[i] == 0) is_empty = true;
        if (dims[i] > 0 && !st_mul_size(bytes, (size_t)dims[i], &bytes)) return false;
    }
    *out_bytes = is_empty ? 0 : bytes;
    return bytes <= INT64_MAX;
}
