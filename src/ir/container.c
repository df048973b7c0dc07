/* The container of Stator's own binary files. See container.h for the layout. */
#include "ir/container.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/memory.h"

enum { AT_VERSION = 8, AT_RESERVED = 12, AT_PAYLOAD_BYTES = 16, AT_CHECKSUM = 24 };

static void put_le(uint8_t *at, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++)
        at[i] = (uint8_t)(value >> (8 * i));
}
static uint64_t get_le(const uint8_t *at, int bytes) {
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint64_t)at[i] << (8 * i);
    return value;
}

void ir_container_seal(const ir_container_kind_t *kind, uint8_t *file, size_t payload_bytes) {
    memcpy(file, kind->magic, sizeof kind->magic);
    put_le(file + AT_VERSION, kind->version, 4);
    put_le(file + AT_RESERVED, 0, 4);
    put_le(file + AT_PAYLOAD_BYTES, payload_bytes, 8);
    put_le(file + AT_CHECKSUM, st_hash64(file + IR_CONTAINER_HEADER_BYTES, payload_bytes, 0), 8);
}

st_status_t ir_container_open(const ir_container_kind_t *kind, const void *data, size_t bytes,
                              const uint8_t **out_payload, size_t *out_payload_bytes) {
    const uint8_t *file = data;
    *out_payload = NULL;
    *out_payload_bytes = 0;
    size_t common = bytes < sizeof kind->magic ? bytes : sizeof kind->magic;
    if (bytes == 0) return FAIL(ST_PARSE, "the file is empty, not a Stator %s", kind->what);
    if (memcmp(file, kind->magic, common) != 0)
        return FAIL(ST_PARSE, "not a Stator %s: it does not begin with '%.7s'", kind->what,
                    kind->magic);
    if (bytes < IR_CONTAINER_HEADER_BYTES)
        return FAIL(ST_PARSE, "truncated: %zu bytes, the header alone has %d", bytes,
                    IR_CONTAINER_HEADER_BYTES);
    uint32_t version = (uint32_t)get_le(file + AT_VERSION, 4);
    if (version > kind->version)
        return FAIL(ST_UNSUPPORTED,
                    "%s format version %" PRIu32 " is newer than this build reads (%" PRIu32
                    "): use a newer Stator or write the file again with this one",
                    kind->what, version, kind->version);
    if (version == 0 || get_le(file + AT_RESERVED, 4) != 0)
        return FAIL(ST_PARSE, "malformed header: version %" PRIu32 ", reserved field %" PRIu64,
                    version, get_le(file + AT_RESERVED, 4));
    uint64_t payload = get_le(file + AT_PAYLOAD_BYTES, 8);
    size_t present = bytes - IR_CONTAINER_HEADER_BYTES;
    if (payload > IR_CONTAINER_MAX_PAYLOAD_BYTES)
        return FAIL(ST_PARSE, "the header says %" PRIu64 " bytes follow, the limit is %zu", payload,
                    IR_CONTAINER_MAX_PAYLOAD_BYTES);
    if (payload > present)
        return FAIL(ST_PARSE, "truncated: %zu bytes follow the header, %" PRIu64 " expected",
                    present, payload);
    if (payload < present)
        return FAIL(ST_PARSE, "%" PRIu64 " bytes too many at offset %" PRIu64,
                    (uint64_t)present - payload, payload + IR_CONTAINER_HEADER_BYTES);
#ifndef STATOR_FUZZ
    uint64_t stored = get_le(file + AT_CHECKSUM, 8);
    uint64_t found = st_hash64(file + IR_CONTAINER_HEADER_BYTES, (size_t)payload, 0);
    if (stored != found)
        return FAIL(ST_PARSE,
                    "checksum mismatch: the header says %016" PRIx64
                    ", the contents give %016" PRIx64 "; the file is damaged",
                    stored, found);
#endif
    *out_payload = file + IR_CONTAINER_HEADER_BYTES;
    *out_payload_bytes = (size_t)payload;
    return ST_OK;
}

/* ---- files ---- */

static st_status_t write_all(int fd, const uint8_t *data, size_t bytes) {
    while (bytes) {
        ssize_t n = write(fd, data, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return FAIL(ST_IO, "writing failed: %s", strerror(errno));
        data += n;
        bytes -= (size_t)n;
    }
    return ST_OK;
}

/* Makes the rename itself survive a power cut. File systems without this say EINVAL. */
static st_status_t sync_folder_of(char *path) {
    char *slash = strrchr(path, '/');
    if (slash) slash[slash == path] = '\0';
    int fd = open(slash ? path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return FAIL(ST_IO, "cannot open the folder: %s", strerror(errno));
    int failed = fsync(fd) != 0 && errno != EINVAL ? errno : 0;
    close(fd);
    return failed ? FAIL(ST_IO, "cannot flush the folder: %s", strerror(failed)) : ST_OK;
}

st_status_t ir_file_save(const char *path, const void *data, size_t bytes) {
    static atomic_uint serial;
    size_t capacity = strlen(path) + 64;
    char *temporary = st_malloc(capacity);
    if (!temporary) return st_no_memory(capacity, "a file name");
    snprintf(temporary, capacity, "%s.partial-%ld-i%u", path, (long)getpid(),
             atomic_fetch_add(&serial, 1));
    st_status_t status = ST_OK;
    int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) TRY_GOTO(FAIL(ST_IO, "cannot create '%s': %s", temporary, strerror(errno)), fail);
    TRY_GOTO(write_all(fd, data, bytes), fail);
    if (fsync(fd) != 0) TRY_GOTO(FAIL(ST_IO, "flushing failed: %s", strerror(errno)), fail);
    int failed = close(fd) != 0 ? errno : 0;
    fd = -1;
    if (failed) TRY_GOTO(FAIL(ST_IO, "closing failed: %s", strerror(failed)), fail_unlink);
    if (rename(temporary, path) != 0)
        TRY_GOTO(FAIL(ST_IO, "renaming failed: %s", strerror(errno)), fail_unlink);
    TRY_GOTO(sync_folder_of(temporary), fail_free);
    st_free(temporary);
    return ST_OK;
fail:
    if (fd < 0) goto fail_free;
    close(fd);
fail_unlink:
    unlink(temporary);
fail_free:
    st_free(temporary);
    return st_error_context(status, "'%s'", path);
}

static st_status_t read_all(int fd, uint8_t *data, size_t bytes) {
    size_t done = 0;
    while (done < bytes) {
        ssize_t n = read(fd, data + done, bytes - done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return FAIL(ST_IO, "reading failed: %s", strerror(errno));
        if (n == 0) return FAIL(ST_IO, "the file became shorter while it was read");
        done += (size_t)n;
    }
    return ST_OK;
}

st_status_t ir_file_load(const char *path, uint8_t **out_data, size_t *out_bytes) {
    *out_data = NULL;
    *out_bytes = 0;
    /* O_NONBLOCK: a pipe in the place of a file is refused below instead of waited for */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return FAIL(errno == ENOENT ? ST_NOT_FOUND : ST_IO, "cannot open '%s': %s", path,
                    strerror(errno));
    st_status_t status = ST_OK;
    uint8_t *data = NULL;
    struct stat info;
    if (fstat(fd, &info) != 0) TRY_GOTO(FAIL(ST_IO, "%s", strerror(errno)), fail);
    if (!S_ISREG(info.st_mode)) TRY_GOTO(FAIL(ST_IO, "not a regular file"), fail);
    size_t limit = IR_CONTAINER_MAX_PAYLOAD_BYTES + IR_CONTAINER_HEADER_BYTES;
    if (info.st_size < 0 || (uint64_t)info.st_size > limit)
        TRY_GOTO(FAIL(ST_PARSE, "%lld bytes, the limit is %zu", (long long)info.st_size, limit),
                 fail);
    size_t bytes = (size_t)info.st_size;
    data = st_malloc(bytes);
    if (!data) TRY_GOTO(st_no_memory(bytes, "the file's contents"), fail);
    TRY_GOTO(read_all(fd, data, bytes), fail);
    close(fd);
    *out_data = data;
    *out_bytes = bytes;
    return ST_OK;
fail:
    close(fd);
    st_free(data);
    return st_error_context(status, "'%s'", path);
}
