/* The container of Stator's own binary files: a fixed header before one protobuf message.
 *
 *   0        8          12         16              24           32
 *   +--------+----------+----------+---------------+------------+---------------------+
 *   | magic  | version  | reserved | payload bytes | checksum   | payload             |
 *   | 8 char | u32      | u32 = 0  | u64           | u64 (XXH64)| protobuf            |
 *   +--------+----------+----------+---------------+------------+---------------------+
 *
 * Little-endian. The checksum is st_hash64 of the payload with seed 0; builds for fuzzing
 * (STATOR_FUZZ) do not compare it, so that mutations reach the decoder. */
#ifndef STATOR_IR_CONTAINER_H
#define STATOR_IR_CONTAINER_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { IR_CONTAINER_HEADER_BYTES = 32 };
/* Protobuf's own limit on a message. */
#define IR_CONTAINER_MAX_PAYLOAD_BYTES ((size_t)INT32_MAX)

typedef struct ir_container_kind {
    char magic[8];    /* not NUL-terminated */
    uint32_t version; /* newest that this build reads and writes */
    const char *what; /* "graph": for messages */
} ir_container_kind_t;

/* Writes the header for the payload that already stands at file + IR_CONTAINER_HEADER_BYTES. */
void ir_container_seal(const ir_container_kind_t *kind, uint8_t *file, size_t payload_bytes);
/* Checks the header and points *out_payload into `data`. Errors say what is wrong and where. */
st_status_t ir_container_open(const ir_container_kind_t *kind, const void *data, size_t bytes,
                              const uint8_t **out_payload,
                              size_t *out_payload_bytes) ST_WARN_UNUSED;

#endif
