#include "kernels/cuda/cache.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/options.h"

st_status_t cache_path(uint64_t key, const char *kind, char path[CACHE_PATH_BYTES]) {
    const char *xdg = st_environment("XDG_CACHE_HOME"), *home = st_environment("HOME");
    char folder[2048];
    int n = 0;
    path[0] = '\0';
    TRY(st_process_option("cache", folder, sizeof folder));
    if (!folder[0] && xdg)
        n = snprintf(folder, sizeof folder, "%s/stator", xdg);
    else if (!folder[0] && home)
        n = snprintf(folder, sizeof folder, "%s/.cache/stator", home);
    if (!folder[0] || n < 0 || (size_t)n >= sizeof folder) return ST_OK;
    if (st_make_folder(folder) != ST_OK) {
        st_clear_error();
        return ST_OK;
    }
    n = snprintf(path, CACHE_PATH_BYTES, "%s/%016llx.%s", folder, (unsigned long long)key, kind);
    if (n < 0 || n >= CACHE_PATH_BYTES) path[0] = '\0';
    return ST_OK;
}

bool cache_read(const char *path, uint64_t key, cache_data_t *out) {
    *out = (cache_data_t){0};
    FILE *file = path[0] ? fopen(path, "rb") : NULL;
    uint64_t head[3] = {0};
    if (!file) return false;
    bool ok = fread(head, sizeof head, 1, file) == 1 && head[0] == key && head[1] < 1u << 30;
    out->bytes = ok ? (size_t)head[1] : 0;
    out->data = ok ? st_malloc(out->bytes) : NULL;
    ok = out->data && fread(out->data, 1, out->bytes, file) == out->bytes &&
         st_hash64(out->data, out->bytes, key) == head[2];
    fclose(file);
    if (!ok) {
        st_free(out->data);
        *out = (cache_data_t){0};
    }
    return ok;
}

void cache_write(const char *path, uint64_t key, const cache_data_t *data) {
    uint64_t head[3] = {key, data->bytes, st_hash64(data->data, data->bytes, key)};
    uint8_t *file = path[0] ? st_malloc(sizeof head + data->bytes) : NULL;
    if (!file) return;
    memcpy(file, head, sizeof head);
    memcpy(file + sizeof head, data->data, data->bytes);
    if (st_file_write(path, file, sizeof head + data->bytes) != ST_OK) st_clear_error();
    st_free(file);
}
