/* Fuzzes the plan decoder: each input as it is, and with its checksum put right. What decodes is
 * proven by plan_check, prints, and comes back from its encoding with the same bytes.
 *
 * Covers: src/compile/plan_codec.c src/compile/plan_check.c
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "compile/plan.h"
#include "ir/container.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* A finding ends the fuzzer. */
static void require(int holds) {
    if (!holds) abort();
}

static void decode(const uint8_t *data, size_t bytes) {
    plan_t *plan, *again;
    if (plan_decode(data, bytes, &plan) != ST_OK) {
        require(strlen(st_last_error()) > 0);
        return;
    }
    uint8_t *first, *second;
    size_t first_bytes, second_bytes;
    char *text;
    require(plan_check(plan) == ST_OK);
    require(plan_print(plan, &text) == ST_OK);
    require(plan_encode(plan, &first, &first_bytes) == ST_OK);
    require(plan_decode(first, first_bytes, &again) == ST_OK);
    require(plan_encode(again, &second, &second_bytes) == ST_OK);
    require(first_bytes == second_bytes && memcmp(first, second, first_bytes) == 0);
    st_free(first);
    st_free(second);
    st_free(text);
    plan_destroy(again);
    plan_destroy(plan);
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
