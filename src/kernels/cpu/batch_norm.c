/* The parts of batch norm for f32 and f64: x is [n][c][inner], statistics are per channel.
 *
 * A channel's sums are done by one thread: images in order, each image's contiguous run first. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/math.h"

typedef struct channel_job {
    int64_t n, c, inner;
    double count;
    const void *dy, *x, *mean, *invstd, *w, *b, *sum, *sum_xhat;
    void *y, *y_xhat;
} channel_job_t;

#define REAL float
#define REAL_INT int32_t
#define TYPED(name) name##_f32
#include "kernels/cpu/batch_norm.inc"
#define REAL double
#define REAL_INT int64_t
#define TYPED(name) name##_f64
#include "kernels/cpu/batch_norm.inc"

#define PICK(call, name) ((call)->problem->in[0].dtype == IR_F64 ? name##_f64 : name##_f32)

static channel_job_t job_of(const kern_call_t *call) {
    kern_split_t x = kern_split_at(&call->problem->in[0], 1);
    return (channel_job_t){.n = x.outer, .c = x.n, .inner = x.inner, .y = call->out[0]};
}

static void per_channel(const kern_call_t *call, channel_job_t *job, dev_team_body_t body) {
    dev_team_for(call->team, job->c, cpu_row_grain(job->n * job->inner), body, job);
}

static void per_plane(const kern_call_t *call, channel_job_t *job, dev_team_body_t body) {
    dev_team_for(call->team, job->n * job->c, cpu_row_grain(job->inner), body, job);
}

static st_status_t channel_sum(const kern_call_t *call) {
    channel_job_t job = job_of(call);
    job.x = call->in[0];
    per_channel(call, &job, PICK(call, channel_sum));
    return ST_OK;
}

static st_status_t channel_centered_squares(const kern_call_t *call) {
    channel_job_t job = job_of(call);
    job.x = call->in[0];
    job.mean = call->in[1];
    per_channel(call, &job, PICK(call, centered_squares));
    return ST_OK;
}

static st_status_t batch_norm_apply(const kern_call_t *call) {
    channel_job_t job = job_of(call);
    job.x = call->in[0];
    job.mean = call->in[1];
    job.invstd = call->in[2];
    job.w = call->in[3];
    job.b = call->in[4];
    per_plane(call, &job, PICK(call, apply));
    return ST_OK;
}

static st_status_t batch_norm_grad_sums(const kern_call_t *call) {
    channel_job_t job = job_of(call);
    job.dy = call->in[0];
    job.x = call->in[1];
    job.mean = call->in[2];
    job.invstd = call->in[3];
    job.y_xhat = call->out[1];
    per_channel(call, &job, PICK(call, grad_sums));
    return ST_OK;
}

static st_status_t batch_norm_grad_apply(const kern_call_t *call) {
    channel_job_t job = job_of(call);
    job.dy = call->in[0];
    job.x = call->in[1];
    job.mean = call->in[2];
    job.invstd = call->in[3];
    job.w = call->in[4];
    job.sum = call->in[5];
    job.sum_xhat = call->in[6];
    job.count = (double)kern_int(call->problem, "count");
    per_plane(call, &job, PICK(call, grad_apply));
    return ST_OK;
}

CPU_IMPL(CHANNEL_SUM, channel_sum, cpu_can_real, NULL, channel_sum)
CPU_IMPL(CHANNEL_CENTERED_SQUARES, channel_centered_squares, cpu_can_real, NULL,
         channel_centered_squares)
CPU_IMPL(BATCH_NORM_APPLY, batch_norm_apply, cpu_can_real, NULL, batch_norm_apply)
CPU_IMPL(BATCH_NORM_GRAD_SUMS, batch_norm_grad_sums, cpu_can_real, NULL, batch_norm_grad_sums)
CPU_IMPL(BATCH_NORM_GRAD_APPLY, batch_norm_grad_apply, cpu_can_real, NULL, batch_norm_grad_apply)

extern cpu_array_t KERN_SYMBOL(kern_cpu_batch_norm);
cpu_array_t KERN_SYMBOL(kern_cpu_batch_norm) = {
    &cpu_impl_channel_sum,          &cpu_impl_channel_centered_squares, &cpu_impl_batch_norm_apply,
    &cpu_impl_batch_norm_grad_sums, &cpu_impl_batch_norm_grad_apply,    NULL};
