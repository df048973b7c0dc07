/* Loading a SentencePiece model: the protobuf reader is generated from proto/sentencepiece.proto;
 * here the message is checked and copied into flat tables. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "sentencepiece.pb-c.h"
#include "state/spm.h"

/* The largest models in use have some 260,000 pieces in 5 MB. */
enum { MAX_MODEL_BYTES = 32 << 20, MAX_PIECES = 1 << 22 };

static void *message_alloc(void *data, size_t bytes) {
    (void)data;
    return st_malloc(bytes);
}

static void message_free(void *data, void *memory) {
    (void)data;
    st_free(memory);
}

static ProtobufCAllocator allocator = {message_alloc, message_free, NULL};

st_status_t spm_append(spm_text_t *text, const void *bytes, size_t n) {
    if (n == 0) return ST_OK;
    if (n > SIZE_MAX - text->n) return st_no_memory(n, "a text");
    TRY(ST_VEC_RESERVE(text, text->n + n));
    memcpy(text->data + text->n, bytes, n);
    text->n += n;
    return ST_OK;
}

static int compare_bytes(const uint8_t *a, size_t a_bytes, const uint8_t *b, size_t b_bytes) {
    size_t shared = a_bytes < b_bytes ? a_bytes : b_bytes;
    int order = shared > 0 ? memcmp(a, b, shared) : 0;
    if (order != 0) return order;
    return a_bytes < b_bytes ? -1 : a_bytes > b_bytes;
}

/* Sorting needs the pieces beside the ids; qsort has no context argument. */
typedef struct sort_key {
    const spm_piece_t *piece;
    uint32_t id;
} sort_key_t;

static int compare_keys(const void *a, const void *b) {
    const spm_piece_t *x = ((const sort_key_t *)a)->piece, *y = ((const sort_key_t *)b)->piece;
    return compare_bytes(x->text, x->bytes, y->text, y->bytes);
}

bool spm_is_word(const spm_piece_t *piece) {
    return piece->type == SPM_NORMAL || piece->type == SPM_USER_DEFINED ||
           piece->type == SPM_UNUSED;
}

/* Both indexes from one sort, which also proves the pieces distinct. */
static st_status_t make_indexes(spm_t *model) {
    size_t n = model->n_pieces;
    sort_key_t *keys = st_malloc(n * sizeof *keys);
    spm_index_t *indexes[] = {&model->words, &model->user_defined};
    st_status_t status = ST_OK;
    for (int i = 0; i < 2; i++) {
        indexes[i]->ids = st_arena_array(&model->arena, n, sizeof(uint32_t));
        if (keys == NULL || indexes[i]->ids == NULL) {
            status = st_no_memory(n * sizeof *keys, "a vocabulary index");
            goto fail;
        }
    }
    for (uint32_t i = 0; i < n; i++) keys[i] = (sort_key_t){&model->pieces[i], i};
    qsort(keys, n, sizeof *keys, compare_keys);
    for (size_t i = 0; i < n; i++) {
        if (i > 0 && compare_keys(&keys[i - 1], &keys[i]) == 0) {
            status = FAIL(ST_PARSE, "tokenizer model: pieces %u and %u are equal", keys[i - 1].id,
                          keys[i].id);
            goto fail;
        }
        const spm_piece_t *piece = keys[i].piece;
        if (spm_is_word(piece)) model->words.ids[model->words.n++] = keys[i].id;
        if (piece->type == SPM_USER_DEFINED) {
            model->user_defined.ids[model->user_defined.n++] = keys[i].id;
        }
    }
fail:
    st_free(keys);
    return status;
}

spm_cursor_t spm_cursor(const spm_index_t *index) {
    return (spm_cursor_t){.high = index->n};
}

/* First entry in the cursor's range whose byte at its depth is not below `limit`; entries that end
 * there come first. */
static size_t lower_bound(const spm_t *model, const spm_index_t *index, const spm_cursor_t *cursor,
                          unsigned limit) {
    size_t low = cursor->low, high = cursor->high;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const spm_piece_t *piece = &model->pieces[index->ids[middle]];
        bool is_below = piece->bytes <= cursor->depth || piece->text[cursor->depth] < limit;
        if (is_below)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool spm_step(const spm_t *model, const spm_index_t *index, spm_cursor_t *cursor, uint8_t byte) {
    size_t low = lower_bound(model, index, cursor, byte);
    size_t high = lower_bound(model, index, cursor, (unsigned)byte + 1);
    *cursor = (spm_cursor_t){low, high, cursor->depth + 1};
    return low < high;
}

int64_t spm_here(const spm_t *model, const spm_index_t *index, const spm_cursor_t *cursor) {
    if (cursor->low >= cursor->high) return -1;
    uint32_t id = index->ids[cursor->low];
    return model->pieces[id].bytes == cursor->depth ? (int64_t)id : -1;
}

/* The slot of a piece: where it is, or the free one where it belongs. */
static size_t find_slot(const spm_t *model, const uint8_t *text, size_t bytes) {
    size_t slot = (size_t)st_hash64(text, bytes, 0) & model->table_mask;
    while (model->table[slot] != 0) {
        const spm_piece_t *piece = &model->pieces[model->table[slot] - 1];
        if (piece->bytes == bytes && memcmp(piece->text, text, bytes) == 0) break;
        slot = (slot + 1) & model->table_mask;
    }
    return slot;
}

int64_t spm_find(const spm_t *model, const uint8_t *text, size_t bytes) {
    return (int64_t)model->table[find_slot(model, text, bytes)] - 1;
}

/* At most half full. The pieces are distinct. */
static st_status_t make_table(spm_t *model) {
    size_t size = 2;
    while (size < 2 * (size_t)model->n_pieces) size *= 2;
    model->table = st_arena_array(&model->arena, size, sizeof *model->table);
    if (model->table == NULL)
        return st_no_memory(size * sizeof *model->table, "a vocabulary table");
    model->table_mask = size - 1;
    for (uint32_t i = 0; i < model->n_pieces; i++) {
        model->table[find_slot(model, model->pieces[i].text, model->pieces[i].bytes)] = i + 1;
    }
    return ST_OK;
}

size_t spm_match_user_defined(const spm_t *model, const uint8_t *text, size_t bytes) {
    size_t longest = 0;
    if (model->user_defined.n == 0) return 0;
    spm_cursor_t cursor = spm_cursor(&model->user_defined);
    for (size_t i = 0; i < bytes; i++) {
        if (!spm_step(model, &model->user_defined, &cursor, text[i])) break;
        if (spm_here(model, &model->user_defined, &cursor) >= 0) longest = i + 1;
    }
    return longest;
}

static st_status_t copy_bytes(spm_t *model, ProtobufCBinaryData source, const uint8_t **out_text) {
    uint8_t *copy = st_arena_alloc(&model->arena, source.len + 1);
    if (copy == NULL) return st_no_memory(source.len, "a tokenizer model");
    if (source.len > 0) memcpy(copy, source.data, source.len);
    *out_text = copy;
    return ST_OK;
}

/* The byte of "<0xAB>", or -1. */
static int parse_byte_piece(const spm_piece_t *piece) {
    const char *digits = "0123456789ABCDEF";
    if (piece->bytes != 6 || memcmp(piece->text, "<0x", 3) != 0 || piece->text[5] != '>') return -1;
    const char *high = memchr(digits, piece->text[3], 16);
    const char *low = memchr(digits, piece->text[4], 16);
    return high != NULL && low != NULL ? (int)((high - digits) * 16 + (low - digits)) : -1;
}

static st_status_t read_piece(spm_t *model, uint32_t id,
                              const SentencepieceModel__ModelProto__SentencePiece *source) {
    spm_piece_t *piece = &model->pieces[id];
    if (!source->has_piece || source->piece.len == 0) {
        return FAIL(ST_PARSE, "tokenizer model: piece %u is empty", id);
    }
    TRY(copy_bytes(model, source->piece, &piece->text));
    piece->bytes = source->piece.len;
    piece->score = source->score;
    piece->type = (spm_type_t)source->type;
    if ((int)source->type < SPM_NORMAL || (int)source->type > SPM_BYTE) {
        return FAIL(ST_PARSE, "tokenizer model: piece %u has the unknown type %d", id,
                    (int)source->type);
    }
    if (!isfinite(piece->score)) {
        return FAIL(ST_PARSE, "tokenizer model: the score of piece %u is not finite", id);
    }
    if (piece->type == SPM_BYTE) {
        int byte = parse_byte_piece(piece);
        if (byte < 0) return FAIL(ST_PARSE, "tokenizer model: byte piece %u is malformed", id);
        piece->byte = (uint8_t)byte;
    }
    return ST_OK;
}

static st_status_t read_pieces(spm_t *model, const SentencepieceModel__ModelProto *source) {
    if (source->n_pieces == 0 || source->n_pieces > MAX_PIECES) {
        return FAIL(ST_PARSE, "tokenizer model: %zu pieces, expected 1 to %d", source->n_pieces,
                    MAX_PIECES);
    }
    model->n_pieces = (uint32_t)source->n_pieces;
    model->pieces = st_arena_array(&model->arena, model->n_pieces, sizeof *model->pieces);
    if (model->pieces == NULL) {
        return st_no_memory(model->n_pieces * sizeof *model->pieces, "a vocabulary");
    }
    uint32_t n_unknown = 0, n_bytes = 0;
    bool has_normal = false;
    for (uint32_t i = 0; i < model->n_pieces; i++) {
        TRY(read_piece(model, i, source->pieces[i]));
        const spm_piece_t *piece = &model->pieces[i];
        if (piece->type == SPM_UNKNOWN) {
            model->unk_id = i;
            n_unknown++;
        } else if (piece->type == SPM_BYTE) {
            model->byte_ids[piece->byte] = i;
            n_bytes++;
        } else if (piece->type == SPM_NORMAL) {
            if (!has_normal || piece->score < model->min_score) model->min_score = piece->score;
            if (piece->score > model->max_score) model->max_score = piece->score;
            has_normal = true;
        }
    }
    if (n_unknown != 1) {
        return FAIL(ST_PARSE, "tokenizer model: %u pieces for unknown text, expected 1", n_unknown);
    }
    TRY(make_indexes(model));
    TRY(make_table(model));
    /* The pieces are distinct, as the indexes proved, so 256 byte pieces are all bytes. */
    if (model->byte_fallback && n_bytes != 256) {
        return FAIL(ST_PARSE, "tokenizer model: %u byte pieces, expected 256", n_bytes);
    }
    return ST_OK;
}

static int64_t find_control(const spm_t *model, bool is_given, ProtobufCBinaryData given,
                            const char *usual) {
    const uint8_t *text = is_given ? given.data : (const uint8_t *)usual;
    int64_t id = spm_find(model, text, is_given ? given.len : strlen(usual));
    return id >= 0 && model->pieces[id].type == SPM_CONTROL ? id : -1;
}

static st_status_t read_trainer(spm_t *model, const SentencepieceModel__TrainerSpec *spec) {
    static const char usual_surface[] = " \xe2\x81\x87 ";
    int type = spec != NULL ? (int)spec->model_type
                            : SENTENCEPIECE_MODEL__TRAINER_SPEC__MODEL_TYPE__UNIGRAM;
    if (type != SENTENCEPIECE_MODEL__TRAINER_SPEC__MODEL_TYPE__UNIGRAM &&
        type != SENTENCEPIECE_MODEL__TRAINER_SPEC__MODEL_TYPE__BPE) {
        return FAIL(ST_UNSUPPORTED,
                    "tokenizer model: type %d, only unigram (1) and BPE (2) are read", type);
    }
    model->is_bpe = type == SENTENCEPIECE_MODEL__TRAINER_SPEC__MODEL_TYPE__BPE;
    model->byte_fallback = spec != NULL && spec->byte_fallback;
    model->space_is_suffix = spec != NULL && spec->treat_whitespace_as_suffix;
    model->unk_surface = (const uint8_t *)usual_surface;
    model->unk_surface_bytes = sizeof usual_surface - 1;
    if (spec != NULL && spec->has_unk_surface) {
        TRY(copy_bytes(model, spec->unk_surface, &model->unk_surface));
        model->unk_surface_bytes = spec->unk_surface.len;
    }
    return ST_OK;
}

/* The character map: u32 size, a double array of that size, texts that end in NUL. */
static st_status_t read_map(spm_t *model, ProtobufCBinaryData map) {
    if (map.len == 0) return ST_OK;
    uint32_t trie_bytes = 0;
    if (map.len >= 4) memcpy(&trie_bytes, map.data, 4);
    if (map.len < 4 || trie_bytes > map.len - 4 || trie_bytes % 4 != 0 || trie_bytes < 1024) {
        return FAIL(ST_PARSE, "tokenizer model: the character map of %zu bytes is malformed",
                    map.len);
    }
    const uint8_t *copy = NULL;
    ProtobufCBinaryData trie = {trie_bytes, map.data + 4};
    ProtobufCBinaryData texts = {map.len - 4 - trie_bytes, map.data + 4 + trie_bytes};
    TRY(copy_bytes(model, trie, &copy));
    model->trie = (const uint32_t *)(const void *)copy; /* arenas align to 16 bytes */
    model->n_trie = trie_bytes / 4;
    TRY(copy_bytes(model, texts, &copy)); /* its added NUL ends the last text in any case */
    model->map_texts = (const char *)copy;
    model->map_bytes = texts.len;
    return ST_OK;
}

static st_status_t read_normalizer(spm_t *model, const SentencepieceModel__NormalizerSpec *spec) {
    model->add_dummy_prefix = spec == NULL || spec->add_dummy_prefix;
    model->remove_extra_whitespaces = spec == NULL || spec->remove_extra_whitespaces;
    model->escape_whitespaces = spec == NULL || spec->escape_whitespaces;
    if (spec != NULL && spec->has_precompiled_charsmap) {
        return read_map(model, spec->precompiled_charsmap);
    }
    return ST_OK;
}

static st_status_t read_model(spm_t *model, const SentencepieceModel__ModelProto *source) {
    /* The least positive float, not the least float: SentencePiece starts there. */
    model->max_score = 1.17549435e-38f;
    TRY(read_trainer(model, source->trainer_spec));
    TRY(read_normalizer(model, source->normalizer_spec));
    TRY(read_pieces(model, source));
    for (uint32_t i = 0; model->is_bpe && i < model->n_pieces; i++) {
        if (model->pieces[i].type != SPM_UNUSED) continue;
        return FAIL(ST_UNSUPPORTED, "tokenizer model: piece %u of a BPE model is marked unused", i);
    }
    const SentencepieceModel__TrainerSpec *spec = source->trainer_spec;
    ProtobufCBinaryData none = {0};
    model->bos_id = find_control(model, spec != NULL && spec->has_bos_piece,
                                 spec != NULL ? spec->bos_piece : none, "<s>");
    model->eos_id = find_control(model, spec != NULL && spec->has_eos_piece,
                                 spec != NULL ? spec->eos_piece : none, "</s>");
    return ST_OK;
}

st_status_t spm_load(const void *data, size_t bytes, spm_t *out_model) {
    *out_model = (spm_t){0};
    if (bytes == 0 || bytes > MAX_MODEL_BYTES) {
        return FAIL(ST_PARSE, "not a tokenizer model: %zu bytes, expected 1 to %d", bytes,
                    MAX_MODEL_BYTES);
    }
    SentencepieceModel__ModelProto *source =
        sentencepiece_model__model_proto__unpack(&allocator, bytes, data);
    if (source == NULL) {
        return FAIL(ST_PARSE,
                    "not a tokenizer model: neither a vocabulary in JSON nor a "
                    "SentencePiece model in protobuf (or memory is short)");
    }
    st_status_t status = read_model(out_model, source);
    sentencepiece_model__model_proto__free_unpacked(source, &allocator);
    if (status != ST_OK) spm_free(out_model);
    return status;
}

void spm_free(spm_t *model) {
    st_arena_clear(&model->arena);
    *model = (spm_t){0};
}
