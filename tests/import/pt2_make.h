/* Small archives made in memory: zip files entry by entry, and torch.export archives whose nodes
 * are written in short form:
 *
 *   pt2_node(&m, "add.Tensor", "self=%x other=2 alpha=0.5", "y");
 *
 * Arguments are name=value with %x a tensor, [%x,%y] tensors (None among them makes them optional),
 * 2 an integer, [2,3] integers, 0.5 a float, true a bool, 'none' a string, #f32 an element type,
 * None, &n a symbolic integer (in a list, all entries are), $ what pt2_graph gives. Results are
 * names with commas; in brackets they are one list; &n is a symbolic integer. */
#ifndef STATOR_TESTS_PT2_MAKE_H
#define STATOR_TESTS_PT2_MAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "import/import.h"

typedef struct text {
    char *data;
    size_t n, cap;
} text_t;
void text_add(text_t *text, const char *format, ...) ST_PRINTF(2, 3);

/* ---- zip ---- */
typedef struct zip_maker {
    text_t file, directory;
    size_t n;
    bool zip64;   /* sizes and offsets go to the 64-bit fields */
    bool deflate; /* entries added from now on */
} zip_maker_t;
void zip_add(zip_maker_t *zip, const char *name, const void *data, size_t bytes);
/* The file, to be freed by the caller; empties the maker. */
uint8_t *zip_finish(zip_maker_t *zip, size_t *out_bytes);

/* ---- archives ---- */
typedef struct pt2_maker {
    text_t nodes, values, inputs, outputs, config, constants;
    zip_maker_t files;
    int n_files;
    const char *root;       /* "model/" unless set */
    const char *extra_spec; /* more output specs */
    const char *ranges;     /* bounds of symbols, as JSON */
} pt2_maker_t;

/* Types are "f32[2,3]". Values of state are given as doubles. */
ir_type_t type_of(const char *text);
void pt2_input(pt2_maker_t *m, const char *name, const char *type);
/* Sizes are numbers or EXPRESSION:HINT, with commas: "s0:4,3". */
void pt2_symbolic_input(pt2_maker_t *m, const char *name, const char *dtype, const char *sizes);
void pt2_state(pt2_maker_t *m, const char *kind, const char *name, const char *type,
               const double *values);
/* Same with the file and the layout of another state ("path", strides, offset); NULL strides:
 * row-major. */
void pt2_state_as(pt2_maker_t *m, const char *kind, const char *name, const char *type,
                  const char *path, const int64_t *strides, int64_t offset);
void pt2_node(pt2_maker_t *m, const char *target, const char *arguments, const char *results);
/* The maker's nodes as a graph, with the names of its inputs and outputs, as an argument's value
 * (to be freed); empties the maker. */
char *pt2_graph(pt2_maker_t *m, const char *inputs, const char *outputs);
void pt2_output(pt2_maker_t *m, const char *name);
/* What the archive says of a node's result. */
void pt2_describe(pt2_maker_t *m, const char *name, const char *type);
/* The archive; empties the maker. */
uint8_t *pt2_finish(pt2_maker_t *m, size_t *out_bytes);

/* ---- running ---- */
typedef struct feed {
    const char *name;
    const double *values;
} feed_t;
/* Runs the imported graph once with the reference kernels; state has the archive's values. Returns
 * the output's elements (caller frees) and its type. Updates are found under their buffer's name.
 * Fails the test on any error. */
double *run_graph(const import_result_t *result, const feed_t *feeds, size_t n_feeds,
                  const char *output, ir_type_t *out_type);

#endif
