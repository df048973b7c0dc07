/* The two kinds of tokenizer behind one interface: see tokenizer.h. */
#include "state/tokenizer.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "state/json.h"
#include "state/spm.h"

struct tokenizer {
    bool is_bytes;
    uint32_t n_bytes;   /* of a byte vocabulary */
    uint8_t bytes[256]; /* by id */
    int16_t ids[256];   /* by byte, -1: not in the vocabulary */
    spm_t model;
};

static st_status_t create(tokenizer_t **out_tokenizer) {
    *out_tokenizer = st_calloc(1, sizeof **out_tokenizer);
    return *out_tokenizer != NULL ? ST_OK : st_no_memory(sizeof **out_tokenizer, "a tokenizer");
}

static void set_bytes(tokenizer_t *tokenizer, const bool present[256]) {
    tokenizer->is_bytes = true;
    for (int i = 0; i < 256; i++) {
        tokenizer->ids[i] = -1;
        if (!present[i]) continue;
        tokenizer->ids[i] = (int16_t)tokenizer->n_bytes;
        tokenizer->bytes[tokenizer->n_bytes++] = (uint8_t)i;
    }
}

st_status_t tokenizer_from_text(const void *text, size_t bytes, tokenizer_t **out_tokenizer) {
    *out_tokenizer = NULL;
    if (bytes == 0) return FAIL(ST_INVALID, "an empty text has no vocabulary");
    TRY(create(out_tokenizer));
    bool present[256] = {false};
    for (size_t i = 0; i < bytes; i++) present[((const uint8_t *)text)[i]] = true;
    set_bytes(*out_tokenizer, present);
    return ST_OK;
}

static st_status_t read_bytes(tokenizer_t *tokenizer, json_object *object) {
    const char *format;
    int64_t version;
    json_object *bytes;
    TRY(state_json_string(object, "format", "vocabulary", &format));
    TRY(state_json_i64(object, "version", "vocabulary", &version));
    if (strcmp(format, "stator-vocabulary") != 0 || version != 1) {
        return FAIL(ST_UNSUPPORTED,
                    "vocabulary: format '%.32s' version %lld, this reader knows "
                    "'stator-vocabulary' 1",
                    format, (long long)version);
    }
    if (!json_object_object_get_ex(object, "bytes", &bytes) ||
        !json_object_is_type(bytes, json_type_array) || json_object_array_length(bytes) == 0) {
        return FAIL(ST_PARSE, "vocabulary: \"bytes\" is not an array of bytes");
    }
    bool present[256] = {false};
    int64_t previous = -1;
    for (size_t i = 0; i < json_object_array_length(bytes); i++) {
        json_object *item = json_object_array_get_idx(bytes, i);
        int64_t byte = json_object_is_type(item, json_type_int) ? json_object_get_int64(item) : -1;
        if (byte <= previous || byte > 255) {
            return FAIL(ST_PARSE, "vocabulary: \"bytes\"[%zu] is not a byte above the one before",
                        i);
        }
        present[byte] = true;
        previous = byte;
    }
    set_bytes(tokenizer, present);
    return ST_OK;
}

/* A SentencePiece model starts with the tag of its first piece, never with a brace. */
static bool looks_like_json(const uint8_t *data, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) {
        if (memchr(" \t\r\n", data[i], 4) == NULL) return data[i] == '{';
    }
    return false;
}

static st_status_t read_any(tokenizer_t *tokenizer, const void *data, size_t bytes) {
    if (!looks_like_json(data, bytes)) return spm_load(data, bytes, &tokenizer->model);
    json_object *object;
    state_json_limits_t limits = {.depth = 2, .array_length = 256};
    TRY(state_json_parse(data, bytes, limits, "vocabulary", &object));
    st_status_t status = read_bytes(tokenizer, object);
    json_object_put(object);
    return status;
}

st_status_t tokenizer_open_memory(const void *data, size_t bytes, tokenizer_t **out_tokenizer) {
    TRY(create(out_tokenizer));
    st_status_t status = read_any(*out_tokenizer, data, bytes);
    if (status != ST_OK) {
        tokenizer_close(*out_tokenizer);
        *out_tokenizer = NULL;
    }
    return status;
}

st_status_t tokenizer_open(const char *path, tokenizer_t **out_tokenizer) {
    *out_tokenizer = NULL;
    st_file_t file;
    TRY(st_file_open(path, &file));
    st_status_t status = tokenizer_open_memory(file.data, file.bytes, out_tokenizer);
    if (status != ST_OK) st_error_context(status, "'%s'", path);
    st_file_close(&file);
    return status;
}

st_status_t tokenizer_save(const tokenizer_t *tokenizer, const char *path) {
    if (!tokenizer->is_bytes) {
        return FAIL(ST_UNSUPPORTED, "'%s': only byte vocabularies are written", path);
    }
    char text[2048];
    size_t n = (size_t)snprintf(text, sizeof text,
                                "{\"format\": \"stator-vocabulary\", \"version\": 1, \"bytes\": [");
    for (uint32_t i = 0; i < tokenizer->n_bytes; i++) {
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%d", i > 0 ? ", " : "",
                              tokenizer->bytes[i]);
    }
    n += (size_t)snprintf(text + n, sizeof text - n, "]}\n");
    ASSERT(n < sizeof text);
    return st_file_write(path, text, n);
}

void tokenizer_close(tokenizer_t *tokenizer) {
    if (tokenizer == NULL) return;
    spm_free(&tokenizer->model);
    st_free(tokenizer);
}

uint32_t tokenizer_vocab(const tokenizer_t *tokenizer) {
    return tokenizer->is_bytes ? tokenizer->n_bytes : tokenizer->model.n_pieces;
}

int64_t tokenizer_bos(const tokenizer_t *tokenizer) {
    return tokenizer->is_bytes ? -1 : tokenizer->model.bos_id;
}

int64_t tokenizer_eos(const tokenizer_t *tokenizer) {
    return tokenizer->is_bytes ? -1 : tokenizer->model.eos_id;
}

static st_status_t encode_bytes(const tokenizer_t *tokenizer, const uint8_t *text, size_t bytes,
                                spm_ids_t *ids) {
    TRY(ST_VEC_RESERVE(ids, bytes));
    for (size_t i = 0; i < bytes; i++) {
        int id = tokenizer->ids[text[i]];
        if (id < 0) {
            return FAIL(ST_INVALID, "byte %zu of the text is 0x%02x, which the vocabulary lacks", i,
                        text[i]);
        }
        ids->data[ids->n++] = (uint32_t)id;
    }
    return ST_OK;
}

static st_status_t encode_pieces(const spm_t *model, const uint8_t *text, size_t bytes,
                                 spm_ids_t *ids) {
    spm_text_t normalized = {0};
    st_status_t status = spm_normalize(model, text, bytes, &normalized);
    if (status == ST_OK) {
        status = model->is_bpe ? spm_encode_bpe(model, normalized.data, normalized.n, ids)
                               : spm_encode_unigram(model, normalized.data, normalized.n, ids);
    }
    ST_VEC_FREE(&normalized);
    return status;
}

st_status_t tokenizer_encode(const tokenizer_t *tokenizer, const void *text, size_t bytes,
                             uint32_t **out_ids, size_t *out_n) {
    *out_ids = NULL;
    *out_n = 0;
    spm_ids_t ids = {0};
    st_status_t status = ST_VEC_RESERVE(&ids, 1); /* so that no ids are a pointer too */
    if (status == ST_OK) {
        status = tokenizer->is_bytes ? encode_bytes(tokenizer, text, bytes, &ids)
                                     : encode_pieces(&tokenizer->model, text, bytes, &ids);
    }
    if (status != ST_OK) {
        ST_VEC_FREE(&ids);
        return status;
    }
    *out_ids = ids.data;
    *out_n = ids.n;
    return ST_OK;
}

static st_status_t decode_bytes(const tokenizer_t *tokenizer, const uint32_t *ids, size_t n,
                                spm_text_t *text) {
    TRY(ST_VEC_RESERVE(text, n));
    for (size_t i = 0; i < n; i++) {
        if (ids[i] >= tokenizer->n_bytes) {
            return FAIL(ST_INVALID, "token %zu is %u, the vocabulary has %u", i, ids[i],
                        tokenizer->n_bytes);
        }
        text->data[text->n++] = tokenizer->bytes[ids[i]];
    }
    return ST_OK;
}

st_status_t tokenizer_decode(const tokenizer_t *tokenizer, const uint32_t *ids, size_t n,
                             char **out_text, size_t *out_bytes) {
    *out_text = NULL;
    *out_bytes = 0;
    spm_text_t text = {0};
    st_status_t status = tokenizer->is_bytes ? decode_bytes(tokenizer, ids, n, &text)
                                             : spm_decode(&tokenizer->model, ids, n, &text);
    if (status == ST_OK) status = spm_append(&text, "", 1);
    if (status != ST_OK) {
        ST_VEC_FREE(&text);
        return status;
    }
    *out_text = (char *)text.data;
    *out_bytes = text.n - 1;
    return ST_OK;
}
