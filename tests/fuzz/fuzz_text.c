/* Fuzzes the parser of the text form. What parses must verify, print, parse to the same bytes, and
 * simplify to a graph that verifies.
 *
 * Covers: src/ir/parse.c src/ir/print.c
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "fusion/simplify.h"
#include "ir/codec.h"
#include "ir/text.h"
#include "ir/verify.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* A finding ends the fuzzer. */
static void require(int holds) {
    if (!holds) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    ir_graph_t *graph, *again, *simple;
    if (ir_graph_parse((const char *)data, bytes, &graph) != ST_OK) {
        require(strlen(st_last_error()) > 0);
        return 0;
    }
    require(ir_graph_verify(graph) == ST_OK);
    char *text, *text_again;
    uint8_t *first, *second;
    size_t first_bytes, second_bytes;
    require(ir_graph_print(graph, &text) == ST_OK);
    require(ir_graph_parse(text, strlen(text), &again) == ST_OK);
    require(ir_graph_print(again, &text_again) == ST_OK);
    require(strcmp(text, text_again) == 0);
    require(ir_graph_encode(graph, &first, &first_bytes) == ST_OK);
    require(ir_graph_encode(again, &second, &second_bytes) == ST_OK);
    require(first_bytes == second_bytes && memcmp(first, second, first_bytes) == 0);
    require(fuse_simplify(graph, NULL, &simple) == ST_OK);
    require(ir_graph_verify(simple) == ST_OK);
    st_free(text);
    st_free(text_again);
    st_free(first);
    st_free(second);
    ir_graph_destroy(graph);
    ir_graph_destroy(again);
    ir_graph_destroy(simple);
    return 0;
}
