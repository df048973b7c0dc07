/* Cutting normalized text into pieces.
 *
 * BPE: start from characters and merge the neighbouring pair with the best score (the leftmost on a
 * tie) until none is a piece; a heap of candidate pairs makes it O(n log n). A candidate whose
 * symbols have changed since is recognized by its length and dropped.
 *
 * Unigram: the sequence of pieces with the largest sum of scores, by dynamic programming over
 * places (Viterbi). Sums are kept in f32 and compared in f64, because SentencePiece's are, and ties
 * must fall the same way. Source: Kudo, "Subword regularization", ACL 2018. */
#include <string.h>

#include "state/spm.h"

/* Adds the id of a stretch of text: byte pieces for unknown text where the model has them, and one
 * id for neighbouring unknown stretches where not. */
static st_status_t emit(const spm_t *model, uint32_t id, const uint8_t *text, size_t bytes,
                        spm_ids_t *ids) {
    if (id != model->unk_id) return ST_VEC_PUSH(ids, id);
    if (model->byte_fallback) {
        for (size_t i = 0; i < bytes; i++) TRY(ST_VEC_PUSH(ids, model->byte_ids[text[i]]));
        return ST_OK;
    }
    if (ids->n > 0 && ids->data[ids->n - 1] == id) return ST_OK;
    return ST_VEC_PUSH(ids, id);
}

/* A stretch of text in a doubly linked list; merged away when it has no bytes. */
typedef struct symbol {
    size_t at, bytes;
    ptrdiff_t previous, next;
    bool is_frozen; /* user-defined: never merged */
} symbol_t;

typedef struct candidate {
    float score;
    size_t left, right;
    size_t bytes;
} candidate_t;

typedef struct bpe {
    const spm_t *model;
    const uint8_t *text;
    ST_VEC(symbol_t) symbols;
    ST_VEC(candidate_t) heap;
} bpe_t;

static bool comes_before(const candidate_t *a, const candidate_t *b) {
    if (a->score > b->score) return true;
    return !(a->score < b->score) && a->left < b->left;
}

static st_status_t heap_push(bpe_t *bpe, candidate_t candidate) {
    TRY(ST_VEC_PUSH(&bpe->heap, candidate));
    candidate_t *heap = bpe->heap.data;
    size_t at = bpe->heap.n - 1;
    while (at > 0 && comes_before(&candidate, &heap[(at - 1) / 2])) {
        heap[at] = heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap[at] = candidate;
    return ST_OK;
}

static candidate_t heap_pop(bpe_t *bpe) {
    candidate_t *heap = bpe->heap.data;
    candidate_t best = heap[0], last = heap[--bpe->heap.n];
    size_t n = bpe->heap.n, at = 0;
    while (2 * at + 1 < n) {
        size_t child = 2 * at + 1;
        if (child + 1 < n && comes_before(&heap[child + 1], &heap[child])) child++;
        if (!comes_before(&heap[child], &last)) break;
        heap[at] = heap[child];
        at = child;
    }
    if (n > 0) heap[at] = last;
    return best;
}

/* Makes the pair a candidate if together they are a piece. */
static st_status_t consider(bpe_t *bpe, ptrdiff_t left, ptrdiff_t right) {
    if (left < 0 || right < 0) return ST_OK;
    const symbol_t *a = &bpe->symbols.data[left], *b = &bpe->symbols.data[right];
    if (a->is_frozen || b->is_frozen) return ST_OK;
    size_t bytes = a->bytes + b->bytes;
    int64_t id = spm_find(bpe->model, bpe->text + a->at, bytes);
    if (id < 0 || !spm_is_word(&bpe->model->pieces[id])) return ST_OK;
    candidate_t candidate = {bpe->model->pieces[id].score, (size_t)left, (size_t)right, bytes};
    return heap_push(bpe, candidate);
}

static st_status_t split_characters(bpe_t *bpe, size_t bytes) {
    for (size_t at = 0; at < bytes;) {
        size_t user_defined = spm_match_user_defined(bpe->model, bpe->text + at, bytes - at);
        size_t n = user_defined > 0 ? user_defined : spm_char_bytes(bpe->text[at], bytes - at);
        ptrdiff_t index = (ptrdiff_t)bpe->symbols.n;
        symbol_t symbol = {at, n, index - 1, at + n < bytes ? index + 1 : -1, user_defined > 0};
        TRY(ST_VEC_PUSH(&bpe->symbols, symbol));
        at += n;
    }
    for (size_t i = 1; i < bpe->symbols.n; i++) {
        TRY(consider(bpe, (ptrdiff_t)i - 1, (ptrdiff_t)i));
    }
    return ST_OK;
}

static st_status_t merge_all(bpe_t *bpe) {
    symbol_t *symbols = bpe->symbols.data;
    while (bpe->heap.n > 0) {
        candidate_t best = heap_pop(bpe);
        symbol_t *left = &symbols[best.left], *right = &symbols[best.right];
        if (left->bytes == 0 || right->bytes == 0 || left->bytes + right->bytes != best.bytes) {
            continue;
        }
        left->bytes = best.bytes;
        left->next = right->next;
        if (right->next >= 0) symbols[right->next].previous = (ptrdiff_t)best.left;
        right->bytes = 0;
        TRY(consider(bpe, left->previous, (ptrdiff_t)best.left));
        TRY(consider(bpe, (ptrdiff_t)best.left, left->next));
    }
    return ST_OK;
}

st_status_t spm_encode_bpe(const spm_t *model, const uint8_t *text, size_t bytes,
                           spm_ids_t *out_ids) {
    bpe_t bpe = {.model = model, .text = text};
    st_status_t status = ST_OK;
    if (bytes == 0) return ST_OK;
    TRY_GOTO(split_characters(&bpe, bytes), fail);
    TRY_GOTO(merge_all(&bpe), fail);
    for (ptrdiff_t i = 0; i >= 0; i = bpe.symbols.data[i].next) {
        const symbol_t *symbol = &bpe.symbols.data[i];
        int64_t id = spm_find(model, text + symbol->at, symbol->bytes);
        TRY_GOTO(emit(model, id >= 0 ? (uint32_t)id : model->unk_id, text + symbol->at,
                      symbol->bytes, out_ids),
                 fail);
    }
fail:
    ST_VEC_FREE(&bpe.symbols);
    ST_VEC_FREE(&bpe.heap);
    return status;
}

/* The best way to reach a place: its last piece, where that starts, and the sum of scores. */
typedef struct node {
    uint32_t id;
    float score;
    ptrdiff_t starts_at; /* -1: not reached */
} node_t;

static void offer(node_t *node, double score, uint32_t id, size_t starts_at) {
    if (node->starts_at >= 0 && !(score > (double)node->score)) return;
    *node = (node_t){id, (float)score, (ptrdiff_t)starts_at};
}

/* All pieces that start at a place. */
static void extend(const spm_t *model, const uint8_t *text, size_t bytes, size_t at,
                   node_t *nodes) {
    static const float unk_penalty = 10.0f;
    size_t char_bytes = spm_char_bytes(text[at], bytes - at);
    double here = (double)nodes[at].score;
    bool has_character = false;
    spm_cursor_t cursor = spm_cursor(&model->words);
    for (size_t end = at; end < bytes;) {
        if (!spm_step(model, &model->words, &cursor, text[end++])) break;
        int64_t id = spm_here(model, &model->words, &cursor);
        if (id < 0 || model->pieces[id].type == SPM_UNUSED) continue;
        size_t length = end - at;
        double score = (double)model->pieces[id].score;
        if (model->pieces[id].type == SPM_USER_DEFINED) {
            score = (double)((float)length * model->max_score) - 0.1;
        }
        offer(&nodes[end], score + here, (uint32_t)id, at);
        if (length == char_bytes) has_character = true;
    }
    if (!has_character) {
        float score = model->min_score - unk_penalty + nodes[at].score;
        offer(&nodes[at + char_bytes], (double)score, model->unk_id, at);
    }
}

st_status_t spm_encode_unigram(const spm_t *model, const uint8_t *text, size_t bytes,
                               spm_ids_t *out_ids) {
    if (bytes == 0) return ST_OK;
    node_t *nodes = st_malloc((bytes + 1) * sizeof *nodes);
    if (nodes == NULL) return st_no_memory((bytes + 1) * sizeof *nodes, "encoding a text");
    st_status_t status = ST_OK;
    for (size_t i = 0; i <= bytes; i++) nodes[i] = (node_t){0, 0, -1};
    for (size_t at = 0; at < bytes; at += spm_char_bytes(text[at], bytes - at)) {
        extend(model, text, bytes, at, nodes);
    }
    /* Turn the links around: nodes[start].id and .starts_at then lead forward from the start. */
    size_t end = bytes, next = bytes;
    uint32_t id = 0;
    while (end > 0) {
        node_t node = nodes[end];
        nodes[end] = (node_t){id, 0, (ptrdiff_t)next};
        next = end;
        id = node.id;
        end = (size_t)node.starts_at;
    }
    nodes[0] = (node_t){id, 0, (ptrdiff_t)next};
    for (size_t at = 0; at < bytes && status == ST_OK;) {
        size_t to = (size_t)nodes[at].starts_at;
        status = emit(model, nodes[at].id, text + at, to - at, out_ids);
        at = to;
    }
    st_free(nodes);
    return status;
}
