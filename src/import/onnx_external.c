/* External data: tensor bytes in files beside the model.
 *
 * The location is a path that the model's author chose, so it must not lead out of the model's
 * folder: it is walked component by component from the opened folder, no component may be empty,
 * "." or "..", no link is followed, and a file with a second name elsewhere (a hard link) is
 * refused. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/number.h"
#include "import/onnx_reader.h"

enum { MAX_LOCATION = 1024 };

typedef struct where {
    const char *location;
    int64_t offset, length; /* length -1: not given */
} where_t;

static st_status_t read_where(const Onnx__TensorProto *tensor, const char *name, where_t *out) {
    *out = (where_t){.length = -1};
    for (size_t i = 0; i < tensor->n_external_data; i++) {
        const Onnx__StringStringEntryProto *entry = tensor->external_data[i];
        const char *key = entry->key ? entry->key : "", *value = entry->value ? entry->value : "";
        bool is_length = strcmp(key, "length") == 0;
        if (strcmp(key, "location") == 0) out->location = value;
        if (!is_length && strcmp(key, "offset") != 0) continue;
        int64_t *number = is_length ? &out->length : &out->offset;
        if (!st_int_parse(value, strlen(value), number) || *number < 0)
            return FAIL(ST_PARSE, "tensor '%.128s': external data with %s '%.64s'", name, key,
                        value);
    }
    if (!out->location || !out->location[0])
        return FAIL(ST_PARSE, "tensor '%.128s': external data without a location", name);
    return ST_OK;
}

/* Opens the next component of a path below `folder`, which stays open. */
static int open_component(int folder, const char *component, bool is_file) {
    int flags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | (is_file ? O_NONBLOCK : O_DIRECTORY);
    return openat(folder, component, flags);
}

static st_status_t refuse_location(const char *location, const char *why) {
    return FAIL(ST_INVALID,
                "external data at '%.200s': %s; only files inside the model's folder, reached "
                "without links, are read",
                location, why);
}

/* Walks `location` from `folder`. *out_file is open on success. */
static st_status_t open_below(int folder, const char *location, int *out_file) {
    char path[MAX_LOCATION];
    *out_file = -1;
    if (location[0] == '/') return refuse_location(location, "it is absolute");
    if (strlen(location) >= sizeof path) return refuse_location(location, "it is too long");
    strcpy(path, location);
    int at = folder;
    for (char *component = path, *next; component; component = next) {
        next = strchr(component, '/');
        if (next) *next++ = '\0';
        bool stays = component[0] && strcmp(component, ".") != 0 && strcmp(component, "..") != 0;
        int opened = stays ? open_component(at, component, !next) : -1;
        int error = errno;
        if (at != folder) close(at);
        at = opened;
        if (!stays) return refuse_location(location, "a part of it is empty, '.' or '..'");
        if (opened < 0 && (error == ELOOP || error == EMLINK || error == ENOTDIR))
            return refuse_location(location, "a part of it is a link or no folder");
        if (opened < 0)
            return FAIL(error == ENOENT ? ST_NOT_FOUND : ST_IO,
                        "cannot open external data '%.200s' beside the model: %s", location,
                        strerror(error));
    }
    *out_file = at;
    return ST_OK;
}

/* Maps a file that is open. */
static st_status_t map_file(int file, const char *location, st_file_t *out) {
    struct stat info;
    *out = (st_file_t){0};
    if (fstat(file, &info) != 0)
        return FAIL(ST_IO, "cannot read external data '%.200s': %s", location, strerror(errno));
    if (!S_ISREG(info.st_mode)) return refuse_location(location, "it is not a file");
    if (info.st_nlink > 1)
        return refuse_location(location, "the file has a second name (a hard link)");
    return st_file_map(file, location, out);
}

static st_status_t open_file(onnx_t *o, const char *location, onnx_file_t *out) {
    const char *slash = strrchr(o->path, '/');
    size_t length = slash ? (size_t)(slash - o->path) + 1 : 0;
    char *folder_path = st_arena_alloc(o->arena, length + 2);
    if (!folder_path) return st_no_memory(length, "a path");
    memcpy(folder_path, slash ? o->path : ".", length ? length : 1);
    int folder = open(folder_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), file;
    if (folder < 0) return FAIL(ST_IO, "cannot open '%s': %s", folder_path, strerror(errno));
    st_file_t map = {0};
    st_status_t status = open_below(folder, location, &file);
    close(folder);
    if (status != ST_OK) return status;
    status = map_file(file, location, &map);
    close(file);
    if (status != ST_OK) return status;
    status = ST_VEC_PUSH(&o->result->more_files, map);
    if (status != ST_OK) {
        st_file_close(&map);
        return status;
    }
    *out = (onnx_file_t){location, map.data, map.bytes};
    return ST_VEC_PUSH(&o->all->files, *out);
}

static st_status_t find_file(onnx_t *o, const char *location, onnx_file_t *out) {
    for (size_t i = 0; i < o->all->files.n; i++) {
        *out = o->all->files.data[i];
        if (strcmp(out->location, location) == 0) return ST_OK;
    }
    return open_file(o, location, out);
}

st_status_t onnx_external_read(onnx_t *o, const Onnx__TensorProto *tensor, const char *name,
                               size_t bytes, const void **out_data) {
    where_t where;
    onnx_file_t file;
    TRY(read_where(tensor, name, &where));
    if (!o->path)
        return FAIL(ST_UNSUPPORTED,
                    "tensor '%.128s' is in the file '%.200s', but the model was given without "
                    "its folder; import it by path",
                    name, where.location);
    if (where.length >= 0 && (uint64_t)where.length != bytes)
        return FAIL(ST_PARSE, "tensor '%.128s' has %lld bytes in '%.200s', its shape needs %zu",
                    name, (long long)where.length, where.location, bytes);
    st_status_t status = find_file(o, where.location, &file);
    if (status != ST_OK) return st_error_context(status, "tensor '%.128s'", name);
    if ((uint64_t)where.offset > file.bytes || bytes > file.bytes - (size_t)where.offset)
        return FAIL(ST_PARSE, "tensor '%.128s' needs %zu bytes at %lld of '%.200s', which has %zu",
                    name, bytes, (long long)where.offset, where.location, file.bytes);
    *out_data = bytes ? (const uint8_t *)file.data + where.offset : NULL;
    return ST_OK;
}
