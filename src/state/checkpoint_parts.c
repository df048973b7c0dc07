/* Names of files and boxes of tensors: see checkpoint_parts.h. */
#include "state/checkpoint_parts.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "state/safetensors_internal.h"

#define PART_PREFIX "stator.part."
enum { BOX_TEXT_BYTES = 2 * IR_MAX_RANK * 21 + 2 };

void checkpoint_file_name(checkpoint_kind_t kind, uint32_t part, uint32_t n_parts,
                          char out[CHECKPOINT_FILE_NAME_BYTES]) {
    const char *word = kind == CHECKPOINT_MODEL ? "model" : "optimizer";
    if (n_parts == 1)
        snprintf(out, CHECKPOINT_FILE_NAME_BYTES, "%s.safetensors", word);
    else
        snprintf(out, CHECKPOINT_FILE_NAME_BYTES, "%s-%05u-of-%05u.safetensors", word, part,
                 n_parts);
}

static st_status_t part_key(const char *name, char **out_key) {
    const size_t bytes = strlen(PART_PREFIX) + strlen(name) + 1;
    *out_key = st_malloc(bytes);
    if (*out_key == NULL) return st_no_memory(bytes, "a metadata key");
    snprintf(*out_key, bytes, PART_PREFIX "%s", name);
    return ST_OK;
}

static char *put_numbers(char *at, int32_t n, const int64_t *numbers, char end) {
    for (int32_t i = 0; i < n; i++) at += sprintf(at, "%s%" PRId64, i > 0 ? "," : "", numbers[i]);
    *at = end;
    return at + 1;
}

st_status_t checkpoint_write_box(safetensors_writer_t *writer, const char *name,
                                 const ir_type_t *type, const ir_box_t *box) {
    char text[BOX_TEXT_BYTES], *key;
    if (ir_box_is_whole(type, box)) return ST_OK;
    put_numbers(put_numbers(text, type->rank, type->dims, ' '), type->rank, box->begin, '\0');
    TRY(part_key(name, &key));
    st_status_t status = safetensors_writer_add_metadata(writer, key, text);
    st_free(key);
    return status;
}

/* `n` numbers of digits alone, separated by commas, then `end`. */
static const char *take_numbers(const char *at, int32_t n, char end, int64_t *out) {
    for (int32_t i = 0; i < n; i++) {
        char *after;
        if (*at < '0' || *at > '9') return NULL;
        errno = 0;
        out[i] = strtoll(at, &after, 10);
        if (errno != 0 || *after != (i + 1 < n ? ',' : end)) return NULL;
        at = after + 1;
    }
    return at;
}

static st_status_t parse_box(const char *text, const safetensors_tensor_t *stored, int64_t *dims,
                             ir_box_t *box) {
    size_t bytes;
    const char *at = take_numbers(text, stored->rank, ' ', dims);
    if (stored->rank == 0 || at == NULL ||
        take_numbers(at, stored->rank, '\0', box->begin) == NULL ||
        !safetensors_shape_bytes(stored->dtype, stored->rank, dims, &bytes))
        return FAIL(ST_PARSE, "tensor '%s': '%.64s' says of no tensor what it is a part of",
                    stored->name, text);
    for (int32_t d = 0; d < stored->rank; d++) {
        if (box->begin[d] > dims[d] || stored->dims[d] > dims[d] - box->begin[d])
            return FAIL(ST_PARSE, "tensor '%s': the part does not lie within '%.64s'", stored->name,
                        text);
        box->extent[d] = stored->dims[d];
    }
    return ST_OK;
}

st_status_t checkpoint_read_box(const safetensors_t *file, const safetensors_tensor_t *stored,
                                ir_type_t *out_type, ir_box_t *out_box) {
    char *key;
    int64_t dims[IR_MAX_RANK] = {0};
    const ir_dtype_t dtype = safetensors_to_ir(stored->dtype);
    *out_box = (ir_box_t){0};
    if (dtype == IR_DTYPE_NONE)
        return FAIL(ST_UNSUPPORTED, "tensor '%s': no state has the type %s", stored->name,
                    safetensors_dtype_text(stored->dtype));
    TRY(part_key(stored->name, &key));
    const char *text = safetensors_metadata(file, key);
    st_free(key);
    *out_type = ir_type_make(dtype, stored->rank, stored->dims);
    if (text == NULL) {
        *out_box = ir_box_whole(out_type);
        return ST_OK;
    }
    TRY(parse_box(text, stored, dims, out_box));
    *out_type = ir_type_make(dtype, stored->rank, dims);
    return ST_OK;
}
