/* Fuzzes the reader of IDX files, plain and compressed. What loads has exactly the data that its
 * head says.
 *
 * Covers: src/state/images.c
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "state/images.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* A finding ends the fuzzer. */
static void require(int holds) {
    if (!holds) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    idx_t idx;
    if (idx_parse(data, bytes, "memory", &idx) != ST_OK) {
        require(strlen(st_last_error()) > 0);
        return 0;
    }
    size_t n = 1;
    unsigned sum = 0;
    for (int32_t i = 0; i < idx.rank; i++) n *= (size_t)idx.dims[i];
    for (size_t i = 0; i < n; i++)
        sum += idx.data[i]; /* a short block is the sanitizer's finding */
    require(sum <= 255 * n);
    idx_free(&idx);
    return 0;
}
