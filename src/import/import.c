/* The table of formats, files and results. */
#include "import/import.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "import/onnx.h"
#include "import/pt2.h"

/* Formats in the order they are asked. */
static const import_format_t formats[] = {
    {"torch.export archive (.pt2)", pt2_probe, pt2_read},
    {"ONNX model", onnx_probe, onnx_read},
};
enum { N_FORMATS = sizeof formats / sizeof formats[0] };

st_status_t import_file_open(const char *path, st_file_t *out_file) {
    TRY(st_file_open(path, out_file));
    if (out_file->bytes > 0) return ST_OK;
    st_file_close(out_file);
    return FAIL(ST_PARSE, "'%s' is empty", path);
}

st_status_t import_note(import_result_t *result, const char *format, ...) {
    char line[512];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    const char *owned = st_arena_strdup(&result->arena, line);
    if (!owned) return st_no_memory(strlen(line), "a note");
    return ST_VEC_PUSH(&result->messages, owned);
}

static st_status_t read_any(const char *path, const void *data, size_t bytes, const char *what,
                            const import_options_t *options, import_result_t *result) {
    static const import_options_t defaults = {0};
    for (size_t i = 0; i < N_FORMATS; i++)
        if (formats[i].probe(data, bytes))
            return formats[i].read(path, data, bytes, what, options ? options : &defaults, result);
    char known[256] = "";
    for (size_t i = 0; i < N_FORMATS; i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", formats[i].name);
    }
    return FAIL(ST_PARSE,
                "%s: the contents are of no format that can be imported (%s); a text becomes token "
                "shards with 'stator import TEXT --chars' or '--tokenizer FILE' (options chars or "
                "tokenizer)",
                what, known);
}

st_status_t import_memory(const void *data, size_t bytes, const char *what,
                          const import_options_t *options, import_result_t **out_result) {
    *out_result = NULL;
    import_result_t *result = st_calloc(1, sizeof *result);
    if (!result) return st_no_memory(sizeof *result, "an import");
    st_status_t status = read_any(NULL, data, bytes, what, options, result);
    if (status == ST_OK)
        *out_result = result;
    else
        import_result_destroy(result);
    return status;
}

st_status_t import_file(const char *path, const import_options_t *options,
                        import_result_t **out_result) {
    *out_result = NULL;
    import_result_t *result = st_calloc(1, sizeof *result);
    if (!result) return st_no_memory(sizeof *result, "an import");
    st_status_t status = import_file_open(path, &result->file);
    if (status == ST_OK)
        status = read_any(path, result->file.data, result->file.bytes, path, options, result);
    if (status == ST_OK)
        *out_result = result;
    else
        import_result_destroy(result);
    return status;
}

void import_result_destroy(import_result_t *result) {
    if (!result) return;
    ir_graph_destroy(result->graph);
    ST_VEC_FREE(&result->tensors);
    ST_VEC_FREE(&result->messages);
    st_arena_clear(&result->arena);
    st_file_close(&result->file);
    for (size_t i = 0; i < result->more_files.n; i++) st_file_close(&result->more_files.data[i]);
    ST_VEC_FREE(&result->more_files);
    st_free(result);
}
