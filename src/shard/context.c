/* Sequences in parts (forms.h): each rank has the queries of its rows, and gets all keys and
 * values.
 *
 * Problem: which placements split the rows of every attention, and with them all that is made row
 * by row. In: a training graph whose attention tells by masks alone which keys a query sees (made
 * here out of causal and window, one mask for each sort of attention). Out: settled choices.
 *
 *   q rows ──┐                          forward: rows of q, all of k and v, rows of the result
 *   k, v ──── attention ── rows         backward: rows of dq; dk and dv are sums, of which a rank
 *   mask ─ rows ┘                                keeps its rows
 *
 * Algorithm: attention, its gradient and the elementwise nodes of their masks are settled, inputs
 * of as many rows live in parts; all between follows from the search's rules. Linear in nodes, and
 * in sorts of attention for each of them (16 at most). Source: keys and values gathered rather than
 * sent around (ring attention), which leaves masks free: Dubey et al., "The Llama 3 herd of
 * models", 2024, 3.3.2. */
#include "ir/build.h"
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

/* ---- masks in place of counted rows ---- */

/* A mask is made once for each sort of attention. */
typedef struct sort {
    int64_t rows, keys, causal, window;
    ir_value_t mask;
} sort_t;

enum { MAX_SORTS = 16 };
typedef struct masking {
    sort_t sorts[MAX_SORTS];
    uint32_t n;
} masking_t;

/* bool[rows, keys]: s <= m where causal, |m - s| < window where there is one. */
static ir_value_t make_mask(ir_build_t *b, const sort_t *s) {
    const int64_t all[] = {s->rows, s->keys};
    ir_value_t m = ir_b_iota(b, ir_type_make(IR_I64, 2, (int64_t[]){s->rows, 1}), 0, 0, 1);
    ir_value_t k = ir_b_iota(b, ir_type_make(IR_I64, 2, (int64_t[]){1, s->keys}), 1, 0, 1);
    ir_value_t mask = IR_NONE;
    if (s->causal) mask = ir_b_binary(b, IR_OP_LE, k, m);
    if (s->window) {
        ir_value_t apart = ir_b_unary(b, IR_OP_ABS, ir_b_binary(b, IR_OP_SUB, m, k));
        ir_value_t near =
            ir_b_binary(b, IR_OP_LT, apart, ir_b_scalar(b, IR_I64, (double)s->window));
        mask = mask == IR_NONE ? near : ir_b_binary(b, IR_OP_LOGICAL_AND, mask, near);
    }
    return ir_b_broadcast(b, mask, 2, all);
}

static st_status_t find_mask(masking_t *masking, ir_build_t *b, sort_t wanted, ir_value_t *out) {
    for (uint32_t i = 0; i < masking->n; i++) {
        const sort_t *s = &masking->sorts[i];
        *out = s->mask;
        if (s->rows == wanted.rows && s->keys == wanted.keys && s->causal == wanted.causal &&
            s->window == wanted.window)
            return ST_OK;
    }
    wanted.mask = *out = make_mask(b, &wanted);
    if (masking->n < MAX_SORTS) masking->sorts[masking->n++] = wanted;
    return b->status;
}

static st_status_t mask_node(void *context, ir_graph_t *to, const ir_graph_t *from, ir_node_t n,
                             ir_value_t *map) {
    const ir_node_info_t *node = ir_node(from, n);
    if (!is_attention(node) || (!ir_attr_int(node, "causal") && !ir_attr_int(node, "window")))
        return ir_graph_clone_node(to, from, n, NULL, map);
    const uint32_t q = node->op == IR_OP_ATTENTION ? 0 : 1, at = mask_at(node);
    if (node->n_inputs > at)
        return FAIL(ST_UNSUPPORTED,
                    "%s has a mask beside its order of rows: its rows cannot be split",
                    ir_node_label(from, n));
    ir_build_t b = {.graph = to};
    ir_value_t inputs[7], first;
    const sort_t sort = {.rows = ir_value_type(from, node->inputs[q])->dims[row_dim(node)],
                         .keys = ir_value_type(from, node->inputs[q + 1])->dims[row_dim(node)],
                         .causal = ir_attr_int(node, "causal"),
                         .window = ir_attr_int(node, "window")};
    for (uint32_t j = 0; j < node->n_inputs; j++) inputs[j] = map[node->inputs[j]];
    TRY(find_mask(context, &b, sort, &inputs[at]));
    const ir_arg_t args[] = {{"scale", *ir_node_attr(node, "scale")},
                             {"rows_first", *ir_node_attr(node, "rows_first")}};
    TRY(ir_graph_add(to, node->op, node->name, node->n_inputs + 1, inputs, 2, args, &first));
    for (uint32_t k = 0; k < node->n_outputs; k++) map[node->first_output + k] = first + k;
    return ST_OK;
}

st_status_t shard_mask_attention(const ir_graph_t *graph, ir_graph_t **out_graph) {
    masking_t masking = {0};
    return ir_graph_rewrite(graph, NULL, mask_node, &masking, out_graph);
}

/* ---- the form ---- */

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
static st_status_t split_attention(const ir_graph_t *graph, ir_node_t n, shard_settled_t *settled) {
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

st_status_t shard_form_context(const ir_graph_t *graph, shard_settled_t *settled) {
    int64_t rows = 0;
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(graph, n);
        if (!is_attention(node)) continue;
        if (node->op == IR_OP_ATTENTION)
            rows = ir_value_type(graph, node->inputs[0])->dims[row_dim(node)];
        TRY(split_attention(graph, n, settled));
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
