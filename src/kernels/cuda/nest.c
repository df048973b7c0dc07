/* Loop nests as CUDA C (kernels/emit), compiled when the session is made: one source a node, one
 * launch a kernel of its schedule. */
#include <stdio.h>

#include "base/memory.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/rtc.h"
#include "kernels/emit/single.h"
#include "kernels/emit/source.h"
#include "kernels/gpu_rules.h"

typedef struct launch {
    cudaKernel_t kernel;
    uint32_t blocks, threads;
} launch_t;

typedef struct nest_run {
    rtc_module_t *module;
    uint32_t n_launches;
    launch_t *launches;
    uint8_t *params; /* struct Params of the source, by value */
    uint64_t workspace;
} nest_run_t;

static void nest_release(void *prepared) {
    nest_run_t *run = prepared;
    if (!run) return;
    rtc_close(run->module);
    st_free(run->launches);
    st_free(run->params);
    st_free(run);
}

static st_status_t make_params(const kern_call_t *call, nest_run_t *run) {
    uint32_t n_in = call->problem->n_in, n_out = call->problem->n_out;
    size_t pointers = n_in + n_out + 2;
    run->params = st_calloc(pointers + 1, sizeof(void *));
    if (!run->params) return st_no_memory(pointers * sizeof(void *), "a nest's arguments");
    void **slots = (void **)run->params;
    for (uint32_t j = 0; j < n_in; j++) slots[j] = (void *)(uintptr_t)call->in[j];
    for (uint32_t k = 0; k < n_out; k++) slots[n_in + k] = call->out[k];
    slots[n_in + n_out] = call->workspace;
    slots[n_in + n_out + 1] = call->stream->device_fault;
    *(unsigned *)(void *)&slots[pointers] = call->node;
    return ST_OK;
}

static st_status_t make_launches(const emit_schedule_t *schedule, nest_run_t *run) {
    run->launches = st_calloc(schedule->n_kernels + 1, sizeof *run->launches);
    if (!run->launches) return st_no_memory(schedule->n_kernels, "a nest's launches");
    for (uint32_t i = 0; i < schedule->n_kernels; i += 1 + emit_n_joined(schedule, i)) {
        const emit_kernel_t *kernel = &schedule->kernels[i];
        char name[16];
        snprintf(name, sizeof name, "k%u", i);
        launch_t *launch = &run->launches[run->n_launches++];
        launch->blocks = (uint32_t)emit_launch_blocks(schedule, i);
        launch->threads = emit_threads(kernel);
        TRY(rtc_kernel(run->module, name, &launch->kernel));
    }
    return ST_OK;
}

/* The code of a schedule's kernels, without what is bound to a session. */
static st_status_t open_code(dev_stream_t *stream, const emit_problem_t *made, nest_run_t *run) {
    char *source;
    TRY(emit_source(made->schedule, &source));
    st_status_t status = rtc_open(stream, source, &run->module);
    st_free(source);
    if (status != ST_OK) return status;
    return make_launches(made->schedule, run);
}

static st_status_t nest_warm(const kern_problem_t *problem, dev_stream_t *stream,
                             void **out_prepared) {
    emit_problem_t made;
    const char *reason;
    double begin = dev_cuda_seconds();
    *out_prepared = NULL;
    TRY(emit_problem_create(problem, &made, &reason));
    nest_run_t *run = st_calloc(1, sizeof *run);
    st_status_t status = ST_OK;
    if (!run)
        status = st_no_memory(sizeof *run, "a nest");
    else if (!made.schedule)
        status = FAIL(ST_UNSUPPORTED, "no nest: %s", reason);
    else
        status = open_code(stream, &made, run);
    if (status == ST_OK) run->workspace = made.schedule->workspace;
    emit_problem_clear(&made);
    dev_cuda_spent(stream, &stream->startup.nests_s, begin);
    if (status == ST_OK)
        *out_prepared = run;
    else
        nest_release(run);
    return status;
}

static st_status_t nest_bind(kern_call_t *call) {
    if (!call->prepared) TRY(nest_warm(call->problem, call->stream, &call->prepared));
    nest_run_t *run = call->prepared;
    if (run->workspace > call->workspace_bytes)
        return FAIL(ST_UNSUPPORTED,
                    "the nest needs %llu bytes of workspace, the plan has %zu: compile it again",
                    (unsigned long long)run->workspace, call->workspace_bytes);
    return make_params(call, run);
}

static st_status_t nest_launch(const kern_call_t *call) {
    const nest_run_t *run = call->prepared;
    void *arguments[] = {run->params};
    for (uint32_t i = 0; i < run->n_launches; i++) {
        const launch_t *launch = &run->launches[i];
        CUDA_TRY(cudaLaunchKernel((const void *)launch->kernel, (dim3){launch->blocks, 1, 1},
                                  (dim3){launch->threads, 1, 1}, arguments, 0,
                                  call->stream->stream));
    }
    return ST_OK;
}

/* One row an op: a plan names a kernel and its node names the op. */
#define NEST(enumerator)                                                           \
    static const kern_impl_t nest_##enumerator = {.name = "nest",                  \
                                                  .op = IR_OP_##enumerator,        \
                                                  .can_run = gpu_nest_can_run,     \
                                                  .workspace = gpu_nest_workspace, \
                                                  .warm = nest_warm,               \
                                                  .bind = nest_bind,               \
                                                  .release = nest_release,         \
                                                  .launch = nest_launch};
#define OP(enumerator, name, wire, ...) NEST(enumerator)
#include "ir/ops.def"
#undef OP

kern_cuda_array_t kern_cuda_nest = {
#define OP(enumerator, name, wire, ...) &nest_##enumerator,
#include "ir/ops.def"
#undef OP
    NULL};
