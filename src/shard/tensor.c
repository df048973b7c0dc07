/* Tensor parallel (forms.h).
 *
 *   x ─┬─ q_proj ─ reshape ─ rope ─┐
 *      ├─ k_proj ─ reshape ─ rope ─┤ attention ─ reshape ─ o_proj ─ Σ over ranks
 *      └─ v_proj ─ reshape ────────┘
 *        columns                                rows
 *
 * From each product with a weight the split of its operand's inner dim is followed backward through
 * nodes that carry it: each says which dim of its operands is split then, and into how many
 * granules at most (heads of keys, for attention). The way ends at products with weights, which
 * make the split as columns, and at parameters, as biases, which live split. Anything else on the
 * way, and the product runs whole. Linear in the nodes that are followed, each at most once a
 * product. */
#include <string.h>

#include "base/memory.h"
#include "ir/rules_nn.h"
#include "shard/forms.h"
#include "shard/vocabulary.h"

/* A value and the dim that is to be split. */
typedef struct carried {
    ir_value_t value;
    int32_t dim;
} carried_t;

typedef struct way {
    const ir_graph_t *graph;
    bool *seen;                /* [values] */
    ST_VEC(carried_t) open;    /* to be followed */
    ST_VEC(carried_t) visited; /* to be forgotten */
    ST_VEC(ir_node_t) columns;
    ST_VEC(carried_t) states; /* parameters on the way */
    int64_t granules;
} way_t;

static int64_t common(int64_t a, int64_t b) {
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

ir_node_t shard_parameter_of(const ir_graph_t *graph, ir_value_t v) {
    const ir_node_info_t *node = ir_value_producer(graph, v);
    if (node->op == IR_OP_CAST) node = ir_value_producer(graph, node->inputs[0]);
    if (ir_is_shadow(node)) return ir_master_of(graph, node);
    return node->op == IR_OP_PARAMETER ? (ir_node_t)(node - graph->nodes.data) : IR_NONE;
}

/* A product of activations with a matrix of weights. */
static bool is_linear(const ir_graph_t *graph, ir_node_t n) {
    const ir_node_info_t *node = ir_node(graph, n);
    return node->op == IR_OP_MATMUL && node->phase == IR_PHASE_FORWARD &&
           !ir_attr_int(node, "transpose_a") && ir_value_type(graph, node->inputs[1])->rank == 2 &&
           shard_parameter_of(graph, node->inputs[1]) != IR_NONE &&
           shard_parameter_of(graph, node->inputs[0]) == IR_NONE;
}

static int32_t outer_dim(const ir_node_info_t *node) {
    return ir_attr_int(node, "transpose_b") ? 0 : 1;
}

/* ---- backward ---- */

static st_status_t follow(way_t *w, ir_value_t v, int32_t dim) {
    int64_t size = ir_value_type(w->graph, v)->dims[dim];
    w->granules = common(w->granules, size);
    if (w->seen[v]) return ST_OK;
    w->seen[v] = true;
    TRY(ST_VEC_PUSH(&w->visited, ((carried_t){v, dim})));
    return ST_VEC_PUSH(&w->open, ((carried_t){v, dim}));
}

/* Operands of an elementwise node that have the dim in full. */
static st_status_t follow_elementwise(way_t *w, const ir_node_info_t *node, int32_t dim) {
    const ir_type_t *out = ir_value_type(w->graph, node->first_output);
    for (uint32_t j = 0; j < node->n_inputs; j++) {
        const ir_type_t *in = ir_value_type(w->graph, node->inputs[j]);
        int32_t own = dim - (out->rank - in->rank);
        if (own >= 0 && in->dims[own] == out->dims[dim] && in->dims[own] > 1)
            TRY(follow(w, node->inputs[j], own));
    }
    return ST_OK;
}

/* The dim of a reshape's operand that begins with the same block of elements. */
static int32_t reshaped_dim(const ir_type_t *in, const ir_type_t *out, int32_t dim) {
    int64_t before = 1, own = 1;
    for (int32_t d = 0; d < dim; d++) before *= out->dims[d];
    for (int32_t d = 0; d < in->rank; d++) {
        if (own == before && in->dims[d] > 1) return d;
        own *= in->dims[d];
    }
    return -1;
}

/* One node; *out_carries: whether it carries the split. */
static st_status_t pass(way_t *w, carried_t at, bool *out_carries) {
    const ir_graph_t *graph = w->graph;
    const ir_node_t n = graph->values.data[at.value].producer;
    const ir_node_info_t *node = ir_node(graph, n);
    const ir_type_t *out = ir_value_type(graph, at.value);
    *out_carries = true;
    if (is_linear(graph, n) && at.dim == out->rank - 1) return ST_VEC_PUSH(&w->columns, n);
    if (node->op == IR_OP_PARAMETER || ir_master_of(graph, node) != IR_NONE)
        return ST_VEC_PUSH(&w->states, at);
    if (ir_op_def(node->op)->flags & IR_ELEMENTWISE) return follow_elementwise(w, node, at.dim);
    if (node->op == IR_OP_RESHAPE) {
        int32_t dim = reshaped_dim(ir_value_type(graph, node->inputs[0]), out, at.dim);
        *out_carries = dim >= 0;
        return dim >= 0 ? follow(w, node->inputs[0], dim) : ST_OK;
    }
    if (node->op == IR_OP_TRANSPOSE) {
        int64_t dim = ir_node_attr(node, "perm")->ints.v[at.dim];
        return follow(w, node->inputs[0], (int32_t)(dim < 0 ? dim + out->rank : dim));
    }
    if (node->op == IR_OP_ROPE || node->op == IR_OP_ATTENTION) {
        const int32_t heads = ir_attr_int(node, "rows_first") ? 2 : 1;
        *out_carries = at.dim == heads && at.value == node->first_output;
        uint32_t n_follow = node->op == IR_OP_ROPE ? 1 : 3;
        for (uint32_t j = 0; j < n_follow && *out_carries; j++)
            TRY(follow(w, node->inputs[j], heads));
        return ST_OK;
    }
    *out_carries = false;
    return ST_OK;
}

/* Whether the split of the product's inner dim comes from columns. */
static st_status_t find_way(way_t *w, const ir_node_info_t *node, bool *out_found) {
    const ir_type_t *x = ir_value_type(w->graph, node->inputs[0]);
    bool carries = true;
    w->open.n = w->columns.n = w->states.n = w->visited.n = 0;
    w->granules = x->dims[x->rank - 1];
    TRY(follow(w, node->inputs[0], x->rank - 1));
    while (w->open.n && carries) TRY(pass(w, w->open.data[--w->open.n], &carries));
    *out_found = carries && w->columns.n > 0 && w->granules > 1;
    for (size_t i = 0; i < w->visited.n; i++) w->seen[w->visited.data[i].value] = false;
    return ST_OK;
}

/* ---- what follows from it ---- */

static void place_weight(const way_t *w, ir_value_t v, int32_t dim, shard_settled_t *settled) {
    settled->homes[shard_parameter_of(w->graph, v)] = IR_PLACE_SPLIT(dim, w->granules);
}

/* What columns read is in parts of its rows, and does not stay whole from forward to backward. */
static st_status_t gather_again(ir_value_t v, shard_settled_t *settled) {
    return shard_settle_pin(settled, v, IR_PLACE_REPLICATE,
                            1u << IR_PHASE_FORWARD | 1u << IR_PHASE_BACKWARD, true);
}

/* Columns read all of their operand, rows give a sum, which is scattered. */
static st_status_t settle_way(const way_t *w, ir_node_t rows, shard_settled_t *settled) {
    const ir_graph_t *graph = w->graph;
    const ir_node_info_t *node = ir_node(graph, rows);
    const ir_type_t *y = ir_value_type(graph, node->first_output);
    ir_placement_t *in, *out;
    TRY(shard_settle_choice(settled, graph, rows, &in, &out));
    in[0] = IR_PLACE_SPLIT(ir_value_type(graph, node->inputs[0])->rank - 1, w->granules);
    in[1] = IR_PLACE_SPLIT(1 - outer_dim(node), w->granules);
    out[0] = IR_PLACE_PARTIAL;
    place_weight(w, node->inputs[1], 1 - outer_dim(node), settled);
    if (y->rank == 3 && y->dims[1] > 1)
        TRY(shard_settle_pin(settled, node->first_output, IR_PLACE_SPLIT(1, IR_GRANULES_EACH),
                             1u << IR_PHASE_FORWARD, false));
    for (size_t i = 0; i < w->columns.n; i++) {
        const ir_node_info_t *column = ir_node(graph, w->columns.data[i]);
        TRY(gather_again(column->inputs[0], settled));
        TRY(shard_settle_choice(settled, graph, w->columns.data[i], &in, &out));
        in[1] = IR_PLACE_SPLIT(outer_dim(column), w->granules);
        out[0] = IR_PLACE_SPLIT(ir_value_type(graph, column->first_output)->rank - 1, w->granules);
        place_weight(w, column->inputs[1], outer_dim(column), settled);
    }
    for (size_t i = 0; i < w->states.n; i++)
        place_weight(w, w->states.data[i].value, w->states.data[i].dim, settled);
    return ST_OK;
}

/* Products without a pair get their operand whole: the rows that a part of a rank's would give are
 * of no use to what comes after, which is mostly the loss. */
static st_status_t settle_whole(const ir_graph_t *graph, ir_node_t n, shard_settled_t *settled) {
    ir_placement_t *in, *out;
    for (size_t i = 0; i < settled->choices.n; i++)
        if (settled->choices.data[i].node == n) return ST_OK;
    return shard_settle_choice(settled, graph, n, &in, &out);
}

/* Backward, weights stay where they are: a gradient of columns' results gives a sum, one of rows'
 * results, whole, gives columns. */
static st_status_t settle_backward(const ir_graph_t *graph, ir_node_t n, shard_settled_t *settled) {
    const ir_node_info_t *node = ir_node(graph, n);
    if (node->op != IR_OP_MATMUL || node->phase != IR_PHASE_BACKWARD ||
        ir_attr_int(node, "transpose_a"))
        return ST_OK;
    const ir_node_t p = shard_parameter_of(graph, node->inputs[1]);
    if (p == IR_NONE || settled->homes[p].kind != IR_SPLIT ||
        ir_value_type(graph, node->inputs[1])->rank != 2)
        return ST_OK;
    const ir_placement_t home = settled->homes[p];
    const int32_t last = ir_value_type(graph, node->first_output)->rank - 1;
    ir_placement_t *in, *out;
    TRY(shard_settle_choice(settled, graph, n, &in, &out));
    in[1] = home;
    if (home.dim == outer_dim(node)) {
        out[0] = IR_PLACE_SPLIT(last, home.granules);
    } else {
        in[0] = IR_PLACE_SPLIT(last, home.granules);
        out[0] = IR_PLACE_PARTIAL;
    }
    return ST_OK;
}

/* ---- the vocabulary ---- */

/* The product with weights that logits are, through reshapes and casts; IR_NONE: none. */
static ir_node_t head_of(const ir_graph_t *graph, ir_value_t logits) {
    ir_node_t n = graph->values.data[logits].producer;
    while (ir_node(graph, n)->op == IR_OP_RESHAPE || ir_node(graph, n)->op == IR_OP_CAST)
        n = graph->values.data[ir_node(graph, n)->inputs[0]].producer;
    return is_linear(graph, n) ? n : IR_NONE;
}

/* A weight that is not split already may be, along `dim`. */
static bool may_split(const ir_graph_t *graph, const shard_settled_t *settled, ir_node_t p,
                      int32_t dim) {
    if (p == IR_NONE || ir_value_type(graph, ir_node(graph, p)->first_output)->rank != 2)
        return false;
    return settled->homes[p].kind != IR_SPLIT || settled->homes[p].dim == dim;
}

/* Losses over logits of a product with weights: it gives columns. */
static st_status_t settle_losses(const ir_graph_t *graph, shard_settled_t *settled) {
    ir_placement_t *in, *out;
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(graph, n);
        const bool rows = node->op == IR_OP_CROSS_ENTROPY_ROWS;
        if (!rows && node->op != IR_OP_CROSS_ENTROPY_GRAD) continue;
        const ir_node_t head = head_of(graph, node->inputs[rows ? 0 : 1]);
        if (head == IR_NONE || !shard_has_parts(graph, n, settled->n_ranks)) continue;
        const ir_node_info_t *product = ir_node(graph, head);
        const int32_t dim = outer_dim(product);
        const ir_type_t *y = ir_value_type(graph, product->first_output);
        const ir_node_t p = shard_parameter_of(graph, product->inputs[1]);
        if (!may_split(graph, settled, p, dim)) continue;
        if (y->dims[y->rank - 1] != ir_value_type(graph, node->inputs[rows ? 0 : 1])->dims[1])
            continue;
        if (rows) {
            TRY(shard_settle_choice(settled, graph, head, &in, &out));
            TRY(gather_again(product->inputs[0], settled));
            in[1] = IR_PLACE_SPLIT(dim, IR_GRANULES_EACH);
            out[0] = IR_PLACE_SPLIT(y->rank - 1, IR_GRANULES_EACH);
            settled->homes[p] = in[1];
        } else if (settled->homes[p].kind != IR_SPLIT) {
            continue;
        }
        TRY(shard_settle_parts(settled, n));
    }
    return ST_OK;
}

/* Tables that are looked up: what is found is a sum over ranks, scattered as other rows are. */
static st_status_t settle_tables(const ir_graph_t *graph, shard_settled_t *settled) {
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(graph, n);
        if (node->op != IR_OP_GATHER || node->phase != IR_PHASE_FORWARD ||
            ir_attr_int(node, "axis") != 0 || !shard_has_parts(graph, n, settled->n_ranks))
            continue;
        const ir_node_t p = shard_parameter_of(graph, node->inputs[0]);
        const ir_type_t *y = ir_value_type(graph, node->first_output);
        if (!may_split(graph, settled, p, 0)) continue;
        settled->homes[p] = IR_PLACE_SPLIT(0, IR_GRANULES_EACH);
        TRY(shard_settle_parts(settled, n));
        if (y->rank == 3 && y->dims[1] > 1)
            TRY(shard_settle_pin(settled, node->first_output, IR_PLACE_SPLIT(1, IR_GRANULES_EACH),
                                 1u << IR_PHASE_FORWARD, false));
        for (ir_node_t b = n + 1; b < graph->nodes.n; b++) { /* its gradient */
            const ir_node_info_t *back = ir_node(graph, b);
            if (back->op == IR_OP_SCATTER_ADD && back->phase == IR_PHASE_BACKWARD &&
                back->inputs[1] == node->inputs[1] && ir_attr_int(back, "axis") == 0 &&
                ir_dims_equal(ir_value_type(graph, back->first_output),
                              ir_value_type(graph, node->inputs[0])))
                TRY(shard_settle_parts(settled, b));
        }
    }
    return ST_OK;
}

st_status_t shard_place_followers(const ir_graph_t *graph, shard_settled_t *settled) {
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(graph, n);
        const char *dot = node->op == IR_OP_BUFFER ? strchr(node->name, '.') : NULL;
        const ir_node_t master = ir_master_of(graph, node);
        if (master != IR_NONE) settled->homes[n] = settled->homes[master];
        for (; dot; dot = strchr(dot + 1, '.')) {
            ir_node_t of = ir_graph_find(graph, dot + 1);
            if (of == IR_NONE || ir_node(graph, of)->op != IR_OP_PARAMETER) continue;
            if (ir_type_equal(ir_value_type(graph, node->first_output),
                              ir_value_type(graph, ir_node(graph, of)->first_output)))
                settled->homes[n] = settled->homes[of];
        }
        if (!(ir_op_def(node->op)->flags & IR_STEP)) continue;
        ir_node_t p = shard_parameter_of(graph, node->inputs[0]);
        if (p != IR_NONE && settled->homes[p].kind == IR_SPLIT)
            TRY(shard_settle_pin(settled, node->inputs[1], settled->homes[p], SHARD_ALL_PHASES,
                                 false));
    }
    return ST_OK;
}

static st_status_t settle_all(way_t *w, shard_settled_t *settled) {
    const ir_graph_t *graph = w->graph;
    bool any = false;
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        bool found;
        if (!is_linear(graph, n)) continue;
        TRY(find_way(w, ir_node(graph, n), &found));
        if (found) TRY(settle_way(w, n, settled));
        any |= found;
    }
    if (any) TRY(settle_losses(graph, settled));
    if (any) TRY(settle_tables(graph, settled));
    for (ir_node_t n = 0; n < graph->nodes.n && any; n++) {
        if (is_linear(graph, n)) TRY(settle_whole(graph, n, settled));
        TRY(settle_backward(graph, n, settled));
    }
    return shard_place_followers(graph, settled);
}

st_status_t shard_form_tensor(const ir_graph_t *graph, shard_settled_t *settled) {
    way_t w = {.graph = graph};
    w.seen = st_calloc(graph->values.n, sizeof *w.seen);
    st_status_t status =
        w.seen ? settle_all(&w, settled) : st_no_memory(graph->values.n, "the lowering");
    st_free(w.seen);
    ST_VEC_FREE(&w.open);
    ST_VEC_FREE(&w.visited);
    ST_VEC_FREE(&w.columns);
    ST_VEC_FREE(&w.states);
    return status;
}
