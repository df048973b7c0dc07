/* Tensors as the schema of torch.export archives describes them. See pt2_meta.h. */
#include "import/pt2_meta.h"

#include <string.h>

/* PyTorch's ScalarType as its export schema numbers it. 16-bit integers, complex numbers and the
 * fp8 types without infinities and negative zero (fnuz) have no counterpart. */
ir_dtype_t pt2_dtype(int64_t code) {
    static const ir_dtype_t table[] = {
        [1] = IR_U8,    [2] = IR_I8,      [4] = IR_I32,     [5] = IR_I64,
        [6] = IR_F16,   [7] = IR_F32,     [8] = IR_F64,     [12] = IR_BOOL,
        [13] = IR_BF16, [29] = IR_F8E4M3, [30] = IR_F8E5M2,
    };
    return code >= 0 && code < (int64_t)(sizeof table / sizeof table[0]) ? table[code]
                                                                         : IR_DTYPE_NONE;
}

/* {"as_int": 4} or {"as_expr": {"expr_str": "s0", "hint": {"as_int": 4}}} */
static bool read_size(json_object *value, int64_t *out, bool *symbolic) {
    json_object *member;
    const char *tag = import_json_tag(value, &member);
    if (!tag) return false;
    if (strcmp(tag, "as_int") == 0) return import_json_int(member, out);
    if (strcmp(tag, "as_expr") != 0) return false;
    if (symbolic) *symbolic = true;
    const char *hint_tag = import_json_tag(import_json_get(member, "hint"), &member);
    return hint_tag && strcmp(hint_tag, "as_int") == 0 && import_json_int(member, out);
}

st_status_t pt2_meta_read(json_object *meta, const char *name, pt2_meta_t *out) {
    *out = (pt2_meta_t){0};
    int64_t code = 0;
    if (!import_json_int(import_json_get(meta, "dtype"), &code))
        return FAIL(ST_PARSE, "tensor '%s' has no description", name);
    out->type.dtype = pt2_dtype(code);
    if (out->type.dtype == IR_DTYPE_NONE)
        return FAIL(ST_UNSUPPORTED,
                    "tensor '%s' has element type %lld of PyTorch's schema, which is not "
                    "supported",
                    name, (long long)code);
    json_object *sizes = import_json_array(meta, "sizes"),
                *strides = import_json_array(meta, "strides");
    size_t rank = sizes ? json_object_array_length(sizes) : 0;
    if (!sizes || rank > IR_MAX_RANK)
        return FAIL(sizes ? ST_UNSUPPORTED : ST_PARSE, "tensor '%s' has %zu dims, the limit is %d",
                    name, rank, IR_MAX_RANK);
    out->type.rank = (int32_t)rank;
    out->has_strides = strides && json_object_array_length(strides) == rank;
    for (size_t i = 0; i < rank; i++) {
        if (!read_size(json_object_array_get_idx(sizes, i), &out->type.dims[i], &out->symbolic) ||
            out->type.dims[i] < 0)
            return FAIL(ST_UNSUPPORTED,
                        "dim %zu of tensor '%s' has no size: export with static shapes", i, name);
        if (out->has_strides &&
            !read_size(json_object_array_get_idx(strides, i), &out->strides[i], NULL))
            out->has_strides = false;
    }
    json_object *offset = import_json_get(meta, "storage_offset");
    if (offset && !read_size(offset, &out->offset, NULL))
        return FAIL(ST_PARSE, "tensor '%s' has a malformed storage offset", name);
    import_json_bool(meta, "requires_grad", &out->requires_grad);
    return ir_type_check(&out->type);
}
