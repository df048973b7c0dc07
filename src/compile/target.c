/* Target descriptions by name or file (target.h). */
#include "compile/target.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"

enum { MOST_BUILTINS = 16 };

static bool is_path(const char *name) {
    static const char suffix[] = ".target";
    size_t n = strlen(name), end = sizeof suffix - 1;
    return strchr(name, '/') || (n > end && strcmp(name + n - end, suffix) == 0);
}

static st_status_t open_file(const char *path, target_t **out_target) {
    st_file_t file = {0};
    TRY(st_file_open(path, &file));
    st_status_t status = target_parse(path, (const char *)file.data, file.bytes, out_target);
    st_file_close(&file);
    return status;
}

/* Built-in descriptions are parsed when first asked for, and stay: their rows are never written, so
 * that all threads' targets share them. One that could not be parsed for lack of memory is tried
 * again. */
static st_status_t parsed(size_t index, const target_t **out) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static target_t *models[MOST_BUILTINS];
    const target_builtin_t *b = &target_builtins[index];
    st_status_t status = ST_OK;
    ASSERT(index < MOST_BUILTINS);
    pthread_mutex_lock(&lock);
    if (!models[index])
        status = target_parse(b->name, (const char *)b->text, b->bytes, &models[index]);
    *out = models[index];
    pthread_mutex_unlock(&lock);
    return status;
}

/* The caller's own, for what target_bind sets; what it points to is the model's. */
static st_status_t open_builtin(size_t index, target_t **out_target) {
    const target_t *model;
    TRY(parsed(index, &model));
    target_t *target = st_calloc(1, sizeof *target);
    if (!target) return st_no_memory(sizeof *target, "a target");
    *target = *model;
    target->arena = (st_arena_t){0};
    target->builtin = true;
    *out_target = target;
    return ST_OK;
}

st_status_t target_open(const char *name, target_t **out_target) {
    char known[256] = "";
    *out_target = NULL;
    if (is_path(name)) return open_file(name, out_target);
    for (const target_builtin_t *b = target_builtins; b->name; b++) {
        if (strcmp(b->name, name) == 0)
            return open_builtin((size_t)(b - target_builtins), out_target);
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "", b->name);
    }
    return FAIL(ST_NOT_FOUND,
                "there is no target '%s': %s are built in, and files have a slash in their path or "
                "end in .target",
                name, known);
}

void target_destroy(target_t *target) {
    if (!target) return;
    st_arena_clear(&target->arena);
    st_free(target);
}

void target_bind(target_t *target, const ir_mesh_t *mesh, uint32_t n_threads) {
    bool threads = strcmp(target->machine.device, "cpu") == 0;
    target->machine.mesh = *mesh;
    target->machine.n_ranks = ir_mesh_ranks(mesh);
    target->machine.n_threads = threads ? n_threads : 1;
}

void target_fill(target_t *target, ir_target_t *out) {
    out->name = target->machine.name;
    out->context = target;
    out->machine = &target->machine;
    out->cost = target_cost;
    out->can_run = target_can_run;
    out->sums = target_sums;
}
