/* Token shards: see tokens.h. */
#include "state/tokens.h"

#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/memory.h"

enum { HEADER_BYTES = 64, DATA_HASH_AT = 48, HEADER_HASH_AT = 56, VERSION = 1 };
static const char magic[8] = {'S', 'T', 'T', 'O', 'K', 'E', 'N', 'S'};

#ifdef STATOR_FUZZ
enum { VERIFIES_SUMS = 0 }; /* a fuzzer cannot make right ones */
#else
enum { VERIFIES_SUMS = 1 };
#endif

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files hold little-endian numbers");

typedef struct shard {
    st_file_t file;
    const uint8_t *data;
    uint32_t token_bytes;
    int64_t n_tokens;
    uint32_t vocab;
} shard_t;

struct tokens {
    shard_t *shards;
    size_t n_shards;
    int64_t n_tokens;
};

static void put_u32(uint8_t *at, uint32_t value) {
    memcpy(at, &value, sizeof value);
}

static void put_u64(uint8_t *at, uint64_t value) {
    memcpy(at, &value, sizeof value);
}

static uint32_t get_u32(const uint8_t *at) {
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static uint64_t get_u64(const uint8_t *at) {
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

st_status_t tokens_write(const char *path, const uint32_t *tokens, size_t n_tokens,
                         uint32_t vocab) {
    for (size_t i = 0; i < n_tokens; i++) {
        if (tokens[i] >= vocab) {
            return FAIL(ST_INVALID, "token %zu is %u, the vocabulary has %u", i, tokens[i], vocab);
        }
    }
    uint32_t token_bytes = vocab <= 65536 ? 2 : 4;
    size_t bytes;
    if (!st_mul_size(n_tokens, token_bytes, &bytes) || bytes > SIZE_MAX - HEADER_BYTES) {
        return FAIL(ST_INVALID, "%zu tokens are too many for a shard", n_tokens);
    }
    uint8_t *image = st_calloc(1, HEADER_BYTES + bytes);
    if (image == NULL) return st_no_memory(HEADER_BYTES + bytes, "a token shard");
    uint8_t *data = image + HEADER_BYTES;
    for (size_t i = 0; i < n_tokens; i++) memcpy(data + i * token_bytes, &tokens[i], token_bytes);
    memcpy(image, magic, sizeof magic);
    put_u32(image + 8, VERSION);
    put_u32(image + 12, token_bytes);
    put_u64(image + 16, n_tokens);
    put_u32(image + 24, vocab);
    put_u64(image + DATA_HASH_AT, st_hash64(data, bytes, 0));
    put_u64(image + HEADER_HASH_AT, st_hash64(image, HEADER_HASH_AT, 0));
    st_status_t status = st_file_write(path, image, HEADER_BYTES + bytes);
    st_free(image);
    return status;
}

static st_status_t read_header(shard_t *shard) {
    const uint8_t *header = shard->file.data;
    const char *path = shard->file.path;
    size_t bytes = shard->file.bytes;
    if (bytes < HEADER_BYTES || memcmp(header, magic, sizeof magic) != 0) {
        return FAIL(ST_PARSE, "'%s' is not a token shard", path);
    }
    if (get_u32(header + 8) != VERSION) {
        return FAIL(ST_UNSUPPORTED, "'%s': token shard version %u, this reader knows %d", path,
                    get_u32(header + 8), VERSION);
    }
    if (VERIFIES_SUMS && get_u64(header + HEADER_HASH_AT) != st_hash64(header, HEADER_HASH_AT, 0)) {
        return FAIL(ST_PARSE, "'%s' is damaged: the header's checksum does not hold", path);
    }
    shard->token_bytes = get_u32(header + 12);
    shard->vocab = get_u32(header + 24);
    uint64_t n_tokens = get_u64(header + 16);
    size_t data_bytes = bytes - HEADER_BYTES;
    bool bad_type = shard->token_bytes != 2 && shard->token_bytes != 4;
    if (bad_type || n_tokens != data_bytes / shard->token_bytes ||
        data_bytes % shard->token_bytes != 0) {
        return FAIL(ST_PARSE, "'%s': %llu tokens of %u bytes do not make %zu bytes", path,
                    (unsigned long long)n_tokens, shard->token_bytes, data_bytes);
    }
    shard->n_tokens = (int64_t)n_tokens;
    shard->data = header + HEADER_BYTES;
    if (VERIFIES_SUMS && get_u64(header + DATA_HASH_AT) != st_hash64(shard->data, data_bytes, 0)) {
        return FAIL(ST_PARSE, "'%s' is damaged: the tokens' checksum does not hold", path);
    }
    return ST_OK;
}

st_status_t tokens_open(const char *const *paths, size_t n_paths, tokens_t **out_tokens) {
    *out_tokens = NULL;
    if (n_paths == 0) return FAIL(ST_INVALID, "no token shard is given");
    tokens_t *tokens = st_calloc(1, sizeof *tokens);
    if (tokens == NULL) return st_no_memory(sizeof *tokens, "a token reader");
    st_status_t status = ST_OK;
    tokens->shards = st_calloc(n_paths, sizeof *tokens->shards);
    if (tokens->shards == NULL) {
        status = st_no_memory(n_paths * sizeof *tokens->shards, "a token reader");
        goto fail;
    }
    for (size_t i = 0; i < n_paths; i++) {
        shard_t *shard = &tokens->shards[i];
        TRY_GOTO(st_file_open(paths[i], &shard->file), fail);
        tokens->n_shards++;
        TRY_GOTO(read_header(shard), fail);
        if (shard->vocab != tokens->shards[0].vocab) {
            status = FAIL(ST_INVALID, "'%s' has a vocabulary of %u, '%s' one of %u", paths[i],
                          shard->vocab, paths[0], tokens->shards[0].vocab);
            goto fail;
        }
        tokens->n_tokens += shard->n_tokens;
    }
    *out_tokens = tokens;
    return ST_OK;
fail:
    tokens_close(tokens);
    return status;
}

void tokens_close(tokens_t *tokens) {
    if (tokens == NULL) return;
    for (size_t i = 0; i < tokens->n_shards; i++) st_file_close(&tokens->shards[i].file);
    st_free(tokens->shards);
    st_free(tokens);
}

int64_t tokens_count(const tokens_t *tokens) {
    return tokens->n_tokens;
}

uint32_t tokens_vocab(const tokens_t *tokens) {
    return tokens->shards[0].vocab;
}

static int64_t shard_samples(const shard_t *shard, int64_t window) {
    return shard->n_tokens > 0 ? (shard->n_tokens - 1) / window : 0;
}

int64_t tokens_samples(const tokens_t *tokens, int64_t window) {
    ASSERT(window >= 1);
    int64_t count = 0;
    for (size_t i = 0; i < tokens->n_shards; i++)
        count += shard_samples(&tokens->shards[i], window);
    return count;
}

static void put_token(void *base, int64_t at, ir_dtype_t dtype, uint32_t token) {
    if (dtype == IR_I64)
        ((int64_t *)base)[at] = token;
    else
        ((int32_t *)base)[at] = (int32_t)token;
}

/* Sample `sample` to row `row`. */
static st_status_t fill_row(const tokens_t *tokens, int64_t window, int64_t sample, int64_t row,
                            ir_dtype_t dtype, void *x, void *y) {
    const shard_t *shard = tokens->shards;
    int64_t local = sample;
    while (local >= shard_samples(shard, window)) {
        local -= shard_samples(shard, window);
        shard++;
    }
    const uint8_t *at = shard->data + (size_t)(local * window) * shard->token_bytes;
    for (int64_t i = 0; i <= window; i++) {
        uint32_t token = 0;
        memcpy(&token, at + (size_t)i * shard->token_bytes, shard->token_bytes);
        if (token >= shard->vocab) {
            return FAIL(ST_PARSE, "'%s': token %lld is %u, the vocabulary has %u", shard->file.path,
                        (long long)(local * window + i), token, shard->vocab);
        }
        if (i < window) put_token(x, row * window + i, dtype, token);
        if (i > 0 && y != NULL) put_token(y, row * window + i - 1, dtype, token);
    }
    return ST_OK;
}

/* Shards stay mapped for a whole run: a cut one would end the process by a signal, an overwritten
 * one would be trained on. One look at each shard that has one of the samples. */
static st_status_t check_shards(const tokens_t *tokens, int64_t window, const int64_t *samples,
                                size_t n) {
    int64_t first = 0;
    for (size_t s = 0; s < tokens->n_shards; s++) {
        int64_t count = shard_samples(&tokens->shards[s], window);
        bool is_used = false;
        for (size_t i = 0; i < n && !is_used; i++)
            is_used = samples[i] >= first && samples[i] - first < count;
        if (is_used) TRY(st_file_check(&tokens->shards[s].file));
        first += count;
    }
    return ST_OK;
}

st_status_t tokens_fill(const tokens_t *tokens, int64_t window, const int64_t *samples, size_t n,
                        ir_dtype_t dtype, void *x, void *y) {
    if (dtype != IR_I32 && dtype != IR_I64) {
        return FAIL(ST_INVALID, "tokens are i32 or i64, not %s", ir_dtype_text(dtype));
    }
    if (window < 1) return FAIL(ST_INVALID, "a window of %lld tokens", (long long)window);
    if (dtype == IR_I32 && tokens_vocab(tokens) > (uint32_t)INT32_MAX + 1) {
        return FAIL(ST_INVALID, "a vocabulary of %u does not fit i32", tokens_vocab(tokens));
    }
    int64_t n_samples = tokens_samples(tokens, window);
    TRY(check_shards(tokens, window, samples, n));
    for (size_t i = 0; i < n; i++) {
        if (samples[i] < 0 || samples[i] >= n_samples) {
            return FAIL(ST_INVALID, "sample %lld is outside the %lld of this data",
                        (long long)samples[i], (long long)n_samples);
        }
        TRY(fill_row(tokens, window, samples[i], (int64_t)i, dtype, x, y));
    }
    return ST_OK;
}
