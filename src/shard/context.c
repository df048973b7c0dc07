/* Sequences in parts (forms.h): each rank has the queries of its rows, and gets all keys and
 * values, or those of one part after the other (ring.c).
 *
 * Problem: which placements split the rows of every attention, and with them all that is made row
 * by row. In: a training graph. Out: settled choices.
 *
 *   q rows ──┐                          forward: rows of q, all of k and v, rows of the result
 *   k, v ──── attention ── rows         backward: rows of dq; dk and dv are sums, of which a rank
 *   mask ─ rows ┘                                keeps its rows
 *
 * Which keys a query sees, causal and window still say: the part's place among the keys becomes
 * the attribute `offset` of the rank's attention, whose kernels leave out the keys that none of
 * its queries sees.
 *
 * Algorithm: attention, its gradient and the elementwise nodes of masks that are operands are
 * settled, inputs of as many rows live in parts; all between follows from the search's rules.
 * Linear in nodes.
 * Source: keys and values gathered: Dubey et al., "The Llama 3 herd of models", 2024, 3.3.2. */
#include "ir/op.h"
#include "shard/forms.h"

static bool is_attention(const ir_node_info_t *node) {
    return node->op == IR_OP_ATTENTION || node->op == IR_OP_ATTENTION_GRAD;
}
/* Input of the mask. */
static uint32_t mask_at(const ir_node_info_t *node) {
    return node->op == IR_OP_ATTENTION ? 3 : 6;
}
static int32_t row_dim(const ir_node_info_t *node) {
    return ir_attr_int(node, "rows_first") ? 1 : 2;
}

/* The nodes that make the mask make its rows. */
static st_status_t split_mask(const ir_graph_t *graph, ir_value_t v, int64_t rows,
                              shard_settled_t *settled) {
    const ir_node_t n = graph->values.data[v].producer;
    const ir_node_info_t *node = ir_node(graph, n);
    ir_placement_t *in, *out;
    if (!(ir_op_def(node->op)->flags & IR_ELEMENTWISE)) return ST_OK;
    for (size_t i = 0; i < settled->choices.n; i++)
        if (settled->choices.data[i].node == n) return ST_OK;
    TRY(shard_settle_choice(settled, graph, n, &in, &out));
    out[0] = IR_PLACE_SPLIT(0, IR_GRANULES_EACH);
    for (uint32_t j = 0; j < node->n_inputs; j++) {
        const ir_type_t *type = ir_value_type(graph, node->inputs[j]);
        if (type->rank != 2 || type->dims[0] != rows) continue;
        in[j] = out[0];
        TRY(split_mask(graph, node->inputs[j], rows, settled));
    }
    return ST_OK;
}

/* Queries and what is like them in parts of rows, keys and values whole; their gradients are sums,
 * of which a rank keeps its rows. */
static st_status_t gather_keys(const ir_graph_t *graph, ir_node_t n, shard_settled_t *settled) {
    const ir_node_info_t *node = ir_node(graph, n);
    const ir_placement_t part = IR_PLACE_SPLIT(row_dim(node), IR_GRANULES_EACH);
    const bool forward = node->op == IR_OP_ATTENTION;
    const uint32_t mask = mask_at(node);
    ir_placement_t *in, *out;
    TRY(shard_settle_choice(settled, graph, n, &in, &out));
    in[0] = out[0] = part;
    if (forward) {
        out[1] = IR_PLACE_SPLIT(2, IR_GRANULES_EACH);
    } else {
        in[1] = in[4] = part;
        in[5] = IR_PLACE_SPLIT(2, IR_GRANULES_EACH);
        out[1] = out[2] = IR_PLACE_PARTIAL;
        for (ir_value_t d = node->first_output + 1; d < node->first_output + 3; d++)
            TRY(shard_settle_pin(settled, d, part, SHARD_ALL_PHASES, false));
    }
    if (node->n_inputs <= mask) return ST_OK;
    const ir_type_t *type = ir_value_type(graph, node->inputs[mask]);
    const int32_t own = type->rank - 2;
    if (own >= 0 && type->dims[own] != 1) in[mask] = IR_PLACE_SPLIT(own, IR_GRANULES_EACH);
    return own == 0 ? split_mask(graph, node->inputs[mask], type->dims[0], settled) : ST_OK;
}

/* All of it in parts of rows: keys go round. */
static st_status_t pass_keys(const ir_graph_t *graph, ir_node_t n, shard_settled_t *settled) {
    const ir_node_info_t *node = ir_node(graph, n);
    const ir_placement_t part = IR_PLACE_SPLIT(row_dim(node), IR_GRANULES_EACH);
    ir_placement_t *in, *out;
    if (node->n_inputs > mask_at(node))
        return FAIL(ST_UNSUPPORTED,
                    "%s has a mask, which holds of whole keys: they have to be gathered "
                    "(--context-attention gather)",
                    ir_node_label(graph, n));
    TRY(shard_settle_choice(settled, graph, n, &in, &out));
    settled->choices.data[settled->choices.n - 1].ring = true;
    for (uint32_t j = 0; j < node->n_inputs; j++) in[j] = part;
    for (uint32_t k = 0; k < node->n_outputs; k++) out[k] = part;
    if (node->op == IR_OP_ATTENTION)
        out[1] = IR_PLACE_SPLIT(2, IR_GRANULES_EACH);
    else
        in[5] = IR_PLACE_SPLIT(2, IR_GRANULES_EACH);
    return ST_OK;
}

st_status_t shard_form_context(const ir_graph_t *graph, shard_context_t how,
                               shard_settled_t *settled) {
    int64_t rows = 0;
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(graph, n);
        if (!is_attention(node)) continue;
        if (node->op == IR_OP_ATTENTION)
            rows = ir_value_type(graph, node->inputs[0])->dims[row_dim(node)];
        TRY(how == SHARD_CONTEXT_RING ? pass_keys(graph, n, settled)
                                      : gather_keys(graph, n, settled));
    }
    if (rows < 2)
        return FAIL(ST_UNSUPPORTED,
                    "the mesh has an axis '%s', but the graph has no attention over several rows",
                    settled->axis);
    settled->places_inputs = true;
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(graph, n);
        if (node->op != IR_OP_INPUT) continue;
        const ir_type_t *type = ir_value_type(graph, node->first_output);
        if (type->rank > 1 && type->dims[1] == rows)
            settled->homes[n] = IR_PLACE_SPLIT(1, IR_GRANULES_EACH);
    }
    return ST_OK;
}
