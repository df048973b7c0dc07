/* Dead code of a rank's program.
 *
 * Problem: recomputation gives readers of the backward pass a copy of a node; where they were all
 * its readers, the node itself is left unread, and later passes would plan and run it.
 * In:  a program. Out: the same without unread nodes.
 * One sweep backwards marks what is read, one forwards copies it. Linear. */
#include "fusion/unread.h"

#include "base/memory.h"
#include "ir/op.h"

static st_status_t clone_read(void *context, ir_graph_t *to, const ir_graph_t *from, ir_node_t n,
                              ir_value_t *map) {
    const bool *read = context;
    return read[n] ? ir_graph_clone_node(to, from, n, NULL, map) : ST_OK;
}

st_status_t fuse_drop_unread(const ir_graph_t *graph, ir_graph_t **out_graph) {
    const uint32_t kept = IR_SIDE_EFFECT | IR_COLLECTIVE | IR_STATE | IR_SOURCE;
    *out_graph = NULL;
    bool *read = st_calloc(graph->nodes.n, sizeof *read);
    if (!read) return st_no_memory(graph->nodes.n * sizeof *read, "a graph copy");
    for (size_t o = 0; o < graph->outputs.n; o++)
        read[graph->values.data[graph->outputs.data[o].value].producer] = true;
    for (ir_node_t n = (ir_node_t)graph->nodes.n; n-- > 0;) {
        const ir_node_info_t *node = ir_node(graph, n);
        if ((ir_op_def(node->op)->flags & kept) || node->n_outputs == 0) read[n] = true;
        for (uint32_t j = 0; read[n] && j < node->n_inputs; j++)
            read[graph->values.data[node->inputs[j]].producer] = true;
    }
    st_status_t status = ir_graph_rewrite(graph, NULL, clone_read, read, out_graph);
    st_free(read);
    return status;
}
