/* Plans on disk by their keys (cache.h). */
#include "compile/cache.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/memory.h"
#include "compile/target.h"

enum { MAX_PATH = 4096 };

static uint64_t add_text(uint64_t hash, const char *text) {
    return st_hash64(text ? text : "", text ? strlen(text) + 1 : 1, hash);
}

uint64_t plan_key_for(const plan_t *plan, const char *build, const void *target_text,
                      size_t target_bytes) {
    const uint64_t numbers[] = {PLAN_VERSION,    plan->graph_hash, plan->n_ranks,
                                plan->n_threads, plan->timeout_ms, plan->n_options};
    uint64_t key = add_text(st_hash64(numbers, sizeof numbers, 0), build);
    char mesh[IR_MESH_TEXT_BYTES];
    key = add_text(key, plan->device);
    /* the mesh that was asked for: a search may have taken another one */
    const char *asked = plan_option(plan, "mesh");
    key = add_text(key, asked ? asked : ir_mesh_text(&plan->mesh, mesh, sizeof mesh));
    for (uint32_t i = 0; i < plan->n_options; i++)
        key = add_text(add_text(key, plan->options[i].key), plan->options[i].value);
    return st_hash64(target_text, target_bytes, key);
}

/* A description that is not built in is among the options. */
uint64_t plan_key(const plan_t *plan) {
    const target_builtin_t *b = target_builtins;
    if (plan_option(plan, "target-description")) return plan_key_for(plan, plan_build, "", 0);
    while (b->name && strcmp(b->name, plan_target(plan)) != 0) b++;
    return plan_key_for(plan, plan_build, b->name ? (const char *)b->text : "", b->bytes);
}

static st_status_t path_of(const char *folder, uint64_t key, char path[MAX_PATH]) {
    int n = snprintf(path, MAX_PATH, "%s/%016" PRIx64 ".plan", folder, key);
    return n > 0 && n < MAX_PATH
               ? ST_OK
               : FAIL(ST_INVALID, "the folder's name '%.64s…' is too long", folder);
}

st_status_t plan_cache_read(const char *folder, uint64_t key, plan_t **out_plan) {
    *out_plan = NULL;
    char path[MAX_PATH];
    st_file_t file;
    TRY(path_of(folder, key, path));
    if (st_file_open(path, &file) != ST_OK) {
        st_clear_error();
        return ST_OK;
    }
    st_status_t status = plan_decode(file.data, file.bytes, out_plan);
    st_file_close(&file);
    if (status == ST_NO_MEMORY) return status;
    if (status == ST_OK && plan_key(*out_plan) == key) {
        st_log(ST_LOG_INFO, "the plan was read from %s", path);
        return ST_OK;
    }
    st_log(ST_LOG_WARNING, "%s is passed over and made anew: %s", path,
           status == ST_OK ? "it is of another graph, other options or another version"
                           : st_last_error());
    plan_destroy(*out_plan);
    *out_plan = NULL;
    st_clear_error();
    return ST_OK;
}

st_status_t plan_cache_write(const char *folder, const plan_t *plan) {
    char path[MAX_PATH];
    uint8_t *data = NULL;
    size_t bytes = 0;
    TRY(path_of(folder, plan_key(plan), path));
    TRY(st_make_folder(folder));
    TRY(plan_encode(plan, &data, &bytes));
    st_status_t status = st_file_write(path, data, bytes);
    st_free(data);
    return status;
}
