/* Axes of a body's values (nest_axes.h), node by node in the body's order.
 *
 * A dim is a group: a list of classes, its factors, outermost first. Making two dims equal walks
 * both lists from the innermost factor on: factors of equal extent are unified, a larger one is
 * split by the smaller, and where that does not divide it the body is no nest. Splits only refine,
 * so earlier groups stay right: they are resolved to the present factors when they are asked for.
 * After the walk the axes of one value belong to one domain. Linear in the dims, times NEST_ROW_MAX
 * factors. */
#include "ir/nest_axes.h"

#include <string.h>

#include "ir/nest.h"
#include "ir/op.h"

static const char *const too_many_axes = "a value has more axes than a nest keeps apart";
static const char *const no_factors = "a reshape cuts dims at places that are no factors of theirs";
static const char *const meets_itself =
    "a value meets itself with its dims in another order, or one dim twice";

/* ---- classes and groups ---- */

static uint32_t root(const nest_axes_t *axes, uint32_t class) {
    while (axes->classes.data[class].parent != class) class = axes->classes.data[class].parent;
    return class;
}

static uint32_t new_class(nest_axes_t *axes, int64_t extent) {
    uint32_t id = (uint32_t)axes->classes.n;
    nest_class_t class = {.extent = extent, .parent = id, .domain = id};
    if (axes->status == ST_OK) axes->status = ST_VEC_PUSH(&axes->classes, class);
    return axes->status == ST_OK ? id : 0;
}

static uint32_t new_group(nest_axes_t *axes, uint32_t n, const uint32_t *class) {
    uint32_t id = (uint32_t)axes->members.n;
    if (axes->status == ST_OK) axes->status = ST_VEC_PUSH(&axes->members, n);
    for (uint32_t i = 0; i < n && axes->status == ST_OK; i++)
        axes->status = ST_VEC_PUSH(&axes->members, class[i]);
    return axes->status == ST_OK ? id : 0;
}

static uint32_t fresh(nest_axes_t *axes, int64_t extent) {
    if (extent == 1) return 0;
    uint32_t class = new_class(axes, extent);
    return new_group(axes, 1, &class);
}

/* Appends the unsplit roots of `class`; false: too many. */
static bool resolve(const nest_axes_t *axes, uint32_t class, nest_row_t *row) {
    class = root(axes, class);
    const nest_class_t *c = &axes->classes.data[class];
    if (c->high) return resolve(axes, c->high, row) && resolve(axes, c->low, row);
    if (row->n == NEST_ROW_MAX) return false;
    row->axis[row->n++] = class;
    return true;
}

static bool resolve_group(const nest_axes_t *axes, uint32_t group, nest_row_t *row) {
    if (group == 0) return true;
    for (uint32_t i = 0; i < axes->members.data[group]; i++)
        if (!resolve(axes, axes->members.data[group + 1 + i], row)) return false;
    return true;
}

static uint32_t *groups_of(const nest_axes_t *axes, ir_value_t value) {
    return axes->groups + (size_t)value * IR_MAX_RANK;
}

nest_row_t nest_axes_dim(const nest_axes_t *axes, ir_value_t value, int32_t dim) {
    nest_row_t row = {0};
    (void)resolve_group(axes, groups_of(axes, value)[dim], &row);
    return row;
}

nest_row_t nest_axes_all(const nest_axes_t *axes, ir_value_t value, int32_t rank) {
    nest_row_t row = {0};
    for (int32_t d = 0; d < rank; d++) (void)resolve_group(axes, groups_of(axes, value)[d], &row);
    return row;
}

/* ---- unification ---- */

/* Makes the two rows one: from the innermost axes on, the longer is split where the shorter
 * ends. */
static void unify(nest_axes_t *axes, nest_row_t a, nest_row_t b) {
    while (a.n && b.n && axes->status == ST_OK && !axes->reason) {
        uint32_t x = a.axis[a.n - 1], y = b.axis[b.n - 1];
        int64_t ex = axes->classes.data[x].extent, ey = axes->classes.data[y].extent;
        if (root(axes, x) != x || root(axes, y) != y || axes->classes.data[x].high ||
            axes->classes.data[y].high) { /* changed on the way: it is in both rows */
            axes->reason = meets_itself;
            return;
        }
        if (x == y || ex == ey) { /* the older stays: chains of parents stay short */
            axes->classes.data[x > y ? x : y].parent = x > y ? y : x;
            a.n--, b.n--;
            continue;
        }
        nest_row_t *longer = ex > ey ? &a : &b;
        uint32_t split = ex > ey ? x : y, end = ex > ey ? y : x;
        int64_t whole = ex > ey ? ex : ey, part = ex > ey ? ey : ex;
        if (part == 0 || whole % part != 0) {
            axes->reason = no_factors;
            return;
        }
        uint32_t high = new_class(axes, whole / part);
        if (axes->status != ST_OK) return;
        axes->classes.data[split].high = high;
        axes->classes.data[split].low = end;
        longer->axis[longer->n - 1] = high;
        (longer == &a ? &b : &a)->n--;
    }
    if ((a.n || b.n) && axes->status == ST_OK && !axes->reason) axes->reason = no_factors;
}

static void unify_groups(nest_axes_t *axes, uint32_t a, uint32_t b) {
    nest_row_t ra = {0}, rb = {0};
    if (a == b) return;
    if (!resolve_group(axes, a, &ra) || !resolve_group(axes, b, &rb))
        axes->reason = too_many_axes;
    else
        unify(axes, ra, rb);
}

/* ---- ops ---- */

typedef struct step {
    nest_axes_t *axes;
    const ir_graph_t *body;
    const ir_node_info_t *node;
    const ir_type_t *out;
    uint32_t *to;
} step_t;

static const ir_type_t *in_type(const step_t *s, uint32_t j) {
    return ir_value_type(s->body, s->node->inputs[j]);
}
static const uint32_t *in_groups(const step_t *s, uint32_t j) {
    return groups_of(s->axes, s->node->inputs[j]);
}

static void all_fresh(const step_t *s) {
    for (int32_t d = 0; d < s->out->rank; d++) s->to[d] = fresh(s->axes, s->out->dims[d]);
}

/* NumPy's broadcasting of all inputs. */
static void broadcasting(const step_t *s) {
    for (int32_t d = 0; d < s->out->rank; d++) {
        for (uint32_t j = 0; j < s->node->n_inputs; j++) {
            int32_t own = d - (s->out->rank - in_type(s, j)->rank);
            if (own < 0 || in_type(s, j)->dims[own] != s->out->dims[d]) continue;
            if (s->to[d] == 0)
                s->to[d] = in_groups(s, j)[own];
            else
                unify_groups(s->axes, s->to[d], in_groups(s, j)[own]);
        }
        if (s->to[d] == 0) s->to[d] = fresh(s->axes, s->out->dims[d]);
    }
}

static void reshape(const step_t *s) {
    nest_row_t from = {0}, to = {0};
    all_fresh(s);
    bool fits = true;
    for (int32_t d = 0; d < in_type(s, 0)->rank && fits; d++)
        fits = resolve_group(s->axes, in_groups(s, 0)[d], &from);
    for (int32_t d = 0; d < s->out->rank && fits; d++) fits = resolve_group(s->axes, s->to[d], &to);
    if (!fits) s->axes->reason = too_many_axes;
    if (s->axes->status == ST_OK && !s->axes->reason) unify(s->axes, from, to);
}

static void transpose(const step_t *s) {
    const int64_t *perm = ir_node_attr(s->node, "perm")->ints.v;
    for (int32_t d = 0; d < s->out->rank; d++) s->to[d] = in_groups(s, 0)[perm[d]];
}

static void reduce(const step_t *s) {
    const ir_attr_t *axes = ir_node_attr(s->node, "axes");
    const bool keep = ir_attr_int(s->node, "keep");
    int32_t at = 0;
    for (int32_t d = 0; d < in_type(s, 0)->rank; d++) {
        bool reduced = false;
        for (uint32_t i = 0; i < axes->ints.n; i++) reduced |= axes->ints.v[i] == d;
        if (!reduced) s->to[at++] = in_groups(s, 0)[d];
        if (reduced && keep) s->to[at++] = 0;
    }
}

/* Slice and flip: a dim that is not taken as it is gets axes of its own. */
static void sliced(const step_t *s) {
    const ir_type_t *x = in_type(s, 0);
    const ir_attr_t *flipped = s->node->op == IR_OP_FLIP ? ir_node_attr(s->node, "axes") : NULL;
    for (int32_t d = 0; d < x->rank; d++) {
        bool whole = true;
        if (flipped)
            for (uint32_t i = 0; i < flipped->ints.n; i++) whole &= flipped->ints.v[i] != d;
        else
            whole = ir_node_attr(s->node, "begin")->ints.v[d] == 0 && s->out->dims[d] == x->dims[d];
        s->to[d] = whole ? in_groups(s, 0)[d] : fresh(s->axes, s->out->dims[d]);
    }
}

static void gather(const step_t *s) {
    const int32_t axis = (int32_t)ir_attr_int(s->node, "axis");
    const ir_type_t *x = in_type(s, 0), *index = in_type(s, 1);
    int32_t at = 0;
    for (int32_t d = 0; d < axis; d++) s->to[at++] = in_groups(s, 0)[d];
    for (int32_t d = 0; d < index->rank; d++) s->to[at++] = in_groups(s, 1)[d];
    for (int32_t d = axis + 1; d < x->rank; d++) s->to[at++] = in_groups(s, 0)[d];
}

static void gather_along(const step_t *s) {
    const int32_t axis = (int32_t)ir_attr_int(s->node, "axis");
    for (int32_t d = 0; d < s->out->rank; d++) {
        s->to[d] = in_groups(s, 1)[d];
        if (d != axis) unify_groups(s->axes, s->to[d], in_groups(s, 0)[d]);
    }
}

static void as_operand(const step_t *s) {
    for (int32_t d = 0; d < s->out->rank; d++) s->to[d] = in_groups(s, 0)[d];
}

/* Ops with a form in nests beside the elementwise ones. */
static void (*const steps[IR_OP_END])(const step_t *s) = {
    [IR_OP_INPUT] = all_fresh,    [IR_OP_CONSTANT] = all_fresh,
    [IR_OP_IOTA] = all_fresh,     [IR_OP_RANDOM_UNIFORM] = all_fresh,
    [IR_OP_DROPOUT] = as_operand, [IR_OP_BROADCAST] = broadcasting,
    [IR_OP_RESHAPE] = reshape,    [IR_OP_TRANSPOSE] = transpose,
    [IR_OP_REDUCE_SUM] = reduce,  [IR_OP_REDUCE_MAX] = reduce,
    [IR_OP_REDUCE_MIN] = reduce,  [IR_OP_REDUCE_PROD] = reduce,
    [IR_OP_SLICE] = sliced,       [IR_OP_FLIP] = sliced,
    [IR_OP_GATHER] = gather,      [IR_OP_GATHER_ALONG] = gather_along,
};

static void take_step(const step_t *s) {
    if (steps[s->node->op])
        steps[s->node->op](s);
    else if (ir_op_def(s->node->op)->flags & IR_ELEMENTWISE)
        broadcasting(s);
    else
        s->axes->reason = "an op has no form as a loop nest";
}

bool nest_takes(ir_op_t op) {
    const ir_op_def_t *def = ir_op_def(op);
    if (def->flags & IR_CONTRACTION) return false;
    return steps[op] || (def->flags & (IR_ELEMENTWISE | IR_VIEW)) || def->define || def->expand;
}

/* ---- domains ---- */

uint32_t nest_axes_domain(const nest_axes_t *axes, uint32_t axis) {
    while (axes->classes.data[axis].domain != axis) axis = axes->classes.data[axis].domain;
    return axis;
}

/* The axes that one value has are of one domain, and each is there once. */
static void join_domains(nest_axes_t *axes, ir_value_t value, int32_t rank) {
    nest_row_t row = {0};
    for (int32_t d = 0; d < rank; d++)
        if (!resolve_group(axes, groups_of(axes, value)[d], &row)) {
            axes->reason = too_many_axes;
            return;
        }
    for (uint32_t i = 0; i < row.n; i++) {
        for (uint32_t k = 0; k < i; k++)
            if (row.axis[k] == row.axis[i]) axes->reason = meets_itself;
        uint32_t a = nest_axes_domain(axes, row.axis[0]), b = nest_axes_domain(axes, row.axis[i]);
        axes->classes.data[b].domain = a;
    }
}

st_status_t nest_axes_build(nest_axes_t *axes, const ir_graph_t *body, const bool *live) {
    *axes = (nest_axes_t){0};
    axes->groups = st_calloc(body->values.n * IR_MAX_RANK + 1, sizeof *axes->groups);
    if (!axes->groups)
        return st_no_memory(body->values.n * IR_MAX_RANK * sizeof(uint32_t), "the axes of a nest");
    (void)new_class(axes, 1);
    (void)new_group(axes, 0, NULL);
    for (ir_node_t i = 0; i < body->nodes.n && axes->status == ST_OK && !axes->reason; i++) {
        if (!live[i]) continue;
        const ir_node_info_t *node = ir_node(body, i);
        if (node->n_outputs != 1) {
            axes->reason = "an op has no form as a loop nest";
            break;
        }
        step_t step = {axes, body, node, ir_value_type(body, node->first_output),
                       groups_of(axes, node->first_output)};
        take_step(&step);
    }
    for (ir_node_t i = 0; i < body->nodes.n && axes->status == ST_OK && !axes->reason; i++)
        if (live[i]) {
            ir_value_t value = ir_node(body, i)->first_output;
            join_domains(axes, value, ir_value_type(body, value)->rank);
        }
    return axes->status;
}

void nest_axes_free(nest_axes_t *axes) {
    ST_VEC_FREE(&axes->classes);
    ST_VEC_FREE(&axes->members);
    st_free(axes->groups);
    axes->groups = NULL;
}
