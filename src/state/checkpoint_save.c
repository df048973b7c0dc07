/* Saving a checkpoint set: see checkpoint.h for the layout and why it survives interruption. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/vec.h"
#include "state/checkpoint.h"
#include "state/checkpoint_parts.h"
#include "state/checkpoint_sets.h"
#include "state/json.h"

/* A save as every process of the group sees it. */
typedef struct saving {
    const char *dir;
    const checkpoint_contents_t *contents;
    const checkpoint_group_t *group; /* NULL: alone */
    uint32_t n_parts;
    char set[CHECKPOINT_SET_NAME_BYTES];         /* its name */
    char partial[CHECKPOINT_PARTIAL_NAME_BYTES]; /* while it comes */
    struct written *written;                     /* [processes] */
    uint64_t *held;                              /* [processes]: tensors that each has a part of */
} saving_t;

/* What a process has written of each kind. */
typedef struct written {
    uint64_t bytes[CHECKPOINT_N_KINDS], hash[CHECKPOINT_N_KINDS];
} written_t;

static uint32_t own_rank(const saving_t *s) {
    return s->group ? s->group->rank : 0;
}
static st_status_t agree(const saving_t *s, st_status_t own) {
    return s->group ? s->group->agree(s->group->context, own) : own;
}

/* ---- tensors ---- */

static bool has_tensor(const checkpoint_tensor_t *tensors, size_t n, const char *name) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(tensors[i].name, name) == 0) return true;
    return false;
}

static st_status_t add_tensor(safetensors_writer_t *writer, const checkpoint_tensor_t *tensor,
                              const safetensors_source_t *source) {
    const safetensors_dtype_t dtype = safetensors_from_ir(tensor->type.dtype);
    TRY(ir_type_check(&tensor->type));
    TRY(safetensors_writer_add_source(writer, tensor->name, dtype, tensor->type.rank,
                                      tensor->box.extent, source));
    return checkpoint_write_box(writer, tensor->name, &tensor->type, &tensor->box);
}

/* This process's boxes, and the aliases of the tensors that it has one of. */
static st_status_t write_tensors(const char *path, const checkpoint_contents_t *contents,
                                 checkpoint_kind_t kind) {
    const bool is_model = kind == CHECKPOINT_MODEL;
    const checkpoint_tensor_t *tensors = is_model ? contents->model : contents->optimizer;
    const size_t n = is_model ? contents->n_model : contents->n_optimizer;
    safetensors_writer_t *writer;
    TRY(safetensors_writer_create(&writer));
    st_status_t status;
    TRY_GOTO(safetensors_writer_add_metadata(writer, "format", "pt"), fail);
    for (size_t i = 0; i < n; i++)
        TRY_GOTO(add_tensor(writer, &tensors[i], &contents->source), fail);
    for (size_t i = 0; is_model && i < contents->n_aliases; i++) {
        const state_alias_t *alias = &contents->aliases[i];
        if (has_tensor(tensors, n, alias->stored))
            TRY_GOTO(safetensors_writer_alias(writer, alias->other, alias->stored), fail);
    }
    status = safetensors_writer_commit(writer, path);
fail:
    safetensors_writer_destroy(writer);
    return status;
}

/* ---- small files ---- */

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

static st_status_t list_file(json_object *files, const char *name, uint64_t bytes, uint64_t hash) {
    json_object *file = json_object_new_object();
    if (file == NULL || json_object_array_add(files, file) != 0) {
        json_object_put(file);
        return FAIL(ST_NO_MEMORY, "out of memory for the manifest");
    }
    char hex[STATE_HEX_BYTES];
    state_hex64(hash, hex);
    TRY(add_member(file, "name", json_object_new_string(name)));
    TRY(add_member(file, "bytes", json_object_new_uint64(bytes)));
    return add_member(file, "xxh64", json_object_new_string(hex));
}

static st_status_t list_files(const saving_t *s, const char *trainer_path, json_object *files) {
    char name[CHECKPOINT_FILE_NAME_BYTES];
    uint64_t bytes, hash;
    for (int kind = 0; kind < CHECKPOINT_N_KINDS; kind++) {
        for (uint32_t p = 0; p < s->n_parts; p++) {
            checkpoint_file_name((checkpoint_kind_t)kind, p, s->n_parts, name);
            TRY(list_file(files, name, s->written[p].bytes[kind], s->written[p].hash[kind]));
        }
    }
    TRY(st_file_digest(trainer_path, &bytes, &hash));
    return list_file(files, CHECKPOINT_TRAINER, bytes, hash);
}

/* Version 2 is of several parts. */
static st_status_t write_manifest(const saving_t *s, const char *trainer_path, const char *path) {
    const bool in_parts = s->n_parts > 1;
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
    TRY_GOTO(add_member(object, "version", json_object_new_int64(in_parts ? 2 : 1)), fail);
    TRY_GOTO(add_member(object, "step", json_object_new_int64(s->contents->progress.step)), fail);
    if (in_parts) TRY_GOTO(add_member(object, "parts", json_object_new_int64(s->n_parts)), fail);
    TRY_GOTO(list_files(s, trainer_path, files), fail);
    status = write_json(path, object);
fail:
    json_object_put(object);
    return status;
}

/* ---- the files of a set, into its folder ---- */

static st_status_t in_set(const saving_t *s, const char *name, char **out_path) {
    char *folder = st_path_join(s->dir, s->partial);
    *out_path = folder != NULL ? st_path_join(folder, name) : NULL;
    st_free(folder);
    return *out_path != NULL ? ST_OK : st_no_memory(strlen(s->dir), "a file's path");
}

/* This process's tensors. */
static st_status_t write_part(const saving_t *s, written_t *out) {
    char name[CHECKPOINT_FILE_NAME_BYTES], *path;
    *out = (written_t){0};
    if (own_rank(s) >= s->n_parts) return ST_OK;
    for (int kind = 0; kind < CHECKPOINT_N_KINDS; kind++) {
        checkpoint_file_name((checkpoint_kind_t)kind, own_rank(s), s->n_parts, name);
        TRY(in_set(s, name, &path));
        st_status_t status = write_tensors(path, s->contents, (checkpoint_kind_t)kind);
        if (status == ST_OK) status = st_file_digest(path, &out->bytes[kind], &out->hash[kind]);
        st_free(path);
        TRY(status);
    }
    return ST_OK;
}

/* What rank 0 adds when all parts are there. */
static st_status_t complete_set(const saving_t *s) {
    char *trainer = NULL, *manifest = NULL;
    st_status_t status;
    TRY_GOTO(in_set(s, CHECKPOINT_TRAINER, &trainer), fail);
    TRY_GOTO(in_set(s, CHECKPOINT_MANIFEST, &manifest), fail);
    TRY_GOTO(write_trainer(trainer, &s->contents->progress), fail);
    status = write_manifest(s, trainer, manifest);
fail:
    st_free(trainer);
    st_free(manifest);
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

/* ---- the folder: rank 0 alone ---- */

static st_status_t join_dir(const saving_t *s, const char *name, char **out_path) {
    *out_path = st_path_join(s->dir, name);
    return *out_path != NULL ? ST_OK : st_no_memory(strlen(s->dir), "a file's path");
}

/* Chooses the serial number, and makes the folder that the parts come into. */
static st_status_t begin_set(saving_t *s) {
    checkpoint_sets_t sets;
    char *partial;
    TRY(checkpoint_list(s->dir, &sets));
    int64_t serial = sets.n > 0 ? sets.data[0].serial : 0;
    ST_VEC_FREE(&sets);
    if (serial == INT64_MAX) return FAIL(ST_INVALID, "'%s': set numbers are used up", s->dir);
    checkpoint_set_name(serial + 1, s->contents->progress.step, s->set);
    checkpoint_partial_name(s->set, "new", s->partial);
    TRY(join_dir(s, s->partial, &partial));
    st_status_t status = st_remove_folder(partial); /* of an earlier interrupted save */
    if (status == ST_OK) status = st_make_folder(partial);
    st_free(partial);
    return status;
}

/* Puts the set in place; one that is not whole goes, and why it failed stays on record. */
static st_status_t place_set(const saving_t *s, st_status_t status) {
    char *final = NULL, *partial = NULL, reason[1024];
    if (status == ST_OK) status = complete_set(s);
    st_status_t joined = join_dir(s, s->set, &final);
    if (joined == ST_OK) joined = join_dir(s, s->partial, &partial);
    if (status == ST_OK) status = joined;
    if (status == ST_OK) status = st_rename(partial, final);
    if (status == ST_OK) {
        status = st_sync_folder(s->dir);
    } else if (partial != NULL) {
        snprintf(reason, sizeof reason, "%s", st_last_error());
        if (st_remove_folder(partial) != ST_OK)
            st_error_set(status, __FILE__, __LINE__, "%s", reason);
    }
    st_free(final);
    st_free(partial);
    return status;
}

/* Points DIR/model.safetensors, and DIR/best if asked, at the new set. Of a set in parts no file is
 * the model: none of an older set may pass for it. */
static st_status_t point_at_set(const saving_t *s, bool is_best) {
    char model_name[CHECKPOINT_SET_NAME_BYTES + 32];
    snprintf(model_name, sizeof model_name, "%s/model.safetensors", s->set);
    char *model = NULL, *link = NULL, *best = NULL;
    st_status_t status = ST_OK;
    TRY_GOTO(join_dir(s, model_name, &model), fail);
    TRY_GOTO(join_dir(s, "model.safetensors", &link), fail);
    TRY_GOTO(join_dir(s, "best", &best), fail);
    TRY_GOTO(s->n_parts == 1 ? st_link_over(model, link) : st_remove_file(link), fail);
    if (is_best) status = st_symlink_over(s->set, best);
fail:
    st_free(model);
    st_free(link);
    st_free(best);
    return status;
}

/* ---- together ---- */

/* One file of each kind where rank 0 has everything, else one of every process. */
static st_status_t count_parts(saving_t *s) {
    const checkpoint_group_t *group = s->group;
    const uint64_t own = s->contents->n_model + s->contents->n_optimizer;
    s->n_parts = 1;
    if (!group || group->size == 1) return ST_OK;
    if (group->size > CHECKPOINT_MAX_PARTS)
        return FAIL(ST_UNSUPPORTED, "%u processes save together; the limit is %d", group->size,
                    CHECKPOINT_MAX_PARTS);
    TRY(group->gather(group->context, &own, sizeof own, s->held));
    for (uint32_t r = 1; r < group->size; r++)
        if (s->held[r] > 0) s->n_parts = group->size;
    return ST_OK;
}

/* Every process writes its part into the folder that rank 0 has made; then rank 0 puts the set in
 * place. A failure anywhere is one on all. */
static st_status_t save_parts(saving_t *s, const checkpoint_policy_t *policy, st_status_t begun) {
    const checkpoint_group_t *group = s->group;
    written_t own;
    TRY(agree(s, begun));
    if (group && group->size > 1) {
        TRY(group->tell(group->context, s->partial, sizeof s->partial));
    }
    st_status_t status = agree(s, write_part(s, &own));
    if (status == ST_OK && group && group->size > 1)
        status = group->gather(group->context, &own, sizeof own, s->written);
    else if (status == ST_OK)
        s->written[0] = own;
    if (own_rank(s) != 0) return status;
    TRY(place_set(s, status));
    TRY(point_at_set(s, policy->is_best));
    return checkpoint_prune(s->dir, policy->keep);
}

/* The part of a save that one process at a time does, or one group: the serial number is chosen in
 * it. */
static st_status_t save_locked(saving_t *s, const checkpoint_policy_t *policy) {
    enum { WAIT_MS = 10000 };
    st_lock_t lock = {.descriptor = -1};
    st_status_t status = ST_OK;
    if (own_rank(s) == 0) {
        char *path;
        status = st_make_folder(s->dir);
        if (status == ST_OK) status = join_dir(s, ".lock", &path);
        if (status == ST_OK) {
            status = st_lock_take(path, s->dir, WAIT_MS, &lock);
            st_free(path);
        }
        if (status == ST_OK) status = begin_set(s);
    }
    status = save_parts(s, policy, status);
    st_lock_release(&lock);
    return agree(s, status);
}

st_status_t checkpoint_save(const char *dir, const checkpoint_contents_t *contents,
                            const checkpoint_policy_t *policy, const checkpoint_group_t *group) {
    saving_t s = {.dir = dir, .contents = contents, .group = group};
    TRY(check_contents(contents, policy)); /* the same on all */
    const uint32_t n = group ? group->size : 1;
    s.written = st_calloc(n, sizeof *s.written);
    s.held = st_calloc(n, sizeof *s.held);
    st_status_t status =
        s.written && s.held ? ST_OK : st_no_memory(n * sizeof *s.written, "a checkpoint");
    status = agree(&s, status); /* from here on all meet in every call of the group */
    if (status == ST_OK) status = count_parts(&s);
    if (status == ST_OK) status = save_locked(&s, policy);
    st_free(s.held);
    st_free(s.written);
    return status;
}
