/* Conformance cases: one row an op, shapes and attributes; a problem is built from a row and an
 * element type. Shared by the forward, gradient and thread tests. */
#ifndef STATOR_TESTS_CONFORMANCE_CASES_H
#define STATOR_TESTS_CONFORMANCE_CASES_H

#include "kernels/table.h"

/* Inputs, separated by spaces: kind[fill]:dims, dims separated by commas, none for a scalar.
 *   kind  T the case's type; W f32 where that is a smaller float, else the same; i i32; l i64; b
 *         bool; d f64; h f16; t, w as T, W, not differentiated
 *   fill  nothing: about [-2, 2]; +: [0.5, 2]; <n: integers in [-n, n); ^n: integers in [0, n); =v:
 * v Attributes: key=value, lists with commas; booleans 0 or 1; dtype by name. What is left out
 * takes its default. With channels_last=1 the dims are those of the channels-first form. A body is
 * given by its name (bodies.c). */
typedef struct conf_case {
    ir_op_t op;
    const char *
        types; /* f: f32 f64 f16 bf16; i: i32 i64 u8 i8; b: bool; -: once, type in the attributes */
    const char *inputs, *attrs;
    int32_t terms; /* of the longest sum behind an output element, where shapes do not show it (they
                      show as many as there are inputs an output): tolerances grow with its root */
} conf_case_t;

extern const conf_case_t conf_cases[];
extern const size_t conf_n_cases;

enum { CONF_MAX_OPERANDS = 8, CONF_MAX_ATTRS = 16, CONF_MAX_INTS = 64 };

typedef struct conf_built {
    kern_problem_t problem;
    ir_type_t in[CONF_MAX_OPERANDS], out[CONF_MAX_OPERANDS];
    ir_attr_t attrs[CONF_MAX_ATTRS];
    int64_t ints[CONF_MAX_ATTRS][CONF_MAX_INTS];
    char strings[CONF_MAX_ATTRS][32];
    unsigned char data_bytes[512]; /* of a constant */
    ir_graph_t *bodies[CONF_MAX_ATTRS];
    bool fixed[CONF_MAX_OPERANDS]; /* input is not differentiated */
    void *in_data[CONF_MAX_OPERANDS];
    double *in_values[CONF_MAX_OPERANDS]; /* the same, as double */
    char name[160];
    int32_t terms; /* of the row */
} conf_built_t;

/* Dtypes of a row, ended by IR_DTYPE_NONE. */
const ir_dtype_t *conf_types(const conf_case_t *row, int *out_n);
/* Fills *built; fails the running test where the row is wrong. */
void conf_build(const conf_case_t *row, ir_dtype_t dtype, conf_built_t *built);
void conf_release(conf_built_t *built);

/* Body of the cases by name. */
ir_graph_t *conf_body(const char *name, ir_dtype_t dtype);

/* Expected outputs from the definition of the op, in double. False: the oracle does not know the
 * op. */
bool conf_oracle(const conf_built_t *built, double *const *out);

/* Fails the running test where output k differs from the expected. Tolerance: rounding of the type
 * times (8 + 2 sqrt n) for sums of n terms, relative to the largest expected value where there is a
 * sum (terms may cancel), to the element otherwise. Smaller of 1 counts as 1. Integers and bools
 * are exact. */
void conf_compare(const conf_built_t *built, const char *impl, uint32_t k, const void *got,
                  const double *expected);

#endif
