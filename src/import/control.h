/* Control flow, as the importers build it: cond and repeat over bodies that are made already. */
#ifndef STATOR_IMPORT_CONTROL_H
#define STATOR_IMPORT_CONTROL_H

#include "import/known.h"
#include "ir/build.h"

enum { IMPORT_MOST_VALUES = 256 }; /* operands, and results, of one node */

/* FAILs unless a condition is one bool, of any shape. */
st_status_t import_check_condition(const ir_type_t *type) ST_WARN_UNUSED;
/* FAILs, naming the value, unless what a turn makes of it is of the type that it began with. */
st_status_t import_check_carried(const char *name, const ir_type_t *before,
                                 const ir_type_t *after) ST_WARN_UNUSED;

/* First result of a condition over bodies[0] (true) and bodies[1], both of which take the `n`
 * operands; IR_NONE after a failure. The bodies stay the caller's. */
ir_value_t import_cond(ir_build_t *b, ir_value_t condition, size_t n, const ir_value_t *operands,
                       ir_graph_t *const bodies[2]);

typedef struct import_loop {
    const ir_graph_t *body; /* (carried, slices of scanned, captured) → (carried, stacked) */
    int64_t trip;
    size_t n, n_carried, n_scanned; /* operands in this order; the rest is captured */
    const ir_value_t *operands;
    bool reverse;
} import_loop_t;

/* First result of a loop; IR_NONE after a failure. The body stays the caller's. */
ir_value_t import_repeat(ir_build_t *b, const import_loop_t *loop);

/* A loop that goes on while `test` says so, before each turn; both graphs take the carried values
 * and what is captured. */
typedef struct import_while {
    const ir_graph_t *test, *body;
    size_t n, n_carried;
    const void *const *operands; /* [n] elements at the beginning; NULL: not known */
    int64_t most;                /* more turns are an error */
} import_while_t;

/* Counts the turns by taking them, of the values that the test depends on. FAILs where that is
 * data, or where it does not end. `left`: as in import_knowns_t. */
st_status_t import_count_turns(const import_while_t *loop, int64_t *left,
                               int64_t *out_turns) ST_WARN_UNUSED;

#endif
