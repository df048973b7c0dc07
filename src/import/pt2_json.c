/* JSON of torch.export archives. See pt2_json.h. */
#include "import/pt2_json.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"

enum {
    MAX_DEPTH = 128,
    MAX_CONTAINERS = 3 << 20,
};

/* Counts what json-c will allocate for before it does. */
static st_status_t check_structure(const char *text, size_t bytes, const char *what) {
    size_t containers = 0;
    int depth = 0;
    for (size_t i = 0; i < bytes; i++) {
        char c = text[i];
        if (c == '"') {
            for (i++; i < bytes && text[i] != '"'; i++)
                if (text[i] == '\\') i++;
        } else if (c == '{' || c == '[') {
            containers++;
            if (++depth > MAX_DEPTH)
                return FAIL(ST_PARSE, "%s: JSON is nested deeper than %d", what, MAX_DEPTH);
        } else if (c == '}' || c == ']') {
            depth--;
        }
    }
    if (containers > MAX_CONTAINERS)
        return FAIL(ST_PARSE, "%s: %zu JSON objects and arrays, the limit is %d", what, containers,
                    MAX_CONTAINERS);
    return ST_OK;
}

st_status_t pt2_json_parse(const void *text, size_t bytes, const char *what, json_object **out) {
    *out = NULL;
    if (bytes == 0 || bytes > INT32_MAX)
        return FAIL(ST_PARSE, "%s: JSON text of %zu bytes", what, bytes);
    TRY(check_structure(text, bytes, what));
    while (bytes > 1 && strchr(" \t\r\n", ((const char *)text)[bytes - 1]))
        bytes--;
    json_tokener *tokener = json_tokener_new_ex(MAX_DEPTH + 1);
    if (!tokener) return st_no_memory(bytes, what);
    json_tokener_set_flags(tokener, JSON_TOKENER_STRICT);
    json_object *object = json_tokener_parse_ex(tokener, text, (int)bytes);
    enum json_tokener_error error = json_tokener_get_error(tokener);
    size_t end = json_tokener_get_parse_end(tokener);
    json_tokener_free(tokener);
    if (error != json_tokener_success || !json_object_is_type(object, json_type_object)) {
        json_object_put(object);
        return FAIL(ST_PARSE, "%s: malformed JSON near byte %zu: %s", what, end,
                    error == json_tokener_success    ? "not an object"
                    : error == json_tokener_continue ? "unexpected end"
                                                     : json_tokener_error_desc(error));
    }
    *out = object;
    return ST_OK;
}

json_object *pt2_json_get(json_object *object, const char *key) {
    json_object *member = NULL;
    if (!json_object_is_type(object, json_type_object)) return NULL;
    return json_object_object_get_ex(object, key, &member) ? member : NULL;
}

json_object *pt2_json_array(json_object *object, const char *key) {
    json_object *member = pt2_json_get(object, key);
    return json_object_is_type(member, json_type_array) ? member : NULL;
}

const char *pt2_json_string(json_object *object, const char *key) {
    json_object *member = pt2_json_get(object, key);
    return json_object_is_type(member, json_type_string) ? json_object_get_string(member) : NULL;
}

bool pt2_json_bool(json_object *object, const char *key, bool *out) {
    json_object *member = pt2_json_get(object, key);
    if (!json_object_is_type(member, json_type_boolean)) return false;
    *out = json_object_get_boolean(member);
    return true;
}

bool pt2_json_int(json_object *value, int64_t *out) {
    if (!json_object_is_type(value, json_type_int)) return false;
    *out = json_object_get_int64(value);
    return true;
}

bool pt2_json_double(json_object *value, double *out) {
    if (json_object_is_type(value, json_type_double) || json_object_is_type(value, json_type_int)) {
        *out = json_object_get_double(value);
        return true;
    }
    if (!json_object_is_type(value, json_type_string)) return false;
    const char *text = json_object_get_string(value);
    *out = strcmp(text, "Infinity") == 0    ? (double)INFINITY
           : strcmp(text, "-Infinity") == 0 ? (double)-INFINITY
                                            : (double)NAN;
    return isinf(*out) || strcmp(text, "NaN") == 0;
}

const char *pt2_json_tag(json_object *value, json_object **out_member) {
    *out_member = NULL;
    if (!json_object_is_type(value, json_type_object) || json_object_object_length(value) != 1)
        return NULL;
    json_object_object_foreach(value, key, member) {
        *out_member = member;
        return key;
    }
    return NULL;
}

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
    const char *tag = pt2_json_tag(value, &member);
    if (!tag) return false;
    if (strcmp(tag, "as_int") == 0) return pt2_json_int(member, out);
    if (strcmp(tag, "as_expr") != 0) return false;
    if (symbolic) *symbolic = true;
    const char *hint_tag = pt2_json_tag(pt2_json_get(member, "hint"), &member);
    return hint_tag && strcmp(hint_tag, "as_int") == 0 && pt2_json_int(member, out);
}

st_status_t pt2_meta_read(json_object *meta, const char *name, pt2_meta_t *out) {
    *out = (pt2_meta_t){0};
    int64_t code = 0;
    if (!pt2_json_int(pt2_json_get(meta, "dtype"), &code))
        return FAIL(ST_PARSE, "tensor '%s' has no description", name);
    out->type.dtype = pt2_dtype(code);
    if (out->type.dtype == IR_DTYPE_NONE)
        return FAIL(ST_UNSUPPORTED,
                    "tensor '%s' has element type %lld of PyTorch's schema, which is not "
                    "supported",
                    name, (long long)code);
    json_object *sizes = pt2_json_array(meta, "sizes"), *strides = pt2_json_array(meta, "strides");
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
    json_object *offset = pt2_json_get(meta, "storage_offset");
    if (offset && !read_size(offset, &out->offset, NULL))
        return FAIL(ST_PARSE, "tensor '%s' has a malformed storage offset", name);
    pt2_json_bool(meta, "requires_grad", &out->requires_grad);
    return ir_type_check(&out->type);
}
