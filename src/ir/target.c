/* What a node of a graph costs (target.h). */
#include "ir/target.h"

#include "base/memory.h"

enum { FEW = 24 };

st_status_t ir_target_cost(const ir_target_t *target, const ir_graph_t *graph, ir_node_t n,
                           ir_cost_t *out) {
    const ir_node_info_t *node = ir_node(graph, n);
    ir_type_t few[FEW], *types = few;
    uint32_t n_types = node->n_inputs + node->n_outputs;
    if (n_types > FEW) types = st_calloc(n_types, sizeof *types);
    if (!types) return st_no_memory(n_types * sizeof *types, "the cost of a node");
    for (uint32_t j = 0; j < node->n_inputs; j++) types[j] = *ir_value_type(graph, node->inputs[j]);
    for (uint32_t k = 0; k < node->n_outputs; k++)
        types[node->n_inputs + k] = *ir_value_type(graph, node->first_output + k);
    ir_op_ctx_t ctx = {node->op, node->n_inputs, node->n_outputs, types, node->attrs, node->name};
    target->cost(target->context, &ctx, types + node->n_inputs, out);
    if (types != few) st_free(types);
    return ST_OK;
}
