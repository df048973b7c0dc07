/* Fuzzes the ONNX reader: what imports must verify and print; what does not must say why.
 *
 * Seeds: .onnx
 * Covers: src/import/onnx*.c
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "import/import.h"
#include "ir/text.h"
#include "ir/verify.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* A finding ends the fuzzer. */
static void require(int holds) {
    if (!holds) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    import_result_t *result;
    static const char *const names[] = {"w", "scale", "model.weight"};
    static const char *const patterns[] = {"c*"};
    import_options_t options = {0};
    if (bytes && data[bytes - 1] & 1) options = (import_options_t){NULL, names, 3, patterns, 1};
    if (import_memory(data, bytes, "input", &options, &result) != ST_OK) {
        require(strlen(st_last_error()) > 0);
        return 0;
    }
    char *text;
    require(ir_graph_verify(result->graph) == ST_OK);
    require(ir_graph_print(result->graph, &text) == ST_OK);
    st_free(text);
    import_result_destroy(result);
    return 0;
}
