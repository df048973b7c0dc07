/* Importing: from a model file of another system to a graph and the values of its parameters.
 *
 * One format, one file that fills an import_result_t; import_file chooses by content. Readers take
 * untrusted input: errors name file, node and argument, and nothing is executed or written. */
#ifndef STATOR_IMPORT_IMPORT_H
#define STATOR_IMPORT_IMPORT_H

#include "base/arena.h"
#include "base/file.h"
#include "base/vec.h"
#include "ir/symbols.h"

typedef enum import_kind {
    IMPORT_PARAMETER = 1, /* value of a parameter node */
    IMPORT_BUFFER,        /* value of a buffer node */
    IMPORT_CONSTANT,      /* a named value that the graph holds as a constant: for information */
} import_kind_t;

/* Initial value of a parameter or buffer, row-major, little-endian; `data` has any alignment. */
typedef struct import_tensor {
    const char *name;
    ir_type_t type;
    const void *data;
    size_t bytes;
    import_kind_t kind;
    const char *const *aliases; /* other names of the same tensor (declared ties) */
    uint32_t n_aliases;
} import_tensor_t;

/* What a caller may ask for. A zeroed struct is the default. */
typedef struct import_options {
    const char *name; /* of the graph; NULL: the file's name */
    /* For formats that do not tell parameters from constants (ONNX). Names, aliases included, of
     * the weights that will be loaded: floating initializers outside are constants. NULL: not
     * known. */
    const char *const *weight_names;
    size_t n_weight_names;
    /* Shell patterns of initializers that are constants. */
    const char *const *constant_patterns;
    size_t n_constant_patterns;
    /* Sizes of symbols of the file; the others stay open in the graph (ir/symbols.h). */
    const ir_binding_t *bindings;
    size_t n_bindings;
} import_options_t;

typedef struct import_result {
    ir_graph_t *graph; /* the caller may take it and set NULL here */
    ST_VEC(import_tensor_t) tensors;
    ST_VEC(const char *) messages; /* one-line notes on decisions the user may want to know */
    st_arena_t arena;              /* owns names, messages and converted values */
    st_file_t file;                /* where tensors point into it */
    ST_VEC(st_file_t) more_files;  /* those beside it that tensors point into */
    ST_VEC(ir_symbol_t) symbols;   /* met while reading, and not bound */
    uint32_t bound;                /* bit i: binding i of the options was met */
} import_result_t;

/* Reads any supported file. On success *out_result is the caller's to destroy. */
st_status_t import_file(const char *path, const import_options_t *options,
                        import_result_t **out_result) ST_WARN_UNUSED;
/* Same for a file in memory; `data` must outlive the result. `what` names it in messages. */
st_status_t import_memory(const void *data, size_t bytes, const char *what,
                          const import_options_t *options,
                          import_result_t **out_result) ST_WARN_UNUSED;
void import_result_destroy(import_result_t *result); /* NULL is fine */

/* ---- for the readers ---- */
/* A reader: fills an empty result (graph included) from a file in memory. `path` is NULL for a file
 * that is only in memory. On failure the caller destroys the result. */
typedef struct import_format {
    const char *name;
    bool (*probe)(const void *data, size_t bytes);
    st_status_t (*read)(const char *path, const void *data, size_t bytes, const char *what,
                        const import_options_t *options, import_result_t *result);
} import_format_t;

st_status_t import_note(import_result_t *result, const char *format, ...)
    ST_PRINTF(2, 3) ST_WARN_UNUSED;
/* The size of a symbol that a reader meets: as the options bind it, else the example. */
st_status_t import_size(import_result_t *result, const import_options_t *options,
                        const ir_symbol_t *symbol, int64_t *out_size) ST_WARN_UNUSED;
/* st_file_open, for files that may not be empty. */
st_status_t import_file_open(const char *path, st_file_t *out_file) ST_WARN_UNUSED;

#endif
