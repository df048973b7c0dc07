#include "ir/types.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"

typedef struct dtype_row {
    const char *text;
    size_t bytes;
    char kind;
} dtype_row_t;

static const dtype_row_t rows[IR_DTYPE_END] = {
    [IR_DTYPE_NONE] = {"none", 0, 0},
#define DTYPE(name, text, wire, bytes, kind) [IR_##name] = {#text, bytes, kind},
#include "ir/dtypes.def"
#undef DTYPE
};

static const dtype_row_t *row_of(ir_dtype_t dtype) {
    return &rows[ir_dtype_valid((int64_t)dtype) ? dtype : IR_DTYPE_NONE];
}

bool ir_dtype_valid(int64_t wire) {
    return wire > 0 && wire < IR_DTYPE_END && rows[wire].text != NULL;
}
const char *ir_dtype_text(ir_dtype_t dtype) {
    return row_of(dtype)->text;
}
ir_dtype_t ir_dtype_parse(const char *text) {
    for (int i = 1; i < IR_DTYPE_END; i++)
        if (rows[i].text && strcmp(rows[i].text, text) == 0) return (ir_dtype_t)i;
    return IR_DTYPE_NONE;
}
size_t ir_dtype_bytes(ir_dtype_t dtype) {
    return row_of(dtype)->bytes;
}
bool ir_dtype_is_float(ir_dtype_t dtype) {
    return row_of(dtype)->kind == 'f';
}
bool ir_dtype_is_integer(ir_dtype_t dtype) {
    return row_of(dtype)->kind == 'i' || row_of(dtype)->kind == 'u';
}

ir_type_t ir_type_make(ir_dtype_t dtype, int32_t rank, const int64_t *dims) {
    ir_type_t type = {.dtype = dtype, .rank = rank};
    for (int32_t i = 0; i < rank && i < IR_MAX_RANK; i++) type.dims[i] = dims[i];
    return type;
}
ir_type_t ir_type_scalar(ir_dtype_t dtype) {
    return (ir_type_t){.dtype = dtype};
}
bool ir_dims_equal(const ir_type_t *a, const ir_type_t *b) {
    if (a->rank != b->rank) return false;
    for (int32_t i = 0; i < a->rank; i++)
        if (a->dims[i] != b->dims[i]) return false;
    return true;
}
ir_type_t ir_type_drop_first(const ir_type_t *type) {
    return ir_type_make(type->dtype, type->rank - 1, type->dims + 1);
}
ir_type_t ir_type_add_first(const ir_type_t *type, int64_t dim) {
    int64_t dims[IR_MAX_RANK] = {dim};
    for (int32_t i = 0; i + 1 < IR_MAX_RANK && i < type->rank; i++) dims[i + 1] = type->dims[i];
    return ir_type_make(type->dtype, type->rank + 1, dims);
}
bool ir_type_equal(const ir_type_t *a, const ir_type_t *b) {
    return a->dtype == b->dtype && ir_dims_equal(a, b);
}
int64_t ir_type_elements(const ir_type_t *type) {
    int64_t n = 1;
    for (int32_t i = 0; i < type->rank; i++) n *= type->dims[i];
    return n;
}
size_t ir_type_bytes(const ir_type_t *type) {
    return (size_t)ir_type_elements(type) * ir_dtype_bytes(type->dtype);
}

st_status_t ir_type_check(const ir_type_t *type) {
    if (!ir_dtype_valid((int64_t)type->dtype))
        return FAIL(ST_INVALID, "element type %d is not known", (int)type->dtype);
    if (type->rank < 0 || type->rank > IR_MAX_RANK)
        return FAIL(ST_INVALID, "rank %d is outside 0 … %d", (int)type->rank, IR_MAX_RANK);
    /* a zero dim must not hide an overflow of the others: sizes are computed without it */
    int64_t bytes = (int64_t)ir_dtype_bytes(type->dtype);
    for (int32_t i = 0; i < type->rank; i++) {
        if (type->dims[i] < 0)
            return FAIL(ST_INVALID, "dim %d is negative: %lld", (int)i, (long long)type->dims[i]);
        int64_t factor = type->dims[i] ? type->dims[i] : 1;
        if (!st_mul_i64(bytes, factor, &bytes) || bytes > INT64_MAX / 2) {
            char text[IR_TYPE_TEXT_BYTES];
            return FAIL(ST_DOES_NOT_FIT, "the size of %s overflows 63 bits",
                        ir_type_text(type, text, sizeof text));
        }
    }
    return ST_OK;
}

char *ir_type_text(const ir_type_t *type, char *buffer, size_t capacity) {
    size_t used = (size_t)snprintf(buffer, capacity, "%s[", ir_dtype_text(type->dtype));
    for (int32_t i = 0; i < type->rank && i < IR_MAX_RANK && used < capacity; i++)
        used += (size_t)snprintf(buffer + used, capacity - used, "%s%lld", i ? "," : "",
                                 (long long)type->dims[i]);
    if (used < capacity) snprintf(buffer + used, capacity - used, "]");
    return buffer;
}

st_status_t ir_dims_broadcast(const ir_type_t *a, const ir_type_t *b, ir_type_t *out) {
    int32_t rank = a->rank > b->rank ? a->rank : b->rank;
    *out = (ir_type_t){.dtype = a->dtype, .rank = rank};
    for (int32_t i = 0; i < rank; i++) {
        int32_t ia = i - (rank - a->rank), ib = i - (rank - b->rank);
        int64_t da = ia < 0 ? 1 : a->dims[ia], db = ib < 0 ? 1 : b->dims[ib];
        if (da != db && da != 1 && db != 1) {
            char ta[IR_TYPE_TEXT_BYTES], tb[IR_TYPE_TEXT_BYTES];
            return FAIL(ST_INVALID, "shapes %s and %s do not broadcast: dim %d is %lld and %lld",
                        ir_type_text(a, ta, sizeof ta), ir_type_text(b, tb, sizeof tb), (int)i,
                        (long long)da, (long long)db);
        }
        out->dims[i] = da == 1 ? db : da;
    }
    return ST_OK;
}

st_status_t ir_axis_normalize(int64_t axis, int32_t rank, int32_t *out_axis) {
    if (axis < -(int64_t)rank || axis >= rank)
        return FAIL(ST_INVALID, "axis %lld is outside -%d … %d", (long long)axis, (int)rank,
                    (int)rank - 1);
    *out_axis = (int32_t)(axis < 0 ? axis + rank : axis);
    return ST_OK;
}
