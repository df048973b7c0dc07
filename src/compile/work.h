/* What a node does, whatever runs it: operations, bytes, and the numbers that rates depend on. */
#ifndef STATOR_COMPILE_WORK_H
#define STATOR_COMPILE_WORK_H

#include "ir/op.h"

typedef enum work_kind {
    WORK_NOTHING = 0, /* views and sources */
    WORK_EACH,        /* passes over elements */
    WORK_PRODUCT,
    WORK_CONV,
    WORK_ATTENTION,
    WORK_COLLECTIVE,
} work_kind_t;

/* Sizes that conditions and formulas of target descriptions name, in the order of work_dim_names.
 *   product      b items, m × k times k × n
 *   conv         n images, c channels in and o out of each of g groups, p positions of the output,
 *                i of the input, r taps, s the stride's product
 *   attention    b items, h and g heads, m queries, s keys of d and values of e elements
 *   the rest     rows × cols: the passes' outer and inner extent */
typedef struct work_dims {
    int64_t b, c, d, e, g, h, i, k, m, n, o, p, r, s, rows, cols;
} work_dims_t;

typedef struct work {
    work_kind_t kind;
    ir_dtype_t dtype;    /* of the elements that are worked on */
    double flop;         /* a multiply-add is two, a function as exp one */
    double product_flop; /* the part in products */
    double bytes_read, bytes_written;
    double units; /* elements, for rates per element */
    const char
        *variant; /* how the shape chooses another loop: "rows", "columns"; "" if it does not */
    work_dims_t dims;
    st_status_t status; /* NO_MEMORY: a body could not be read, and no number here counts */
} work_t;

/* A `fused` node does what the nodes of its body do, but only its own operands move; of a `repeat`
 * they move each time; of a `cond` the body that does more counts. */
void work_of(const ir_op_ctx_t *ctx, const ir_type_t *out_types, work_t *out);
work_kind_t work_kind_of(ir_op_t op);
/* Whether it is said what the op does: by a row, or because it is elementwise, one operation an
 * element. Of all ops, which a test sees to. */
bool work_is_known(ir_op_t op);
/* Calls `each` with every node of a body but its inputs, in order. NO_MEMORY only. */
typedef void (*work_visit_t)(void *context, const ir_op_ctx_t *ctx, const ir_type_t *out_types);
st_status_t work_each_node(const ir_graph_t *body, work_visit_t each, void *context) ST_WARN_UNUSED;
/* Size by the name name[0 … bytes) that descriptions use ("m", "rows"); NULL if there is none. */
const char *work_dim_name(size_t index); /* NULL past the last */
int64_t *work_dim_of(work_dims_t *dims, const char *name, size_t bytes);

#endif
