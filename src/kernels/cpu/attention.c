/* Attention and its gradient for f32 and f64, BLOCK_ROWS queries of one head at a time.
 *
 * A block's scores against the keys it can see (causal and window bound them from both sides) are
 * one product into scratch, softmax runs over the rows there, a second product with the values
 * gives the output. Scratch is BLOCK_ROWS · S, never M · S, so the score matrix is nowhere in
 * memory. The backward computes the probabilities again from lse, as in Dao et al.,
 * "FlashAttention" (2022), and one task does all query heads that share a key head: dk and dv are
 * summed in the order of the heads, by one thread. Keys and values that several blocks multiply by
 * are packed once. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/math.h"

/* Beyond LARGE_LSE a row's statistic is too coarse to be the gradient's only norm: least numbers in
 * a mask that hide all keys of a row leave it no digits. */
enum { LARGE_LSE = 1000 };
#if defined(__AVX512F__)
enum { BLOCK_ROWS = 32 }; /* a multiple of the tile's rows in gemm.c */
#else
enum { BLOCK_ROWS = 48 };
#endif
/* Keys a span: passes over scores run over whole ones, so that no part of a vector is left. */
enum { SPAN = 32, MANY_KEYS = 8 };

typedef struct attention_job {
    kern_attention_t a;
    int64_t row_blocks;
    const void *q, *k, *v, *mask, *dout, *out, *lse;
    void *y, *y_lse, *dq, *dk, *dv;
    bool shares;   /* blocks of the same keys are done one after the other: those are packed once */
    char *scratch; /* a slot a thread */
    size_t slot_bytes;
} attention_job_t;

typedef struct attention_packed {
    void *strips; /* cpu_gemm_pack; NULL: too deep for it */
} attention_packed_t;

/* A thread's scratch: scores [BLOCK_ROWS, row], score gradients likewise, packed k, packed v,
 * pack. */
typedef struct attention_slot {
    void *scores, *grads, *pack;
    attention_packed_t keys[2];
    int64_t row; /* elements between rows of scores: no power of two, whose lines share sets */
    size_t bytes;
} attention_slot_t;

/* Keys that some query of rows [m, m + rows) sees, from where packed strips begin; none stay none:
 * keys that nobody sees are not packed. */
static void block_keys(const kern_attention_t *a, int64_t m, int64_t rows, int64_t *first,
                       int64_t *last) {
    kern_attention_span(a, m, rows, first, last);
    if (*first < *last) *first = *first / SPAN * SPAN;
}

/* Lays a slot out from `at` on; `n` = 1: of the forward pass, 2: of the gradient. */
static attention_slot_t lay_out(const kern_attention_t *a, size_t element_bytes, int n, char *at) {
    const int64_t wide = cpu_max(cpu_max(a->s, BLOCK_ROWS), cpu_max(a->d, a->e));
    const int64_t depths[2] = {a->d, a->e};
    attention_slot_t slot = {.row = cpu_ceil(cpu_max(a->s, 1), SPAN) * SPAN + SPAN / 2};
    size_t scores =
        st_size_align(st_size_mul(st_size_mul(BLOCK_ROWS, (size_t)slot.row), element_bytes), 64);
    size_t used = st_size_mul((size_t)n, scores);
    slot.scores = at;
    slot.grads = n > 1 && at ? at + scores : NULL;
    for (int i = 0; i < n; i++) {
        if (depths[i] > CPU_GEMM_DEPTH) continue;
        slot.keys[i].strips = at ? at + used : NULL;
        used = st_size_add(used, cpu_gemm_packed_bytes(a->s, depths[i], element_bytes));
    }
    slot.pack = at ? at + used : NULL;
    slot.bytes = st_size_add(used, cpu_gemm_pack_bytes(wide, wide, wide, element_bytes));
    return slot;
}

static attention_slot_t slot_of(const attention_job_t *job, int thread, size_t element_bytes,
                                int n) {
    attention_slot_t slot =
        lay_out(&job->a, element_bytes, n, job->scratch + (size_t)thread * job->slot_bytes);
    if (!job->shares) slot.keys[0].strips = slot.keys[1].strips = NULL;
    return slot;
}

#define REAL float
#define REAL_INT int32_t
#define TYPED(name) name##_f32
#include "kernels/cpu/attention.inc"
#define REAL double
#define REAL_INT int64_t
#define TYPED(name) name##_f64
#include "kernels/cpu/attention.inc"

static size_t slot_bytes(const kern_attention_t *a, size_t element_bytes, int n) {
    return lay_out(a, element_bytes, n, NULL).bytes;
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
    job.slot_bytes = slot_bytes(&job.a, bytes, 1);
    job.shares = job.a.b * job.a.g >= MANY_KEYS;
    int64_t sharing = job.row_blocks * (job.a.h / cpu_max(job.a.g, 1));
    dev_team_for(call->team, job.a.b * job.a.h * job.row_blocks,
                 job.shares ? cpu_max(sharing, 1) : 1, bytes == 4 ? forward_f32 : forward_f64,
                 &job);
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
    job.shares = true;
    job.slot_bytes = slot_bytes(&job.a, bytes, 2);
    dev_team_for(call->team, job.a.b * job.a.g, 1, bytes == 4 ? backward_f32 : backward_f64, &job);
    return ST_OK;
}

CPU_IMPL(ATTENTION, attention, cpu_can_real, workspace, attention)
CPU_IMPL(ATTENTION_GRAD, attention_grad, cpu_can_real, grad_workspace, attention_grad)

extern cpu_array_t KERN_SYMBOL(kern_cpu_attention);
cpu_array_t KERN_SYMBOL(kern_cpu_attention) = {&cpu_impl_attention, &cpu_impl_attention_grad, NULL};
