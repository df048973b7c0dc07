/* Layer norm, RMS norm and rotary embedding for f32 and f64.
 *
 * The gradients of weight and bias sum over all rows: each chunk of GRAD_ROWS rows leaves its own
 * sums in the workspace, and those are added in order. dx comes in the same pass over the rows. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/math.h"

enum { GRAD_ROWS = 64, COLUMNS = 64 };

typedef struct norm_job {
    int64_t h, rows, chunks;
    double eps;
    const void *dy, *x, *w, *b, *mean, *rstd;
    void *y, *y_mean, *y_rstd, *dw, *db;
    void *partial; /* [chunks][dw, db][h] */
    /* rope */
    const void *cosine, *sine;
    int64_t positions, heads; /* heads: rows of one position that follow each other */
    bool interleaved, inverse;
} norm_job_t;

#define REAL float
#define REAL_INT int32_t
#define TYPED(name) name##_f32
#include "kernels/cpu/norm.inc"
#define REAL double
#define REAL_INT int64_t
#define TYPED(name) name##_f64
#include "kernels/cpu/norm.inc"

#define PICK(f64, name) ((f64) ? name##_f64 : name##_f32)

static st_status_t rms_norm(const kern_call_t *call) {
    const kern_problem_t *problem = call->problem;
    norm_job_t job = {.h = ir_type_elements(&problem->in[1]),
                      .eps = kern_float(problem, "eps"),
                      .x = call->in[0],
                      .w = call->in[1],
                      .y = call->out[0],
                      .y_rstd = call->out[1]};
    dev_team_for(call->team, ir_type_elements(&problem->out[1]), cpu_row_grain(job.h),
                 PICK(problem->in[0].dtype == IR_F64, rms_rows), &job);
    return ST_OK;
}

static st_status_t layer_norm(const kern_call_t *call) {
    const kern_problem_t *problem = call->problem;
    norm_job_t job = {.h = ir_type_elements(&problem->in[1]),
                      .eps = kern_float(problem, "eps"),
                      .x = call->in[0],
                      .w = call->in[1],
                      .b = call->in[2],
                      .y = call->out[0],
                      .y_mean = call->out[1],
                      .y_rstd = call->out[2]};
    dev_team_for(call->team, ir_type_elements(&problem->out[1]), cpu_row_grain(job.h),
                 PICK(problem->in[0].dtype == IR_F64, layer_rows), &job);
    return ST_OK;
}

static size_t grad_workspace(const kern_problem_t *problem, int n_threads) {
    bool layer = problem->op == IR_OP_LAYER_NORM_GRAD;
    int64_t h = ir_type_elements(&problem->in[layer ? 4 : 3]);
    int64_t chunks = cpu_ceil(ir_type_elements(&problem->in[2]), GRAD_ROWS);
    (void)n_threads;
    size_t parts = st_size_mul(st_size_mul((size_t)chunks, 2), (size_t)h);
    return st_size_mul(parts, ir_dtype_bytes(problem->in[0].dtype));
}

static st_status_t rms_norm_grad(const kern_call_t *call) {
    const kern_problem_t *problem = call->problem;
    bool f64 = problem->in[0].dtype == IR_F64;
    norm_job_t job = {.h = ir_type_elements(&problem->in[3]),
                      .rows = ir_type_elements(&problem->in[2]),
                      .dy = call->in[0],
                      .x = call->in[1],
                      .rstd = call->in[2],
                      .w = call->in[3],
                      .y = call->out[0],
                      .dw = call->out[1],
                      .partial = call->workspace};
    job.chunks = cpu_ceil(job.rows, GRAD_ROWS);
    dev_team_for(call->team, job.rows, GRAD_ROWS, PICK(f64, rms_grad), &job);
    dev_team_for(call->team, job.h, COLUMNS, PICK(f64, join_weights), &job);
    return ST_OK;
}

static st_status_t layer_norm_grad(const kern_call_t *call) {
    const kern_problem_t *problem = call->problem;
    bool f64 = problem->in[0].dtype == IR_F64;
    norm_job_t job = {.h = ir_type_elements(&problem->in[4]),
                      .rows = ir_type_elements(&problem->in[2]),
                      .dy = call->in[0],
                      .x = call->in[1],
                      .mean = call->in[2],
                      .rstd = call->in[3],
                      .w = call->in[4],
                      .y = call->out[0],
                      .dw = call->out[1],
                      .db = call->out[2],
                      .partial = call->workspace};
    job.chunks = cpu_ceil(job.rows, GRAD_ROWS);
    dev_team_for(call->team, job.rows, GRAD_ROWS, PICK(f64, layer_grad), &job);
    dev_team_for(call->team, job.h, COLUMNS, PICK(f64, join_weights), &job);
    return ST_OK;
}

static st_status_t rope(const kern_call_t *call) {
    const kern_problem_t *problem = call->problem;
    const ir_type_t *x = &problem->in[0];
    const bool rows_first = kern_int(problem, "rows_first") != 0;
    norm_job_t job = {.h = x->dims[3],
                      .positions = x->dims[rows_first ? 1 : 2],
                      .heads = rows_first ? x->dims[2] : 1,
                      .x = call->in[0],
                      .cosine = call->in[1],
                      .sine = call->in[2],
                      .y = call->out[0],
                      .interleaved = kern_int(problem, "interleaved") != 0,
                      .inverse = kern_int(problem, "inverse") != 0};
    dev_team_for(call->team, x->dims[0] * x->dims[1] * x->dims[2], cpu_row_grain(job.h),
                 PICK(x->dtype == IR_F64, rope_rows), &job);
    return ST_OK;
}

CPU_IMPL(RMS_NORM, rms_norm, cpu_can_real, NULL, rms_norm)
CPU_IMPL(RMS_NORM_GRAD, rms_norm_grad, cpu_can_real, grad_workspace, rms_norm_grad)
CPU_IMPL(LAYER_NORM, layer_norm, cpu_can_real, NULL, layer_norm)
CPU_IMPL(LAYER_NORM_GRAD, layer_norm_grad, cpu_can_real, grad_workspace, layer_norm_grad)
CPU_IMPL(ROPE, rope, cpu_can_real, NULL, rope)

extern cpu_array_t KERN_SYMBOL(kern_cpu_norm);
cpu_array_t KERN_SYMBOL(kern_cpu_norm) = {&cpu_impl_rms_norm,   &cpu_impl_rms_norm_grad,
                                          &cpu_impl_layer_norm, &cpu_impl_layer_norm_grad,
                                          &cpu_impl_rope,       NULL};
