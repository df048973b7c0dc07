/* SGD, AdamW, dropout and uniform random numbers for f32 and f64. Formulas: reference/state.c.
 * Gradients of f32 parameters may be bf16 or f16: they are widened in blocks on the way. */
#include <string.h>

#include "base/hash.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/small.h"

typedef struct update_job {
    const void *p, *g, *m, *v;
    void *p_out, *m_out, *v_out;
    double lr, scale, decay, momentum, dampening, beta1, beta2, eps, correct1, correct2;
    bool nesterov, decoupled;
    ir_dtype_t small; /* the gradient's type where it is smaller, else IR_DTYPE_NONE */
    dev_team_body_t body;
} update_job_t;

#define REAL float
#define TYPED(name) name##_f32
#include "kernels/cpu/optimizer.inc"
#define REAL double
#define TYPED(name) name##_f64
#include "kernels/cpu/optimizer.inc"

static double scalar_at(const kern_call_t *call, uint32_t input) {
    const void *data = call->in[input];
    switch (call->problem->in[input].dtype) {
        case IR_F32:
            return (double)*(const float *)data;
        case IR_I64:
            return (double)*(const int64_t *)data;
        default:
            return *(const double *)data;
    }
}

/* One type, but for the gradient, which may be a small float beside f32. */
static bool can_update(const kern_problem_t *problem, const char **out_reason) {
    const ir_dtype_t p = problem->in[0].dtype, g = problem->in[1].dtype;
    if ((p == IR_F32 || p == IR_F64) && (g == p || (p == IR_F32 && cpu_is_small(g)))) return true;
    *out_reason =
        "parameters of f32 or f64 with gradients of their type, or bf16 or f16 gradients "
        "of f32, are needed";
    return false;
}

/* Offset of `from` by elements of f32; NULL stays. */
static void *f32_at(const void *from, int64_t element) {
    return from ? (void *)((uintptr_t)from + (uintptr_t)element * sizeof(float)) : NULL;
}

/* The f32 loop over blocks whose gradient has been widened. */
static void small_gradient(void *arg, int64_t begin, int64_t end, int thread) {
    const update_job_t *job = arg;
    float g[CPU_SMALL_BLOCK];
    for (int64_t i = begin; i < end; i += CPU_SMALL_BLOCK) {
        const int64_t n = cpu_min(CPU_SMALL_BLOCK, end - i);
        update_job_t part = *job;
        cpu_widen(job->small, (const uint16_t *)job->g + i, g, n);
        part.g = g;
        part.p = f32_at(job->p, i);
        part.m = f32_at(job->m, i);
        part.v = f32_at(job->v, i);
        part.p_out = f32_at(job->p_out, i);
        part.m_out = f32_at(job->m_out, i);
        part.v_out = f32_at(job->v_out, i);
        job->body(&part, 0, n, thread);
    }
}

/* Runs the loop, or leaves everything as it is where input `apply` says so. */
static void update(const kern_call_t *call, update_job_t *job, uint32_t apply, bool f64,
                   dev_team_body_t body) {
    const kern_problem_t *problem = call->problem;
    const size_t bytes = ir_type_bytes(&problem->in[0]);
    if (problem->n_in > apply && !*(const uint8_t *)call->in[apply]) {
        const void *const from[3] = {job->p, job->m, job->v};
        void *const to[3] = {job->p_out, job->m_out, job->v_out};
        for (int k = 0; k < 3; k++)
            if (from[k] && bytes && from[k] != to[k]) memcpy(to[k], from[k], bytes);
        return;
    }
    job->small = f64 || problem->in[1].dtype == IR_F32 ? IR_DTYPE_NONE : problem->in[1].dtype;
    job->body = body;
    dev_team_for(call->team, ir_type_elements(&problem->in[0]), CPU_GRAIN,
                 job->small ? small_gradient : body, job);
}

static st_status_t sgd(const kern_call_t *call) {
    const kern_problem_t *problem = call->problem;
    bool f64 = problem->in[0].dtype == IR_F64, buffered = kern_float(problem, "momentum") != 0;
    update_job_t job = {.p = call->in[0],
                        .g = call->in[1],
                        .m = buffered ? call->in[4] : NULL,
                        .p_out = call->out[0],
                        .m_out = buffered ? call->out[1] : NULL,
                        .lr = scalar_at(call, 2),
                        .scale = scalar_at(call, 3),
                        .decay = kern_float(problem, "weight_decay"),
                        .momentum = kern_float(problem, "momentum"),
                        .dampening = kern_float(problem, "dampening"),
                        .nesterov = kern_int(problem, "nesterov") != 0};
    if (!buffered && f64) *(double *)call->out[1] = 0;
    if (!buffered && !f64) *(float *)call->out[1] = 0;
    update(call, &job, buffered ? 5 : 4, f64, f64 ? sgd_f64 : sgd_f32);
    return ST_OK;
}

static st_status_t adamw(const kern_call_t *call) {
    const kern_problem_t *problem = call->problem;
    bool f64 = problem->in[0].dtype == IR_F64;
    double step = scalar_at(call, 5);
    update_job_t job = {.p = call->in[0],
                        .g = call->in[1],
                        .m = call->in[2],
                        .v = call->in[3],
                        .p_out = call->out[0],
                        .m_out = call->out[1],
                        .v_out = call->out[2],
                        .lr = scalar_at(call, 4),
                        .scale = scalar_at(call, 6),
                        .decay = kern_float(problem, "weight_decay"),
                        .beta1 = kern_float(problem, "beta1"),
                        .beta2 = kern_float(problem, "beta2"),
                        .eps = kern_float(problem, "eps"),
                        .decoupled = kern_int(problem, "decoupled") != 0};
    job.correct1 = 1 - pow(job.beta1, step);
    job.correct2 = 1 - pow(job.beta2, step);
    update(call, &job, 7, f64, f64 ? adamw_f64 : adamw_f32);
    return ST_OK;
}

/* ---- random ---- */

typedef struct random_job {
    kern_global_t global;
    int64_t seed, id, step;
    double p;
    bool f64;
    const void *x;
    void *y;
} random_job_t;

/* Runs of elements that are neighbours in the whole tensor share four words a call of the
 * generator. */
static void random_words(const random_job_t *job, int64_t begin, int64_t n, uint32_t *words) {
    const int64_t base = (int64_t)((uint64_t)job->global.base + (uint64_t)begin);
    if (!job->global.whole || (base & 3)) {
        for (int64_t i = 0; i < n; i++)
            words[i] = kern_random_word(job->seed, job->id, job->step,
                                        kern_global_index(&job->global, begin + i));
        return;
    }
    uint64_t high = (uint64_t)job->id << 32 | ((uint64_t)job->step & 0xffffffffu);
    for (int64_t i = 0; i < n; i += 4) {
        uint32_t four[4];
        st_philox((uint64_t)job->seed, (uint64_t)(base + i) >> 2, high, four);
        for (int64_t j = 0; j < cpu_min(4, n - i); j++) words[i + j] = four[j];
    }
}

enum { WORDS = 256 };

static void dropout_chunk(void *arg, int64_t begin, int64_t end, int thread) {
    const random_job_t *job = arg;
    uint32_t words[WORDS];
    (void)thread;
    for (int64_t i = begin; i < end; i += WORDS) {
        int64_t n = cpu_min(WORDS, end - i);
        random_words(job, i, n, words);
        if (job->f64)
            drop_f64((const double *)job->x + i, (double *)job->y + i, words, job->p, n);
        else
            drop_f32((const float *)job->x + i, (float *)job->y + i, words, job->p, n);
    }
}

static void uniform_chunk(void *arg, int64_t begin, int64_t end, int thread) {
    const random_job_t *job = arg;
    uint32_t words[WORDS];
    (void)thread;
    for (int64_t i = begin; i < end; i += WORDS) {
        int64_t n = cpu_min(WORDS, end - i);
        random_words(job, i, n, words);
        for (int64_t j = 0; j < n; j++) {
            if (job->f64)
                ((double *)job->y)[i + j] = (double)st_uniform24(words[j]);
            else
                ((float *)job->y)[i + j] = st_uniform24(words[j]);
        }
    }
}

static random_job_t random_job(const kern_call_t *call, uint32_t seed) {
    const ir_type_t *out = &call->problem->out[0];
    kern_global_t global = kern_global_of(call->problem, out);
    if (call->problem->n_in > seed + 2)
        kern_global_at_part(&global, *(const int64_t *)call->in[seed + 2]);
    return (random_job_t){.global = global,
                          .id = kern_int(call->problem, "id"),
                          .seed = *(const int64_t *)call->in[seed],
                          .step = *(const int64_t *)call->in[seed + 1],
                          .f64 = out->dtype == IR_F64,
                          .x = call->in[0],
                          .y = call->out[0]};
}

static st_status_t random_uniform(const kern_call_t *call) {
    random_job_t job = random_job(call, 0);
    dev_team_for(call->team, ir_type_elements(&call->problem->out[0]), CPU_GRAIN, uniform_chunk,
                 &job);
    return ST_OK;
}

static st_status_t dropout(const kern_call_t *call) {
    random_job_t job = random_job(call, 1);
    job.p = kern_float(call->problem, "p");
    if (!kern_int(call->problem, "train")) job.p = 0;
    dev_team_for(call->team, ir_type_elements(&call->problem->out[0]), CPU_GRAIN, dropout_chunk,
                 &job);
    return ST_OK;
}

CPU_IMPL(SGD, sgd, can_update, NULL, sgd)
CPU_IMPL(ADAMW, adamw, can_update, NULL, adamw)
CPU_IMPL(RANDOM_UNIFORM, random_uniform, cpu_can_real, NULL, random_uniform)
CPU_IMPL(DROPOUT, dropout, cpu_can_real, NULL, dropout)

extern cpu_array_t KERN_SYMBOL(kern_cpu_optimizer);
cpu_array_t KERN_SYMBOL(kern_cpu_optimizer) = {&cpu_impl_sgd, &cpu_impl_adamw,
                                               &cpu_impl_random_uniform, &cpu_impl_dropout, NULL};
