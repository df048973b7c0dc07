/* Pooling for f32 and f64: a task is one plane (image and channel). */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/math.h"

enum { MOST_TAPS = 64 };

typedef struct pool_job {
    kern_window_t w;
    int n_taps;             /* of a whole window, for max; 0: too many for the list */
    int64_t tap[MOST_TAPS]; /* their positions from the first one's */
    int64_t full[2];        /* outputs along the last dim whose windows are whole there */
    bool count_pad;
    const void *x;
    const int32_t *index;
    void *y;
    int32_t *y_index;
} pool_job_t;

/* The taps of output position o that lie in the input, as positions: dim d at start[d] + t ·
 * step[d]. */
typedef struct taps {
    int64_t o[3], start[3], count[3], step[3];
} taps_t;

static void taps_at(const kern_window_t *w, taps_t *taps, int d, int64_t o) {
    int64_t first, last;
    kern_window_taps(w, d, o, &first, &last);
    taps->o[d] = o;
    taps->step[d] = w->dilation[d];
    taps->start[d] = o * w->stride[d] - w->low[d] + first * w->dilation[d];
    taps->count[d] = last - first;
}

#define FOR_OUTPUTS(w, taps, p)                                             \
    for (int64_t o0 = 0, p = 0; o0 < (w)->out[0]; o0++)                     \
        for (int64_t o1 = 0; o1 < (w)->out[1]; o1++)                        \
            for (int64_t o2 = 0; o2 < (w)->out[2]; o2++, p++)               \
                if (taps_at(w, &(taps), 0, o0), taps_at(w, &(taps), 1, o1), \
                    taps_at(w, &(taps), 2, o2), true)

#define REAL float
#define TYPED(name) name##_f32
#include "kernels/cpu/pool.inc"
#define REAL double
#define TYPED(name) name##_f64
#include "kernels/cpu/pool.inc"

static void run(const kern_call_t *call, const pool_job_t *job, dev_team_body_t f32,
                dev_team_body_t f64) {
    int64_t planes = job->w.n * job->w.c;
    dev_team_for(call->team, planes,
                 cpu_row_grain(job->w.in_size + job->w.out_size * job->w.kernel_size),
                 call->problem->in[0].dtype == IR_F64 ? f64 : f32, (void *)job);
}

static void list_taps(pool_job_t *job) {
    const kern_window_t *w = &job->w;
    int64_t none, end;
    if (w->kernel_size > MOST_TAPS) return;
    for (int64_t i = 0; i < w->kernel[0]; i++)
        for (int64_t j = 0; j < w->kernel[1]; j++)
            for (int64_t k = 0; k < w->kernel[2]; k++)
                job->tap[job->n_taps++] =
                    (i * w->dilation[0] * w->in[1] + j * w->dilation[1]) * w->in[2] +
                    k * w->dilation[2];
    kern_window_outputs(w, 2, 0, &job->full[0], &none);
    kern_window_outputs(w, 2, w->kernel[2] - 1, &none, &end);
    job->full[1] = cpu_max(job->full[0], end);
}

static st_status_t max_pool(const kern_call_t *call) {
    pool_job_t job = {
        .w = kern_pool_window(call->problem, &call->problem->in[0], &call->problem->out[0]),
        .x = call->in[0],
        .y = call->out[0],
        .y_index = call->out[1]};
    list_taps(&job);
    run(call, &job, max_pool_f32, max_pool_f64);
    return ST_OK;
}

static st_status_t max_pool_grad(const kern_call_t *call) {
    const kern_problem_t *problem = call->problem;
    const ir_type_t *dy = &problem->in[0], *dx = &problem->out[0];
    pool_job_t job = {
        .w = {.n = dy->dims[0], .c = dy->dims[1], .in_size = 1, .out_size = 1, .kernel_size = 1},
        .x = call->in[0],
        .index = call->in[1],
        .y = call->out[0]};
    for (int32_t d = 2; d < dy->rank; d++) {
        job.w.in_size *= dx->dims[d];
        job.w.out_size *= dy->dims[d];
    }
    int64_t n = ir_type_elements(dy);
    for (int64_t i = 0; i < n; i++)
        if (job.index[i] < -1 || job.index[i] >= job.w.in_size)
            return kern_bad_index(job.index[i], i, 2, job.w.in_size);
    run(call, &job, max_pool_grad_f32, max_pool_grad_f64);
    return ST_OK;
}

static st_status_t avg_pool(const kern_call_t *call) {
    pool_job_t job = {
        .w = kern_pool_window(call->problem, &call->problem->in[0], &call->problem->out[0]),
        .count_pad = kern_int(call->problem, "count_pad") != 0,
        .x = call->in[0],
        .y = call->out[0]};
    run(call, &job, avg_pool_f32, avg_pool_f64);
    return ST_OK;
}

static st_status_t avg_pool_grad(const kern_call_t *call) {
    pool_job_t job = {
        .w = kern_pool_window(call->problem, &call->problem->out[0], &call->problem->in[0]),
        .count_pad = kern_int(call->problem, "count_pad") != 0,
        .x = call->in[0],
        .y = call->out[0]};
    run(call, &job, avg_pool_grad_f32, avg_pool_grad_f64);
    return ST_OK;
}

CPU_IMPL(MAX_POOL, max_pool, cpu_can_real, NULL, max_pool)
CPU_IMPL(MAX_POOL_GRAD, max_pool_grad, cpu_can_real, NULL, max_pool_grad)
CPU_IMPL(AVG_POOL, avg_pool, cpu_can_real, NULL, avg_pool)
CPU_IMPL(AVG_POOL_GRAD, avg_pool_grad, cpu_can_real, NULL, avg_pool_grad)

extern cpu_array_t KERN_SYMBOL(kern_cpu_pool);
cpu_array_t KERN_SYMBOL(kern_cpu_pool) = {&cpu_impl_max_pool, &cpu_impl_max_pool_grad,
                                          &cpu_impl_avg_pool, &cpu_impl_avg_pool_grad, NULL};
