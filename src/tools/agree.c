/* What ranks that are processes must have been told alike: options that no plan holds, and the
 * files that numbers come from. Paths may differ, what is in the files may not. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tools/tool.h"

enum { SAMPLES = 64, SAMPLE_BYTES = 64 << 10 };

/* FNV-1a. */
static uint64_t mix(uint64_t hash, const unsigned char *data, size_t n) {
    for (size_t i = 0; i < n; i++) hash = (hash ^ data[i]) * 0x100000001b3u;
    return hash;
}

/* Size and a hash of up to 64 pieces of 64 KiB, spread from beginning to end: two files that differ
 * in what is between them alone are taken for one. */
static stator_status_t describe(const char *path, char *text, size_t bytes) {
    FILE *file = fopen(path, "rb");
    struct stat info;
    if (!file || fstat(fileno(file), &info) != 0) {
        if (file) fclose(file);
        return tool_fail(errno == ENOENT ? STATOR_NOT_FOUND : STATOR_IO, "cannot open '%s': %s",
                         path, strerror(errno));
    }
    unsigned char *piece = malloc(SAMPLE_BYTES);
    uint64_t hash = 0xcbf29ce484222325u;
    const int64_t size = info.st_size, last = size > SAMPLE_BYTES ? size - SAMPLE_BYTES : 0;
    for (int i = 0; piece && i < SAMPLES; i++) {
        const int64_t at = last / (SAMPLES - 1) * i;
        if (fseeko(file, (off_t)(i == SAMPLES - 1 ? last : at), SEEK_SET) != 0) break;
        hash = mix(hash, piece, fread(piece, 1, SAMPLE_BYTES, file));
    }
    free(piece);
    fclose(file);
    if (!piece) return tool_fail(STATOR_NO_MEMORY, "out of memory");
    snprintf(text, bytes, "%lld bytes, hash %016llx", (long long)size, (unsigned long long)hash);
    return STATOR_OK;
}

/* Several paths stand in one option, separated by commas. */
static stator_status_t describe_all(const char *paths, char *text, size_t bytes) {
    size_t used = 0;
    while (*paths && used + 1 < bytes) {
        const size_t n = strcspn(paths, ",");
        char path[4096], one[80];
        if (n >= sizeof path) return tool_fail(STATOR_INVALID, "a path of %zu bytes", n);
        memcpy(path, paths, n);
        path[n] = '\0';
        TOOL_TRY(describe(path, one, sizeof one));
        used += (size_t)snprintf(text + used, bytes - used, "%s%s", used ? "; " : "", one);
        paths += n + (paths[n] == ',');
    }
    return STATOR_OK;
}

stator_status_t tool_agree(const tool_t *tool, size_t n_options, const char *const *options,
                           size_t n_files, const char *const *files) {
    char name[64], value[256];
    if (!tool->comm) return STATOR_OK;
    for (size_t i = 0; i < n_options; i++) {
        snprintf(name, sizeof name, "option '%s'", options[i]);
        TOOL_TRY(stator_comm_agree(tool->comm, name, tool_text(tool, options[i])));
    }
    for (size_t i = 0; i < n_files; i++) {
        const char *paths = tool_text(tool, files[i]);
        value[0] = '\0';
        if (paths[0]) TOOL_TRY(describe_all(paths, value, sizeof value));
        snprintf(name, sizeof name, "what option '%s' names", files[i]);
        TOOL_TRY(stator_comm_agree(tool->comm, name, value));
    }
    return STATOR_OK;
}
