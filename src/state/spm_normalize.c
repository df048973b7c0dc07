/* Normalization of text before it is cut into pieces: character map, spaces.
 *
 * The character map is a trie as a double array (Aoe 1989, in the layout of Darts-clone): a node is
 * a 32-bit unit, the child for byte c lies at offset(node) ^ c, and a unit's label tells whether it
 * is that child. A node that ends a key has a leaf at offset(node), whose low 31 bits are the place
 * of the replacement. */
#include <string.h>

#include "state/spm.h"
#include "state/utf8.h"

static size_t unit_offset(uint32_t unit) {
    return (size_t)(unit >> 10) << ((unit & 0x200) >> 6);
}

/* The longest key of the map that `text` starts with. False if there is none; places outside the
 * array, which only a damaged map has, end the search. */
static bool map_prefix(const spm_t *model, const uint8_t *text, size_t bytes, size_t *out_consumed,
                       const char **out_replacement) {
    bool found = false;
    if (model->n_trie == 0) return false;
    size_t node = unit_offset(model->trie[0]);
    for (size_t i = 0; i < bytes; i++) {
        node ^= text[i];
        if (node >= model->n_trie) break;
        uint32_t unit = model->trie[node];
        if ((unit & 0x800000ff) != text[i]) break;
        node ^= unit_offset(unit);
        if ((unit & 0x100) == 0) continue;
        if (node >= model->n_trie) break;
        size_t place = model->trie[node] & 0x7fffffff;
        if (place >= model->map_bytes) break;
        *out_consumed = i + 1;
        *out_replacement = model->map_texts + place;
        found = true;
    }
    return found;
}

/* What the start of `text` becomes, and how much of it that consumes. */
typedef struct prefix {
    const char *text;
    size_t bytes;
    size_t consumed;
} prefix_t;

static prefix_t normalize_prefix(const spm_t *model, const uint8_t *text, size_t bytes) {
    size_t user_defined = spm_match_user_defined(model, text, bytes);
    if (user_defined > 0) return (prefix_t){(const char *)text, user_defined, user_defined};
    size_t consumed;
    const char *replacement;
    if (map_prefix(model, text, bytes, &consumed, &replacement)) {
        return (prefix_t){replacement, strlen(replacement), consumed};
    }
    size_t length = state_utf8_length(text, bytes);
    if (length > 0) return (prefix_t){(const char *)text, length, length};
    return (prefix_t){"\xef\xbf\xbd", 3, 1}; /* a malformed byte becomes U+FFFD */
}

static st_status_t append_space(const spm_t *model, spm_text_t *text) {
    if (model->escape_whitespaces) return spm_append(text, SPM_SPACE, SPM_SPACE_BYTES);
    return spm_append(text, " ", 1);
}

static st_status_t append_escaped(const spm_t *model, spm_text_t *text, const char *part,
                                  size_t bytes) {
    for (size_t i = 0; i < bytes; i++) {
        if (part[i] == ' ')
            TRY(append_space(model, text));
        else
            TRY(spm_append(text, part + i, 1));
    }
    return ST_OK;
}

static void trim_end(const spm_t *model, spm_text_t *text) {
    const char *space = model->escape_whitespaces ? SPM_SPACE : " ";
    size_t n = strlen(space);
    while (text->n >= n && memcmp(text->data + text->n - n, space, n) == 0) text->n -= n;
}

st_status_t spm_normalize(const spm_t *model, const uint8_t *text, size_t bytes,
                          spm_text_t *out_text) {
    const uint8_t *end = text + bytes;
    while (model->remove_extra_whitespaces && text < end) {
        prefix_t prefix = normalize_prefix(model, text, (size_t)(end - text));
        if (prefix.bytes != 1 || prefix.text[0] != ' ') break;
        text += prefix.consumed;
    }
    if (text == end) return ST_OK;
    if (!model->space_is_suffix && model->add_dummy_prefix) TRY(append_space(model, out_text));
    bool after_space = model->remove_extra_whitespaces;
    while (text < end) {
        prefix_t prefix = normalize_prefix(model, text, (size_t)(end - text));
        while (after_space && prefix.bytes > 0 && prefix.text[0] == ' ') {
            prefix.text++;
            prefix.bytes--;
        }
        if (prefix.bytes > 0) {
            TRY(append_escaped(model, out_text, prefix.text, prefix.bytes));
            after_space = prefix.text[prefix.bytes - 1] == ' ';
        }
        text += prefix.consumed;
        if (!model->remove_extra_whitespaces) after_space = false;
    }
    if (model->remove_extra_whitespaces) trim_end(model, out_text);
    if (model->space_is_suffix && model->add_dummy_prefix) return append_space(model, out_text);
    return ST_OK;
}
