/* Writer of safetensors: see safetensors.h. The header text is made by hand so that its bytes are a
 * function of the contents alone. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/vec.h"
#include "state/json.h"
#include "state/safetensors_internal.h"
#include "state/utf8.h"

typedef struct entry {
    const char *key;
    const char *value;
    bool is_alias;
} entry_t;

/* Comparisons see the tensor alone, which comes first. */
typedef struct stored {
    safetensors_tensor_t tensor; /* data is NULL where it is read from a source */
    safetensors_source_t source;
} stored_t;

struct safetensors_writer {
    st_arena_t arena;
    ST_VEC(stored_t) tensors;
    ST_VEC(entry_t) metadata;
};

typedef ST_VEC(char) text_t;

st_status_t safetensors_writer_create(safetensors_writer_t **out_writer) {
    *out_writer = st_calloc(1, sizeof **out_writer);
    return *out_writer != NULL ? ST_OK : st_no_memory(sizeof **out_writer, "a safetensors writer");
}

void safetensors_writer_destroy(safetensors_writer_t *writer) {
    if (writer == NULL) return;
    st_arena_clear(&writer->arena);
    ST_VEC_FREE(&writer->tensors);
    ST_VEC_FREE(&writer->metadata);
    st_free(writer);
}

static st_status_t check_utf8(const char *text, const char *what) {
    if (state_utf8_valid(text, strlen(text))) return ST_OK;
    return FAIL(ST_INVALID, "%s '%s' is not UTF-8 text", what, text);
}

static st_status_t keep(safetensors_writer_t *writer, const char *text, const char **out_copy) {
    *out_copy = st_arena_strdup(&writer->arena, text);
    return *out_copy != NULL ? ST_OK : st_no_memory(strlen(text) + 1, "a safetensors header");
}

static st_status_t add_tensor(safetensors_writer_t *writer, safetensors_tensor_t tensor,
                              const int64_t *dims, safetensors_source_t source) {
    const char *name = tensor.name;
    if (name[0] == '\0' || strcmp(name, "__metadata__") == 0) {
        return FAIL(ST_INVALID, "'%s' cannot be the name of a stored tensor", name);
    }
    TRY(check_utf8(name, "tensor name"));
    if ((unsigned)tensor.dtype >= SAFETENSORS_N_DTYPES || tensor.rank < 0 ||
        tensor.rank > IR_MAX_RANK) {
        return FAIL(ST_INVALID, "tensor '%s': dtype %d or rank %d cannot be stored", name,
                    (int)tensor.dtype, tensor.rank);
    }
    size_t expected;
    bool has_size = safetensors_shape_bytes(tensor.dtype, tensor.rank, dims, &expected);
    if (source.read != NULL && has_size) tensor.bytes = expected;
    if (!has_size || expected != tensor.bytes) {
        return FAIL(ST_INVALID, "tensor '%s': %zu bytes given do not match its shape and dtype",
                    name, tensor.bytes);
    }
    for (int32_t i = 0; i < tensor.rank; i++) tensor.dims[i] = dims[i];
    TRY(keep(writer, name, &tensor.name));
    stored_t stored = {tensor, source};
    return ST_VEC_PUSH(&writer->tensors, stored);
}

st_status_t safetensors_writer_add(safetensors_writer_t *writer, const char *name,
                                   safetensors_dtype_t dtype, int32_t rank, const int64_t *dims,
                                   const void *data, size_t bytes) {
    const safetensors_tensor_t tensor = {.name = name,
                                         .dtype = dtype,
                                         .rank = rank,
                                         .data = data != NULL ? data : "",
                                         .bytes = bytes};
    return add_tensor(writer, tensor, dims, (safetensors_source_t){0});
}

st_status_t safetensors_writer_add_source(safetensors_writer_t *writer, const char *name,
                                          safetensors_dtype_t dtype, int32_t rank,
                                          const int64_t *dims, const safetensors_source_t *source) {
    const safetensors_tensor_t tensor = {.name = name, .dtype = dtype, .rank = rank};
    return add_tensor(writer, tensor, dims, *source);
}

static st_status_t add_entry(safetensors_writer_t *writer, const char *key, const char *value,
                             bool is_alias) {
    if (strncmp(key, SAFETENSORS_CHECKSUM_KEY, strlen(SAFETENSORS_CHECKSUM_KEY)) == 0) {
        return FAIL(ST_INVALID, "metadata key '%s' is reserved for checksums", key);
    }
    TRY(check_utf8(key, "metadata key"));
    TRY(check_utf8(value, "metadata value"));
    entry_t entry = {.is_alias = is_alias};
    TRY(keep(writer, key, &entry.key));
    TRY(keep(writer, value, &entry.value));
    return ST_VEC_PUSH(&writer->metadata, entry);
}

st_status_t safetensors_writer_add_metadata(safetensors_writer_t *writer, const char *key,
                                            const char *value) {
    return add_entry(writer, key, value, false);
}

st_status_t safetensors_writer_alias(safetensors_writer_t *writer, const char *other,
                                     const char *stored) {
    return add_entry(writer, other, stored, true);
}

static int compare_names(const void *a, const void *b) {
    return strcmp(((const safetensors_tensor_t *)a)->name, ((const safetensors_tensor_t *)b)->name);
}

static int compare_storage(const void *a, const void *b) {
    size_t x = safetensors_dtype_bytes(((const safetensors_tensor_t *)a)->dtype);
    size_t y = safetensors_dtype_bytes(((const safetensors_tensor_t *)b)->dtype);
    if (x != y) return x > y ? -1 : 1;
    return compare_names(a, b);
}

static int compare_entries(const void *a, const void *b) {
    return strcmp(((const entry_t *)a)->key, ((const entry_t *)b)->key);
}

/* Names are unique, aliases lead to stored tensors. Leaves the tensors sorted by name. */
static st_status_t check_contents(safetensors_writer_t *writer) {
    stored_t *tensors = writer->tensors.data;
    size_t n = writer->tensors.n;
    if (n > 0) qsort(tensors, n, sizeof *tensors, compare_names);
    for (size_t i = 1; i < n; i++) {
        if (compare_names(&tensors[i - 1], &tensors[i]) == 0) {
            return FAIL(ST_INVALID, "two tensors have the name '%s'", tensors[i].tensor.name);
        }
    }
    for (size_t i = 0; i < writer->metadata.n; i++) {
        const entry_t *entry = &writer->metadata.data[i];
        safetensors_tensor_t key = {.name = entry->value};
        if (!entry->is_alias) continue;
        if (n == 0 || bsearch(&key, tensors, n, sizeof *tensors, compare_names) == NULL) {
            return FAIL(ST_INVALID, "alias '%s': no tensor '%s' is stored", entry->key,
                        entry->value);
        }
        key.name = entry->key;
        if (bsearch(&key, tensors, n, sizeof *tensors, compare_names) != NULL) {
            return FAIL(ST_INVALID, "alias '%s' is also the name of a stored tensor", entry->key);
        }
    }
    return ST_OK;
}

static st_status_t put(text_t *text, const char *bytes, size_t n) {
    TRY(ST_VEC_RESERVE(text, text->n + n));
    memcpy(text->data + text->n, bytes, n);
    text->n += n;
    return ST_OK;
}

static st_status_t put_text(text_t *text, const char *string) {
    return put(text, string, strlen(string));
}

static st_status_t put_quoted(text_t *text, const char *string) {
    TRY(put(text, "\"", 1));
    for (const char *c = string; *c != '\0'; c++) {
        char escape[8];
        if (*c == '"' || *c == '\\')
            snprintf(escape, sizeof escape, "\\%c", *c);
        else if (*c == '\n')
            snprintf(escape, sizeof escape, "\\n");
        else if ((unsigned char)*c < 0x20)
            snprintf(escape, sizeof escape, "\\u%04x", *c);
        else
            snprintf(escape, sizeof escape, "%c", *c);
        TRY(put_text(text, escape));
    }
    return put(text, "\"", 1);
}

static st_status_t put_entry(text_t *text, const char *key, const char *value, bool is_first) {
    if (!is_first) TRY(put(text, ",", 1));
    TRY(put_quoted(text, key));
    TRY(put(text, ":", 1));
    return put_quoted(text, value);
}

/* Hands a tensor's bytes on in pieces that lie in memory, read into `buffer` where they do not. */
typedef st_status_t (*take_t)(void *context, const void *data, size_t bytes);
static st_status_t each_piece(const stored_t *stored, void *buffer, take_t take, void *context) {
    const safetensors_tensor_t *tensor = &stored->tensor;
    if (stored->source.read == NULL) return take(context, tensor->data, tensor->bytes);
    for (size_t at = 0, bytes; at < tensor->bytes; at += bytes) {
        bytes = tensor->bytes - at;
        if (bytes > SAFETENSORS_BUFFER_BYTES) bytes = SAFETENSORS_BUFFER_BYTES;
        TRY(stored->source.read(stored->source.context, tensor->name, at, bytes, buffer));
        TRY(take(context, buffer, bytes));
    }
    return ST_OK;
}

/* For the largest tensor that is read from a source. */
static st_status_t make_buffer(const safetensors_writer_t *writer, void **out_buffer) {
    size_t bytes = 0;
    for (size_t i = 0; i < writer->tensors.n; i++) {
        const stored_t *stored = &writer->tensors.data[i];
        if (stored->source.read && stored->tensor.bytes > bytes) bytes = stored->tensor.bytes;
    }
    if (bytes > SAFETENSORS_BUFFER_BYTES) bytes = SAFETENSORS_BUFFER_BYTES;
    *out_buffer = st_malloc(bytes);
    return *out_buffer != NULL ? ST_OK : st_no_memory(bytes, "a file's buffer");
}

static st_status_t take_hash(void *context, const void *data, size_t bytes) {
    st_hasher_add(context, data, bytes);
    return ST_OK;
}
static st_status_t take_file(void *context, const void *data, size_t bytes) {
    return st_writer_append(context, data, bytes);
}
static st_status_t take_text(void *context, const void *data, size_t bytes) {
    return put(context, data, bytes);
}

/* The sorted metadata with checksums. `entries` has room for one more per tensor and one. */
static st_status_t put_metadata(safetensors_writer_t *writer, void *buffer, st_arena_t *arena,
                                text_t *text) {
    size_t n_tensors = writer->tensors.n;
    size_t capacity = writer->metadata.n + n_tensors;
    entry_t *entries = st_arena_array(arena, capacity, sizeof *entries);
    if (entries == NULL) return st_no_memory(capacity * sizeof *entries, "metadata");
    size_t n = 0;
    for (; n < writer->metadata.n; n++) entries[n] = writer->metadata.data[n];
    for (size_t i = 0; i < n_tensors; i++) {
        const safetensors_tensor_t *tensor = &writer->tensors.data[i].tensor;
        char sum[STATE_HEX_BYTES];
        st_hasher_t hasher;
        st_hasher_begin(&hasher, safetensors_tensor_seed(tensor));
        TRY(each_piece(&writer->tensors.data[i], buffer, take_hash, &hasher));
        state_hex64(st_hasher_end(&hasher), sum);
        entries[n].key = st_arena_printf(arena, SAFETENSORS_CHECKSUM_PREFIX "%s", tensor->name);
        entries[n].value = st_arena_strdup(arena, sum);
        if (entries[n].key == NULL || entries[n].value == NULL) {
            return st_no_memory(strlen(tensor->name), "a checksum");
        }
        n++;
    }
    qsort(entries, n, sizeof *entries, compare_entries);
    TRY(put_text(text, "{\"__metadata__\":{"));
    uint64_t hash = 0;
    for (size_t i = 0; i < n; i++) {
        if (i > 0 && strcmp(entries[i - 1].key, entries[i].key) == 0) {
            return FAIL(ST_INVALID, "metadata key '%s' is given twice", entries[i].key);
        }
        hash = safetensors_metadata_hash(hash, entries[i].key, entries[i].value);
        TRY(put_entry(text, entries[i].key, entries[i].value, i == 0));
    }
    char sum[STATE_HEX_BYTES];
    state_hex64(hash, sum);
    TRY(put_entry(text, SAFETENSORS_CHECKSUM_KEY, sum, n == 0));
    return put(text, "}", 1);
}

static st_status_t put_tensor(text_t *text, const safetensors_tensor_t *tensor, size_t offset) {
    char number[64];
    TRY(put(text, ",", 1));
    TRY(put_quoted(text, tensor->name));
    TRY(put_text(text, ":{\"dtype\":\""));
    TRY(put_text(text, safetensors_dtype_text(tensor->dtype)));
    TRY(put_text(text, "\",\"shape\":["));
    for (int32_t i = 0; i < tensor->rank; i++) {
        snprintf(number, sizeof number, "%s%" PRId64, i > 0 ? "," : "", tensor->dims[i]);
        TRY(put_text(text, number));
    }
    snprintf(number, sizeof number, "],\"data_offsets\":[%zu,%zu]}", offset,
             offset + tensor->bytes);
    return put_text(text, number);
}

/* The whole header with its length in front. Leaves the tensors in storage order. */
static st_status_t make_header(safetensors_writer_t *writer, void *buffer, st_arena_t *arena,
                               text_t *text) {
    static const char no_length[8];
    TRY(check_contents(writer));
    TRY(put(text, no_length, sizeof no_length));
    TRY(put_metadata(writer, buffer, arena, text));
    size_t n = writer->tensors.n;
    if (n > 0) qsort(writer->tensors.data, n, sizeof *writer->tensors.data, compare_storage);
    size_t offset = 0;
    for (size_t i = 0; i < n; i++) {
        const safetensors_tensor_t *tensor = &writer->tensors.data[i].tensor;
        if (tensor->bytes > INT64_MAX - offset) {
            return FAIL(ST_INVALID, "tensor '%s': the file's size overflows", tensor->name);
        }
        TRY(put_tensor(text, tensor, offset));
        offset += tensor->bytes;
    }
    TRY(put(text, "}", 1));
    while (text->n % 8 != 0) TRY(put(text, " ", 1));
    size_t header_bytes = text->n - 8;
    if (header_bytes > SAFETENSORS_MAX_HEADER_BYTES) {
        return FAIL(ST_INVALID, "a safetensors header of %zu bytes is over the format's limit %d",
                    header_bytes, SAFETENSORS_MAX_HEADER_BYTES);
    }
    for (int i = 0; i < 8; i++) text->data[i] = (char)(header_bytes >> (8 * i) & 0xff);
    return ST_OK;
}

st_status_t safetensors_writer_commit(safetensors_writer_t *writer, const char *path) {
    st_arena_t arena = {0};
    text_t text = {0};
    st_writer_t *output = NULL;
    void *buffer = NULL;
    st_status_t status;
    TRY_GOTO(make_buffer(writer, &buffer), fail);
    TRY_GOTO(make_header(writer, buffer, &arena, &text), fail);
    TRY_GOTO(st_writer_create(path, &output), fail);
    TRY_GOTO(st_writer_append(output, text.data, text.n), fail);
    for (size_t i = 0; i < writer->tensors.n; i++)
        TRY_GOTO(each_piece(&writer->tensors.data[i], buffer, take_file, output), fail);
    status = st_writer_commit(output);
    output = NULL;
fail:
    st_writer_abandon(output);
    st_free(buffer);
    ST_VEC_FREE(&text);
    st_arena_clear(&arena);
    return status;
}

st_status_t safetensors_writer_encode(safetensors_writer_t *writer, void **out_data,
                                      size_t *out_bytes) {
    st_arena_t arena = {0};
    text_t text = {0};
    void *buffer = NULL;
    *out_data = NULL;
    st_status_t status;
    TRY_GOTO(make_buffer(writer, &buffer), done);
    TRY_GOTO(make_header(writer, buffer, &arena, &text), done);
    for (size_t i = 0; i < writer->tensors.n; i++)
        TRY_GOTO(each_piece(&writer->tensors.data[i], buffer, take_text, &text), done);
    *out_data = text.data;
    *out_bytes = text.n;
    text = (text_t){0};
done:
    st_free(buffer);
    ST_VEC_FREE(&text);
    st_arena_clear(&arena);
    return status;
}
