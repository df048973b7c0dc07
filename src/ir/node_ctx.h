/* Nodes as rules, costs and kernels are asked about them: an op context with the types of what a
 * node reads, and behind them those of what it makes. */
#ifndef STATOR_IR_NODE_CTX_H
#define STATOR_IR_NODE_CTX_H

#include "ir/op.h"

/* The context of a node, its types in types[n_inputs + n_outputs]: operands, then results. Valid
 * while they, the graph and its nodes stay. */
ir_op_ctx_t ir_node_ctx_in(const ir_graph_t *graph, ir_node_t node, ir_type_t *types);

enum { IR_NODE_CTX_FEW = 24 }; /* types that need no memory */
typedef struct ir_node_ctx {
    ir_op_ctx_t op;
    const ir_type_t *out; /* [op.n_outputs] */
    ir_type_t few[IR_NODE_CTX_FEW], *types;
} ir_node_ctx_t;

/* The same with memory of its own, in place: not to be copied. NO_MEMORY only. */
st_status_t ir_node_ctx_open(ir_node_ctx_t *ctx, const ir_graph_t *graph,
                             ir_node_t node) ST_WARN_UNUSED;
/* Of a node that is not there, over values of the graph. */
st_status_t ir_node_ctx_open_values(ir_node_ctx_t *ctx, const ir_graph_t *graph, ir_op_t op,
                                    const ir_attr_t *attrs, uint32_t n_in, const ir_value_t *in,
                                    uint32_t n_out, const ir_value_t *out) ST_WARN_UNUSED;
void ir_node_ctx_close(ir_node_ctx_t *ctx);

#endif
