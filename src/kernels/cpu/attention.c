/* Attention and its gradient for f32 and f64, BLOCK_ROWS queries of one head at a time.
 *
 * A block's scores against the keys it can see (causal and window bound them from both sides) are
 * one product into scratch, softmax runs over the rows there, a second product with the values
 * gives the output. Scratch is BLOCK_ROWS · S, never M · S, so the score matrix is nowhere in
 * memory. The backward computes the probabilities again from lse, as in Dao et al.,
 * "FlashAttention" (2022), and one task does all query heads that share a key head: dk and dv are
 * summed in the order of the heads, by one thread. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/math.h"

/* Beyond LARGE_LSE a row's statistic is too coarse to be the gradient's only norm: least numbers in a
 * mask that hide all keys of a row leave it no digits. */
enum { BLOCK_ROWS = 48, LARGE_LSE = 1000 };

typedef struct attention_job {
    kern_attention_t a;
    int64_t row_blocks;
    const void *q, *k, *v, *mask, *dout, *out, *lse;
    void *y, *y_lse, *dq, *dk, *dv;
    char *scratch; /* one slot a thread: scores, [score gradients], pack */
    size_t slot_bytes, score_bytes;
} attention_job_t;

/* Keys that some query of rows [m, m + rows) sees. */
static void block_keys(const kern_attention_t *a, int64_t m, int64_t rows, int64_t *first,
                       int64_t *last) {
    int64_t ignored;
    kern_attention_keys(a, m, first, &ignored);
    kern_attention_keys(a, m + rows - 1, &ignored, last);
    if (*first > *last) *first = *last;
}

#define REAL float
#define REAL_INT int32_t
#define TYPED(name) name##_f32
#include "kernels/cpu/attention.inc"
#define REAL double
#define REAL_INT int64_t
#define TYPED(name) name##_f64
#include "kernels/cpu/attention.inc"

static size_t score_bytes(const kern_attention_t *a, size_t element_bytes) {
    return st_size_align(st_size_mul(st_size_mul(BLOCK_ROWS, (size_t)a->s), element_bytes), 64);
}

static size_t slot_bytes(const kern_attention_t *a, size_t element_bytes, int n_scores) {
    int64_t wide = cpu_max(cpu_max(a->s, BLOCK_ROWS), cpu_max(a->d, a->e));
    return st_size_add(st_size_mul((size_t)n_scores, score_bytes(a, element_bytes)),
                       cpu_gemm_pack_bytes(wide, wide, wide, element_bytes));
}

static size_t workspace(const kern_problem_t *problem, int n_threads) {
    kern_attention_t a = kern_attention_of(problem, 0, 3);
    return st_size_mul(slot_bytes(&a, ir_dtype_bytes(problem->in[0].dtype), 1), (size_t)n_threads);
}

static size_t grad_workspace(const kern_problem_t *problem, int n_threads) {
    kern_attention_t a = kern_attention_of(problem, 1, 6);
    return st_size_mul(slot_bytes(&a, ir_dtype_bytes(problem->in[0].dtype), 2), (size_t)n_threads);
}

static st_status_t attention(const kern_call_t *call) {
    const kern_problem_t *problem = call->problem;
    size_t bytes = ir_dtype_bytes(problem->in[0].dtype);
    attention_job_t job = {.a = kern_attention_of(problem, 0, 3),
                           .q = call->in[0],
                           .k = call->in[1],
                           .v = call->in[2],
                           .mask = problem->n_in > 3 ? call->in[3] : NULL,
                           .y = call->out[0],
                           .y_lse = call->out[1],
                           .scratch = call->workspace};
    job.row_blocks = cpu_ceil(job.a.m, BLOCK_ROWS);
    job.score_bytes = score_bytes(&job.a, bytes);
    job.slot_bytes = slot_bytes(&job.a, bytes, 1);
    dev_team_for(call->team, job.a.b * job.a.h * job.row_blocks, 1,
                 bytes == 4 ? forward_f32 : forward_f64, &job);
    return ST_OK;
}

static st_status_t attention_grad(const kern_call_t *call) {
    const kern_problem_t *problem = call->problem;
    size_t bytes = ir_dtype_bytes(problem->in[0].dtype);
    attention_job_t job = {.a = kern_attention_of(problem, 1, 6),
                           .dout = call->in[0],
                           .q = call->in[1],
                           .k = call->in[2],
                           .v = call->in[3],
                           .out = call->in[4],
                           .lse = call->in[5],
                           .mask = problem->n_in > 6 ? call->in[6] : NULL,
                           .dq = call->out[0],
                           .dk = call->out[1],
                           .dv = call->out[2],
                           .scratch = call->workspace};
    job.score_bytes = score_bytes(&job.a, bytes);
    job.slot_bytes = slot_bytes(&job.a, bytes, 2);
    dev_team_for(call->team, job.a.b * job.a.g, 1, bytes == 4 ? backward_f32 : backward_f64, &job);
    return ST_OK;
}

CPU_IMPL(ATTENTION, attention, cpu_can_real, workspace, attention)
CPU_IMPL(ATTENTION_GRAD, attention_grad, cpu_can_real, grad_workspace, attention_grad)

extern cpu_array_t KERN_SYMBOL(kern_cpu_attention);
cpu_array_t KERN_SYMBOL(kern_cpu_attention) = {&cpu_impl_attention, &cpu_impl_attention_grad, NULL};
