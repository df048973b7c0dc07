/* What every order of a graph's nodes keeps, beside the flow of data:
 *
 *   state        a reader, or the wait of a gather that reads it, comes before the state's update,
 *                and before the node that makes the new value if it stood before that one (the
 *                value may then be written over the state)
 *   collectives  those of which other programs may have others keep the order of their starts, so
 *                that ranks meet
 *   effects      keep theirs */
#ifndef STATOR_IR_ORDER_H
#define STATOR_IR_ORDER_H

#include "base/vec.h"
#include "ir/op.h"

typedef struct ir_edge {
    ir_node_t from, to;
} ir_edge_t;
typedef ST_VEC(ir_edge_t) ir_edges_t;

/* Lists of neighbours in one allocation: those of i are to[first[i]] … to[first[i + 1] - 1]. */
typedef struct ir_neighbours {
    uint32_t *first;
    ir_node_t *to;
} ir_neighbours_t;

/* A start whose meetings are among ranks of one program, or of programs with the same nodes:
 * whatever order is found for it is the same on all of them. */
bool ir_start_may_pass(ir_op_t op);
/* out_root[v], [values]: the value that v is a view of, through all views; v itself if it is
 * none. */
void ir_order_roots(const ir_graph_t *graph, ir_value_t *out_root);
/* Appends the edges above, and those of the data where asked for. Linear. `root` as above. */
st_status_t ir_order_edges(const ir_graph_t *graph, const ir_value_t *root, bool data,
                           ir_edges_t *edges) ST_WARN_UNUSED;
/* Neighbours after each node if `forward`, else before it, in the order of the edges. Free the two
 * lists, after a failure too. */
st_status_t ir_order_index(const ir_edges_t *edges, size_t n_nodes, bool forward,
                           ir_neighbours_t *out) ST_WARN_UNUSED;
void ir_neighbours_free(ir_neighbours_t *neighbours); /* zeroed is fine */

#endif
