/* The rows of the tile interpreter, by code and type. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/fused.h"
#include "kernels/cpu/fused_rows.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/small.h"

static inline uint16_t cpu_bf16_bits(float x) {
    uint32_t bits = m_bits(x), quiet = bits >> 16 | 0x40u;
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

/* The bf16 next to x, as a float. */
static inline float cpu_bf16_rounded(float x) {
    uint32_t bits = m_bits(x), quiet = bits | 0x400000u;
    uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
    return m_float(((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded) & 0xffff0000u);
}

#define REAL float
#define REAL_INT int32_t
#define TYPED(name) name##_f32
#include "kernels/cpu/sums.inc"

#include "kernels/cpu/fused_rows.inc"

#include "kernels/cpu/fused_moves.inc"
#undef REAL
#undef REAL_INT
#undef TYPED
#define REAL double
#define REAL_INT int64_t
#define TYPED(name) name##_f64
#include "kernels/cpu/sums.inc"

#include "kernels/cpu/fused_rows.inc"

#include "kernels/cpu/fused_moves.inc"
#undef REAL
#undef REAL_INT
#undef TYPED
#define REAL int64_t
#define TYPED(name) name##_i64
#include "kernels/cpu/fused_moves.inc"
#undef REAL
#undef TYPED

/* ---- 64-bit integers ---- */

#define INT_UNARY(name, expression)       \
    static void fr_int_##name(ROW_ARGS) { \
        const int64_t *a = pa;            \
        int64_t *y = d;                   \
        UNUSED_B;                         \
        for (int64_t i = 0; i < n; i++) { \
            const int64_t x = a[i * sa];  \
            y[i] = (int64_t)(expression); \
        }                                 \
    }
#define INT_BINARY(name, expression)                    \
    static void fr_int_##name(ROW_ARGS) {               \
        const int64_t *a = pa, *b = pb;                 \
        int64_t *y = d;                                 \
        (void)pc, (void)sc;                             \
        for (int64_t i = 0; i < n; i++) {               \
            const int64_t u = a[i * sa], v = b[i * sb]; \
            y[i] = (int64_t)(expression);               \
        }                                               \
    }

static inline int64_t int_power(int64_t a, int64_t b) {
    if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0;
    uint64_t result = 1, base = (uint64_t)a;
    for (; b; b >>= 1, base *= base)
        if (b & 1) result *= base;
    return (int64_t)result;
}
static inline int64_t int_quotient(int64_t a, int64_t b) {
    return b == 0 ? 0 : b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b;
}
static inline int64_t int_modulo(int64_t a, int64_t b) {
    if (b == 0 || b == -1) return 0;
    int64_t r = a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
INT_UNARY(neg, 0 - (uint64_t)x)
INT_UNARY(abs, x < 0 ? 0 - (uint64_t)x : (uint64_t)x)
INT_UNARY(sign, x > 0 ? 1 : x < 0 ? -1 : 0)
INT_UNARY(square, (uint64_t)x *(uint64_t)x)
INT_UNARY(same, x)
INT_BINARY(add, (uint64_t)u + (uint64_t)v)
INT_BINARY(sub, (uint64_t)u - (uint64_t)v)
INT_BINARY(mul, (uint64_t)u *(uint64_t)v)
INT_BINARY(div, int_quotient(u, v))
INT_BINARY(mod, int_modulo(u, v))
INT_BINARY(pow, int_power(u, v))
INT_BINARY(maximum, u > v ? u : v)
INT_BINARY(minimum, u < v ? u : v)

#define INT_ALONG(name, expression)                \
    static void fr_int_##name(ROW_ARGS) {          \
        const int64_t *a = pa;                     \
        int64_t *y = d;                            \
        UNUSED_B;                                  \
        for (int64_t i = 0; i < n; i++) {          \
            const int64_t u = *y, v = a[i * sa];   \
            *y = (int64_t)(expression);            \
        }                                          \
    }                                              \
    static void fr_int_down_##name(ROW_ARGS) {     \
        const int64_t *a = pa;                     \
        int64_t *y = d;                            \
        UNUSED_B;                                  \
        for (int64_t i = 0; i < n; i++) {          \
            const int64_t u = y[i], v = a[i * sa]; \
            y[i] = (int64_t)(expression);          \
        }                                          \
    }
INT_ALONG(sum, (uint64_t)u + (uint64_t)v)
INT_ALONG(prod, (uint64_t)u *(uint64_t)v)
INT_ALONG(max, u > v ? u : v)
INT_ALONG(min, u < v ? u : v)

static void fr_widen_f32(ROW_ARGS) {
    const float *a = pa;
    double *y = d;
    UNUSED_B, (void)sa;
    for (int64_t i = 0; i < n; i++) y[i] += (double)a[i];
}
static void fr_widen_f64(ROW_ARGS) {
    const double *a = pa;
    double *y = d;
    UNUSED_B, (void)sa;
    for (int64_t i = 0; i < n; i++) y[i] += a[i];
}

/* ---- tables ---- */

typedef struct op_row {
    uint16_t code;
    uint8_t flag;
    tile_row_t real[2], integer[2]; /* by f64 */
} op_row_t;

#define BOTH_ROW(name) \
    { fr_int_##name##_f32, fr_int_##name##_f64 }
#define SAME_ROW(name) \
    { fr_int_##name, fr_int_##name }
#define NO_ROW \
    { NULL, NULL }
/* clang-format off */
static const op_row_t op_rows[] = {
    {IR_OP_ADD, 0, REAL_ROW(add), SAME_ROW(add)},
    {IR_OP_MUL, 0, REAL_ROW(mul), SAME_ROW(mul)},
    {IR_OP_SUB, 0, REAL_ROW(sub), SAME_ROW(sub)},
    {NX_DIFF_EXP, 0, REAL_ROW(diff_exp), NO_ROW},
    {NX_SILU_MUL, 0, REAL_ROW(silu_mul), NO_ROW},
    {IR_OP_DIV, 0, REAL_ROW(div), SAME_ROW(div)},
    {IR_OP_POW, 0, REAL_ROW(pow), SAME_ROW(pow)},
    {IR_OP_MOD, 0, REAL_ROW(mod), SAME_ROW(mod)},
    {IR_OP_MAXIMUM, 0, REAL_ROW(maximum), SAME_ROW(maximum)},
    {IR_OP_MINIMUM, 0, REAL_ROW(minimum), SAME_ROW(minimum)},
    {IR_OP_EQ, 0, REAL_ROW(eq), BOTH_ROW(eq)},
    {IR_OP_NE, 0, REAL_ROW(ne), BOTH_ROW(ne)},
    {IR_OP_LT, 0, REAL_ROW(lt), BOTH_ROW(lt)},
    {IR_OP_LE, 0, REAL_ROW(le), BOTH_ROW(le)},
    {IR_OP_GT, 0, REAL_ROW(gt), BOTH_ROW(gt)},
    {IR_OP_GE, 0, REAL_ROW(ge), BOTH_ROW(ge)},
    {IR_OP_LOGICAL_AND, 0, REAL_ROW(and), NO_ROW},
    {IR_OP_LOGICAL_OR, 0, REAL_ROW(or), NO_ROW},
    {IR_OP_LOGICAL_NOT, 0, REAL_ROW(not), NO_ROW},
    {IR_OP_SELECT, 0, REAL_ROW(select), BOTH_ROW(select)},
    {IR_OP_NEG, 0, REAL_ROW(neg), SAME_ROW(neg)},
    {IR_OP_ABS, 0, REAL_ROW(abs), SAME_ROW(abs)},
    {IR_OP_SIGN, 0, REAL_ROW(sign), SAME_ROW(sign)},
    {IR_OP_SQUARE, 0, REAL_ROW(square), SAME_ROW(square)},
    {IR_OP_EXP, 0, REAL_ROW(exp), NO_ROW},
    {IR_OP_LOG, 0, REAL_ROW(log), NO_ROW},
    {IR_OP_SQRT, 0, REAL_ROW(sqrt), NO_ROW},
    {IR_OP_RSQRT, 0, REAL_ROW(rsqrt), NO_ROW},
    {IR_OP_RECIPROCAL, 0, REAL_ROW(reciprocal), NO_ROW},
    {IR_OP_SIN, 0, REAL_ROW(sin), NO_ROW},
    {IR_OP_COS, 0, REAL_ROW(cos), NO_ROW},
    {IR_OP_TANH, 0, REAL_ROW(tanh), NO_ROW},
    {IR_OP_SIGMOID, 0, REAL_ROW(sigmoid), NO_ROW},
    {IR_OP_ERF, 0, REAL_ROW(erf), NO_ROW},
    {IR_OP_RELU, 0, REAL_ROW(relu), NO_ROW},
    {IR_OP_GELU, 0, REAL_ROW(gelu), NO_ROW},
    {IR_OP_GELU, 1, REAL_ROW(gelu_tanh), NO_ROW},
    {IR_OP_SILU, 0, REAL_ROW(silu), NO_ROW},
    {IR_OP_FLOOR, 0, REAL_ROW(floor), NO_ROW},
    {IR_OP_CEIL, 0, REAL_ROW(ceil), NO_ROW},
    {IR_OP_ROUND, 0, REAL_ROW(round), NO_ROW},
    {IR_OP_RELU_GRAD, 0, REAL_ROW(relu_grad), NO_ROW},
    {IR_OP_GELU_GRAD, 0, REAL_ROW(gelu_grad), NO_ROW},
    {IR_OP_GELU_GRAD, 1, REAL_ROW(gelu_tanh_grad), NO_ROW},
    {IR_OP_SILU_GRAD, 0, REAL_ROW(silu_grad), NO_ROW},
    {IR_OP_CAST, NX_TO_BF16, REAL_ROW(to_bf16), NO_ROW},
    {IR_OP_CAST, NX_TO_F16, REAL_ROW(to_f16), NO_ROW},
    {IR_OP_CAST, NX_TO_F32, REAL_ROW(to_f32), NO_ROW},
    {IR_OP_CAST, NX_REAL_TO_BOOL, REAL_ROW(to_bool), NO_ROW},
    {IR_OP_CAST, NX_REAL_TO_INT, REAL_ROW(real_to_int), NO_ROW},
    {IR_OP_CAST, NX_INT_TO_REAL, NO_ROW, BOTH_ROW(to_real)},
    {IR_OP_CAST, NX_INT_TO_BOOL, NO_ROW, BOTH_ROW(to_bool)},
    {IR_OP_CAST, NX_INT_TO_INT, NO_ROW, SAME_ROW(same)},
};
/* clang-format on */

tile_row_t cpu_tile_op(uint16_t code, uint8_t flag, nx_type_t type, bool f64) {
    for (size_t i = 0; i < sizeof op_rows / sizeof *op_rows; i++)
        if (op_rows[i].code == code && op_rows[i].flag == flag)
            return type == NX_INT ? op_rows[i].integer[f64] : op_rows[i].real[f64];
    return type == NX_INT ? NULL : cpu_tile_joined(code, f64);
}

const tile_reduction_t *cpu_tile_reduction(uint16_t code, uint32_t n_src, nx_type_t type,
                                           bool f64) {
    static const tile_reduction_t integers[] = {
        {fr_int_sum, fr_int_down_sum, NULL, NULL},
        {fr_int_prod, fr_int_down_prod, NULL, NULL},
        {fr_int_max, fr_int_down_max, NULL, NULL},
        {fr_int_min, fr_int_down_min, NULL, NULL},
    };
    static const tile_reduction_t sums[2][3] = {
        {{fr_sum_1_f32, fr_down_wide_1_f32, fr_down_1_f32, fr_widen_f32},
         {fr_sum_2_f32, fr_down_wide_2_f32, fr_down_2_f32, fr_widen_f32},
         {fr_sum_3_f32, fr_down_wide_3_f32, fr_down_3_f32, fr_widen_f32}},
        {{fr_sum_1_f64, fr_down_wide_1_f64, fr_down_1_f64, fr_widen_f64},
         {fr_sum_2_f64, fr_down_wide_2_f64, fr_down_2_f64, fr_widen_f64},
         {fr_sum_3_f64, fr_down_wide_3_f64, fr_down_3_f64, fr_widen_f64}},
    };
    static const tile_reduction_t others[2][3] = {
        {{fr_prod_f32, fr_down_prod_f32, NULL, NULL},
         {fr_max_f32, fr_down_max_f32, NULL, NULL},
         {fr_min_f32, fr_down_min_f32, NULL, NULL}},
        {{fr_prod_f64, fr_down_prod_f64, NULL, NULL},
         {fr_max_f64, fr_down_max_f64, NULL, NULL},
         {fr_min_f64, fr_down_min_f64, NULL, NULL}},
    };
    if (type == NX_INT) return &integers[code - NX_SUM];
    return code == NX_SUM ? &sums[f64][n_src - 1] : &others[f64][code - NX_PROD];
}

load_row_t cpu_tile_load(ir_dtype_t dtype, nx_type_t type, bool f64) {
    if (type == NX_INT) return moves_i64[dtype].load;
    return f64 ? moves_f64[dtype].load : moves_f32[dtype].load;
}

store_row_t cpu_tile_store(ir_dtype_t dtype, nx_type_t type, bool f64) {
    if (type == NX_INT) return moves_i64[dtype].store;
    return f64 ? moves_f64[dtype].store : moves_f32[dtype].store;
}

tile_row_t cpu_tile_finish(bool f64) {
    return f64 ? fr_finish_f64 : fr_finish_f32;
}
