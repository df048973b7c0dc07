/* The rules of the layout pass (layout_rules.h): one an op, in a table. A rule reads the orders of
 * its node's operands, in which their producers left them, and says in which orders the node takes
 * them and in which its results come. Rules look at sizes only to weigh bytes and to tell dims of
 * 1; where they look at how dims are cut they ask all graphs. */
#include "fusion/layout_rules.h"

#include <string.h>

#include "base/memory.h"

/* ---- orders ---- */

layout_order_t layout_plain(int32_t rank) {
    layout_order_t order = 0;
    for (int32_t i = 0; i < rank; i++) order = layout_put(order, i, i);
    return order;
}

layout_order_t layout_rows_first(void) {
    return layout_put(layout_put(layout_plain(4), 1, 2), 2, 1);
}

layout_order_t layout_channels_last(int32_t rank) {
    layout_order_t order = layout_plain(rank);
    for (int32_t i = 1; i + 1 < rank; i++) order = layout_put(order, i, i + 1);
    return rank > 1 ? layout_put(order, rank - 1, 1) : order;
}

int32_t layout_place(layout_order_t order, int32_t rank, int32_t dim) {
    int32_t i = 0;
    while (i < rank && layout_at(order, i) != dim) i++;
    return i;
}

layout_order_t layout_tail(layout_order_t order, int32_t rank, int32_t own) {
    layout_order_t tail = 0;
    int32_t n = 0;
    for (int32_t i = 0; i < rank; i++)
        if (layout_at(order, i) >= rank - own)
            tail = layout_put(tail, n++, layout_at(order, i) - (rank - own));
    return tail;
}

ir_type_t layout_stored(const ir_type_t *type, layout_order_t order) {
    ir_type_t stored = *type;
    for (int32_t i = 0; i < type->rank; i++) stored.dims[i] = type->dims[layout_at(order, i)];
    return stored;
}

bool layout_alike(const layout_decision_t *d, int32_t rank, ir_value_t value, layout_order_t a,
                  layout_order_t b) {
    int32_t i = 0, j = 0;
    if (a == b) return true;
    for (;; i++, j++) {
        while (i < rank && d->unit[value] >> layout_at(a, i) & 1) i++;
        while (j < rank && d->unit[value] >> layout_at(b, j) & 1) j++;
        if (i == rank || j == rank) return i == rank && j == rank;
        if (layout_at(a, i) != layout_at(b, j)) return false;
    }
}

/* ---- looking ---- */

typedef struct site {
    layout_decision_t *d;
    ir_node_t n;
    const ir_node_info_t *node;
    layout_order_t *asked; /* of operand j */
} site_t;

static const ir_type_t *in_type(const site_t *s, uint32_t j) {
    return ir_value_type(s->d->graph, s->node->inputs[j]);
}
static const ir_type_t *out_type(const site_t *s, uint32_t k) {
    return ir_value_type(s->d->graph, s->node->first_output + k);
}
static layout_order_t in_order(const site_t *s, uint32_t j) {
    return s->d->order[s->node->inputs[j]];
}
static layout_order_t *out_order(const site_t *s, uint32_t k) {
    return &s->d->order[s->node->first_output + k];
}
static void set_form(const site_t *s, layout_form_t form) {
    s->d->form[s->n] = (uint8_t)form;
}

static bool is_splat(const ir_graph_t *graph, ir_value_t value) {
    const ir_node_info_t *node = ir_value_producer(graph, value);
    return node->op == IR_OP_CONSTANT && ir_node_attr(node, "data")->data.bytes ==
                                             ir_dtype_bytes(ir_value_type(graph, value)->dtype);
}

/* Bytes to move for operand j to lie in `order`. */
static double move_bytes(const site_t *s, uint32_t j, layout_order_t order) {
    ir_value_t value = s->node->inputs[j];
    if (layout_alike(s->d, in_type(s, j)->rank, value, s->d->order[value], order) ||
        is_splat(s->d->graph, value))
        return 0;
    return (double)ir_type_bytes(in_type(s, j));
}

bool layout_can_turn(const layout_decision_t *d, ir_node_t n, const char *key) {
    const ir_node_info_t *node = ir_node(d->graph, n);
    const ir_op_def_t *def = ir_op_def(node->op);
    enum { MOST = 12 };
    ir_type_t types[MOST];
    ir_attr_t attrs[16];
    const uint32_t n_attrs = ir_op_n_attrs(def), n_types = node->n_inputs + node->n_outputs;
    const char *reason;
    bool has_form = false;
    if (n_attrs > 16 || n_types > MOST) return false;
    for (uint32_t i = 0; i < n_attrs; i++) {
        attrs[i] = node->attrs[i];
        if (strcmp(def->attrs[i].key, key) != 0) continue;
        if (attrs[i].i) return false; /* the model has it so already */
        attrs[i].i = 1;
        has_form = true;
    }
    if (!has_form) return false;
    const bool rows = strcmp(key, "rows_first") == 0;
    for (uint32_t i = 0; i < n_types; i++) {
        ir_value_t value =
            i < node->n_inputs ? node->inputs[i] : node->first_output + i - node->n_inputs;
        types[i] = *ir_value_type(d->graph, value);
        const bool mask = i < node->n_inputs && ((node->op == IR_OP_ATTENTION && i == 3) ||
                                                 (node->op == IR_OP_ATTENTION_GRAD && i == 6));
        if (rows ? types[i].rank != 4 || mask : types[i].rank < 3) continue;
        types[i] = layout_stored(&types[i],
                                 rows ? layout_rows_first() : layout_channels_last(types[i].rank));
    }
    ir_op_ctx_t ctx = {node->op, node->n_inputs, node->n_outputs, types, attrs, node->name};
    return d->target->can_run(d->target->context, &ctx, types + node->n_inputs, &reason);
}

/* ---- elementwise, broadcast, concat ---- */

static double spread_bytes(const site_t *s, layout_order_t order) {
    const int32_t rank = out_type(s, 0)->rank;
    double bytes = 0;
    for (uint32_t j = 0; j < s->node->n_inputs; j++)
        bytes += move_bytes(s, j, layout_tail(order, rank, in_type(s, j)->rank));
    return bytes;
}

static layout_order_t best_order(const site_t *s) {
    const int32_t rank = out_type(s, 0)->rank;
    const layout_order_t want = s->d->want[s->node->first_output];
    layout_order_t best = want ? want : layout_plain(rank);
    double least = want ? spread_bytes(s, want) : -1;
    for (uint32_t j = 0; j <= s->node->n_inputs && least != 0; j++) {
        if (j < s->node->n_inputs && in_type(s, j)->rank != rank) continue;
        layout_order_t order = j < s->node->n_inputs ? in_order(s, j) : layout_plain(rank);
        double bytes = spread_bytes(s, order);
        if (least >= 0 && bytes >= least) continue;
        least = bytes;
        best = order;
    }
    return best;
}

static void spread(site_t *s) {
    const int32_t rank = out_type(s, 0)->rank;
    layout_order_t order = best_order(s);
    *out_order(s, 0) = order;
    for (uint32_t j = 0; j < s->node->n_inputs; j++)
        s->asked[j] = layout_tail(order, rank, in_type(s, j)->rank);
    if (order != layout_plain(rank))
        set_form(s, s->node->op == IR_OP_CONCAT ? LAYOUT_AXES : LAYOUT_LIFTED);
}

/* ---- views ---- */

/* x' = x in order p is y' = y in order q if y's dim i is x's dim perm[i]: perm[q[i]] = p[i]. */
static void transpose(site_t *s) {
    const ir_attr_t *perm = ir_node_attr(s->node, "perm");
    const int32_t rank = out_type(s, 0)->rank;
    layout_order_t p = s->asked[0] = in_order(s, 0), q = 0;
    for (int32_t i = 0; i < rank; i++)
        for (int32_t dim = 0; dim < rank; dim++)
            if (perm->ints.v[dim] == layout_at(p, i)) q = layout_put(q, i, dim);
    *out_order(s, 0) = q;
    set_form(s, LAYOUT_GONE);
}

/* Which dims of x become which of y: groups of neighbours with equal products. */
typedef struct groups {
    int32_t n;
    int32_t x_end[IR_MAX_RANK], y_end[IR_MAX_RANK];
} groups_t;

static bool find_groups(const ir_type_t *x, const ir_type_t *y, groups_t *out) {
    int32_t i = 0, j = 0;
    memset(out, 0, sizeof *out);
    if (ir_type_elements(x) == 0) return false;
    while (i < x->rank && j < y->rank) {
        int64_t px = x->dims[i++], py = y->dims[j++];
        while (px != py && (px < py ? i < x->rank : j < y->rank)) {
            if (px < py)
                px *= x->dims[i++];
            else
                py *= y->dims[j++];
        }
        if (px != py) return false;
        out->x_end[out->n] = i;
        out->y_end[out->n++] = j;
    }
    if (!out->n) return false;
    out->x_end[out->n - 1] = x->rank; /* what is left are dims of 1 */
    out->y_end[out->n - 1] = y->rank;
    return true;
}

static bool same_groups(const site_t *s, groups_t *out) {
    for (uint32_t g = 0; g < s->d->n_graphs; g++) {
        groups_t own;
        if (!find_groups(ir_value_type(s->d->graphs[g], s->node->inputs[0]),
                         ir_value_type(s->d->graphs[g], s->node->first_output), &own) ||
            (g && memcmp(&own, out, sizeof own) != 0))
            return false;
        *out = own;
    }
    return true;
}

static int32_t group_of(const groups_t *g, int32_t dim) {
    int32_t at = 0;
    while (g->x_end[at] <= dim) at++;
    return at;
}

/* The order of y whose memory is x's in order `in`; false: there is none. */
static bool carry(const site_t *s, layout_order_t in, layout_order_t *out) {
    const int32_t x_rank = in_type(s, 0)->rank, y_rank = out_type(s, 0)->rank;
    groups_t g;
    bool taken[IR_MAX_RANK] = {false};
    int32_t n = 0, last = -1, current = -1;
    *out = 0;
    if (!same_groups(s, &g)) return false;
    for (int32_t i = 0; i < x_rank; i++) {
        const int32_t dim = layout_at(in, i), at = group_of(&g, dim);
        if (s->d->unit[s->node->inputs[0]] >> dim & 1) continue;
        if (at == current) {
            if (dim < last) return false;
        } else {
            if (taken[at]) return false;
            for (int32_t y = at ? g.y_end[at - 1] : 0; y < g.y_end[at]; y++)
                *out = layout_put(*out, n++, y);
            taken[at] = true;
        }
        current = at;
        last = dim;
    }
    for (int32_t at = 0; at < g.n; at++)
        for (int32_t y = at ? g.y_end[at - 1] : 0; y < g.y_end[at] && !taken[at]; y++)
            *out = layout_put(*out, n++, y);
    return n == y_rank;
}

static void reshape(site_t *s) {
    layout_order_t order;
    if (in_order(s, 0) == layout_plain(in_type(s, 0)->rank) || !carry(s, in_order(s, 0), &order))
        return;
    s->asked[0] = in_order(s, 0);
    *out_order(s, 0) = order;
    set_form(s, LAYOUT_RESHAPE);
}

static void slice(site_t *s) {
    s->asked[0] = *out_order(s, 0) = in_order(s, 0);
    if (in_order(s, 0) != layout_plain(in_type(s, 0)->rank)) set_form(s, LAYOUT_AXES);
}

/* ---- sums ---- */

static void reduce(site_t *s) {
    const ir_attr_t *axes = ir_node_attr(s->node, "axes");
    const bool keep = ir_attr_int(s->node, "keep");
    const int32_t rank = in_type(s, 0)->rank;
    int32_t renamed[IR_MAX_RANK], n = 0;
    layout_order_t in = in_order(s, 0), out = 0;
    if (s->d->exact || in == layout_plain(rank)) return;
    for (int32_t dim = 0; dim < rank; dim++) {
        bool reduced = false;
        for (uint32_t i = 0; i < axes->ints.n; i++) reduced |= axes->ints.v[i] == dim;
        renamed[dim] = reduced && !keep ? -1 : n++;
    }
    n = 0;
    for (int32_t i = 0; i < rank; i++)
        if (renamed[layout_at(in, i)] >= 0) out = layout_put(out, n++, renamed[layout_at(in, i)]);
    s->asked[0] = in;
    *out_order(s, 0) = out;
    set_form(s, LAYOUT_AXES);
}

/* ---- results that lie as their operands do ---- */

/* What ranks add up, each element by itself. */
static void each_alike(site_t *s) {
    for (uint32_t j = 0; j < s->node->n_inputs; j++) s->asked[j] = in_order(s, j);
    for (uint32_t k = 0; k < s->node->n_outputs; k++) *out_order(s, k) = in_order(s, k);
}
/* One sum over all elements. */
static void total(site_t *s) {
    if (s->d->exact) return;
    for (uint32_t j = 0; j < s->node->n_inputs; j++) s->asked[j] = in_order(s, j);
}

/* ---- ops with a second form ---- */

/* Operands and results that turn: those of rank 4 but a mask; those with spatial dims. */
static bool turns(const site_t *s, uint32_t j, const ir_type_t *type, bool rows) {
    if (!rows) return type->rank >= 3;
    return type->rank == 4 && !(s->node->op == IR_OP_ATTENTION && j == 3) &&
           !(s->node->op == IR_OP_ATTENTION_GRAD && j == 6);
}
static layout_order_t turned_order(const ir_type_t *type, bool rows) {
    return rows ? layout_rows_first() : layout_channels_last(type->rank);
}

/* Bytes that move for the plain form less those for the other: of operands, and of results that
 * readers would like turned. */
static double gain_of_turning(const site_t *s, bool rows) {
    double gain = 0;
    for (uint32_t j = 0; j < s->node->n_inputs; j++) {
        const ir_type_t *type = in_type(s, j);
        if (turns(s, j, type, rows))
            gain += move_bytes(s, j, layout_plain(type->rank)) -
                    move_bytes(s, j, turned_order(type, rows));
    }
    for (uint32_t k = 0; k < s->node->n_outputs; k++) {
        const layout_order_t want = s->d->want[s->node->first_output + k];
        if (want && want == turned_order(out_type(s, k), rows))
            gain += (double)ir_type_bytes(out_type(s, k));
    }
    return gain;
}

static void turn(site_t *s, bool rows, layout_form_t form) {
    for (uint32_t j = 0; j < s->node->n_inputs; j++)
        if (turns(s, j, in_type(s, j), rows)) s->asked[j] = turned_order(in_type(s, j), rows);
    for (uint32_t k = 0; k < s->node->n_outputs; k++)
        if (turns(s, UINT32_MAX, out_type(s, k), rows))
            *out_order(s, k) = turned_order(out_type(s, k), rows);
    set_form(s, form);
}

static void heads(site_t *s) {
    if (gain_of_turning(s, true) > 0 && layout_can_turn(s->d, s->n, "rows_first"))
        turn(s, true, LAYOUT_TURNED);
}
static void window(site_t *s) {
    if (gain_of_turning(s, false) > 0 && layout_can_turn(s->d, s->n, "channels_last"))
        turn(s, false, LAYOUT_TURNED);
}
static void convolution(site_t *s) {
    if (s->d->conv_last && layout_can_turn(s->d, s->n, "channels_last"))
        turn(s, false, LAYOUT_TURNED);
}
static void channels(site_t *s) {
    if (!s->d->exact && gain_of_turning(s, false) > 0) turn(s, false, LAYOUT_FLAT);
}

/* The operand as it lies, if that is the plain order or that with the matrix transposed. */
static void product(site_t *s) {
    for (uint32_t j = 0; j < 2; j++) {
        const int32_t rank = in_type(s, j)->rank;
        layout_order_t swapped = layout_plain(rank);
        swapped = layout_put(swapped, rank - 2, rank - 1);
        swapped = layout_put(swapped, rank - 1, rank - 2);
        if (layout_alike(s->d, rank, s->node->inputs[j], in_order(s, j), s->asked[j]) ||
            !layout_alike(s->d, rank, s->node->inputs[j], in_order(s, j), swapped))
            continue;
        s->asked[j] = swapped;
        s->d->turn[s->n] |= (uint8_t)(1 << j);
        set_form(s, LAYOUT_FLIPPED);
    }
}

/* ---- the table ---- */

typedef void layout_rule_t(site_t *s);

static layout_rule_t *const rules[IR_OP_END] = {
    [IR_OP_BROADCAST] = spread,
    [IR_OP_CONCAT] = spread,
    [IR_OP_TRANSPOSE] = transpose,
    [IR_OP_RESHAPE] = reshape,
    [IR_OP_SLICE] = slice,
    [IR_OP_REDUCE_SUM] = reduce,
    [IR_OP_REDUCE_MAX] = reduce,
    [IR_OP_REDUCE_MIN] = reduce,
    [IR_OP_REDUCE_PROD] = reduce,
    [IR_OP_SUM_SQUARES] = total,
    [IR_OP_ALL_REDUCE_START] = each_alike,
    [IR_OP_ALL_REDUCE_WAIT] = each_alike,
    [IR_OP_MATMUL] = product,
    [IR_OP_ATTENTION] = heads,
    [IR_OP_ATTENTION_GRAD] = heads,
    [IR_OP_ROPE] = heads,
    [IR_OP_CONV] = convolution,
    [IR_OP_CONV_GRAD_INPUT] = convolution,
    [IR_OP_CONV_GRAD_WEIGHT] = convolution,
    [IR_OP_MAX_POOL] = window,
    [IR_OP_MAX_POOL_GRAD] = window,
    [IR_OP_AVG_POOL] = window,
    [IR_OP_AVG_POOL_GRAD] = window,
    [IR_OP_CHANNEL_SUM] = channels,
    [IR_OP_CHANNEL_CENTERED_SQUARES] = channels,
    [IR_OP_BATCH_NORM_APPLY] = channels,
    [IR_OP_BATCH_NORM_GRAD_SUMS] = channels,
    [IR_OP_BATCH_NORM_GRAD_APPLY] = channels,
};

static site_t site_at(layout_decision_t *d, ir_node_t n) {
    return (site_t){d, n, ir_node(d->graph, n), d->asked + d->first[n]};
}

/* One value may stand twice among the operands; it has one form for both. */
static bool asks_twice(const site_t *s) {
    for (uint32_t j = 0; j < s->node->n_inputs; j++)
        for (uint32_t i = 0; i < j; i++)
            if (s->node->inputs[i] == s->node->inputs[j] && s->asked[i] != s->asked[j]) return true;
    return false;
}

static void all_plain(site_t *s) {
    for (uint32_t j = 0; j < s->node->n_inputs; j++)
        s->asked[j] = layout_plain(in_type(s, j)->rank);
    for (uint32_t k = 0; k < s->node->n_outputs; k++)
        *out_order(s, k) = layout_plain(out_type(s, k)->rank);
    s->d->turn[s->n] = 0;
    set_form(s, LAYOUT_AS_IS);
}

void layout_choose(layout_decision_t *d, ir_node_t n) {
    site_t s = site_at(d, n);
    layout_rule_t *rule = rules[s.node->op];
    all_plain(&s);
    if (!rule && ir_op_def(s.node->op)->flags & IR_ELEMENTWISE && s.node->n_outputs == 1)
        rule = spread;
    if (!rule) return;
    rule(&s);
    if (asks_twice(&s)) all_plain(&s);
}

void layout_wish(layout_decision_t *d, ir_node_t n) {
    site_t s = site_at(d, n);
    layout_rule_t *const rule = rules[s.node->op];
    if (!s.node->n_outputs) return;
    layout_order_t want = d->want[s.node->first_output];
    const int32_t rank = out_type(&s, 0)->rank;
    const bool elementwise = ir_op_def(s.node->op)->flags & IR_ELEMENTWISE;
    const bool turned =
        rule == convolution && d->conv_last && layout_can_turn(d, n, "channels_last");
    const bool passes = want && (rule == window || rule == channels);
    if (!turned && !passes && !(elementwise && want)) return;
    for (uint32_t j = 0; j < s.node->n_inputs; j++) {
        const ir_type_t *type = in_type(&s, j);
        layout_order_t *wanted = &d->want[s.node->inputs[j]];
        if (*wanted || type->rank < 3) continue;
        *wanted =
            elementwise ? layout_tail(want, rank, type->rank) : layout_channels_last(type->rank);
    }
}
