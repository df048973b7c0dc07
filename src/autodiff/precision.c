/* Mixed precision by a policy table (precision.def).
 *
 * Problem: run products and activations in a 16-bit float without losing what needs float32:
 * parameters and moments, statistics, sums, the loss. The casts must be few and shared.
 *
 * In:  the global program, with or without gradient and optimizer; composites may stand in it.
 * Out: every float32 value of the source stands in one of two forms:
 *
 *   home   where its node computes it: the compute dtype or float32
 *   other  made when a reader first wants it, then shared by all readers
 *
 *   w f32 ──┬──────────────► adamw (master) ──► update
 *           └─ cast bf16 ──► matmul, its gradients …         one cast a step
 *
 * One sweep in node order. A value is
 *   weak     made of weights, constants and indices only: float32, and follows whom it meets
 *   static   weak, without parameters: products of static values (rotary tables, positions) stay
 *            float32
 * A constant that the compute dtype cannot hold (out of range, or a number that would vanish) is
 * not weak: float32 wins where it takes part. A cast to float32 in the source graph is a demand:
 * its result is float32 and not weak, and so is what follows it up to a product or a cast back.
 * Where a move of weak values is wanted in the other dtype, the move is made again on its operands'
 * other form, so that what is cast is the parameter itself.
 *
 * Bodies of loops and conditions are swept where their node stands. What is carried keeps its type,
 * float32, so that no error grows over the iterations; all else comes in and goes out in its home
 * form. Where a loop wants the other form of an operand that every iteration reads (a weight), it
 * is made before the loop and becomes one more operand.
 *
 * Widths within an op (sums of products, norms, softmax) are the kernels' affair: all accumulate in
 * float32 or wider. O(nodes + edges), and the elements of constants.
 *
 * Source: the policy is that of Micikevicius et al., "Mixed Precision Training" (2018), with
 * PyTorch's autocast lists as the starting point. */
#include "autodiff/precision.h"

#include <float.h>
#include <math.h>

#include <stdio.h>

#include "ir/body.h"
#include "ir/convert.h"

typedef enum policy_class {
    CLASS_low = 1,
    CLASS_wide,
    CLASS_follow,
    CLASS_move,
    CLASS_lookup,
    CLASS_keep
} policy_class_t;

typedef struct policy {
    policy_class_t class;
    uint32_t wide, free, wide_out; /* by bit */
} policy_t;

static const policy_t policies[IR_OP_END] = {
#define PRECISION(op, class, wide, free, wide_out) \
    [IR_OP_##op] = {CLASS_##class, wide, free, wide_out},
#include "autodiff/precision.def"
#undef PRECISION
};

/* An op without a row: an undeclared enumerator HAS_<op> here. */
enum {
#define PRECISION(op, ...) HAS_##op = 1,
#include "autodiff/precision.def"
#undef PRECISION
};
#define OP(enumerator, ...) _Static_assert(HAS_##enumerator, "an op without a precision policy");
#include "ir/ops.def"
#undef OP

/* Moves of weak values are made again through this many at most; further ones are cast. */
enum { MOST_MOVES = 64 };

typedef struct value {
    ir_value_t other;    /* the form that is not home, IR_NONE: not made yet */
    bool low;            /* home is the compute dtype */
    bool weak, fixed;    /* fixed: static */
    bool asked;          /* float32 because a cast to it asked */
    bool output;         /* of the graph, in float32 */
    struct entry *entry; /* an input of a body; NULL: anything else */
} value_t;

/* How a body's input arrives. */
typedef struct entry {
    uint32_t operand;
    bool low, weak, fixed;
    bool invariant; /* its other form may come from outside, too */
} entry_t;

typedef struct sweep {
    const ir_graph_t *from;
    ir_graph_t *to;
    ir_dtype_t compute;
    value_t *values;   /* of `from` */
    ir_value_t *home;  /* value of `from` → its home form */
    entry_t *entries;  /* of a body's inputs, in order; NULL: `from` is no body */
    uint32_t n_placed; /* inputs so far */
    uint32_t *extra;   /* operands whose other form is one more input, in order */
    uint32_t n_extra;
} sweep_t;

static bool is_wide_source(const sweep_t *s, ir_value_t v) {
    return ir_value_type(s->from, v)->dtype == IR_F32;
}
static bool has_bit(uint32_t set, uint32_t i) {
    return set >> (i < 31 ? i : 31) & 1u;
}

/* ---- constants ---- */

static bool can_hold(ir_dtype_t dtype, double number) {
    const double most = dtype == IR_F16 ? 65504.0 : 0x1.fep127;
    const double least = dtype == IR_F16 ? 0x1p-14 : (double)FLT_MIN;
    return number == 0 || !isfinite(number) || (fabs(number) <= most && fabs(number) >= least);
}

static bool constant_fits(const sweep_t *s, const ir_node_info_t *node) {
    const ir_attr_t *data = ir_node_attr(node, "data");
    const size_t n = data->data.bytes / sizeof(float);
    for (size_t i = 0; i < n; i++)
        if (!can_hold(s->compute, ir_element_load(IR_F32, data->data.p, i))) return false;
    return true;
}

/* ---- forms ---- */

static st_status_t cast(sweep_t *s, ir_value_t x, ir_dtype_t dtype, ir_value_t *out) {
    return ir_graph_add(s->to, IR_OP_CAST, NULL, 1, &x, 1,
                        (ir_arg_t[]){IR_ARG_DTYPE("dtype", dtype)}, out);
}

/* `node` of `from` over the given operands. */
static st_status_t emit(sweep_t *s, const ir_node_info_t *node, const ir_value_t *in,
                        ir_value_t *out) {
    const ir_op_def_t *def = ir_op_def(node->op);
    const uint32_t n_attrs = ir_op_n_attrs(def);
    st_arena_t scratch = {0};
    ir_arg_t *args = st_arena_array(&scratch, n_attrs, sizeof *args);
    if (!args) return st_no_memory(n_attrs * sizeof *args, "a node");
    for (uint32_t i = 0; i < n_attrs; i++) args[i] = (ir_arg_t){def->attrs[i].key, node->attrs[i]};
    st_status_t status =
        ir_graph_add(s->to, node->op, node->name, node->n_inputs, in, n_attrs, args, out);
    st_arena_clear(&scratch);
    return status;
}

static st_status_t want(sweep_t *s, ir_value_t v, bool low, int depth, ir_value_t *out);

/* The move that makes a weak value, again, over its operands in the wanted form. */
static st_status_t move_again(sweep_t *s, const ir_node_info_t *node, bool low, int depth,
                              ir_value_t *out) {
    st_status_t status = ST_OK;
    ir_value_t *in = st_calloc(node->n_inputs, sizeof *in);
    if (!in) return st_no_memory(node->n_inputs * sizeof *in, "a node");
    for (uint32_t j = 0; j < node->n_inputs; j++)
        TRY_GOTO(want(s, node->inputs[j], low, depth + 1, &in[j]), done);
    TRY_GOTO(emit(s, node, in, out), done);
done:
    st_free(in);
    return status;
}

/* One more input of a body: the other form of what entry `e` brings. */
static st_status_t other_entry(sweep_t *s, const entry_t *e, ir_value_t v, bool low,
                               ir_value_t *out) {
    ir_build_t b = {.graph = s->to};
    ir_type_t type = *ir_value_type(s->from, v);
    type.dtype = low ? s->compute : IR_F32;
    *out = ir_b_body_input_beside(&b, s->from, &type);
    s->extra[s->n_extra++] = e->operand;
    return b.status;
}

static st_status_t want(sweep_t *s, ir_value_t v, bool low, int depth, ir_value_t *out) {
    value_t *value = &s->values[v];
    *out = s->home[v];
    if (!is_wide_source(s, v) || value->low == low) return ST_OK;
    if (value->other == IR_NONE) {
        const ir_node_info_t *node = ir_value_producer(s->from, v);
        const policy_class_t class = policies[node->op].class;
        const bool moves = class == CLASS_move || class == CLASS_lookup;
        if (value->entry && value->entry->invariant)
            TRY(other_entry(s, value->entry, v, low, &value->other));
        else if (moves && value->weak && depth < MOST_MOVES)
            TRY(move_again(s, node, low, depth, &value->other));
        else
            TRY(cast(s, *out, low ? s->compute : IR_F32, &value->other));
    }
    *out = value->other;
    return ST_OK;
}

/* ---- decisions ---- */

typedef struct decision {
    bool low; /* operands that are neither wide nor free, and results that are not wide */
    bool weak, fixed;
    bool asked;
} decision_t;

static decision_t decide_source(const sweep_t *s, const ir_node_info_t *node) {
    decision_t d = {.weak = true, .fixed = node->op != IR_OP_PARAMETER};
    if (node->op == IR_OP_INPUT) d.weak = d.fixed = false;
    if (node->op == IR_OP_CONSTANT && is_wide_source(s, node->first_output))
        d.weak = constant_fits(s, node);
    return d;
}

static decision_t decide(const sweep_t *s, const ir_node_info_t *node, const policy_t *policy) {
    bool any = false, any_low = false, any_wide = false, weak = true, fixed = true, asked = false;
    if (ir_op_def(node->op)->flags & IR_SOURCE) return decide_source(s, node);
    for (uint32_t j = 0; j < node->n_inputs; j++) {
        const ir_value_t v = node->inputs[j];
        const value_t *value = &s->values[v];
        if (!ir_dtype_is_float(ir_value_type(s->from, v)->dtype)) continue;
        weak &= value->weak;
        fixed &= value->fixed;
        asked |= value->asked;
        if (!is_wide_source(s, v) || has_bit(policy->wide, j)) continue;
        any = true;
        any_low |= value->low;
        any_wide |= !value->low && !value->weak;
    }
    decision_t d = {.weak = weak, .fixed = fixed};
    if (node->op == IR_OP_CAST) /* of a float: a demand; of numbers: a static value */
        d.weak = weak && !ir_dtype_is_float(ir_value_type(s->from, node->inputs[0])->dtype);
    if (policy->class == CLASS_low) d.low = any && !fixed;
    if (policy->class == CLASS_follow || policy->class == CLASS_move ||
        policy->class == CLASS_lookup)
        d.low = any_low && !any_wide;
    if (policy->class == CLASS_lookup && weak && !fixed) d.low = any;
    if (policy->class == CLASS_keep && node->op != IR_OP_CAST) d.weak = d.fixed = false;
    if (d.low) d.weak = false;
    d.asked = asked && !d.low && policy->class != CLASS_low;
    return d;
}

static st_status_t check_result(const sweep_t *s, ir_node_t n, ir_value_t made, ir_dtype_t dtype) {
    char text[IR_TYPE_TEXT_BYTES];
    if (ir_value_type(s->to, made)->dtype == dtype) return ST_OK;
    return FAIL(ST_INTERNAL, "%s gives %s where the policy has %s", ir_node_label(s->from, n),
                ir_type_text(ir_value_type(s->to, made), text, sizeof text), ir_dtype_text(dtype));
}

/* Notes what a result is; map[v]: the form that the graph's outputs take. */
static st_status_t note(sweep_t *s, ir_value_t v, ir_value_t made, value_t is, ir_value_t *map) {
    is.other = IR_NONE;
    is.output = s->values[v].output;
    s->values[v] = is;
    s->home[v] = map[v] = made;
    return is.output ? want(s, v, false, 0, &map[v]) : ST_OK;
}

/* A body's input, in the form that its operand has. */
static st_status_t place_input(sweep_t *s, const ir_node_info_t *node, ir_value_t *map) {
    entry_t *e = &s->entries[s->n_placed++];
    const ir_value_t v = node->first_output;
    ir_build_t b = {.graph = s->to};
    ir_type_t type = *ir_value_type(s->from, v);
    if (e->low) type.dtype = s->compute;
    ir_value_t made = ir_b_input(&b, node->name, type, -1);
    TRY(b.status);
    return note(s, v, made,
                (value_t){.low = e->low, .weak = e->weak, .fixed = e->fixed, .entry = e}, map);
}

/* A cast of a float32 value to float32: in a model that is float32 as it stands, the first asks for
 * float32, and the next one behind it for the model's type again. Weights and constants follow whom
 * they meet. */
static bool is_asking(const sweep_t *s, const ir_node_info_t *node) {
    return node->op == IR_OP_CAST && is_wide_source(s, node->inputs[0]) &&
           is_wide_source(s, node->first_output);
}

static st_status_t place_asking(sweep_t *s, const ir_node_info_t *node, ir_value_t *map) {
    const ir_value_t v = node->inputs[0];
    const value_t x = s->values[v];
    const bool low = x.weak ? x.low : x.asked;
    ir_value_t made;
    TRY(want(s, v, low, 0, &made));
    return note(s, node->first_output, made,
                (value_t){.low = low, .weak = x.weak, .fixed = x.fixed, .asked = !x.asked}, map);
}

/* The node over the forms that the decision asks for; notes what its results are. */
static st_status_t place(sweep_t *s, ir_node_t n, ir_value_t *in, ir_value_t *map) {
    const ir_node_info_t *node = ir_node(s->from, n);
    const policy_t *policy = &policies[node->op];
    const decision_t d = decide(s, node, policy);
    for (uint32_t j = 0; j < node->n_inputs; j++) {
        const ir_value_t v = node->inputs[j];
        const bool low = has_bit(policy->free, j)   ? s->values[v].low
                         : has_bit(policy->wide, j) ? false
                                                    : d.low;
        TRY(want(s, v, low, 0, &in[j]));
    }
    ir_value_t first;
    TRY(emit(s, node, in, &first));
    for (uint32_t k = 0; k < node->n_outputs; k++) {
        const ir_value_t v = node->first_output + k;
        value_t is = {.weak = d.weak, .fixed = d.fixed, .asked = d.asked};
        if (is_wide_source(s, v)) {
            is.low = d.low && !has_bit(policy->wide_out, k);
            TRY(check_result(s, n, first + k, is.low ? s->compute : IR_F32));
        }
        TRY(note(s, v, first + k, is, map));
    }
    return ST_OK;
}

/* ---- bodies ---- */

static st_status_t sweep_graph(sweep_t *s, const bool *wide, ir_graph_t **out_graph);

/* wide[k]: output k is float32 whatever its home. */
static st_status_t sweep_body(const sweep_t *outer, const ir_graph_t *body, entry_t *entries,
                              const bool *wide, uint32_t *extra, uint32_t *out_n_extra,
                              ir_graph_t **out_body) {
    sweep_t s = {.from = body, .compute = outer->compute, .entries = entries, .extra = extra};
    TRY(sweep_graph(&s, wide, out_body));
    if (out_n_extra) *out_n_extra = s.n_extra;
    return ST_OK;
}

/* What region nodes need while they are placed. */
typedef struct region {
    entry_t *entries; /* [operands] */
    uint32_t *extra;  /* [operands] */
    ir_value_t *in;   /* [2 operands] */
    bool *wide;       /* [results] */
    ir_graph_t *bodies[2];
} region_t;

static void enter(const sweep_t *s, region_t *r, uint32_t j, uint32_t operand, ir_value_t v) {
    const value_t *value = &s->values[v];
    r->entries[j] = (entry_t){operand, value->low, value->weak, value->fixed, false};
    r->in[operand] = s->home[v];
}

static st_status_t sweep_loop(sweep_t *s, const ir_node_info_t *node, region_t *r,
                              uint32_t *out_n) {
    const uint32_t carried = (uint32_t)ir_attr_int(node, "carried");
    const uint32_t varying = carried + (uint32_t)ir_attr_int(node, "scanned");
    uint32_t n = node->n_inputs, n_extra;
    for (uint32_t j = 0; j < n; j++) {
        enter(s, r, j, j, node->inputs[j]);
        r->entries[j].invariant = j >= varying;
        if (j >= carried) continue;
        TRY(want(s, node->inputs[j], false, 0, &r->in[j]));
        r->entries[j] = (entry_t){.operand = j};
    }
    for (uint32_t k = 0; k < node->n_outputs; k++) r->wide[k] = k < carried;
    TRY(sweep_body(s, ir_node_attr(node, "body")->graph, r->entries, r->wide, r->extra, &n_extra,
                   &r->bodies[0]));
    for (uint32_t i = 0; i < n_extra; i++, n++)
        TRY(want(s, node->inputs[r->extra[i]], !r->entries[r->extra[i]].low, 0, &r->in[n]));
    *out_n = n;
    return ST_OK;
}

/* Both branches in their results' home forms; a result whose forms differ becomes float32. */
static st_status_t sweep_cond(sweep_t *s, const ir_node_info_t *node, region_t *r) {
    bool differ = true;
    r->in[0] = s->home[node->inputs[0]];
    for (uint32_t j = 1; j < node->n_inputs; j++) enter(s, r, j - 1, j, node->inputs[j]);
    while (differ) {
        for (int i = 0; i < 2; i++) {
            ir_graph_destroy(r->bodies[i]);
            r->bodies[i] = NULL;
            TRY(sweep_body(s, node->attrs[i].graph, r->entries, r->wide, NULL, NULL,
                           &r->bodies[i]));
        }
        differ = false;
        for (uint32_t k = 0; k < node->n_outputs; k++) {
            ir_dtype_t a = ir_body_output_type(r->bodies[0], k)->dtype;
            ir_dtype_t b = ir_body_output_type(r->bodies[1], k)->dtype;
            if (a != b) r->wide[k] = differ = true;
        }
    }
    return ST_OK;
}

static st_status_t place_swept(sweep_t *s, const ir_node_info_t *node, region_t *r,
                               st_arena_t *scratch, ir_value_t *map) {
    uint32_t n_in = node->n_inputs, bodies = 0;
    if (node->op == IR_OP_REPEAT)
        TRY(sweep_loop(s, node, r, &n_in));
    else
        TRY(sweep_cond(s, node, r));
    const ir_op_def_t *def = ir_op_def(node->op);
    const uint32_t n_attrs = ir_op_n_attrs(def);
    ir_arg_t *args = st_arena_array(scratch, n_attrs, sizeof *args);
    if (!args) return st_no_memory(n_attrs * sizeof *args, "a node");
    for (uint32_t i = 0; i < n_attrs; i++) {
        args[i] = (ir_arg_t){def->attrs[i].key, node->attrs[i]};
        if (node->attrs[i].kind == IR_ATTR_GRAPH) args[i].value.graph = r->bodies[bodies++];
    }
    ir_value_t first;
    TRY(ir_graph_add(s->to, node->op, node->name, n_in, r->in, n_attrs, args, &first));
    for (uint32_t k = 0; k < node->n_outputs; k++) {
        const ir_value_t v = node->first_output + k;
        const bool low = is_wide_source(s, v) && ir_value_type(s->to, first + k)->dtype != IR_F32;
        TRY(note(s, v, first + k, (value_t){.low = low}, map));
    }
    return ST_OK;
}

static st_status_t place_region(sweep_t *s, const ir_node_info_t *node, ir_value_t *map) {
    st_arena_t scratch = {0};
    st_status_t status = ST_OK;
    region_t r = {
        .entries = st_arena_array(&scratch, node->n_inputs, sizeof *r.entries),
        .extra = st_arena_array(&scratch, node->n_inputs, sizeof *r.extra),
        .in = st_arena_array(&scratch, 2 * (size_t)node->n_inputs, sizeof *r.in),
        .wide = st_arena_array(&scratch, node->n_outputs, sizeof *r.wide),
    };
    if (!r.entries || !r.extra || !r.in || !r.wide)
        status = st_no_memory(node->n_inputs * sizeof *r.entries, "a region");
    else
        status = place_swept(s, node, &r, &scratch, map);
    for (int i = 0; i < 2; i++) ir_graph_destroy(r.bodies[i]);
    st_arena_clear(&scratch);
    return status;
}

static st_status_t rewrite(void *context, ir_graph_t *to, const ir_graph_t *from, ir_node_t n,
                           ir_value_t *map) {
    sweep_t *s = context;
    const ir_node_info_t *node = ir_node(from, n);
    const uint32_t n_inputs = node->n_inputs;
    s->to = to;
    if (s->entries && node->op == IR_OP_INPUT) return place_input(s, node, map);
    if (ir_op_def(node->op)->flags & IR_REGION) return place_region(s, node, map);
    if (is_asking(s, node)) return place_asking(s, node, map);
    ir_value_t *in = st_calloc(n_inputs + 1, sizeof *in);
    if (!in) return st_no_memory(n_inputs * sizeof *in, "a node");
    st_status_t status = place(s, n, in, map);
    st_free(in);
    return status;
}

static st_status_t sweep_graph(sweep_t *s, const bool *wide, ir_graph_t **out_graph) {
    const ir_graph_t *graph = s->from;
    ir_node_t *order = NULL;
    st_status_t status = ST_OK;
    s->values = st_calloc(graph->values.n + 1, sizeof *s->values);
    s->home = st_calloc(graph->values.n + 1, sizeof *s->home);
    if (s->entries) order = ir_body_inputs_first(graph);
    if (!s->values || !s->home || (s->entries && !order))
        TRY_GOTO(st_no_memory(graph->values.n * sizeof *s->values, "mixed precision"), done);
    for (size_t i = 0; i < graph->outputs.n; i++)
        if (!wide || wide[i]) s->values[graph->outputs.data[i].value].output = true;
    TRY_GOTO(ir_graph_rewrite(graph, order, rewrite, s, out_graph), done);
done:
    st_free(s->values);
    st_free(s->home);
    st_free(order);
    return status;
}

st_status_t ad_precision(const ir_graph_t *graph, ir_dtype_t compute, ir_graph_t **out_graph) {
    *out_graph = NULL;
    if (compute != IR_BF16 && compute != IR_F16)
        return FAIL(ST_INVALID, "the compute dtype is %s, bf16 or f16 is needed",
                    ir_dtype_text(compute));
    sweep_t s = {.from = graph, .compute = compute};
    return sweep_graph(&s, NULL, out_graph);
}
