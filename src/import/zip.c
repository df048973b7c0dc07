/* Zip reader. Layout (all little-endian):
 *
 *   [local header | name | extra | data] …          one for each entry
 *   [central header | name | extra | comment] …     the directory: sizes, checksums, offsets
 *   [zip64 end | zip64 locator]                     where a field below overflows
 *   [end of directory | comment]
 *
 * The directory is the authority; local headers only tell where the data begins, and must agree on
 * the name. */
#include "import/zip.h"

#include <stdlib.h>
#include <string.h>
#define ZLIB_CONST
#include <zlib.h>

#include "base/memory.h"

enum {
    LOCAL_SIGNATURE = 0x04034b50,
    CENTRAL_SIGNATURE = 0x02014b50,
    END_SIGNATURE = 0x06054b50,
    END64_SIGNATURE = 0x06064b50,
    LOCATOR64_SIGNATURE = 0x07064b50,
    LOCAL_BYTES = 30,
    CENTRAL_BYTES = 46,
    END_BYTES = 22,
    END64_BYTES = 56,
    LOCATOR64_BYTES = 20,
    MAX_COMMENT = 65535,
    FLAG_ENCRYPTED = 1 << 0,
    FLAG_STRONG_ENCRYPTION = 1 << 6,
    FREE_RATIO_BYTES = 1 << 20,
};

static uint16_t u16(const uint8_t *p) {
    return (uint16_t)(p[0] | p[1] << 8);
}
static uint32_t u32(const uint8_t *p) {
    return (uint32_t)u16(p) | (uint32_t)u16(p + 2) << 16;
}
static uint64_t u64(const uint8_t *p) {
    return (uint64_t)u32(p) | (uint64_t)u32(p + 4) << 32;
}

bool zip_probe(const void *data, size_t bytes) {
    return bytes >= 4 && (u32(data) == LOCAL_SIGNATURE || u32(data) == END_SIGNATURE);
}

/* What the end records say about the directory. */
typedef struct directory {
    uint64_t offset, bytes, count;
} directory_t;

static bool inside(const zip_archive_t *archive, uint64_t offset, uint64_t bytes) {
    return offset <= archive->bytes && bytes <= archive->bytes - offset;
}

/* Offset of the end record: the last one whose comment reaches exactly to the end of the file. */
static st_status_t find_end(const zip_archive_t *archive, size_t *out_at) {
    size_t lowest =
        archive->bytes > END_BYTES + MAX_COMMENT ? archive->bytes - END_BYTES - MAX_COMMENT : 0;
    for (size_t at = archive->bytes < END_BYTES ? 0 : archive->bytes - END_BYTES + 1;
         at > lowest;) {
        const uint8_t *p = archive->data + --at;
        if (u32(p) == END_SIGNATURE && at + END_BYTES + u16(p + 20) == archive->bytes) {
            *out_at = at;
            return ST_OK;
        }
    }
    return FAIL(ST_PARSE,
                "%s: no zip directory at the end of %zu bytes: the file is truncated or not a "
                "zip archive",
                archive->what, archive->bytes);
}

static st_status_t read_end64(const zip_archive_t *archive, size_t end, directory_t *directory) {
    if (end < LOCATOR64_BYTES) return ST_OK;
    const uint8_t *locator = archive->data + end - LOCATOR64_BYTES;
    if (u32(locator) != LOCATOR64_SIGNATURE) return ST_OK;
    uint64_t at = u64(locator + 8);
    if (u32(locator + 16) > 1)
        return FAIL(ST_UNSUPPORTED, "%s: the zip archive is split over several files",
                    archive->what);
    if (!inside(archive, at, END64_BYTES) || u32(archive->data + at) != END64_SIGNATURE)
        return FAIL(ST_PARSE,
                    "%s: the zip64 directory record is not at byte %llu, where it should be",
                    archive->what, (unsigned long long)at);
    const uint8_t *p = archive->data + at;
    directory->count = u64(p + 32);
    directory->bytes = u64(p + 40);
    directory->offset = u64(p + 48);
    return ST_OK;
}

static st_status_t read_end(const zip_archive_t *archive, directory_t *out) {
    size_t end = 0;
    TRY(find_end(archive, &end));
    const uint8_t *p = archive->data + end;
    if (u16(p + 4) != u16(p + 6) || u16(p + 8) != u16(p + 10))
        return FAIL(ST_UNSUPPORTED, "%s: the zip archive is split over several files",
                    archive->what);
    *out = (directory_t){.count = u16(p + 10), .bytes = u32(p + 12), .offset = u32(p + 16)};
    TRY(read_end64(archive, end, out));
    if (!inside(archive, out->offset, out->bytes) || out->offset + out->bytes > end)
        return FAIL(ST_PARSE,
                    "%s: the zip directory (%llu bytes at %llu) lies outside the file of %zu "
                    "bytes",
                    archive->what, (unsigned long long)out->bytes, (unsigned long long)out->offset,
                    archive->bytes);
    if (out->count > ZIP_MAX_ENTRIES || out->count > out->bytes / CENTRAL_BYTES)
        return FAIL(ST_PARSE, "%s: the zip directory of %llu bytes claims %llu entries (limit %d)",
                    archive->what, (unsigned long long)out->bytes, (unsigned long long)out->count,
                    ZIP_MAX_ENTRIES);
    return ST_OK;
}

/* Replaces the fields that overflowed by those of the zip64 extra field, in their fixed order. */
static st_status_t read_extra64(const zip_archive_t *archive, const uint8_t *extra, size_t bytes,
                                zip_entry_t *entry) {
    bool want_bytes = entry->bytes == UINT32_MAX, want_packed = entry->packed_bytes == UINT32_MAX,
         want_header = entry->header == UINT32_MAX;
    if (!want_bytes && !want_packed && !want_header) return ST_OK;
    for (size_t at = 0; bytes - at >= 4;) {
        size_t size = u16(extra + at + 2);
        if (size > bytes - at - 4) break;
        if (u16(extra + at) == 1) {
            const uint8_t *p = extra + at + 4, *end = p + size;
            uint64_t *fields[] = {want_bytes ? &entry->bytes : NULL,
                                  want_packed ? &entry->packed_bytes : NULL,
                                  want_header ? &entry->header : NULL};
            for (size_t i = 0; i < 3; i++) {
                if (!fields[i]) continue;
                if (end - p < 8) break;
                *fields[i] = u64(p);
                p += 8;
                fields[i] = NULL;
            }
            if (!fields[0] && !fields[1] && !fields[2]) return ST_OK;
            break;
        }
        at += 4 + size;
    }
    return FAIL(ST_PARSE, "%s: zip entry '%s' lacks its 64-bit sizes", archive->what, entry->name);
}

/* Reads one central header; *at moves past it. */
static st_status_t read_central(zip_archive_t *archive, uint64_t end, uint64_t *at,
                                zip_entry_t *entry) {
    const uint8_t *p = archive->data + *at;
    if (end - *at < CENTRAL_BYTES || u32(p) != CENTRAL_SIGNATURE)
        return FAIL(ST_PARSE, "%s: malformed zip directory at byte %llu", archive->what,
                    (unsigned long long)*at);
    size_t name_bytes = u16(p + 28), extra_bytes = u16(p + 30), comment_bytes = u16(p + 32);
    size_t total = CENTRAL_BYTES + name_bytes + extra_bytes + comment_bytes;
    if (total > end - *at)
        return FAIL(ST_PARSE, "%s: the zip directory ends inside the entry at byte %llu",
                    archive->what, (unsigned long long)*at);
    const uint8_t *name = p + CENTRAL_BYTES;
    if (name_bytes == 0 || name_bytes > ZIP_MAX_NAME || memchr(name, 0, name_bytes))
        return FAIL(ST_PARSE,
                    "%s: a zip entry has a malformed name of %zu bytes (directory byte %llu)",
                    archive->what, name_bytes, (unsigned long long)*at);
    char *text = st_arena_alloc(&archive->arena, name_bytes + 1);
    if (!text) return st_no_memory(name_bytes + 1, "a zip entry");
    memcpy(text, name, name_bytes);
    *entry = (zip_entry_t){.name = text,
                           .header = u32(p + 42),
                           .packed_bytes = u32(p + 20),
                           .bytes = u32(p + 24),
                           .crc = u32(p + 16),
                           .method = u16(p + 10),
                           .flags = u16(p + 8)};
    TRY(read_extra64(archive, name + name_bytes, extra_bytes, entry));
    if (!inside(archive, entry->header, LOCAL_BYTES) || !inside(archive, 0, entry->packed_bytes))
        return FAIL(ST_PARSE,
                    "%s: zip entry '%s' (%llu bytes at %llu) lies outside the file of %zu "
                    "bytes",
                    archive->what, text, (unsigned long long)entry->packed_bytes,
                    (unsigned long long)entry->header, archive->bytes);
    *at += total;
    return ST_OK;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(((const zip_entry_t *)a)->name, ((const zip_entry_t *)b)->name);
}

/* The first folder of the first entry, if all entries lie under it. */
static st_status_t find_root(zip_archive_t *archive) {
    archive->root = "";
    if (archive->n_entries == 0) return ST_OK;
    const char *first = archive->entries[0].name;
    const char *slash = strchr(first, '/');
    if (!slash) return ST_OK;
    size_t bytes = (size_t)(slash - first) + 1;
    for (size_t i = 0; i < archive->n_entries; i++)
        if (strncmp(archive->entries[i].name, first, bytes) != 0) return ST_OK;
    char *root = st_arena_alloc(&archive->arena, bytes + 1);
    if (!root) return st_no_memory(bytes + 1, "a zip archive");
    memcpy(root, first, bytes);
    archive->root = root;
    return ST_OK;
}

st_status_t zip_open(const void *data, size_t bytes, const char *what, zip_archive_t *out_archive) {
    *out_archive = (zip_archive_t){0};
    zip_archive_t archive = {.data = data, .bytes = bytes, .what = what};
    directory_t directory = {0};
    st_status_t status;
    TRY(read_end(&archive, &directory));
    zip_entry_t *entries = st_arena_array(&archive.arena, (size_t)directory.count, sizeof *entries);
    if (!entries) TRY_GOTO(st_no_memory((size_t)directory.count * sizeof *entries, what), fail);
    uint64_t at = directory.offset, end = directory.offset + directory.bytes;
    for (uint64_t i = 0; i < directory.count; i++)
        TRY_GOTO(read_central(&archive, end, &at, &entries[i]), fail);
    archive.entries = entries;
    archive.n_entries = (size_t)directory.count;
    qsort(entries, archive.n_entries, sizeof *entries, compare_names);
    for (size_t i = 1; i < archive.n_entries; i++)
        if (strcmp(entries[i - 1].name, entries[i].name) == 0)
            TRY_GOTO(FAIL(ST_PARSE, "%s: zip entry '%s' appears twice", what, entries[i].name),
                     fail);
    TRY_GOTO(find_root(&archive), fail);
    *out_archive = archive;
    return ST_OK;
fail:
    zip_close(&archive);
    return status;
}

void zip_close(zip_archive_t *archive) {
    st_arena_clear(&archive->arena);
    *archive = (zip_archive_t){0};
}

const zip_entry_t *zip_find(const zip_archive_t *archive, const char *name) {
    size_t root = strlen(archive->root);
    size_t low = 0, high = archive->n_entries;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        /* every name begins with the root */
        int order = strcmp(archive->entries[middle].name + root, name);
        if (order == 0) return &archive->entries[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

/* Start of an entry's data: past its local header, whose name must be the directory's. */
static st_status_t find_data(const zip_archive_t *archive, const zip_entry_t *entry,
                             const uint8_t **out_data) {
    const uint8_t *p = archive->data + entry->header;
    size_t name_bytes = strlen(entry->name);
    uint64_t skip = LOCAL_BYTES;
    bool ok = u32(p) == LOCAL_SIGNATURE && u16(p + 26) == name_bytes &&
              inside(archive, entry->header, skip + name_bytes) &&
              memcmp(p + skip, entry->name, name_bytes) == 0;
    if (!ok)
        return FAIL(ST_PARSE, "%s: zip entry '%s' has no matching header at byte %llu",
                    archive->what, entry->name, (unsigned long long)entry->header);
    skip += name_bytes + u16(p + 28);
    if (!inside(archive, entry->header + skip, entry->packed_bytes))
        return FAIL(ST_PARSE, "%s: zip entry '%s' of %llu bytes reaches past the end of the file",
                    archive->what, entry->name, (unsigned long long)entry->packed_bytes);
    *out_data = p + skip;
    return ST_OK;
}

/* Inflates `packed` into exactly `bytes` bytes of `out`; zlib takes its counts in 32 bits. */
static bool inflate_all(const uint8_t *packed, size_t packed_bytes, uint8_t *out, size_t bytes) {
    z_stream stream = {0};
    if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) return false;
    int code = Z_OK;
    uint8_t spare; /* zlib wants room even where nothing is left to write */
    while (code == Z_OK) {
        uInt in_now = packed_bytes > UINT32_MAX / 2 ? UINT32_MAX / 2 : (uInt)packed_bytes;
        uInt out_now = bytes > UINT32_MAX / 2 ? UINT32_MAX / 2 : (uInt)bytes;
        stream.next_in = packed;
        stream.avail_in = in_now;
        stream.next_out = bytes ? out : &spare;
        stream.avail_out = bytes ? out_now : 1;
        uInt room = stream.avail_out;
        code = inflate(&stream, Z_NO_FLUSH);
        size_t wrote = room - stream.avail_out;
        if (wrote > bytes) code = Z_DATA_ERROR;
        if (wrote == 0 && stream.avail_in == in_now && code == Z_OK) code = Z_BUF_ERROR;
        packed += in_now - stream.avail_in;
        packed_bytes -= in_now - stream.avail_in;
        if (wrote <= bytes) out += wrote, bytes -= wrote;
    }
    inflateEnd(&stream);
    return code == Z_STREAM_END && bytes == 0 && packed_bytes == 0;
}

static st_status_t check_crc(const zip_archive_t *archive, const zip_entry_t *entry,
                             const uint8_t *data) {
#ifdef STATOR_FUZZ
    (void)archive, (void)entry, (void)data;
#else
    uint32_t crc = (uint32_t)crc32_z(0, data, (size_t)entry->bytes);
    if (crc != entry->crc)
        return FAIL(ST_PARSE, "%s: zip entry '%s' is damaged: checksum %08x, expected %08x",
                    archive->what, entry->name, crc, entry->crc);
#endif
    return ST_OK;
}

st_status_t zip_read(const zip_archive_t *archive, const zip_entry_t *entry, st_arena_t *arena,
                     const uint8_t **out_data, size_t *out_bytes) {
    *out_data = NULL;
    *out_bytes = 0;
    if (entry->flags & (FLAG_ENCRYPTED | FLAG_STRONG_ENCRYPTION))
        return FAIL(ST_UNSUPPORTED, "%s: zip entry '%s' is encrypted", archive->what, entry->name);
    const uint8_t *packed = NULL;
    TRY(find_data(archive, entry, &packed));
    if (entry->method == 0) {
        if (entry->bytes != entry->packed_bytes)
            return FAIL(ST_PARSE, "%s: stored zip entry '%s' has %llu bytes but claims %llu",
                        archive->what, entry->name, (unsigned long long)entry->packed_bytes,
                        (unsigned long long)entry->bytes);
        *out_data = packed;
    } else if (entry->method == 8) {
        if (entry->bytes > FREE_RATIO_BYTES && entry->bytes / ZIP_MAX_RATIO > entry->packed_bytes)
            return FAIL(ST_PARSE,
                        "%s: zip entry '%s' claims to inflate %llu bytes to %llu, more than "
                        "%d : 1",
                        archive->what, entry->name, (unsigned long long)entry->packed_bytes,
                        (unsigned long long)entry->bytes, ZIP_MAX_RATIO);
        uint8_t *out = st_arena_alloc(arena, (size_t)entry->bytes);
        if (!out) return st_no_memory((size_t)entry->bytes, entry->name);
        if (!inflate_all(packed, (size_t)entry->packed_bytes, out, (size_t)entry->bytes))
            return FAIL(ST_PARSE, "%s: zip entry '%s' does not inflate to %llu bytes",
                        archive->what, entry->name, (unsigned long long)entry->bytes);
        *out_data = out;
    } else {
        return FAIL(ST_UNSUPPORTED,
                    "%s: zip entry '%s' uses compression method %d; stored and deflate "
                    "are read",
                    archive->what, entry->name, entry->method);
    }
    TRY(check_crc(archive, entry, *out_data));
    *out_bytes = (size_t)entry->bytes;
    return ST_OK;
}
