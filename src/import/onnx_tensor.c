/* TensorProto: element types, and the several places where its elements may stand. */
#include <string.h>

#include "import/onnx_reader.h"

typedef Onnx__TensorProto tensor_t;

/* By TensorProto.DataType; the numbers are ONNX's, newer ones than the installed schema's included.
 */
static const struct {
    const char *name;
    ir_dtype_t dtype;
} dtypes[] = {
    [1] = {"FLOAT", IR_F32},
    [2] = {"UINT8", IR_U8},
    [3] = {"INT8", IR_I8},
    [4] = {"UINT16", IR_DTYPE_NONE},
    [5] = {"INT16", IR_DTYPE_NONE},
    [6] = {"INT32", IR_I32},
    [7] = {"INT64", IR_I64},
    [8] = {"STRING", IR_DTYPE_NONE},
    [9] = {"BOOL", IR_BOOL},
    [10] = {"FLOAT16", IR_F16},
    [11] = {"DOUBLE", IR_F64},
    [12] = {"UINT32", IR_DTYPE_NONE},
    [13] = {"UINT64", IR_DTYPE_NONE},
    [14] = {"COMPLEX64", IR_DTYPE_NONE},
    [15] = {"COMPLEX128", IR_DTYPE_NONE},
    [16] = {"BFLOAT16", IR_BF16},
    [17] = {"FLOAT8E4M3FN", IR_F8E4M3},
    [18] = {"FLOAT8E4M3FNUZ", IR_DTYPE_NONE},
    [19] = {"FLOAT8E5M2", IR_F8E5M2},
};
enum { N_DTYPES = sizeof dtypes / sizeof dtypes[0] };

ir_dtype_t onnx_dtype(int64_t data_type) {
    return data_type > 0 && data_type < N_DTYPES ? dtypes[data_type].dtype : IR_DTYPE_NONE;
}

const char *onnx_dtype_name(int64_t data_type) {
    return data_type > 0 && data_type < N_DTYPES ? dtypes[data_type].name : "unknown";
}

static st_status_t read_type(const tensor_t *t, const char *name, ir_type_t *out) {
    ir_dtype_t dtype = onnx_dtype(t->data_type);
    if (!t->has_data_type || dtype == IR_DTYPE_NONE)
        return FAIL(ST_UNSUPPORTED,
                    "tensor '%.128s' has elements of type %s (%d), which is not supported", name,
                    onnx_dtype_name(t->data_type), (int)t->data_type);
    if (t->n_dims > IR_MAX_RANK)
        return FAIL(ST_UNSUPPORTED, "tensor '%.128s' has %zu dims, the limit is %d", name,
                    t->n_dims, IR_MAX_RANK);
    *out = ir_type_make(dtype, (int32_t)t->n_dims, t->dims);
    st_status_t status = ir_type_check(out);
    return status == ST_OK ? ST_OK : st_error_context(status, "tensor '%.128s'", name);
}

/* int32_data holds the small types, too: integers by value, floats by bit pattern. */
static st_status_t narrow(onnx_t *o, const tensor_t *t, const char *name, const ir_type_t *type,
                          const void **out) {
    size_t width = ir_dtype_bytes(type->dtype);
    uint8_t *copy = st_arena_array(&o->result->arena, t->n_int32_data, width);
    if (!copy) return st_no_memory(t->n_int32_data * width, name);
    bool is_signed = type->dtype == IR_I8;
    int32_t low = is_signed ? INT8_MIN : 0;
    int32_t high = is_signed ? INT8_MAX : type->dtype == IR_BOOL ? 1 : width == 1 ? 255 : 65535;
    for (size_t i = 0; i < t->n_int32_data; i++) {
        int32_t v = t->int32_data[i];
        if (v < low || v > high)
            return FAIL(ST_PARSE, "tensor '%.128s': element %zu is %d, outside of its type %s",
                        name, i, v, ir_dtype_text(type->dtype));
        if (width == 1) {
            copy[i] = (uint8_t)v;
        } else {
            uint16_t bits = (uint16_t)v;
            memcpy(copy + 2 * i, &bits, 2);
        }
    }
    *out = copy;
    return ST_OK;
}

/* Elements in the field of their type. */
static st_status_t typed_data(onnx_t *o, const tensor_t *t, const char *name, const ir_type_t *type,
                              const void **out) {
    size_t wanted = (size_t)ir_type_elements(type), given = t->n_int32_data;
    *out = t->int32_data;
    if (type->dtype == IR_F32) given = t->n_float_data, *out = t->float_data;
    if (type->dtype == IR_F64) given = t->n_double_data, *out = t->double_data;
    if (type->dtype == IR_I64) given = t->n_int64_data, *out = t->int64_data;
    if (given != wanted)
        return FAIL(ST_PARSE, "tensor '%.128s' has %zu elements, its shape needs %zu", name, given,
                    wanted);
    if (ir_dtype_bytes(type->dtype) < 4 && wanted) return narrow(o, t, name, type, out);
    return ST_OK;
}

/* Bytes other than 0 and 1 are no bools: what reads them may count on it. */
static st_status_t check_bools(const char *name, const uint8_t *data, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        if (data[i] > 1)
            return FAIL(ST_PARSE, "tensor '%.128s': element %zu of type bool is %d", name, i,
                        data[i]);
    return ST_OK;
}

st_status_t onnx_tensor_read(onnx_t *o, const tensor_t *t, const char *name, ir_type_t *out_type,
                             const void **out_data) {
    TRY(read_type(t, name, out_type));
    size_t bytes = ir_type_bytes(out_type);
    bool external =
        t->has_data_location && t->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
    if (t->segment) return FAIL(ST_UNSUPPORTED, "tensor '%.128s' is stored in segments", name);
    if (external) {
        TRY(onnx_external_read(o, t, name, bytes, out_data));
    } else if (t->has_raw_data) {
        if (t->raw_data.len != bytes) {
            char text[IR_TYPE_TEXT_BYTES];
            return FAIL(ST_PARSE, "tensor '%.128s' has %zu bytes, %s needs %zu", name,
                        t->raw_data.len, ir_type_text(out_type, text, sizeof text), bytes);
        }
        *out_data = t->raw_data.data;
    } else {
        TRY(typed_data(o, t, name, out_type, out_data));
    }
    if (bytes == 0) *out_data = "";
    if (out_type->dtype == IR_BOOL) return check_bools(name, *out_data, bytes);
    return ST_OK;
}
