/* ATen's activations that are a few IR ops, in forms that neither overflow nor lose small results.
 *
 * Where ATen has a corner, its gradient there is kept: a tie of maximum and minimum is shared,
 * which is right for the smooth functions (softplus has 1/2 at 0), and select gives the rest. */
#include <math.h>

#include "import/aten.h"

static ir_value_t scalar_like(aten_t *a, ir_value_t x, double value) {
    return ir_b_scalar(&a->b, aten_type(a, x).dtype, value);
}

/* ---- log(1 + x), exp(x) - 1 ---- */

/* log(w) for w = 1 + u as it was rounded, plus what the rounding took, to first order: with u far
 * below 1 that is all there is. */
ir_value_t aten_log_one_plus(aten_t *a, ir_value_t u) {
    ir_build_t *b = &a->b;
    ir_value_t w = ir_b_add_scalar(b, u, 1);
    ir_value_t lost = ir_b_binary(b, IR_OP_SUB, u, ir_b_add_scalar(b, w, -1));
    return ir_b_binary(b, IR_OP_ADD, ir_b_unary(b, IR_OP_LOG, w),
                       ir_b_binary(b, IR_OP_DIV, lost, w));
}

ir_value_t aten_log_one_plus_exp(aten_t *a, ir_value_t x) {
    ir_value_t size = ir_b_unary(&a->b, IR_OP_ABS, x);
    return aten_log_one_plus(a, ir_b_unary(&a->b, IR_OP_EXP, ir_b_unary(&a->b, IR_OP_NEG, size)));
}

/* tanh(x/2) (exp(x) + 1) where |x| < 1, as tanh keeps a small x; exp(x) - 1 elsewhere, as there the
 * difference is exact enough and the gradient must be exp(x) also where tanh is flat. Each part
 * sees a 0, and gives 0, where the other has the value. */
static ir_value_t exp_minus_one(aten_t *a, ir_value_t x) {
    ir_build_t *b = &a->b;
    ir_value_t zero = scalar_like(a, x, 0);
    ir_value_t inside = ir_b_binary(b, IR_OP_LT, ir_b_unary(b, IR_OP_ABS, x), scalar_like(a, x, 1));
    ir_value_t near = ir_b_select(b, inside, x, zero), far = ir_b_select(b, inside, zero, x);
    ir_value_t half = ir_b_unary(b, IR_OP_TANH, ir_b_scale(b, near, 0.5));
    near = ir_b_binary(b, IR_OP_MUL, half, ir_b_add_scalar(b, ir_b_unary(b, IR_OP_EXP, near), 1));
    far = ir_b_add_scalar(b, ir_b_unary(b, IR_OP_EXP, far), -1);
    return ir_b_binary(b, IR_OP_ADD, near, far);
}

/* At -1, at infinity and outside the domain log alone has the value; the correction would be 0/0
 * there, in the gradient too, so it sees a 0 instead. */
void aten_log1p(aten_t *a) {
    ir_build_t *b = &a->b;
    ir_value_t x = aten_to_float(a, aten_tensor(a, "self"));
    ir_value_t inside =
        ir_b_binary(b, IR_OP_LOGICAL_AND, ir_b_binary(b, IR_OP_GT, x, scalar_like(a, x, -1)),
                    ir_b_binary(b, IR_OP_LT, x, scalar_like(a, x, (double)INFINITY)));
    ir_value_t safe = ir_b_select(b, inside, x, scalar_like(a, x, 0));
    ir_value_t outside = ir_b_select(b, inside, scalar_like(a, x, 0), x);
    ir_value_t edge = ir_b_unary(b, IR_OP_LOG, ir_b_add_scalar(b, outside, 1));
    aten_return(a, ir_b_binary(b, IR_OP_ADD, aten_log_one_plus(a, safe), edge));
}

void aten_expm1(aten_t *a) {
    aten_return(a, exp_minus_one(a, aten_to_float(a, aten_tensor(a, "self"))));
}

/* ---- softplus and its kin ---- */

/* log(1 + exp(x)) = max(x, 0) + log(1 + exp(-|x|)) */
static ir_value_t softplus(aten_t *a, ir_value_t x) {
    ir_value_t positive = ir_b_binary(&a->b, IR_OP_MAXIMUM, x, scalar_like(a, x, 0));
    return ir_b_binary(&a->b, IR_OP_ADD, positive, aten_log_one_plus_exp(a, x));
}

/* log(1 + exp(beta x)) / beta, and x itself where beta x is above the threshold */
void aten_softplus(aten_t *a) {
    ir_build_t *b = &a->b;
    ir_value_t x = aten_tensor(a, "self");
    double beta = aten_float(a, "beta", 1), threshold = aten_float(a, "threshold", 20);
    if (aten_ok(a) && beta == 0) aten_fail(a, ST_INVALID, "argument 'beta' is 0");
    ir_value_t scaled = beta == 1 ? x : ir_b_scale(b, x, beta);
    ir_value_t y = softplus(a, scaled);
    if (beta != 1) y = ir_b_binary(b, IR_OP_DIV, y, scalar_like(a, x, beta));
    ir_value_t linear = ir_b_binary(b, IR_OP_GT, scaled, scalar_like(a, x, threshold));
    aten_return(a, ir_b_select(b, linear, x, y));
}

/* log sigmoid(x) = min(x, 0) - log(1 + exp(-|x|)); the _forward form (arg 1) has a second result,
 * which only its own backward reads. */
void aten_log_sigmoid(aten_t *a) {
    ir_value_t x = aten_tensor(a, "self");
    ir_value_t negative = ir_b_binary(&a->b, IR_OP_MINIMUM, x, scalar_like(a, x, 0));
    aten_return(a, ir_b_binary(&a->b, IR_OP_SUB, negative, aten_log_one_plus_exp(a, x)));
    if (a->op->arg) aten_return(a, IR_NONE);
}

void aten_mish(aten_t *a) {
    ir_value_t x = aten_tensor(a, "self");
    ir_value_t gate = ir_b_unary(&a->b, IR_OP_TANH, softplus(a, x));
    aten_return(a, ir_b_binary(&a->b, IR_OP_MUL, x, gate));
}

/* ---- exponential units ---- */

/* scale * (x > 0 ? x : alpha (exp(input_scale x) - 1)). elu; selu (arg 1) and celu (arg 2) fix some
 * of the three. */
void aten_elu(aten_t *a) {
    ir_build_t *b = &a->b;
    ir_value_t x = aten_tensor(a, "self");
    double alpha = 1.6732632423543772848, scale = 1.0507009873554804934, input_scale = 1;
    if (a->op->arg != 1) {
        alpha = aten_float(a, "alpha", 1);
        scale = a->op->arg == 0 ? aten_float(a, "scale", 1) : 1;
        input_scale = a->op->arg == 0 ? aten_float(a, "input_scale", 1) : 1 / alpha;
    }
    if (aten_ok(a) && a->op->arg == 2 && alpha == 0)
        aten_fail(a, ST_INVALID, "argument 'alpha' is 0");
    ir_value_t zero = scalar_like(a, x, 0);
    ir_value_t positive = ir_b_binary(b, IR_OP_GT, x, zero);
    /* the exponential does not see what is positive: its overflow would reach the gradient */
    ir_value_t low = ir_b_select(b, positive, zero, x);
    if (input_scale != 1) low = ir_b_scale(b, low, input_scale);
    low = ir_b_scale(b, exp_minus_one(a, low), alpha * scale);
    aten_return(a, ir_b_select(b, positive, scale == 1 ? x : ir_b_scale(b, x, scale), low));
}

/* ---- piecewise linear ---- */

/* min(max(x + 3, 0), 6) / 6; hardswish (arg 1): times x. At both corners the gradient of the
 * clamped part is 0. */
void aten_hard_sigmoid(aten_t *a) {
    ir_build_t *b = &a->b;
    ir_value_t x = aten_tensor(a, "self");
    ir_value_t y = aten_bounded(a, ir_b_add_scalar(b, x, 3), scalar_like(a, x, 0), true, true);
    y = aten_bounded(a, y, scalar_like(a, x, 6), false, true);
    if (a->op->arg) y = ir_b_binary(b, IR_OP_MUL, x, y);
    aten_return(a, ir_b_binary(b, IR_OP_DIV, y, scalar_like(a, x, 6)));
}
