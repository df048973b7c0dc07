/* Fuzzes the readers of vocabularies: sentencepiece models and our own byte vocabularies. What
 * loads must encode any text into ids below its size and decode these again.
 *
 * Seeds: .model
 * Covers: src/state/spm*.c src/state/tokenizer.c src/state/utf8.c
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "state/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* A finding ends the fuzzer. */
static void require(int holds) {
    if (!holds) abort();
}

/* Spaces that collapse, an accent, a byte that is no UTF-8, control pieces, a newline. */
static const char text[] = "Once  upon \xc3\xa9 a\xff time [SEP] <s> \n";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    tokenizer_t *tokenizer;
    if (tokenizer_open_memory(data, bytes, &tokenizer) != ST_OK) {
        require(strlen(st_last_error()) > 0);
        return 0;
    }
    uint32_t *ids;
    size_t n, decoded_bytes;
    char *decoded;
    if (tokenizer_encode(tokenizer, text, strlen(text), &ids, &n) == ST_OK) {
        for (size_t i = 0; i < n; i++) require(ids[i] < tokenizer_vocab(tokenizer));
        require(tokenizer_decode(tokenizer, ids, n, &decoded, &decoded_bytes) == ST_OK);
        st_free(decoded);
        st_free(ids);
    }
    tokenizer_close(tokenizer);
    return 0;
}
