/* Pooling for f32 and f64. A task is one plane (image and channel); channels last, one row of
 * outputs, or for what adds into dx one image's CHANNELS. */
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/math.h"

enum { MOST_TAPS = 64, CHANNELS = 64 };

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

/* By form and type. */
typedef struct bodies {
    dev_team_body_t f32, f64, last_f32, last_f64;
} bodies_t;
#define BODIES(name) \
    { name##_f32, name##_f64, name##_last_f32, name##_last_f64 }

static void run(const kern_call_t *call, const pool_job_t *job, bool adds, bodies_t bodies) {
    const kern_window_t *w = &job->w;
    const bool f64 = call->problem->in[0].dtype == IR_F64;
    int64_t tasks = w->n * w->c, each = w->in_size + w->out_size * w->kernel_size;
    if (w->last && adds) {
        tasks = w->n * cpu_ceil(w->c, CHANNELS);
        each *= CHANNELS;
    } else if (w->last) {
        tasks = w->n * w->out[0] * w->out[1];
        each = w->out[2] * w->kernel_size * w->c;
    }
    dev_team_for(
        call->team, tasks, cpu_row_grain(each),
        w->last ? (f64 ? bodies.last_f64 : bodies.last_f32) : (f64 ? bodies.f64 : bodies.f32),
        (void *)job);
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
    if (!job.w.last) list_taps(&job);
    run(call, &job, false, (bodies_t)BODIES(max_pool));
    return ST_OK;
}

static st_status_t max_pool_grad(const kern_call_t *call) {
    pool_job_t job = {.w = kern_unpool_window(call->problem),
                      .x = call->in[0],
                      .index = call->in[1],
                      .y = call->out[0]};
    int64_t n = ir_type_elements(&call->problem->in[0]);
    for (int64_t i = 0; i < n; i++)
        if (job.index[i] < -1 || job.index[i] >= job.w.in_size)
            return kern_bad_index(job.index[i], i, 2, job.w.in_size);
    run(call, &job, true, (bodies_t)BODIES(max_pool_grad));
    return ST_OK;
}

static st_status_t avg_pool(const kern_call_t *call) {
    pool_job_t job = {
        .w = kern_pool_window(call->problem, &call->problem->in[0], &call->problem->out[0]),
        .count_pad = kern_int(call->problem, "count_pad") != 0,
        .x = call->in[0],
        .y = call->out[0]};
    run(call, &job, false, (bodies_t)BODIES(avg_pool));
    return ST_OK;
}

static st_status_t avg_pool_grad(const kern_call_t *call) {
    pool_job_t job = {
        .w = kern_pool_window(call->problem, &call->problem->out[0], &call->problem->in[0]),
        .count_pad = kern_int(call->problem, "count_pad") != 0,
        .x = call->in[0],
        .y = call->out[0]};
    run(call, &job, true, (bodies_t)BODIES(avg_pool_grad));
    return ST_OK;
}

CPU_IMPL(MAX_POOL, max_pool, cpu_can_real, NULL, max_pool)
CPU_IMPL(MAX_POOL_GRAD, max_pool_grad, cpu_can_real, NULL, max_pool_grad)
CPU_IMPL(AVG_POOL, avg_pool, cpu_can_real, NULL, avg_pool)
CPU_IMPL(AVG_POOL_GRAD, avg_pool_grad, cpu_can_real, NULL, avg_pool_grad)

extern cpu_array_t KERN_SYMBOL(kern_cpu_pool);
cpu_array_t KERN_SYMBOL(kern_cpu_pool) = {&cpu_impl_max_pool, &cpu_impl_max_pool_grad,
                                          &cpu_impl_avg_pool, &cpu_impl_avg_pool_grad, NULL};
