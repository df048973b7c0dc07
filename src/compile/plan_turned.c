/* Values that are computed once though they stand in two orders (plan_reuse.h).
 *
 * Problem: tanh(x) and transpose(tanh(transpose(x))) have the same element at every point, so that
 * a kernel which runs point by point has them once, and reads x for them once.
 * Algorithm: a value is its canon with dims in another order: `order[d]` is the canon's dim that
 * its dim d is. A transpose composes orders. An elementwise node whose operands with more than one
 * element are all of its own shape and in one order has the canon of an earlier such node with the
 * same op and canons. Views of one value with the same dims have one canon. All else is its own.
 * Linear, through a hash table, times the shapes in which one value is seen. */
#include <string.h>

#include "base/hash.h"
#include "compile/plan_reuse.h"
#include "ir/op.h"
#include "ir/structure.h"

typedef struct order {
    uint8_t dim[IR_MAX_RANK];
} order_t;

typedef struct turning {
    const ir_graph_t *graph;
    ir_value_t *canon;
    order_t *order; /* [values] to the canon's dims */
    order_t
        *frame; /* [values] of a canon that is elementwise: to the dims of its operands' canons */
    ir_value_t *next_shape; /* [values] the same elements with other dims; 0: none */
    uint32_t *slots;        /* nodes + 1 by hash, open addressing; 0: empty */
    size_t n_slots;
} turning_t;

static const ir_type_t *type_of(const turning_t *t, ir_value_t v) {
    return ir_value_type(t->graph, v);
}

static void be_own(turning_t *t, ir_value_t v) {
    t->canon[v] = v;
    for (uint8_t d = 0; d < IR_MAX_RANK; d++) t->order[v].dim[d] = d;
}

/* The one order of the operands that have axes; false: they have several, or other shapes. */
static bool find_frame(const turning_t *t, const ir_node_info_t *node, order_t *out) {
    const ir_type_t *type = type_of(t, node->first_output);
    bool any = false;
    for (uint32_t j = 0; j < node->n_inputs; j++) {
        ir_value_t in = node->inputs[j];
        if (ir_type_elements(type_of(t, in)) == 1) continue;
        if (!ir_dims_equal(type_of(t, in), type)) return false;
        if (any && memcmp(out->dim, t->order[in].dim, (size_t)type->rank) != 0) return false;
        *out = t->order[in];
        any = true;
    }
    return any;
}

static bool is_equal(const turning_t *t, const ir_node_info_t *a, const ir_node_info_t *b) {
    if (a->op != b->op || a->n_inputs != b->n_inputs ||
        type_of(t, a->first_output)->dtype != type_of(t, b->first_output)->dtype ||
        !ir_attrs_equal(a->op, a->attrs, b->attrs))
        return false;
    for (uint32_t j = 0; j < a->n_inputs; j++)
        if (t->canon[a->inputs[j]] != t->canon[b->inputs[j]]) return false;
    return true;
}

static void turn_elementwise(turning_t *t, ir_node_t i) {
    const ir_node_info_t *node = ir_node(t->graph, i);
    const ir_value_t v = node->first_output;
    const int32_t rank = type_of(t, v)->rank;
    order_t frame;
    if (!find_frame(t, node, &frame)) return;
    uint64_t hash = ir_attrs_hash(node->op, node->attrs, node->n_inputs);
    for (uint32_t j = 0; j < node->n_inputs; j++)
        hash = st_hash64(&t->canon[node->inputs[j]], sizeof *t->canon, hash);
    size_t at = (size_t)hash & (t->n_slots - 1);
    while (t->slots[at] && !is_equal(t, ir_node(t->graph, t->slots[at] - 1), node))
        at = (at + 1) & (t->n_slots - 1);
    if (!t->slots[at]) {
        t->slots[at] = i + 1;
        t->frame[v] = frame;
        return;
    }
    const ir_value_t first = ir_node(t->graph, t->slots[at] - 1)->first_output;
    if (type_of(t, first)->rank != rank) return;
    t->canon[v] = first;
    for (int32_t d = 0; d < rank; d++)
        for (int32_t e = 0; e < rank; e++)
            if (t->frame[first].dim[e] == frame.dim[d]) t->order[v].dim[d] = (uint8_t)e;
}

static void turn(turning_t *t, ir_node_t i, const ir_value_t *same) {
    const ir_node_info_t *node = ir_node(t->graph, i);
    for (uint32_t k = 0; k < node->n_outputs; k++) be_own(t, node->first_output + k);
    if (node->n_outputs != 1) return;
    const ir_value_t v = node->first_output;
    if (same[v] != v) { /* an equal, or what a view shows */
        ir_value_t first = same[v];
        while (!ir_dims_equal(type_of(t, v), type_of(t, first))) {
            if (!t->next_shape[first]) t->next_shape[first] = v;
            first = t->next_shape[first];
        }
        t->canon[v] = t->canon[first];
        t->order[v] = t->order[first];
    } else if (node->op == IR_OP_TRANSPOSE) {
        const ir_attr_t *perm = ir_node_attr(node, "perm");
        t->canon[v] = t->canon[node->inputs[0]];
        for (uint32_t d = 0; d < perm->ints.n; d++)
            t->order[v].dim[d] = t->order[node->inputs[0]].dim[perm->ints.v[d]];
    } else if (ir_op_def(node->op)->flags & IR_ELEMENTWISE) {
        turn_elementwise(t, i);
    }
}

st_status_t plan_find_turned(const ir_graph_t *graph, const bool *live, const ir_value_t *same,
                             ir_value_t *out_canon) {
    turning_t t = {.graph = graph, .canon = out_canon, .n_slots = 16};
    st_status_t status = ST_OK;
    while (t.n_slots < 2 * graph->nodes.n) t.n_slots *= 2;
    t.order = st_calloc(graph->values.n + 1, sizeof *t.order);
    t.frame = st_calloc(graph->values.n + 1, sizeof *t.frame);
    t.next_shape = st_calloc(graph->values.n + 1, sizeof *t.next_shape);
    t.slots = st_calloc(t.n_slots, sizeof *t.slots);
    if (!t.order || !t.frame || !t.next_shape || !t.slots)
        status = st_no_memory(t.n_slots * sizeof *t.slots, "the proof of a fused node");
    for (ir_node_t i = 0; status == ST_OK && i < graph->nodes.n; i++) {
        const ir_node_info_t *node = ir_node(graph, i);
        if (live[i] || node->op == IR_OP_INPUT)
            turn(&t, i, same);
        else
            for (uint32_t k = 0; k < node->n_outputs; k++) be_own(&t, node->first_output + k);
    }
    st_free(t.order);
    st_free(t.frame);
    st_free(t.next_shape);
    st_free(t.slots);
    return status;
}
