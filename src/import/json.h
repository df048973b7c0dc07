/* JSON of untrusted models and configurations, over json-c. */
#ifndef STATOR_IMPORT_JSON_H
#define STATOR_IMPORT_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <json-c/json.h>

#include "base/status.h"

/* Parses one JSON object. Nesting, and the number of objects and arrays (json-c takes up to a
 * kilobyte for each), are limited. The caller releases *out with json_object_put. */
st_status_t import_json_parse(const void *text, size_t bytes, const char *what,
                              json_object **out) ST_WARN_UNUSED;

/* Members; NULL (or false) if `object` is no object, lacks the key, or the type differs. */
json_object *import_json_get(json_object *object, const char *key);
json_object *import_json_array(json_object *object, const char *key);
const char *import_json_string(json_object *object, const char *key);
bool import_json_bool(json_object *object, const char *key, bool *out);
/* An exact integer value. */
bool import_json_int(json_object *value, int64_t *out);
/* A number, or one of the strings "Infinity", "-Infinity", "NaN". */
bool import_json_double(json_object *value, double *out);
/* The one member of a tagged union {"as_int": 3}: its tag, NULL if it is not one. */
const char *import_json_tag(json_object *value, json_object **out_member);

#endif
