/* Opening checkpoints: the newest set that holds, and copying it into the caller's tensors. */
#include "state/checkpoint.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/vec.h"
#include "state/checkpoint_sets.h"
#include "state/json.h"
#include "state/report.h"

struct checkpoint {
    char *folder;
    checkpoint_progress_t progress;
    safetensors_t *model;
    safetensors_t *optimizer;
    char skipped[1024];
};

static const state_json_limits_t json_limits = {.depth = 4, .array_length = 16};

/* A small JSON file of a set. */
static st_status_t read_json(const char *folder, const char *name, json_object **out_object) {
    *out_object = NULL;
    char *path = st_path_join(folder, name);
    if (path == NULL) return st_no_memory(strlen(folder), "a file's path");
    st_file_t file;
    st_status_t status = st_file_open(path, &file);
    if (status == ST_OK) {
        status =
            state_json_parse((const char *)file.data, file.bytes, json_limits, path, out_object);
        st_file_close(&file);
    }
    st_free(path);
    return status;
}

/* One entry of the manifest against the file. */
static st_status_t check_file(const char *folder, const char *expected_name, json_object *entry) {
    const char *name, *hex;
    uint64_t bytes, hash, actual_bytes, actual_hash;
    if (!json_object_is_type(entry, json_type_object)) {
        return FAIL(ST_PARSE, "manifest: a file entry is not an object");
    }
    TRY(state_json_string(entry, "name", "manifest", &name));
    if (strcmp(name, expected_name) != 0) {
        return FAIL(ST_PARSE, "manifest: lists '%.64s', expected '%s'", name, expected_name);
    }
    TRY(state_json_u64(entry, "bytes", "manifest", &bytes));
    TRY(state_json_string(entry, "xxh64", "manifest", &hex));
    TRY(state_parse_hex64(hex, "manifest", &hash));
    char *path = st_path_join(folder, name);
    if (path == NULL) return st_no_memory(strlen(folder), "a file's path");
    st_status_t status = st_file_digest(path, &actual_bytes, &actual_hash);
    if (status == ST_OK && actual_bytes != bytes) {
        status = FAIL(ST_PARSE, "'%s' has %llu bytes, the manifest says %llu", path,
                      (unsigned long long)actual_bytes, (unsigned long long)bytes);
    } else if (status == ST_OK && actual_hash != hash) {
        status = FAIL(ST_PARSE, "'%s' is damaged: its checksum does not hold", path);
    }
    st_free(path);
    return status;
}

static st_status_t check_manifest(const char *folder, json_object *manifest, int64_t *out_step) {
    const char *format;
    int64_t version;
    TRY(state_json_string(manifest, "format", "manifest", &format));
    TRY(state_json_i64(manifest, "version", "manifest", &version));
    TRY(state_json_i64(manifest, "step", "manifest", out_step));
    if (strcmp(format, "stator-checkpoint") != 0 || version != 1) {
        return FAIL(ST_UNSUPPORTED, "manifest: format '%.32s' version %lld, this reader knows 1",
                    format, (long long)version);
    }
    json_object *files;
    if (!json_object_object_get_ex(manifest, "files", &files) ||
        !json_object_is_type(files, json_type_array) ||
        json_object_array_length(files) != CHECKPOINT_N_FILES) {
        return FAIL(ST_PARSE, "manifest: \"files\" does not list %d files", CHECKPOINT_N_FILES);
    }
    for (size_t i = 0; i < CHECKPOINT_N_FILES; i++) {
        TRY(check_file(folder, checkpoint_files[i], json_object_array_get_idx(files, i)));
    }
    return ST_OK;
}

static st_status_t read_progress(checkpoint_t *checkpoint, json_object *object) {
    checkpoint_progress_t *progress = &checkpoint->progress;
    TRY(state_json_i64(object, "step", "trainer.json", &progress->step));
    TRY(state_json_i64(object, "epoch", "trainer.json", &progress->epoch));
    TRY(state_json_i64(object, "sample", "trainer.json", &progress->sample));
    TRY(state_json_u64(object, "seed", "trainer.json", &progress->seed));
    if (json_object_object_get_ex(object, "n_samples", NULL))
        TRY(state_json_i64(object, "n_samples", "trainer.json", &progress->n_samples));
    if (progress->step < 0 || progress->epoch < 0 || progress->sample < 0 ||
        progress->n_samples < 0) {
        return FAIL(ST_PARSE, "trainer.json: a negative step, epoch, sample or n_samples");
    }
    json_object *best;
    if (json_object_object_get_ex(object, "best", &best)) {
        if (!json_object_is_type(best, json_type_double) &&
            !json_object_is_type(best, json_type_int)) {
            return FAIL(ST_PARSE, "trainer.json: \"best\" is not a number");
        }
        progress->has_best = true;
        progress->best = json_object_get_double(best);
    }
    return ST_OK;
}

static st_status_t open_tensors(const char *folder, const char *name, safetensors_t **out_file) {
    char *path = st_path_join(folder, name);
    if (path == NULL) return st_no_memory(strlen(folder), "a file's path");
    st_status_t status = safetensors_open(path, out_file);
    st_free(path);
    return status;
}

static st_status_t read_set(checkpoint_t *checkpoint) {
    const char *folder = checkpoint->folder;
    json_object *object;
    int64_t step = 0;
    TRY(read_json(folder, "manifest.json", &object));
    st_status_t status = check_manifest(folder, object, &step);
    json_object_put(object);
    TRY(status);
    TRY(read_json(folder, "trainer.json", &object));
    status = read_progress(checkpoint, object);
    json_object_put(object);
    TRY(status);
    if (checkpoint->progress.step != step) {
        return FAIL(ST_PARSE, "manifest says step %lld, trainer.json %lld", (long long)step,
                    (long long)checkpoint->progress.step);
    }
    TRY(open_tensors(folder, checkpoint_files[0], &checkpoint->model));
    return open_tensors(folder, checkpoint_files[1], &checkpoint->optimizer);
}

/* Takes `folder` over. */
static st_status_t open_set(char *folder, checkpoint_t **out_checkpoint) {
    *out_checkpoint = NULL;
    checkpoint_t *checkpoint = folder != NULL ? st_calloc(1, sizeof *checkpoint) : NULL;
    if (checkpoint == NULL) {
        st_free(folder);
        return st_no_memory(sizeof *checkpoint, "a checkpoint");
    }
    checkpoint->folder = folder;
    st_status_t status = read_set(checkpoint);
    if (status != ST_OK) {
        st_error_context(status, "checkpoint '%s'", folder);
        checkpoint_close(checkpoint);
        return status;
    }
    *out_checkpoint = checkpoint;
    return ST_OK;
}

/* True if the folder is a set itself. */
static bool is_set(const char *dir) {
    char *path = st_path_join(dir, "manifest.json");
    st_file_t file;
    bool found = path != NULL && st_file_open(path, &file) == ST_OK;
    if (found) st_file_close(&file);
    st_free(path);
    return found;
}

st_status_t checkpoint_open(const char *dir, checkpoint_t **out_checkpoint) {
    *out_checkpoint = NULL;
    if (is_set(dir)) return open_set(st_strdup(dir), out_checkpoint);
    checkpoint_sets_t sets;
    TRY(checkpoint_list(dir, &sets));
    char skipped[1024] = "";
    st_status_t status = ST_OK;
    if (sets.n == 0) status = FAIL(ST_NOT_FOUND, "there is no checkpoint in '%s'", dir);
    for (size_t i = 0; i < sets.n; i++) {
        status = open_set(st_path_join(dir, sets.data[i].name), out_checkpoint);
        if (status == ST_OK) {
            memcpy((*out_checkpoint)->skipped, skipped, sizeof skipped);
            break;
        }
        if (status == ST_NO_MEMORY) break; /* says nothing about the set */
        size_t used = strlen(skipped);
        snprintf(skipped + used, sizeof skipped - used, "%s%s", used > 0 ? "; " : "",
                 st_last_error());
    }
    if (*out_checkpoint == NULL && skipped[0] != '\0' && status != ST_NO_MEMORY) {
        status = FAIL(ST_PARSE, "no checkpoint in '%s' is whole: %s", dir, skipped);
    }
    ST_VEC_FREE(&sets);
    return status;
}

void checkpoint_close(checkpoint_t *checkpoint) {
    if (checkpoint == NULL) return;
    safetensors_close(checkpoint->model);
    safetensors_close(checkpoint->optimizer);
    st_free(checkpoint->folder);
    st_free(checkpoint);
}

const char *checkpoint_skipped(const checkpoint_t *checkpoint) {
    return checkpoint->skipped;
}

const checkpoint_progress_t *checkpoint_progress(const checkpoint_t *checkpoint) {
    return &checkpoint->progress;
}

static ir_type_t stored_type(const safetensors_tensor_t *tensor) {
    return ir_type_make(safetensors_to_ir(tensor->dtype), tensor->rank, tensor->dims);
}

/* Every difference at once, so that the user sees the whole picture. */
static st_status_t compare(const safetensors_t *file, const state_tensor_t *tensors, size_t n,
                           bool *used) {
    state_report_t missing = {0}, different = {0}, left = {0};
    for (size_t i = 0; i < n; i++) {
        const safetensors_tensor_t *stored = safetensors_find(file, tensors[i].name);
        if (stored == NULL) {
            state_report_add(&missing, "%s", tensors[i].name);
            continue;
        }
        used[stored - safetensors_at(file, 0)] = true;
        ir_type_t type = stored_type(stored);
        if (ir_type_equal(&type, &tensors[i].type)) continue;
        char wanted[IR_TYPE_TEXT_BYTES], found[IR_TYPE_TEXT_BYTES];
        state_report_add(&different, "%s (%s here, %s stored)", tensors[i].name,
                         ir_type_text(&tensors[i].type, wanted, sizeof wanted),
                         ir_type_text(&type, found, sizeof found));
    }
    for (size_t i = 0; i < safetensors_count(file); i++) {
        if (!used[i]) state_report_add(&left, "%s", safetensors_at(file, i)->name);
    }
    if (missing.n + different.n + left.n == 0) return ST_OK;
    char texts[3][600];
    state_report_text(&missing, "missing from the file", texts[0], sizeof texts[0]);
    state_report_text(&different, "of another type", texts[1], sizeof texts[1]);
    state_report_text(&left, "left over in the file", texts[2], sizeof texts[2]);
    return FAIL(ST_INVALID, "'%s' does not fit this model: %s%s%s%s%s", safetensors_path(file),
                texts[0], missing.n > 0 && different.n + left.n > 0 ? "; " : "", texts[1],
                different.n > 0 && left.n > 0 ? "; " : "", texts[2]);
}

static st_status_t load(const safetensors_t *file, const state_tensor_t *tensors, size_t n) {
    size_t n_stored = safetensors_count(file);
    bool *used = st_calloc(n_stored, sizeof *used);
    if (used == NULL) return st_no_memory(n_stored, "the tensors' marks");
    st_status_t status = compare(file, tensors, n, used);
    st_free(used);
    TRY(status);
    for (size_t i = 0; i < n; i++) {
        const safetensors_tensor_t *stored = safetensors_find(file, tensors[i].name);
        if (stored->bytes > 0) memcpy(tensors[i].data, stored->data, stored->bytes);
    }
    return ST_OK;
}

st_status_t checkpoint_load_model(const checkpoint_t *checkpoint, const state_tensor_t *tensors,
                                  size_t n_tensors) {
    return load(checkpoint->model, tensors, n_tensors);
}

st_status_t checkpoint_load_optimizer(const checkpoint_t *checkpoint, const state_tensor_t *tensors,
                                      size_t n_tensors) {
    return load(checkpoint->optimizer, tensors, n_tensors);
}
