/* What every order of a graph's nodes keeps (order.h). */
#include "ir/order.h"

#include "base/memory.h"

void ir_order_roots(const ir_graph_t *graph, ir_value_t *out_root) {
    for (ir_value_t v = 0; v < graph->values.n; v++) {
        const ir_node_info_t *node = ir_value_producer(graph, v);
        out_root[v] = ir_op_def(node->op)->flags & IR_VIEW ? out_root[node->inputs[0]] : v;
    }
}

static st_status_t add(ir_edges_t *edges, ir_node_t from, ir_node_t to) {
    return ST_VEC_PUSH(edges, ((ir_edge_t){from, to}));
}

bool ir_start_may_pass(ir_op_t op) {
    return op == IR_OP_ALL_REDUCE_START || op == IR_OP_ALL_GATHER_START ||
           op == IR_OP_REDUCE_SCATTER_START;
}

static st_status_t flow_edges(const ir_graph_t *graph, bool data, ir_edges_t *edges) {
    ir_node_t last_start = IR_NONE, last_effect = IR_NONE, last_pair = IR_NONE;
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(graph, n);
        uint32_t flags = ir_op_def(node->op)->flags;
        for (uint32_t j = 0; data && j < node->n_inputs; j++)
            TRY(add(edges, graph->values.data[node->inputs[j]].producer, n));
        if ((flags & IR_START) && !ir_start_may_pass(node->op)) {
            if (last_start != IR_NONE) TRY(add(edges, last_start, n));
            last_start = n;
        }
        if (ir_op_is_pair(node->op)) {
            if (last_pair != IR_NONE) TRY(add(edges, last_pair, n));
            last_pair = n;
        }
        if ((flags & IR_SIDE_EFFECT) && node->op != IR_OP_UPDATE) {
            if (last_effect != IR_NONE) TRY(add(edges, last_effect, n));
            last_effect = n;
        }
    }
    return ST_OK;
}

/* `reader` comes before what writes over a state that it reads: the update, and the node that makes
 * the new value, which may do so in the state's place. */
static st_status_t read_edges(const ir_graph_t *graph, const ir_value_t *root,
                              const ir_node_t *update, ir_node_t reader, ir_value_t v,
                              ir_edges_t *edges) {
    const ir_node_t u = update[root[v]];
    if (u == IR_NONE || u == reader) return ST_OK;
    TRY(add(edges, reader, u));
    const ir_node_t maker = graph->values.data[ir_node(graph, u)->inputs[1]].producer;
    return reader < maker ? add(edges, reader, maker) : ST_OK;
}

/* What a collective that is being waited for reads until then; NULL: nothing. */
static const ir_node_info_t *in_flight(const ir_graph_t *graph, const ir_node_info_t *node) {
    const uint32_t flags = ir_op_def(node->op)->flags;
    if (!(flags & IR_COLLECTIVE) || (flags & IR_START) || !node->n_inputs) return NULL;
    const ir_node_info_t *start = ir_value_producer(graph, node->inputs[0]);
    return ir_start_reads_input(ir_op_def(start->op)) ? start : NULL;
}

static st_status_t state_edges(const ir_graph_t *graph, const ir_value_t *root, ir_edges_t *edges) {
    ir_node_t *update = st_calloc(graph->values.n, sizeof *update); /* of a state */
    if (!update) return st_no_memory(graph->values.n * sizeof *update, "the states' updates");
    st_status_t status = ST_OK;
    for (size_t v = 0; v < graph->values.n; v++) update[v] = IR_NONE;
    for (ir_node_t n = 0; n < graph->nodes.n; n++)
        if (ir_node(graph, n)->op == IR_OP_UPDATE) update[ir_node(graph, n)->inputs[0]] = n;
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(graph, n), *start = in_flight(graph, node);
        for (uint32_t j = node->op == IR_OP_UPDATE; j < node->n_inputs; j++)
            TRY_GOTO(read_edges(graph, root, update, n, node->inputs[j], edges), done);
        for (uint32_t j = 0; start && j < start->n_inputs; j++)
            TRY_GOTO(read_edges(graph, root, update, n, start->inputs[j], edges), done);
    }
done:
    st_free(update);
    return status;
}

st_status_t ir_order_edges(const ir_graph_t *graph, const ir_value_t *root, bool data,
                           ir_edges_t *edges) {
    TRY(flow_edges(graph, data, edges));
    return state_edges(graph, root, edges);
}

/* Counts are shifted by two, so that after the prefix sum first[i + 1] is where i's list is
 * filled. */
st_status_t ir_order_index(const ir_edges_t *edges, size_t n_nodes, bool forward,
                           ir_neighbours_t *out) {
    out->first = st_calloc(n_nodes + 2, sizeof *out->first);
    out->to = st_calloc(edges->n, sizeof *out->to);
    if (!out->first || !out->to)
        return st_no_memory((n_nodes + edges->n) * sizeof *out->to, "the order of the nodes");
    for (size_t e = 0; e < edges->n; e++)
        out->first[(forward ? edges->data[e].from : edges->data[e].to) + 2]++;
    for (size_t i = 0; i < n_nodes; i++) out->first[i + 2] += out->first[i + 1];
    for (size_t e = 0; e < edges->n; e++) {
        ir_edge_t edge = edges->data[e];
        out->to[out->first[(forward ? edge.from : edge.to) + 1]++] = forward ? edge.to : edge.from;
    }
    return ST_OK;
}

void ir_neighbours_free(ir_neighbours_t *neighbours) {
    st_free(neighbours->first);
    st_free(neighbours->to);
    *neighbours = (ir_neighbours_t){0};
}
