/* Elementwise ATen operators: promotion first, then one or a few IR nodes. */
#include <math.h>
#include <string.h>

#include "import/aten.h"

/* ---- unary ---- */

void aten_unary(aten_t *a) {
    ir_value_t x = aten_tensor(a, "self");
    aten_return(a, ir_b_unary(&a->b, (ir_op_t)a->op->arg, x));
}

/* Integers become the default float type first. */
void aten_unary_float(aten_t *a) {
    ir_value_t x = aten_to_float(a, aten_tensor(a, "self"));
    aten_return(a, ir_b_unary(&a->b, (ir_op_t)a->op->arg, x));
}

void aten_gelu(aten_t *a) {
    ir_value_t x = aten_tensor(a, "self");
    const char *approximate = aten_string(a, "approximate", "none");
    bool tanh = strcmp(approximate, "tanh") == 0;
    if (!tanh && strcmp(approximate, "none") != 0)
        aten_fail(a, ST_UNSUPPORTED, "argument 'approximate' is '%s'; 'none' and 'tanh' exist",
                  approximate);
    aten_return(a, ir_b_node(&a->b, IR_OP_GELU, 1, &x, 1, (ir_arg_t[]){IR_ARG_BOOL("tanh", tanh)}));
}

void aten_leaky_relu(aten_t *a) {
    ir_value_t x = aten_tensor(a, "self");
    double slope = aten_float(a, "negative_slope", 0.01);
    ir_dtype_t dtype = aten_type(a, x).dtype;
    ir_value_t positive = ir_b_binary(&a->b, IR_OP_GT, x, ir_b_scalar(&a->b, dtype, 0));
    aten_return(a, ir_b_select(&a->b, positive, x, ir_b_scale(&a->b, x, slope)));
}

void aten_isnan(aten_t *a) {
    ir_value_t x = aten_tensor(a, "self");
    aten_return(a, ir_b_binary(&a->b, IR_OP_NE, x, x));
}

void aten_isinf(aten_t *a) {
    ir_value_t x = aten_to_float(a, aten_tensor(a, "self"));
    ir_value_t infinity = ir_b_scalar(&a->b, aten_type(a, x).dtype, (double)INFINITY);
    aten_return(a, ir_b_binary(&a->b, IR_OP_EQ, ir_b_unary(&a->b, IR_OP_ABS, x), infinity));
}

/* ---- arithmetic ---- */

/* Both operands in their common type. */
static ir_dtype_t promoted(aten_t *a, aten_item_t x, aten_item_t y, ir_value_t *out_x,
                           ir_value_t *out_y) {
    ir_dtype_t dtype = aten_result_type(a, 2, (aten_item_t[]){x, y});
    *out_x = aten_value(a, x, dtype);
    *out_y = aten_value(a, y, dtype);
    return dtype;
}

static bool is_one(aten_item_t scalar) {
    return scalar.kind == ATEN_NONE || (scalar.kind == ATEN_INT && scalar.i == 1) ||
           (scalar.kind == ATEN_FLOAT && scalar.f == 1.0);
}

/* x op alpha * y. On bools, + is "or" as in PyTorch, which refuses -. */
static ir_value_t add_scaled(aten_t *a, aten_item_t left, aten_item_t right, ir_op_t op) {
    aten_item_t alpha = aten_item(a, "alpha");
    ir_value_t x, y;
    ir_dtype_t dtype = promoted(a, left, right, &x, &y);
    if (dtype == IR_BOOL && op == IR_OP_ADD) return ir_b_binary(&a->b, IR_OP_LOGICAL_OR, x, y);
    if (!is_one(alpha)) {
        if (alpha.kind == ATEN_FLOAT && !ir_dtype_is_float(dtype))
            aten_fail(a, ST_INVALID, "argument 'alpha' is no integer, but the result is %s",
                      ir_dtype_text(dtype));
        y = ir_b_binary(&a->b, IR_OP_MUL, y, aten_value(a, alpha, dtype));
    }
    return ir_b_binary(&a->b, op, x, y);
}

void aten_add(aten_t *a) {
    aten_item_t x = aten_item(a, "self"), y = aten_item(a, "other");
    aten_return(a, add_scaled(a, x, y, (ir_op_t)a->op->arg));
}

void aten_rsub(aten_t *a) {
    aten_item_t x = aten_item(a, "self"), y = aten_item(a, "other");
    aten_return(a, add_scaled(a, y, x, IR_OP_SUB));
}

void aten_mul(aten_t *a) {
    aten_item_t x = aten_item(a, "self"), y = aten_item(a, "other");
    ir_value_t vx, vy;
    ir_dtype_t dtype = promoted(a, x, y, &vx, &vy);
    aten_return(a, ir_b_binary(&a->b, dtype == IR_BOOL ? IR_OP_LOGICAL_AND : IR_OP_MUL, vx, vy));
}

/* Python's //: toward minus infinity. Integers go through the remainder, which has the divisor's
 * sign. */
static ir_value_t floor_divide(aten_t *a, ir_value_t x, ir_value_t y, ir_dtype_t dtype) {
    if (ir_dtype_is_float(dtype))
        return ir_b_unary(&a->b, IR_OP_FLOOR, ir_b_binary(&a->b, IR_OP_DIV, x, y));
    ir_value_t rest = ir_b_binary(&a->b, IR_OP_MOD, x, y);
    return ir_b_binary(&a->b, IR_OP_DIV, ir_b_binary(&a->b, IR_OP_SUB, x, rest), y);
}

static ir_value_t truncate(aten_t *a, ir_value_t x) {
    ir_value_t size = ir_b_unary(&a->b, IR_OP_FLOOR, ir_b_unary(&a->b, IR_OP_ABS, x));
    return ir_b_binary(&a->b, IR_OP_MUL, ir_b_unary(&a->b, IR_OP_SIGN, x), size);
}

void aten_div(aten_t *a) {
    aten_item_t x = aten_item(a, "self"), y = aten_item(a, "other");
    const char *mode = aten_string(a, "rounding_mode", "");
    ir_value_t vx, vy;
    ir_dtype_t dtype = promoted(a, x, y, &vx, &vy);
    if (strcmp(mode, "floor") == 0) {
        aten_return(a, floor_divide(a, vx, vy, dtype));
    } else if (strcmp(mode, "trunc") == 0) {
        ir_value_t quotient = ir_b_binary(&a->b, IR_OP_DIV, vx, vy);
        aten_return(a, ir_dtype_is_float(dtype) ? truncate(a, quotient) : quotient);
    } else if (mode[0]) {
        aten_fail(a, ST_UNSUPPORTED, "argument 'rounding_mode' is '%s'", mode);
    } else {
        aten_return(a, ir_b_binary(&a->b, IR_OP_DIV, aten_to_float(a, vx), aten_to_float(a, vy)));
    }
}

void aten_floor_divide(aten_t *a) {
    aten_item_t x = aten_item(a, "self"), y = aten_item(a, "other");
    ir_value_t vx, vy;
    ir_dtype_t dtype = promoted(a, x, y, &vx, &vy);
    aten_return(a, floor_divide(a, vx, vy, dtype));
}

void aten_binary(aten_t *a) {
    aten_item_t x = aten_item(a, "self"), y = aten_item(a, "other");
    ir_value_t vx, vy;
    promoted(a, x, y, &vx, &vy);
    aten_return(a, ir_b_binary(&a->b, (ir_op_t)a->op->arg, vx, vy));
}

/* Small constant powers are products and roots, as PyTorch's own kernels compute them. */
static ir_value_t pow_constant(aten_t *a, ir_value_t x, double exponent, bool *done) {
    ir_build_t *b = &a->b;
    bool is_float = ir_dtype_is_float(aten_type(a, x).dtype);
    *done = true;
    if (exponent == 1) return x;
    if (exponent == 2)
        return is_float ? ir_b_unary(b, IR_OP_SQUARE, x) : ir_b_binary(b, IR_OP_MUL, x, x);
    if (exponent == 3) return ir_b_binary(b, IR_OP_MUL, ir_b_binary(b, IR_OP_MUL, x, x), x);
    if (is_float && exponent == 0.5) return ir_b_unary(b, IR_OP_SQRT, x);
    if (is_float && exponent == -0.5) return ir_b_unary(b, IR_OP_RSQRT, x);
    if (is_float && exponent == -1) return ir_b_unary(b, IR_OP_RECIPROCAL, x);
    if (is_float && exponent == -2)
        return ir_b_unary(b, IR_OP_RECIPROCAL, ir_b_unary(b, IR_OP_SQUARE, x));
    *done = false;
    return IR_NONE;
}

void aten_pow(aten_t *a) {
    aten_item_t x = aten_item(a, "self"), y = aten_item(a, "exponent");
    ir_value_t vx, vy, result = IR_NONE;
    ir_dtype_t dtype = aten_result_type(a, 2, (aten_item_t[]){x, y});
    if (!ir_dtype_is_float(dtype) && y.kind == ATEN_INT && y.i < 0)
        aten_fail(a, ST_INVALID, "an integer to the power of %lld", (long long)y.i);
    bool done = false;
    vx = aten_value(a, x, dtype);
    if (x.kind == ATEN_TENSOR && y.kind != ATEN_TENSOR)
        result = pow_constant(a, vx, y.kind == ATEN_FLOAT ? y.f : (double)y.i, &done);
    if (!done) {
        vy = aten_value(a, y, dtype);
        result = ir_b_binary(&a->b, IR_OP_POW, vx, vy);
    }
    aten_return(a, result);
}

/* self + value * tensor1 * tensor2, or / with arg 1 */
void aten_addcmul(aten_t *a) {
    aten_item_t x = aten_item(a, "self"), y = aten_item(a, "tensor1"), z = aten_item(a, "tensor2"),
                value = aten_item(a, "value");
    ir_dtype_t dtype = aten_result_type(a, 3, (aten_item_t[]){x, y, z});
    ir_value_t term = ir_b_binary(&a->b, a->op->arg ? IR_OP_DIV : IR_OP_MUL,
                                  aten_value(a, y, dtype), aten_value(a, z, dtype));
    if (!is_one(value)) term = ir_b_binary(&a->b, IR_OP_MUL, term, aten_value(a, value, dtype));
    aten_return(a, ir_b_binary(&a->b, IR_OP_ADD, aten_value(a, x, dtype), term));
}

/* self + weight * (end - self) */
void aten_lerp(aten_t *a) {
    ir_value_t x = aten_tensor(a, "self"), end = aten_tensor(a, "end");
    aten_item_t weight = aten_item(a, "weight");
    ir_value_t step = ir_b_binary(&a->b, IR_OP_MUL, aten_value(a, weight, aten_type(a, x).dtype),
                                  ir_b_binary(&a->b, IR_OP_SUB, end, x));
    aten_return(a, ir_b_binary(&a->b, IR_OP_ADD, x, step));
}

/* ---- comparison, logic, choice ---- */

void aten_compare(aten_t *a) {
    aten_binary(a);
}

void aten_logical(aten_t *a) {
    aten_item_t x = aten_item(a, "self"), y = aten_item(a, "other");
    ir_dtype_t dtype = aten_result_type(a, 2, (aten_item_t[]){x, y});
    bool bitwise = strncmp(a->op->name, "logical", 7) != 0;
    if (bitwise && dtype != IR_BOOL)
        aten_fail(a, ST_UNSUPPORTED, "bitwise operators are supported on bools, not on %s",
                  ir_dtype_text(dtype));
    ir_value_t vx = aten_to_bool(a, aten_value(a, x, dtype));
    ir_value_t vy = aten_to_bool(a, aten_value(a, y, dtype));
    aten_return(a, ir_b_binary(&a->b, (ir_op_t)a->op->arg, vx, vy));
}

void aten_logical_not(aten_t *a) {
    ir_value_t x = aten_tensor(a, "self");
    if (strncmp(a->op->name, "logical", 7) != 0 && aten_type(a, x).dtype != IR_BOOL)
        aten_fail(a, ST_UNSUPPORTED, "bitwise operators are supported on bools only");
    aten_return(a, ir_b_unary(&a->b, IR_OP_LOGICAL_NOT, aten_to_bool(a, x)));
}

/* x where it is within the bound, else the bound. Built from select, since at the bound itself
 * clamp's gradient goes to x in full and hardtanh's vanishes (`strict`), while a tie of maximum is
 * shared. */
ir_value_t aten_bounded(aten_t *a, ir_value_t x, ir_value_t bound, bool lower, bool strict) {
    static const ir_op_t outside[2][2] = {{IR_OP_GT, IR_OP_GE}, {IR_OP_LT, IR_OP_LE}};
    ir_value_t is_outside = ir_b_binary(&a->b, outside[lower][strict], x, bound);
    return ir_b_select(&a->b, is_outside, bound, x);
}

/* clamp (arg 0), hardtanh (1), relu6 (2) */
void aten_clamp(aten_t *a) {
    aten_item_t x = aten_item(a, "self"), low, high;
    bool strict = a->op->arg != 0;
    if (a->op->arg == 2) {
        low = (aten_item_t){.kind = ATEN_INT, .i = 0};
        high = (aten_item_t){.kind = ATEN_INT, .i = 6};
    } else if (a->op->arg == 1) {
        low = (aten_item_t){.kind = ATEN_FLOAT, .f = aten_float(a, "min_val", -1)};
        high = (aten_item_t){.kind = ATEN_FLOAT, .f = aten_float(a, "max_val", 1)};
    } else {
        low = aten_item(a, "min");
        high = aten_item(a, "max");
    }
    ir_dtype_t dtype = aten_result_type(a, 3, (aten_item_t[]){x, low, high});
    ir_value_t y = aten_value(a, x, dtype);
    if (low.kind != ATEN_NONE) y = aten_bounded(a, y, aten_value(a, low, dtype), true, strict);
    if (high.kind != ATEN_NONE) y = aten_bounded(a, y, aten_value(a, high, dtype), false, strict);
    aten_return(a, y);
}

void aten_where(aten_t *a) {
    ir_value_t condition = aten_to_bool(a, aten_tensor(a, "condition"));
    aten_item_t x = aten_item(a, "self"), y = aten_item(a, "other");
    ir_value_t vx, vy;
    promoted(a, x, y, &vx, &vy);
    aten_return(a, ir_b_select(&a->b, condition, vx, vy));
}

void aten_masked_fill(aten_t *a) {
    ir_value_t x = aten_tensor(a, "self"), mask = aten_tensor(a, "mask");
    aten_item_t value = aten_item(a, "value");
    if (aten_ok(a) && aten_type(a, mask).dtype != IR_BOOL)
        aten_fail(a, ST_INVALID, "argument 'mask' must be bool, it is %s",
                  ir_dtype_text(aten_type(a, mask).dtype));
    aten_return(a, ir_b_select(&a->b, mask, aten_value(a, value, aten_type(a, x).dtype), x));
}
