/* Values known while importing, as handlers ask for them.
 *
 * ONNX computes shapes with tensors: Shape → Gather → Concat → Reshape. Handlers append such nodes
 * as any other, and ask here for the elements of the value they need (known.h). */
#include "import/onnx_reader.h"
#include "ir/convert.h"

const void *onnx_known(onnx_t *o, ir_value_t value) {
    const void *data = NULL;
    if (onnx_ok(o)) o->b.status = import_known(o->known, o->b.graph, value, &data);
    return data;
}

/* Elements of input i; fails where they are not known. */
static const void *need_known(onnx_t *o, size_t i, ir_type_t *out_type) {
    ir_value_t value = onnx_in_setting(o, i);
    if (onnx_ok(o) && value == IR_NONE) onnx_fail(o, ST_PARSE, "input %zu is missing", i);
    const void *data = onnx_known(o, value);
    if (onnx_ok(o) && !data)
        onnx_fail(o, ST_UNSUPPORTED,
                  "input %zu ('%.128s') is computed from data: shapes, axes and bounds must "
                  "follow from shapes and constants",
                  i, o->node->input[i]);
    if (!onnx_ok(o)) return NULL;
    *out_type = onnx_type(o, value);
    return data;
}

int32_t onnx_known_ints(onnx_t *o, size_t i, int64_t out[ONNX_MAX_LIST]) {
    ir_type_t type;
    const void *data = need_known(o, i, &type);
    if (!data) return -1;
    int64_t n = ir_type_elements(&type);
    if (type.rank > 1 || !ir_dtype_is_integer(type.dtype) || n > ONNX_MAX_LIST) {
        char text[IR_TYPE_TEXT_BYTES];
        onnx_fail(o, ST_INVALID, "input %zu is %s: a list of at most %d integers is needed", i,
                  ir_type_text(&type, text, sizeof text), ONNX_MAX_LIST);
        return -1;
    }
    for (int64_t k = 0; k < n; k++) out[k] = ir_element_load_i64(type.dtype, data, (size_t)k);
    return (int32_t)n;
}

double onnx_known_number(onnx_t *o, size_t i) {
    ir_type_t type;
    const void *data = need_known(o, i, &type);
    if (data && ir_type_elements(&type) != 1) {
        onnx_fail(o, ST_INVALID, "input %zu has %lld elements, one is needed", i,
                  (long long)ir_type_elements(&type));
        return 0;
    }
    return data ? ir_element_load(type.dtype, data, 0) : 0;
}
