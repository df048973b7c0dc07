/* Binary elementwise ops, comparisons, select and the backward of activations for f32 and f64, with
 * broadcasting: the walk leaves rows in which each operand is a vector or a scalar. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/math.h"

/* Strides are 0 (scalar) or 1. */
typedef void (*binary_row_t)(void *out, const void *a, int64_t a_stride, const void *b,
                             int64_t b_stride, int64_t n);

typedef struct binary_rule {
    ir_op_t op;
    binary_row_t rows[2]; /* f32, f64 */
} binary_rule_t;

#define REAL float
#define TYPED(name) name##_f32
#include "kernels/cpu/binary.inc"
#define REAL double
#define TYPED(name) name##_f64
#include "kernels/cpu/binary.inc"

/* clang-format off */
#define BINARY_OPS(X) \
    X(ADD, add) X(SUB, sub) X(MUL, mul) X(DIV, div) X(POW, pow) X(MAXIMUM, maximum) \
    X(MINIMUM, minimum) X(EQ, eq) X(NE, ne) X(LT, lt) X(LE, le) X(GT, gt) X(GE, ge) \
    X(RELU_GRAD, relu_grad) X(SILU_GRAD, silu_grad)
/* clang-format on */

static const binary_rule_t binary_rules[] = {
#define RULE(op, name) {IR_OP_##op, {row_##name##_f32, row_##name##_f64}},
    BINARY_OPS(RULE)
#undef RULE
};

typedef struct binary_job {
    cpu_walk_t walk;
    binary_row_t row;
    const char *a, *b;
    char *out;
    size_t in_bytes, out_bytes;
} binary_job_t;

static void binary_chunk(void *arg, int64_t begin, int64_t end, int thread) {
    const binary_job_t *job = arg;
    (void)thread;
    int32_t last = job->walk.rank - 1;
    int64_t sa = job->walk.stride[0][last], sb = job->walk.stride[1][last];
    cpu_cursor_t cursor = cpu_cursor_at(&job->walk, begin);
    while (begin < end) {
        int64_t n = cpu_min(job->walk.dims[last] - cursor.coord[last], end - begin);
        job->row(job->out + (size_t)begin * job->out_bytes,
                 job->a + (size_t)cursor.at[0] * job->in_bytes, sa,
                 job->b + (size_t)cursor.at[1] * job->in_bytes, sb, n);
        begin += n;
        if (begin < end) cpu_cursor_move(&job->walk, &cursor, n);
    }
}

static void run(const kern_call_t *call, binary_row_t row) {
    const kern_problem_t *problem = call->problem;
    binary_job_t job = {.walk = cpu_walk_broadcast(&problem->out[0], 2, problem->in),
                        .row = row,
                        .a = call->in[0],
                        .b = call->in[1],
                        .out = call->out[0],
                        .in_bytes = ir_dtype_bytes(problem->in[0].dtype),
                        .out_bytes = ir_dtype_bytes(problem->out[0].dtype)};
    dev_team_for(call->team, job.walk.elements, CPU_GRAIN, binary_chunk, &job);
}

static st_status_t binary(const kern_call_t *call) {
    const binary_rule_t *rule = binary_rules;
    while (rule->op != call->problem->op) rule++;
    run(call, rule->rows[call->problem->in[0].dtype == IR_F64]);
    return ST_OK;
}

static st_status_t gelu_grad(const kern_call_t *call) {
    bool f64 = call->problem->in[0].dtype == IR_F64;
    if (kern_int(call->problem, "tanh"))
        run(call, f64 ? row_gelu_tanh_grad_f64 : row_gelu_tanh_grad_f32);
    else
        run(call, f64 ? row_gelu_grad_f64 : row_gelu_grad_f32);
    return ST_OK;
}

/* ---- select ---- */

/* One row by element type; a, b: vector or scalar each; condition stride 0 or 1. */
#define SELECT_ROW(type)                                                                           \
    static void select_##type(void *out, const uint8_t *c, int64_t sc, const void *pa, int64_t sa, \
                              const void *pb, int64_t sb, int64_t n) {                             \
        type *y = out;                                                                             \
        const type *a = pa, *b = pb;                                                               \
        if (sc == 0) {                                                                             \
            const type *from = *c ? a : b;                                                         \
            int64_t s = *c ? sa : sb;                                                              \
            CPU_VECTOR                                                                             \
            for (int64_t i = 0; i < n; i++) y[i] = from[i * s];                                    \
        } else if (sa && sb) {                                                                     \
            CPU_VECTOR                                                                             \
            for (int64_t i = 0; i < n; i++) y[i] = c[i] ? a[i] : b[i];                             \
        } else if (sa) {                                                                           \
            const type other = *b;                                                                 \
            CPU_VECTOR                                                                             \
            for (int64_t i = 0; i < n; i++) y[i] = c[i] ? a[i] : other;                            \
        } else if (sb) {                                                                           \
            const type one = *a;                                                                   \
            CPU_VECTOR                                                                             \
            for (int64_t i = 0; i < n; i++) y[i] = c[i] ? one : b[i];                              \
        } else {                                                                                   \
            const type one = *a, other = *b;                                                       \
            CPU_VECTOR                                                                             \
            for (int64_t i = 0; i < n; i++) y[i] = c[i] ? one : other;                             \
        }                                                                                          \
    }
SELECT_ROW(uint8_t)
SELECT_ROW(uint16_t)
SELECT_ROW(uint32_t)
SELECT_ROW(uint64_t)

typedef void (*select_row_t)(void *, const uint8_t *, int64_t, const void *, int64_t, const void *,
                             int64_t, int64_t);

typedef struct select_job {
    cpu_walk_t walk;
    select_row_t row;
    const uint8_t *condition;
    const char *a, *b;
    char *out;
    size_t bytes;
} select_job_t;

static void select_chunk(void *arg, int64_t begin, int64_t end, int thread) {
    const select_job_t *job = arg;
    (void)thread;
    int32_t last = job->walk.rank - 1;
    cpu_cursor_t cursor = cpu_cursor_at(&job->walk, begin);
    while (begin < end) {
        int64_t n = cpu_min(job->walk.dims[last] - cursor.coord[last], end - begin);
        job->row(job->out + (size_t)begin * job->bytes, job->condition + cursor.at[0],
                 job->walk.stride[0][last], job->a + (size_t)cursor.at[1] * job->bytes,
                 job->walk.stride[1][last], job->b + (size_t)cursor.at[2] * job->bytes,
                 job->walk.stride[2][last], n);
        begin += n;
        if (begin < end) cpu_cursor_move(&job->walk, &cursor, n);
    }
}

static st_status_t select_op(const kern_call_t *call) {
    const kern_problem_t *problem = call->problem;
    size_t bytes = ir_dtype_bytes(problem->out[0].dtype);
    select_job_t job = {.walk = cpu_walk_broadcast(&problem->out[0], 3, problem->in),
                        .row = bytes == 1   ? select_uint8_t
                               : bytes == 2 ? select_uint16_t
                               : bytes == 4 ? select_uint32_t
                                            : select_uint64_t,
                        .condition = call->in[0],
                        .a = call->in[1],
                        .b = call->in[2],
                        .out = call->out[0],
                        .bytes = bytes};
    dev_team_for(call->team, job.walk.elements, CPU_GRAIN, select_chunk, &job);
    return ST_OK;
}

#define BINARY_IMPL(op, name) CPU_IMPL(op, name, cpu_can_real_input, NULL, binary)
BINARY_OPS(BINARY_IMPL)
CPU_IMPL(GELU_GRAD, gelu_grad, cpu_can_real_input, NULL, gelu_grad)
CPU_IMPL(SELECT, select, NULL, NULL, select_op)

extern cpu_array_t KERN_SYMBOL(kern_cpu_binary);
#define LISTED(op, name) &cpu_impl_##name,
cpu_array_t KERN_SYMBOL(kern_cpu_binary) = {BINARY_OPS(LISTED) & cpu_impl_gelu_grad,
                                            &cpu_impl_select, NULL};
