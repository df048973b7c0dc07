/* Saving a checkpoint set: see checkpoint.h for the layout and why it survives interruption. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/vec.h"
#include "state/checkpoint.h"
#include "state/checkpoint_sets.h"
#include "state/json.h"

st_status_t checkpoint_write_tensors(const char *path, const state_tensor_t *tensors,
                                     size_t n_tensors, const state_alias_t *aliases,
                                     size_t n_aliases) {
    safetensors_writer_t *writer;
    TRY(safetensors_writer_create(&writer));
    st_status_t status;
    TRY_GOTO(safetensors_writer_add_metadata(writer, "format", "pt"), fail);
    for (size_t i = 0; i < n_tensors; i++) {
        const state_tensor_t *tensor = &tensors[i];
        TRY_GOTO(ir_type_check(&tensor->type), fail);
        TRY_GOTO(
            safetensors_writer_add(writer, tensor->name, safetensors_from_ir(tensor->type.dtype),
                                   tensor->type.rank, tensor->type.dims, tensor->data,
                                   ir_type_bytes(&tensor->type)),
            fail);
    }
    for (size_t i = 0; i < n_aliases; i++) {
        TRY_GOTO(safetensors_writer_alias(writer, aliases[i].other, aliases[i].stored), fail);
    }
    status = safetensors_writer_commit(writer, path);
fail:
    safetensors_writer_destroy(writer);
    return status;
}

/* Adds `value` (taken over) under `key`. */
static st_status_t add_member(json_object *object, const char *key, json_object *value) {
    if (value == NULL || json_object_object_add(object, key, value) != 0) {
        json_object_put(value);
        return FAIL(ST_NO_MEMORY, "out of memory for the JSON member '%s'", key);
    }
    return ST_OK;
}

static st_status_t write_json(const char *path, json_object *object) {
    const char *text = json_object_to_json_string_ext(
        object, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_NOSLASHESCAPE);
    if (text == NULL) return FAIL(ST_NO_MEMORY, "out of memory for '%s'", path);
    return st_file_write(path, text, strlen(text));
}

static st_status_t write_trainer(const char *path, const checkpoint_progress_t *progress) {
    json_object *object = json_object_new_object();
    if (object == NULL) return FAIL(ST_NO_MEMORY, "out of memory for '%s'", path);
    st_status_t status;
    TRY_GOTO(add_member(object, "step", json_object_new_int64(progress->step)), fail);
    TRY_GOTO(add_member(object, "epoch", json_object_new_int64(progress->epoch)), fail);
    TRY_GOTO(add_member(object, "sample", json_object_new_int64(progress->sample)), fail);
    TRY_GOTO(add_member(object, "seed", json_object_new_uint64(progress->seed)), fail);
    if (progress->n_samples > 0) {
        TRY_GOTO(add_member(object, "n_samples", json_object_new_int64(progress->n_samples)), fail);
    }
    if (progress->has_best) {
        TRY_GOTO(add_member(object, "best", json_object_new_double(progress->best)), fail);
    }
    status = write_json(path, object);
fail:
    json_object_put(object);
    return status;
}

static st_status_t describe_file(const char *folder, const char *name, json_object *files) {
    char *path = st_path_join(folder, name);
    if (path == NULL) return st_no_memory(strlen(folder), "a file's path");
    uint64_t bytes, hash;
    st_status_t status = st_file_digest(path, &bytes, &hash);
    st_free(path);
    TRY(status);
    json_object *file = json_object_new_object();
    if (file == NULL || json_object_array_add(files, file) != 0) {
        json_object_put(file);
        return FAIL(ST_NO_MEMORY, "out of memory for the manifest of '%s'", folder);
    }
    char hex[STATE_HEX_BYTES];
    state_hex64(hash, hex);
    TRY(add_member(file, "name", json_object_new_string(name)));
    TRY(add_member(file, "bytes", json_object_new_uint64(bytes)));
    return add_member(file, "xxh64", json_object_new_string(hex));
}

static st_status_t write_manifest(const char *folder, const char *path, int64_t step) {
    json_object *object = json_object_new_object();
    json_object *files = json_object_new_array();
    st_status_t status = ST_OK;
    if (object == NULL) {
        status = FAIL(ST_NO_MEMORY, "out of memory for '%s'", path);
        json_object_put(files);
        goto fail;
    }
    TRY_GOTO(add_member(object, "files", files), fail);
    TRY_GOTO(add_member(object, "format", json_object_new_string("stator-checkpoint")), fail);
    TRY_GOTO(add_member(object, "version", json_object_new_int64(1)), fail);
    TRY_GOTO(add_member(object, "step", json_object_new_int64(step)), fail);
    for (size_t i = 0; i < CHECKPOINT_N_FILES; i++) {
        TRY_GOTO(describe_file(folder, checkpoint_files[i], files), fail);
    }
    status = write_json(path, object);
fail:
    json_object_put(object);
    return status;
}

/* The files of a set, into an existing empty folder. */
static st_status_t write_set(const char *folder, const checkpoint_contents_t *contents) {
    char *paths[CHECKPOINT_N_FILES + 1] = {NULL};
    st_status_t status = ST_OK;
    for (size_t i = 0; i <= CHECKPOINT_N_FILES; i++) {
        const char *name = i < CHECKPOINT_N_FILES ? checkpoint_files[i] : "manifest.json";
        paths[i] = st_path_join(folder, name);
        if (paths[i] == NULL) {
            status = st_no_memory(strlen(folder), "a file's path");
            goto fail;
        }
    }
    TRY_GOTO(checkpoint_write_tensors(paths[0], contents->model, contents->n_model,
                                      contents->aliases, contents->n_aliases),
             fail);
    TRY_GOTO(
        checkpoint_write_tensors(paths[1], contents->optimizer, contents->n_optimizer, NULL, 0),
        fail);
    TRY_GOTO(write_trainer(paths[2], &contents->progress), fail);
    status = write_manifest(folder, paths[3], contents->progress.step);
fail:
    for (size_t i = 0; i <= CHECKPOINT_N_FILES; i++) st_free(paths[i]);
    return status;
}

static st_status_t check_contents(const checkpoint_contents_t *contents,
                                  const checkpoint_policy_t *policy) {
    const checkpoint_progress_t *progress = &contents->progress;
    if (policy->keep < 1) return FAIL(ST_INVALID, "keep %d checkpoints: at least 1", policy->keep);
    if (progress->step < 0 || progress->epoch < 0 || progress->sample < 0 ||
        progress->n_samples < 0) {
        return FAIL(ST_INVALID,
                    "a checkpoint's step, epoch, sample and n_samples are not negative");
    }
    if (progress->has_best && !isfinite(progress->best)) {
        return FAIL(ST_INVALID, "the best metric is not a finite number");
    }
    return ST_OK;
}

/* Writes the set under a partial name and puts it in place. */
static st_status_t place_set(const char *dir, const char *name,
                             const checkpoint_contents_t *contents) {
    char partial_name[CHECKPOINT_PARTIAL_NAME_BYTES];
    checkpoint_partial_name(name, "new", partial_name);
    char *final = st_path_join(dir, name);
    char *partial = st_path_join(dir, partial_name);
    st_status_t status = ST_OK;
    if (final == NULL || partial == NULL) {
        status = st_no_memory(strlen(dir), "a file's path");
        goto fail;
    }
    TRY_GOTO(st_remove_folder(partial), fail); /* of an earlier interrupted save */
    TRY_GOTO(st_make_folder(partial), fail);
    status = write_set(partial, contents);
    if (status == ST_OK) status = st_rename(partial, final);
    if (status == ST_OK) {
        status = st_sync_folder(dir);
    } else {
        char reason[1024];
        snprintf(reason, sizeof reason, "%s", st_last_error());
        st_status_t removed = st_remove_folder(partial);
        if (removed != ST_OK) st_error_set(status, __FILE__, __LINE__, "%s", reason);
    }
fail:
    st_free(final);
    st_free(partial);
    return status;
}

/* Points DIR/model.safetensors, and DIR/best if asked, at the new set. */
static st_status_t point_at_set(const char *dir, const char *name, bool is_best) {
    char model_name[CHECKPOINT_SET_NAME_BYTES + 32];
    snprintf(model_name, sizeof model_name, "%s/model.safetensors", name);
    char *model = st_path_join(dir, model_name);
    char *link = st_path_join(dir, "model.safetensors");
    char *best = st_path_join(dir, "best");
    st_status_t status = ST_OK;
    if (model == NULL || link == NULL || best == NULL) {
        status = st_no_memory(strlen(dir), "a file's path");
        goto fail;
    }
    TRY_GOTO(st_link_over(model, link), fail);
    if (is_best) status = st_symlink_over(name, best);
fail:
    st_free(model);
    st_free(link);
    st_free(best);
    return status;
}

/* The part of a save that one process at a time does: the serial number is chosen in it. */
static st_status_t save_locked(const char *dir, const checkpoint_contents_t *contents,
                               const checkpoint_policy_t *policy) {
    checkpoint_sets_t sets;
    TRY(checkpoint_list(dir, &sets));
    int64_t serial = sets.n > 0 ? sets.data[0].serial : 0;
    ST_VEC_FREE(&sets);
    if (serial == INT64_MAX) return FAIL(ST_INVALID, "'%s': set numbers are used up", dir);
    char name[CHECKPOINT_SET_NAME_BYTES];
    checkpoint_set_name(serial + 1, contents->progress.step, name);
    TRY(place_set(dir, name, contents));
    TRY(point_at_set(dir, name, policy->is_best));
    return checkpoint_prune(dir, policy->keep);
}

st_status_t checkpoint_save(const char *dir, const checkpoint_contents_t *contents,
                            const checkpoint_policy_t *policy) {
    enum { WAIT_MS = 10000 };
    TRY(check_contents(contents, policy));
    TRY(st_make_folder(dir));
    char *path = st_path_join(dir, ".lock");
    if (path == NULL) return st_no_memory(strlen(dir), "a file's path");
    st_lock_t lock;
    st_status_t status = st_lock_take(path, dir, WAIT_MS, &lock);
    st_free(path);
    TRY(status);
    status = save_locked(dir, contents, policy);
    st_lock_release(&lock);
    return status;
}
