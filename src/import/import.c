/* The table of formats, files and results. */
#include "import/import.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "import/onnx.h"
#include "import/pt2.h"
#include "ir/family.h"

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

st_status_t import_size(import_result_t *result, const import_options_t *options,
                        const ir_symbol_t *symbol, int64_t *out_size) {
    for (size_t i = 0; i < options->n_bindings; i++) {
        if (strcmp(options->bindings[i].name, symbol->name) != 0) continue;
        *out_size = options->bindings[i].value;
        if (*out_size < symbol->min || *out_size > symbol->max)
            return FAIL(ST_INVALID, "symbol '%s' is bound to %lld, outside %lld to %lld",
                        symbol->name, (long long)*out_size, (long long)symbol->min,
                        (long long)symbol->max);
        result->bound |= 1u << i;
        return ST_OK;
    }
    for (size_t i = 0; i < result->symbols.n; i++)
        if (strcmp(result->symbols.data[i].name, symbol->name) == 0) {
            *out_size = result->symbols.data[i].example;
            return ST_OK;
        }
    ir_symbol_t owned = *symbol;
    owned.name = st_arena_strdup(&result->arena, symbol->name);
    if (!owned.name) return st_no_memory(0, "a symbol");
    /* two sizes that happen to be equal would look like one */
    for (size_t i = 0; i < result->symbols.n;)
        if (result->symbols.data[i].example == owned.example && owned.example < owned.max)
            owned.example++, i = 0;
        else
            i++;
    *out_size = owned.example;
    return ST_VEC_PUSH(&result->symbols, owned);
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

/* ---- open sizes ---- */

typedef struct source {
    const char *path, *what;
    const void *data;
    size_t bytes;
    import_options_t options;
    const import_result_t *first; /* the import for the examples */
} source_t;

/* The graph of another import, for these sizes of the open symbols. */
static st_status_t read_sized(void *context, const int64_t *sizes, ir_graph_t **out_graph) {
    const source_t *source = context;
    const import_options_t *given = &source->options;
    ir_binding_t bindings[IR_MAX_SYMBOLS];
    size_t n = 0;
    for (; n < given->n_bindings; n++) bindings[n] = given->bindings[n];
    for (size_t i = 0; i < source->first->symbols.n; i++)
        bindings[n++] = (ir_binding_t){source->first->symbols.data[i].name, sizes[i]};
    import_options_t options = *given;
    options.bindings = bindings;
    options.n_bindings = n;
    import_result_t *result = st_calloc(1, sizeof *result);
    if (!result) return st_no_memory(sizeof *result, "an import");
    st_status_t status =
        read_any(source->path, source->data, source->bytes, source->what, &options, result);
    if (status == ST_OK) {
        *out_graph = result->graph;
        result->graph = NULL;
    }
    import_result_destroy(result);
    return status;
}

static st_status_t check_bindings(const import_result_t *result, const import_options_t *options) {
    for (size_t i = 0; i < options->n_bindings; i++)
        if (!(result->bound >> i & 1))
            return FAIL(ST_NOT_FOUND, "the model has no symbol '%.64s'%s%s",
                        options->bindings[i].name, result->symbols.n ? "; it has " : "",
                        result->symbols.n ? result->symbols.data[0].name : "");
    return ST_OK;
}

/* Reads the file, and again for other sizes where some are open. */
static st_status_t read_family(const char *path, const void *data, size_t bytes, const char *what,
                               const import_options_t *options, import_result_t *result) {
    static const import_options_t defaults = {0};
    source_t source = {path, what, data, bytes, options ? *options : defaults, result};
    ir_graph_t *family;
    if (source.options.n_bindings > IR_MAX_SYMBOLS)
        return FAIL(ST_INVALID, "%d bindings at most", IR_MAX_SYMBOLS);
    TRY(read_any(path, data, bytes, what, &source.options, result));
    TRY(check_bindings(result, &source.options));
    if (!result->symbols.n) return ST_OK;
    if (result->symbols.n + source.options.n_bindings > IR_MAX_SYMBOLS)
        return FAIL(ST_UNSUPPORTED, "%s: more than %d symbols", what, IR_MAX_SYMBOLS);
    st_status_t status =
        ir_family_fit(result->symbols.n, result->symbols.data, read_sized, &source, &family);
    if (status != ST_OK) return st_error_context(status, "%s", what);
    ir_graph_destroy(result->graph);
    result->graph = family;
    return ST_OK;
}

st_status_t import_memory(const void *data, size_t bytes, const char *what,
                          const import_options_t *options, import_result_t **out_result) {
    *out_result = NULL;
    import_result_t *result = st_calloc(1, sizeof *result);
    if (!result) return st_no_memory(sizeof *result, "an import");
    st_status_t status = read_family(NULL, data, bytes, what, options, result);
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
        status = read_family(path, result->file.data, result->file.bytes, path, options, result);
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
    ST_VEC_FREE(&result->symbols);
    st_arena_clear(&result->arena);
    st_file_close(&result->file);
    for (size_t i = 0; i < result->more_files.n; i++) st_file_close(&result->more_files.data[i]);
    ST_VEC_FREE(&result->more_files);
    st_free(result);
}
