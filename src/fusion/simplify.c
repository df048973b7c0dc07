/* Simplify.
 *
 * Problem: captured graphs and gradient rules leave dead values, repeated subexpressions, casts and
 * reshapes that undo each other, and arithmetic on constants.
 * In, out: any verified graph. Each replaced value has the type of the value it replaces.
 * Algorithm: sweeps to a fixed point. A sweep marks what is live from the back, then rewrites from
 * the front into a new graph: a node meets inputs that are simplified already, a rule (one per op)
 * may name a value that does the same, else all-constant nodes are evaluated, else an equal node
 * made before is taken (structural hash of op, attributes and inputs), else the node is copied. A
 * sweep that rewrites nothing ends it; what a rule orphans dies in the next sweep. Bodies of control
 * flow are simplified by themselves, and what crosses their borders unread is cut (trim.h).
 * Complexity: linear a sweep, two or three sweeps in practice, MAX_SWEEPS at most.
 * Deterministic: order of nodes and content hashes only. */
#include "fusion/simplify.h"

#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "fusion/fold.h"
#include "fusion/trim.h"
#include "ir/convert.h"
#include "ir/structure.h"

enum { MAX_SWEEPS = 32, MAX_ATTRS = 64, MAX_FOLD_OUTPUTS = 64 };

typedef struct seen {
    uint64_t hash;
    ir_node_t node; /* in `to`, plus one; 0: empty */
} seen_t;

typedef struct sweep {
    const ir_graph_t *from;
    const ir_target_t *target;
    fuse_folding_t folding;
    ir_graph_t *to;
    uint8_t *live;   /* [from nodes] */
    ir_value_t *map; /* [from values] → value of `to` */
    seen_t *seen;    /* nodes of `to` by structure; at most half full */
    size_t seen_capacity, n_seen;
    ST_VEC(ir_value_t) inputs; /* of the node at hand, in `to` */
    size_t n_rewrites;
} sweep_t;

/* ---- equal nodes ---- */

/* Inputs and state are themselves, whatever their attributes; effects happen each time. */
static bool is_mergeable(ir_op_t op) {
    const uint32_t fixed = IR_SIDE_EFFECT | IR_COLLECTIVE | IR_STATE;
    return op != IR_OP_INPUT && !(ir_op_def(op)->flags & fixed);
}

static uint64_t structure_hash(ir_op_t op, const ir_attr_t *attrs, uint32_t n_inputs,
                               const ir_value_t *inputs) {
    return ir_attrs_hash(op, attrs, st_hash64(inputs, n_inputs * sizeof *inputs, n_inputs));
}

static seen_t *seen_slot(const sweep_t *s, ir_op_t op, const ir_attr_t *attrs, uint32_t n_inputs,
                         const ir_value_t *inputs, uint64_t hash) {
    size_t i = (size_t)hash & (s->seen_capacity - 1);
    for (;; i = (i + 1) & (s->seen_capacity - 1)) {
        seen_t *slot = &s->seen[i];
        if (!slot->node) return slot;
        if (slot->hash != hash) continue;
        const ir_node_info_t *node = ir_node(s->to, slot->node - 1);
        if (node->op == op && node->n_inputs == n_inputs &&
            (n_inputs == 0 || memcmp(node->inputs, inputs, n_inputs * sizeof *inputs) == 0) &&
            ir_attrs_equal(op, node->attrs, attrs))
            return slot;
    }
}

static st_status_t seen_grow(sweep_t *s) {
    seen_t *old = s->seen;
    size_t old_capacity = s->seen_capacity, capacity = old_capacity ? old_capacity * 2 : 64;
    seen_t *made = st_calloc(capacity, sizeof *made);
    if (!made) return st_no_memory(capacity * sizeof *made, "the simplify pass");
    for (size_t i = 0; i < old_capacity; i++) {
        if (!old[i].node) continue;
        size_t at = (size_t)old[i].hash & (capacity - 1);
        while (made[at].node) at = (at + 1) & (capacity - 1);
        made[at] = old[i];
    }
    st_free(old);
    s->seen = made;
    s->seen_capacity = capacity;
    return ST_OK;
}

/* A node of `to` with this structure: one made before, which then belongs to the earlier of both
 * phases, else a new one. */
static st_status_t emit(sweep_t *s, ir_op_t op, const char *name, uint32_t n_inputs,
                        const ir_value_t *inputs, const ir_attr_t *attrs, ir_value_t *out_first,
                        bool *out_found) {
    const ir_op_def_t *def = ir_op_def(op);
    uint32_t n_attrs = ir_op_n_attrs(def);
    ir_arg_t args[MAX_ATTRS];
    seen_t *slot = NULL;
    uint64_t hash = 0;
    *out_found = false;
    if (is_mergeable(op)) {
        if (s->n_seen >= s->seen_capacity / 2) TRY(seen_grow(s));
        hash = structure_hash(op, attrs, n_inputs, inputs);
        slot = seen_slot(s, op, attrs, n_inputs, inputs, hash);
        if (slot->node) {
            ir_node_info_t *node = &s->to->nodes.data[slot->node - 1];
            if (s->to->phase < node->phase) node->phase = s->to->phase;
            *out_first = node->first_output;
            *out_found = true;
            return ST_OK;
        }
    }
    ASSERT(n_attrs <= MAX_ATTRS);
    for (uint32_t i = 0; i < n_attrs; i++) args[i] = (ir_arg_t){def->attrs[i].key, attrs[i]};
    TRY(ir_graph_add(s->to, op, name, n_inputs, inputs, n_attrs, args, out_first));
    if (slot) {
        *slot = (seen_t){hash, (ir_node_t)s->to->nodes.n};
        s->n_seen++;
    }
    return ST_OK;
}

/* emit with attributes by key, the others at their default. */
static st_status_t emit_args(sweep_t *s, ir_op_t op, const char *name, uint32_t n_inputs,
                             const ir_value_t *inputs, size_t n_args, const ir_arg_t *args,
                             ir_value_t *out_first) {
    const ir_op_def_t *def = ir_op_def(op);
    ir_attr_t attrs[MAX_ATTRS];
    bool found;
    for (uint32_t i = 0; i < ir_op_n_attrs(def); i++) {
        attrs[i] = ir_attr_default(&def->attrs[i]);
        for (size_t a = 0; a < n_args; a++)
            if (strcmp(args[a].key, def->attrs[i].key) == 0) attrs[i] = args[a].value;
    }
    return emit(s, op, name, n_inputs, inputs, attrs, out_first, &found);
}

static st_status_t emit_constant(sweep_t *s, const char *name, const ir_type_t *type,
                                 const void *data, size_t bytes, ir_value_t *out) {
    return emit_args(s, IR_OP_CONSTANT, name, 0, NULL, 3,
                     (ir_arg_t[]){IR_ARG_DTYPE("dtype", type->dtype),
                                  IR_ARG_INTS("shape", type->dims, type->rank),
                                  IR_ARG_DATA("data", data, bytes)},
                     out);
}

/* ---- rules ---- */

/* A rule looks at one node of `from` whose inputs are `in` of `to`, and may set *out (IR_NONE so
 * far) to a value of `to` that equals the node's only output. */
typedef st_status_t rule_t(sweep_t *s, const ir_node_info_t *node, const ir_value_t *in,
                           ir_value_t *out);

static const ir_type_t *result_type(const sweep_t *s, const ir_node_info_t *node) {
    return ir_value_type(s->from, node->first_output);
}
static bool has_type(const sweep_t *s, ir_value_t value, const ir_type_t *type) {
    return ir_type_equal(ir_value_type(s->to, value), type);
}
/* Producer of `value` if it is an `op`. Valid until the next emit. */
static const ir_node_info_t *made_by(const sweep_t *s, ir_value_t value, ir_op_t op) {
    const ir_node_info_t *node = ir_value_producer(s->to, value);
    return node->op == op ? node : NULL;
}

/* Whether `value` is a constant with all elements equal to a small whole number. */
static bool is_all(const sweep_t *s, ir_value_t value, int64_t number) {
    const void *element = fuse_splat(s->to, value);
    ir_dtype_t dtype = ir_value_type(s->to, value)->dtype;
    if (!element) return false;
    if (ir_dtype_is_float(dtype)) return ir_element_load(dtype, element, 0) == (double)number;
    return ir_element_load_i64(dtype, element, 0) == number;
}

/* A splat stays one when only the shape changes. */
static st_status_t reshape_splat(sweep_t *s, const ir_node_info_t *node, ir_value_t x,
                                 ir_value_t *out) {
    const void *element = fuse_splat(s->to, x);
    ir_type_t type = *result_type(s, node);
    if (!element || ir_type_elements(ir_value_type(s->to, x)) == 0) return ST_OK;
    return emit_constant(s, node->name, &type, element, ir_dtype_bytes(type.dtype), out);
}

static st_status_t simplify_constant(sweep_t *s, const ir_node_info_t *node, const ir_value_t *in,
                                     ir_value_t *out) {
    (void)in;
    ir_type_t type = *result_type(s, node);
    const ir_attr_t *data = ir_node_attr(node, "data");
    if (data->data.bytes != ir_type_bytes(&type)) return ST_OK;
    size_t packed = fuse_packed_bytes(&type, data->data.p);
    if (packed == data->data.bytes) return ST_OK;
    return emit_constant(s, node->name, &type, data->data.p, packed, out);
}

static st_status_t simplify_reshape(sweep_t *s, const ir_node_info_t *node, const ir_value_t *in,
                                    ir_value_t *out) {
    ir_type_t type = *result_type(s, node);
    const ir_node_info_t *inner = made_by(s, in[0], IR_OP_RESHAPE);
    ir_value_t x = inner ? inner->inputs[0] : in[0];
    if (has_type(s, x, &type)) {
        *out = x;
        return ST_OK;
    }
    TRY(reshape_splat(s, node, in[0], out));
    if (*out != IR_NONE) return ST_OK;
    const ir_node_info_t *constant = made_by(s, in[0], IR_OP_CONSTANT);
    if (constant) {
        const ir_attr_t *data = ir_node_attr(constant, "data");
        if (data->data.bytes != ir_type_bytes(&type) || data->data.bytes > FUSE_FOLD_MAX_BYTES)
            return ST_OK;
        return emit_constant(s, node->name, &type, data->data.p, data->data.bytes, out);
    }
    if (!inner) return ST_OK;
    return emit_args(s, IR_OP_RESHAPE, node->name, 1, &x, 1,
                     (ir_arg_t[]){IR_ARG_INTS("shape", type.dims, type.rank)}, out);
}

static st_status_t simplify_broadcast(sweep_t *s, const ir_node_info_t *node, const ir_value_t *in,
                                      ir_value_t *out) {
    ir_type_t type = *result_type(s, node);
    if (has_type(s, in[0], &type)) {
        *out = in[0];
        return ST_OK;
    }
    TRY(reshape_splat(s, node, in[0], out));
    const ir_node_info_t *inner = made_by(s, in[0], IR_OP_BROADCAST);
    if (*out != IR_NONE || !inner) return ST_OK;
    ir_value_t x = inner->inputs[0];
    return emit_args(s, IR_OP_BROADCAST, node->name, 1, &x, 1,
                     (ir_arg_t[]){IR_ARG_INTS("shape", type.dims, type.rank)}, out);
}

/* The permutation of a transpose, normalized. */
static void read_perm(const ir_node_info_t *node, int32_t rank, int64_t *perm) {
    const ir_attr_t *attr = ir_node_attr(node, "perm");
    for (int32_t i = 0; i < rank; i++) {
        perm[i] = attr->ints.v[i] < 0 ? attr->ints.v[i] + rank : attr->ints.v[i];
        ASSERT(perm[i] >= 0 && perm[i] < rank);
    }
}

static st_status_t simplify_transpose(sweep_t *s, const ir_node_info_t *node, const ir_value_t *in,
                                      ir_value_t *out) {
    int32_t rank = result_type(s, node)->rank;
    int64_t outer[IR_MAX_RANK], perm[IR_MAX_RANK], composed[IR_MAX_RANK];
    read_perm(node, rank, outer);
    const ir_node_info_t *inner = made_by(s, in[0], IR_OP_TRANSPOSE);
    ir_value_t x = inner ? inner->inputs[0] : in[0];
    bool identity = true;
    if (inner) read_perm(inner, rank, perm);
    for (int32_t i = 0; i < rank; i++) {
        composed[i] = inner ? perm[outer[i]] : outer[i];
        identity &= composed[i] == i;
    }
    if (identity) {
        *out = x;
        return ST_OK;
    }
    TRY(reshape_splat(s, node, in[0], out));
    if (*out != IR_NONE || !inner) return ST_OK;
    return emit_args(s, IR_OP_TRANSPOSE, node->name, 1, &x, 1,
                     (ir_arg_t[]){IR_ARG_INTS("perm", composed, rank)}, out);
}

static st_status_t simplify_slice(sweep_t *s, const ir_node_info_t *node, const ir_value_t *in,
                                  ir_value_t *out) {
    const ir_type_t *type = result_type(s, node);
    const ir_attr_t *step = ir_node_attr(node, "step");
    bool whole = has_type(s, in[0], type);
    for (int32_t i = 0; whole && i < type->rank; i++)
        whole = step->ints.v[i] == 1 || type->dims[i] < 2;
    if (whole) *out = in[0];
    return whole ? ST_OK : reshape_splat(s, node, in[0], out);
}

/* One input, and a result of its type, for the ops where that says they do nothing. */
static st_status_t simplify_same_type(sweep_t *s, const ir_node_info_t *node, const ir_value_t *in,
                                      ir_value_t *out) {
    if (node->n_inputs == 1 && has_type(s, in[0], result_type(s, node))) *out = in[0];
    return ST_OK;
}

/* a → b → c is a → c where a → b is exact: c then starts from the same number. Integers reach
 * integers by wrapping but floats by saturating, so an integer's way over a float to an integer
 * stays. */
static st_status_t simplify_cast(sweep_t *s, const ir_node_info_t *node, const ir_value_t *in,
                                 ir_value_t *out) {
    TRY(simplify_same_type(s, node, in, out));
    const ir_node_info_t *inner = made_by(s, in[0], IR_OP_CAST);
    if (*out != IR_NONE || !inner) return ST_OK;
    ir_value_t x = inner->inputs[0];
    ir_dtype_t a = ir_value_type(s->to, x)->dtype, b = ir_value_type(s->to, in[0])->dtype;
    ir_dtype_t c = result_type(s, node)->dtype;
    if (!fuse_cast_is_exact(a, b)) return ST_OK;
    if (a == c) {
        *out = x;
        return ST_OK;
    }
    if (ir_dtype_is_integer(a) && ir_dtype_is_float(b) && ir_dtype_is_integer(c)) return ST_OK;
    return emit_args(s, IR_OP_CAST, node->name, 1, &x, 1, (ir_arg_t[]){IR_ARG_DTYPE("dtype", c)},
                     out);
}

/* x op number = x, where the result has x's type (the constant does not broadcast x). */
static void neutral(const sweep_t *s, const ir_node_info_t *node, ir_value_t x, ir_value_t constant,
                    int64_t number, ir_value_t *out) {
    if (*out == IR_NONE && is_all(s, constant, number) && has_type(s, x, result_type(s, node)))
        *out = x;
}

static st_status_t simplify_add(sweep_t *s, const ir_node_info_t *node, const ir_value_t *in,
                                ir_value_t *out) {
    neutral(s, node, in[0], in[1], 0, out);
    neutral(s, node, in[1], in[0], 0, out);
    return ST_OK;
}
static st_status_t simplify_sub(sweep_t *s, const ir_node_info_t *node, const ir_value_t *in,
                                ir_value_t *out) {
    neutral(s, node, in[0], in[1], 0, out);
    return ST_OK;
}
static st_status_t simplify_mul(sweep_t *s, const ir_node_info_t *node, const ir_value_t *in,
                                ir_value_t *out) {
    neutral(s, node, in[0], in[1], 1, out);
    neutral(s, node, in[1], in[0], 1, out);
    return ST_OK;
}
static st_status_t simplify_right_one(sweep_t *s, const ir_node_info_t *node, const ir_value_t *in,
                                      ir_value_t *out) {
    neutral(s, node, in[0], in[1], 1, out);
    return ST_OK;
}

static st_status_t simplify_involution(sweep_t *s, const ir_node_info_t *node, const ir_value_t *in,
                                       ir_value_t *out) {
    const ir_node_info_t *inner = made_by(s, in[0], node->op);
    if (inner) *out = inner->inputs[0];
    return ST_OK;
}

static st_status_t simplify_select(sweep_t *s, const ir_node_info_t *node, const ir_value_t *in,
                                   ir_value_t *out) {
    bool chosen_known = fuse_splat(s->to, in[0]) != NULL || in[1] == in[2];
    ir_value_t chosen = in[1] == in[2] || !is_all(s, in[0], 0) ? in[1] : in[2];
    if (chosen_known && has_type(s, chosen, result_type(s, node))) *out = chosen;
    return ST_OK;
}

/* Whether a transpose swaps the last two dims and leaves the others. */
static bool swaps_matrix(const ir_node_info_t *node, int32_t rank) {
    int64_t perm[IR_MAX_RANK];
    read_perm(node, rank, perm);
    for (int32_t i = 0; i + 2 < rank; i++)
        if (perm[i] != i) return false;
    return rank >= 2 && perm[rank - 2] == rank - 1;
}

/* A product reads its operands either way: transposes before it become its attributes. */
static st_status_t simplify_matmul(sweep_t *s, const ir_node_info_t *node, const ir_value_t *in,
                                   ir_value_t *out) {
    static const char *const keys[2] = {"transpose_a", "transpose_b"};
    ir_value_t operands[2] = {in[0], in[1]};
    ir_arg_t args[2];
    bool changed = false;
    for (int j = 0; j < 2; j++) {
        const ir_node_info_t *inner = made_by(s, in[j], IR_OP_TRANSPOSE);
        bool swapped = inner && swaps_matrix(inner, ir_value_type(s->to, in[j])->rank);
        if (swapped) operands[j] = inner->inputs[0];
        args[j] = IR_ARG_BOOL(keys[j], (ir_attr_int(node, keys[j]) != 0) != swapped);
        changed |= swapped;
    }
    if (!changed) return ST_OK;
    return emit_args(s, IR_OP_MATMUL, node->name, 2, operands, 2, args, out);
}

static rule_t *const rules[IR_OP_END] = {
    [IR_OP_CONSTANT] = simplify_constant,
    [IR_OP_RESHAPE] = simplify_reshape,
    [IR_OP_BROADCAST] = simplify_broadcast,
    [IR_OP_TRANSPOSE] = simplify_transpose,
    [IR_OP_SLICE] = simplify_slice,
    [IR_OP_PAD] = simplify_same_type, /* padding only adds */
    [IR_OP_CONCAT] = simplify_same_type,
    [IR_OP_CAST] = simplify_cast,
    [IR_OP_ADD] = simplify_add,
    [IR_OP_SUB] = simplify_sub,
    [IR_OP_MUL] = simplify_mul,
    [IR_OP_DIV] = simplify_right_one,
    [IR_OP_POW] = simplify_right_one,
    [IR_OP_NEG] = simplify_involution,
    [IR_OP_LOGICAL_NOT] = simplify_involution,
    [IR_OP_SELECT] = simplify_select,
    [IR_OP_MATMUL] = simplify_matmul,
};

/* ---- the sweep ---- */

static void mark_live(sweep_t *s) {
    const ir_graph_t *graph = s->from;
    const uint32_t kept = IR_SIDE_EFFECT | IR_COLLECTIVE | IR_STATE;
    for (size_t i = 0; i < graph->outputs.n; i++)
        s->live[graph->values.data[graph->outputs.data[i].value].producer] = 1;
    for (ir_node_t i = (ir_node_t)graph->nodes.n; i-- > 0;) {
        const ir_node_info_t *node = ir_node(graph, i);
        if (node->op == IR_OP_INPUT || (ir_op_def(node->op)->flags & kept)) s->live[i] = 1;
        if (!s->live[i]) continue;
        for (uint32_t j = 0; j < node->n_inputs; j++)
            s->live[graph->values.data[node->inputs[j]].producer] = 1;
    }
}

/* Replaces an all-constant node by constants. */
static st_status_t fold(sweep_t *s, const ir_node_info_t *node, const ir_value_t *in,
                        bool *out_done) {
    ir_type_t types[MAX_FOLD_OUTPUTS];
    fuse_folded_t folded[MAX_FOLD_OUTPUTS];
    *out_done = false;
    if (node->n_outputs > MAX_FOLD_OUTPUTS) return ST_OK;
    for (uint32_t k = 0; k < node->n_outputs; k++)
        types[k] = *ir_value_type(s->from, node->first_output + k);
    TRY(fuse_fold(s->target, s->to, node, in, types, s->folding, folded, out_done));
    if (!*out_done) return ST_OK;
    st_status_t status = ST_OK;
    for (uint32_t k = 0; k < node->n_outputs; k++) {
        if (status == ST_OK)
            status = emit_constant(s, node->name, &types[k], folded[k].data, folded[k].bytes,
                                   &s->map[node->first_output + k]);
        st_free(folded[k].data);
    }
    return status;
}

static st_status_t rewrite_node(sweep_t *s, const ir_node_info_t *node) {
    s->inputs.n = 0;
    TRY(ST_VEC_RESERVE(&s->inputs, node->n_inputs));
    for (uint32_t j = 0; j < node->n_inputs; j++)
        s->inputs.data[s->inputs.n++] = s->map[node->inputs[j]];
    const ir_value_t *in = s->inputs.data;
    ir_value_t first = IR_NONE;
    bool done = false;
    if (rules[node->op]) {
        TRY(rules[node->op](s, node, in, &first));
        if (first != IR_NONE && !has_type(s, first, result_type(s, node)))
            return FAIL(ST_INTERNAL, "simplify changed the type of a %s",
                        ir_op_def(node->op)->name);
        done = first != IR_NONE;
    }
    if (done) {
        s->map[node->first_output] = first;
    } else {
        TRY(fold(s, node, in, &done));
        if (!done) {
            TRY(emit(s, node->op, node->name, node->n_inputs, in, node->attrs, &first, &done));
            for (uint32_t k = 0; k < node->n_outputs; k++)
                s->map[node->first_output + k] = first + k;
        }
    }
    s->n_rewrites += done;
    return ST_OK;
}

static st_status_t copy_outputs(sweep_t *s) {
    for (size_t i = 0; i < s->from->outputs.n; i++) {
        const ir_output_t *output = &s->from->outputs.data[i];
        TRY(ir_graph_append_output(s->to, output->name, s->map[output->value]));
    }
    return ST_OK;
}

static st_status_t sweep(const ir_graph_t *from, const ir_target_t *target, fuse_folding_t folding,
                         ir_graph_t **out_graph, size_t *out_rewrites) {
    sweep_t s = {.from = from, .target = target, .folding = folding};
    st_status_t status = ST_OK;
    *out_graph = NULL;
    s.live = st_calloc(from->nodes.n, 1);
    s.map = st_calloc(from->values.n, sizeof *s.map);
    if (!s.live || !s.map)
        TRY_GOTO(st_no_memory(from->values.n * sizeof *s.map, "the simplify pass"), done);
    TRY_GOTO(ir_graph_create_like(from, &s.to), done);
    mark_live(&s);
    for (ir_node_t i = 0; i < from->nodes.n; i++) {
        if (!s.live[i]) continue;
        s.to->phase = ir_node(from, i)->phase;
        status = rewrite_node(&s, ir_node(from, i));
        if (status != ST_OK) {
            st_error_context(status, "%s", ir_node_label(from, i));
            goto done;
        }
    }
    TRY_GOTO(copy_outputs(&s), done);
    s.to->phase = IR_PHASE_FORWARD;
    *out_graph = s.to;
    *out_rewrites = s.n_rewrites;
done:
    if (status != ST_OK) ir_graph_destroy(s.to);
    st_free(s.live);
    st_free(s.map);
    st_free(s.seen);
    ST_VEC_FREE(&s.inputs);
    return status;
}

static st_status_t sweep_to_end(const ir_graph_t *graph, const ir_target_t *target,
                                fuse_folding_t folding, ir_graph_t **out_graph) {
    ir_graph_t *current = NULL;
    size_t n_rewrites = 1;
    *out_graph = NULL;
    for (int i = 0; i < MAX_SWEEPS && n_rewrites; i++) {
        ir_graph_t *made;
        st_status_t status = sweep(current ? current : graph, target, folding, &made, &n_rewrites);
        ir_graph_destroy(current);
        current = made;
        if (status != ST_OK) return status;
    }
    *out_graph = current;
    return ST_OK;
}

static bool has_regions(const ir_graph_t *graph) {
    for (size_t i = 0; i < graph->nodes.n; i++)
        if (ir_op_def(graph->nodes.data[i].op)->flags & IR_REGION) return true;
    return false;
}

typedef struct setting {
    const ir_target_t *target;
    fuse_folding_t folding;
} setting_t;

static st_status_t simplify(const ir_graph_t *graph, const setting_t *setting,
                            ir_graph_t **out_graph);

static st_status_t simplify_body(void *context, const ir_graph_t *body, ir_graph_t **out_body) {
    return simplify(body, context, out_body);
}

/* What bodies no longer read dies outside, and what is no longer read outside dies in bodies. */
static st_status_t simplify(const ir_graph_t *graph, const setting_t *setting,
                            ir_graph_t **out_graph) {
    ir_graph_t *current, *made;
    bool changed = true;
    setting_t own = *setting;
    *out_graph = NULL;
    TRY(sweep_to_end(graph, setting->target, setting->folding, &current));
    for (int i = 0; i < MAX_SWEEPS && changed && has_regions(current); i++) {
        st_status_t status = fuse_trim(current, simplify_body, &own, &made, &changed);
        ir_graph_destroy(current);
        if (status != ST_OK) return status;
        current = made;
        if (!changed) break;
        status = sweep_to_end(current, setting->target, setting->folding, &made);
        ir_graph_destroy(current);
        if (status != ST_OK) return status;
        current = made;
    }
    *out_graph = current;
    return ST_OK;
}

st_status_t fuse_simplify(const ir_graph_t *graph, const ir_target_t *target,
                          ir_graph_t **out_graph) {
    return simplify(graph, &(setting_t){target, FUSE_FOLD_ALL}, out_graph);
}

st_status_t fuse_simplify_exact(const ir_graph_t *graph, const ir_target_t *target,
                                ir_graph_t **out_graph) {
    return simplify(graph, &(setting_t){target, FUSE_FOLD_EXACT}, out_graph);
}
