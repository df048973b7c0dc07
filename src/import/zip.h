/* Zip archives in memory: the central directory, checked in full, and entries by name.
 *
 * Reads stored and deflated entries, zip64 included. The file is untrusted: every offset, size and
 * count is checked against the file before use, names are unique, an entry that inflates beyond
 * ZIP_MAX_RATIO is refused, and checksums are verified (not in builds for fuzzing, so that fuzzers
 * get past them). Nothing is written to disk, so names need no protection against leaving a folder.
 */
#ifndef STATOR_IMPORT_ZIP_H
#define STATOR_IMPORT_ZIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"

enum {
    ZIP_MAX_ENTRIES = 1 << 20,
    ZIP_MAX_NAME = 4096, /* bytes */
    ZIP_MAX_RATIO = 200, /* inflated : deflated, beyond the first megabyte */
};

typedef struct zip_entry {
    const char *name; /* as in the archive, root folder included */
    uint64_t header;  /* offset of the local header */
    uint64_t packed_bytes, bytes;
    uint32_t crc;
    uint16_t method; /* 0 stored, 8 deflate */
    uint16_t flags;
} zip_entry_t;

typedef struct zip_archive {
    const uint8_t *data;
    size_t bytes;
    const char *what;           /* names the archive in messages */
    const zip_entry_t *entries; /* sorted by name */
    size_t n_entries;
    const char *root; /* "model/" if all entries lie under one folder, else "" */
    st_arena_t arena;
} zip_archive_t;

/* True if the bytes begin like a zip archive. */
bool zip_probe(const void *data, size_t bytes);
/* Reads the directory. `data` and `what` are borrowed until zip_close. On failure there is nothing
 * to close. ST_PARSE for malformed archives, ST_UNSUPPORTED for encrypted or split ones. */
st_status_t zip_open(const void *data, size_t bytes, const char *what,
                     zip_archive_t *out_archive) ST_WARN_UNUSED;
void zip_close(zip_archive_t *archive); /* a zeroed archive is fine */
/* Entry "<root><name>", NULL if there is none. */
const zip_entry_t *zip_find(const zip_archive_t *archive, const char *name);
/* Contents of an entry: a pointer into the archive's bytes if it is stored (of any alignment), else
 * a copy in `arena`. */
st_status_t zip_read(const zip_archive_t *archive, const zip_entry_t *entry, st_arena_t *arena,
                     const uint8_t **out_data, size_t *out_bytes) ST_WARN_UNUSED;

#endif
