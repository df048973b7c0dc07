/* Nodes as rules, costs and kernels are asked about them (node_ctx.h). */
#include "ir/node_ctx.h"

#include "base/memory.h"

ir_op_ctx_t ir_node_ctx_in(const ir_graph_t *graph, ir_node_t n, ir_type_t *types) {
    const ir_node_info_t *node = ir_node(graph, n);
    for (uint32_t j = 0; j < node->n_inputs; j++) types[j] = *ir_value_type(graph, node->inputs[j]);
    for (uint32_t k = 0; k < node->n_outputs; k++)
        types[node->n_inputs + k] = *ir_value_type(graph, node->first_output + k);
    return (ir_op_ctx_t){node->op, node->n_inputs, node->n_outputs, types, node->attrs, node->name};
}

static st_status_t make_room(ir_node_ctx_t *ctx, uint32_t n_types) {
    ctx->types = n_types > IR_NODE_CTX_FEW ? st_calloc(n_types, sizeof *ctx->types) : ctx->few;
    return ctx->types ? ST_OK : st_no_memory(n_types * sizeof *ctx->types, "a node's types");
}

st_status_t ir_node_ctx_open(ir_node_ctx_t *ctx, const ir_graph_t *graph, ir_node_t n) {
    const ir_node_info_t *node = ir_node(graph, n);
    TRY(make_room(ctx, node->n_inputs + node->n_outputs));
    ctx->op = ir_node_ctx_in(graph, n, ctx->types);
    ctx->out = ctx->types + node->n_inputs;
    return ST_OK;
}

st_status_t ir_node_ctx_open_values(ir_node_ctx_t *ctx, const ir_graph_t *graph, ir_op_t op,
                                    const ir_attr_t *attrs, uint32_t n_in, const ir_value_t *in,
                                    uint32_t n_out, const ir_value_t *out) {
    TRY(make_room(ctx, n_in + n_out));
    for (uint32_t j = 0; j < n_in; j++) ctx->types[j] = *ir_value_type(graph, in[j]);
    for (uint32_t k = 0; k < n_out; k++) ctx->types[n_in + k] = *ir_value_type(graph, out[k]);
    ctx->op = (ir_op_ctx_t){op, n_in, n_out, ctx->types, attrs, ""};
    ctx->out = ctx->types + n_in;
    return ST_OK;
}

void ir_node_ctx_close(ir_node_ctx_t *ctx) {
    if (ctx->types != ctx->few) st_free(ctx->types);
    ctx->types = NULL;
}
