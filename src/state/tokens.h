/* Token shards: a 64-byte header and raw token ids.
 *
 *   offset  bytes  content (little-endian)
 *        0      8  "STTOKENS"
 *        8      4  version, 1
 *       12      4  bytes a token, 2 or 4
 *       16      8  number of tokens
 *       24      4  vocabulary size; every token is below it
 *       28     20  zero
 *       48      8  st_hash64 of the tokens
 *       56      8  st_hash64 of the 56 bytes before
 *       64         tokens
 *
 * Several shards make one data set, in the order given. A sample of window T is T + 1 tokens that
 * follow each other inside one shard: x is the first T, y the last T. Windows do not overlap: they
 * start every T tokens, and what is left at a shard's end is not used. */
#ifndef STATOR_STATE_TOKENS_H
#define STATOR_STATE_TOKENS_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "ir/types.h"

/* Writes a shard atomically; two bytes a token where `vocab` allows. ST_INVALID names the first
 * token that is not below `vocab`. */
st_status_t tokens_write(const char *path, const uint32_t *tokens, size_t n_tokens,
                         uint32_t vocab) ST_WARN_UNUSED;

typedef struct tokens tokens_t;
/* Maps and verifies shards; all must have the same vocabulary size. */
st_status_t tokens_open(const char *const *paths, size_t n_paths,
                        tokens_t **out_tokens) ST_WARN_UNUSED;
/* NULL is fine. */
void tokens_close(tokens_t *tokens);

int64_t tokens_count(const tokens_t *tokens);
uint32_t tokens_vocab(const tokens_t *tokens);
/* Number of samples of `window` ≥ 1. */
int64_t tokens_samples(const tokens_t *tokens, int64_t window);
/* Writes x and y, each [n, window] of `dtype` (IR_I32 or IR_I64); y may be NULL. ST_IO names a
 * shard that changed since it was opened, before its tokens are touched. */
st_status_t tokens_fill(const tokens_t *tokens, int64_t window, const int64_t *samples, size_t n,
                        ir_dtype_t dtype, void *x, void *y) ST_WARN_UNUSED;

#endif
