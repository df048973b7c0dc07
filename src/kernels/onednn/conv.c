/* Convolution of f32 and its gradients through oneDNN primitives.
 *
 * oneDNN is fast on blocked layouts, ours is plain. So a task of the team takes a few images, small
 * enough that they stay in cache: reorder in, convolve, reorder out. A primitive is made for
 * exactly that many images and one thread; its layouts are its own choice.
 *
 *   conv, dx:   x ─reorder→ x' ┐
 *               w ─reorder→ w' ┴→ y' ─reorder→ y      (w' once a launch)
 *   dw:         tasks are WEIGHT_RUNS fixed runs of images, each adds its blocked gradients in
 *               order; the parts are then added in order and reordered once
 *
 * With channels last the plain tensors have the strides of that order, the rest is the same.
 *
 * Images a task and runs depend on shapes only, so the bits do not depend on threads. */
#include <string.h>

#include "base/memory.h"
#include "device/cpu/team.h"
#include "kernels/onednn/compat.h"
#include "kernels/onednn/onednn.h"
#include "kernels/problem.h"

enum { X, W, Y, N_ROLES, TASK_BYTES = 384 << 10, WEIGHT_RUNS = 8 };

/* One of the three tensors: plain and the primitive's layout. */
typedef struct side {
    compat_md_t plain, blocked;
    size_t plain_bytes, blocked_bytes; /* blocked_bytes: 0 if the layouts are equal */
    dnnl_primitive_t in, out; /* reorders plain → blocked, blocked → plain; NULL if not needed */
} side_t;

/* What one thread needs to execute: memory objects over changing pointers. */
typedef struct thread_state {
    dnnl_stream_t stream;
    dnnl_memory_t plain[N_ROLES], blocked[N_ROLES], bias, scratch;
    dnnl_status_t failed; /* of this launch; dnnl_success: none */
} thread_state_t;

typedef struct conv_prepared {
    kern_window_t w;
    bool has_bias;
    int64_t images; /* a task */
    int64_t tasks;  /* images of the batch / images a task */
    side_t side[N_ROLES];
    compat_md_t bias;
    dnnl_engine_t engine;
    dnnl_primitive_t primitive;
    size_t scratch_bytes;
    int n_threads;
    thread_state_t *threads;
} conv_prepared_t;

/* Which types play x, w and y, by op. */
typedef struct roles {
    const ir_type_t *x, *w, *y;
} roles_t;

static roles_t roles_of(const kern_problem_t *problem) {
    if (problem->op == IR_OP_CONV)
        return (roles_t){&problem->in[0], &problem->in[1], &problem->out[0]};
    if (problem->op == IR_OP_CONV_GRAD_INPUT)
        return (roles_t){&problem->out[0], &problem->in[1], &problem->in[0]};
    return (roles_t){&problem->in[0], &problem->out[0], &problem->in[1]};
}

static bool can_run(const kern_problem_t *problem, const char **out_reason) {
    roles_t r = roles_of(problem);
    if (problem->out[0].dtype != IR_F32) {
        *out_reason = "f32 is needed";
        return false;
    }
    if (!ir_type_elements(r.x) || !ir_type_elements(r.w) || !ir_type_elements(r.y)) {
        *out_reason = "a tensor is empty";
        return false;
    }
    const int first = kern_int(problem, "channels_last") ? 1 : 2;
    for (uint32_t i = 0; i + 2 < (uint32_t)r.x->rank; i++) {
        const int64_t reach = r.w->dims[first + (int)i] * kern_ints(problem, "dilations", i, 1);
        if (kern_ints(problem, "pads_low", i, 0) >= reach ||
            kern_ints(problem, "pads_high", i, 0) >= reach) {
            *out_reason = "padding as wide as the kernel";
            return false;
        }
    }
    return true;
}

/* Images that fit TASK_BYTES together, as a divisor of the batch; at least WEIGHT_RUNS tasks if
 * possible. */
static int64_t images_a_task(int64_t n, size_t image_bytes) {
    int64_t best = 1;
    for (int64_t d = 2; d <= n; d++)
        if (n % d == 0 && n / d >= WEIGHT_RUNS && image_bytes <= TASK_BYTES / (size_t)d) best = d;
    return best;
}

static void thread_state_free(thread_state_t *t) {
    for (int i = 0; i < N_ROLES; i++) {
        if (t->plain[i]) dnnl_memory_destroy(t->plain[i]);
        if (t->blocked[i]) dnnl_memory_destroy(t->blocked[i]);
    }
    if (t->bias) dnnl_memory_destroy(t->bias);
    if (t->scratch) dnnl_memory_destroy(t->scratch);
    if (t->stream) dnnl_stream_destroy(t->stream);
}

static void release(void *prepared) {
    conv_prepared_t *p = prepared;
    if (!p) return;
    for (int t = 0; t < p->n_threads && p->threads; t++) thread_state_free(&p->threads[t]);
    st_free(p->threads);
    for (int i = 0; i < N_ROLES; i++) {
        if (p->side[i].in) dnnl_primitive_destroy(p->side[i].in);
        if (p->side[i].out) dnnl_primitive_destroy(p->side[i].out);
        compat_md_free(&p->side[i].plain);
        compat_md_free(&p->side[i].blocked);
    }
    compat_md_free(&p->bias);
    if (p->primitive) dnnl_primitive_destroy(p->primitive);
    if (p->engine) dnnl_engine_destroy(p->engine);
    st_free(p);
}

#define DNNL(expr)                               \
    do {                                         \
        if ((expr) != dnnl_success) goto failed; \
    } while (0)

/* Dims [a, b, spatial…] and their strides. */
static void lay_out(const conv_prepared_t *p, int64_t a, int64_t b, const int64_t spatial[3],
                    dnnl_dim_t *dims, dnnl_dim_t *strides) {
    int64_t stride = p->w.last ? b : 1;
    dims[0] = a;
    dims[1] = b;
    for (int d = 2; d > 2 - p->w.spatial; d--) {
        int at = 2 + d - (3 - p->w.spatial);
        dims[at] = spatial[d];
        strides[at] = stride;
        stride *= spatial[d];
    }
    strides[1] = p->w.last ? 1 : stride;
    strides[0] = p->w.last ? stride : stride * b;
}

/* Dims of the three tensors for `images` images; weights get a leading group dim if there are
 * groups. */
static dnnl_status_t describe(conv_prepared_t *p) {
    const kern_window_t *w = &p->w;
    const int64_t *const spatial[N_ROLES] = {w->in, w->kernel, w->out};
    const int64_t first[N_ROLES] = {p->images, w->o / w->groups, p->images};
    const int64_t second[N_ROLES] = {w->c, w->c / w->groups, w->o};
    for (int i = 0; i < N_ROLES; i++) {
        const int lead = i == W && w->groups > 1, rank = 2 + w->spatial + lead;
        dnnl_dims_t dims, strides;
        lay_out(p, first[i], second[i], spatial[i], dims + lead, strides + lead);
        if (lead) {
            dims[0] = w->groups;
            strides[0] = dims[1] * strides[1];
        }
        dnnl_status_t status = compat_md_strided(&p->side[i].plain, rank, dims, strides);
        if (status == dnnl_success) status = compat_md_any(&p->side[i].blocked, rank, dims);
        if (status != dnnl_success) return status;
    }
    dnnl_dims_t channels = {p->w.o};
    return compat_md_plain(&p->bias, 1, channels);
}

static dnnl_status_t make_reorders(conv_prepared_t *p, bool in[N_ROLES], bool out[N_ROLES]) {
    for (int i = 0; i < N_ROLES; i++) {
        side_t *side = &p->side[i];
        side->plain_bytes = compat_md_bytes(&side->plain);
        if (compat_md_equal(&side->plain, &side->blocked)) continue;
        side->blocked_bytes = st_size_align(compat_md_bytes(&side->blocked), 64);
        dnnl_status_t status = dnnl_success;
        if (in[i]) status = compat_reorder(p->engine, &side->plain, &side->blocked, &side->in);
        if (status == dnnl_success && out[i])
            status = compat_reorder(p->engine, &side->blocked, &side->plain, &side->out);
        if (status != dnnl_success) return status;
    }
    return dnnl_success;
}

static dnnl_status_t make_thread(conv_prepared_t *p, thread_state_t *t) {
    dnnl_status_t status = dnnl_stream_create(&t->stream, p->engine, dnnl_stream_in_order);
    for (int i = 0; i < N_ROLES && status == dnnl_success; i++) {
        status = compat_memory(p->engine, &p->side[i].plain, &t->plain[i]);
        if (status == dnnl_success && p->side[i].blocked_bytes)
            status = compat_memory(p->engine, &p->side[i].blocked, &t->blocked[i]);
    }
    if (status == dnnl_success) status = compat_memory(p->engine, &p->bias, &t->bias);
    if (status == dnnl_success && p->scratch_bytes)
        status = compat_scratch(p->engine, p->primitive, &t->scratch);
    return status;
}

static st_status_t prepare(const kern_problem_t *problem, int n_threads, void **out_prepared) {
    *out_prepared = NULL;
    roles_t r = roles_of(problem);
    conv_prepared_t *p = st_calloc(1, sizeof *p);
    if (!p) return st_no_memory(sizeof *p, "a convolution");
    int before = kern_onednn_enter();
    bool forward = problem->op == IR_OP_CONV, data = problem->op == IR_OP_CONV_GRAD_INPUT;
    p->w = kern_conv_window(problem, r.x, r.w, r.y);
    p->has_bias = forward && problem->n_in > 2;
    size_t image = st_size_add(st_size_mul((size_t)p->w.c, (size_t)p->w.in_size),
                               st_size_mul((size_t)p->w.o, (size_t)p->w.out_size));
    p->images = images_a_task(p->w.n, st_size_mul(image, 2 * sizeof(float)));
    p->tasks = p->w.n / p->images;
    p->n_threads = n_threads;
    p->threads = st_calloc((size_t)n_threads, sizeof *p->threads);
    if (!p->threads) goto failed;
    DNNL(dnnl_engine_create(&p->engine, dnnl_cpu, 0));
    DNNL(describe(p));
    dnnl_dims_t strides, dilates, low, high;
    for (int i = 0; i < p->w.spatial; i++) {
        int d = 3 - p->w.spatial + i;
        strides[i] = p->w.stride[d];
        dilates[i] = p->w.dilation[d] - 1;
        low[i] = p->w.low[d];
        /* what the last window leaves over is not padding: the library wants the exact rest */
        high[i] = (p->w.out[d] - 1) * p->w.stride[d] + (p->w.kernel[d] - 1) * p->w.dilation[d] + 1 -
                  p->w.in[d] - p->w.low[d];
    }
    compat_conv_t conv = {.kind = forward ? COMPAT_FORWARD
                                  : data  ? COMPAT_DATA
                                          : COMPAT_WEIGHTS,
                          .x = &p->side[X].blocked,
                          .w = &p->side[W].blocked,
                          .y = &p->side[Y].blocked,
                          .bias = p->has_bias ? &p->bias : NULL,
                          .strides = strides,
                          .dilates = dilates,
                          .low = low,
                          .high = high};
    DNNL(compat_conv(p->engine, &conv, &p->primitive, &p->scratch_bytes));
    bool in[N_ROLES] = {!data, forward || data, !forward};
    bool out[N_ROLES] = {data, !forward && !data, forward};
    DNNL(make_reorders(p, in, out));
    for (int t = 0; t < n_threads; t++) DNNL(make_thread(p, &p->threads[t]));
    kern_onednn_leave(before);
    *out_prepared = p;
    return ST_OK;
failed:
    kern_onednn_leave(before);
    release(p);
    return FAIL(ST_INTERNAL, "oneDNN could not make the convolution");
}

/* ---- workspace: [weights, blocked][a slot a thread][parts of dw] ---- */

typedef struct layout {
    size_t weights, slot, scratch_at, side_at[N_ROLES], parts, total;
} layout_t;

static layout_t layout_of(const conv_prepared_t *p, bool weight_gradient) {
    layout_t l = {.weights = weight_gradient ? 0 : p->side[W].blocked_bytes};
    for (int i = 0; i < N_ROLES; i++) {
        l.side_at[i] = l.slot;
        if (i != W || weight_gradient) l.slot = st_size_add(l.slot, p->side[i].blocked_bytes);
    }
    if (weight_gradient && !p->side[W].blocked_bytes)
        l.slot = st_size_add(l.slot, st_size_align(p->side[W].plain_bytes, 64));
    l.scratch_at = l.slot;
    l.slot = st_size_add(l.slot, st_size_align(p->scratch_bytes, 64));
    size_t part = p->side[W].blocked_bytes ? p->side[W].blocked_bytes
                                           : st_size_align(p->side[W].plain_bytes, 64);
    l.parts = weight_gradient ? part : 0;
    l.total = st_size_add(st_size_add(l.weights, st_size_mul(l.slot, (size_t)p->n_threads)),
                          st_size_mul(l.parts, WEIGHT_RUNS));
    return l;
}

static size_t workspace(const kern_problem_t *problem, int n_threads) {
    void *prepared;
    if (prepare(problem, n_threads, &prepared) != ST_OK) return 0; /* launch reports it */
    layout_t l = layout_of(prepared, problem->op == IR_OP_CONV_GRAD_WEIGHT);
    release(prepared);
    return l.total;
}

/* ---- execution ---- */

typedef struct conv_job {
    conv_prepared_t *p;
    layout_t l;
    char *workspace;
    const float *x, *w, *y, *bias;
    float *x_out, *w_out, *y_out;
} conv_job_t;

/* What a pass reads and writes: roles, names to oneDNN, whole tensors. */
typedef struct passage {
    int from, to, read_as, written_as;
    const float *read;
    float *written;
} passage_t;

static dnnl_status_t reorder(thread_state_t *t, dnnl_primitive_t primitive, dnnl_memory_t from,
                             const void *from_data, dnnl_memory_t to, void *to_data) {
    dnnl_memory_set_data_handle(from, (void *)(uintptr_t)from_data);
    dnnl_memory_set_data_handle(to, to_data);
    dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
    return dnnl_primitive_execute(primitive, t->stream, 2, args);
}

/* Memory of a role for the primitive: the blocked copy in the slot, or the plain tensor itself. */
static dnnl_memory_t bind(const conv_job_t *job, thread_state_t *t, int role, char *slot,
                          const float *plain) {
    const side_t *side = &job->p->side[role];
    void *data =
        side->blocked_bytes ? (void *)(slot + job->l.side_at[role]) : (void *)(uintptr_t)plain;
    dnnl_memory_t memory = side->blocked_bytes ? t->blocked[role] : t->plain[role];
    dnnl_memory_set_data_handle(memory, data);
    return memory;
}

/* Reads a tensor of the task: reorders it into the slot if the layouts differ. */
static dnnl_status_t read_side(const conv_job_t *job, thread_state_t *t, int role, char *slot,
                               const float *plain) {
    const side_t *side = &job->p->side[role];
    if (!side->blocked_bytes) return dnnl_success;
    return reorder(t, side->in, t->plain[role], plain, t->blocked[role],
                   slot + job->l.side_at[role]);
}

static dnnl_status_t write_side(const conv_job_t *job, thread_state_t *t, int role, char *slot,
                                float *plain) {
    const side_t *side = &job->p->side[role];
    if (!side->blocked_bytes) return dnnl_success;
    return reorder(t, side->out, t->blocked[role], slot + job->l.side_at[role], t->plain[role],
                   plain);
}

static int add_scratch(const conv_job_t *job, thread_state_t *t, char *slot, dnnl_exec_arg_t *args,
                       int n) {
    if (!t->scratch) return n;
    dnnl_memory_set_data_handle(t->scratch, slot + job->l.scratch_at);
    args[n] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, t->scratch};
    return n + 1;
}

static dnnl_memory_t bind_weights(const conv_job_t *job, thread_state_t *t) {
    const side_t *side = &job->p->side[W];
    dnnl_memory_t memory = side->blocked_bytes ? t->blocked[W] : t->plain[W];
    dnnl_memory_set_data_handle(
        memory, side->blocked_bytes ? (void *)job->workspace : (void *)(uintptr_t)job->w);
    return memory;
}

/* A task's numbers in a tensor: those of its images. */
static int64_t task_elements(const conv_prepared_t *p, int role) {
    return role == X ? p->images * p->w.c * p->w.in_size : p->images * p->w.o * p->w.out_size;
}

/* Between images and results, either way: y of x, or dx of dy. */
static void pass_through(conv_job_t *job, const passage_t *way, int64_t begin, int64_t end,
                         int thread) {
    conv_prepared_t *p = job->p;
    thread_state_t *t = &p->threads[thread];
    char *slot = job->workspace + job->l.weights + (size_t)thread * job->l.slot;
    const int64_t n_from = task_elements(p, way->from), n_to = task_elements(p, way->to);
    int before = kern_onednn_enter();
    for (int64_t task = begin; task < end; task++) {
        const float *from = way->read + task * n_from;
        float *to = way->written + task * n_to;
        dnnl_status_t status = read_side(job, t, way->from, slot, from);
        dnnl_exec_arg_t args[5] = {{way->read_as, bind(job, t, way->from, slot, from)},
                                   {DNNL_ARG_WEIGHTS, bind_weights(job, t)},
                                   {way->written_as, bind(job, t, way->to, slot, to)}};
        int n = add_scratch(job, t, slot, args, 3);
        if (job->bias) {
            dnnl_memory_set_data_handle(t->bias, (void *)(uintptr_t)job->bias);
            args[n++] = (dnnl_exec_arg_t){DNNL_ARG_BIAS, t->bias};
        }
        if (status == dnnl_success)
            status = dnnl_primitive_execute(p->primitive, t->stream, n, args);
        if (status == dnnl_success) status = write_side(job, t, way->to, slot, to);
        if (status != dnnl_success) t->failed = status;
    }
    kern_onednn_leave(before);
}

static void forward(void *arg, int64_t begin, int64_t end, int thread) {
    conv_job_t *job = arg;
    const passage_t way = {X, Y, DNNL_ARG_SRC, DNNL_ARG_DST, job->x, job->y_out};
    pass_through(job, &way, begin, end, thread);
}

static void grad_input(void *arg, int64_t begin, int64_t end, int thread) {
    conv_job_t *job = arg;
    const passage_t way = {Y, X, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_SRC, job->y, job->x_out};
    pass_through(job, &way, begin, end, thread);
}

/* Run `run` of WEIGHT_RUNS: tasks [run · tasks / WEIGHT_RUNS, …) added up in the blocked layout. */
static void grad_weight(void *arg, int64_t begin, int64_t end, int thread) {
    conv_job_t *job = arg;
    conv_prepared_t *p = job->p;
    thread_state_t *t = &p->threads[thread];
    char *slot = job->workspace + (size_t)thread * job->l.slot;
    char *parts = job->workspace + job->l.slot * (size_t)p->n_threads;
    const int64_t x_each = task_elements(p, X), y_each = task_elements(p, Y);
    size_t n_part = job->l.parts / sizeof(float);
    float *fresh = (float *)(slot + job->l.side_at[W]);
    int before = kern_onednn_enter();
    for (int64_t run = begin; run < end; run++) {
        float *part = (float *)(parts + (size_t)run * job->l.parts);
        memset(part, 0, job->l.parts);
        memset(fresh, 0, job->l.parts);
        int64_t last = (run + 1) * p->tasks / WEIGHT_RUNS;
        for (int64_t task = run * p->tasks / WEIGHT_RUNS; task < last; task++) {
            const float *x = job->x + task * x_each, *dy = job->y + task * y_each;
            dnnl_status_t status = read_side(job, t, X, slot, x);
            if (status == dnnl_success) status = read_side(job, t, Y, slot, dy);
            dnnl_exec_arg_t args[4] = {{DNNL_ARG_SRC, bind(job, t, X, slot, x)},
                                       {DNNL_ARG_DIFF_DST, bind(job, t, Y, slot, dy)},
                                       {DNNL_ARG_DIFF_WEIGHTS, bind(job, t, W, slot, fresh)}};
            int n = add_scratch(job, t, slot, args, 3);
            if (status == dnnl_success)
                status = dnnl_primitive_execute(p->primitive, t->stream, n, args);
            if (status != dnnl_success) t->failed = status;
            for (size_t i = 0; i < n_part; i++) part[i] += fresh[i];
        }
    }
    kern_onednn_leave(before);
}

static void clear_failures(conv_prepared_t *p) {
    for (int t = 0; t < p->n_threads; t++) p->threads[t].failed = dnnl_success;
}

static st_status_t outcome(const conv_job_t *job, dnnl_status_t status) {
    for (int t = 0; t < job->p->n_threads && status == dnnl_success; t++)
        status = job->p->threads[t].failed;
    if (status == dnnl_success) return ST_OK;
    return FAIL(status == dnnl_out_of_memory ? ST_NO_MEMORY : ST_INTERNAL,
                "oneDNN failed with status %d", (int)status);
}

static st_status_t launch_data(const kern_call_t *call) {
    bool is_forward = call->problem->op == IR_OP_CONV;
    conv_prepared_t *p = call->prepared;
    conv_job_t job = {
        .p = p, .l = layout_of(p, false), .workspace = call->workspace, .w = call->in[1]};
    dnnl_status_t status = dnnl_success;
    clear_failures(p);
    if (p->side[W].blocked_bytes) {
        int before = kern_onednn_enter();
        thread_state_t *t = &p->threads[0];
        status = reorder(t, p->side[W].in, t->plain[W], job.w, t->blocked[W], job.workspace);
        kern_onednn_leave(before);
    }
    if (is_forward) {
        job.x = call->in[0];
        job.bias = p->has_bias ? call->in[2] : NULL;
        job.y_out = call->out[0];
    } else {
        job.y = call->in[0];
        job.x_out = call->out[0];
    }
    if (status == dnnl_success)
        dev_team_for(call->team, p->tasks, 1, is_forward ? forward : grad_input, &job);
    return outcome(&job, status);
}

static st_status_t launch_weights(const kern_call_t *call) {
    conv_prepared_t *p = call->prepared;
    conv_job_t job = {.p = p,
                      .l = layout_of(p, true),
                      .workspace = call->workspace,
                      .x = call->in[0],
                      .y = call->in[1],
                      .w_out = call->out[0]};
    clear_failures(p);
    dev_team_for(call->team, WEIGHT_RUNS, 1, grad_weight, &job);
    float *total = (float *)(job.workspace + job.l.slot * (size_t)p->n_threads);
    size_t n_part = job.l.parts / sizeof(float);
    for (size_t run = 1; run < WEIGHT_RUNS; run++)
        for (size_t i = 0; i < n_part; i++) total[i] += total[run * n_part + i];
    dnnl_status_t status = dnnl_success;
    if (p->side[W].blocked_bytes) {
        int before = kern_onednn_enter();
        thread_state_t *t = &p->threads[0];
        status = reorder(t, p->side[W].out, t->blocked[W], total, t->plain[W], job.w_out);
        kern_onednn_leave(before);
    } else {
        memcpy(job.w_out, total, p->side[W].plain_bytes);
    }
    return outcome(&job, status);
}

const kern_impl_t kern_onednn_conv = {.name = "cpu.conv.onednn",
                                      .op = IR_OP_CONV,
                                      .can_run = can_run,
                                      .workspace = workspace,
                                      .prepare = prepare,
                                      .release = release,
                                      .launch = launch_data};
const kern_impl_t kern_onednn_conv_grad_input = {.name = "cpu.conv_grad_input.onednn",
                                                 .op = IR_OP_CONV_GRAD_INPUT,
                                                 .can_run = can_run,
                                                 .workspace = workspace,
                                                 .prepare = prepare,
                                                 .release = release,
                                                 .launch = launch_data};
const kern_impl_t kern_onednn_conv_grad_weight = {.name = "cpu.conv_grad_weight.onednn",
                                                  .op = IR_OP_CONV_GRAD_WEIGHT,
                                                  .can_run = can_run,
                                                  .workspace = workspace,
                                                  .prepare = prepare,
                                                  .release = release,
                                                  .launch = launch_weights};
