/* Tokenizers and token shards. Ids are 64-bit outside, as graphs take them, and 32-bit inside. */
#include "state/tokenizer.h"
#include "base/memory.h"
#include "capi/capi.h"
#include "state/tokens.h"

struct stator_tokenizer {
    tokenizer_t *inner;
};

static stator_status_t wrap(st_status_t status, tokenizer_t *inner, stator_tokenizer_t **out) {
    *out = NULL;
    if (status != ST_OK) return capi_status(status);
    stator_tokenizer_t *tokenizer = st_calloc(1, sizeof *tokenizer);
    if (!tokenizer) {
        tokenizer_close(inner);
        return capi_status(st_no_memory(sizeof *tokenizer, "a tokenizer"));
    }
    tokenizer->inner = inner;
    *out = tokenizer;
    return STATOR_OK;
}

stator_status_t stator_tokenizer_load(const char *path, stator_tokenizer_t **out) {
    CAPI_OUT(out);
    CAPI_REQUIRE(path);
    tokenizer_t *inner = NULL;
    st_status_t status = tokenizer_open(path, &inner);
    return wrap(status, inner, out);
}
stator_status_t stator_tokenizer_chars(const char *text, size_t bytes, stator_tokenizer_t **out) {
    CAPI_OUT(out);
    CAPI_REQUIRE_N(text, bytes);
    tokenizer_t *inner = NULL;
    st_status_t status = tokenizer_from_text(text, bytes, &inner);
    return wrap(status, inner, out);
}
stator_status_t stator_tokenizer_save(const stator_tokenizer_t *tokenizer, const char *path) {
    CAPI_REQUIRE(tokenizer);
    CAPI_REQUIRE(path);
    return capi_status(tokenizer_save(tokenizer->inner, path));
}
void stator_tokenizer_destroy(stator_tokenizer_t *tokenizer) {
    if (!tokenizer) return;
    tokenizer_close(tokenizer->inner);
    st_free(tokenizer);
}
int64_t stator_tokenizer_vocabulary(const stator_tokenizer_t *tokenizer) {
    return tokenizer_vocab(tokenizer->inner);
}
int64_t stator_tokenizer_begin(const stator_tokenizer_t *tokenizer) {
    return tokenizer_bos(tokenizer->inner);
}

stator_status_t stator_tokenizer_encode(const stator_tokenizer_t *tokenizer, const char *text,
                                        size_t bytes, int64_t **out_tokens, size_t *out_n) {
    CAPI_OUT(out_tokens);
    CAPI_REQUIRE(out_n);
    *out_n = 0;
    CAPI_REQUIRE(tokenizer);
    CAPI_REQUIRE_N(text, bytes);
    uint32_t *ids = NULL;
    size_t n = 0;
    st_status_t status = tokenizer_encode(tokenizer->inner, text, bytes, &ids, &n);
    if (status != ST_OK) return capi_status(status);
    size_t wide = 0;
    int64_t *tokens = st_mul_size(n, sizeof *tokens, &wide) ? st_malloc(wide) : NULL;
    for (size_t i = 0; tokens && i < n; i++) tokens[i] = ids[i];
    st_free(ids);
    if (!tokens) return capi_status(st_no_memory(wide, "tokens"));
    *out_tokens = tokens;
    *out_n = n;
    return STATOR_OK;
}

/* 32-bit copy; every id is below `limit`. */
static st_status_t narrow(const int64_t *tokens, size_t n, int64_t limit, uint32_t **out_ids) {
    size_t bytes = 0;
    uint32_t *ids = st_mul_size(n, sizeof *ids, &bytes) ? st_malloc(bytes) : NULL;
    if (!ids) return st_no_memory(bytes, "tokens");
    for (size_t i = 0; i < n; i++) {
        if (tokens[i] < 0 || tokens[i] >= limit) {
            st_free(ids);
            return FAIL(ST_INVALID, "token %zu is %lld, the vocabulary has 0 to %lld", i,
                        (long long)tokens[i], (long long)limit - 1);
        }
        ids[i] = (uint32_t)tokens[i];
    }
    *out_ids = ids;
    return ST_OK;
}

stator_status_t stator_tokenizer_decode(const stator_tokenizer_t *tokenizer, const int64_t *tokens,
                                        size_t n, char **out_text, size_t *out_bytes) {
    CAPI_OUT(out_text);
    CAPI_REQUIRE(out_bytes);
    *out_bytes = 0;
    CAPI_REQUIRE(tokenizer);
    CAPI_REQUIRE_N(tokens, n);
    uint32_t *ids = NULL;
    st_status_t status = narrow(tokens, n, stator_tokenizer_vocabulary(tokenizer), &ids);
    if (status == ST_OK) status = tokenizer_decode(tokenizer->inner, ids, n, out_text, out_bytes);
    st_free(ids);
    return capi_status(status);
}

stator_status_t stator_tokens_save(const char *path, const int64_t *tokens, size_t n,
                                   int64_t vocabulary) {
    CAPI_REQUIRE(path);
    CAPI_REQUIRE_N(tokens, n);
    if (vocabulary < 1 || vocabulary > UINT32_MAX)
        return capi_status(FAIL(ST_INVALID, "a vocabulary of %lld tokens; 1 to %u are possible",
                                (long long)vocabulary, UINT32_MAX));
    uint32_t *ids = NULL;
    st_status_t status = narrow(tokens, n, vocabulary, &ids);
    if (status == ST_OK) status = tokens_write(path, ids, n, (uint32_t)vocabulary);
    st_free(ids);
    return capi_status(status);
}
