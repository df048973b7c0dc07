/* Text to token ids and back. Two kinds, told apart by a file's contents:
 *
 * - a byte vocabulary, one token for each distinct byte of a text, in a small JSON file:
 *     {"format": "stator-vocabulary", "version": 1, "bytes": [10, 32, …]}   (ids are places)
 * - a SentencePiece model (BPE or unigram, with byte fallback), encoded and decoded exactly as
 *   SentencePiece itself does. */
#ifndef STATOR_STATE_TOKENIZER_H
#define STATOR_STATE_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct tokenizer tokenizer_t;

st_status_t tokenizer_open(const char *path, tokenizer_t **out_tokenizer) ST_WARN_UNUSED;
/* The same for a buffer, which is not needed afterwards. */
st_status_t tokenizer_open_memory(const void *data, size_t bytes,
                                  tokenizer_t **out_tokenizer) ST_WARN_UNUSED;
/* The byte vocabulary of a text. */
st_status_t tokenizer_from_text(const void *text, size_t bytes,
                                tokenizer_t **out_tokenizer) ST_WARN_UNUSED;
/* Writes a byte vocabulary; a SentencePiece model is ST_UNSUPPORTED. */
st_status_t tokenizer_save(const tokenizer_t *tokenizer, const char *path) ST_WARN_UNUSED;
/* NULL is fine. */
void tokenizer_close(tokenizer_t *tokenizer);

/* Number of ids. */
uint32_t tokenizer_vocab(const tokenizer_t *tokenizer);
/* Beginning and end of sequence, -1 if there is none. */
int64_t tokenizer_bos(const tokenizer_t *tokenizer);
int64_t tokenizer_eos(const tokenizer_t *tokenizer);

/* Ids of a text, from the heap (st_free). A byte that a byte vocabulary lacks is ST_INVALID. */
st_status_t tokenizer_encode(const tokenizer_t *tokenizer, const void *text, size_t bytes,
                             uint32_t **out_ids, size_t *out_n) ST_WARN_UNUSED;
/* Text of ids, from the heap (st_free), with a NUL after its last byte. An id outside the
 * vocabulary is ST_INVALID. */
st_status_t tokenizer_decode(const tokenizer_t *tokenizer, const uint32_t *ids, size_t n,
                             char **out_text, size_t *out_bytes) ST_WARN_UNUSED;

#endif
