/* Simplify.
 *
 * Problem: captured graphs and gradient rules leave dead values, repeated subexpressions, casts and
 * reshapes that undo each other, and arithmetic on constants.
 * In, out: any verified graph. Each replaced value has the type of the value it replaces.
 * Algorithm: sweeps to a fixed point. A sweep marks what is live from the back, then rewrites from
 * the front into a new graph: a node meets inputs that are simplified already, a rule (rules_*.c)
 * may name a value that does the same, else all-constant nodes are evaluated, else an equal node
 * made before is taken (structural hash of op, attributes and inputs), else the node is copied. A
 * sweep that rewrites nothing ends it; what a rule orphans dies in the next sweep. Bodies of
 * control flow are simplified by themselves, and what crosses their borders unread is cut (trim.h).
 * Complexity: linear a sweep, two or three sweeps in practice, MAX_SWEEPS at most.
 * Deterministic: order of nodes and content hashes only. */
#include "fusion/simplify.h"

#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "fusion/rules.h"
#include "fusion/trim.h"
#include "ir/convert.h"
#include "ir/structure.h"

enum { MAX_SWEEPS = 32, MAX_ATTRS = 64, MAX_FOLD_OUTPUTS = 64 };

struct fuse_seen {
    uint64_t hash;
    ir_node_t node; /* in `to`, plus one; 0: empty. At most half of the slots are full. */
};

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

static fuse_seen_t *seen_slot(const fuse_sweep_t *s, ir_op_t op, const ir_attr_t *attrs,
                              uint32_t n_inputs, const ir_value_t *inputs, uint64_t hash) {
    size_t i = (size_t)hash & (s->seen_capacity - 1);
    for (;; i = (i + 1) & (s->seen_capacity - 1)) {
        fuse_seen_t *slot = &s->seen[i];
        if (!slot->node) return slot;
        if (slot->hash != hash) continue;
        const ir_node_info_t *node = ir_node(s->to, slot->node - 1);
        if (node->op == op && node->n_inputs == n_inputs &&
            (n_inputs == 0 || memcmp(node->inputs, inputs, n_inputs * sizeof *inputs) == 0) &&
            ir_attrs_equal(op, node->attrs, attrs))
            return slot;
    }
}

static st_status_t seen_grow(fuse_sweep_t *s) {
    fuse_seen_t *old = s->seen;
    size_t old_capacity = s->seen_capacity, capacity = old_capacity ? old_capacity * 2 : 64;
    fuse_seen_t *made = st_calloc(capacity, sizeof *made);
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
 * phases, else (and where the node at hand is to stay apart) a new one. */
static st_status_t emit(fuse_sweep_t *s, ir_op_t op, const char *name, uint32_t n_inputs,
                        const ir_value_t *inputs, const ir_attr_t *attrs, ir_value_t *out_first,
                        bool *out_found) {
    const ir_op_def_t *def = ir_op_def(op);
    uint32_t n_attrs = ir_op_n_attrs(def);
    ir_arg_t args[MAX_ATTRS];
    fuse_seen_t *slot = NULL;
    uint64_t hash = 0;
    *out_found = false;
    if (is_mergeable(op)) {
        if (s->n_seen >= s->seen_capacity / 2) TRY(seen_grow(s));
        hash = structure_hash(op, attrs, n_inputs, inputs);
        slot = seen_slot(s, op, attrs, n_inputs, inputs, hash);
        if (slot->node && !s->apart) {
            ir_node_info_t *node = &s->to->nodes.data[slot->node - 1];
            if (s->to->phase < node->phase) node->phase = s->to->phase;
            if (s->to->slot < node->slot) node->slot = s->to->slot;
            *out_first = node->first_output;
            *out_found = true;
            return ST_OK;
        }
    }
    ASSERT(n_attrs <= MAX_ATTRS);
    for (uint32_t i = 0; i < n_attrs; i++) args[i] = (ir_arg_t){def->attrs[i].key, attrs[i]};
    TRY(ir_graph_add(s->to, op, name, n_inputs, inputs, n_attrs, args, out_first));
    if (slot) {
        s->n_seen += !slot->node;
        *slot =
            (fuse_seen_t){hash, (ir_node_t)s->to->nodes.n}; /* one that is apart: from here on */
    }
    return ST_OK;
}

st_status_t fuse_emit(fuse_sweep_t *s, ir_op_t op, const char *name, uint32_t n_inputs,
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

st_status_t fuse_emit_constant(fuse_sweep_t *s, const char *name, const ir_type_t *type,
                               const void *data, size_t bytes, ir_value_t *out) {
    return fuse_emit(s, IR_OP_CONSTANT, name, 0, NULL, 3,
                     (ir_arg_t[]){IR_ARG_DTYPE("dtype", type->dtype),
                                  IR_ARG_INTS("shape", type->dims, type->rank),
                                  IR_ARG_DATA("data", data, bytes)},
                     out);
}

st_status_t fuse_emit_like(fuse_sweep_t *s, const ir_node_info_t *node, const ir_value_t *inputs,
                           ir_value_t *out_first) {
    const ir_node_info_t own = *node; /* the node may be one of `to`, whose nodes move */
    bool found;
    return emit(s, own.op, own.name, own.n_inputs, inputs, own.attrs, out_first, &found);
}

st_status_t fuse_emit_scalar(fuse_sweep_t *s, ir_dtype_t dtype, double number, ir_value_t *out) {
    ir_type_t type = ir_type_scalar(dtype);
    uint64_t element = 0;
    ir_element_store(dtype, &element, 0, number);
    return fuse_emit_constant(s, NULL, &type, &element, ir_dtype_bytes(dtype), out);
}

st_status_t fuse_emit_shape(fuse_sweep_t *s, ir_op_t op, const char *name, ir_value_t x,
                            const ir_type_t *type, ir_value_t *out) {
    *out = x;
    if (ir_dims_equal(fuse_type(s, x), type)) return ST_OK;
    return fuse_emit(s, op, name, 1, &x, 1,
                     (ir_arg_t[]){IR_ARG_INTS("shape", type->dims, type->rank)}, out);
}

st_status_t fuse_emit_transpose(fuse_sweep_t *s, const char *name, ir_value_t x,
                                const int64_t *perm, ir_value_t *out) {
    int32_t rank = fuse_type(s, x)->rank, fixed = 0;
    while (fixed < rank && perm[fixed] == fixed) fixed++;
    *out = x;
    if (fixed == rank) return ST_OK;
    return fuse_emit(s, IR_OP_TRANSPOSE, name, 1, &x, 1,
                     (ir_arg_t[]){IR_ARG_INTS("perm", perm, rank)}, out);
}

void fuse_read_perm(const ir_node_info_t *node, int32_t rank, int64_t *perm) {
    const ir_attr_t *attr = ir_node_attr(node, "perm");
    for (int32_t i = 0; i < rank; i++) {
        perm[i] = attr->ints.v[i] < 0 ? attr->ints.v[i] + rank : attr->ints.v[i];
        ASSERT(perm[i] >= 0 && perm[i] < rank);
    }
}

/* ---- the sweep ---- */

static void mark_live(fuse_sweep_t *s) {
    const ir_graph_t *graph = s->from;
    const uint32_t kept = IR_SIDE_EFFECT | IR_COLLECTIVE | IR_STATE;
    for (size_t i = 0; i < graph->outputs.n; i++) {
        s->live[graph->values.data[graph->outputs.data[i].value].producer] = 1;
        s->n_uses[graph->outputs.data[i].value]++;
    }
    for (ir_node_t i = (ir_node_t)graph->nodes.n; i-- > 0;) {
        const ir_node_info_t *node = ir_node(graph, i);
        if (node->op == IR_OP_INPUT || (ir_op_def(node->op)->flags & kept)) s->live[i] = 1;
        if (!s->live[i]) continue;
        for (uint32_t j = 0; j < node->n_inputs; j++) {
            s->live[graph->values.data[node->inputs[j]].producer] = 1;
            s->n_uses[node->inputs[j]]++;
        }
    }
}

/* Replaces an all-constant node by constants. */
static st_status_t fold(fuse_sweep_t *s, const ir_node_info_t *node, const ir_value_t *in,
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
            status = fuse_emit_constant(s, node->name, &types[k], folded[k].data, folded[k].bytes,
                                        &s->map[node->first_output + k]);
        st_free(folded[k].data);
    }
    return status;
}

static st_status_t apply_rules(fuse_sweep_t *s, const ir_node_info_t *node, const ir_value_t *in,
                               ir_value_t *out) {
    bool elementwise = (ir_op_def(node->op)->flags & IR_ELEMENTWISE) != 0;
    fuse_rule_t *const rules[] = {fuse_rules_shape[node->op], fuse_rules_algebra[node->op],
                                  elementwise ? fuse_rule_elementwise : NULL};
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        if (!rules[i]) continue;
        TRY(rules[i](s, node, in, out));
        if (*out == IR_NONE) continue;
        if (!fuse_has_type(s, *out, fuse_result(s, node)))
            return FAIL(ST_INTERNAL, "simplify changed the type of a %s",
                        ir_op_def(node->op)->name);
        return ST_OK;
    }
    return ST_OK;
}

static st_status_t rewrite_node(fuse_sweep_t *s, const ir_node_info_t *node) {
    s->inputs.n = 0;
    TRY(ST_VEC_RESERVE(&s->inputs, node->n_inputs));
    for (uint32_t j = 0; j < node->n_inputs; j++)
        s->inputs.data[s->inputs.n++] = s->map[node->inputs[j]];
    const ir_value_t *in = s->inputs.data;
    ir_value_t first = IR_NONE;
    bool done = false;
    if (!s->apart) TRY(apply_rules(s, node, in, &first));
    done = first != IR_NONE;
    if (done) {
        s->map[node->first_output] = first;
    } else {
        if (!s->apart) TRY(fold(s, node, in, &done));
        if (!done) {
            TRY(emit(s, node->op, node->name, node->n_inputs, in, node->attrs, &first, &done));
            for (uint32_t k = 0; k < node->n_outputs; k++)
                s->map[node->first_output + k] = first + k;
        }
    }
    s->n_rewrites += done;
    return ST_OK;
}

/* What was done with a node: the nodes that it became, and what stands for its results. */
static fuse_trail_t trail_of(const fuse_sweep_t *s, const ir_node_info_t *node, size_t n_before) {
    fuse_trail_t trail = {s->to->nodes.n - n_before, s->to->nodes.n - n_before};
    for (size_t i = n_before; i < s->to->nodes.n; i++) {
        const ir_node_info_t *made = ir_node(s->to, (ir_node_t)i);
        const uint32_t form[] = {made->op, made->n_inputs};
        trail.form = st_hash64(form, sizeof form, trail.form);
        trail.whole = st_hash64(made->inputs, made->n_inputs * sizeof *made->inputs, trail.whole);
    }
    trail.whole = st_hash64(&s->map[node->first_output], node->n_outputs * sizeof *s->map,
                            st_hash64(&trail.form, sizeof trail.form, trail.whole));
    return trail;
}

static st_status_t copy_outputs(fuse_sweep_t *s) {
    for (size_t i = 0; i < s->from->outputs.n; i++) {
        const ir_output_t *output = &s->from->outputs.data[i];
        TRY(ir_graph_append_output(s->to, output->name, s->map[output->value]));
    }
    return ST_OK;
}

st_status_t fuse_sweep(fuse_sweep_t *s, ir_graph_t **out_graph) {
    const ir_graph_t *from = s->from;
    st_status_t status = ST_OK;
    *out_graph = NULL;
    s->live = st_calloc(from->nodes.n, 1);
    s->map = st_calloc(from->values.n, sizeof *s->map);
    s->n_uses = st_calloc(from->values.n, sizeof *s->n_uses);
    if (!s->live || !s->map || !s->n_uses)
        TRY_GOTO(st_no_memory(from->values.n * sizeof *s->map, "the simplify pass"), done);
    TRY_GOTO(ir_graph_create_like(from, &s->to), done);
    mark_live(s);
    for (ir_node_t i = 0; i < from->nodes.n; i++) {
        const size_t n_before = s->to->nodes.n;
        if (!s->live[i]) continue;
        ir_graph_stand_for(s->to, ir_node(from, i));
        s->apart = s->kept && s->kept[i];
        status = rewrite_node(s, ir_node(from, i));
        if (status != ST_OK) {
            st_error_context(status, "%s", ir_node_label(from, i));
            goto done;
        }
        if (s->trail) s->trail[i] = trail_of(s, ir_node(from, i), n_before);
    }
    TRY_GOTO(copy_outputs(s), done);
    ir_graph_stand_alone(s->to);
    *out_graph = s->to;
done:
    if (status != ST_OK) ir_graph_destroy(s->to);
    st_free(s->live);
    st_free(s->map);
    st_free(s->n_uses);
    st_free(s->seen);
    ST_VEC_FREE(&s->inputs);
    return status;
}

static st_status_t sweep_to_end(const ir_graph_t *graph, const ir_target_t *target,
                                fuse_folding_t folding, ir_graph_t **out_graph) {
    ir_graph_t *current = NULL;
    size_t n_rewrites = 1;
    *out_graph = NULL;
    for (int i = 0; i < MAX_SWEEPS && n_rewrites; i++) {
        ir_graph_t *made;
        fuse_sweep_t s = {.from = current ? current : graph, .target = target, .folding = folding};
        st_status_t status = fuse_sweep(&s, &made);
        ir_graph_destroy(current);
        current = made;
        if (status != ST_OK) return status;
        n_rewrites = s.n_rewrites;
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
