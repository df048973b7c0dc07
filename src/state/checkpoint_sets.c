/* Listing and pruning of checkpoint sets. */
#include "state/checkpoint_sets.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/vec.h"

void checkpoint_set_name(int64_t serial, int64_t step, char out[CHECKPOINT_SET_NAME_BYTES]) {
    snprintf(out, CHECKPOINT_SET_NAME_BYTES, "set-%06" PRId64 "-step-%" PRId64, serial, step);
}

void checkpoint_partial_name(const char *set, const char *word,
                             char out[CHECKPOINT_PARTIAL_NAME_BYTES]) {
    snprintf(out, CHECKPOINT_PARTIAL_NAME_BYTES, "%s.partial-%s-%ld", set, word, (long)getpid());
}

/* Only names that checkpoint_set_name gives: a number read from the name gives the name again. */
static bool parse_name(const char *name, checkpoint_set_t *out) {
    if (strncmp(name, "set-", 4) != 0 || strlen(name) >= CHECKPOINT_SET_NAME_BYTES) return false;
    char *end;
    errno = 0;
    out->serial = strtoll(name + 4, &end, 10);
    if (errno != 0 || out->serial <= 0 || strncmp(end, "-step-", 6) != 0) return false;
    int64_t step = strtoll(end + 6, &end, 10);
    if (errno != 0 || step < 0) return false;
    checkpoint_set_name(out->serial, step, out->name);
    return strcmp(out->name, name) == 0;
}

static int newest_first(const void *a, const void *b) {
    int64_t x = ((const checkpoint_set_t *)a)->serial, y = ((const checkpoint_set_t *)b)->serial;
    if (x != y) return x > y ? -1 : 1;
    return strcmp(((const checkpoint_set_t *)b)->name, ((const checkpoint_set_t *)a)->name);
}

st_status_t checkpoint_list(const char *dir, checkpoint_sets_t *out_sets) {
    *out_sets = (checkpoint_sets_t){0};
    DIR *folder = opendir(dir);
    if (folder == NULL && errno == ENOENT) return ST_OK;
    if (folder == NULL) return FAIL(ST_IO, "cannot open folder '%s': %s", dir, strerror(errno));
    st_status_t status = ST_OK;
    for (struct dirent *entry = readdir(folder); entry != NULL && status == ST_OK;
         entry = readdir(folder)) {
        checkpoint_set_t set;
        if (parse_name(entry->d_name, &set)) status = ST_VEC_PUSH(out_sets, set);
    }
    closedir(folder);
    if (status != ST_OK) {
        ST_VEC_FREE(out_sets);
        return status;
    }
    if (out_sets->n > 1) qsort(out_sets->data, out_sets->n, sizeof *out_sets->data, newest_first);
    return ST_OK;
}

static st_status_t in_folder(const char *dir, const char *name, char **out_path) {
    *out_path = st_path_join(dir, name);
    return *out_path != NULL ? ST_OK : st_no_memory(strlen(dir), "a file's path");
}

/* Renamed first, so that a removal that is cut short leaves no half set. */
static st_status_t remove_set(const char *dir, const char *name) {
    char partial_name[CHECKPOINT_PARTIAL_NAME_BYTES];
    checkpoint_partial_name(name, "old", partial_name);
    char *path = NULL, *partial = NULL;
    st_status_t status;
    TRY_GOTO(in_folder(dir, name, &path), fail);
    TRY_GOTO(in_folder(dir, partial_name, &partial), fail);
    TRY_GOTO(st_rename(path, partial), fail);
    status = st_remove_folder(partial);
fail:
    st_free(path);
    st_free(partial);
    return status;
}

/* A partial file or folder of a save that is over: of this process (its saves take turns) or of one
 * that no longer runs. */
static bool is_abandoned(const char *name) {
    bool is_of_save = strncmp(name, "set-", 4) == 0 ||
                      strncmp(name, "model.safetensors", 17) == 0 || strncmp(name, "best", 4) == 0;
    if (!is_of_save || !st_is_partial_name(name)) return false;
    int64_t process = st_partial_process(name);
    return process == getpid() || !st_process_runs(process);
}

/* What an interrupted save or removal left: partial folders and partial files. */
static st_status_t remove_partials(const char *dir) {
    DIR *folder = opendir(dir);
    if (folder == NULL) return FAIL(ST_IO, "cannot open folder '%s': %s", dir, strerror(errno));
    st_status_t status = ST_OK;
    for (struct dirent *entry = readdir(folder); entry != NULL && status == ST_OK;
         entry = readdir(folder)) {
        const char *name = entry->d_name;
        if (!is_abandoned(name)) continue;
        char *path;
        status = in_folder(dir, name, &path);
        if (status != ST_OK) break;
        status = strncmp(name, "set-", 4) == 0 ? st_remove_folder(path) : st_remove_file(path);
        st_free(path);
    }
    closedir(folder);
    return status;
}

st_status_t checkpoint_prune(const char *dir, int32_t keep) {
    char best[CHECKPOINT_SET_NAME_BYTES] = "";
    char *link = NULL;
    checkpoint_sets_t sets;
    TRY(checkpoint_list(dir, &sets));
    st_status_t status;
    TRY_GOTO(in_folder(dir, "best", &link), fail);
    ssize_t bytes = readlink(link, best, sizeof best - 1);
    best[bytes > 0 ? bytes : 0] = '\0';
    for (size_t i = (size_t)keep; i < sets.n; i++) {
        if (strcmp(sets.data[i].name, best) == 0) continue;
        TRY_GOTO(remove_set(dir, sets.data[i].name), fail);
    }
    status = remove_partials(dir);
fail:
    st_free(link);
    ST_VEC_FREE(&sets);
    return status;
}
