/* Convolution and its gradients for f32 and f64: windows are laid out as columns (of a block of
 * output rows at a time, so that they stay in cache), the rest is products.
 *
 *   y[o, p]  = w[o, ck] · col[ck, p]          tasks: image, group, block of output rows; channels
 *                                             last y[p, o] = col[p, kc] · w[o, kc]^T, and so the
 *                                             others
 *   dcol     = w^T · dy, added back into dx    tasks: image, group
 *   dw       = sum over images of dy · col^T   tasks: WEIGHT_CHUNKS runs of images, parts added in
 * order */
#include <string.h>

#include "kernels/cpu/cpu.h"

enum { POSITIONS = 512, WEIGHT_CHUNKS = 8 };

typedef struct conv_job {
    kern_window_t w;
    int64_t c_each, o_each, ck;       /* channels a group; rows of col */
    int64_t rows, block_rows, blocks; /* output rows (out[0] · out[1]) an image, a block; blocks */
    int64_t images;                   /* of a weight chunk */
    const void *x, *weight, *bias, *dy;
    void *y, *dx, *dw;
    char *slots, *parts;
    size_t col_bytes, slot_bytes;
} conv_job_t;

#define REAL float
#define TYPED(name) name##_f32
#include "kernels/cpu/conv.inc"
#define REAL double
#define TYPED(name) name##_f64
#include "kernels/cpu/conv.inc"

static conv_job_t job_of(const kern_problem_t *problem, const ir_type_t *x, const ir_type_t *w,
                         const ir_type_t *y) {
    conv_job_t job = {.w = kern_conv_window(problem, x, w, y)};
    size_t bytes = ir_dtype_bytes(x->dtype);
    job.c_each = job.w.c / job.w.groups;
    job.o_each = job.w.o / job.w.groups;
    job.ck = job.c_each * job.w.kernel_size;
    job.rows = job.w.out[0] * job.w.out[1];
    job.block_rows = cpu_max(1, cpu_min(job.rows, POSITIONS / cpu_max(1, job.w.out[2])));
    job.blocks = cpu_ceil(job.rows, job.block_rows);
    job.images = cpu_ceil(job.w.n, WEIGHT_CHUNKS);
    int64_t positions = job.block_rows * job.w.out[2];
    job.col_bytes =
        st_size_align(st_size_mul(st_size_mul((size_t)job.ck, (size_t)positions), bytes), 64);
    int64_t most = cpu_max(cpu_max(positions, job.o_each), job.ck);
    int64_t wide = cpu_max(positions, job.ck), tall = cpu_max(job.o_each, job.ck);
    job.slot_bytes =
        st_size_add(job.col_bytes,
                    job.w.last ? cpu_gemm_pack_bytes(most, most, most, bytes)
                               : cpu_gemm_pack_bytes(tall, wide, cpu_max(tall, positions), bytes));
    return job;
}

static conv_job_t job_for(const kern_problem_t *problem) {
    if (problem->op == IR_OP_CONV)
        return job_of(problem, &problem->in[0], &problem->in[1], &problem->out[0]);
    if (problem->op == IR_OP_CONV_GRAD_INPUT)
        return job_of(problem, &problem->out[0], &problem->in[1], &problem->in[0]);
    return job_of(problem, &problem->in[0], &problem->out[0], &problem->in[1]);
}

/* Parts of the weight's gradient, one a chunk. */
static size_t parts_bytes(const ir_type_t *weight) {
    return st_size_mul(st_size_align(ir_type_bytes(weight), 64), WEIGHT_CHUNKS);
}

static size_t workspace(const kern_problem_t *problem, int n_threads) {
    conv_job_t job = job_for(problem);
    size_t parts = problem->op == IR_OP_CONV_GRAD_WEIGHT ? parts_bytes(&problem->out[0]) : 0;
    return st_size_add(st_size_mul(job.slot_bytes, (size_t)n_threads), parts);
}

static st_status_t conv(const kern_call_t *call) {
    conv_job_t job = job_for(call->problem);
    job.x = call->in[0];
    job.weight = call->in[1];
    job.bias = call->problem->n_in > 2 ? call->in[2] : NULL;
    job.y = call->out[0];
    job.slots = call->workspace;
    if (ir_type_elements(&call->problem->out[0]) == 0) return ST_OK;
    const bool f32 = call->problem->in[0].dtype == IR_F32;
    dev_team_for(call->team, job.w.n * job.w.groups * job.blocks, 1,
                 job.w.last ? (f32 ? forward_last_f32 : forward_last_f64)
                            : (f32 ? forward_f32 : forward_f64),
                 &job);
    return ST_OK;
}

static st_status_t conv_grad_input(const kern_call_t *call) {
    conv_job_t job = job_for(call->problem);
    job.dy = call->in[0];
    job.weight = call->in[1];
    job.dx = call->out[0];
    job.slots = call->workspace;
    if (ir_type_elements(&call->problem->out[0]) == 0) return ST_OK;
    const bool f32 = call->problem->in[0].dtype == IR_F32;
    if (job.w.last)
        dev_team_for(call->team, job.w.n, 1, f32 ? grad_input_last_f32 : grad_input_last_f64, &job);
    else
        dev_team_for(call->team, job.w.n * job.w.groups, 1, f32 ? grad_input_f32 : grad_input_f64,
                     &job);
    return ST_OK;
}

static st_status_t conv_grad_weight(const kern_call_t *call) {
    const kern_problem_t *problem = call->problem;
    conv_job_t job = job_for(problem);
    bool f32 = problem->in[0].dtype == IR_F32;
    int64_t n = ir_type_elements(&problem->out[0]);
    job.x = call->in[0];
    job.dy = call->in[1];
    job.dw = call->out[0];
    job.parts = call->workspace;
    job.slots = job.parts + parts_bytes(&problem->out[0]);
    if (n == 0) return ST_OK;
    dev_team_for(call->team, WEIGHT_CHUNKS, 1, f32 ? grad_weight_f32 : grad_weight_f64, &job);
    dev_team_for(call->team, n, CPU_GRAIN / WEIGHT_CHUNKS, f32 ? join_f32 : join_f64, &job);
    return ST_OK;
}

CPU_IMPL(CONV, conv, cpu_can_real, workspace, conv)
CPU_IMPL(CONV_GRAD_INPUT, conv_grad_input, cpu_can_real, workspace, conv_grad_input)
CPU_IMPL(CONV_GRAD_WEIGHT, conv_grad_weight, cpu_can_real, workspace, conv_grad_weight)

extern cpu_array_t KERN_SYMBOL(kern_cpu_conv);
cpu_array_t KERN_SYMBOL(kern_cpu_conv) = {&cpu_impl_conv, &cpu_impl_conv_grad_input,
                                          &cpu_impl_conv_grad_weight, NULL};
