/* Strict JSON: see json.h. */
#include "state/json.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { MAX_DEPTH = 16 };

/* What the scan counts: keys are the colons outside strings. */
typedef struct scan {
    size_t keys;
    int depth;
    size_t commas[MAX_DEPTH + 1]; /* of the open array or object at each depth */
    bool is_array[MAX_DEPTH + 1];
} scan_t;

/* Past the closing quote of the string that opens at text[at], or 0 if it is malformed. */
static size_t scan_string(const char *text, size_t bytes, size_t at) {
    for (size_t i = at + 1; i < bytes; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '"') return i + 1;
        if (c < 0x20) return 0;
        if (c != '\\') continue;
        if (bytes - i >= 6 && memcmp(text + i, "\\u0000", 6) == 0) return 0;
        i++; /* the escaped character, checked by json-c */
    }
    return 0;
}

static st_status_t scan_mark(scan_t *scan, char c, state_json_limits_t limits, const char *what) {
    if (c == '{' || c == '[') {
        if (scan->depth >= limits.depth || scan->depth >= MAX_DEPTH) {
            return FAIL(ST_PARSE, "%s: JSON is nested deeper than %d", what, limits.depth);
        }
        scan->depth++;
        scan->commas[scan->depth] = 0;
        scan->is_array[scan->depth] = c == '[';
    } else if (c == '}' || c == ']') {
        if (scan->depth == 0) return FAIL(ST_PARSE, "%s: JSON has an unmatched '%c'", what, c);
        scan->depth--;
    } else if (c == ':') {
        scan->keys++;
    } else if (c == ',') {
        size_t commas = ++scan->commas[scan->depth];
        if (scan->is_array[scan->depth] && commas >= limits.array_length) {
            return FAIL(ST_PARSE, "%s: a JSON array has more than %zu items", what,
                        limits.array_length);
        }
    }
    return ST_OK;
}

static st_status_t scan_text(const char *text, size_t bytes, state_json_limits_t limits,
                             const char *what, size_t *out_keys) {
    scan_t scan = {0};
    for (size_t i = 0; i < bytes;) {
        unsigned char c = (unsigned char)text[i];
        if (c == '"') {
            size_t next = scan_string(text, bytes, i);
            if (next == 0) {
                return FAIL(ST_PARSE, "%s: malformed JSON string at byte %zu", what, i);
            }
            i = next;
            continue;
        }
        bool is_space = c == ' ' || c == '\t' || c == '\n' || c == '\r';
        if ((c < 0x20 && !is_space) || c >= 0x7f || c == '/' || c == '\'') {
            return FAIL(ST_PARSE, "%s: JSON has a stray byte 0x%02x at byte %zu", what, c, i);
        }
        TRY(scan_mark(&scan, (char)c, limits, what));
        i++;
    }
    *out_keys = scan.keys;
    return ST_OK;
}

/* Keys of an object and everything below; at most MAX_DEPTH deep, as the scan made sure. */
static size_t count_keys(json_object *value) {
    size_t count = 0;
    if (json_object_is_type(value, json_type_object)) {
        json_object_object_foreach(value, key, member) {
            (void)key;
            count += 1 + count_keys(member);
        }
    } else if (json_object_is_type(value, json_type_array)) {
        size_t length = json_object_array_length(value);
        for (size_t i = 0; i < length; i++)
            count += count_keys(json_object_array_get_idx(value, i));
    }
    return count;
}

st_status_t state_json_parse(const char *text, size_t bytes, state_json_limits_t limits,
                             const char *what, json_object **out_object) {
    *out_object = NULL;
    if (bytes == 0 || bytes > INT32_MAX) {
        return FAIL(ST_PARSE, "%s: JSON text of %zu bytes", what, bytes);
    }
    size_t keys = 0;
    TRY(scan_text(text, bytes, limits, what, &keys));
    size_t start = 0;
    while (start < bytes && memchr(" \t\r\n", text[start], 4) != NULL) start++;
    if (start == bytes || text[start] != '{') {
        return FAIL(ST_PARSE, "%s: the JSON text is not an object", what);
    }
    while (memchr(" \t\r\n", text[bytes - 1], 4) != NULL) bytes--;
    json_tokener *tokener = json_tokener_new_ex(MAX_DEPTH + 2);
    if (tokener == NULL) return FAIL(ST_NO_MEMORY, "%s: out of memory", what);
    json_tokener_set_flags(tokener, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
    json_object *object = json_tokener_parse_ex(tokener, text, (int)bytes);
    enum json_tokener_error error = json_tokener_get_error(tokener);
    size_t end = json_tokener_get_parse_end(tokener);
    json_tokener_free(tokener);
    st_status_t status = ST_OK;
    if (error != json_tokener_success || end != bytes) {
        const char *reason = error == json_tokener_continue  ? "unexpected end"
                             : error == json_tokener_success ? "text after the end"
                                                             : json_tokener_error_desc(error);
        status = FAIL(ST_PARSE, "%s: malformed JSON near byte %zu: %s", what, end, reason);
    } else if (count_keys(object) != keys) {
        status = FAIL(ST_PARSE, "%s: a JSON key appears twice", what);
    }
    if (status != ST_OK) {
        json_object_put(object);
        return status;
    }
    *out_object = object;
    return ST_OK;
}

static st_status_t member(json_object *object, const char *key, json_type type,
                          const char *type_text, const char *what, json_object **out_member) {
    if (!json_object_object_get_ex(object, key, out_member)) {
        return FAIL(ST_PARSE, "%s: \"%s\" is missing", what, key);
    }
    if (!json_object_is_type(*out_member, type)) {
        return FAIL(ST_PARSE, "%s: \"%s\" is not %s", what, key, type_text);
    }
    return ST_OK;
}

st_status_t state_json_i64(json_object *object, const char *key, const char *what,
                           int64_t *out_value) {
    json_object *value;
    TRY(member(object, key, json_type_int, "an integer", what, &value));
    *out_value = json_object_get_int64(value);
    if (*out_value == INT64_MAX || *out_value == INT64_MIN) { /* where json-c saturates */
        return FAIL(ST_PARSE, "%s: \"%s\" is too large", what, key);
    }
    return ST_OK;
}

st_status_t state_json_u64(json_object *object, const char *key, const char *what,
                           uint64_t *out_value) {
    json_object *value;
    TRY(member(object, key, json_type_int, "an integer", what, &value));
    *out_value = json_object_get_uint64(value);
    if (json_object_get_int64(value) < 0) {
        return FAIL(ST_PARSE, "%s: \"%s\" is negative", what, key);
    }
    return ST_OK;
}

st_status_t state_json_string(json_object *object, const char *key, const char *what,
                              const char **out_value) {
    json_object *value;
    TRY(member(object, key, json_type_string, "a string", what, &value));
    *out_value = json_object_get_string(value);
    if (*out_value == NULL) return FAIL(ST_NO_MEMORY, "%s: out of memory", what);
    return ST_OK;
}

void state_hex64(uint64_t value, char out[STATE_HEX_BYTES]) {
    snprintf(out, STATE_HEX_BYTES, "%016" PRIx64, value);
}

st_status_t state_parse_hex64(const char *text, const char *what, uint64_t *out_value) {
    uint64_t value = 0;
    size_t digits = 0;
    for (; text[digits] != '\0' && digits < 17; digits++) {
        const char *alphabet = "0123456789abcdef";
        const char *found = strchr(alphabet, text[digits]);
        if (found == NULL) break;
        value = value << 4 | (uint64_t)(found - alphabet);
    }
    if (digits != 16 || text[16] != '\0') {
        return FAIL(ST_PARSE, "%s: '%.32s' is not 16 hexadecimal digits", what, text);
    }
    *out_value = value;
    return ST_OK;
}
