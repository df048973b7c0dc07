/* Ids to text: pieces joined, U+2581 to spaces, the space that encoding put in front taken away,
 * runs of byte pieces read as UTF-8 with U+FFFD for what is malformed. */
#include <string.h>

#include "state/spm.h"
#include "state/utf8.h"

static st_status_t append_bytes(const spm_t *model, const uint32_t *ids, size_t n,
                                spm_text_t *text) {
    if (n == 0) return ST_OK;
    uint8_t *bytes = st_malloc(n);
    if (bytes == NULL) return st_no_memory(n, "decoding a text");
    for (size_t i = 0; i < n; i++) bytes[i] = model->pieces[ids[i]].byte;
    st_status_t status = ST_OK;
    for (size_t i = 0; i < n && status == ST_OK;) {
        size_t length = state_utf8_length(bytes + i, n - i);
        status =
            length > 0 ? spm_append(text, bytes + i, length) : spm_append(text, "\xef\xbf\xbd", 3);
        i += length > 0 ? length : 1;
    }
    st_free(bytes);
    return status;
}

static st_status_t append_spaced(const uint8_t *piece, size_t bytes, spm_text_t *text) {
    for (size_t i = 0; i < bytes;) {
        bool is_space =
            bytes - i >= SPM_SPACE_BYTES && memcmp(piece + i, SPM_SPACE, SPM_SPACE_BYTES) == 0;
        TRY(is_space ? spm_append(text, " ", 1) : spm_append(text, piece + i, 1));
        i += is_space ? SPM_SPACE_BYTES : 1;
    }
    return ST_OK;
}

/* One piece that is no byte. `*at_start` is true until something that counts as a beginning has
 * been seen: text, or a leading space that was taken away (once, unless extra spaces are all
 * removed). */
static st_status_t append_piece(const spm_t *model, uint32_t id, bool *at_start, spm_text_t *text) {
    const spm_piece_t *piece = &model->pieces[id];
    if (text->n > 0) *at_start = false;
    if (piece->type == SPM_CONTROL) return ST_OK;
    if (piece->type == SPM_UNKNOWN) {
        return spm_append(text, model->unk_surface, model->unk_surface_bytes);
    }
    const uint8_t *bytes = piece->text;
    size_t n = piece->bytes;
    bool takes_space = *at_start && (model->add_dummy_prefix || model->remove_extra_whitespaces);
    if (takes_space && n >= SPM_SPACE_BYTES && memcmp(bytes, SPM_SPACE, SPM_SPACE_BYTES) == 0) {
        bytes += SPM_SPACE_BYTES;
        n -= SPM_SPACE_BYTES;
        if (!model->remove_extra_whitespaces) *at_start = false;
    }
    return append_spaced(bytes, n, text);
}

st_status_t spm_decode(const spm_t *model, const uint32_t *ids, size_t n, spm_text_t *out_text) {
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < model->n_pieces) continue;
        return FAIL(ST_INVALID, "token %zu is %u, the vocabulary has %u", i, ids[i],
                    model->n_pieces);
    }
    bool at_start = true;
    for (size_t i = 0; i < n;) {
        size_t run = i;
        while (run < n && model->pieces[ids[run]].type == SPM_BYTE) run++;
        TRY(append_bytes(model, ids + i, run - i, out_text));
        if (run == n) break;
        TRY(append_piece(model, ids[run], &at_start, out_text));
        i = run + 1;
    }
    return ST_OK;
}
