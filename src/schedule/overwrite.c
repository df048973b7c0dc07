/* What may be written over what (overwrite.h). */
#include "schedule/overwrite.h"

#include "ir/order.h"

sched_overwrite_t sched_overwrite_open(const ir_graph_t *graph) {
    return (sched_overwrite_t){.graph = graph, .node = IR_NONE};
}

void sched_overwrite_close(sched_overwrite_t *overwrite) {
    nest_destroy(overwrite->nest);
    overwrite->nest = NULL;
    overwrite->node = IR_NONE;
}

st_status_t sched_overwrite_look(sched_overwrite_t *overwrite, ir_node_t n) {
    const ir_node_info_t *node = ir_node(overwrite->graph, n);
    const char *reason;
    if (overwrite->node == n) return ST_OK;
    nest_destroy(overwrite->nest);
    overwrite->nest = NULL;
    overwrite->node = n;
    if (node->op != IR_OP_FUSED) return ST_OK;
    return nest_build(ir_node_attr(node, "body")->graph, &overwrite->nest, &reason);
}

static bool same_elements(const ir_type_t *a, const ir_type_t *b) {
    return ir_type_elements(a) == ir_type_elements(b) &&
           ir_dtype_bytes(a->dtype) == ir_dtype_bytes(b->dtype);
}

bool sched_may_overwrite(const sched_overwrite_t *overwrite, uint32_t k, uint32_t j) {
    const ir_graph_t *graph = overwrite->graph;
    const ir_node_info_t *node = ir_node(graph, overwrite->node);
    const ir_op_def_t *def = ir_op_def(node->op);
    if (!same_elements(ir_value_type(graph, node->first_output + k),
                       ir_value_type(graph, node->inputs[j])))
        return false;
    if (overwrite->nest) return nest_may_reuse(overwrite->nest, k, j);
    return (def->flags & IR_ELEMENTWISE) || (k < sizeof def->reuse && def->reuse[k] == j + 1);
}

/* ---- states ---- */

/* Position of the last reader of each state through any view, updates of the state itself left out.
 */
static void state_readers(const ir_graph_t *graph, const ir_value_t *root, int64_t *last) {
    for (size_t v = 0; v < graph->values.n; v++) last[v] = -1;
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(graph, n);
        for (uint32_t j = node->op == IR_OP_UPDATE; j < node->n_inputs; j++)
            last[root[node->inputs[j]]] = n;
    }
    for (size_t o = 0; o < graph->outputs.n; o++)
        last[root[graph->outputs.data[o].value]] = (int64_t)graph->nodes.n;
}

/* Value `v` of the node looked at may be written over state `s`, which no later node reads. */
static bool can_take(const sched_overwrite_t *overwrite, ir_value_t s, ir_value_t v,
                     const ir_value_t *root) {
    const ir_value_info_t *value = &overwrite->graph->values.data[v];
    const ir_node_info_t *node = ir_node(overwrite->graph, value->producer);
    if (ir_op_def(node->op)->flags & (IR_SOURCE | IR_VIEW | IR_COLLECTIVE)) return false;
    for (uint32_t j = 0; j < node->n_inputs; j++)
        if (root[node->inputs[j]] == s && !sched_may_overwrite(overwrite, value->index, j))
            return false;
    return true;
}

st_status_t sched_find_taken(sched_overwrite_t *overwrite, ir_value_t *takes) {
    const ir_graph_t *graph = overwrite->graph;
    ir_value_t *root = st_calloc(graph->values.n, sizeof *root);
    int64_t *last_reader = st_calloc(graph->values.n, sizeof *last_reader);
    st_status_t status = ST_OK;
    if (!root || !last_reader)
        TRY_GOTO(st_no_memory(graph->values.n * sizeof *root, "the updates"), done);
    ir_order_roots(graph, root);
    for (ir_value_t v = 0; v < graph->values.n; v++) takes[v] = IR_NONE;
    state_readers(graph, root, last_reader);
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(graph, n);
        if (node->op != IR_OP_UPDATE) continue;
        ir_value_t s = node->inputs[0], v = node->inputs[1];
        ir_node_t maker = graph->values.data[v].producer;
        if (last_reader[s] > (int64_t)maker || takes[v] != IR_NONE) continue;
        TRY_GOTO(sched_overwrite_look(overwrite, maker), done);
        if (can_take(overwrite, s, v, root)) takes[v] = s;
    }
done:
    st_free(root);
    st_free(last_reader);
    return status;
}
