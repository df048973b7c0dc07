/* Fuzzer of torch.export archives. An input that does not begin like a zip file is taken as the
 * model's JSON and wrapped in an archive, so that the graph's reader is reached without inventing
 * zip framing.
 *
 * Seeds: .pt2
 * Covers: src/import/pt2*.c src/import/aten*.c src/import/zip.c src/import/json.c
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "import/import.h"
#include "import/pt2.h"
#include "ir/verify.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void put(uint8_t **at, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) *(*at)++ = (uint8_t)(value >> (8 * i));
}

static void put_header(uint8_t **at, const char *name, const void *data, size_t bytes,
                       size_t offset, int central) {
    size_t length = strlen(name);
    put(at, central ? 0x02014b50 : 0x04034b50, 4);
    if (central) put(at, 20, 2);
    put(at, 20, 2);
    put(at, 0, 2 + 2 + 4); /* flags, stored, time */
    put(at, crc32(0, data, (uInt)bytes), 4);
    put(at, bytes, 4);
    put(at, bytes, 4);
    put(at, length, 2);
    put(at, 0, 2);
    if (central) {
        put(at, 0, 2 + 2 + 2);
        put(at, 0, 4);
        put(at, offset, 4);
    }
    memcpy(*at, name, length);
    *at += length;
}

/* models/model.json from the input; four floats as the weight "w" of shape [2, 2]. */
static uint8_t *wrap(const uint8_t *json, size_t size, size_t *out_size) {
    static const char config[] =
        "{\"config\":{\"w\":{\"path_name\":\"w\",\"is_param\":true,\"use_pickle\":false,\"tensor_"
        "meta\":{"
        "\"dtype\":7,\"sizes\":[{\"as_int\":2},{\"as_int\":2}],\"requires_grad\":true,\"strides\":["
        "{"
        "\"as_int\":2},{\"as_int\":1}],\"storage_offset\":{\"as_int\":0},\"layout\":7}}}}";
    static const float weight[4] = {1, 2, 3, 4};
    const struct {
        const char *name;
        const void *data;
        size_t bytes;
    } entries[] = {{"m/models/model.json", json, size},
                   {"m/data/weights/model_weights_config.json", config, sizeof config - 1},
                   {"m/data/weights/w", weight, sizeof weight}};
    size_t offsets[3];
    uint8_t *file = malloc(size + sizeof config + 2048), *at = file;
    if (!file) return NULL;
    for (int i = 0; i < 3; i++) {
        offsets[i] = (size_t)(at - file);
        put_header(&at, entries[i].name, entries[i].data, entries[i].bytes, 0, 0);
        if (entries[i].bytes) memcpy(at, entries[i].data, entries[i].bytes);
        at += entries[i].bytes;
    }
    size_t directory = (size_t)(at - file);
    for (int i = 0; i < 3; i++)
        put_header(&at, entries[i].name, entries[i].data, entries[i].bytes, offsets[i], 1);
    size_t bytes = (size_t)(at - file) - directory;
    put(&at, 0x06054b50, 4);
    put(&at, 0, 4);
    put(&at, 3, 2);
    put(&at, 3, 2);
    put(&at, bytes, 4);
    put(&at, directory, 4);
    put(&at, 0, 2);
    *out_size = (size_t)(at - file);
    return file;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t *wrapped = NULL;
    if (!pt2_probe(data, size)) {
        wrapped = wrap(data, size, &size);
        if (!wrapped) return 0;
        data = wrapped;
    }
    import_result_t *result = NULL;
    if (import_memory(data, size, "input", NULL, &result) == ST_OK) {
        if (ir_graph_verify(result->graph) != ST_OK) abort(); /* an importer makes valid graphs */
        import_result_destroy(result);
    }
    free(wrapped);
    return 0;
}
