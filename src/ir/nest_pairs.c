/* Pairs of reductions (nest_pairs.h), found by their form. */
#include "ir/nest_pairs.h"

#include <math.h>

static const nest_stmt_t *op_of(const nest_t *nest, nest_value_t v, ir_op_t op) {
    const nest_stmt_t *stmt = &nest->stmts[v];
    return stmt->kind == NEST_OP && stmt->op == op && ir_dtype_is_float(stmt->dtype) ? stmt : NULL;
}

static const nest_stmt_t *reduction_of(const nest_t *nest, nest_value_t v, ir_op_t op) {
    const nest_stmt_t *stmt = &nest->stmts[v];
    return stmt->kind == NEST_REDUCE && stmt->op == op && ir_dtype_is_float(stmt->dtype) ? stmt
                                                                                         : NULL;
}

/* The other factor or the dividend where `v` divides by n; NEST_NONE: it does not. A factor 1 / n
 * may have been rounded to f32. */
static nest_value_t divided_by(const nest_t *nest, nest_value_t v, double n) {
    const nest_stmt_t *quotient = op_of(nest, v, IR_OP_DIV), *product = op_of(nest, v, IR_OP_MUL);
    if (quotient) {
        const nest_stmt_t *by = &nest->stmts[quotient->args[1]];
        return by->kind == NEST_CONSTANT && by->real == n ? quotient->args[0] : NEST_NONE;
    }
    for (uint32_t k = 0; product && k < 2; k++) {
        const nest_stmt_t *by = &nest->stmts[product->args[k]];
        if (by->kind == NEST_CONSTANT && fabs(by->real * n - 1) < 1e-7) return product->args[1 - k];
    }
    return NEST_NONE;
}

/* Fills the pair if `first` reduces `of` as `second` does. */
static bool makes_pair(const nest_t *nest, nest_value_t first, nest_value_t second, nest_value_t of,
                       ir_op_t op, nest_pair_t *out) {
    const nest_stmt_t *a = reduction_of(nest, first, op), *b = &nest->stmts[second];
    if (!a || a->args[0] != of || a->domain != b->domain || a->over != b->over ||
        a->mask != b->mask)
        return false;
    *out = (nest_pair_t){first, second, of};
    return true;
}

bool nest_centered_squares(const nest_t *nest, nest_value_t v, nest_pair_t *out_pair) {
    const nest_stmt_t *sum = reduction_of(nest, v, IR_OP_REDUCE_SUM);
    if (!sum || sum->domain == NEST_NONE) return false;
    const nest_stmt_t *product = op_of(nest, sum->args[0], IR_OP_MUL);
    const nest_stmt_t *square = op_of(nest, sum->args[0], IR_OP_SQUARE);
    if (product && product->args[0] == product->args[1]) square = product;
    const nest_stmt_t *centered = square ? op_of(nest, square->args[0], IR_OP_SUB) : NULL;
    if (!centered) return false;
    double n = (double)nest_points(&nest->domains[sum->domain], sum->over);
    nest_value_t total = divided_by(nest, centered->args[1], n);
    return total != NEST_NONE &&
           makes_pair(nest, total, v, centered->args[0], IR_OP_REDUCE_SUM, out_pair);
}

bool nest_centered_exponentials(const nest_t *nest, nest_value_t v, nest_pair_t *out_pair) {
    const nest_stmt_t *sum = reduction_of(nest, v, IR_OP_REDUCE_SUM);
    const nest_stmt_t *power = sum ? op_of(nest, sum->args[0], IR_OP_EXP) : NULL;
    const nest_stmt_t *centered = power ? op_of(nest, power->args[0], IR_OP_SUB) : NULL;
    return centered &&
           makes_pair(nest, centered->args[1], v, centered->args[0], IR_OP_REDUCE_MAX, out_pair);
}
