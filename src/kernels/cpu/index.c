/* Gather of whole rows and its adjoint. Indices are checked before anything is written. The adjoint
 * adds rows in the order of the indices; threads share the columns, so no two write one element and
 * the sums do not depend on them. */
#include <string.h>

#include "kernels/cpu/cpu.h"

enum { COLUMNS = 32 };

typedef struct gather_job {
    kern_split_t x;
    int64_t n_indices;
    ir_dtype_t index_type;
    const void *indices;
    const char *in;
    char *out;
    size_t row_bytes;
} gather_job_t;

static int64_t wrapped(ir_dtype_t type, const void *indices, int64_t i, int64_t size) {
    int64_t index = kern_index_at(type, indices, i);
    return index < 0 ? index + size : index;
}

static void gather_chunk(void *arg, int64_t begin, int64_t end, int thread) {
    const gather_job_t *job = arg;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        int64_t index = wrapped(job->index_type, job->indices, r % job->n_indices, job->x.n);
        int64_t from = r / job->n_indices * job->x.n + index;
        memcpy(job->out + (size_t)r * job->row_bytes, job->in + (size_t)from * job->row_bytes,
               job->row_bytes);
    }
}

static st_status_t gather(const kern_call_t *call) {
    const kern_problem_t *problem = call->problem;
    gather_job_t job = {.x = kern_split_axis(problem, &problem->in[0]),
                        .n_indices = ir_type_elements(&problem->in[1]),
                        .index_type = problem->in[1].dtype,
                        .indices = call->in[1],
                        .in = call->in[0],
                        .out = call->out[0]};
    TRY(kern_check_indices(problem, 1, call->in[1], job.x.axis, job.x.n));
    job.row_bytes = (size_t)job.x.inner * ir_dtype_bytes(problem->out[0].dtype);
    if (job.row_bytes == 0) return ST_OK;
    dev_team_for(call->team, job.x.outer * job.n_indices, cpu_row_grain(job.x.inner), gather_chunk,
                 &job);
    return ST_OK;
}

typedef struct scatter_job {
    kern_split_t out;
    int64_t n_indices, blocks; /* blocks of columns */
    ir_dtype_t index_type;
    const void *indices, *updates;
    void *to;
} scatter_job_t;

#define SCATTER(type, name)                                                                   \
    static void scatter_##name(void *arg, int64_t begin, int64_t end, int thread) {           \
        const scatter_job_t *job = arg;                                                       \
        (void)thread;                                                                         \
        int64_t inner = job->out.inner;                                                       \
        for (int64_t task = begin; task < end; task++) {                                      \
            int64_t o = task / job->blocks, c = task % job->blocks * COLUMNS;                 \
            int64_t n = cpu_min(COLUMNS, inner - c);                                          \
            type *to = (type *)job->to + o * job->out.n * inner + c;                          \
            const type *from = (const type *)job->updates + o * job->n_indices * inner + c;   \
            for (int64_t r = 0; r < job->out.n; r++)                                          \
                memset(to + r * inner, 0, (size_t)n * sizeof(type));                          \
            for (int64_t i = 0; i < job->n_indices; i++) {                                    \
                type *y = to + wrapped(job->index_type, job->indices, i, job->out.n) * inner; \
                const type *x = from + i * inner;                                             \
                CPU_VECTOR                                                                    \
                for (int64_t k = 0; k < n; k++) y[k] += x[k];                                 \
            }                                                                                 \
        }                                                                                     \
    }
SCATTER(float, f32)
SCATTER(double, f64)

static st_status_t scatter_add(const kern_call_t *call) {
    const kern_problem_t *problem = call->problem;
    scatter_job_t job = {.out = kern_split_axis(problem, &problem->out[0]),
                         .n_indices = ir_type_elements(&problem->in[1]),
                         .index_type = problem->in[1].dtype,
                         .indices = call->in[1],
                         .updates = call->in[0],
                         .to = call->out[0]};
    TRY(kern_check_indices(problem, 1, call->in[1], job.out.axis, job.out.n));
    if (ir_type_elements(&problem->out[0]) == 0) return ST_OK;
    job.blocks = cpu_ceil(job.out.inner, COLUMNS);
    dev_team_for(call->team, job.out.outer * job.blocks, cpu_row_grain(job.n_indices * COLUMNS),
                 problem->out[0].dtype == IR_F32 ? scatter_f32 : scatter_f64, &job);
    return ST_OK;
}

CPU_IMPL(GATHER, gather, NULL, NULL, gather)
CPU_IMPL(SCATTER_ADD, scatter_add, cpu_can_real, NULL, scatter_add)

extern cpu_array_t KERN_SYMBOL(kern_cpu_index);
cpu_array_t KERN_SYMBOL(kern_cpu_index) = {&cpu_impl_gather, &cpu_impl_scatter_add, NULL};
