/* JSON of the archive, over json-c, and what its schema says about tensors. */
#ifndef STATOR_IMPORT_PT2_JSON_H
#define STATOR_IMPORT_PT2_JSON_H

#include <json-c/json.h>

#include "ir/types.h"

/* Parses one JSON object. Nesting, and the number of objects and arrays (json-c takes up to a
 * kilobyte for each), are limited. The caller releases *out with json_object_put. */
st_status_t pt2_json_parse(const void *text, size_t bytes, const char *what,
                           json_object **out) ST_WARN_UNUSED;

/* Members; NULL (or false) if `object` is no object, lacks the key, or the type differs. */
json_object *pt2_json_get(json_object *object, const char *key);
json_object *pt2_json_array(json_object *object, const char *key);
const char *pt2_json_string(json_object *object, const char *key);
bool pt2_json_bool(json_object *object, const char *key, bool *out);
/* An exact integer value. */
bool pt2_json_int(json_object *value, int64_t *out);
/* A number, or one of the strings "Infinity", "-Infinity", "NaN". */
bool pt2_json_double(json_object *value, double *out);
/* The one member of a tagged union {"as_int": 3}: its tag, NULL if it is not one. */
const char *pt2_json_tag(json_object *value, json_object **out_member);

/* Element type of a schema code (5 → i64, 7 → f32 …), IR_DTYPE_NONE for types that do not exist
 * here. */
ir_dtype_t pt2_dtype(int64_t code);

/* A tensor's description ("tensor_meta"). A symbolic size takes its hint, which sets `symbolic`. */
typedef struct pt2_meta {
    ir_type_t type;
    int64_t strides[IR_MAX_RANK];
    int64_t offset; /* elements */
    bool requires_grad;
    bool symbolic;
    bool has_strides;
} pt2_meta_t;
st_status_t pt2_meta_read(json_object *meta, const char *name, pt2_meta_t *out) ST_WARN_UNUSED;

#endif
