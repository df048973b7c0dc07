/* What handlers of ONNX nodes call: inputs, attributes, results, failures. */
#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "import/onnx_reader.h"
#include "ir/convert.h"

void onnx_fail(onnx_t *o, st_status_t status, const char *format, ...) {
    if (o->b.status != ST_OK) return;
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    o->b.status = FAIL(status, "%s", text);
}

ir_type_t onnx_type(const onnx_t *o, ir_value_t value) {
    return *ir_b_type(&o->b, value);
}

/* ---- inputs ---- */

size_t onnx_n_inputs(const onnx_t *o) {
    size_t n = o->node->n_input;
    while (n > 0 && !o->node->input[n - 1][0]) n--;
    return n;
}

bool onnx_has_input(const onnx_t *o, size_t i) {
    return i < o->node->n_input && o->node->input[i][0];
}

ir_value_t onnx_in_or_none(onnx_t *o, size_t i) {
    if (!onnx_ok(o) || !onnx_has_input(o, i)) return IR_NONE;
    return onnx_named(o, o->node->input[i]);
}

ir_value_t onnx_in(onnx_t *o, size_t i) {
    if (onnx_ok(o) && !onnx_has_input(o, i)) onnx_fail(o, ST_PARSE, "input %zu is missing", i);
    return onnx_in_or_none(o, i);
}

ir_value_t onnx_in_setting(onnx_t *o, size_t i) {
    if (!onnx_ok(o) || !onnx_has_input(o, i)) return IR_NONE;
    onnx_value_t *value = onnx_lookup(o, o->node->input[i]);
    if (!value || !value->initializer) return onnx_named(o, o->node->input[i]);
    if (value->setting == IR_NONE)
        value->setting = onnx_constant(o, value->initializer, value->name);
    return value->setting;
}

bool onnx_wants(const onnx_t *o, size_t output) {
    return output < o->node->n_output && o->node->output[output][0];
}

bool onnx_same_dtype(onnx_t *o, ir_value_t x, ir_value_t y) {
    ir_type_t tx = onnx_type(o, x), ty = onnx_type(o, y);
    char a[IR_TYPE_TEXT_BYTES], b[IR_TYPE_TEXT_BYTES];
    if (onnx_ok(o) && tx.dtype != ty.dtype)
        onnx_fail(o, ST_INVALID, "inputs %s and %s: one element type is needed",
                  ir_type_text(&tx, a, sizeof a), ir_type_text(&ty, b, sizeof b));
    return onnx_ok(o);
}

/* ---- attributes ---- */

const Onnx__AttributeProto *onnx_attribute(onnx_t *o, const char *name) {
    if (!onnx_ok(o)) return NULL;
    for (size_t i = 0; i < o->node->n_attribute; i++) {
        const Onnx__AttributeProto *attribute = o->node->attribute[i];
        if (!attribute->name || strcmp(attribute->name, name) != 0) continue;
        if (i < 64) o->used |= UINT64_C(1) << i;
        if (attribute->ref_attr_name && attribute->ref_attr_name[0]) {
            onnx_fail(o, ST_PARSE, "attribute '%s' refers to a function's attribute", name);
            return NULL;
        }
        return attribute;
    }
    return NULL;
}

/* The attribute if it is there; fails if its type is another. Old files leave the type out. */
static const Onnx__AttributeProto *typed(onnx_t *o, const char *name,
                                         Onnx__AttributeProto__AttributeType type, bool present,
                                         const Onnx__AttributeProto *attribute) {
    if (!attribute) return NULL;
    bool typed = attribute->has_type && attribute->type != 0;
    if (present && (!typed || attribute->type == type)) return attribute;
    onnx_fail(o, ST_PARSE, "attribute '%s' is of another type than the op's definition says", name);
    return NULL;
}

bool onnx_has(onnx_t *o, const char *name) {
    return onnx_attribute(o, name) != NULL;
}

int64_t onnx_int(onnx_t *o, const char *name, int64_t default_value) {
    const Onnx__AttributeProto *a = onnx_attribute(o, name);
    a = typed(o, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT, a && a->has_i, a);
    return a ? a->i : default_value;
}

bool onnx_flag(onnx_t *o, const char *name, bool default_value) {
    return onnx_int(o, name, default_value) != 0;
}

/* The number that the exporter was given. Attributes are f32 in the file, but stand for decimals
 * written in a program: 0.9 is there as 0.899999976, which in an f64 step would be wrong from the
 * eighth digit on. So it is the shortest decimal that is this f32, as a double; no longer decimal
 * than 9 digits is needed to tell two f32 apart. In f32 nothing changes. */
static double decimal_of(float value) {
    char text[ST_NUMBER_BYTES];
    double decimal;
    for (int digits = 1; digits <= 9; digits++) {
        st_double_text((double)value, digits, text);
        if (st_double_parse(text, strlen(text), &decimal) && (float)decimal == value)
            return decimal;
    }
    return (double)value; /* NaN */
}

double onnx_float(onnx_t *o, const char *name, double default_value) {
    const Onnx__AttributeProto *a = onnx_attribute(o, name);
    a = typed(o, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT, a && a->has_f, a);
    return a ? decimal_of(a->f) : default_value;
}

const char *onnx_string(onnx_t *o, const char *name, const char *default_value) {
    const Onnx__AttributeProto *a = onnx_attribute(o, name);
    a = typed(o, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING, a && a->has_s, a);
    if (!a) return default_value;
    char *text = st_arena_alloc(o->arena, a->s.len + 1);
    if (!text) {
        o->b.status = st_no_memory(a->s.len, "an attribute");
        return default_value;
    }
    if (a->s.len) memcpy(text, a->s.data, a->s.len);
    return text;
}

int32_t onnx_ints(onnx_t *o, const char *name, int64_t out[ONNX_MAX_LIST]) {
    const Onnx__AttributeProto *a = onnx_attribute(o, name);
    a = typed(o, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS, true, a);
    if (!a) return -1;
    if (a->n_ints > ONNX_MAX_LIST) {
        onnx_fail(o, ST_UNSUPPORTED, "attribute '%s' has %zu entries, the limit is %d", name,
                  a->n_ints, ONNX_MAX_LIST);
        return -1;
    }
    if (a->n_ints) memcpy(out, a->ints, a->n_ints * sizeof *out);
    return (int32_t)a->n_ints;
}

int32_t onnx_axis_of(onnx_t *o, int64_t axis, int32_t rank) {
    int32_t out = 0;
    if (onnx_ok(o)) o->b.status = ir_axis_normalize(axis, rank, &out);
    return onnx_ok(o) ? out : 0;
}

int32_t onnx_axis(onnx_t *o, const char *name, int32_t rank, int64_t default_value) {
    return onnx_axis_of(o, onnx_int(o, name, default_value), rank);
}

void onnx_sort_axes(onnx_t *o, int32_t n, int64_t *axes, int32_t rank) {
    for (int32_t i = 0; i < n && onnx_ok(o); i++) {
        int64_t axis = onnx_axis_of(o, axes[i], rank);
        int32_t at = i;
        for (; at > 0 && axes[at - 1] > axis; at--) axes[at] = axes[at - 1];
        axes[at] = axis;
        if (at > 0 && axes[at - 1] == axis)
            onnx_fail(o, ST_INVALID, "axis %lld is given twice", (long long)axis);
    }
}

int32_t onnx_axes_input(onnx_t *o, int64_t input_since, int64_t out[ONNX_MAX_LIST]) {
    if (o->opset < input_since) return onnx_ints(o, "axes", out);
    return onnx_has_input(o, 1) ? onnx_known_ints(o, 1, out) : -1;
}

/* ---- results ---- */

void onnx_return(onnx_t *o, ir_value_t value) {
    size_t k = o->n_returned++;
    if (!onnx_ok(o) || !onnx_wants(o, k)) return;
    if (value == IR_NONE) {
        onnx_fail(o, ST_UNSUPPORTED, "output %zu ('%.128s') is not supported", k,
                  o->node->output[k]);
        return;
    }
    onnx_value_t made = {.name = o->node->output[k], .value = value};
    bool added = false;
    o->b.status = st_map_add_string(&o->names, made.name, (uint32_t)o->values.n, &added);
    if (onnx_ok(o) && !added)
        onnx_fail(o, ST_PARSE, "the name '%.128s' of output %zu stands for another value already",
                  made.name, k);
    if (onnx_ok(o)) o->b.status = ST_VEC_PUSH(&o->values, made);
}

ir_value_t onnx_constant(onnx_t *o, const Onnx__TensorProto *tensor, const char *name) {
    ir_type_t type;
    const void *data;
    if (!onnx_ok(o)) return IR_NONE;
    o->b.status = onnx_tensor_read(o, tensor, name, &type, &data);
    if (!onnx_ok(o)) return IR_NONE;
    return ir_b_constant(&o->b, type, data, ir_type_bytes(&type));
}

ir_value_t onnx_constant_i64(onnx_t *o, int32_t rank, int64_t n, const int64_t *values) {
    ir_type_t type = ir_type_make(IR_I64, rank, &n);
    return ir_b_constant(&o->b, type, values, ir_type_bytes(&type));
}

int64_t onnx_product(const ir_type_t *type, int32_t begin, int32_t end) {
    int64_t n = 1;
    for (int32_t i = begin; i < end; i++)
        if (type->dims[i] == 0) return 0;
    for (int32_t i = begin; i < end; i++)
        if (!st_mul_i64(n, type->dims[i], &n)) return INT64_MAX;
    return n;
}
