/* JSON of models. See json.h. */
#include "import/json.h"

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

st_status_t import_json_parse(const void *text, size_t bytes, const char *what, json_object **out) {
    *out = NULL;
    if (bytes == 0 || bytes > INT32_MAX)
        return FAIL(ST_PARSE, "%s: JSON text of %zu bytes", what, bytes);
    TRY(check_structure(text, bytes, what));
    while (bytes > 1 && strchr(" \t\r\n", ((const char *)text)[bytes - 1])) bytes--;
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

json_object *import_json_get(json_object *object, const char *key) {
    json_object *member = NULL;
    if (!json_object_is_type(object, json_type_object)) return NULL;
    return json_object_object_get_ex(object, key, &member) ? member : NULL;
}

json_object *import_json_array(json_object *object, const char *key) {
    json_object *member = import_json_get(object, key);
    return json_object_is_type(member, json_type_array) ? member : NULL;
}

const char *import_json_string(json_object *object, const char *key) {
    json_object *member = import_json_get(object, key);
    return json_object_is_type(member, json_type_string) ? json_object_get_string(member) : NULL;
}

bool import_json_bool(json_object *object, const char *key, bool *out) {
    json_object *member = import_json_get(object, key);
    if (!json_object_is_type(member, json_type_boolean)) return false;
    *out = json_object_get_boolean(member);
    return true;
}

bool import_json_int(json_object *value, int64_t *out) {
    if (!json_object_is_type(value, json_type_int)) return false;
    *out = json_object_get_int64(value);
    return true;
}

bool import_json_double(json_object *value, double *out) {
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

const char *import_json_tag(json_object *value, json_object **out_member) {
    *out_member = NULL;
    if (!json_object_is_type(value, json_type_object) || json_object_object_length(value) != 1)
        return NULL;
    json_object_object_foreach(value, key, member) {
        *out_member = member;
        return key;
    }
    return NULL;
}
