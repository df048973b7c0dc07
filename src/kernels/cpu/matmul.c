/* Matrix product on the team: the output is cut into blocks by shape, each block is one product on
 * one thread. */
#include "kernels/cpu/cpu.h"
#include "kernels/product.h"

typedef struct matmul_job {
    const kern_call_t *call;
    kern_product_t product;
    const void *a, *b;
    void *c;
    char *pack;
    size_t pack_bytes;
} matmul_job_t;

#define MATMUL_CHUNK(real, name)                                                             \
    static void matmul_##name(void *arg, int64_t begin, int64_t end, int thread) {           \
        const matmul_job_t *job = arg;                                                       \
        const kern_product_t *p = &job->product;                                             \
        for (int64_t task = begin; task < end; task++) {                                     \
            kern_block_t block = kern_product_block(p, task);                                \
            bool add = kern_product_begin(job->call, p, &block);                             \
            cpu_gemm_##name(block.rows, block.columns, p->k, (const real *)job->a + block.a, \
                            p->a_row, p->a_col, (const real *)job->b + block.b, p->b_row,    \
                            p->b_col, (real *)job->c + block.c, p->n, add,                   \
                            job->pack + (size_t)thread * job->pack_bytes);                   \
        }                                                                                    \
    }
MATMUL_CHUNK(float, f32)
MATMUL_CHUNK(double, f64)

static size_t pack_bytes(const kern_problem_t *problem, const kern_product_t *p) {
    return cpu_gemm_pack_bytes(p->block_rows, p->block_columns, p->k,
                               ir_dtype_bytes(problem->out[0].dtype));
}

static size_t workspace(const kern_problem_t *problem, int n_threads) {
    kern_product_t product = kern_product_of(problem);
    return st_size_mul(pack_bytes(problem, &product), (size_t)n_threads);
}

static st_status_t matmul(const kern_call_t *call) {
    matmul_job_t job = {.call = call,
                        .product = kern_product_of(call->problem),
                        .a = call->in[0],
                        .b = call->in[1],
                        .c = call->out[0],
                        .pack = call->workspace};
    job.pack_bytes = pack_bytes(call->problem, &job.product);
    dev_team_for(call->team, job.product.tasks, 1,
                 call->problem->out[0].dtype == IR_F32 ? matmul_f32 : matmul_f64, &job);
    return ST_OK;
}

CPU_IMPL(MATMUL, matmul, cpu_can_real, workspace, matmul)

extern cpu_array_t KERN_SYMBOL(kern_cpu_matmul);
cpu_array_t KERN_SYMBOL(kern_cpu_matmul) = {&cpu_impl_matmul, NULL};
