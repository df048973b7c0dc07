/* A loaded SentencePiece model; see tokenizer.h for what it does. Internal to the tokenizer. */
#ifndef STATOR_STATE_SPM_H
#define STATOR_STATE_SPM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"
#include "base/vec.h"

typedef enum spm_type {
    SPM_NORMAL = 1,
    SPM_UNKNOWN = 2,
    SPM_CONTROL = 3,
    SPM_USER_DEFINED = 4,
    SPM_UNUSED = 5,
    SPM_BYTE = 6,
} spm_type_t;

typedef struct spm_piece {
    const uint8_t *text;
    size_t bytes;
    float score;
    spm_type_t type;
    uint8_t byte; /* of a byte piece */
} spm_piece_t;

/* Ids in ascending order of their pieces' bytes, searched as if they were a trie. */
typedef struct spm_index {
    uint32_t *ids;
    size_t n;
} spm_index_t;

typedef struct spm {
    st_arena_t arena;
    spm_piece_t *pieces;
    uint32_t n_pieces;
    uint32_t *table;   /* open addressing by the pieces' hashes: id + 1, or 0 where free */
    size_t table_mask; /* its size - 1, a power of two - 1 */
    spm_index_t words; /* what text can become: normal, user-defined, unused */
    spm_index_t user_defined;
    bool is_bpe;
    bool byte_fallback;
    uint32_t byte_ids[256]; /* when byte_fallback */
    uint32_t unk_id;
    int64_t bos_id, eos_id;
    const uint8_t *unk_surface;
    size_t unk_surface_bytes;
    float min_score, max_score; /* of normal pieces */
    bool add_dummy_prefix, remove_extra_whitespaces, escape_whitespaces, space_is_suffix;
    const uint32_t *trie; /* character map: double array, then texts that end in NUL */
    size_t n_trie;
    const char *map_texts;
    size_t map_bytes;
} spm_t;

typedef ST_VEC(uint8_t) spm_text_t;
typedef ST_VEC(uint32_t) spm_ids_t;

/* U+2581, which stands for a space inside pieces. */
#define SPM_SPACE "\xe2\x96\x81"
enum { SPM_SPACE_BYTES = 3 };

st_status_t spm_load(const void *data, size_t bytes, spm_t *out_model) ST_WARN_UNUSED;
void spm_free(spm_t *model);

st_status_t spm_append(spm_text_t *text, const void *bytes, size_t n) ST_WARN_UNUSED;
/* The range of index entries that start with the bytes seen so far. */
typedef struct spm_cursor {
    size_t low, high, depth;
} spm_cursor_t;
spm_cursor_t spm_cursor(const spm_index_t *index);
/* Narrows by one byte; false when no entry is left. */
bool spm_step(const spm_t *model, const spm_index_t *index, spm_cursor_t *cursor, uint8_t byte);
/* The id whose piece is exactly what was stepped through, or -1. */
int64_t spm_here(const spm_t *model, const spm_index_t *index, const spm_cursor_t *cursor);
/* The id of a piece, or -1. */
int64_t spm_find(const spm_t *model, const uint8_t *text, size_t bytes);
/* True for what text can become: normal, user-defined, unused. */
bool spm_is_word(const spm_piece_t *piece);
/* Bytes of the longest user-defined piece that `text` starts with, 0 if none. */
size_t spm_match_user_defined(const spm_t *model, const uint8_t *text, size_t bytes);

st_status_t spm_normalize(const spm_t *model, const uint8_t *text, size_t bytes,
                          spm_text_t *out_text) ST_WARN_UNUSED;
st_status_t spm_encode_bpe(const spm_t *model, const uint8_t *text, size_t bytes,
                           spm_ids_t *out_ids) ST_WARN_UNUSED;
st_status_t spm_encode_unigram(const spm_t *model, const uint8_t *text, size_t bytes,
                               spm_ids_t *out_ids) ST_WARN_UNUSED;
st_status_t spm_decode(const spm_t *model, const uint32_t *ids, size_t n,
                       spm_text_t *out_text) ST_WARN_UNUSED;

/* Bytes that the first byte of a character claims, as SentencePiece steps through text. */
static inline size_t spm_char_bytes(uint8_t first, size_t left) {
    size_t n = first < 0xc0 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    return n < left ? n : left;
}

#endif
