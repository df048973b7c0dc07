/* Routed experts (forms.h). */
#include "ir/op.h"
#include "shard/forms.h"

/* A product of as many matrices as there are experts. */
static bool is_product(const ir_graph_t *graph, const ir_node_info_t *node) {
    if (node->op != IR_OP_MATMUL || node->n_inputs != 2) return false;
    const ir_type_t *x = ir_value_type(graph, node->inputs[0]);
    const ir_type_t *w = ir_value_type(graph, node->inputs[1]);
    return x->rank == 3 && w->rank == 3 && x->dims[0] == w->dims[0] && x->dims[0] > 1;
}

/* The experts' weights that the node multiplies its operand with; IR_NONE: it does not. */
static ir_node_t weights_of(const ir_graph_t *graph, const ir_node_info_t *node) {
    return is_product(graph, node) ? shard_parameter_of(graph, node->inputs[1]) : IR_NONE;
}

/* The gradient of experts' weights: a product that is like them, of what they were multiplied with. */
static bool gives_gradient(const ir_graph_t *graph, const ir_node_info_t *node) {
    if (!is_product(graph, node) || node->phase != IR_PHASE_BACKWARD) return false;
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        const ir_node_info_t *product = ir_node(graph, n);
        if (product->phase != IR_PHASE_FORWARD || weights_of(graph, product) == IR_NONE) continue;
        for (uint32_t j = 0; j < 2; j++)
            if (node->inputs[j] == product->inputs[0] &&
                ir_dims_equal(ir_value_type(graph, node->first_output),
                              ir_value_type(graph, product->inputs[1])))
                return true;
    }
    return false;
}

st_status_t shard_form_expert(const ir_graph_t *graph, shard_settled_t *settled) {
    const ir_placement_t experts = IR_PLACE_SPLIT(0, IR_GRANULES_EACH);
    bool any = false;
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(graph, n);
        const ir_node_t weights = weights_of(graph, node);
        ir_placement_t *in, *out;
        if (weights == IR_NONE && !gives_gradient(graph, node)) continue;
        if (weights != IR_NONE) settled->homes[weights] = experts;
        TRY(shard_settle_choice(settled, graph, n, &in, &out));
        in[0] = in[1] = out[0] = experts;
        any = true;
    }
    if (!any)
        return FAIL(ST_UNSUPPORTED,
                    "the mesh has an axis '%s', but the graph has no experts whose weights are "
                    "whole along the axes before it (zero3 splits them itself)",
                    settled->axis);
    return shard_place_followers(graph, settled);
}
