/* Fuzzes the ONNX reader: what imports must verify and print; what does not must say why. The model
 * stands in a folder that holds a file w.bin, for external data.
 *
 * Seeds: .onnx
 * Covers: src/import/onnx*.c
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "import/onnx.h"
#include "ir/text.h"
#include "ir/verify.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* A finding ends the fuzzer. */
static void require(int holds) {
    if (!holds) abort();
}

static char folder[] = "/tmp/stator_fuzz_XXXXXX", external[64], model[64];

static void remove_folder(void) {
    unlink(external);
    rmdir(folder);
}

static void make_folder(void) {
    require(mkdtemp(folder) != NULL);
    atexit(remove_folder);
    snprintf(external, sizeof external, "%s/w.bin", folder);
    snprintf(model, sizeof model, "%s/m.onnx", folder);
    FILE *file = fopen(external, "wb");
    require(file && fwrite("0123456789abcdef", 1, 16, file) == 16 && fclose(file) == 0);
}

static st_status_t read_model(const uint8_t *data, size_t bytes, import_result_t *result) {
    static const char *const names[] = {"w", "scale", "model.weight"};
    static const char *const patterns[] = {"c*"};
    import_options_t options = {0};
    if (bytes && data[bytes - 1] & 1)
        options = (import_options_t){NULL, names, 3, patterns, 1, NULL, 0};
    if (!onnx_probe(data, bytes)) return FAIL(ST_PARSE, "no ONNX model");
    return onnx_read(model, data, bytes, "input", &options, result);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    import_result_t *result = st_calloc(1, sizeof *result);
    char *text;
    if (!model[0]) make_folder();
    if (!result) return 0;
    if (read_model(data, bytes, result) != ST_OK) {
        require(strlen(st_last_error()) > 0);
    } else {
        require(ir_graph_verify(result->graph) == ST_OK);
        require(ir_graph_print(result->graph, &text) == ST_OK);
        st_free(text);
    }
    import_result_destroy(result);
    return 0;
}
