/* Reader of safetensors. The header is parsed into one arena; tensors are sorted by name for
 * lookup, and by offset once to prove that they tile the data exactly. */
#include "state/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/memory.h"
#include "state/json.h"
#include "state/safetensors_internal.h"

#ifdef STATOR_FUZZ
enum { VERIFIES_SUMS = 0 }; /* a fuzzer cannot make right ones */
#else
enum { VERIFIES_SUMS = 1 };
#endif

typedef struct entry {
    const char *key;
    const char *value;
} entry_t;

typedef struct alias {
    const char *name;
    size_t tensor;
} alias_t;

struct safetensors {
    st_file_t file; /* zero when reading from memory */
    st_arena_t arena;
    const uint8_t *begin, *data; /* of the file; after the header */
    size_t data_bytes;
    safetensors_tensor_t *tensors;
    size_t n_tensors;
    entry_t *metadata;
    size_t n_metadata;
    alias_t *aliases;
    size_t n_aliases;
    bool has_sums; /* of every tensor */
};

static int compare_tensors(const void *a, const void *b) {
    return strcmp(((const safetensors_tensor_t *)a)->name, ((const safetensors_tensor_t *)b)->name);
}

static int compare_entries(const void *a, const void *b) {
    return strcmp(((const entry_t *)a)->key, ((const entry_t *)b)->key);
}

/* By place, then by size, so that an empty tensor comes before the one that starts where it lies.
 */
static int compare_places(const void *a, const void *b) {
    const safetensors_tensor_t *x = *(const safetensors_tensor_t *const *)a;
    const safetensors_tensor_t *y = *(const safetensors_tensor_t *const *)b;
    uintptr_t x_at = (uintptr_t)x->data, y_at = (uintptr_t)y->data;
    if (x_at != y_at) return x_at < y_at ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

static st_status_t copy_text(safetensors_t *file, const char *text, const char **out_copy) {
    *out_copy = st_arena_strdup(&file->arena, text);
    return *out_copy != NULL ? ST_OK : st_no_memory(strlen(text) + 1, "a safetensors header");
}

static st_status_t parse_dtype(json_object *object, const char *name, safetensors_dtype_t *out) {
    const char *text;
    TRY(state_json_string(object, "dtype", name, &text));
    for (int i = 0; i < SAFETENSORS_N_DTYPES; i++) {
        if (strcmp(text, safetensors_dtype_text((safetensors_dtype_t)i)) == 0) {
            *out = (safetensors_dtype_t)i;
            return ST_OK;
        }
    }
    return FAIL(ST_PARSE, "tensor '%s': unknown dtype '%.32s'", name, text);
}

/* A member that is an array of up to `capacity` non-negative integers. */
static st_status_t parse_integers(json_object *object, const char *key, const char *name,
                                  size_t capacity, int64_t *out_values, size_t *out_n) {
    json_object *array;
    if (!json_object_object_get_ex(object, key, &array) ||
        !json_object_is_type(array, json_type_array)) {
        return FAIL(ST_PARSE, "tensor '%s': \"%s\" is missing or not an array", name, key);
    }
    size_t n = json_object_array_length(array);
    if (n > capacity) {
        return FAIL(ST_PARSE, "tensor '%s': \"%s\" has %zu items, at most %zu are supported", name,
                    key, n, capacity);
    }
    for (size_t i = 0; i < n; i++) {
        json_object *item = json_object_array_get_idx(array, i);
        if (!json_object_is_type(item, json_type_int)) {
            return FAIL(ST_PARSE, "tensor '%s': \"%s\"[%zu] is not an integer", name, key, i);
        }
        out_values[i] = json_object_get_int64(item);
        if (out_values[i] < 0 || out_values[i] == INT64_MAX) {
            return FAIL(ST_PARSE, "tensor '%s': \"%s\"[%zu] is negative or too large", name, key,
                        i);
        }
    }
    *out_n = n;
    return ST_OK;
}

static st_status_t parse_tensor(safetensors_t *file, const char *key, json_object *object,
                                safetensors_tensor_t *out) {
    if (!json_object_is_type(object, json_type_object) || json_object_object_length(object) != 3) {
        return FAIL(ST_PARSE,
                    "tensor '%s': expected an object with dtype, shape and data_offsets only", key);
    }
    TRY(copy_text(file, key, &out->name));
    TRY(parse_dtype(object, key, &out->dtype));
    size_t rank, n_offsets, expected;
    int64_t offsets[2];
    TRY(parse_integers(object, "shape", key, IR_MAX_RANK, out->dims, &rank));
    out->rank = (int32_t)rank;
    TRY(parse_integers(object, "data_offsets", key, 2, offsets, &n_offsets));
    if (n_offsets != 2 || offsets[0] > offsets[1] || (uint64_t)offsets[1] > file->data_bytes) {
        return FAIL(ST_PARSE, "tensor '%s': data_offsets do not lie within %zu bytes of data", key,
                    file->data_bytes);
    }
    out->bytes = (size_t)(offsets[1] - offsets[0]);
    out->data = file->data + offsets[0];
    if (!safetensors_shape_bytes(out->dtype, out->rank, out->dims, &expected)) {
        return FAIL(ST_PARSE, "tensor '%s': the size of its shape overflows", key);
    }
    if (expected != out->bytes) {
        return FAIL(ST_PARSE, "tensor '%s': shape and dtype need %zu bytes, data_offsets give %zu",
                    key, expected, out->bytes);
    }
    return ST_OK;
}

static st_status_t parse_metadata(safetensors_t *file, json_object *object) {
    if (!json_object_is_type(object, json_type_object)) {
        return FAIL(ST_PARSE, "__metadata__ is not an object");
    }
    size_t n = (size_t)json_object_object_length(object);
    file->metadata = st_arena_array(&file->arena, n, sizeof *file->metadata);
    if (file->metadata == NULL) return st_no_memory(n * sizeof *file->metadata, "metadata");
    json_object_object_foreach(object, key, member) {
        if (!json_object_is_type(member, json_type_string)) {
            return FAIL(ST_PARSE, "__metadata__: the value of '%s' is not a string", key);
        }
        const char *value = json_object_get_string(member);
        if (value == NULL) return FAIL(ST_NO_MEMORY, "out of memory for metadata '%s'", key);
        entry_t *entry = &file->metadata[file->n_metadata];
        TRY(copy_text(file, key, &entry->key));
        TRY(copy_text(file, value, &entry->value));
        file->n_metadata++;
    }
    qsort(file->metadata, n, sizeof *file->metadata, compare_entries);
    return ST_OK;
}

static st_status_t parse_header(safetensors_t *file, json_object *header) {
    size_t n = (size_t)json_object_object_length(header);
    file->tensors = st_arena_array(&file->arena, n, sizeof *file->tensors);
    if (file->tensors == NULL) return st_no_memory(n * sizeof *file->tensors, "the tensor table");
    json_object_object_foreach(header, key, member) {
        if (strcmp(key, "__metadata__") == 0) {
            TRY(parse_metadata(file, member));
        } else {
            TRY(parse_tensor(file, key, member, &file->tensors[file->n_tensors]));
            file->n_tensors++;
        }
    }
    qsort(file->tensors, file->n_tensors, sizeof *file->tensors, compare_tensors);
    return ST_OK;
}

/* Tensors in the order of their data must follow each other exactly and end with the file. */
static st_status_t check_tiling(const safetensors_t *file) {
    const safetensors_tensor_t **order = st_malloc(file->n_tensors * sizeof *order);
    if (order == NULL) return st_no_memory(file->n_tensors * sizeof *order, "the tensor order");
    for (size_t i = 0; i < file->n_tensors; i++) order[i] = &file->tensors[i];
    qsort(order, file->n_tensors, sizeof *order, compare_places);
    st_status_t status = ST_OK;
    const uint8_t *end = file->data;
    for (size_t i = 0; i < file->n_tensors && status == ST_OK; i++) {
        const uint8_t *begin = order[i]->data;
        if (begin < end) {
            status = FAIL(ST_PARSE, "tensor '%s' overlaps tensor '%s'", order[i]->name,
                          order[i - 1]->name);
        } else if (begin > end) {
            status = FAIL(ST_PARSE, "tensor '%s': %zu unused bytes lie before its data",
                          order[i]->name, (size_t)(begin - end));
        }
        end = begin + order[i]->bytes;
    }
    size_t rest = file->data_bytes - (size_t)(end - file->data);
    if (status == ST_OK && rest > 0) {
        status = FAIL(ST_PARSE, "%zu bytes follow the last tensor", rest);
    }
    st_free(order);
    return status;
}

static st_status_t collect_aliases(safetensors_t *file) {
    size_t n = file->n_metadata;
    file->aliases = st_arena_array(&file->arena, n, sizeof *file->aliases);
    if (file->aliases == NULL) return st_no_memory(n * sizeof *file->aliases, "aliases");
    for (size_t i = 0; i < n; i++) {
        const entry_t *entry = &file->metadata[i];
        safetensors_tensor_t key = {.name = entry->key};
        const safetensors_tensor_t *own =
            bsearch(&key, file->tensors, file->n_tensors, sizeof key, compare_tensors);
        key.name = entry->value;
        const safetensors_tensor_t *tensor =
            bsearch(&key, file->tensors, file->n_tensors, sizeof key, compare_tensors);
        if (own != NULL || tensor == NULL) continue;
        file->aliases[file->n_aliases++] = (alias_t){entry->key, (size_t)(tensor - file->tensors)};
    }
    return ST_OK;
}

static st_status_t check_one_sum(const char *text, uint64_t actual, const char *what) {
    uint64_t expected;
    TRY(state_parse_hex64(text, what, &expected));
    if (VERIFIES_SUMS && expected != actual) {
        return FAIL(ST_PARSE, "%s: the checksum does not hold, the file is damaged", what);
    }
    return ST_OK;
}

/* Files of ours have a checksum of the metadata and of every tensor; files of others have none. */
static st_status_t check_metadata(safetensors_t *file) {
    size_t prefix_bytes = strlen(SAFETENSORS_CHECKSUM_PREFIX);
    size_t n_sums = 0;
    uint64_t hash = 0;
    for (size_t i = 0; i < file->n_metadata; i++) {
        const entry_t *entry = &file->metadata[i];
        if (strcmp(entry->key, SAFETENSORS_CHECKSUM_KEY) == 0) continue;
        hash = safetensors_metadata_hash(hash, entry->key, entry->value);
        if (strncmp(entry->key, SAFETENSORS_CHECKSUM_PREFIX, prefix_bytes) == 0) n_sums++;
    }
    const char *sum = safetensors_metadata(file, SAFETENSORS_CHECKSUM_KEY);
    if (sum == NULL && n_sums == 0) return ST_OK;
    if (sum == NULL) return FAIL(ST_PARSE, "metadata lacks '" SAFETENSORS_CHECKSUM_KEY "'");
    TRY(check_one_sum(sum, hash, "metadata"));
    file->has_sums = true;
    return ST_OK;
}

static st_status_t check_tensor_sum(const safetensors_t *file, const safetensors_tensor_t *tensor) {
    size_t prefix_bytes = strlen(SAFETENSORS_CHECKSUM_PREFIX);
    char what[256];
    snprintf(what, sizeof what, "tensor '%s' at byte %zu", tensor->name,
             (size_t)((const uint8_t *)tensor->data - file->begin));
    char *key = st_malloc(prefix_bytes + strlen(tensor->name) + 1);
    if (key == NULL) return st_no_memory(prefix_bytes, "a checksum key");
    memcpy(key, SAFETENSORS_CHECKSUM_PREFIX, prefix_bytes);
    strcpy(key + prefix_bytes, tensor->name);
    const char *text = safetensors_metadata(file, key);
    st_free(key);
    if (text == NULL) return FAIL(ST_PARSE, "%s: its checksum is missing", what);
    return check_one_sum(text, safetensors_tensor_hash(tensor), what);
}

static st_status_t check_tensor_sums(const safetensors_t *file) {
    for (size_t i = 0; file->has_sums && i < file->n_tensors; i++)
        TRY(check_tensor_sum(file, &file->tensors[i]));
    return ST_OK;
}

st_status_t safetensors_verify(const safetensors_t *file) {
    st_status_t status = check_tensor_sums(file);
    if (status != ST_OK) st_error_context(status, "'%s'", safetensors_path(file));
    return status;
}

static st_status_t read_all(safetensors_t *file, const uint8_t *data, size_t bytes) {
    if (bytes < 8) {
        return FAIL(ST_PARSE, "not a safetensors file: %zu bytes, the header length alone needs 8",
                    bytes);
    }
    uint64_t header_bytes = 0;
    for (int i = 7; i >= 0; i--) header_bytes = header_bytes << 8 | data[i];
    if (header_bytes > bytes - 8 || header_bytes > SAFETENSORS_MAX_HEADER_BYTES) {
        return FAIL(ST_PARSE,
                    "not a safetensors file: a header of %llu bytes in a file of %zu (limit %d)",
                    (unsigned long long)header_bytes, bytes, SAFETENSORS_MAX_HEADER_BYTES);
    }
    file->begin = data;
    file->data = data + 8 + header_bytes;
    file->data_bytes = bytes - 8 - (size_t)header_bytes;
    json_object *header;
    state_json_limits_t limits = {.depth = 3, .array_length = 64};
    TRY(state_json_parse((const char *)data + 8, (size_t)header_bytes, limits, "header", &header));
    st_status_t status = parse_header(file, header);
    json_object_put(header);
    TRY(status);
    TRY(check_tiling(file));
    TRY(collect_aliases(file));
    return check_metadata(file);
}

static st_status_t create(safetensors_t **out_file) {
    *out_file = st_calloc(1, sizeof **out_file);
    return *out_file != NULL ? ST_OK : st_no_memory(sizeof **out_file, "a safetensors reader");
}

st_status_t safetensors_open_memory(const void *data, size_t bytes, safetensors_t **out_file) {
    TRY(create(out_file));
    st_status_t status = read_all(*out_file, data, bytes);
    if (status == ST_OK) status = check_tensor_sums(*out_file);
    if (status != ST_OK) {
        safetensors_close(*out_file);
        *out_file = NULL;
    }
    return status;
}

st_status_t safetensors_open_unverified(const char *path, safetensors_t **out_file) {
    TRY(create(out_file));
    safetensors_t *file = *out_file;
    st_status_t status = st_file_open(path, &file->file);
    if (status == ST_OK) {
        status = read_all(file, file->file.data, file->file.bytes);
        if (status != ST_OK) st_error_context(status, "'%s'", path);
    }
    if (status != ST_OK) {
        safetensors_close(file);
        *out_file = NULL;
    }
    return status;
}

st_status_t safetensors_open(const char *path, safetensors_t **out_file) {
    TRY(safetensors_open_unverified(path, out_file));
    st_status_t status = safetensors_verify(*out_file);
    if (status != ST_OK) {
        safetensors_close(*out_file);
        *out_file = NULL;
    }
    return status;
}

void safetensors_close(safetensors_t *file) {
    if (file == NULL) return;
    st_file_close(&file->file);
    st_arena_clear(&file->arena);
    st_free(file);
}

const char *safetensors_path(const safetensors_t *file) {
    return file->file.path != NULL ? file->file.path : "memory";
}

size_t safetensors_file_bytes(const safetensors_t *file) {
    return (size_t)(file->data - file->begin) + file->data_bytes;
}

size_t safetensors_count(const safetensors_t *file) {
    return file->n_tensors;
}

const safetensors_tensor_t *safetensors_at(const safetensors_t *file, size_t index) {
    ASSERT(index < file->n_tensors);
    return &file->tensors[index];
}

const safetensors_tensor_t *safetensors_find(const safetensors_t *file, const char *name) {
    safetensors_tensor_t key = {.name = name};
    const safetensors_tensor_t *tensor =
        bsearch(&key, file->tensors, file->n_tensors, sizeof key, compare_tensors);
    if (tensor != NULL) return tensor;
    size_t low = 0, high = file->n_aliases;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(file->aliases[middle].name, name);
        if (order == 0) return &file->tensors[file->aliases[middle].tensor];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

size_t safetensors_alias_count(const safetensors_t *file) {
    return file->n_aliases;
}

const char *safetensors_alias_name(const safetensors_t *file, size_t index) {
    ASSERT(index < file->n_aliases);
    return file->aliases[index].name;
}

const safetensors_tensor_t *safetensors_alias_tensor(const safetensors_t *file, size_t index) {
    ASSERT(index < file->n_aliases);
    return &file->tensors[file->aliases[index].tensor];
}

const char *safetensors_metadata(const safetensors_t *file, const char *key) {
    if (file->n_metadata == 0) return NULL;
    entry_t wanted = {.key = key};
    const entry_t *entry =
        bsearch(&wanted, file->metadata, file->n_metadata, sizeof wanted, compare_entries);
    return entry != NULL ? entry->value : NULL;
}
