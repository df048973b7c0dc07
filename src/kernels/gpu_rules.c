/* Rules of the CUDA module's kernels (gpu_rules.h). A table of rows, searched in order; each rule
 * is a few comparisons of sizes, but for nests, which are scheduled to know. */
#include "kernels/gpu_rules.h"

#include <string.h>

#include "base/memory.h"
#include "kernels/emit/single.h"

/* ---- products: cuBLASLt ---- */

bool gpu_matmul_can_run(const kern_problem_t *problem, const char **out_reason) {
    ir_dtype_t dtype = problem->in[0].dtype;
    if (dtype == IR_F32 || dtype == IR_F64 || dtype == IR_BF16 || dtype == IR_F16) return true;
    *out_reason = "cuBLASLt is used for f32, f64, bf16 and f16";
    return false;
}

/* What the vendor asks for on the newest generation, one slot a stream. */
size_t gpu_matmul_workspace(const kern_problem_t *problem, int n_threads) {
    enum { WORKSPACE = 32 << 20 };
    (void)problem, (void)n_threads;
    return WORKSPACE;
}

/* ---- convolutions: cuDNN ---- */

bool gpu_conv_can_run(const kern_problem_t *problem, const char **out_reason) {
    ir_dtype_t dtype = problem->in[0].dtype;
    if (dtype != IR_F32 && dtype != IR_F16 && dtype != IR_BF16) {
        *out_reason = "cuDNN is used for f32, f16 and bf16";
        return false;
    }
    if (problem->op == IR_OP_CONV && problem->n_in > 2) {
        *out_reason = "cuDNN is used without a bias, which is added apart";
        return false;
    }
    for (uint32_t j = 0; j < problem->n_in; j++) {
        if (ir_type_elements(&problem->in[j])) continue;
        *out_reason = "cuDNN takes no empty tensor";
        return false;
    }
    return true;
}

/* The library's lists ask for at most 1.2 MiB, and of an input with few channels, the stem's, for a
 * copy padded to 8. */
size_t gpu_conv_workspace(const kern_problem_t *problem, int n_threads) {
    enum { COPY_CHANNELS = 8 };
    const ir_type_t *x = problem->op == IR_OP_CONV_GRAD_INPUT ? &problem->out[0] : &problem->in[0];
    const int64_t channels = x->dims[kern_int(problem, "channels_last") ? x->rank - 1 : 1];
    size_t bytes = (size_t)2 << 20;
    (void)n_threads;
    if (channels >= COPY_CHANNELS || channels == 0) return bytes;
    size_t copy = st_size_mul((uint64_t)ir_type_elements(x) / (uint64_t)channels,
                              COPY_CHANNELS * ir_dtype_bytes(x->dtype));
    return st_size_add(bytes, copy);
}

/* ---- attention: cuDNN ---- */

gpu_seen_t gpu_attention_seen(const kern_attention_t *a) {
    gpu_seen_t seen = {.a = *a, .keys = a->s};
    int64_t last, first_ends, last_begins, ignored;
    if (a->m < 1) return seen;
    kern_attention_span(a, 0, a->m, &seen.first, &last);
    kern_attention_keys(a, 0, &ignored, &first_ends);
    kern_attention_keys(a, a->m - 1, &last_begins, &ignored);
    const bool later = first_ends<last, earlier = last_begins> seen.first;
    seen.a.s = last - seen.first;
    seen.a.offset = a->offset - seen.first;
    seen.a.causal = a->causal && later;
    if (!earlier && (a->causal || !later)) seen.a.window = 0;
    return seen;
}

/* Where a query sees no key. */
static bool sees_nothing(const kern_attention_t *a) {
    int64_t first[2], last[2];
    if (a->m < 1) return false;
    kern_attention_keys(a, 0, &first[0], &last[0]);
    kern_attention_keys(a, a->m - 1, &first[1], &last[1]);
    return first[0] == last[0] || first[1] == last[1];
}

static bool attends(const kern_problem_t *problem, uint32_t first, uint32_t n_fixed,
                    const char **out_reason) {
    kern_attention_t a = kern_attention_of(problem, first, n_fixed);
    const gpu_seen_t seen = gpu_attention_seen(&a);
    ir_dtype_t dtype = problem->in[first].dtype;
    const char *reason = NULL;
    if (dtype != IR_BF16 && dtype != IR_F16) reason = "cuDNN's attention is for bf16 and f16";
    if (a.d % 8 || a.e % 8 || a.d > 256 || a.e > 256)
        reason = "cuDNN's attention takes head dims up to 256 that are multiples of 8";
    if (a.m < 2) reason = "cuDNN's attention gives NaN for a single query";
    if (a.mask) reason = "a mask that is an operand is not given to cuDNN";
    if (seen.a.window && !a.causal) reason = "a window to both sides is not given to cuDNN";
    if (sees_nothing(&a)) reason = "cuDNN's attention gives NaN for a query that sees no key";
    if (seen.a.s == 0 && a.s > 0) reason = "no query sees a key: there is nothing to compute";
    if (a.s > INT32_MAX || a.m > INT32_MAX) reason = "cuDNN counts positions in 32 bits";
    if (a.b == 0 || a.h == 0 || a.s == 0) reason = "cuDNN takes no empty tensor";
    if (reason) *out_reason = reason;
    return !reason;
}

bool gpu_attention_can_run(const kern_problem_t *problem, const char **out_reason) {
    return attends(problem, 0, 3, out_reason);
}
bool gpu_attention_grad_can_run(const kern_problem_t *problem, const char **out_reason) {
    return attends(problem, 1, 6, out_reason);
}

size_t gpu_attention_workspace(const kern_problem_t *problem, int n_threads) {
    (void)problem, (void)n_threads;
    return 256;
}

size_t gpu_attention_row_bytes(const kern_attention_t *a) {
    return st_size_align(st_size_mul((uint64_t)(a->b * a->h), (uint64_t)a->m * 4), 256);
}

/* With the same bits every run the scores' gradient is held whole, and with grouped heads one copy
 * of dK and dV a query head; besides the rows' sums. */
size_t gpu_attention_grad_workspace(const kern_problem_t *problem, int n_threads) {
    (void)n_threads;
    const kern_attention_t all = kern_attention_of(problem, 1, 6);
    const kern_attention_t a = gpu_attention_seen(&all).a;
    size_t heads = (size_t)(a.b * a.h);
    uint64_t m = st_size_align((uint64_t)a.m, 128), s = st_size_align((uint64_t)a.s, 128);
    size_t bytes = st_size_mul(st_size_mul(heads, m), s * 2);
    if (a.h != a.g)
        bytes = st_size_add(bytes, st_size_mul(st_size_mul(heads, s), (uint64_t)(a.d + a.e) * 2));
    return st_size_add(st_size_add(bytes, 4096), gpu_attention_row_bytes(&a));
}

/* ---- our own ---- */

kern_scatter_t gpu_scatter_plan(const kern_problem_t *problem) {
    kern_scatter_t plan;
    const kern_split_t out = kern_split_axis(problem, &problem->out[0]);
    kern_scatter_plan(out.outer, out.n, out.inner, ir_type_elements(&problem->in[1]),
                      problem->out[0].dtype == IR_F64 ? sizeof(double) : sizeof(float), &plan);
    return plan;
}

size_t gpu_scatter_workspace(const kern_problem_t *problem, int n_threads) {
    (void)n_threads;
    return gpu_scatter_plan(problem).bytes;
}
bool gpu_scatter_can_run(const kern_problem_t *problem, const char **out_reason) {
    const ir_dtype_t dtype = problem->out[0].dtype;
    const char *reason = NULL;
    if (dtype != IR_F32 && dtype != IR_F64 && dtype != IR_F16 && dtype != IR_BF16)
        reason = "scatter_add adds f32, f64, f16 and bf16";
    if (ir_type_elements(&problem->in[1]) > INT32_MAX ||
        kern_split_axis(problem, &problem->out[0]).n > INT32_MAX)
        reason = "scatter_add takes up to 2^31 - 1 indices and as many rows";
    if (reason) *out_reason = reason;
    return !reason;
}

/* ---- nests ---- */

bool gpu_nest(const kern_problem_t *problem, size_t *out_workspace, uint32_t *out_launches,
              const char **out_reason) {
    emit_problem_t made;
    if (emit_problem_create(problem, &made, out_reason) != ST_OK) {
        *out_reason = st_last_error();
        return false;
    }
    bool runs = made.schedule != NULL;
    for (uint32_t i = 0; runs && i < made.schedule->n_kernels;
         i += 1 + emit_n_joined(made.schedule, i)) {
        runs = emit_launch_blocks(made.schedule, i) <= INT32_MAX;
        if (!runs) *out_reason = "the nest takes more than 2^31 - 1 blocks";
    }
    if (runs) {
        *out_workspace = made.schedule->workspace;
        *out_launches = emit_n_launches(made.schedule);
    }
    emit_problem_clear(&made);
    return runs;
}

bool gpu_nest_can_run(const kern_problem_t *problem, const char **out_reason) {
    size_t workspace;
    uint32_t launches;
    return gpu_nest(problem, &workspace, &launches, out_reason);
}
size_t gpu_nest_workspace(const kern_problem_t *problem, int n_threads) {
    size_t workspace;
    uint32_t launches;
    const char *reason;
    (void)n_threads;
    return gpu_nest(problem, &workspace, &launches, &reason) ? workspace : ST_SIZE_TOO_LARGE;
}

/* ---- the table ---- */

#define OWN(name, op) \
    { "own." name, IR_OP_##op, NULL, NULL }
static const gpu_rule_t rules[] = {
    {"cublaslt.matmul", IR_OP_MATMUL, gpu_matmul_can_run, gpu_matmul_workspace},
    {"cudnn.conv", IR_OP_CONV, gpu_conv_can_run, gpu_conv_workspace},
    {"cudnn.conv", IR_OP_CONV_GRAD_INPUT, gpu_conv_can_run, gpu_conv_workspace},
    {"cudnn.conv", IR_OP_CONV_GRAD_WEIGHT, gpu_conv_can_run, gpu_conv_workspace},
    {"cudnn.attention", IR_OP_ATTENTION, gpu_attention_can_run, gpu_attention_workspace},
    {"cudnn.attention", IR_OP_ATTENTION_GRAD, gpu_attention_grad_can_run,
     gpu_attention_grad_workspace},
    OWN("concat", CONCAT),
    OWN("pad", PAD),
    OWN("gather_nd", GATHER_ND),
    OWN("scatter_nd_add", SCATTER_ND_ADD),
    {"own.scatter_add", IR_OP_SCATTER_ADD, gpu_scatter_can_run, gpu_scatter_workspace},
    OWN("scatter_along_add", SCATTER_ALONG_ADD),
    OWN("cumsum", CUMSUM),
    OWN("argmax", ARGMAX),
    OWN("rope", ROPE),
    OWN("lr_schedule", LR_SCHEDULE),
    OWN("max_pool", MAX_POOL),
    OWN("max_pool_grad", MAX_POOL_GRAD),
    OWN("avg_pool", AVG_POOL),
    OWN("avg_pool_grad", AVG_POOL_GRAD),
    OWN("conv", CONV),
    OWN("conv_grad_input", CONV_GRAD_INPUT),
    OWN("conv_grad_weight", CONV_GRAD_WEIGHT),
    OWN("attention", ATTENTION),
    OWN("attention_grad", ATTENTION_GRAD),
    {"nest", IR_OP_END, gpu_nest_can_run, gpu_nest_workspace},
    /* control flow is no kernel: the bodies' are, captured into the step's graph */
    {"captured", IR_OP_REPEAT, NULL, NULL},
    {"captured", IR_OP_COND, NULL, NULL},
};

const gpu_rule_t *gpu_rule_find(const char *name, ir_op_t op) {
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if ((rules[i].op == op || rules[i].op == IR_OP_END) && strcmp(rules[i].name, name) == 0)
            return &rules[i];
    return NULL;
}
