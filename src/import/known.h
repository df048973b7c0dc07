/* Elements of values that depend on no input, state or random number, while importing: shapes that
 * a model computes with tensors, trip counts and conditions of its loops. */
#ifndef STATOR_IMPORT_KNOWN_H
#define STATOR_IMPORT_KNOWN_H

#include "base/vec.h"
#include "ir/graph.h"

/* Elements in all that one import may compute so. */
enum { IMPORT_KNOWN_TOTAL = 1 << 22 };

typedef struct import_known {
    const void *data; /* row-major; NULL: not known */
    bool asked, used; /* computed or set; given out, or taken to compute another */
} import_known_t;

/* Of one graph, by value; it may grow meanwhile. Freed with ST_VEC_FREE(&values). */
typedef struct import_knowns {
    st_arena_t *arena; /* where the elements are put */
    int64_t *left;     /* elements that may still be computed */
    ST_VEC(import_known_t) values;
} import_knowns_t;

/* *out_data: the elements, NULL where they are not known. FAILs only for want of memory. */
st_status_t import_known(import_knowns_t *k, const ir_graph_t *graph, ir_value_t value,
                         const void **out_data) ST_WARN_UNUSED;
/* Takes it that a value has these elements (NULL: that they are not known). `data` is borrowed. */
st_status_t import_known_set(import_knowns_t *k, const ir_graph_t *graph, ir_value_t value,
                             const void *data) ST_WARN_UNUSED;

#endif
