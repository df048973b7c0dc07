/* Softmax along the last axis and cross entropy, for f32 and f64. Formulas: reference/loss.c. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/math.h"

typedef struct rows_job {
    int64_t n; /* row length */
    const void *a, *b, *dloss, *lse, *weight;
    void *y, *y_weight, *y_lse;
    const void *labels;
    ir_dtype_t label_type;
    int64_t ignore;
    double smoothing, sum_weight;
    bool logarithm, dloss_row;
} rows_job_t;

#define REAL float
#define REAL_INT int32_t
#define TYPED(name) name##_f32
#include "kernels/cpu/softmax.inc"
#define REAL double
#define REAL_INT int64_t
#define TYPED(name) name##_f64
#include "kernels/cpu/softmax.inc"

static bool can_last(const kern_problem_t *problem, const char **out_reason) {
    if (!cpu_can_real(problem, out_reason)) return false;
    if (kern_split_axis(problem, &problem->in[0]).inner == 1) return true;
    *out_reason = "the axis is not the last";
    return false;
}

static st_status_t softmax_like(const kern_call_t *call) {
    const kern_problem_t *problem = call->problem;
    kern_split_t x = kern_split_axis(problem, &problem->in[0]);
    bool gradient = problem->n_in > 1, f64 = problem->in[0].dtype == IR_F64;
    rows_job_t job = {
        .n = x.n,
        .a = call->in[0],
        .b = gradient ? call->in[1] : NULL,
        .y = call->out[0],
        .logarithm = problem->op == IR_OP_LOG_SOFTMAX || problem->op == IR_OP_LOG_SOFTMAX_GRAD};
    if (x.n == 0) return ST_OK;
    dev_team_body_t body =
        gradient ? (f64 ? softmax_grad_f64 : softmax_grad_f32) : (f64 ? softmax_f64 : softmax_f32);
    dev_team_for(call->team, x.outer, cpu_row_grain(x.n * 4), body, &job);
    return ST_OK;
}

static st_status_t cross_entropy_rows(const kern_call_t *call) {
    const kern_problem_t *problem = call->problem;
    const ir_type_t *x = &problem->in[0];
    bool f64 = x->dtype == IR_F64;
    rows_job_t job = {.n = x->dims[1],
                      .a = call->in[0],
                      .labels = call->in[1],
                      .label_type = problem->in[1].dtype,
                      .weight = problem->n_in > 2 ? call->in[2] : NULL,
                      .y = call->out[0],
                      .y_weight = call->out[1],
                      .y_lse = call->out[2],
                      .ignore = kern_int(problem, "ignore_index"),
                      .smoothing = kern_float(problem, "smoothing")};
    TRY(kern_check_labels(problem, 1, call->in[1], job.n));
    dev_team_for(call->team, x->dims[0], cpu_row_grain(job.n * 4),
                 f64 ? cross_entropy_rows_f64 : cross_entropy_rows_f32, &job);
    return ST_OK;
}

static st_status_t cross_entropy_grad(const kern_call_t *call) {
    const kern_problem_t *problem = call->problem;
    const ir_type_t *x = &problem->in[1];
    bool f64 = x->dtype == IR_F64;
    rows_job_t job = {.n = x->dims[1],
                      .dloss = call->in[0],
                      .dloss_row = problem->in[0].rank > 0,
                      .a = call->in[1],
                      .labels = call->in[2],
                      .label_type = problem->in[2].dtype,
                      .lse = call->in[3],
                      .weight = problem->n_in > 4 ? call->in[4] : NULL,
                      .y = call->out[0],
                      .ignore = kern_int(problem, "ignore_index"),
                      .smoothing = kern_float(problem, "smoothing")};
    TRY(kern_check_labels(problem, 2, call->in[2], job.n));
    job.sum_weight = (double)job.n;
    if (job.weight)
        job.sum_weight = f64 ? sum1_f64(job.weight, job.weight, job.weight, 0, 0, job.n)
                             : sum1_f32(job.weight, job.weight, job.weight, 0, 0, job.n);
    dev_team_for(call->team, x->dims[0], cpu_row_grain(job.n * 4),
                 f64 ? cross_entropy_grad_f64 : cross_entropy_grad_f32, &job);
    return ST_OK;
}

CPU_IMPL(SOFTMAX, softmax, can_last, NULL, softmax_like)
CPU_IMPL(LOG_SOFTMAX, log_softmax, can_last, NULL, softmax_like)
CPU_IMPL(SOFTMAX_GRAD, softmax_grad, can_last, NULL, softmax_like)
CPU_IMPL(LOG_SOFTMAX_GRAD, log_softmax_grad, can_last, NULL, softmax_like)
CPU_IMPL(CROSS_ENTROPY_ROWS, cross_entropy_rows, cpu_can_real, NULL, cross_entropy_rows)
CPU_IMPL(CROSS_ENTROPY_GRAD, cross_entropy_grad, cpu_can_real, NULL, cross_entropy_grad)

extern cpu_array_t KERN_SYMBOL(kern_cpu_softmax);
cpu_array_t KERN_SYMBOL(kern_cpu_softmax) = {&cpu_impl_softmax,
                                             &cpu_impl_log_softmax,
                                             &cpu_impl_softmax_grad,
                                             &cpu_impl_log_softmax_grad,
                                             &cpu_impl_cross_entropy_rows,
                                             &cpu_impl_cross_entropy_grad,
                                             NULL};
