/* Unary elementwise ops and casts for f32 and f64. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/small.h"

typedef void (*unary_row_t)(const void *in, void *out, int64_t n);

typedef struct unary_rule {
    ir_op_t op;
    unary_row_t rows[2]; /* f32, f64 */
} unary_rule_t;

#define REAL float
#define TYPED(name) name##_f32
#include "kernels/cpu/unary.inc"
#define REAL double
#define TYPED(name) name##_f64
#include "kernels/cpu/unary.inc"

/* Sine and cosine: the polynomial serves moderate arguments, libm the rest of the row. */
#define TRIG(name, quadrant)                                                            \
    static void row_##name##_f32(const void *in, void *out, int64_t n) {                \
        const float *x = in;                                                            \
        float *y = out, most = 0;                                                       \
        for (int64_t i = 0; i < n; i++) most = fabsf(x[i]) > most ? fabsf(x[i]) : most; \
        if (most <= M_TRIG_LIMIT_F32) {                                                 \
            CPU_VECTOR                                                                  \
            for (int64_t i = 0; i < n; i++) y[i] = m_trig_f32(x[i], quadrant);          \
        } else {                                                                        \
            for (int64_t i = 0; i < n; i++) y[i] = name##f(x[i]);                       \
        }                                                                               \
    }                                                                                   \
    static void row_##name##_f64(const void *in, void *out, int64_t n) {                \
        const double *x = in;                                                           \
        double *y = out;                                                                \
        for (int64_t i = 0; i < n; i++) y[i] = name(x[i]);                              \
    }
TRIG(sin, 0)
TRIG(cos, 1)

/* clang-format off */
#define UNARY_OPS(X) \
    X(NEG, neg) X(ABS, abs) X(EXP, exp) X(LOG, log) X(SQRT, sqrt) X(RSQRT, rsqrt) \
    X(RECIPROCAL, reciprocal) X(SIN, sin) X(COS, cos) X(TANH, tanh) X(SIGMOID, sigmoid) \
    X(ERF, erf) X(RELU, relu) X(SILU, silu) X(SIGN, sign) X(FLOOR, floor) X(CEIL, ceil) \
    X(SQUARE, square) X(ROUND, round)
/* clang-format on */

static const unary_rule_t unary_rules[] = {
#define RULE(op, name) {IR_OP_##op, {row_##name##_f32, row_##name##_f64}},
    UNARY_OPS(RULE)
#undef RULE
};

typedef struct unary_job {
    unary_row_t row;
    const char *in;
    char *out;
    size_t in_bytes, out_bytes;
} unary_job_t;

static void unary_chunk(void *arg, int64_t begin, int64_t end, int thread) {
    const unary_job_t *job = arg;
    (void)thread;
    job->row(job->in + (size_t)begin * job->in_bytes, job->out + (size_t)begin * job->out_bytes,
             end - begin);
}

static void run(const kern_call_t *call, unary_row_t row) {
    const kern_problem_t *problem = call->problem;
    unary_job_t job = {.row = row,
                       .in = call->in[0],
                       .out = call->out[0],
                       .in_bytes = ir_dtype_bytes(problem->in[0].dtype),
                       .out_bytes = ir_dtype_bytes(problem->out[0].dtype)};
    dev_team_for(call->team, ir_type_elements(&problem->out[0]), CPU_GRAIN, unary_chunk, &job);
}

static st_status_t unary(const kern_call_t *call) {
    const unary_rule_t *rule = unary_rules;
    while (rule->op != call->problem->op) rule++;
    run(call, rule->rows[call->problem->in[0].dtype == IR_F64]);
    return ST_OK;
}

static st_status_t gelu(const kern_call_t *call) {
    bool f64 = call->problem->in[0].dtype == IR_F64;
    if (kern_int(call->problem, "tanh"))
        run(call, f64 ? row_gelu_tanh_f64 : row_gelu_tanh_f32);
    else
        run(call, f64 ? row_gelu_f64 : row_gelu_f32);
    return ST_OK;
}

/* ---- cast ---- */

typedef struct cast_rule {
    ir_dtype_t from, to;
    unary_row_t row;
} cast_rule_t;

#define CAST_TYPES(X, from_name, from) \
    X(from_name, from, f32, float) X(from_name, from, f64, double)
#define CAST_ROW(from_name, from, to_name, to)                                       \
    static void cast_##from_name##_##to_name(const void *in, void *out, int64_t n) { \
        const from *x = in;                                                          \
        to *y = out;                                                                 \
        for (int64_t i = 0; i < n; i++) y[i] = (to)x[i];                             \
    }
#define CAST_FROM(X)           \
    CAST_TYPES(X, f32, float)  \
    CAST_TYPES(X, f64, double) \
    CAST_TYPES(X, i32, int32_t) CAST_TYPES(X, i64, int64_t) CAST_TYPES(X, u8, uint8_t)
CAST_FROM(CAST_ROW)
CAST_ROW(i32, int32_t, i64, int64_t)
CAST_ROW(i64, int64_t, i32, int32_t)
CAST_ROW(u8, uint8_t, i32, int32_t)
CAST_ROW(u8, uint8_t, i64, int64_t)

#define CAST_SMALL(name, dtype)                                           \
    static void cast_##name##_f32(const void *in, void *out, int64_t n) { \
        cpu_widen(dtype, in, out, n);                                     \
    }                                                                     \
    static void cast_f32_##name(const void *in, void *out, int64_t n) {   \
        cpu_narrow(dtype, in, out, n);                                    \
    }
CAST_SMALL(bf16, IR_BF16)
CAST_SMALL(f16, IR_F16)

static const cast_rule_t cast_rules[] = {
    {IR_F32, IR_F32, cast_f32_f32},   {IR_F32, IR_F64, cast_f32_f64},
    {IR_F64, IR_F32, cast_f64_f32},   {IR_F64, IR_F64, cast_f64_f64},
    {IR_I32, IR_F32, cast_i32_f32},   {IR_I32, IR_F64, cast_i32_f64},
    {IR_I64, IR_F32, cast_i64_f32},   {IR_I64, IR_F64, cast_i64_f64},
    {IR_U8, IR_F32, cast_u8_f32},     {IR_U8, IR_F64, cast_u8_f64},
    {IR_BOOL, IR_F32, cast_u8_f32},   {IR_BOOL, IR_F64, cast_u8_f64},
    {IR_I32, IR_I64, cast_i32_i64},   {IR_I64, IR_I32, cast_i64_i32},
    {IR_BOOL, IR_I32, cast_u8_i32},   {IR_BOOL, IR_I64, cast_u8_i64},
    {IR_BF16, IR_F32, cast_bf16_f32}, {IR_F32, IR_BF16, cast_f32_bf16},
    {IR_F16, IR_F32, cast_f16_f32},   {IR_F32, IR_F16, cast_f32_f16},
};

static unary_row_t cast_row(const kern_problem_t *problem) {
    for (size_t i = 0; i < sizeof cast_rules / sizeof *cast_rules; i++)
        if (cast_rules[i].from == problem->in[0].dtype && cast_rules[i].to == problem->out[0].dtype)
            return cast_rules[i].row;
    return NULL;
}

static bool can_cast(const kern_problem_t *problem, const char **out_reason) {
    if (cast_row(problem)) return true;
    *out_reason = "no vector loop for this pair of types";
    return false;
}

static st_status_t cast(const kern_call_t *call) {
    run(call, cast_row(call->problem));
    return ST_OK;
}

#define UNARY_IMPL(op, name) CPU_IMPL(op, name, cpu_can_real, NULL, unary)
UNARY_OPS(UNARY_IMPL)
CPU_IMPL(GELU, gelu, cpu_can_real, NULL, gelu)
CPU_IMPL(CAST, cast, can_cast, NULL, cast)

extern cpu_array_t KERN_SYMBOL(kern_cpu_unary);
#define LISTED(op, name) &cpu_impl_##name,
cpu_array_t KERN_SYMBOL(kern_cpu_unary) = {UNARY_OPS(LISTED) & cpu_impl_gelu, &cpu_impl_cast, NULL};
