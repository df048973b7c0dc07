/* ONNX's elementwise ops. */
#include <math.h>
#include <string.h>

#include "import/onnx_reader.h"
#include "ir/op.h"

/* One op of the same meaning (arg). */
void onnx_unary(onnx_t *o) {
    onnx_return(o, ir_b_unary(&o->b, (ir_op_t)o->op->arg, onnx_in(o, 0)));
}

void onnx_identity(onnx_t *o) {
    onnx_return(o, onnx_in(o, 0));
}

/* x or y where `condition`. */
static ir_value_t choose(onnx_t *o, ir_value_t condition, ir_value_t x, ir_value_t y) {
    return ir_b_select(&o->b, condition, x, y);
}

static ir_value_t scalar_like(onnx_t *o, ir_value_t x, double value) {
    return ir_b_scalar(&o->b, onnx_type(o, x).dtype, value);
}

/* log(1 + exp(x)) without overflow: max(x, 0) + log(1 + exp(-|x|)) */
static ir_value_t softplus(onnx_t *o, ir_value_t x) {
    ir_build_t *b = &o->b;
    ir_value_t small =
        ir_b_unary(b, IR_OP_EXP, ir_b_unary(b, IR_OP_NEG, ir_b_unary(b, IR_OP_ABS, x)));
    small = ir_b_unary(b, IR_OP_LOG, ir_b_add_scalar(b, small, 1));
    return ir_b_binary(b, IR_OP_ADD, ir_b_unary(b, IR_OP_RELU, x), small);
}

/* exp(min(x, 0)) - 1 */
static ir_value_t negative_exponential(onnx_t *o, ir_value_t x) {
    ir_build_t *b = &o->b;
    ir_value_t low = ir_b_binary(b, IR_OP_MINIMUM, x, scalar_like(o, x, 0));
    return ir_b_add_scalar(b, ir_b_unary(b, IR_OP_EXP, low), -1);
}

/* clip(alpha x + beta, 0, 1) */
static ir_value_t hard_sigmoid(onnx_t *o, ir_value_t x, double alpha, double beta) {
    ir_build_t *b = &o->b;
    ir_value_t y = ir_b_unary(b, IR_OP_RELU, ir_b_add_scalar(b, ir_b_scale(b, x, alpha), beta));
    return ir_b_binary(b, IR_OP_MINIMUM, y, scalar_like(o, x, 1));
}

/* Activations that are a few ops (arg). */
void onnx_composed(onnx_t *o) {
    ir_build_t *b = &o->b;
    ir_value_t x = onnx_in(o, 0), y = IR_NONE;
    int32_t which = o->op->arg;
    if (which == ONNX_SOFTPLUS) {
        y = softplus(o, x);
    } else if (which == ONNX_MISH) {
        y = ir_b_binary(b, IR_OP_MUL, x, ir_b_unary(b, IR_OP_TANH, softplus(o, x)));
    } else if (which == ONNX_SOFTSIGN) {
        y = ir_b_binary(b, IR_OP_DIV, x, ir_b_add_scalar(b, ir_b_unary(b, IR_OP_ABS, x), 1));
    } else if (which == ONNX_HARD_SIGMOID) {
        y = hard_sigmoid(o, x, onnx_float(o, "alpha", 0.2), onnx_float(o, "beta", 0.5));
    } else if (which == ONNX_HARD_SWISH) {
        y = ir_b_binary(b, IR_OP_MUL, x, hard_sigmoid(o, x, 1.0 / 6, 0.5));
    } else {
        double alpha = onnx_float(o, "alpha", which == ONNX_SELU ? 1.67326319217681884765625 : 1);
        double gamma = which == ONNX_SELU ? onnx_float(o, "gamma", 1.05070102214813232421875) : 1;
        if (which == ONNX_CELU && alpha == 0) onnx_fail(o, ST_INVALID, "attribute 'alpha' is 0");
        ir_value_t scaled = which == ONNX_CELU ? ir_b_scale(b, x, 1 / alpha) : x;
        y = ir_b_scale(b, negative_exponential(o, scaled), alpha);
        y = ir_b_binary(b, IR_OP_ADD, ir_b_unary(b, IR_OP_RELU, x), y);
        if (gamma != 1) y = ir_b_scale(b, y, gamma);
    }
    onnx_return(o, y);
}

void onnx_gelu(onnx_t *o) {
    ir_value_t x = onnx_in(o, 0);
    const char *how = onnx_string(o, "approximate", "none");
    bool tanh_form = strcmp(how, "tanh") == 0;
    if (onnx_ok(o) && !tanh_form && strcmp(how, "none") != 0)
        onnx_fail(o, ST_UNSUPPORTED, "attribute 'approximate' is '%.32s'", how);
    onnx_return(
        o, ir_b_node(&o->b, IR_OP_GELU, 1, &x, 1, (ir_arg_t[]){IR_ARG_BOOL("tanh", tanh_form)}));
}

/* LeakyRelu; ThresholdedRelu (arg 1): x > alpha ? x : 0 */
void onnx_leaky(onnx_t *o) {
    ir_value_t x = onnx_in(o, 0);
    bool thresholded = o->op->arg != 0;
    double alpha = onnx_float(o, "alpha", thresholded ? 1 : 0.01);
    ir_value_t edge = scalar_like(o, x, thresholded ? alpha : 0);
    ir_value_t above = ir_b_binary(&o->b, thresholded ? IR_OP_GT : IR_OP_GE, x, edge);
    ir_value_t low = thresholded ? scalar_like(o, x, 0) : ir_b_scale(&o->b, x, alpha);
    onnx_return(o, choose(o, above, x, low));
}

/* The slope broadcasts to x only. */
void onnx_prelu(onnx_t *o) {
    ir_value_t x = onnx_in(o, 0), slope = onnx_in(o, 1);
    ir_value_t above = ir_b_binary(&o->b, IR_OP_GE, x, scalar_like(o, x, 0));
    onnx_return(o, choose(o, above, x, ir_b_binary(&o->b, IR_OP_MUL, x, slope)));
}

void onnx_binary(onnx_t *o) {
    ir_value_t x = onnx_in(o, 0), y = onnx_in(o, 1);
    if (onnx_same_dtype(o, x, y)) onnx_return(o, ir_b_binary(&o->b, (ir_op_t)o->op->arg, x, y));
}

/* The exponent may have another type; the result has the base's. Two is a square. */
void onnx_pow(onnx_t *o) {
    ir_value_t x = onnx_in(o, 0), y = onnx_in(o, 1);
    ir_type_t tx = onnx_type(o, x), ty = onnx_type(o, y);
    const float *single = ty.rank == 0 && ty.dtype == IR_F32 ? onnx_known(o, y) : NULL;
    if (onnx_ok(o) && ir_dtype_is_float(tx.dtype) && single && *single == 2) {
        onnx_return(o, ir_b_unary(&o->b, IR_OP_SQUARE, x));
    } else if (ir_dtype_is_float(ty.dtype) && ir_dtype_is_integer(tx.dtype)) {
        ir_dtype_t wide = ty.dtype == IR_F64 ? IR_F64 : IR_F32;
        ir_value_t power =
            ir_b_binary(&o->b, IR_OP_POW, ir_b_cast(&o->b, x, wide), ir_b_cast(&o->b, y, wide));
        onnx_return(o, ir_b_cast(&o->b, power, tx.dtype));
    } else {
        onnx_return(o, ir_b_binary(&o->b, IR_OP_POW, x, ir_b_cast(&o->b, y, tx.dtype)));
    }
}

/* fmod=0: Python's remainder, the sign of the divisor; fmod=1: C's, the sign of x: x - trunc(x / y)
 * y. */
void onnx_mod(onnx_t *o) {
    ir_build_t *b = &o->b;
    ir_value_t x = onnx_in(o, 0), y = onnx_in(o, 1);
    bool c_form = onnx_flag(o, "fmod", false);
    ir_type_t type = onnx_type(o, x);
    if (!onnx_same_dtype(o, x, y)) return;
    if (!c_form && ir_dtype_is_float(type.dtype))
        onnx_fail(o, ST_INVALID, "Mod of floats needs attribute 'fmod' = 1");
    if (!c_form) {
        onnx_return(o, ir_b_binary(b, IR_OP_MOD, x, y));
        return;
    }
    /* |x| mod |y| has no sign question; the sign of x comes back */
    ir_value_t rest =
        ir_b_binary(b, IR_OP_MOD, ir_b_unary(b, IR_OP_ABS, x), ir_b_unary(b, IR_OP_ABS, y));
    onnx_return(o, ir_b_binary(b, IR_OP_MUL, ir_b_unary(b, IR_OP_SIGN, x), rest));
}

void onnx_xor(onnx_t *o) {
    ir_value_t x = onnx_in(o, 0), y = onnx_in(o, 1);
    if (onnx_ok(o) && (onnx_type(o, x).dtype != IR_BOOL || onnx_type(o, y).dtype != IR_BOOL))
        onnx_fail(o, ST_INVALID, "Xor of what is not bool");
    onnx_return(o, ir_b_binary(&o->b, IR_OP_NE, x, y));
}

void onnx_isnan(onnx_t *o) {
    ir_value_t x = onnx_in(o, 0);
    onnx_return(o, ir_b_binary(&o->b, IR_OP_NE, x, x));
}

void onnx_isinf(onnx_t *o) {
    ir_build_t *b = &o->b;
    ir_value_t x = onnx_in(o, 0);
    bool positive = onnx_flag(o, "detect_positive", true),
         negative = onnx_flag(o, "detect_negative", true);
    ir_value_t high = ir_b_binary(b, IR_OP_EQ, x, scalar_like(o, x, INFINITY));
    ir_value_t low = ir_b_binary(b, IR_OP_EQ, x, scalar_like(o, x, -INFINITY));
    if (positive && negative)
        onnx_return(o, ir_b_binary(b, IR_OP_LOGICAL_OR, high, low));
    else if (positive || negative)
        onnx_return(o, positive ? high : low);
    else
        onnx_return(o, ir_b_binary(b, IR_OP_LT, x, x)); /* nowhere */
}

void onnx_where(onnx_t *o) {
    ir_value_t condition = onnx_in(o, 0), x = onnx_in(o, 1), y = onnx_in(o, 2);
    onnx_return(o, choose(o, condition, x, y));
}

void onnx_cast(onnx_t *o) {
    ir_value_t x = onnx_in(o, 0);
    int64_t to = onnx_int(o, "to", 0);
    ir_dtype_t dtype = onnx_dtype(to);
    bool saturate = onnx_flag(o, "saturate", true); /* opset 19, for 8-bit floats */
    if (onnx_ok(o) && dtype == IR_DTYPE_NONE)
        onnx_fail(o, ST_UNSUPPORTED, "element type %s (%lld) is not supported", onnx_dtype_name(to),
                  (long long)to);
    if (onnx_ok(o) && !saturate && ir_dtype_bytes(dtype) == 1 && ir_dtype_is_float(dtype))
        onnx_fail(o, ST_UNSUPPORTED, "attribute 'saturate' is 0");
    onnx_return(o, ir_b_cast(&o->b, x, dtype));
}

void onnx_cast_like(onnx_t *o) {
    ir_value_t x = onnx_in(o, 0), like = onnx_in(o, 1);
    onnx_int(o, "saturate", 1);
    onnx_return(o, ir_b_cast(&o->b, x, onnx_type(o, like).dtype));
}

/* Max, Min, Sum of any number; Mean (arg 0) divides by their number. */
void onnx_variadic(onnx_t *o) {
    ir_op_t op = o->op->arg ? (ir_op_t)o->op->arg : IR_OP_ADD;
    size_t n = onnx_n_inputs(o);
    ir_value_t y = onnx_in(o, 0);
    for (size_t i = 1; i < n && onnx_ok(o); i++) {
        ir_value_t x = onnx_in(o, i);
        if (onnx_same_dtype(o, y, x)) y = ir_b_binary(&o->b, op, y, x);
    }
    if (!o->op->arg && n > 1) y = ir_b_binary(&o->b, IR_OP_DIV, y, scalar_like(o, y, (double)n));
    onnx_return(o, y);
}

/* Opsets to 10: bounds are attributes. */
void onnx_clip_attributes(onnx_t *o) {
    ir_value_t x = onnx_in(o, 0);
    if (onnx_has(o, "min"))
        x = ir_b_binary(&o->b, IR_OP_MAXIMUM, x, scalar_like(o, x, onnx_float(o, "min", 0)));
    if (onnx_has(o, "max"))
        x = ir_b_binary(&o->b, IR_OP_MINIMUM, x, scalar_like(o, x, onnx_float(o, "max", 0)));
    onnx_return(o, x);
}

void onnx_clip(onnx_t *o) {
    static const ir_op_t ops[] = {0, IR_OP_MAXIMUM, IR_OP_MINIMUM};
    ir_value_t x = onnx_in(o, 0);
    for (size_t i = 1; i <= 2; i++) {
        if (!onnx_has_input(o, i)) continue;
        ir_value_t bound = onnx_in_setting(o, i);
        ir_type_t type = onnx_type(o, bound);
        if (onnx_ok(o) && ir_type_elements(&type) != 1)
            onnx_fail(o, ST_INVALID, "input %zu is no scalar", i);
        if (onnx_same_dtype(o, x, bound))
            x = ir_b_binary(&o->b, ops[i], x, ir_b_reshape(&o->b, bound, 0, NULL));
    }
    onnx_return(o, x);
}
