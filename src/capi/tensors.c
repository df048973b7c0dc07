/* Named tensor sets: a mapped safetensors file, or tensors in memory. */
#include <string.h>

#include "base/memory.h"
#include "base/vec.h"
#include "base/words.h"
#include "capi/capi.h"
#include "state/safetensors.h"

typedef struct held {
    safetensors_dtype_t dtype;
    stator_tensor_t tensor; /* name and data belong to the arena */
} held_t;

typedef struct held_alias {
    const char *other, *stored;
} held_alias_t;

struct stator_tensors {
    st_arena_t arena;
    ST_VEC(held_t) tensors; /* ascending names */
    ST_VEC(held_alias_t) aliases;
    safetensors_t *file; /* whose data the tensors lend, NULL if they are in the arena */
    bool renamed;        /* the names are no longer the file's */
};

st_status_t capi_type_of(const stator_tensor_t *tensor, ir_type_t *out_type) {
    if (tensor->rank < 0 || tensor->rank > IR_MAX_RANK)
        return FAIL(ST_INVALID, "tensor '%s' has rank %d; 0 to %d are possible",
                    tensor->name ? tensor->name : "", (int)tensor->rank, IR_MAX_RANK);
    *out_type = ir_type_make((ir_dtype_t)tensor->dtype, tensor->rank, tensor->dims);
    st_status_t status = ir_type_check(out_type);
    if (status != ST_OK)
        return st_error_context(status, "tensor '%s'", tensor->name ? tensor->name : "");
    return ST_OK;
}

stator_tensor_t capi_tensor(const char *name, const ir_type_t *type, const void *data) {
    stator_tensor_t tensor = {.name = name,
                              .dtype = (stator_dtype_t)type->dtype,
                              .rank = type->rank,
                              .data = data,
                              .bytes = ir_type_bytes(type)};
    memcpy(tensor.dims, type->dims, sizeof tensor.dims);
    return tensor;
}

stator_status_t stator_tensors_create(stator_tensors_t **out_tensors) {
    CAPI_OUT(out_tensors);
    *out_tensors = st_calloc(1, sizeof **out_tensors);
    return *out_tensors ? STATOR_OK : capi_status(st_no_memory(sizeof **out_tensors, "tensors"));
}

void stator_tensors_destroy(stator_tensors_t *tensors) {
    if (!tensors) return;
    ST_VEC_FREE(&tensors->tensors);
    ST_VEC_FREE(&tensors->aliases);
    safetensors_close(tensors->file);
    st_arena_clear(&tensors->arena);
    st_free(tensors);
}

/* Position of `name` among the sorted tensors, or where it would stand. */
static size_t position(const stator_tensors_t *tensors, const char *name, bool *out_found) {
    size_t low = 0, high = tensors->tensors.n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(tensors->tensors.data[middle].tensor.name, name);
        if (order == 0) return *out_found = true, middle;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *out_found = false;
    return low;
}

static st_status_t insert(stator_tensors_t *tensors, held_t held) {
    bool found;
    size_t at = position(tensors, held.tensor.name, &found);
    if (found) return FAIL(ST_INVALID, "there is a tensor '%s' already", held.tensor.name);
    TRY(ST_VEC_PUSH(&tensors->tensors, held));
    held_t *all = tensors->tensors.data;
    memmove(&all[at + 1], &all[at], (tensors->tensors.n - 1 - at) * sizeof *all);
    all[at] = held;
    return ST_OK;
}

st_status_t capi_tensors_put(stator_tensors_t *tensors, const char *name, const ir_type_t *type,
                             const void *data) {
    size_t bytes = ir_type_bytes(type);
    const char *owned = st_arena_strdup(&tensors->arena, name);
    void *copy = st_arena_copy(&tensors->arena, data, bytes);
    if (!owned || !copy) return st_no_memory(bytes, "a tensor");
    return insert(tensors,
                  (held_t){safetensors_from_ir(type->dtype), capi_tensor(owned, type, copy)});
}

st_status_t capi_tensors_rename(stator_tensors_t *tensors, const char *old_name,
                                const char *new_name) {
    bool found;
    size_t at = position(tensors, old_name, &found);
    if (!found || strcmp(old_name, new_name) == 0) return ST_OK;
    position(tensors, new_name, &found);
    if (found)
        return FAIL(ST_INVALID, "'%s' cannot become '%s': that name is taken", old_name, new_name);
    held_t held = tensors->tensors.data[at];
    held.tensor.name = st_arena_strdup(&tensors->arena, new_name);
    if (!held.tensor.name) return st_no_memory(0, "a name");
    held_t *all = tensors->tensors.data;
    memmove(&all[at], &all[at + 1], (tensors->tensors.n - 1 - at) * sizeof *all);
    tensors->tensors.n--;
    tensors->renamed = true;
    return insert(tensors, held);
}

st_status_t capi_tensors_alias(stator_tensors_t *tensors, const char *other, const char *stored) {
    held_alias_t alias = {st_arena_strdup(&tensors->arena, other),
                          st_arena_strdup(&tensors->arena, stored)};
    if (!alias.other || !alias.stored) return st_no_memory(0, "an alias");
    return ST_VEC_PUSH(&tensors->aliases, alias);
}

stator_status_t stator_tensors_add(stator_tensors_t *tensors, const stator_tensor_t *tensor) {
    CAPI_REQUIRE(tensors);
    CAPI_REQUIRE(tensor);
    CAPI_REQUIRE_N(tensor->data, tensor->bytes);
    ir_type_t type;
    if (!tensor->name || !tensor->name[0])
        return capi_status(FAIL(ST_INVALID, "a tensor needs a name"));
    st_status_t status = capi_type_of(tensor, &type);
    if (status == ST_OK && tensor->bytes != ir_type_bytes(&type))
        status = FAIL(ST_INVALID, "tensor '%s' has %zu bytes, its shape and type need %zu",
                      tensor->name, tensor->bytes, ir_type_bytes(&type));
    if (status == ST_OK) status = capi_tensors_put(tensors, tensor->name, &type, tensor->data);
    return capi_status(status);
}

static st_status_t fill_from_file(stator_tensors_t *tensors) {
    for (size_t i = 0; i < safetensors_count(tensors->file); i++) {
        const safetensors_tensor_t *stored = safetensors_at(tensors->file, i);
        stator_tensor_t tensor = {.name = stored->name,
                                  .dtype = (stator_dtype_t)safetensors_to_ir(stored->dtype),
                                  .rank = stored->rank,
                                  .data = stored->data,
                                  .bytes = stored->bytes};
        memcpy(tensor.dims, stored->dims, sizeof tensor.dims);
        TRY(ST_VEC_PUSH(&tensors->tensors, ((held_t){stored->dtype, tensor})));
    }
    for (size_t i = 0; i < safetensors_alias_count(tensors->file); i++)
        TRY(ST_VEC_PUSH(&tensors->aliases,
                        ((held_alias_t){safetensors_alias_name(tensors->file, i),
                                        safetensors_alias_tensor(tensors->file, i)->name})));
    return ST_OK;
}

stator_status_t stator_tensors_load(const char *path, stator_tensors_t **out_tensors) {
    CAPI_OUT(out_tensors);
    CAPI_REQUIRE(path);
    stator_tensors_t *tensors = NULL;
    stator_status_t created = stator_tensors_create(&tensors);
    if (created != STATOR_OK) return created;
    st_status_t status = safetensors_open(path, &tensors->file);
    if (status == ST_OK) status = fill_from_file(tensors);
    if (status != ST_OK) {
        stator_tensors_destroy(tensors);
        return capi_status(status);
    }
    *out_tensors = tensors;
    return STATOR_OK;
}

static st_status_t fill_writer(const stator_tensors_t *tensors, safetensors_writer_t *writer) {
    for (size_t i = 0; i < tensors->tensors.n; i++) {
        const held_t *held = &tensors->tensors.data[i];
        const stator_tensor_t *t = &held->tensor;
        TRY(safetensors_writer_add(writer, t->name, held->dtype, t->rank, t->dims, t->data,
                                   t->bytes));
    }
    for (size_t i = 0; i < tensors->aliases.n; i++)
        TRY(safetensors_writer_alias(writer, tensors->aliases.data[i].other,
                                     tensors->aliases.data[i].stored));
    return ST_OK;
}

stator_status_t stator_tensors_save(const stator_tensors_t *tensors, const char *path) {
    CAPI_REQUIRE(tensors);
    CAPI_REQUIRE(path);
    safetensors_writer_t *writer = NULL;
    st_status_t status = safetensors_writer_create(&writer);
    if (status == ST_OK) status = fill_writer(tensors, writer);
    if (status == ST_OK) status = safetensors_writer_commit(writer, path);
    safetensors_writer_destroy(writer);
    return capi_status(status);
}

st_status_t capi_tensors_file(const stator_tensors_t *tensors, capi_file_t *out_file) {
    *out_file = (capi_file_t){.file = tensors->file};
    if (tensors->file && !tensors->renamed) return ST_OK;
    safetensors_writer_t *writer = NULL;
    size_t bytes = 0;
    st_status_t status = safetensors_writer_create(&writer);
    if (status == ST_OK) status = fill_writer(tensors, writer);
    if (status == ST_OK) status = safetensors_writer_encode(writer, &out_file->data, &bytes);
    if (status == ST_OK) status = safetensors_open_memory(out_file->data, bytes, &out_file->owned);
    safetensors_writer_destroy(writer);
    out_file->file = out_file->owned;
    return status;
}

void capi_file_release(capi_file_t *file) {
    safetensors_close(file->owned);
    st_free(file->data);
    *file = (capi_file_t){0};
}

size_t stator_tensors_count(const stator_tensors_t *tensors) {
    return tensors->tensors.n;
}
stator_tensor_t stator_tensors_at(const stator_tensors_t *tensors, size_t index) {
    if (index >= tensors->tensors.n) return (stator_tensor_t){0};
    return tensors->tensors.data[index].tensor;
}

static st_status_t not_found(const stator_tensors_t *tensors, const char *name) {
    const char **names = st_malloc(tensors->tensors.n * sizeof *names);
    if (!names) return st_no_memory(tensors->tensors.n * sizeof *names, "a search");
    for (size_t i = 0; i < tensors->tensors.n; i++) names[i] = tensors->tensors.data[i].tensor.name;
    const char *nearest = st_nearest(name, tensors->tensors.n, names);
    st_status_t status =
        nearest ? FAIL(ST_NOT_FOUND, "there is no tensor '%s'; the nearest is '%s'", name, nearest)
                : FAIL(ST_NOT_FOUND, "there is no tensor '%s'", name);
    st_free(names);
    return status;
}

stator_status_t stator_tensors_find(const stator_tensors_t *tensors, const char *name,
                                    stator_tensor_t *out_tensor) {
    CAPI_REQUIRE(out_tensor);
    CAPI_REQUIRE(tensors);
    CAPI_REQUIRE(name);
    const char *wanted = name;
    for (size_t i = 0; i < tensors->aliases.n; i++)
        if (strcmp(tensors->aliases.data[i].other, name) == 0)
            wanted = tensors->aliases.data[i].stored;
    bool found;
    size_t at = position(tensors, wanted, &found);
    if (!found) return capi_status(not_found(tensors, name));
    *out_tensor = tensors->tensors.data[at].tensor;
    return STATOR_OK;
}
