/* Strict JSON for untrusted input, over json-c.
 *
 * json-c alone keeps the last of duplicate keys, cuts keys at an escaped NUL, saturates large
 * integers and builds as many nodes as the text asks for. A scan before it refuses duplicate keys
 * (together with a count after it), control characters, escaped NULs, deep nesting and long arrays,
 * so that memory stays in proportion to the text. */
#ifndef STATOR_STATE_JSON_H
#define STATOR_STATE_JSON_H

#include <stddef.h>
#include <stdint.h>

#include <json-c/json.h>

#include "base/status.h"

/* Nesting and array length of a parsed text. */
typedef struct state_json_limits {
    int depth;
    size_t array_length;
} state_json_limits_t;

/* Parses exactly one JSON object; trailing white space only. `what` names the text in messages. The
 * caller releases *out_object with json_object_put. */
st_status_t state_json_parse(const char *text, size_t bytes, state_json_limits_t limits,
                             const char *what, json_object **out_object) ST_WARN_UNUSED;

/* Members of an object; `what` names the text in messages. A missing member or one of another type
 * is ST_PARSE. Integers are exact: doubles are refused. The string is borrowed. */
st_status_t state_json_i64(json_object *object, const char *key, const char *what,
                           int64_t *out_value) ST_WARN_UNUSED;
st_status_t state_json_u64(json_object *object, const char *key, const char *what,
                           uint64_t *out_value) ST_WARN_UNUSED;
st_status_t state_json_string(json_object *object, const char *key, const char *what,
                              const char **out_value) ST_WARN_UNUSED;
/* 64 bits as 16 hexadecimal digits. */
enum { STATE_HEX_BYTES = 17 };
void state_hex64(uint64_t value, char out[STATE_HEX_BYTES]);
st_status_t state_parse_hex64(const char *text, const char *what,
                              uint64_t *out_value) ST_WARN_UNUSED;

#endif
