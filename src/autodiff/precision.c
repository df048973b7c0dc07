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
 * A constant that the compute dtype cannot hold (out of range, or a number that would vanish) is not
 * weak: float32 wins where it takes part. A cast to float32 in the source graph is a demand: its
 * result is float32 and not weak. Where a move of weak values is wanted in the other dtype, the move
 * is made again on its operands' other form, so that what is cast is the parameter itself.
 *
 * Widths within an op (sums of products, norms, softmax) are the kernels' affair: all accumulate in
 * float32 or wider. O(nodes + edges), and the elements of constants.
 *
 * Source: the policy is that of Micikevicius et al., "Mixed Precision Training" (2018), with
 * PyTorch's autocast lists as the starting point. */
#include "autodiff/precision.h"

#include <float.h>
#include <math.h>

#include "ir/convert.h"
#include "ir/op.h"

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
    ir_value_t other; /* the form that is not home, IR_NONE: not made yet */
    bool low;         /* home is the compute dtype */
    bool weak, fixed; /* fixed: static */
    bool output;      /* of the graph */
} value_t;

typedef struct sweep {
    const ir_graph_t *from;
    ir_graph_t *to;
    ir_dtype_t compute;
    value_t *values;  /* of `from` */
    ir_value_t *home; /* value of `from` → its home form */
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

static st_status_t want(sweep_t *s, ir_value_t v, bool low, int depth, ir_value_t *out) {
    value_t *value = &s->values[v];
    *out = s->home[v];
    if (!is_wide_source(s, v) || value->low == low) return ST_OK;
    if (value->other == IR_NONE) {
        const ir_node_info_t *node = ir_value_producer(s->from, v);
        const policy_class_t class = policies[node->op].class;
        const bool moves = class == CLASS_move || class == CLASS_lookup;
        if (moves && value->weak && depth < MOST_MOVES)
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
} decision_t;

static decision_t decide_source(const sweep_t *s, const ir_node_info_t *node) {
    decision_t d = {.weak = true, .fixed = node->op != IR_OP_PARAMETER};
    if (node->op == IR_OP_INPUT) d.weak = d.fixed = false;
    if (node->op == IR_OP_CONSTANT && is_wide_source(s, node->first_output))
        d.weak = constant_fits(s, node);
    return d;
}

static decision_t decide(const sweep_t *s, const ir_node_info_t *node, const policy_t *policy) {
    bool any = false, any_low = false, any_wide = false, weak = true, fixed = true;
    if (ir_op_def(node->op)->flags & IR_SOURCE) return decide_source(s, node);
    for (uint32_t j = 0; j < node->n_inputs; j++) {
        const ir_value_t v = node->inputs[j];
        const value_t *value = &s->values[v];
        if (!ir_dtype_is_float(ir_value_type(s->from, v)->dtype)) continue;
        weak &= value->weak;
        fixed &= value->fixed;
        if (!is_wide_source(s, v) || has_bit(policy->wide, j)) continue;
        any = true;
        any_low |= value->low;
        any_wide |= !value->low && !value->weak;
    }
    decision_t d = {false, weak, fixed};
    if (node->op == IR_OP_CAST) /* of a float: a demand; of numbers: a static value */
        d.weak = weak && !ir_dtype_is_float(ir_value_type(s->from, node->inputs[0])->dtype);
    if (policy->class == CLASS_low) d.low = any && !fixed;
    if (policy->class == CLASS_follow || policy->class == CLASS_move ||
        policy->class == CLASS_lookup)
        d.low = any_low && !any_wide;
    if (policy->class == CLASS_lookup && weak && !fixed) d.low = any;
    if (policy->class == CLASS_keep && node->op != IR_OP_CAST) d.weak = d.fixed = false;
    if (d.low) d.weak = false;
    return d;
}

static st_status_t check_result(const sweep_t *s, ir_node_t n, ir_value_t made, ir_dtype_t dtype) {
    char text[IR_TYPE_TEXT_BYTES];
    if (ir_value_type(s->to, made)->dtype == dtype) return ST_OK;
    return FAIL(ST_INTERNAL, "%s gives %s where the policy has %s", ir_node_label(s->from, n),
                ir_type_text(ir_value_type(s->to, made), text, sizeof text), ir_dtype_text(dtype));
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
        value_t *value = &s->values[v];
        *value = (value_t){IR_NONE, false, d.weak, d.fixed, value->output};
        s->home[v] = first + k;
        if (is_wide_source(s, v)) {
            value->low = d.low && !has_bit(policy->wide_out, k);
            TRY(check_result(s, n, first + k, value->low ? s->compute : IR_F32));
        }
        map[v] = first + k;
        if (value->output) TRY(want(s, v, false, 0, &map[v]));
    }
    return ST_OK;
}

static st_status_t rewrite(void *context, ir_graph_t *to, const ir_graph_t *from, ir_node_t n,
                           ir_value_t *map) {
    sweep_t *s = context;
    const uint32_t n_inputs = ir_node(from, n)->n_inputs;
    s->to = to;
    ir_value_t *in = st_calloc(n_inputs + 1, sizeof *in);
    if (!in) return st_no_memory(n_inputs * sizeof *in, "a node");
    st_status_t status = place(s, n, in, map);
    st_free(in);
    return status;
}

st_status_t ad_precision(const ir_graph_t *graph, ir_dtype_t compute, ir_graph_t **out_graph) {
    *out_graph = NULL;
    if (compute != IR_BF16 && compute != IR_F16)
        return FAIL(ST_INVALID, "the compute dtype is %s, bf16 or f16 is needed",
                    ir_dtype_text(compute));
    st_status_t status = ST_OK;
    sweep_t s = {.from = graph, .compute = compute};
    s.values = st_calloc(graph->values.n + 1, sizeof *s.values);
    s.home = st_calloc(graph->values.n + 1, sizeof *s.home);
    if (!s.values || !s.home)
        TRY_GOTO(st_no_memory(graph->values.n * sizeof *s.values, "mixed precision"), done);
    for (size_t i = 0; i < graph->outputs.n; i++)
        s.values[graph->outputs.data[i].value].output = true;
    TRY_GOTO(ir_graph_rewrite(graph, NULL, rewrite, &s, out_graph), done);
done:
    st_free(s.values);
    st_free(s.home);
    return status;
}
