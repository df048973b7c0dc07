/* Matrix product of f32 through dnnl_sgemm: blocks of the output, cut by shape only, one a task of
 * our team. */
#include <dnnl.h>

#include "device/cpu/team.h"
#include "kernels/onednn/onednn.h"
#include "kernels/product.h"

typedef struct sgemm_job {
    const kern_call_t *call;
    kern_product_t product;
    const float *a, *b;
    float *c;
    dnnl_status_t *failed; /* per block: written by the thread that runs it */
} sgemm_job_t;

static bool can_run(const kern_problem_t *problem, const char **out_reason) {
    kern_product_t p = kern_product_of(problem);
    if (problem->out[0].dtype != IR_F32 || problem->in[0].dtype != IR_F32) {
        *out_reason = "f32 is needed";
        return false;
    }
    if (p.k == 0) {
        *out_reason = "the inner dim is empty";
        return false;
    }
    return true;
}

static void chunk(void *arg, int64_t begin, int64_t end, int thread) {
    sgemm_job_t *job = arg;
    const kern_product_t *p = &job->product;
    (void)thread;
    int before = kern_onednn_enter();
    for (int64_t task = begin; task < end; task++) {
        kern_block_t block = kern_product_block(p, task);
        float beta = kern_product_begin(job->call, p, &block) ? 1 : 0;
        job->failed[task] = dnnl_sgemm(
            p->transpose_a ? 'T' : 'N', p->transpose_b ? 'T' : 'N', block.rows, block.columns, p->k,
            1.0f, job->a + block.a, p->transpose_a ? p->a_col : p->a_row, job->b + block.b,
            p->transpose_b ? p->b_col : p->b_row, beta, job->c + block.c, p->n);
    }
    kern_onednn_leave(before);
}

static size_t workspace(const kern_problem_t *problem, int n_threads) {
    (void)n_threads;
    return st_size_mul((size_t)kern_product_of(problem).tasks, sizeof(dnnl_status_t));
}

static st_status_t launch(const kern_call_t *call) {
    sgemm_job_t job = {.call = call,
                       .product = kern_product_of(call->problem),
                       .a = call->in[0],
                       .b = call->in[1],
                       .c = call->out[0],
                       .failed = call->workspace};
    dev_team_for(call->team, job.product.tasks, 1, chunk, &job);
    for (int64_t i = 0; i < job.product.tasks; i++)
        if (job.failed[i] != dnnl_success)
            return FAIL(job.failed[i] == dnnl_out_of_memory ? ST_NO_MEMORY : ST_INTERNAL,
                        "dnnl_sgemm of %lld x %lld x %lld failed with status %d",
                        (long long)job.product.block_rows, (long long)job.product.block_columns,
                        (long long)job.product.k, (int)job.failed[i]);
    return ST_OK;
}

const kern_impl_t kern_onednn_matmul = {.name = "cpu.matmul.onednn",
                                        .op = IR_OP_MATMUL,
                                        .can_run = can_run,
                                        .workspace = workspace,
                                        .launch = launch};
