/* Fuzzes the `.stator` decoder: each input as it is, and with its checksum put right, so that a
 * mutated payload is decoded in any build. What decodes must verify, and come back from its
 * encoding and from its text with the same bytes.
 *
 * Covers: src/ir/codec.c src/ir/wire.c
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "ir/codec.h"
#include "ir/container.h"
#include "ir/text.h"
#include "ir/verify.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* A finding ends the fuzzer. */
static void require(int holds) {
    if (!holds) abort();
}

static uint8_t *encode(const ir_graph_t *graph, size_t *out_bytes) {
    uint8_t *data;
    require(ir_graph_encode(graph, &data, out_bytes) == ST_OK);
    return data;
}

/* The graph as bytes equals `expected`. Frees the graph. */
static void require_same(ir_graph_t *graph, const uint8_t *expected, size_t bytes) {
    size_t found_bytes;
    uint8_t *found = encode(graph, &found_bytes);
    require(found_bytes == bytes && memcmp(found, expected, bytes) == 0);
    st_free(found);
    ir_graph_destroy(graph);
}

static void decode(const uint8_t *data, size_t bytes) {
    ir_graph_t *graph, *again;
    if (ir_graph_decode(data, bytes, &graph) != ST_OK) {
        require(strlen(st_last_error()) > 0);
        return;
    }
    require(ir_graph_verify(graph) == ST_OK);
    size_t encoded_bytes;
    uint8_t *encoded = encode(graph, &encoded_bytes);
    char *text;
    require(ir_graph_print(graph, &text) == ST_OK);
    require(ir_graph_decode(encoded, encoded_bytes, &again) == ST_OK);
    require_same(again, encoded, encoded_bytes);
    require(ir_graph_parse(text, strlen(text), &again) == ST_OK);
    require_same(again, encoded, encoded_bytes);
    st_free(text);
    st_free(encoded);
    ir_graph_destroy(graph);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    decode(data, bytes);
    if (bytes < IR_CONTAINER_HEADER_BYTES) return 0;
    uint8_t *file = malloc(bytes);
    if (!file) return 0;
    memcpy(file, data, bytes);
    uint64_t hash =
        st_hash64(data + IR_CONTAINER_HEADER_BYTES, bytes - IR_CONTAINER_HEADER_BYTES, 0);
    for (int i = 0; i < 8; i++) file[24 + i] = (uint8_t)(hash >> (8 * i)); /* see container.h */
    decode(file, bytes);
    free(file);
    return 0;
}
