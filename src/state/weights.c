/* Matching names, in two steps: choose the prefix, then judge the match under it.
 *
 * The prefix: since every stored float must be wanted, one of them (the one with the longest name)
 * leads to all candidates, which are the ends by which its names and the wanted names differ. The
 * candidate that leaves least unmatched wins, no prefix first. Cost: a candidate is O(n log n), and
 * only names that end alike make one. */
#include "state/weights.h"

#include <string.h>

#include "base/memory.h"
#include "state/convert.h"

typedef struct prefix {
    const char *text; /* not terminated: `length` bytes */
    size_t length;
    bool in_file;
} prefix_t;

typedef struct matcher {
    const safetensors_t *file;
    const weights_wanted_t *wanted;
    size_t n_wanted;
    bool *used; /* of each stored tensor */
    char *name; /* room for the longest prefixed name */
} matcher_t;

static const char *wanted_name(const weights_wanted_t *wanted, size_t i) {
    return i == 0 ? wanted->name : wanted->other_names[i - 1];
}

static const safetensors_tensor_t *look_up(const matcher_t *matcher, prefix_t prefix,
                                           const char *name) {
    if (!prefix.in_file) {
        if (strncmp(name, prefix.text, prefix.length) != 0) return NULL;
        return safetensors_find(matcher->file, name + prefix.length);
    }
    memcpy(matcher->name, prefix.text, prefix.length);
    strcpy(matcher->name + prefix.length, name);
    return safetensors_find(matcher->file, matcher->name);
}

static size_t index_of(const matcher_t *matcher, const safetensors_tensor_t *tensor) {
    return (size_t)(tensor - safetensors_at(matcher->file, 0));
}

static bool is_float(const safetensors_tensor_t *tensor) {
    return ir_dtype_is_float(safetensors_to_ir(tensor->dtype));
}

/* The stored tensor of a wanted one, under any of its names; marks what it uses. `*out_clash` is
 * another stored tensor with other contents under another of the names, or NULL. */
static const safetensors_tensor_t *match_one(matcher_t *matcher, prefix_t prefix,
                                             const weights_wanted_t *wanted,
                                             const safetensors_tensor_t **out_clash) {
    const safetensors_tensor_t *found = NULL;
    *out_clash = NULL;
    for (size_t i = 0; i <= wanted->n_other_names; i++) {
        const safetensors_tensor_t *tensor = look_up(matcher, prefix, wanted_name(wanted, i));
        if (tensor == NULL || tensor == found) continue;
        matcher->used[index_of(matcher, tensor)] = true;
        if (found == NULL)
            found = tensor;
        else if (tensor->bytes != found->bytes || tensor->dtype != found->dtype ||
                 memcmp(tensor->data, found->data, found->bytes) != 0) {
            *out_clash = tensor;
        }
    }
    return found;
}

/* Required ones not found plus stored floats not wanted, under a prefix. */
static size_t count_unmatched(matcher_t *matcher, prefix_t prefix) {
    size_t n_stored = safetensors_count(matcher->file);
    size_t unmatched = 0;
    memset(matcher->used, 0, n_stored);
    for (size_t i = 0; i < matcher->n_wanted; i++) {
        const safetensors_tensor_t *clash;
        const safetensors_tensor_t *found = match_one(matcher, prefix, &matcher->wanted[i], &clash);
        unmatched += found == NULL && !matcher->wanted[i].is_optional;
    }
    for (size_t i = 0; i < n_stored; i++) {
        unmatched += !matcher->used[i] && is_float(safetensors_at(matcher->file, i));
    }
    return unmatched;
}

/* Tries the prefix by which a stored and a wanted name differ, if they do. It is whole parts of the
 * name, up to a '.': "xw.weight" is no "w.weight" under a prefix. */
static void try_pair(matcher_t *matcher, const char *stored, const char *wanted, prefix_t *best,
                     size_t *best_unmatched) {
    size_t stored_length = strlen(stored), wanted_length = strlen(wanted);
    prefix_t prefix;
    if (stored_length > wanted_length) {
        prefix = (prefix_t){stored, stored_length - wanted_length, true};
        if (strcmp(stored + prefix.length, wanted) != 0) return;
    } else if (wanted_length > stored_length) {
        prefix = (prefix_t){wanted, wanted_length - stored_length, false};
        if (strcmp(wanted + prefix.length, stored) != 0) return;
    } else {
        return;
    }
    if (prefix.text[prefix.length - 1] != '.') return;
    size_t unmatched = count_unmatched(matcher, prefix);
    if (unmatched < *best_unmatched) {
        *best_unmatched = unmatched;
        *best = prefix;
    }
}

static void try_stored_name(matcher_t *matcher, const char *stored, prefix_t *best,
                            size_t *best_unmatched) {
    for (size_t i = 0; i<matcher->n_wanted && * best_unmatched> 0; i++) {
        const weights_wanted_t *wanted = &matcher->wanted[i];
        for (size_t j = 0; j <= wanted->n_other_names; j++) {
            try_pair(matcher, stored, wanted_name(wanted, j), best, best_unmatched);
        }
    }
}

static prefix_t choose_prefix(matcher_t *matcher) {
    const safetensors_t *file = matcher->file;
    prefix_t best = {"", 0, true};
    size_t best_unmatched = count_unmatched(matcher, best);
    const safetensors_tensor_t *longest = NULL;
    for (size_t i = 0; i < safetensors_count(file); i++) {
        const safetensors_tensor_t *tensor = safetensors_at(file, i);
        if (!is_float(tensor)) continue;
        if (longest == NULL || strlen(tensor->name) > strlen(longest->name)) longest = tensor;
    }
    if (longest == NULL) return best;
    try_stored_name(matcher, longest->name, &best, &best_unmatched);
    for (size_t i = 0; i < safetensors_alias_count(file); i++) {
        if (safetensors_alias_tensor(file, i) != longest) continue;
        try_stored_name(matcher, safetensors_alias_name(file, i), &best, &best_unmatched);
    }
    return best;
}

/* Shape and dtype of a found tensor; adds to the report when they do not fit. */
static void check_type(const weights_wanted_t *wanted, const safetensors_tensor_t *tensor,
                       state_report_t *report) {
    ir_dtype_t dtype = safetensors_to_ir(tensor->dtype);
    ir_type_t type = ir_type_make(dtype, tensor->rank, tensor->dims);
    bool fits = dtype == wanted->type.dtype ||
                (state_can_convert(dtype) && state_can_convert(wanted->type.dtype));
    if (fits && ir_dims_equal(&type, &wanted->type)) return;
    char expected[IR_TYPE_TEXT_BYTES], found[IR_TYPE_TEXT_BYTES];
    if (dtype == IR_DTYPE_NONE) {
        state_report_add(report, "%s (%s expected, dtype %s in the file)", wanted->name,
                         ir_type_text(&wanted->type, expected, sizeof expected),
                         safetensors_dtype_text(tensor->dtype));
        return;
    }
    state_report_add(report, "%s (%s expected, %s in the file)", wanted->name,
                     ir_type_text(&wanted->type, expected, sizeof expected),
                     ir_type_text(&type, found, sizeof found));
}

static st_status_t judge(matcher_t *matcher, prefix_t prefix, weights_match_t *match) {
    state_report_t missing = {0}, different = {0}, left = {0};
    size_t n_stored = safetensors_count(matcher->file);
    memset(matcher->used, 0, n_stored);
    for (size_t i = 0; i < matcher->n_wanted; i++) {
        const weights_wanted_t *wanted = &matcher->wanted[i];
        const safetensors_tensor_t *clash;
        const safetensors_tensor_t *found = match_one(matcher, prefix, wanted, &clash);
        match->tensors[i] = found;
        if (found == NULL) {
            state_report_add(wanted->is_optional ? &match->missing_optional : &missing, "%s",
                             wanted->name);
        } else if (clash != NULL) {
            state_report_add(&different, "%s (tied in the model, but %s and %s differ)",
                             wanted->name, found->name, clash->name);
        } else {
            check_type(wanted, found, &different);
        }
    }
    for (size_t i = 0; i < n_stored; i++) {
        const safetensors_tensor_t *tensor = safetensors_at(matcher->file, i);
        if (matcher->used[i]) continue;
        state_report_add(is_float(tensor) ? &left : &match->ignored, "%s", tensor->name);
    }
    if (missing.n + different.n + left.n == 0) return ST_OK;
    char texts[3][600];
    state_report_text(&missing, "missing", texts[0], sizeof texts[0]);
    state_report_text(&different, "that do not fit", texts[1], sizeof texts[1]);
    state_report_text(&left, "left over", texts[2], sizeof texts[2]);
    return FAIL(ST_INVALID, "'%s' does not match the model: %s%s%s%s%s",
                safetensors_path(matcher->file), texts[0],
                missing.n > 0 && different.n + left.n > 0 ? "; " : "", texts[1],
                different.n > 0 && left.n > 0 ? "; " : "", texts[2]);
}

static size_t longest_name(const matcher_t *matcher) {
    size_t longest = 0;
    for (size_t i = 0; i < matcher->n_wanted; i++) {
        for (size_t j = 0; j <= matcher->wanted[i].n_other_names; j++) {
            size_t length = strlen(wanted_name(&matcher->wanted[i], j));
            if (length > longest) longest = length;
        }
    }
    size_t longest_stored = 0;
    for (size_t i = 0; i < safetensors_count(matcher->file); i++) {
        size_t length = strlen(safetensors_at(matcher->file, i)->name);
        if (length > longest_stored) longest_stored = length;
    }
    for (size_t i = 0; i < safetensors_alias_count(matcher->file); i++) {
        size_t length = strlen(safetensors_alias_name(matcher->file, i));
        if (length > longest_stored) longest_stored = length;
    }
    return longest + longest_stored;
}

st_status_t weights_match(const safetensors_t *file, const weights_wanted_t *wanted,
                          size_t n_wanted, weights_match_t *out_match) {
    *out_match = (weights_match_t){.n = n_wanted};
    matcher_t matcher = {.file = file, .wanted = wanted, .n_wanted = n_wanted};
    st_status_t status = ST_OK;
    size_t name_bytes = longest_name(&matcher) + 1;
    matcher.used = st_calloc(safetensors_count(file), sizeof *matcher.used);
    matcher.name = st_malloc(name_bytes);
    out_match->tensors = st_calloc(n_wanted, sizeof *out_match->tensors);
    if (matcher.used == NULL || matcher.name == NULL || out_match->tensors == NULL) {
        status =
            st_no_memory(name_bytes + n_wanted * sizeof *out_match->tensors, "a weights match");
        goto fail;
    }
    prefix_t prefix = choose_prefix(&matcher);
    out_match->prefix_in_file = prefix.in_file;
    out_match->prefix = st_calloc(prefix.length + 1, 1);
    if (out_match->prefix == NULL) {
        status = st_no_memory(prefix.length + 1, "a name prefix");
        goto fail;
    }
    memcpy(out_match->prefix, prefix.text, prefix.length);
    status = judge(&matcher, prefix, out_match);
fail:
    st_free(matcher.used);
    st_free(matcher.name);
    if (status != ST_OK) weights_match_free(out_match);
    return status;
}

void weights_match_free(weights_match_t *match) {
    st_free(match->tensors);
    st_free(match->prefix);
    *match = (weights_match_t){0};
}

void weights_read(const safetensors_tensor_t *tensor, ir_dtype_t dtype, void *out) {
    ir_dtype_t stored = safetensors_to_ir(tensor->dtype);
    size_t elements = tensor->bytes / safetensors_dtype_bytes(tensor->dtype);
    if (stored != dtype) {
        state_convert(tensor->data, stored, out, dtype, elements);
    } else if (tensor->bytes > 0) {
        memcpy(out, tensor->data, tensor->bytes);
    }
}
