/* Rules of the simplify pass for arithmetic, logic, casts, selects, reductions and products.
 *
 * Exact but for: x + 0 and its kin keep the sign of a zero x; a sum or mean of equal elements is
 * taken at once, without the roundings of adding them up. x - x and 0 * x stay: NaN and
 * infinity. */
#include <math.h>
#include <string.h>

#include "fusion/asking.h"
#include "fusion/rules.h"
#include "ir/convert.h"

/* ---- constants ---- */

/* Whether `value` is a constant with all elements equal to a small whole number. */
static bool is_all(const fuse_sweep_t *s, ir_value_t value, int64_t number) {
    const void *element = fuse_splat(s->to, value);
    ir_dtype_t dtype = ir_value_type(s->to, value)->dtype;
    if (!element) return false;
    if (ir_dtype_is_float(dtype)) return ir_element_load(dtype, element, 0) == (double)number;
    return ir_element_load_i64(dtype, element, 0) == number;
}

/* The number of a splat. */
static bool splat_number(const fuse_sweep_t *s, ir_value_t value, double *out) {
    const void *element = fuse_splat(s->to, value);
    if (element) *out = ir_element_load(fuse_type(s, value)->dtype, element, 0);
    return element != NULL;
}

/* x op number = x, where the result has x's type (the constant does not broadcast x). */
static void neutral(const fuse_sweep_t *s, const ir_node_info_t *node, ir_value_t x,
                    ir_value_t constant, int64_t number, ir_value_t *out) {
    if (*out == IR_NONE && is_all(s, constant, number) && fuse_has_type(s, x, fuse_result(s, node)))
        *out = x;
}

/* op(x) over other operands, with the node's name. */
static st_status_t emit_op(fuse_sweep_t *s, const ir_node_info_t *node, ir_op_t op, ir_value_t x,
                           ir_value_t y, ir_value_t *out) {
    return fuse_emit(s, op, node->name, y == IR_NONE ? 1 : 2, (ir_value_t[]){x, y}, 0, NULL, out);
}

/* ---- sums, products ---- */

static st_status_t add(fuse_sweep_t *s, const ir_node_info_t *node, const ir_value_t *in,
                       ir_value_t *out) {
    neutral(s, node, in[0], in[1], 0, out);
    neutral(s, node, in[1], in[0], 0, out);
    for (int j = 0; j < 2 && *out == IR_NONE; j++) { /* x + -y */
        const ir_node_info_t *inner = fuse_made_by(s, in[j], IR_OP_NEG);
        if (inner) return emit_op(s, node, IR_OP_SUB, in[1 - j], inner->inputs[0], out);
    }
    return ST_OK;
}

static st_status_t sub(fuse_sweep_t *s, const ir_node_info_t *node, const ir_value_t *in,
                       ir_value_t *out) {
    neutral(s, node, in[0], in[1], 0, out);
    const ir_node_info_t *inner = fuse_made_by(s, in[1], IR_OP_NEG);
    if (*out != IR_NONE || !inner) return ST_OK;
    return emit_op(s, node, IR_OP_ADD, in[0], inner->inputs[0], out); /* x - -y */
}

/* -x op -y = x op y, for products and quotients. */
static st_status_t signs(fuse_sweep_t *s, const ir_node_info_t *node, const ir_value_t *in,
                         ir_value_t *out) {
    const ir_node_info_t *a = fuse_made_by(s, in[0], IR_OP_NEG),
                         *b = fuse_made_by(s, in[1], IR_OP_NEG);
    if (*out != IR_NONE || !a || !b || !ir_dtype_is_float(fuse_result(s, node)->dtype))
        return ST_OK;
    return emit_op(s, node, node->op, a->inputs[0], b->inputs[0], out);
}

static st_status_t mul(fuse_sweep_t *s, const ir_node_info_t *node, const ir_value_t *in,
                       ir_value_t *out) {
    neutral(s, node, in[0], in[1], 1, out);
    neutral(s, node, in[1], in[0], 1, out);
    return signs(s, node, in, out);
}

/* Division by a power of two is a product, which rounds the same. */
static st_status_t divide(fuse_sweep_t *s, const ir_node_info_t *node, const ir_value_t *in,
                          ir_value_t *out) {
    double number;
    int exponent;
    neutral(s, node, in[0], in[1], 1, out);
    TRY(signs(s, node, in, out));
    const ir_type_t *type = fuse_type(s, in[1]);
    if (*out != IR_NONE || !ir_dtype_is_float(type->dtype) || !splat_number(s, in[1], &number) ||
        fabs(frexp(number, &exponent)) != 0.5 || exponent < -5 || exponent > 7)
        return ST_OK;
    ir_type_t own = *type;
    uint64_t element = 0;
    ir_value_t inverse;
    ir_element_store(own.dtype, &element, 0, 1 / number);
    TRY(fuse_emit_constant(s, NULL, &own, &element, ir_dtype_bytes(own.dtype), &inverse));
    return emit_op(s, node, IR_OP_MUL, in[0], inverse, out);
}

static st_status_t power(fuse_sweep_t *s, const ir_node_info_t *node, const ir_value_t *in,
                         ir_value_t *out) {
    neutral(s, node, in[0], in[1], 1, out);
    return ST_OK;
}

/* ---- unary ---- */

static st_status_t involution(fuse_sweep_t *s, const ir_node_info_t *node, const ir_value_t *in,
                              ir_value_t *out) {
    const ir_node_info_t *inner = fuse_made_by(s, in[0], node->op);
    if (inner) *out = inner->inputs[0];
    return ST_OK;
}

/* Whether an op gives no element below zero (NaN is none). */
static bool is_positive(ir_op_t op) {
    static const bool rows[IR_OP_END] = {
        [IR_OP_RELU] = true,    [IR_OP_ABS] = true,  [IR_OP_EXP] = true,
        [IR_OP_SIGMOID] = true, [IR_OP_SQRT] = true, [IR_OP_SOFTMAX] = true};
    return rows[op];
}

static st_status_t relu(fuse_sweep_t *s, const ir_node_info_t *node, const ir_value_t *in,
                        ir_value_t *out) {
    (void)node;
    if (is_positive(ir_value_producer(s->to, in[0])->op)) *out = in[0];
    return ST_OK;
}

/* |x| and x^2 do not see a sign. */
static st_status_t even(fuse_sweep_t *s, const ir_node_info_t *node, const ir_value_t *in,
                        ir_value_t *out) {
    const ir_node_info_t *inner = ir_value_producer(s->to, in[0]);
    if (node->op == IR_OP_ABS && is_positive(inner->op))
        *out = in[0];
    else if (inner->op == IR_OP_NEG || inner->op == IR_OP_ABS)
        return emit_op(s, node, node->op, inner->inputs[0], IR_NONE, out);
    return ST_OK;
}

/* Whether a cast that changes nothing still asks mixed precision for float32, to run yet. */
static bool asks(const fuse_sweep_t *s, const ir_node_info_t *node, ir_value_t x) {
    return s->folding == FUSE_FOLD_EXACT && asking_is_cast(s->from, node) &&
           !fuse_made_by(s, x, IR_OP_CAST);
}

/* a → b → c is a → c where a → b is exact: c then starts from the same number. Integers reach
 * integers by wrapping but floats by saturating, so an integer's way over a float to an integer
 * stays. */
static st_status_t cast(fuse_sweep_t *s, const ir_node_info_t *node, const ir_value_t *in,
                        ir_value_t *out) {
    if (asks(s, node, in[0])) return ST_OK;
    if (fuse_has_type(s, in[0], fuse_result(s, node))) *out = in[0];
    const ir_node_info_t *inner = fuse_made_by(s, in[0], IR_OP_CAST);
    if (*out != IR_NONE || !inner) return ST_OK;
    ir_value_t x = inner->inputs[0];
    ir_dtype_t a = ir_value_type(s->to, x)->dtype, b = ir_value_type(s->to, in[0])->dtype;
    ir_dtype_t c = fuse_result(s, node)->dtype;
    if (!fuse_cast_is_exact(a, b)) return ST_OK;
    if (a == c) {
        *out = x;
        return ST_OK;
    }
    if (ir_dtype_is_integer(a) && ir_dtype_is_float(b) && ir_dtype_is_integer(c)) return ST_OK;
    return fuse_emit(s, IR_OP_CAST, node->name, 1, &x, 1, (ir_arg_t[]){IR_ARG_DTYPE("dtype", c)},
                     out);
}

/* ---- comparison, logic, choice ---- */

/* max(x, x); max(max(x, a), b) with constants. The same of min. */
static st_status_t extreme(fuse_sweep_t *s, const ir_node_info_t *node, const ir_value_t *in,
                           ir_value_t *out) {
    if (in[0] == in[1]) *out = in[0];
    for (int j = 0; j < 2 && *out == IR_NONE; j++) {
        const ir_node_info_t *inner = fuse_made_by(s, in[j], node->op);
        if (!inner || !fuse_splat(s->to, in[1 - j])) continue;
        for (int i = 0; i < 2; i++) {
            if (!fuse_splat(s->to, inner->inputs[i])) continue;
            ir_value_t both, x = inner->inputs[1 - i];
            ir_type_t type;
            TRY(ir_dims_broadcast(fuse_type(s, x), fuse_type(s, in[1 - j]), &type));
            if (!ir_dims_equal(&type, fuse_result(s, node))) continue;
            TRY(emit_op(s, node, node->op, inner->inputs[i], in[1 - j], &both));
            return emit_op(s, node, node->op, x, both, out);
        }
    }
    return ST_OK;
}

static st_status_t logical(fuse_sweep_t *s, const ir_node_info_t *node, const ir_value_t *in,
                           ir_value_t *out) {
    int64_t unit = node->op == IR_OP_LOGICAL_AND;
    neutral(s, node, in[0], in[1], unit, out);
    neutral(s, node, in[1], in[0], unit, out);
    for (int j = 0; j < 2 && *out == IR_NONE; j++) /* what decides alone */
        if (is_all(s, in[j], !unit) && fuse_has_type(s, in[j], fuse_result(s, node))) *out = in[j];
    if (in[0] == in[1]) *out = in[0];
    return ST_OK;
}

/* not (a = b) is a ≠ b, for NaN too; the other comparisons have no such partner. */
static st_status_t negation(fuse_sweep_t *s, const ir_node_info_t *node, const ir_value_t *in,
                            ir_value_t *out) {
    TRY(involution(s, node, in, out));
    const ir_node_info_t *inner = ir_value_producer(s->to, in[0]);
    if (*out != IR_NONE || (inner->op != IR_OP_EQ && inner->op != IR_OP_NE)) return ST_OK;
    return emit_op(s, node, inner->op == IR_OP_EQ ? IR_OP_NE : IR_OP_EQ, inner->inputs[0],
                   inner->inputs[1], out);
}

static st_status_t choice(fuse_sweep_t *s, const ir_node_info_t *node, const ir_value_t *in,
                          ir_value_t *out) {
    bool chosen_known = fuse_splat(s->to, in[0]) != NULL || in[1] == in[2];
    ir_value_t chosen = in[1] == in[2] || !is_all(s, in[0], 0) ? in[1] : in[2];
    if (chosen_known && fuse_has_type(s, chosen, fuse_result(s, node))) *out = chosen;
    const ir_node_info_t *inner = fuse_made_by(s, in[0], IR_OP_LOGICAL_NOT);
    if (*out != IR_NONE || !inner) return ST_OK;
    return fuse_emit(s, IR_OP_SELECT, node->name, 3, (ir_value_t[]){inner->inputs[0], in[2], in[1]},
                     0, NULL, out);
}

/* ---- reductions ---- */

/* Dims of a reduction's result with the reduced ones kept. */
static ir_type_t kept(const ir_type_t *x, const ir_attr_t *axes) {
    ir_type_t type = *x;
    for (int32_t i = 0; i < type.rank; i++) {
        bool reduced = axes->ints.n == 0;
        for (uint32_t a = 0; a < axes->ints.n; a++) reduced |= axes->ints.v[a] == i;
        if (reduced) type.dims[i] = 1;
    }
    return type;
}

/* Over dims that a broadcast repeats, all elements are equal: their maximum, minimum and mean is
 * one of them, their sum a multiple. */
static st_status_t reduction(fuse_sweep_t *s, const ir_node_info_t *node, const ir_value_t *in,
                             ir_value_t *out) {
    const ir_node_info_t *inner = fuse_made_by(s, in[0], IR_OP_BROADCAST);
    const ir_type_t type = *fuse_result(s, node), x = *fuse_type(s, in[0]);
    if (!inner || ir_type_elements(&x) == 0) return ST_OK;
    ir_value_t y = inner->inputs[0];
    const ir_type_t small = *fuse_type(s, y), all = kept(&x, ir_node_attr(node, "axes"));
    ir_type_t own = small; /* y with x's rank */
    memset(own.dims, 0, sizeof own.dims);
    own.rank = x.rank;
    for (int32_t i = 0; i < x.rank; i++) {
        int32_t j = i - (x.rank - small.rank);
        own.dims[i] = j < 0 ? 1 : small.dims[j];
        if (all.dims[i] == 1 && own.dims[i] != 1) return ST_OK;
    }
    double count = (double)ir_type_elements(&x) / (double)ir_type_elements(&all);
    uint64_t element = 0; /* of the sum's type: the count must be one of its numbers */
    ir_element_store(type.dtype, &element, 0, count);
    if (node->op == IR_OP_REDUCE_SUM && ir_element_load(type.dtype, &element, 0) != count)
        return ST_OK;
    TRY(fuse_emit_shape(s, IR_OP_RESHAPE, node->name, y, &own, &y));
    TRY(fuse_emit_shape(s, IR_OP_BROADCAST, node->name, y, &all, &y));
    TRY(fuse_emit_shape(s, IR_OP_RESHAPE, node->name, y, &type, &y));
    if (node->op != IR_OP_REDUCE_SUM) {
        *out = y;
        return ST_OK;
    }
    ir_value_t times;
    TRY(fuse_emit_scalar(s, type.dtype, count, &times));
    return emit_op(s, node, IR_OP_MUL, y, times, out);
}

/* ---- products ---- */

/* Whether a transpose swaps the last two dims and leaves the others. */
static bool swaps_matrix(const ir_node_info_t *node, int32_t rank) {
    int64_t perm[IR_MAX_RANK];
    fuse_read_perm(node, rank, perm);
    for (int32_t i = 0; i + 2 < rank; i++)
        if (perm[i] != i) return false;
    return rank >= 2 && perm[rank - 2] == rank - 1;
}

/* A product reads its operands either way: transposes before it become its attributes. */
static st_status_t matmul(fuse_sweep_t *s, const ir_node_info_t *node, const ir_value_t *in,
                          ir_value_t *out) {
    static const char *const keys[2] = {"transpose_a", "transpose_b"};
    ir_value_t operands[3] = {in[0], in[1], node->n_inputs > 2 ? in[2] : IR_NONE};
    ir_arg_t args[2];
    bool changed = false;
    for (int j = 0; j < 2; j++) {
        const ir_node_info_t *inner = fuse_made_by(s, in[j], IR_OP_TRANSPOSE);
        bool swapped = inner && swaps_matrix(inner, ir_value_type(s->to, in[j])->rank);
        if (swapped) operands[j] = inner->inputs[0];
        args[j] = IR_ARG_BOOL(keys[j], (ir_attr_int(node, keys[j]) != 0) != swapped);
        changed |= swapped;
    }
    if (!changed) return ST_OK;
    return fuse_emit(s, IR_OP_MATMUL, node->name, node->n_inputs, operands, 2, args, out);
}

/* ---- all elementwise ops ---- */

/* Whether the op takes these operands for the same result: some elementwise ops do not repeat. */
static bool accepts(const fuse_sweep_t *s, const ir_node_info_t *node, const ir_value_t *operands) {
    ir_type_t in[3], out;
    for (uint32_t j = 0; j < node->n_inputs; j++) in[j] = *fuse_type(s, operands[j]);
    ir_op_ctx_t ctx = {node->op, node->n_inputs, 1, in, node->attrs, node->name};
    if (ir_op_def(node->op)->shape(&ctx, &out) != ST_OK) {
        st_clear_error();
        return false;
    }
    return ir_type_equal(&out, fuse_result(s, node));
}

/* An operand that an op would repeat anyway need not be repeated before. */
static st_status_t drop_broadcasts(fuse_sweep_t *s, const ir_node_info_t *node,
                                   const ir_value_t *in, ir_value_t *out) {
    ir_value_t operands[3];
    bool changed = false;
    if (node->n_inputs < 2 || node->n_inputs > 3 || node->n_outputs != 1) return ST_OK;
    memcpy(operands, in, node->n_inputs * sizeof *in);
    for (uint32_t j = 0; j < node->n_inputs; j++) {
        const ir_node_info_t *inner = fuse_made_by(s, in[j], IR_OP_BROADCAST);
        if (!inner) continue;
        operands[j] = inner->inputs[0];
        if (accepts(s, node, operands))
            changed = true;
        else
            operands[j] = in[j];
    }
    return changed ? fuse_emit_like(s, node, operands, out) : ST_OK;
}

/* f(broadcast x) computes each element once. */
static st_status_t sink_broadcast(fuse_sweep_t *s, const ir_node_info_t *node, const ir_value_t *in,
                                  ir_value_t *out) {
    const ir_node_info_t *inner = fuse_made_by(s, in[0], IR_OP_BROADCAST);
    const ir_type_t type = *fuse_result(s, node);
    if (node->n_inputs != 1 || node->n_outputs != 1 || !inner ||
        ir_type_elements(fuse_type(s, inner->inputs[0])) >= ir_type_elements(&type))
        return ST_OK;
    ir_value_t x = inner->inputs[0], y;
    TRY(fuse_emit_like(s, node, &x, &y));
    return fuse_emit_shape(s, IR_OP_BROADCAST, node->name, y, &type, out);
}

/* f(x^T, y^T) = f(x, y)^T: one transpose for several. Scalars may stand beside them. */
static st_status_t sink_transposes(fuse_sweep_t *s, const ir_node_info_t *node,
                                   const ir_value_t *in, ir_value_t *out) {
    int32_t rank = fuse_result(s, node)->rank;
    int64_t perm[IR_MAX_RANK], own[IR_MAX_RANK];
    ir_value_t operands[3];
    uint32_t n = 0;
    if (node->n_inputs < 2 || node->n_inputs > 3 || node->n_outputs != 1) return ST_OK;
    for (uint32_t j = 0; j < node->n_inputs; j++) {
        const ir_node_info_t *inner = fuse_made_by(s, in[j], IR_OP_TRANSPOSE);
        operands[j] = in[j];
        if (fuse_type(s, in[j])->rank == 0) continue;
        if (!inner || fuse_type(s, in[j])->rank != rank || !fuse_only_reader(s, node, j))
            return ST_OK;
        fuse_read_perm(inner, rank, n ? own : perm);
        if (n++ && memcmp(own, perm, (size_t)rank * sizeof *perm) != 0) return ST_OK;
        operands[j] = inner->inputs[0];
    }
    if (n < 2) return ST_OK;
    ir_value_t y;
    TRY(fuse_emit_like(s, node, operands, &y));
    return fuse_emit_transpose(s, node->name, y, perm, out);
}

st_status_t fuse_rule_elementwise(fuse_sweep_t *s, const ir_node_info_t *node, const ir_value_t *in,
                                  ir_value_t *out) {
    if (*out == IR_NONE) TRY(drop_broadcasts(s, node, in, out));
    if (*out == IR_NONE) TRY(sink_broadcast(s, node, in, out));
    if (*out == IR_NONE) TRY(sink_transposes(s, node, in, out));
    return ST_OK;
}

fuse_rule_t *const fuse_rules_algebra[IR_OP_END] = {
    [IR_OP_ADD] = add,
    [IR_OP_SUB] = sub,
    [IR_OP_MUL] = mul,
    [IR_OP_DIV] = divide,
    [IR_OP_POW] = power,
    [IR_OP_NEG] = involution,
    [IR_OP_RELU] = relu,
    [IR_OP_ABS] = even,
    [IR_OP_SQUARE] = even,
    [IR_OP_CAST] = cast,
    [IR_OP_MAXIMUM] = extreme,
    [IR_OP_MINIMUM] = extreme,
    [IR_OP_LOGICAL_AND] = logical,
    [IR_OP_LOGICAL_OR] = logical,
    [IR_OP_LOGICAL_NOT] = negation,
    [IR_OP_SELECT] = choice,
    [IR_OP_REDUCE_SUM] = reduction,
    [IR_OP_REDUCE_MEAN] = reduction,
    [IR_OP_REDUCE_MAX] = reduction,
    [IR_OP_REDUCE_MIN] = reduction,
    [IR_OP_MATMUL] = matmul,
};
