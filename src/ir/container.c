/* The container of Stator's own binary files. See container.h for the layout. */
#include "ir/container.h"

#include <inttypes.h>
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"

enum { AT_VERSION = 8, AT_RESERVED = 12, AT_PAYLOAD_BYTES = 16, AT_CHECKSUM = 24 };

static void put_le(uint8_t *at, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) at[i] = (uint8_t)(value >> (8 * i));
}
static uint64_t get_le(const uint8_t *at, int bytes) {
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) value |= (uint64_t)at[i] << (8 * i);
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
