/* Fuzzes the reader of safetensors. What loads must answer by its own names, and written again it
 * must load with the same contents.
 *
 * Seeds: .safetensors
 * Covers: src/state/safetensors.c src/state/safetensors_types.c src/state/json.c
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "state/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* A finding ends the fuzzer. */
static void require(int holds) {
    if (!holds) abort();
}

static void check_names(const safetensors_t *file) {
    for (size_t i = 0; i < safetensors_count(file); i++) {
        const safetensors_tensor_t *tensor = safetensors_at(file, i);
        require(safetensors_find(file, tensor->name) == tensor);
    }
    for (size_t i = 0; i < safetensors_alias_count(file); i++) {
        const char *name = safetensors_alias_name(file, i);
        require(safetensors_find(file, name) == safetensors_alias_tensor(file, i));
        require(strcmp(safetensors_metadata(file, name), safetensors_alias_tensor(file, i)->name) ==
                0);
    }
    require(strcmp(safetensors_path(file), "memory") == 0);
}

/* Names that only other writers use (an empty one) are left out. */
static void write_again(const safetensors_t *file, void **out_data, size_t *out_bytes) {
    safetensors_writer_t *writer;
    require(safetensors_writer_create(&writer) == ST_OK);
    for (size_t i = 0; i < safetensors_count(file); i++) {
        const safetensors_tensor_t *t = safetensors_at(file, i);
        if (t->name[0] == '\0') continue;
        require(safetensors_writer_add(writer, t->name, t->dtype, t->rank, t->dims, t->data,
                                       t->bytes) == ST_OK);
    }
    require(safetensors_writer_encode(writer, out_data, out_bytes) == ST_OK);
    safetensors_writer_destroy(writer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    safetensors_t *file, *again;
    if (safetensors_open_memory(data, bytes, &file) != ST_OK) {
        require(strlen(st_last_error()) > 0);
        return 0;
    }
    check_names(file);
    void *written;
    size_t written_bytes;
    write_again(file, &written, &written_bytes);
    require(safetensors_open_memory(written, written_bytes, &again) == ST_OK);
    for (size_t i = 0; i < safetensors_count(again); i++) {
        const safetensors_tensor_t *b = safetensors_at(again, i);
        const safetensors_tensor_t *a = safetensors_find(file, b->name);
        require(a != NULL && a->dtype == b->dtype && a->bytes == b->bytes);
        require(a->bytes == 0 || memcmp(a->data, b->data, a->bytes) == 0);
    }
    safetensors_close(again);
    st_free(written);
    safetensors_close(file);
    return 0;
}
