/* Opening checkpoints: the newest set that holds. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/vec.h"
#include "state/checkpoint_internal.h"
#include "state/checkpoint_sets.h"
#include "state/json.h"

static const state_json_limits_t json_limits = {.depth = 4,
                                                .array_length = 2 * CHECKPOINT_MAX_PARTS + 1};

static const checkpoint_group_t alone = {.size = 1};

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

/* ---- the manifest ---- */

typedef struct listed {
    uint64_t bytes, hash;
} listed_t;

/* One entry of the manifest. */
static st_status_t read_entry(const char *expected_name, json_object *entry, listed_t *out) {
    const char *name, *hex;
    if (!json_object_is_type(entry, json_type_object)) {
        return FAIL(ST_PARSE, "manifest: a file entry is not an object");
    }
    TRY(state_json_string(entry, "name", "manifest", &name));
    if (strcmp(name, expected_name) != 0) {
        return FAIL(ST_PARSE, "manifest: lists '%.64s', expected '%s'", name, expected_name);
    }
    TRY(state_json_u64(entry, "bytes", "manifest", &out->bytes));
    TRY(state_json_string(entry, "xxh64", "manifest", &hex));
    return state_parse_hex64(hex, "manifest", &out->hash);
}

static st_status_t read_parts(checkpoint_t *checkpoint, json_object *manifest, int64_t version) {
    int64_t parts = 1;
    if (version == 2) TRY(state_json_i64(manifest, "parts", "manifest", &parts));
    if (parts < 1 || parts > CHECKPOINT_MAX_PARTS)
        return FAIL(ST_PARSE, "manifest: %lld parts; 1 to %d are possible", (long long)parts,
                    CHECKPOINT_MAX_PARTS);
    checkpoint->n_parts = (uint32_t)parts;
    return ST_OK;
}

static st_status_t read_head(checkpoint_t *checkpoint, json_object *manifest,
                             json_object **out_files) {
    const char *format;
    int64_t version;
    TRY(state_json_string(manifest, "format", "manifest", &format));
    TRY(state_json_i64(manifest, "version", "manifest", &version));
    TRY(state_json_i64(manifest, "step", "manifest", &checkpoint->progress.step));
    if (strcmp(format, "stator-checkpoint") != 0 || (version != 1 && version != 2)) {
        return FAIL(ST_UNSUPPORTED,
                    "manifest: format '%.32s' version %lld, this reader knows 1 and 2", format,
                    (long long)version);
    }
    TRY(read_parts(checkpoint, manifest, version));
    const size_t n = (size_t)checkpoint->n_parts * CHECKPOINT_N_KINDS + 1;
    if (!json_object_object_get_ex(manifest, "files", out_files) ||
        !json_object_is_type(*out_files, json_type_array) ||
        json_object_array_length(*out_files) != n) {
        return FAIL(ST_PARSE, "manifest: \"files\" does not list %zu files", n);
    }
    return ST_OK;
}

/* ---- the files ---- */

/* A file is as it was written; ST_PARSE names it. */
static st_status_t check_digest(const char *path, const listed_t *listed) {
    uint64_t bytes, hash;
    TRY(st_file_digest(path, &bytes, &hash));
    if (bytes != listed->bytes) {
        return FAIL(ST_PARSE, "'%s' has %llu bytes, the manifest says %llu", path,
                    (unsigned long long)bytes, (unsigned long long)listed->bytes);
    }
    if (hash == listed->hash) return ST_OK;
    return FAIL(ST_PARSE, "'%s' is damaged: its checksum does not hold", path);
}

/* The tensor that is damaged, if the file tells; else `digest`, which says that it is not as
 * written. */
static st_status_t blame(const char *path, st_status_t digest) {
    char reason[1024];
    safetensors_t *file;
    if (digest == ST_OK || digest == ST_NO_MEMORY) return digest;
    snprintf(reason, sizeof reason, "%s", st_last_error());
    st_status_t status = safetensors_open(path, &file);
    if (status == ST_OK) safetensors_close(file);
    return status == ST_OK || status == ST_NOT_FOUND ? st_error_adopt(digest, reason) : status;
}

/* One rank's file of a kind. Whoever does not check it still sees that it is there and has its
 * size. */
static st_status_t open_part(checkpoint_t *checkpoint, checkpoint_kind_t kind, uint32_t part,
                             const char *path, const listed_t *listed, bool checks) {
    safetensors_t **file = &checkpoint->files[kind][part];
    if (checks) TRY(blame(path, check_digest(path, listed)));
    TRY(safetensors_open_unverified(path, file));
    if (checks) return safetensors_verify(*file);
    const uint64_t bytes = safetensors_file_bytes(*file);
    if (bytes == listed->bytes) return ST_OK;
    return FAIL(ST_PARSE, "'%s' has %llu bytes, the manifest says %llu", path,
                (unsigned long long)bytes, (unsigned long long)listed->bytes);
}

static st_status_t open_listed(checkpoint_t *checkpoint, json_object *files, size_t i,
                               const checkpoint_group_t *group) {
    const uint32_t n = checkpoint->n_parts, part = (uint32_t)(i % n);
    const checkpoint_kind_t kind = (checkpoint_kind_t)(i / n);
    const bool is_part = kind < CHECKPOINT_N_KINDS;
    char name[CHECKPOINT_FILE_NAME_BYTES] = CHECKPOINT_TRAINER;
    listed_t listed;
    if (is_part) checkpoint_file_name(kind, part, n, name);
    TRY(read_entry(name, json_object_array_get_idx(files, i), &listed));
    char *path = st_path_join(checkpoint->folder, name);
    if (path == NULL) return st_no_memory(strlen(checkpoint->folder), "a file's path");
    st_status_t status = is_part ? open_part(checkpoint, kind, part, path, &listed,
                                             part % group->size == group->rank)
                                 : check_digest(path, &listed);
    st_free(path);
    if (status != ST_OK && is_part && n > 1) st_error_context(status, "the part of rank %u", part);
    return status;
}

static st_status_t open_files(checkpoint_t *checkpoint, json_object *manifest,
                              const checkpoint_group_t *group) {
    json_object *files;
    TRY(read_head(checkpoint, manifest, &files));
    const size_t n = checkpoint->n_parts;
    for (int kind = 0; kind < CHECKPOINT_N_KINDS; kind++) {
        checkpoint->files[kind] = st_calloc(n, sizeof *checkpoint->files[kind]);
        if (checkpoint->files[kind] == NULL)
            return st_no_memory(n * sizeof *checkpoint->files[kind], "a checkpoint's files");
    }
    for (size_t i = 0; i <= n * CHECKPOINT_N_KINDS; i++)
        TRY(open_listed(checkpoint, files, i, group));
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

static st_status_t read_set(checkpoint_t *checkpoint, const checkpoint_group_t *group) {
    const char *folder = checkpoint->folder;
    json_object *object;
    TRY(read_json(folder, CHECKPOINT_MANIFEST, &object));
    st_status_t status = open_files(checkpoint, object, group);
    json_object_put(object);
    TRY(status);
    const int64_t step = checkpoint->progress.step;
    TRY(read_json(folder, CHECKPOINT_TRAINER, &object));
    status = read_progress(checkpoint, object);
    json_object_put(object);
    TRY(status);
    if (checkpoint->progress.step == step) return ST_OK;
    return FAIL(ST_PARSE, "manifest says step %lld, trainer.json %lld", (long long)step,
                (long long)checkpoint->progress.step);
}

/* ---- which set ---- */

/* Takes `folder` over. */
static st_status_t open_set(char *folder, const checkpoint_group_t *group,
                            checkpoint_t **out_checkpoint) {
    *out_checkpoint = NULL;
    checkpoint_t *checkpoint = folder != NULL ? st_calloc(1, sizeof *checkpoint) : NULL;
    if (checkpoint == NULL) {
        st_free(folder);
        return st_no_memory(sizeof *checkpoint, "a checkpoint");
    }
    checkpoint->folder = folder;
    st_status_t status = read_set(checkpoint, group);
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
    char *path = st_path_join(dir, CHECKPOINT_MANIFEST);
    st_file_t file;
    bool found = path != NULL && st_file_open(path, &file) == ST_OK;
    if (found) st_file_close(&file);
    st_free(path);
    return found;
}

/* What is tried next: rank 0 says it, so that all try the same. */
typedef struct candidate {
    bool is_dir; /* the folder that was named is a set */
    bool is_end;
    char name[CHECKPOINT_SET_NAME_BYTES];
} candidate_t;

typedef struct search {
    const char *dir;
    const checkpoint_group_t *group;
    checkpoint_sets_t sets; /* on rank 0 */
    char skipped[CHECKPOINT_SKIPPED_BYTES];
} search_t;

static st_status_t agree(const checkpoint_group_t *group, st_status_t own) {
    return group->agree ? group->agree(group->context, own) : own;
}

static st_status_t next_candidate(const search_t *search, size_t i, candidate_t *out) {
    const checkpoint_group_t *group = search->group;
    memset(out, 0, sizeof *out);
    out->is_dir = group->rank == 0 && is_set(search->dir);
    out->is_end = i >= search->sets.n;
    if (!out->is_end) memcpy(out->name, search->sets.data[i].name, sizeof out->name);
    return group->tell ? group->tell(group->context, out, sizeof *out) : ST_OK;
}

static void note_skipped(search_t *search) {
    const size_t used = strlen(search->skipped);
    snprintf(search->skipped + used, sizeof search->skipped - used, "%s%s", used > 0 ? "; " : "",
             st_last_error());
}

/* The same on all ranks, also where one of them alone finds damage. */
static st_status_t try_set(const search_t *search, const candidate_t *candidate,
                           checkpoint_t **out_checkpoint) {
    char *folder =
        candidate->is_dir ? st_strdup(search->dir) : st_path_join(search->dir, candidate->name);
    st_status_t status = agree(search->group, open_set(folder, search->group, out_checkpoint));
    if (status == ST_OK) return ST_OK;
    checkpoint_close(*out_checkpoint);
    *out_checkpoint = NULL;
    return status;
}

static st_status_t find_set(search_t *search, checkpoint_t **out_checkpoint) {
    candidate_t candidate;
    for (size_t i = 0;; i++) {
        TRY(next_candidate(search, i, &candidate));
        if (candidate.is_end && !candidate.is_dir) break;
        st_status_t status = try_set(search, &candidate, out_checkpoint);
        if (status == ST_OK) {
            memcpy((*out_checkpoint)->skipped, search->skipped, sizeof search->skipped);
            return ST_OK;
        }
        /* no memory, or a lost rank: that says nothing about the set */
        if (candidate.is_dir || status == ST_NO_MEMORY || status == ST_PEER_LOST) return status;
        note_skipped(search);
    }
    if (search->skipped[0] == '\0')
        return FAIL(ST_NOT_FOUND, "there is no checkpoint in '%s'", search->dir);
    return FAIL(ST_PARSE, "no checkpoint in '%s' is whole: %s", search->dir, search->skipped);
}

st_status_t checkpoint_open(const char *dir, const checkpoint_group_t *group,
                            checkpoint_t **out_checkpoint) {
    search_t search = {.dir = dir, .group = group ? group : &alone};
    *out_checkpoint = NULL;
    st_status_t status = ST_OK;
    if (search.group->rank == 0 && !is_set(dir)) status = checkpoint_list(dir, &search.sets);
    status = agree(search.group, status);
    if (status == ST_OK) status = find_set(&search, out_checkpoint);
    ST_VEC_FREE(&search.sets);
    return status;
}

void checkpoint_close(checkpoint_t *checkpoint) {
    if (checkpoint == NULL) return;
    for (int kind = 0; kind < CHECKPOINT_N_KINDS; kind++) {
        for (uint32_t p = 0; checkpoint->files[kind] && p < checkpoint->n_parts; p++)
            safetensors_close(checkpoint->files[kind][p]);
        st_free(checkpoint->files[kind]);
    }
    st_free(checkpoint->folder);
    st_free(checkpoint);
}

const char *checkpoint_skipped(const checkpoint_t *checkpoint) {
    return checkpoint->skipped;
}

const checkpoint_progress_t *checkpoint_progress(const checkpoint_t *checkpoint) {
    return &checkpoint->progress;
}
