/* Ops on bf16 and f16: storage is small, arithmetic is the f32 kernel's.
 *
 * Rows    most ops are the same computation on independent rows: blocks of rows are widened into a
 *         slot of the thread, the f32 kernel runs on the block, results are narrowed on the way
 *         out. A block stays in the second-level cache, so memory sees the small type only.
 *
 *           x bf16 [ row | row | … ]      → slot f32 → f32 kernel → slot f32 →  y bf16
 *           w shared by all rows, widened once
 *           dw summed over rows: a part a block, parts added in order in double
 *
 * Whole   products, convolutions, and shapes that are no rows: operands are widened in the
 *         workspace as a whole, which is little beside the arithmetic.
 *
 * Blocks depend on shapes only: the same bits on any number of threads. */
#include "kernels/cpu/small.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "kernels/table.h"

enum { MAX_IN = 8, MAX_OPERANDS = 12, BLOCK_ELEMENTS = 8192, SUM_ROWS = 64 };

typedef enum role {
    SHARED, /* the same for every row */
    BY_ROW, /* its first `lead` dims count the rows */
    SUMMED, /* an output that sums over the rows */
} role_t;

/* Operands: the inputs, then the outputs. */
typedef struct plan {
    const kern_impl_t *inner;
    void *prepared; /* inner's, of the whole */
    uint32_t n_in, n;
    ir_dtype_t stored[MAX_OPERANDS]; /* as in the problem */
    ir_type_t type[MAX_OPERANDS];    /* widened; by rows: of a block */
    bool by_rows;
    role_t role[MAX_OPERANDS];
    int32_t lead[MAX_OPERANDS];
    int64_t each[MAX_OPERANDS]; /* elements a row, or all of them */
    int64_t rows, block;
    size_t
        place[MAX_OPERANDS]; /* of the f32 copy: in the slot, in the common part, in a sum's part */
    size_t common_bytes, part_bytes, slot_bytes, inner_bytes;
} plan_t;

static kern_problem_t inner_problem(const kern_problem_t *problem, const plan_t *plan,
                                    const ir_type_t *types) {
    kern_problem_t inner = *problem;
    inner.in = types;
    inner.out = types + plan->n_in;
    return inner;
}

/* ---- which operands are rows ---- */

typedef bool (*rows_rule_t)(const kern_problem_t *problem, plan_t *plan);

static void lead_all(plan_t *plan, int32_t lead) {
    for (uint32_t j = 0; j < plan->n; j++) plan->role[j] = BY_ROW, plan->lead[j] = lead;
}
static void shared_from(plan_t *plan, uint32_t first, uint32_t last) {
    for (uint32_t j = first; j < last; j++) plan->role[j] = SHARED;
}

/* [rows, width]: operands of the output's size, scalars, and vectors along the last dims. */
static bool elementwise(const kern_problem_t *problem, plan_t *plan) {
    const ir_type_t *out = &problem->out[0];
    const int64_t n = ir_type_elements(out);
    int64_t width = 1;
    for (uint32_t j = 0; j < plan->n_in; j++) {
        const ir_type_t *x = &problem->in[j];
        int64_t size = ir_type_elements(x), tail = 1;
        if (size == n || size == 1) continue;
        int32_t d = x->rank;
        while (d > 0 && x->dims[d - 1] == out->dims[out->rank - x->rank + d - 1])
            tail *= x->dims[--d];
        if (tail != size || (width != 1 && width != size)) return false;
        width = size;
    }
    for (uint32_t j = 0; j < plan->n; j++) {
        ir_type_t *type = &plan->type[j];
        const int64_t size = ir_type_elements(type);
        plan->role[j] = size == n ? BY_ROW : SHARED;
        plan->lead[j] = 1;
        *type = size == n   ? ir_type_make(type->dtype, 2, (int64_t[]){n / width, width})
                : size == 1 ? ir_type_scalar(type->dtype)
                            : ir_type_make(type->dtype, 1, &width);
    }
    return true;
}

static bool last_axis(const kern_problem_t *problem, plan_t *plan) {
    const int32_t rank = problem->in[0].rank;
    lead_all(plan, rank - 1);
    return kern_int(problem, "axis") == rank - 1;
}

static bool loss_rows(const kern_problem_t *problem, plan_t *plan) {
    lead_all(plan, 1);
    if (problem->op == IR_OP_CROSS_ENTROPY_ROWS) {
        shared_from(plan, 2, plan->n_in);
    } else {
        if (problem->in[0].rank == 0) plan->role[0] = SHARED;
        shared_from(plan, 4, plan->n_in);
    }
    return true;
}

static bool norm(const kern_problem_t *problem, plan_t *plan) {
    lead_all(plan, problem->in[0].rank - problem->in[1].rank);
    shared_from(plan, 1, plan->n_in);
    return true;
}

static bool norm_grad(const kern_problem_t *problem, plan_t *plan) {
    const uint32_t w = plan->n_in - 1;
    lead_all(plan, problem->in[1].rank - problem->in[w].rank);
    plan->role[w] = SHARED;
    for (uint32_t j = plan->n_in + 1; j < plan->n; j++) plan->role[j] = SUMMED;
    return true;
}

static bool rope(const kern_problem_t *problem, plan_t *plan) {
    lead_all(plan, kern_int(problem, "rows_first") ? 1 : 2);
    shared_from(plan, 1, 3);
    return true;
}

/* Planes, or with channels last images. */
static bool planes(const kern_problem_t *problem, plan_t *plan) {
    lead_all(plan, kern_int(problem, "channels_last") ? 1 : 2);
    return true;
}

/* Images are rows; what has one dim is by channel. */
static bool images(const kern_problem_t *problem, plan_t *plan) {
    lead_all(plan, 1);
    for (uint32_t j = 0; j < plan->n; j++)
        if (plan->type[j].rank == 1 && problem->in[0].rank > 1)
            plan->role[j] = j < plan->n_in ? SHARED : SUMMED;
    return true;
}

/* Query heads of one key head and item of the batch are a row: [B·G, H/G, …] with keys [B·G, 1, …];
 * the item, where rows come first. A mask must be the same for all of them. */
static bool attention_groups(const kern_problem_t *problem, plan_t *plan) {
    const bool gradient = problem->op == IR_OP_ATTENTION_GRAD;
    const uint32_t q = gradient ? 1 : 0, mask = gradient ? 6 : 3;
    const bool rows_first = kern_int(problem, "rows_first") != 0;
    const int64_t heads = problem->in[q].dims[1], groups = problem->in[q + 1].dims[1];
    lead_all(plan, 1);
    for (uint32_t j = 0; j < plan->n; j++) {
        ir_type_t *type = &plan->type[j];
        if (j == mask && j < plan->n_in) {
            for (int32_t d = 0; d < type->rank - 2; d++)
                if (type->dims[d] != 1) return false;
            plan->role[j] = SHARED;
            continue;
        }
        if (rows_first) continue;
        const int64_t own = type->dims[1];
        type->dims[0] *= groups;
        type->dims[1] = own / groups;
    }
    return rows_first || heads % groups == 0;
}

/* ---- the table ---- */

typedef struct rule {
    ir_op_t op;
    rows_rule_t rows; /* NULL: whole */
} rule_t;

/* clang-format off */
#define SMALL_OPS(X) \
    X(NEG, neg, elementwise) X(ABS, abs, elementwise) X(EXP, exp, elementwise) \
    X(LOG, log, elementwise) X(SQRT, sqrt, elementwise) X(RSQRT, rsqrt, elementwise) \
    X(RECIPROCAL, reciprocal, elementwise) X(SIN, sin, elementwise) X(COS, cos, elementwise) \
    X(TANH, tanh, elementwise) X(SIGMOID, sigmoid, elementwise) X(ERF, erf, elementwise) \
    X(RELU, relu, elementwise) X(GELU, gelu, elementwise) X(SILU, silu, elementwise) \
    X(SIGN, sign, elementwise) X(FLOOR, floor, elementwise) X(CEIL, ceil, elementwise) \
    X(SQUARE, square, elementwise) X(ROUND, round, elementwise) \
    X(RELU_GRAD, relu_grad, elementwise) X(GELU_GRAD, gelu_grad, elementwise) \
    X(SILU_GRAD, silu_grad, elementwise) \
    X(ADD, add, elementwise) X(SUB, sub, elementwise) X(MUL, mul, elementwise) \
    X(DIV, div, elementwise) X(POW, pow, elementwise) X(MAXIMUM, maximum, elementwise) \
    X(MINIMUM, minimum, elementwise) X(EQ, eq, elementwise) X(NE, ne, elementwise) \
    X(LT, lt, elementwise) X(LE, le, elementwise) X(GT, gt, elementwise) X(GE, ge, elementwise) \
    X(REDUCE_SUM, reduce_sum, NULL) X(REDUCE_MEAN, reduce_mean, NULL) \
    X(REDUCE_MAX, reduce_max, NULL) X(REDUCE_MIN, reduce_min, NULL) \
    X(SCATTER_ADD, scatter_add, NULL) X(MATMUL, matmul, NULL) X(CONV, conv, NULL) \
    X(CONV_GRAD_INPUT, conv_grad_input, NULL) X(CONV_GRAD_WEIGHT, conv_grad_weight, NULL) \
    X(MAX_POOL, max_pool, planes) X(MAX_POOL_GRAD, max_pool_grad, NULL) \
    X(AVG_POOL, avg_pool, planes) X(AVG_POOL_GRAD, avg_pool_grad, planes) \
    X(ATTENTION, attention, attention_groups) X(ATTENTION_GRAD, attention_grad, attention_groups) \
    X(SOFTMAX, softmax, last_axis) X(SOFTMAX_GRAD, softmax_grad, last_axis) \
    X(LOG_SOFTMAX, log_softmax, last_axis) X(LOG_SOFTMAX_GRAD, log_softmax_grad, last_axis) \
    X(CROSS_ENTROPY_ROWS, cross_entropy_rows, loss_rows) \
    X(CROSS_ENTROPY_GRAD, cross_entropy_grad, loss_rows) \
    X(CHANNEL_SUM, channel_sum, images) \
    X(CHANNEL_CENTERED_SQUARES, channel_centered_squares, images) \
    X(BATCH_NORM_APPLY, batch_norm_apply, images) \
    X(BATCH_NORM_GRAD_SUMS, batch_norm_grad_sums, images) \
    X(BATCH_NORM_GRAD_APPLY, batch_norm_grad_apply, images) \
    X(LAYER_NORM, layer_norm, norm) X(LAYER_NORM_GRAD, layer_norm_grad, norm_grad) \
    X(RMS_NORM, rms_norm, norm) X(RMS_NORM_GRAD, rms_norm_grad, norm_grad) X(ROPE, rope, rope) \
    X(RANDOM_UNIFORM, random_uniform, NULL) X(DROPOUT, dropout, NULL) \
    X(SGD, sgd, NULL) X(ADAMW, adamw, NULL)
/* clang-format on */

static const rule_t rules[] = {
#define RULE(op, name, rows) {IR_OP_##op, rows},
    SMALL_OPS(RULE)
#undef RULE
};

/* ---- the plan ---- */

static st_status_t launch(const kern_call_t *call);

/* The f32 kernel; NULL where there is only the reference, which reads small floats itself. */
static const kern_impl_t *find_inner(const kern_problem_t *problem) {
    const char *reason;
    for (const kern_impl_t *const *impl = kern_list("cpu", problem->op); *impl; impl++)
        if (!(*impl)->reference && (*impl)->launch != launch &&
            (!(*impl)->can_run || (*impl)->can_run(problem, &reason)))
            return *impl;
    return NULL;
}

static void set_rows(ir_type_t *type, int32_t lead, int64_t n) {
    for (int32_t d = 0; d < lead; d++) type->dims[d] = d == lead - 1 ? n : 1;
}

/* Cuts the rows into blocks; false where there is nothing to cut. */
static bool cut(plan_t *plan) {
    int64_t widest = 1;
    bool sums = false;
    plan->rows = -1;
    for (uint32_t j = 0; j < plan->n; j++) {
        const int64_t elements = ir_type_elements(&plan->type[j]);
        plan->each[j] = elements;
        sums |= plan->role[j] == SUMMED;
        if (plan->role[j] != BY_ROW) continue;
        int64_t rows = 1;
        for (int32_t d = 0; d < plan->lead[j]; d++) rows *= plan->type[j].dims[d];
        if (plan->lead[j] < 1 || elements == 0) return false;
        ASSERT(plan->rows < 0 || plan->rows == rows);
        plan->rows = rows;
        plan->each[j] = elements / rows;
        widest = cpu_max(widest, plan->each[j]);
    }
    plan->block = cpu_max(sums ? SUM_ROWS : 1, BLOCK_ELEMENTS / widest);
    plan->block = cpu_min(plan->block, plan->rows);
    for (uint32_t j = 0; j < plan->n; j++)
        if (plan->role[j] == BY_ROW) set_rows(&plan->type[j], plan->lead[j], plan->block);
    return true;
}

static void take_types(const kern_problem_t *problem, plan_t *plan) {
    for (uint32_t j = 0; j < plan->n; j++) {
        ir_type_t *type = &plan->type[j];
        *type = j < plan->n_in ? problem->in[j] : problem->out[j - plan->n_in];
        plan->stored[j] = type->dtype;
        if (cpu_is_small(type->dtype)) type->dtype = IR_F32;
    }
}

static size_t copy_bytes(int64_t elements) {
    return st_size_align(st_size_mul((size_t)elements, sizeof(float)), 64);
}

static void lay_out(const kern_problem_t *problem, plan_t *plan, int n_threads) {
    kern_problem_t inner = inner_problem(problem, plan, plan->type);
    for (uint32_t j = 0; j < plan->n; j++) {
        size_t *bytes = plan->role[j] == SUMMED && plan->by_rows   ? &plan->part_bytes
                        : plan->role[j] == BY_ROW && plan->by_rows ? &plan->slot_bytes
                                                                   : &plan->common_bytes;
        plan->place[j] = *bytes;
        if (cpu_is_small(plan->stored[j]) || bytes == &plan->part_bytes)
            *bytes = st_size_add(*bytes, copy_bytes(ir_type_elements(&plan->type[j])));
    }
    plan->inner_bytes =
        plan->inner->workspace ? plan->inner->workspace(&inner, plan->by_rows ? 1 : n_threads) : 0;
    plan->inner_bytes = st_size_align(plan->inner_bytes, 64);
}

static bool plan_make(const kern_problem_t *problem, plan_t *plan, int n_threads,
                      const char **out_reason) {
    const rule_t *rule = rules;
    *plan = (plan_t){.n_in = problem->n_in, .n = problem->n_in + problem->n_out};
    while (rule->op != problem->op) rule++;
    bool any = false;
    *out_reason = "an operand has no f32 form";
    if (plan->n_in > MAX_IN || plan->n > MAX_OPERANDS) return false;
    take_types(problem, plan);
    for (uint32_t j = 0; j < plan->n; j++) {
        any |= cpu_is_small(plan->stored[j]);
        if (ir_dtype_is_float(plan->stored[j]) && ir_dtype_bytes(plan->stored[j]) < 2) return false;
    }
    *out_reason = "no operand is bf16 or f16";
    if (!any) return false;
    plan->by_rows = rule->rows && rule->rows(problem, plan) && cut(plan);
    if (!plan->by_rows) take_types(problem, plan);
    kern_problem_t inner = inner_problem(problem, plan, plan->type);
    *out_reason = "the f32 form has no vector kernel";
    plan->inner = find_inner(&inner);
    if (!plan->inner) return false;
    lay_out(problem, plan, n_threads);
    return true;
}

static bool can_run(const kern_problem_t *problem, const char **out_reason) {
    plan_t plan;
    return plan_make(problem, &plan, 1, out_reason);
}

/* [common copies][a part a block][slot and inner scratch a thread] or [copies][inner scratch] */
static size_t parts_bytes(const plan_t *plan) {
    return plan->by_rows ? st_size_mul(plan->part_bytes, (size_t)cpu_ceil(plan->rows, plan->block))
                         : 0;
}

static size_t workspace(const kern_problem_t *problem, int n_threads) {
    plan_t plan;
    const char *reason;
    if (!plan_make(problem, &plan, n_threads, &reason)) return 0;
    size_t scratch = st_size_add(plan.slot_bytes, plan.inner_bytes);
    if (plan.by_rows) scratch = st_size_mul(scratch, (size_t)n_threads);
    return st_size_add(st_size_add(plan.common_bytes, parts_bytes(&plan)), scratch);
}

static st_status_t prepare(const kern_problem_t *problem, int n_threads, void **out_prepared) {
    const char *reason;
    plan_t *plan = st_calloc(1, sizeof *plan);
    *out_prepared = NULL;
    if (!plan) return st_no_memory(sizeof *plan, "a kernel");
    st_status_t status = ST_OK;
    if (!plan_make(problem, plan, n_threads, &reason))
        TRY_GOTO(FAIL(ST_INTERNAL, "prepared for a problem that it refuses: %s", reason), fail);
    kern_problem_t inner = inner_problem(problem, plan, plan->type);
    if (plan->inner->prepare)
        TRY_GOTO(plan->inner->prepare(&inner, plan->by_rows ? 1 : n_threads, &plan->prepared),
                 fail);
    *out_prepared = plan;
    return ST_OK;
fail:
    st_free(plan);
    return status;
}

static void release(void *prepared) {
    plan_t *plan = prepared;
    if (plan->prepared && plan->inner->release) plan->inner->release(plan->prepared);
    st_free(plan);
}

/* ---- whole operands ---- */

typedef struct convert_job {
    ir_dtype_t dtype;
    bool narrow;
    const char *from;
    char *to;
} convert_job_t;

static void convert_chunk(void *arg, int64_t begin, int64_t end, int thread) {
    const convert_job_t *job = arg;
    const size_t small = (size_t)begin * 2, wide = (size_t)begin * sizeof(float);
    (void)thread;
    if (job->narrow)
        cpu_narrow(job->dtype, (const float *)(const void *)(job->from + wide), job->to + small,
                   end - begin);
    else
        cpu_widen(job->dtype, job->from + small, (float *)(void *)(job->to + wide), end - begin);
}

static void convert(dev_team_t *team, ir_dtype_t dtype, bool narrow, const void *from, void *to,
                    int64_t n) {
    convert_job_t job = {dtype, narrow, from, to};
    dev_team_for(team, n, CPU_GRAIN, convert_chunk, &job);
}

/* ---- blocks of rows ---- */

typedef struct rows_job {
    const kern_call_t *call;
    const plan_t *plan;
    const void *shared[MAX_OPERANDS];
    char *parts, *slots;
    pthread_mutex_t mutex; /* of what follows: the failure of the first block, by its rows */
    st_status_t status;
    int64_t failed_at;
    char message[512];
} rows_job_t;

/* Of several blocks that fail the first counts, so that the message is the same every run. */
static void latch(rows_job_t *job, int64_t begin, st_status_t status) {
    pthread_mutex_lock(&job->mutex);
    if (job->status == ST_OK || begin < job->failed_at) {
        job->status = status;
        job->failed_at = begin;
        snprintf(job->message, sizeof job->message, "%s", st_last_error());
    }
    pthread_mutex_unlock(&job->mutex);
}

static const void *operand(const kern_call_t *call, const plan_t *plan, uint32_t j) {
    return j < plan->n_in ? call->in[j] : call->out[j - plan->n_in];
}

static size_t row_offset(const plan_t *plan, uint32_t j, int64_t row) {
    return (size_t)(row * plan->each[j]) * ir_dtype_bytes(plan->stored[j]);
}

static void rows_chunk(void *arg, int64_t begin, int64_t end, int thread) {
    rows_job_t *job = arg;
    const plan_t *plan = job->plan;
    const kern_call_t *call = job->call;
    char *slot = job->slots + (size_t)thread * (plan->slot_bytes + plan->inner_bytes);
    char *part = job->parts + (size_t)(begin / plan->block) * plan->part_bytes;
    ir_type_t types[MAX_OPERANDS];
    const void *in[MAX_IN];
    void *out[MAX_OPERANDS];
    for (uint32_t j = 0; j < plan->n; j++) {
        const bool small = cpu_is_small(plan->stored[j]);
        const int64_t n = (end - begin) * plan->each[j];
        void *at = NULL;
        types[j] = plan->type[j];
        if (plan->role[j] == BY_ROW) {
            set_rows(&types[j], plan->lead[j], end - begin);
            const char *from = operand(call, plan, j);
            from += row_offset(plan, j, begin);
            at = small ? slot + plan->place[j] : (char *)(uintptr_t)from;
            if (small && j < plan->n_in) cpu_widen(plan->stored[j], from, at, n);
        } else if (plan->role[j] == SUMMED) {
            at = part + plan->place[j];
        } else {
            at = (void *)(uintptr_t)job->shared[j];
        }
        if (j < plan->n_in)
            in[j] = at;
        else
            out[j - plan->n_in] = at;
    }
    kern_problem_t problem = inner_problem(call->problem, plan, types);
    kern_call_t inner = {.problem = &problem,
                         .in = in,
                         .out = out,
                         .workspace = slot + plan->slot_bytes,
                         .prepared = plan->prepared};
    st_status_t status = plan->inner->launch(&inner);
    if (status != ST_OK) latch(job, begin, status);
    for (uint32_t j = plan->n_in; j < plan->n; j++)
        if (plan->role[j] == BY_ROW && cpu_is_small(plan->stored[j]))
            cpu_narrow(plan->stored[j], out[j - plan->n_in],
                       (char *)call->out[j - plan->n_in] + row_offset(plan, j, begin),
                       (end - begin) * plan->each[j]);
}

/* Adds the blocks' parts in order. */
static void join_parts(const plan_t *plan, const char *parts, uint32_t j, void *out) {
    const int64_t blocks = cpu_ceil(plan->rows, plan->block), n = plan->each[j];
    for (int64_t i = 0; i < n; i++) {
        double total = 0;
        for (int64_t b = 0; b < blocks; b++)
            total += (double)((const float *)(const void *)(parts + (size_t)b * plan->part_bytes +
                                                            plan->place[j]))[i];
        const float sum = (float)total;
        if (cpu_is_small(plan->stored[j]))
            cpu_narrow(plan->stored[j], &sum, (uint16_t *)out + i, 1);
        else
            ((float *)out)[i] = sum;
    }
}

static st_status_t check_labels(const kern_call_t *call) {
    const kern_problem_t *problem = call->problem;
    if (problem->op == IR_OP_CROSS_ENTROPY_ROWS)
        return kern_check_labels(problem, 1, call->in[1], problem->in[0].dims[1]);
    if (problem->op == IR_OP_CROSS_ENTROPY_GRAD)
        return kern_check_labels(problem, 2, call->in[2], problem->in[1].dims[1]);
    return ST_OK;
}

static st_status_t launch_rows(const kern_call_t *call, const plan_t *plan) {
    rows_job_t job = {.call = call, .plan = plan, .mutex = PTHREAD_MUTEX_INITIALIZER};
    char *common = call->workspace;
    job.parts = common + plan->common_bytes;
    job.slots = job.parts + parts_bytes(plan);
    TRY(check_labels(call)); /* a block would count its rows from 0 */
    for (uint32_t j = 0; j < plan->n; j++) {
        if (plan->role[j] != SHARED) continue;
        job.shared[j] = operand(call, plan, j);
        if (!cpu_is_small(plan->stored[j])) continue;
        cpu_widen(plan->stored[j], job.shared[j], (float *)(void *)(common + plan->place[j]),
                  plan->each[j]);
        job.shared[j] = common + plan->place[j];
    }
    dev_team_for(call->team, plan->rows, plan->block, rows_chunk, &job);
    for (uint32_t j = plan->n_in; j < plan->n; j++)
        if (plan->role[j] == SUMMED) join_parts(plan, job.parts, j, call->out[j - plan->n_in]);
    if (job.status == ST_OK) return ST_OK;
    st_error_adopt(job.status, job.message);
    return st_error_context(job.status, "kernel '%s', rows from %lld on", plan->inner->name,
                            (long long)job.failed_at);
}

static st_status_t launch_whole(const kern_call_t *call, const plan_t *plan) {
    const void *in[MAX_IN];
    void *out[MAX_OPERANDS];
    char *common = call->workspace;
    for (uint32_t j = 0; j < plan->n; j++) {
        const bool small = cpu_is_small(plan->stored[j]);
        const int64_t n = ir_type_elements(&plan->type[j]);
        void *copy = common + plan->place[j];
        if (j < plan->n_in) {
            in[j] = small ? copy : call->in[j];
            if (small) convert(call->team, plan->stored[j], false, call->in[j], copy, n);
        } else {
            out[j - plan->n_in] = small ? copy : call->out[j - plan->n_in];
        }
    }
    kern_problem_t problem = inner_problem(call->problem, plan, plan->type);
    kern_call_t inner = *call;
    inner.problem = &problem;
    inner.in = in;
    inner.out = out;
    inner.workspace = common + plan->common_bytes;
    inner.prepared = plan->prepared;
    TRY(plan->inner->launch(&inner));
    for (uint32_t j = plan->n_in; j < plan->n; j++)
        if (cpu_is_small(plan->stored[j]))
            convert(call->team, plan->stored[j], true, out[j - plan->n_in],
                    call->out[j - plan->n_in], ir_type_elements(&plan->type[j]));
    return ST_OK;
}

static st_status_t launch(const kern_call_t *call) {
    const plan_t *plan = call->prepared;
    return plan->by_rows ? launch_rows(call, plan) : launch_whole(call, plan);
}

#define SMALL_IMPL(op_enum, text, rows)                                        \
    static const kern_impl_t cpu_impl_##text = {.name = "cpu." #text ".small", \
                                                .op = IR_OP_##op_enum,         \
                                                .can_run = can_run,            \
                                                .workspace = workspace,        \
                                                .prepare = prepare,            \
                                                .release = release,            \
                                                .launch = launch};
SMALL_OPS(SMALL_IMPL)

extern cpu_array_t KERN_SYMBOL(kern_cpu_small);
#define LISTED(op, name, rows) &cpu_impl_##name,
cpu_array_t KERN_SYMBOL(kern_cpu_small) = {SMALL_OPS(LISTED) NULL};
