/* See plan_stage.h. Linear in the operands. */
#include "compile/plan_stage.h"

#include <string.h>

#include "base/memory.h"

bool plan_has_stages(const plan_t *plan) {
    return strcmp(plan->device, "cuda") == 0;
}

/* The whole tensor of operand j, and the dim along which it is cut. */
static const ir_type_t *whole_of(const ir_graph_t *graph, const ir_node_info_t *node, uint32_t j,
                                 int64_t *out_axis) {
    if (node->op == IR_OP_ALL_TO_ALL_START) {
        *out_axis = ir_attr_int(node, j == 0 ? "to" : "axis");
        return ir_value_type(graph, j == 0 ? node->inputs[0] : node->first_output);
    }
    *out_axis = ir_node_attr(node, "axis")->ints.v[j];
    return ir_value_type(
        graph, node->op == IR_OP_REDUCE_SCATTER_START ? node->inputs[j] : node->first_output + j);
}

static uint32_t n_operands(const ir_node_info_t *node) {
    if (node->op == IR_OP_ALL_TO_ALL_START) return 2;
    const bool cuts = node->op == IR_OP_ALL_GATHER_START || node->op == IR_OP_REDUCE_SCATTER_START;
    return cuts ? node->n_inputs : 0;
}

static uint64_t operand_bytes(const ir_graph_t *graph, const ir_node_info_t *node, uint32_t j) {
    int64_t axis, outer = 1;
    const ir_type_t *whole = whole_of(graph, node, j, &axis);
    for (int64_t i = 0; i < axis; i++) outer *= whole->dims[i];
    return outer == 1 ? 0 : ir_type_bytes(whole);
}

uint64_t plan_stage_offset(const ir_graph_t *graph, ir_node_t n, uint32_t j, uint64_t *out_bytes) {
    const ir_node_info_t *node = ir_node(graph, n);
    uint64_t offset = 0;
    for (uint32_t i = 0; i < j; i++)
        offset = st_size_add(offset, st_size_align(operand_bytes(graph, node, i), PLAN_ALIGNMENT));
    *out_bytes = j < n_operands(node) ? operand_bytes(graph, node, j) : 0;
    return offset;
}

uint64_t plan_stage_bytes(const ir_graph_t *graph, ir_node_t n) {
    uint64_t unused;
    return plan_stage_offset(graph, n, n_operands(ir_node(graph, n)), &unused);
}

void plan_workspace_ends(const ir_graph_t *graph, ir_node_t *ends) {
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(graph, n);
        ends[n] = n;
        if (ir_op_def(node->op)->waits_for != IR_OP_NONE)
            ends[graph->values.data[node->inputs[0]].producer] = n;
    }
}
