/* Evaluation mode.
 *
 * Problem: one graph serves training and evaluation; norms, dropout and the like act otherwise in
 * the latter, and nothing may change the state.
 * In:  the global program, composites whole, with or without updates.
 * Out: the same values in evaluation mode over the same state. Nothing writes a state; its inputs,
 *      outputs and names are as before. What only updates read is dead, which simplify removes.
 * Algorithm: one copy. An op says by an attribute `train` that it has two modes (dropout, batch
 * norm): it is cleared, whichever op it is; updates are left out. Bodies of control flow go the
 * same way. Complexity: linear.
 * Source: the two modes are PyTorch's nn.Module.train() and eval(). */
#include <string.h>

#include "compile/convert.h"
#include "ir/op.h"

enum { MOST_ATTRIBUTES = 32 };

static st_status_t body_evaluating(void *context, const ir_graph_t *body, ir_graph_t **out_body) {
    (void)context;
    return compile_to_evaluation(body, out_body);
}

static st_status_t clone_evaluating(void *context, ir_graph_t *to, const ir_graph_t *from,
                                    ir_node_t n, ir_value_t *map) {
    (void)context;
    const ir_node_info_t *node = ir_node(from, n);
    const ir_op_def_t *def = ir_op_def(node->op);
    ir_attr_t attrs[MOST_ATTRIBUTES];
    uint32_t n_attrs = ir_op_n_attrs(def);
    if (node->op == IR_OP_UPDATE) return ST_OK;
    ASSERT(n_attrs <= MOST_ATTRIBUTES);
    for (uint32_t i = 0; i < n_attrs; i++) {
        attrs[i] = node->attrs[i];
        if (strcmp(def->attrs[i].key, "train") == 0) attrs[i].i = 0;
    }
    return ir_graph_clone_node_bodies(to, from, n, attrs, body_evaluating, NULL, map);
}

st_status_t compile_to_evaluation(const ir_graph_t *graph, ir_graph_t **out_graph) {
    return ir_graph_rewrite(graph, NULL, clone_evaluating, NULL, out_graph);
}
