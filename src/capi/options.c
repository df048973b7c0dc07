/* Option objects. */
#include <string.h>

#include "base/memory.h"
#include "capi/capi.h"

stator_status_t stator_options_create(stator_options_t **out_options) {
    CAPI_OUT(out_options);
    stator_options_t *options = st_calloc(1, sizeof *options);
    if (!options) return capi_status(st_no_memory(sizeof *options, "options"));
    st_status_t status = st_options_create(&options->table);
    if (status != ST_OK) {
        st_free(options);
        return capi_status(status);
    }
    *out_options = options;
    return STATOR_OK;
}

void stator_options_destroy(stator_options_t *options) {
    if (!options) return;
    st_options_destroy(options->table);
    st_free(options);
}

static const st_option_row_t *find_row(const char *key) {
    if (!key) return NULL;
    for (const st_option_row_t *row = st_option_rows(); row->key; row++)
        if (strcmp(row->key, key) == 0) return row;
    return NULL;
}

stator_status_t stator_options_set(stator_options_t *options, const char *key, const char *value) {
    CAPI_REQUIRE(options);
    CAPI_REQUIRE(key);
    CAPI_REQUIRE(value);
    return capi_status(st_options_set(options->table, key, value));
}
const char *stator_options_get(const stator_options_t *options, const char *key) {
    return find_row(key) ? st_options_string(options->table, key) : NULL;
}
int64_t stator_options_get_int(const stator_options_t *options, const char *key) {
    const st_option_row_t *row = find_row(key);
    if (!row) return 0;
    if (strcmp(row->kind, "INT") == 0 || strcmp(row->kind, "COUNT") == 0)
        return st_options_int(options->table, key);
    if (strcmp(row->kind, "BOOL") == 0) return st_options_bool(options->table, key);
    if (strcmp(row->kind, "SIZE") == 0) return (int64_t)st_options_size(options->table, key);
    return 0;
}
double stator_options_get_float(const stator_options_t *options, const char *key) {
    const st_option_row_t *row = find_row(key);
    if (!row) return 0;
    if (strcmp(row->kind, "FLOAT") == 0 || strcmp(row->kind, "RATE") == 0)
        return st_options_float(options->table, key);
    return (double)stator_options_get_int(options, key);
}
int stator_options_given(const stator_options_t *options, const char *key) {
    return find_row(key) && st_options_given(options->table, key);
}

int stator_option_at(size_t index, stator_option_info_t *out_info) {
    const st_option_row_t *row = st_option_rows();
    for (size_t i = 0; row->key && i < index; i++) row++;
    if (!row->key) return 0;
    *out_info =
        (stator_option_info_t){row->key, row->kind, row->fallback, row->help, row->commands};
    return 1;
}
