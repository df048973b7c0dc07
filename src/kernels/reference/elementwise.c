/* Reference kernels of the elementwise ops. */
#include <math.h>

#include "kernels/reference/reference.h"

/* ---- unary ---- */

typedef struct unary_row {
    ir_op_t op;
    double (*real)(double);
    int64_t (*integer)(int64_t); /* NULL: floats only */
} unary_row_t;

/* Two's complement arithmetic without undefined overflow. */
static int64_t wrap_neg(int64_t x) {
    return (int64_t)(0 - (uint64_t)x);
}
static int64_t wrap_mul(int64_t x, int64_t y) {
    return (int64_t)((uint64_t)x * (uint64_t)y);
}

static double f_neg(double x) {
    return -x;
}
static int64_t i_abs(int64_t x) {
    return x < 0 ? wrap_neg(x) : x;
}
static double f_rsqrt(double x) {
    return 1 / sqrt(x);
}
static double f_reciprocal(double x) {
    return 1 / x;
}
static double f_sigmoid(double x) {
    return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x));
}
static double f_relu(double x) {
    return isnan(x) ? x : x > 0 ? x : 0;
}
static int64_t i_relu(int64_t x) {
    return x > 0 ? x : 0;
}
static double f_silu(double x) {
    return x * f_sigmoid(x);
}
static double f_sign(double x) {
    return isnan(x) ? x : (x > 0) - (x < 0);
}
static int64_t i_sign(int64_t x) {
    return (x > 0) - (x < 0);
}
static double f_square(double x) {
    return x * x;
}
static int64_t i_square(int64_t x) {
    return wrap_mul(x, x);
}
static int64_t i_not(int64_t x) {
    return !x;
}
static double f_not(double x) {
    return x == 0;
}

static const unary_row_t unary_rows[] = {
    {IR_OP_NEG, f_neg, wrap_neg},
    {IR_OP_ABS, fabs, i_abs},
    {IR_OP_EXP, exp, NULL},
    {IR_OP_LOG, log, NULL},
    {IR_OP_SQRT, sqrt, NULL},
    {IR_OP_RSQRT, f_rsqrt, NULL},
    {IR_OP_RECIPROCAL, f_reciprocal, NULL},
    {IR_OP_SIN, sin, NULL},
    {IR_OP_COS, cos, NULL},
    {IR_OP_TANH, tanh, NULL},
    {IR_OP_SIGMOID, f_sigmoid, NULL},
    {IR_OP_ERF, erf, NULL},
    {IR_OP_RELU, f_relu, i_relu},
    {IR_OP_SILU, f_silu, NULL},
    {IR_OP_SIGN, f_sign, i_sign},
    {IR_OP_FLOOR, floor, NULL},
    {IR_OP_CEIL, ceil, NULL},
    {IR_OP_LOGICAL_NOT, f_not, i_not},
    {IR_OP_SQUARE, f_square, i_square},
    {IR_OP_ROUND, rint, NULL},
};

static st_status_t unary(const kern_call_t *call) {
    const unary_row_t *row = unary_rows;
    while (row->op != call->problem->op) row++;
    int64_t n = ref_elements_out(call, 0);
    bool real = ref_is_float(call, 0);
    if (!real && !row->integer) { /* rounding of integers: themselves */
        for (int64_t i = 0; i < n; i++) ref_put(call, 0, i, row->real(ref_get(call, 0, i)));
        return ST_OK;
    }
    for (int64_t i = 0; i < n; i++) {
        if (real)
            ref_put(call, 0, i, row->real(ref_get(call, 0, i)));
        else
            ref_put_int(call, 0, i, row->integer(ref_get_int(call, 0, i)));
    }
    return ST_OK;
}

static st_status_t cast(const kern_call_t *call) {
    int64_t n = ref_elements_out(call, 0);
    bool real = ref_is_float(call, 0);
    bool real_out = ir_dtype_is_float(call->problem->out[0].dtype);
    for (int64_t i = 0; i < n; i++) {
        if (real || real_out)
            ref_put(call, 0, i, ref_get(call, 0, i));
        else
            ref_put_int(call, 0, i, ref_get_int(call, 0, i));
    }
    return ST_OK;
}

/* ---- gelu, silu, relu backward ---- */

#define SQRT_HALF 0.70710678118654752440
#define SQRT_2_OVER_PI 0.79788456080286535588
#define INV_SQRT_2PI 0.39894228040143267794
#define GELU_CUBIC 0.044715

static st_status_t gelu(const kern_call_t *call) {
    bool approximate = kern_int(call->problem, "tanh") != 0;
    int64_t n = ref_elements_out(call, 0);
    for (int64_t i = 0; i < n; i++) {
        double x = ref_get(call, 0, i);
        double u =
            approximate ? tanh(SQRT_2_OVER_PI * (x + GELU_CUBIC * x * x * x)) : erf(x * SQRT_HALF);
        ref_put(call, 0, i, 0.5 * x * (1 + u));
    }
    return ST_OK;
}

static st_status_t gelu_grad(const kern_call_t *call) {
    bool approximate = kern_int(call->problem, "tanh") != 0;
    int64_t n = ref_elements_out(call, 0);
    for (int64_t i = 0; i < n; i++) {
        double dy = ref_get(call, 0, i), x = ref_get(call, 1, i), slope;
        if (approximate) {
            double t = tanh(SQRT_2_OVER_PI * (x + GELU_CUBIC * x * x * x));
            slope = 0.5 * (1 + t) +
                    0.5 * x * (1 - t * t) * SQRT_2_OVER_PI * (1 + 3 * GELU_CUBIC * x * x);
        } else {
            slope = 0.5 * (1 + erf(x * SQRT_HALF)) + x * INV_SQRT_2PI * exp(-0.5 * x * x);
        }
        ref_put(call, 0, i, dy * slope);
    }
    return ST_OK;
}

static st_status_t silu_grad(const kern_call_t *call) {
    int64_t n = ref_elements_out(call, 0);
    for (int64_t i = 0; i < n; i++) {
        double dy = ref_get(call, 0, i), x = ref_get(call, 1, i), s = f_sigmoid(x);
        ref_put(call, 0, i, dy * s * (1 + x * (1 - s)));
    }
    return ST_OK;
}

static st_status_t relu_grad(const kern_call_t *call) {
    int64_t n = ref_elements_out(call, 0);
    for (int64_t i = 0; i < n; i++)
        ref_put(call, 0, i, ref_get(call, 1, i) > 0 ? ref_get(call, 0, i) : 0);
    return ST_OK;
}

/* ---- binary ---- */

typedef struct binary_row {
    ir_op_t op;
    double (*real)(double, double);
    int64_t (*integer)(int64_t, int64_t);
} binary_row_t;

static double f_add(double a, double b) {
    return a + b;
}
static int64_t i_add(int64_t a, int64_t b) {
    return (int64_t)((uint64_t)a + (uint64_t)b);
}
static double f_sub(double a, double b) {
    return a - b;
}
static int64_t i_sub(int64_t a, int64_t b) {
    return (int64_t)((uint64_t)a - (uint64_t)b);
}
static double f_mul(double a, double b) {
    return a * b;
}
static double f_div(double a, double b) {
    return a / b;
}
static int64_t i_div(int64_t a, int64_t b) {
    return b == 0 ? 0 : b == -1 ? wrap_neg(a) : a / b;
}
static int64_t i_pow(int64_t a, int64_t b) {
    if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0;
    int64_t result = 1;
    for (; b; b >>= 1, a = wrap_mul(a, a))
        if (b & 1) result = wrap_mul(result, a);
    return result;
}
static double f_maximum(double a, double b) {
    return isnan(a) ? a : isnan(b) ? b : a > b ? a : b;
}
static int64_t i_maximum(int64_t a, int64_t b) {
    return a > b ? a : b;
}
static double f_minimum(double a, double b) {
    return isnan(a) ? a : isnan(b) ? b : a < b ? a : b;
}
static int64_t i_minimum(int64_t a, int64_t b) {
    return a < b ? a : b;
}
static double f_mod(double a, double b) {
    double r = fmod(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
static int64_t i_mod(int64_t a, int64_t b) {
    if (b == 0 || b == -1) return 0;
    int64_t r = a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
#define COMPARISON(name, expression)                \
    static double f_##name(double a, double b) {    \
        return expression;                          \
    }                                               \
    static int64_t i_##name(int64_t a, int64_t b) { \
        return expression;                          \
    }
COMPARISON(eq, a == b)
COMPARISON(ne, a != b)
COMPARISON(lt, a < b)
COMPARISON(le, a <= b)
COMPARISON(gt, a > b)
COMPARISON(ge, a >= b)
COMPARISON(and, a != 0 && b != 0)
COMPARISON(or, a != 0 || b != 0)

static const binary_row_t binary_rows[] = {
    {IR_OP_ADD, f_add, i_add},
    {IR_OP_SUB, f_sub, i_sub},
    {IR_OP_MUL, f_mul, wrap_mul},
    {IR_OP_DIV, f_div, i_div},
    {IR_OP_POW, pow, i_pow},
    {IR_OP_MAXIMUM, f_maximum, i_maximum},
    {IR_OP_MINIMUM, f_minimum, i_minimum},
    {IR_OP_MOD, f_mod, i_mod},
    {IR_OP_EQ, f_eq, i_eq},
    {IR_OP_NE, f_ne, i_ne},
    {IR_OP_LT, f_lt, i_lt},
    {IR_OP_LE, f_le, i_le},
    {IR_OP_GT, f_gt, i_gt},
    {IR_OP_GE, f_ge, i_ge},
    {IR_OP_LOGICAL_AND, f_and, i_and},
    {IR_OP_LOGICAL_OR, f_or, i_or},
};

static st_status_t binary(const kern_call_t *call) {
    const kern_problem_t *problem = call->problem;
    const binary_row_t *row = binary_rows;
    while (row->op != problem->op) row++;
    ref_walk_t walk = ref_walk_over(&problem->out[0], 2);
    for (int j = 0; j < 2; j++)
        kern_broadcast_strides(&problem->in[j], &problem->out[0], walk.stride[j]);
    bool real = ref_is_float(call, 0);
    int64_t n = ref_elements_out(call, 0);
    for (int64_t i = 0; i < n; i++, ref_walk_next(&walk)) {
        if (real)
            ref_put(call, 0, i,
                    row->real(ref_get(call, 0, walk.at[0]), ref_get(call, 1, walk.at[1])));
        else
            ref_put_int(
                call, 0, i,
                row->integer(ref_get_int(call, 0, walk.at[0]), ref_get_int(call, 1, walk.at[1])));
    }
    return ST_OK;
}

static st_status_t select_op(const kern_call_t *call) {
    const kern_problem_t *problem = call->problem;
    ref_walk_t walk = ref_walk_over(&problem->out[0], 3);
    for (int j = 0; j < 3; j++)
        kern_broadcast_strides(&problem->in[j], &problem->out[0], walk.stride[j]);
    size_t bytes = ir_dtype_bytes(problem->out[0].dtype);
    int64_t n = ref_elements_out(call, 0);
    for (int64_t i = 0; i < n; i++, ref_walk_next(&walk)) {
        int from = ((const uint8_t *)call->in[0])[walk.at[0]] ? 1 : 2;
        ref_copy(bytes, call->out[0], i, call->in[from], walk.at[from]);
    }
    return ST_OK;
}

/* clang-format off */
#define UNARY_OPS(X) \
    X(NEG, neg) X(ABS, abs) X(EXP, exp) X(LOG, log) X(SQRT, sqrt) X(RSQRT, rsqrt) \
    X(RECIPROCAL, reciprocal) X(SIN, sin) X(COS, cos) X(TANH, tanh) X(SIGMOID, sigmoid) \
    X(ERF, erf) X(RELU, relu) X(SILU, silu) X(SIGN, sign) X(FLOOR, floor) X(CEIL, ceil) \
    X(LOGICAL_NOT, logical_not) X(SQUARE, square) X(ROUND, round)
/* clang-format on */
/* clang-format off */
#define BINARY_OPS(X) \
    X(ADD, add) X(SUB, sub) X(MUL, mul) X(DIV, div) X(POW, pow) X(MAXIMUM, maximum) \
    X(MINIMUM, minimum) X(MOD, mod) X(EQ, eq) X(NE, ne) X(LT, lt) X(LE, le) X(GT, gt) X(GE, ge) \
    X(LOGICAL_AND, logical_and) X(LOGICAL_OR, logical_or)
/* clang-format on */

#define UNARY_IMPL(op, name) REF_IMPL(op, name, unary)
UNARY_OPS(UNARY_IMPL)
#define BINARY_IMPL(op, name) REF_IMPL(op, name, binary)
BINARY_OPS(BINARY_IMPL)
REF_IMPL(CAST, cast, cast)
REF_IMPL(GELU, gelu, gelu)
REF_IMPL(GELU_GRAD, gelu_grad, gelu_grad)
REF_IMPL(SILU_GRAD, silu_grad, silu_grad)
REF_IMPL(RELU_GRAD, relu_grad, relu_grad)
REF_IMPL(SELECT, select, select_op)

extern ref_array_t kern_reference_elementwise;
#define LISTED(op, name) &ref_impl_##name,
ref_array_t kern_reference_elementwise = {UNARY_OPS(LISTED) BINARY_OPS(LISTED) & ref_impl_cast,
                                          &ref_impl_gelu,
                                          &ref_impl_gelu_grad,
                                          &ref_impl_silu_grad,
                                          &ref_impl_relu_grad,
                                          &ref_impl_select,
                                          NULL};
