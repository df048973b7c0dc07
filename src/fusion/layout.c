/* The layout pass: choosing among graphs, and writing them (layout.h). */
#include "fusion/layout.h"

#include <string.h>

#include "base/memory.h"
#include "base/vec.h"
#include "fusion/layout_rules.h"

/* ---- deciding ---- */

void layout_decision_destroy(layout_decision_t *decision) {
    if (!decision) return;
    st_free(decision->first);
    st_free(decision->asked);
    st_free(decision->order);
    st_free(decision->want);
    st_free(decision->unit);
    st_free(decision->form);
    st_free(decision->turn);
    st_free(decision);
}

static st_status_t make(const ir_graph_t *const *graphs, uint32_t n_graphs, uint32_t largest,
                        const ir_target_t *target, layout_decision_t **out) {
    const ir_graph_t *graph = graphs[largest];
    const size_t n_nodes = graph->nodes.n, n_values = graph->values.n;
    layout_decision_t *d = *out = st_calloc(1, sizeof *d);
    size_t n_uses = 0;
    if (!d) return st_no_memory(sizeof *d, "the layout");
    d->graphs = graphs;
    d->n_graphs = n_graphs;
    d->graph = graph;
    d->target = target;
    d->exact = strcmp(target->machine->device, "cpu") == 0;
    for (ir_node_t n = 0; n < n_nodes; n++) n_uses += ir_node(graph, n)->n_inputs;
    d->first = st_calloc(n_nodes + 1, sizeof *d->first);
    d->asked = st_calloc(n_uses + 1, sizeof *d->asked);
    d->order = st_calloc(n_values + 1, sizeof *d->order);
    d->want = st_calloc(n_values + 1, sizeof *d->want);
    d->unit = st_calloc(n_values + 1, sizeof *d->unit);
    d->form = st_calloc(n_nodes + 1, sizeof *d->form);
    d->turn = st_calloc(n_nodes + 1, sizeof *d->turn);
    if (!d->first || !d->asked || !d->order || !d->want || !d->unit || !d->form || !d->turn)
        return st_no_memory(n_values * sizeof *d->order, "the layout");
    for (ir_node_t n = 0; n < n_nodes; n++)
        d->first[n + 1] = d->first[n] + ir_node(graph, n)->n_inputs;
    for (ir_value_t v = 0; v < n_values; v++) {
        d->unit[v] = 0xff;
        for (uint32_t g = 0; g < n_graphs; g++)
            for (int32_t i = 0; i < ir_value_type(graph, v)->rank; i++)
                if (ir_value_type(graphs[g], v)->dims[i] > 1) d->unit[v] &= (uint8_t) ~(1u << i);
    }
    return ST_OK;
}

static void choose_all(layout_decision_t *d, bool conv_last) {
    const size_t n = d->graph->nodes.n;
    d->conv_last = conv_last;
    memset(d->want, 0, d->graph->values.n * sizeof *d->want);
    for (size_t i = n; i > 0; i--) layout_wish(d, (ir_node_t)(i - 1));
    for (ir_node_t i = 0; i < n; i++) layout_choose(d, i);
}

static st_status_t graph_us(const ir_graph_t *graph, const ir_target_t *target, double *out_us) {
    *out_us = 0;
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        ir_cost_t cost;
        TRY(ir_target_cost(target, graph, n, &cost));
        *out_us += cost.us;
    }
    return ST_OK;
}

static st_status_t choice_us(layout_decision_t *d, bool conv_last, double *out_us) {
    ir_graph_t *made;
    choose_all(d, conv_last);
    TRY(layout_apply(d, d->graph, &made));
    st_status_t status = graph_us(made, d->target, out_us);
    ir_graph_destroy(made);
    return status;
}

st_status_t layout_decide(const ir_graph_t *const *graphs, uint32_t n_graphs, uint32_t largest,
                          const ir_target_t *target, layout_decision_t **out_decision) {
    layout_decision_t *d = NULL;
    double before, plain, last;
    st_status_t status;
    *out_decision = NULL;
    for (uint32_t g = 0; g < n_graphs; g++)
        if (graphs[g]->nodes.n != graphs[largest]->nodes.n ||
            graphs[g]->values.n != graphs[largest]->values.n)
            return FAIL(ST_INTERNAL, "the ranks' programs differ in more than sizes");
    TRY_GOTO(make(graphs, n_graphs, largest, target, &d), fail);
    TRY_GOTO(graph_us(d->graph, target, &before), fail);
    TRY_GOTO(choice_us(d, true, &last), fail);
    TRY_GOTO(choice_us(d, false, &plain), fail);
    d->keep = before < plain && before < last;
    if (!d->keep && last < plain) choose_all(d, true);
    *out_decision = d;
    return ST_OK;
fail:
    layout_decision_destroy(d);
    return status;
}

/* ---- writing ---- */

/* A value in an order that is not its own, made for a reader. */
typedef struct copy {
    ir_value_t value, made, next;
    layout_order_t order;
} copy_t;

typedef struct writing {
    const layout_decision_t *d;
    const ir_graph_t *from;
    ir_graph_t *to;
    ir_value_t *made;    /* [values]: in its own order */
    ir_value_t *map;     /* [values]: scratch of a node's operands */
    uint32_t *copies_of; /* [values]: newest of `copies`, plus 1 */
    ST_VEC(copy_t) copies;
} writing_t;

static st_status_t add_ints(writing_t *w, ir_op_t op, const char *key, const int64_t *v, int32_t n,
                            ir_value_t x, ir_value_t *out) {
    ir_arg_t arg = {key, {.kind = IR_ATTR_INTS, .ints = {v, (uint32_t)n}}};
    return ir_graph_add(w->to, op, NULL, 1, &x, 1, &arg, out);
}

static st_status_t add_reshape(writing_t *w, ir_value_t x, const ir_type_t *type, ir_value_t *out) {
    *out = x;
    if (ir_dims_equal(ir_value_type(w->to, x), type)) return ST_OK;
    return add_ints(w, IR_OP_RESHAPE, "shape", type->dims, type->rank, x, out);
}

static bool is_splat(const ir_node_info_t *node, const ir_type_t *type) {
    return node->op == IR_OP_CONSTANT &&
           ir_node_attr(node, "data")->data.bytes == ir_dtype_bytes(type->dtype);
}

/* Whether the value has the same dims in both orders, in all graphs: they have the same nodes. */
static bool same_dims(const layout_decision_t *d, ir_value_t value, layout_order_t a,
                      layout_order_t b) {
    for (uint32_t g = 0; g < d->n_graphs; g++) {
        const ir_type_t of_a = layout_stored(ir_value_type(d->graphs[g], value), a);
        const ir_type_t of_b = layout_stored(ir_value_type(d->graphs[g], value), b);
        if (!ir_dims_equal(&of_a, &of_b)) return false;
    }
    return true;
}

/* `value` in `order`: as it is, another view of it, or a copy. */
static st_status_t convert(writing_t *w, ir_value_t value, layout_order_t order, ir_value_t *out) {
    const ir_type_t *type = ir_value_type(w->from, value);
    const ir_node_info_t *producer = ir_value_producer(w->from, value);
    const layout_order_t own = w->d->order[value];
    ir_type_t stored = layout_stored(type, order);
    int64_t perm[IR_MAX_RANK];
    if (layout_alike(w->d, type->rank, value, own, order)) {
        *out = w->made[value];
        if (same_dims(w->d, value, own, order)) return ST_OK;
        return add_ints(w, IR_OP_RESHAPE, "shape", stored.dims, stored.rank, *out, out);
    }
    if (is_splat(producer, type))
        return ir_graph_add(w->to, IR_OP_CONSTANT, NULL, 0, NULL, 3,
                            (ir_arg_t[]){IR_ARG_DTYPE("dtype", type->dtype),
                                         IR_ARG_INTS("shape", stored.dims, stored.rank),
                                         {"data", *ir_node_attr(producer, "data")}},
                            out);
    for (int32_t i = 0; i < type->rank; i++)
        perm[i] = layout_place(own, type->rank, layout_at(order, i));
    return add_ints(w, IR_OP_TRANSPOSE, "perm", perm, type->rank, w->made[value], out);
}

static st_status_t take(writing_t *w, ir_value_t value, layout_order_t order, ir_value_t *out) {
    *out = w->made[value];
    if (order == w->d->order[value]) return ST_OK;
    for (uint32_t c = w->copies_of[value]; c; c = w->copies.data[c - 1].next)
        if (w->copies.data[c - 1].order == order) {
            *out = w->copies.data[c - 1].made;
            return ST_OK;
        }
    TRY(convert(w, value, order, out));
    copy_t copy = {value, *out, w->copies_of[value], order};
    TRY(ST_VEC_PUSH(&w->copies, copy));
    w->copies_of[value] = (uint32_t)w->copies.n;
    return ST_OK;
}

/* Operand dims of 1 where the result's order has dims that the operand lacks. */
static st_status_t lift(writing_t *w, ir_value_t value, layout_order_t order, int32_t rank,
                        ir_value_t *x) {
    const ir_type_t *type = ir_value_type(w->from, value);
    ir_type_t lifted = ir_type_make(type->dtype, rank, (int64_t[IR_MAX_RANK]){0});
    if (type->rank == 0 || type->rank == rank) return ST_OK;
    for (int32_t i = 0; i < rank; i++) {
        const int32_t own = layout_at(order, i) - (rank - type->rank);
        lifted.dims[i] = own < 0 ? 1 : type->dims[own];
    }
    return add_reshape(w, *x, &lifted, x);
}

static ir_type_t flat(const ir_type_t *stored) {
    ir_type_t type = ir_type_make(stored->dtype, 2, (int64_t[]){1, stored->dims[stored->rank - 1]});
    for (int32_t i = 0; i + 1 < stored->rank; i++) type.dims[0] *= stored->dims[i];
    return type;
}

static st_status_t take_operands(writing_t *w, ir_node_t n) {
    const layout_decision_t *d = w->d;
    const ir_node_info_t *node = ir_node(w->from, n);
    for (uint32_t j = 0; j < node->n_inputs; j++) {
        const ir_value_t value = node->inputs[j];
        ir_value_t x;
        TRY(take(w, value, d->asked[d->first[n] + j], &x));
        if (d->form[n] == LAYOUT_LIFTED)
            TRY(lift(w, value, d->order[node->first_output],
                     ir_value_type(w->from, node->first_output)->rank, &x));
        if (d->form[n] == LAYOUT_FLAT && ir_value_type(w->to, x)->rank >= 3) {
            ir_type_t type = flat(ir_value_type(w->to, x));
            TRY(add_reshape(w, x, &type, &x));
        }
        w->map[value] = x;
    }
    return ST_OK;
}

/* ---- attributes ---- */

enum { MOST_ATTRS = 16 };

typedef struct attrs {
    ir_attr_t list[MOST_ATTRS];
    int64_t ints[3][IR_MAX_RANK];
    int n_ints;
} attrs_t;

static ir_attr_t *attr_at(const ir_node_info_t *node, attrs_t *a, const char *key) {
    const ir_op_def_t *def = ir_op_def(node->op);
    for (uint32_t i = 0; i < ir_op_n_attrs(def); i++)
        if (strcmp(def->attrs[i].key, key) == 0) return &a->list[i];
    return NULL;
}

static void set_ints(attrs_t *a, ir_attr_t *attr, const int64_t *v, int32_t n) {
    int64_t *own = a->ints[a->n_ints++];
    memcpy(own, v, (size_t)n * sizeof *v);
    attr->ints.v = own;
    attr->ints.n = (uint32_t)n;
}

/* axes, axis, and lists of one entry a dim follow the operand's order. */
static void follow_axes(const ir_node_info_t *node, attrs_t *a, layout_order_t order,
                        int32_t rank) {
    static const char *const lists[] = {"begin", "end", "step"};
    ir_attr_t *axis = attr_at(node, a, "axis"), *axes = attr_at(node, a, "axes");
    if (axis) axis->i = layout_place(order, rank, (int32_t)axis->i);
    if (axes) {
        int64_t sorted[IR_MAX_RANK];
        int32_t n = 0;
        for (int32_t i = 0; i < rank; i++)
            for (uint32_t k = 0; k < axes->ints.n; k++)
                if (axes->ints.v[k] == layout_at(order, i)) sorted[n++] = i;
        set_ints(a, axes, sorted, n);
    }
    for (size_t l = 0; l < sizeof lists / sizeof lists[0]; l++) {
        ir_attr_t *list = attr_at(node, a, lists[l]);
        int64_t moved[IR_MAX_RANK];
        if (!list || axis || axes) continue;
        for (int32_t i = 0; i < rank; i++) moved[i] = list->ints.v[layout_at(order, i)];
        set_ints(a, list, moved, rank);
    }
}

static void set_shape(const writing_t *w, const ir_node_info_t *node, attrs_t *a) {
    ir_attr_t *shape = attr_at(node, a, "shape");
    ir_type_t stored =
        layout_stored(ir_value_type(w->from, node->first_output), w->d->order[node->first_output]);
    if (shape) set_ints(a, shape, stored.dims, stored.rank);
}

static void write_attrs(const writing_t *w, ir_node_t n, attrs_t *a) {
    const ir_node_info_t *node = ir_node(w->from, n);
    const uint32_t n_attrs = ir_op_n_attrs(ir_op_def(node->op));
    const uint8_t form = w->d->form[n], turn = w->d->turn[n];
    static const char *const flags[] = {"transpose_a", "transpose_b"};
    ASSERT(n_attrs <= MOST_ATTRS);
    a->n_ints = 0;
    if (n_attrs) memcpy(a->list, node->attrs, n_attrs * sizeof *a->list);
    if (form == LAYOUT_RESHAPE || (form == LAYOUT_LIFTED && node->op == IR_OP_BROADCAST))
        set_shape(w, node, a);
    if (form == LAYOUT_AXES)
        follow_axes(node, a, w->d->asked[w->d->first[n]],
                    ir_value_type(w->from, node->inputs[0])->rank);
    for (int j = 0; j < 2 && form == LAYOUT_FLIPPED; j++)
        if (turn >> j & 1) attr_at(node, a, flags[j])->i ^= 1;
    if (form == LAYOUT_TURNED) {
        ir_attr_t *rows = attr_at(node, a, "rows_first");
        (rows ? rows : attr_at(node, a, "channels_last"))->i = 1;
    }
}

/* ---- nodes ---- */

static st_status_t write_node(writing_t *w, ir_node_t n) {
    const ir_node_info_t *node = ir_node(w->from, n);
    const uint8_t form = w->d->form[n];
    attrs_t attrs;
    ir_graph_stand_for(w->to, node);
    TRY(take_operands(w, n));
    if (form == LAYOUT_GONE) {
        w->made[node->first_output] = w->map[node->inputs[0]];
        return ST_OK;
    }
    if (form != LAYOUT_AS_IS) write_attrs(w, n, &attrs);
    TRY(ir_graph_clone_node(w->to, w->from, n, form == LAYOUT_AS_IS ? NULL : attrs.list, w->map));
    for (uint32_t k = 0; k < node->n_outputs; k++) {
        const ir_value_t value = node->first_output + k;
        w->made[value] = w->map[value];
        if (form != LAYOUT_FLAT) continue;
        ir_type_t stored = layout_stored(ir_value_type(w->from, value), w->d->order[value]);
        TRY(add_reshape(w, w->map[value], &stored, &w->made[value]));
    }
    return ST_OK;
}

static st_status_t write_all(writing_t *w) {
    for (ir_node_t n = 0; n < w->from->nodes.n; n++) {
        st_status_t status = write_node(w, n);
        if (status != ST_OK) return st_error_context(status, "%s", ir_node_label(w->from, n));
    }
    for (size_t o = 0; o < w->from->outputs.n; o++) {
        const ir_output_t *output = &w->from->outputs.data[o];
        ir_value_t value;
        TRY(take(w, output->value, layout_plain(ir_value_type(w->from, output->value)->rank),
                 &value));
        TRY(ir_graph_append_output(w->to, output->name, value));
    }
    return ST_OK;
}

st_status_t layout_apply(const layout_decision_t *decision, const ir_graph_t *graph,
                         ir_graph_t **out_graph) {
    writing_t w = {.d = decision, .from = graph};
    st_status_t status = ST_OK;
    *out_graph = NULL;
    if (decision->keep) return ir_graph_copy(graph, out_graph);
    TRY(ir_graph_create_like(graph, &w.to));
    w.made = st_calloc(graph->values.n + 1, sizeof *w.made);
    w.map = st_calloc(graph->values.n + 1, sizeof *w.map);
    w.copies_of = st_calloc(graph->values.n + 1, sizeof *w.copies_of);
    if (!w.made || !w.map || !w.copies_of)
        status = st_no_memory(graph->values.n * sizeof *w.made, "the layout");
    if (status == ST_OK) status = write_all(&w);
    st_free(w.made);
    st_free(w.map);
    st_free(w.copies_of);
    ST_VEC_FREE(&w.copies);
    if (status == ST_OK)
        *out_graph = w.to;
    else
        ir_graph_destroy(w.to);
    return status;
}
