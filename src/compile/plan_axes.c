/* Which values share the points of one iteration (plan_reuse.h).
 *
 * Problem: a kernel runs over all points of the values that share axes; a result that lies on an
 * operand needs that no result made among them has an axis of its own.
 * Algorithm: union-find over the dims of all values. Dims that an op walks together are of one kin,
 * as are all dims that a reshape cuts from one another: an axis, or a piece of one, is of one kin,
 * which may hold several. Parts: kins that some value has together. So a value with no other axes
 * than another has a product of extents, kin by kin, that divides the other's. Dims of one element
 * have no axis. Almost linear in the dims. */
#include <string.h>

#include "compile/plan_reuse.h"
#include "ir/op.h"
#include "ir/structure.h"

static const ir_type_t *type_of(const plan_axes_t *axes, ir_value_t v) {
    return ir_value_type(axes->graph, v);
}

static uint32_t root(uint32_t *parent, uint32_t dim) {
    while (parent[dim] != dim) dim = parent[dim] = parent[parent[dim]];
    return dim;
}

static void join(uint32_t *parent, uint32_t a, uint32_t b) {
    parent[root(parent, a)] = root(parent, b);
}

/* Dim a of `v` and dim b of `w`: one axis, unless there is none. */
static void join_dims(plan_axes_t *axes, ir_value_t v, int32_t a, ir_value_t w, int32_t b) {
    if (type_of(axes, v)->dims[a] != 1 && type_of(axes, v)->dims[a] == type_of(axes, w)->dims[b])
        join(axes->kin, axes->first[v] + (uint32_t)a, axes->first[w] + (uint32_t)b);
}

static bool holds(const ir_attr_t *list, int64_t dim) {
    for (uint32_t i = 0; i < list->ints.n; i++)
        if (list->ints.v[i] == dim) return true;
    return false;
}

static void broadcasting(plan_axes_t *axes, const ir_node_info_t *node) {
    const ir_value_t out = node->first_output;
    for (uint32_t j = 0; j < node->n_inputs; j++) {
        const ir_value_t in = node->inputs[j];
        const int32_t missing = type_of(axes, out)->rank - type_of(axes, in)->rank;
        for (int32_t d = 0; d < type_of(axes, in)->rank; d++)
            join_dims(axes, in, d, out, d + missing);
    }
}

/* From the innermost dims on: up to where both have as many elements, all are of one kin. */
static void reshape(plan_axes_t *axes, const ir_node_info_t *node) {
    const ir_value_t in = node->inputs[0], out = node->first_output;
    const ir_type_t *x = type_of(axes, in), *y = type_of(axes, out);
    int32_t i = x->rank, o = y->rank;
    int64_t n = 1, m = 1;
    uint32_t last = UINT32_MAX; /* of the kin at hand */
    if (ir_type_elements(x) == 0) return;
    while (i > 0 || o > 0) {
        const bool of_in = i > 0 && (n <= m || o == 0);
        const int32_t d = of_in ? --i : --o;
        const int64_t extent = of_in ? x->dims[d] : y->dims[d];
        if (extent == 1) continue;
        const uint32_t dim = axes->first[of_in ? in : out] + (uint32_t)d;
        if (last != UINT32_MAX) join(axes->kin, dim, last);
        if (of_in)
            n *= extent;
        else
            m *= extent;
        last = n == m ? UINT32_MAX : dim;
    }
}

/* Dims that are taken whole. */
static void slice(plan_axes_t *axes, const ir_node_info_t *node) {
    const ir_value_t in = node->inputs[0], out = node->first_output;
    for (int32_t d = 0; d < type_of(axes, in)->rank; d++)
        if (node->op == IR_OP_FLIP ? !holds(ir_node_attr(node, "axes"), d)
                                   : ir_node_attr(node, "begin")->ints.v[d] == 0)
            join_dims(axes, in, d, out, d);
}

static void reduce(plan_axes_t *axes, const ir_node_info_t *node) {
    const bool keep = ir_attr_int(node, "keep") != 0;
    const ir_value_t in = node->inputs[0];
    int32_t at = 0;
    for (int32_t d = 0; d < type_of(axes, in)->rank; d++) {
        const bool reduced = holds(ir_node_attr(node, "axes"), d);
        if (!reduced) join_dims(axes, in, d, node->first_output, at);
        at += !reduced || keep;
    }
}

static void gather(plan_axes_t *axes, const ir_node_info_t *node) {
    const int32_t axis = (int32_t)ir_attr_int(node, "axis");
    const ir_value_t data = node->inputs[0], index = node->inputs[1], out = node->first_output;
    const int32_t rank = type_of(axes, index)->rank;
    for (int32_t d = 0; d < type_of(axes, data)->rank; d++)
        if (d != axis) join_dims(axes, data, d, out, d < axis ? d : d - 1 + rank);
    for (int32_t d = 0; d < rank; d++) join_dims(axes, index, d, out, axis + d);
}

static void gather_along(plan_axes_t *axes, const ir_node_info_t *node) {
    const int32_t axis = (int32_t)ir_attr_int(node, "axis");
    for (int32_t d = 0; d < type_of(axes, node->first_output)->rank; d++) {
        join_dims(axes, node->inputs[1], d, node->first_output, d);
        if (d != axis) join_dims(axes, node->inputs[0], d, node->first_output, d);
    }
}

static void transpose(plan_axes_t *axes, const ir_node_info_t *node) {
    const int64_t *perm = ir_node_attr(node, "perm")->ints.v;
    for (int32_t d = 0; d < type_of(axes, node->first_output)->rank; d++)
        join_dims(axes, node->inputs[0], (int32_t)perm[d], node->first_output, d);
}

/* The first input's dims; a dropout's others are seeds. */
static void as_operand(plan_axes_t *axes, const ir_node_info_t *node) {
    for (int32_t d = 0; d < type_of(axes, node->first_output)->rank; d++)
        join_dims(axes, node->inputs[0], d, node->first_output, d);
}

static void (*const by_op[IR_OP_END])(plan_axes_t *axes, const ir_node_info_t *node) = {
    [IR_OP_BROADCAST] = broadcasting,
    [IR_OP_RESHAPE] = reshape,
    [IR_OP_TRANSPOSE] = transpose,
    [IR_OP_DROPOUT] = as_operand,
    [IR_OP_SLICE] = slice,
    [IR_OP_FLIP] = slice,
    [IR_OP_REDUCE_SUM] = reduce,
    [IR_OP_REDUCE_PROD] = reduce,
    [IR_OP_REDUCE_MAX] = reduce,
    [IR_OP_REDUCE_MIN] = reduce,
    [IR_OP_GATHER] = gather,
    [IR_OP_GATHER_ALONG] = gather_along,
};

static void look_at(plan_axes_t *axes, const ir_node_info_t *node) {
    if (by_op[node->op])
        by_op[node->op](axes, node);
    else if (ir_op_def(node->op)->flags & IR_ELEMENTWISE)
        broadcasting(axes, node);
}

/* The first dim with an axis; the rank: none. */
static int32_t first_axis(const ir_type_t *type) {
    int32_t d = 0;
    while (d < type->rank && type->dims[d] == 1) d++;
    return d;
}

static void find_parts(plan_axes_t *axes, const bool *live) {
    const ir_graph_t *g = axes->graph;
    const uint32_t n = axes->first[g->values.n];
    for (uint32_t dim = 0; dim < n; dim++) axes->part[dim] = dim;
    for (uint32_t dim = 0; dim < n; dim++) join(axes->part, dim, root(axes->kin, dim));
    for (ir_value_t v = 0; v < g->values.n; v++) {
        const ir_type_t *type = type_of(axes, v);
        if (!live[g->values.data[v].producer]) continue;
        const int32_t top = first_axis(type);
        for (int32_t d = top + 1; d < type->rank; d++)
            if (type->dims[d] != 1)
                join(axes->part, axes->first[v] + (uint32_t)d, axes->first[v] + (uint32_t)top);
    }
}

st_status_t plan_axes_find(const ir_graph_t *graph, const bool *live, st_arena_t *arena,
                           plan_axes_t *out_axes) {
    plan_axes_t axes = {.graph = graph};
    axes.first = st_arena_array(arena, graph->values.n + 1, sizeof *axes.first);
    if (!axes.first)
        return st_no_memory(graph->values.n * sizeof *axes.first, "the proof of a fused node");
    uint32_t n = 0;
    for (ir_value_t v = 0; v < graph->values.n; v++) {
        axes.first[v] = n;
        n += (uint32_t)type_of(&axes, v)->rank;
    }
    axes.first[graph->values.n] = n;
    axes.kin = st_arena_array(arena, (size_t)n + 1, sizeof *axes.kin);
    axes.part = st_arena_array(arena, (size_t)n + 1, sizeof *axes.part);
    if (!axes.kin || !axes.part)
        return st_no_memory(n * sizeof *axes.kin, "the proof of a fused node");
    for (uint32_t dim = 0; dim < n; dim++) axes.kin[dim] = dim;
    for (ir_node_t i = 0; i < graph->nodes.n; i++)
        if (live[i] && ir_node(graph, i)->n_outputs == 1) look_at(&axes, ir_node(graph, i));
    find_parts(&axes, live);
    *out_axes = axes;
    return ST_OK;
}

bool plan_axes_meet(const plan_axes_t *axes, ir_value_t v, ir_value_t w) {
    const int32_t a = first_axis(type_of(axes, v)), b = first_axis(type_of(axes, w));
    return a < type_of(axes, v)->rank && b < type_of(axes, w)->rank &&
           root(axes->part, axes->first[v] + (uint32_t)a) ==
               root(axes->part, axes->first[w] + (uint32_t)b);
}

/* The elements that `v` has along a kin. */
static int64_t extent_of(const plan_axes_t *axes, ir_value_t v, uint32_t kin) {
    int64_t n = 1;
    for (int32_t d = 0; d < type_of(axes, v)->rank; d++)
        if (root(axes->kin, axes->first[v] + (uint32_t)d) == kin) n *= type_of(axes, v)->dims[d];
    return n;
}

bool plan_axes_within(const plan_axes_t *axes, ir_value_t v, ir_value_t w) {
    if (ir_type_elements(type_of(axes, v)) == 0) return true;
    for (int32_t d = 0; d < type_of(axes, v)->rank; d++) {
        const uint32_t kin = root(axes->kin, axes->first[v] + (uint32_t)d);
        if (extent_of(axes, w, kin) % extent_of(axes, v, kin)) return false;
    }
    return true;
}
