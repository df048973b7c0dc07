/* Sums, means, maxima and minima over axes for f32 and f64.
 *
 * Neighbouring dims of one kind are merged, which leaves at most [K0, R0, K1, R1] (K kept, R
 * reduced) for all but unusual axes:
 *
 *   R1 > 1   rows are contiguous: one sum along each, R0 of them an output
 *   R1 = 1   columns are contiguous: rows of K1 are added up, COLUMNS at a time
 *
 * A long sum into few outputs is cut into pieces of PIECE elements, added in order. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/small.h"

enum { PIECE = 16384, COLUMNS = 64, ROWS_A_FLUSH = 64 };

typedef struct shape4 {
    int64_t k0, r0, k1, r1;
} shape4_t;

/* Merged form; false if the axes alternate too often. */
static bool merge(const kern_problem_t *problem, shape4_t *out) {
    const ir_type_t *x = &problem->in[0];
    bool reduced[IR_MAX_RANK];
    kern_reduced_dims(problem, reduced);
    int64_t part[4] = {1, 1, 1, 1};
    int at = 0; /* even: kept, odd: reduced */
    for (int32_t d = 0; d < x->rank; d++) {
        if (x->dims[d] == 1) continue;
        if ((at & 1) != reduced[d]) at++;
        if (at > 3) return false;
        part[at] *= x->dims[d];
    }
    if (at == 1) { /* [K0, R]: contiguous */
        part[3] = part[1];
        part[1] = 1;
    }
    *out = (shape4_t){part[0], part[1], part[2], part[3]};
    return true;
}

typedef struct reduce_job {
    shape4_t s;
    bool maximum, minimum;
    double scale; /* of the result: 1, or 1 / count for a mean */
    int64_t pieces, blocks;
    const void *x;
    void *y;
    double *partial;
} reduce_job_t;

#define REAL float
#define REAL_INT int32_t
#define TYPED(name) name##_f32
#include "kernels/cpu/reduce.inc"
#define REAL double
#define REAL_INT int64_t
#define TYPED(name) name##_f64
#include "kernels/cpu/reduce.inc"

static bool can_run(const kern_problem_t *problem, const char **out_reason) {
    shape4_t s;
    if (!cpu_can_real(problem, out_reason)) return false;
    if (merge(problem, &s)) return true;
    *out_reason = "the axes alternate with kept dims more than twice";
    return false;
}

/* Pieces of one output's sum, where there are few outputs. */
static int64_t pieces_of(const shape4_t *s) {
    bool few = s->k0 * s->k1 < 16 && s->r0 == 1 && s->r1 >= 2 * PIECE;
    return few ? cpu_ceil(s->r1, PIECE) : 1;
}

static size_t workspace(const kern_problem_t *problem, int n_threads) {
    shape4_t s;
    (void)n_threads;
    if (!merge(problem, &s)) return 0;
    int64_t pieces = pieces_of(&s);
    if (pieces == 1) return 0;
    return st_size_mul(st_size_mul((size_t)(s.k0 * s.k1), (size_t)pieces), sizeof(double));
}

static st_status_t reduce(const kern_call_t *call) {
    const kern_problem_t *problem = call->problem;
    reduce_job_t job = {.maximum = problem->op == IR_OP_REDUCE_MAX,
                        .minimum = problem->op == IR_OP_REDUCE_MIN,
                        .scale = 1,
                        .x = call->in[0],
                        .y = call->out[0],
                        .partial = call->workspace};
    if (!merge(problem, &job.s)) return FAIL(ST_INTERNAL, "axes that can_run refuses");
    int64_t outputs = job.s.k0 * job.s.k1, count = job.s.r0 * job.s.r1;
    bool f64 = problem->in[0].dtype == IR_F64;
    if (problem->op == IR_OP_REDUCE_MEAN) job.scale = 1 / (double)count;
    if (outputs == 0) return ST_OK;
    if (job.s.r1 == 1 && job.s.k1 > 1) {
        job.blocks = cpu_ceil(job.s.k1, COLUMNS);
        dev_team_for(call->team, job.s.k0 * job.blocks, cpu_row_grain(job.s.r0 * COLUMNS),
                     f64 ? columns_f64 : columns_f32, &job);
        return ST_OK;
    }
    job.pieces = pieces_of(&job.s);
    if (job.pieces > 1) {
        dev_team_for(call->team, outputs * job.pieces, 1, f64 ? pieces_f64 : pieces_f32, &job);
        if (f64)
            join_f64(&job, outputs);
        else
            join_f32(&job, outputs);
        return ST_OK;
    }
    dev_team_for(call->team, outputs, cpu_row_grain(count), f64 ? rows_f64 : rows_f32, &job);
    return ST_OK;
}

CPU_IMPL(REDUCE_SUM, reduce_sum, can_run, workspace, reduce)
CPU_IMPL(REDUCE_MEAN, reduce_mean, can_run, workspace, reduce)
CPU_IMPL(REDUCE_MAX, reduce_max, can_run, workspace, reduce)
CPU_IMPL(REDUCE_MIN, reduce_min, can_run, workspace, reduce)

/* ---- sum of squares over many tensors ---- */

typedef struct squares_job {
    const void *x;
    int64_t n;
    double *partial;
    ir_dtype_t dtype;
} squares_job_t;

#define SQUARES(real, name)                                                           \
    static void squares_##name(void *arg, int64_t begin, int64_t end, int thread) {   \
        const squares_job_t *job = arg;                                               \
        const real *x = (const real *)job->x + begin;                                 \
        (void)thread;                                                                 \
        job->partial[begin / PIECE] = sum_squares_##name(x, x, x, 0, 0, end - begin); \
    }
SQUARES(float, f32)
SQUARES(double, f64)

static void squares_small(void *arg, int64_t begin, int64_t end, int thread) {
    const squares_job_t *job = arg;
    float x[CPU_SMALL_BLOCK];
    double total = 0;
    (void)thread;
    for (int64_t i = begin; i < end; i += CPU_SMALL_BLOCK) {
        int64_t n = cpu_min(CPU_SMALL_BLOCK, end - i);
        cpu_widen(job->dtype, (const uint16_t *)job->x + i, x, n);
        total += sum_squares_f32(x, x, x, 0, 0, n);
    }
    job->partial[begin / PIECE] = total;
}

/* Types may differ: each input has its own loop. */
static bool can_squares(const kern_problem_t *problem, const char **out_reason) {
    for (uint32_t j = 0; j < problem->n_in; j++) {
        ir_dtype_t dtype = problem->in[j].dtype;
        if (dtype == IR_F32 || dtype == IR_F64 || cpu_is_small(dtype)) continue;
        *out_reason = "f32, f64, bf16 or f16 is needed";
        return false;
    }
    return true;
}

static size_t squares_workspace(const kern_problem_t *problem, int n_threads) {
    int64_t most = 1;
    (void)n_threads;
    for (uint32_t j = 0; j < problem->n_in; j++)
        most = cpu_max(most, cpu_ceil(ir_type_elements(&problem->in[j]), PIECE));
    return st_size_mul((size_t)most, sizeof(double));
}

static st_status_t sum_squares(const kern_call_t *call) {
    const kern_problem_t *problem = call->problem;
    double total = 0;
    for (uint32_t j = 0; j < problem->n_in; j++) {
        squares_job_t job = {call->in[j], ir_type_elements(&problem->in[j]), call->workspace,
                             problem->in[j].dtype};
        dev_team_for(call->team, job.n, PIECE,
                     job.dtype == IR_F64   ? squares_f64
                     : job.dtype == IR_F32 ? squares_f32
                                           : squares_small,
                     &job);
        for (int64_t i = 0; i < cpu_ceil(job.n, PIECE); i++) total += job.partial[i];
    }
    if (problem->out[0].dtype == IR_F64)
        *(double *)call->out[0] = total;
    else
        *(float *)call->out[0] = (float)total;
    return ST_OK;
}

CPU_IMPL(SUM_SQUARES, sum_squares, can_squares, squares_workspace, sum_squares)

extern cpu_array_t KERN_SYMBOL(kern_cpu_reduce);
cpu_array_t KERN_SYMBOL(kern_cpu_reduce) = {&cpu_impl_reduce_sum,  &cpu_impl_reduce_mean,
                                            &cpu_impl_reduce_max,  &cpu_impl_reduce_min,
                                            &cpu_impl_sum_squares, NULL};
