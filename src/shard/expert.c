/* Routed experts (forms.h).
 *
 * Problem: which products are the experts', and so run where their weights live. In: a training
 * graph. Out: settled choices, and homes of the weights, split along the experts. Algorithm: a
 * product of as many matrices as there are experts, one of them a parameter, is one; so is a
 * backward product that reads what such a product multiplies and gives a tensor like its weights,
 * their gradient. Forward products are chained by what they multiply: O(nodes + values), and for
 * each backward product those of its operands' chains (two in a gated expert). Source: experts in
 * parallel as in Lepikhin et al., "GShard", 2020. */
#include "base/memory.h"
#include "ir/op.h"
#include "shard/forms.h"

/* Forward products with experts' weights. */
typedef struct products {
    ir_node_t *first; /* [values]: the last one that multiplies it; IR_NONE: there is none */
    ir_node_t *next;  /* [nodes]: another one of the same operand */
} products_t;

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

void shard_expert_weights(const ir_graph_t *graph, bool *out_weights) {
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        const ir_node_t weights = weights_of(graph, ir_node(graph, n));
        if (weights != IR_NONE) out_weights[weights] = true;
    }
}

static void chain_products(const ir_graph_t *graph, products_t *p) {
    for (ir_value_t v = 0; v < graph->values.n; v++) p->first[v] = IR_NONE;
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(graph, n);
        if (node->phase != IR_PHASE_FORWARD || weights_of(graph, node) == IR_NONE) continue;
        p->next[n] = p->first[node->inputs[0]];
        p->first[node->inputs[0]] = n;
    }
}

/* The gradient of experts' weights: a product that is like them, of what they were multiplied
 * with. */
static bool gives_gradient(const ir_graph_t *graph, const products_t *p,
                           const ir_node_info_t *node) {
    if (node->phase != IR_PHASE_BACKWARD || !is_product(graph, node)) return false;
    const ir_type_t *gradient = ir_value_type(graph, node->first_output);
    for (uint32_t j = 0; j < 2; j++)
        for (ir_node_t n = p->first[node->inputs[j]]; n != IR_NONE; n = p->next[n])
            if (ir_dims_equal(gradient, ir_value_type(graph, ir_node(graph, n)->inputs[1])))
                return true;
    return false;
}

static st_status_t settle_products(const ir_graph_t *graph, const products_t *products,
                                   shard_settled_t *settled) {
    const ir_placement_t experts = IR_PLACE_SPLIT(0, IR_GRANULES_EACH);
    bool any = false;
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(graph, n);
        const ir_node_t weights = weights_of(graph, node);
        ir_placement_t *in, *out;
        if (weights == IR_NONE && !gives_gradient(graph, products, node)) continue;
        if (weights != IR_NONE) settled->homes[weights] = experts;
        TRY(shard_settle_choice(settled, graph, n, &in, &out));
        in[0] = in[1] = out[0] = experts;
        any = true;
    }
    if (any) return ST_OK;
    return FAIL(ST_UNSUPPORTED,
                "the mesh has an axis '%s', but the graph has no experts whose weights are "
                "whole along the axes before it (zero3 splits them itself)",
                settled->axis);
}

st_status_t shard_form_expert(const ir_graph_t *graph, shard_settled_t *settled) {
    products_t products = {st_calloc(graph->values.n, sizeof *products.first),
                           st_calloc(graph->nodes.n, sizeof *products.next)};
    st_status_t status = ST_OK;
    if (!products.first || !products.next)
        TRY_GOTO(st_no_memory(graph->values.n * sizeof *products.first, "the experts"), done);
    chain_products(graph, &products);
    TRY_GOTO(settle_products(graph, &products, settled), done);
    TRY_GOTO(shard_place_followers(graph, settled), done);
done:
    st_free(products.first);
    st_free(products.next);
    return status;
}
