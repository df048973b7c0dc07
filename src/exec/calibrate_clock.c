/* Timing single ops on a GPU by marks on its stream (calibrate_gpu.h).
 *
 *   memory   operands, noise that no op writes | results and scratch | what sweeps the caches
 *
 * An op is run for some time first, so that the device has the clock that it keeps up, and
 * libraries' ways are chosen as a session chooses them. Then each of the runs that count is between
 * two marks, with a copy that sweeps the caches before the first; while it runs the host has queued
 * the rest, so that no mark waits for the host. What two marks with nothing between them take is
 * taken off. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/hash.h"
#include "base/memory.h"
#include "device/device.h"
#include "exec/calibrate_gpu.h"
#include "ir/convert.h"
#include "kernels/table.h"

enum { ROUNDS = 9, ALIGNMENT = 256, NOISE_BYTES = 1 << 20, FEW_NODES = 64, MANY_NODES = 320 };
static const double WARM_SECONDS = 0.03;

typedef enum part { OPERANDS, RESULTS, SWEEP, N_PARTS } part_t;

struct calibrate_clock {
    const dev_device_t *device;
    dev_stream_t *stream;
    void *memory[N_PARTS];
    size_t bytes[N_PARTS];
    double empty_us; /* of two marks */
};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Elements of bf16 in [-1, 1): as numbers of any other type they are finite, too. */
static st_status_t put_noise(calibrate_clock_t *c, char *to, size_t bytes) {
    uint16_t *block = st_malloc(NOISE_BYTES);
    size_t done = bytes < NOISE_BYTES ? bytes : NOISE_BYTES;
    uint32_t words[4];
    if (!block) return st_no_memory(NOISE_BYTES, "a measurement");
    for (size_t i = 0; i < NOISE_BYTES / sizeof *block; i++) {
        if (i % 4 == 0) st_philox(1, i / 4, 0, words);
        ir_element_store(IR_BF16, block, i, 2 * (double)st_uniform24(words[i % 4]) - 1);
    }
    st_status_t status = c->device->copy_in(c->stream, to, block, done);
    if (status == ST_OK) status = c->device->synchronize(c->stream);
    st_free(block);
    while (status == ST_OK && done < bytes) {
        const size_t more = bytes - done < done ? bytes - done : done;
        status = c->device->copy(c->stream, to + done, to, more);
        done += more;
    }
    return status;
}

static st_status_t reserve(calibrate_clock_t *c, part_t part, size_t bytes) {
    if (bytes <= c->bytes[part]) return ST_OK;
    TRY(c->device->synchronize(c->stream));
    (c->device->free)(c->stream, c->memory[part]);
    c->memory[part] = NULL;
    c->bytes[part] = 0;
    TRY(c->device->alloc(c->stream, bytes, &c->memory[part]));
    c->bytes[part] = bytes;
    return put_noise(c, c->memory[part], bytes);
}

/* ---- one op ---- */

typedef struct run {
    calibrate_clock_t *clock;
    const kern_impl_t *impl;
    kern_call_t call;
    const void *in[CALIBRATE_OPERANDS];
    void *out[CALIBRATE_OPERANDS];
    int n; /* launches, for what records them */
} run_t;

static st_status_t no_noise(void *context) {
    (void)context;
    return ST_OK;
}

static st_status_t place(calibrate_clock_t *c, const kern_problem_t *p, size_t workspace,
                         run_t *run) {
    size_t in[CALIBRATE_OPERANDS + 1] = {0}, out[CALIBRATE_OPERANDS + 1] = {0};
    for (uint32_t j = 0; j < p->n_in; j++)
        in[j + 1] = st_size_add(in[j], st_size_align(ir_type_bytes(&p->in[j]), ALIGNMENT));
    for (uint32_t k = 0; k < p->n_out; k++)
        out[k + 1] = st_size_add(out[k], st_size_align(ir_type_bytes(&p->out[k]), ALIGNMENT));
    TRY(reserve(c, OPERANDS, in[p->n_in] + ALIGNMENT));
    TRY(reserve(c, RESULTS, st_size_add(out[p->n_out], st_size_add(workspace, ALIGNMENT))));
    for (uint32_t j = 0; j < p->n_in; j++) run->in[j] = (char *)c->memory[OPERANDS] + in[j];
    for (uint32_t k = 0; k < p->n_out; k++) run->out[k] = (char *)c->memory[RESULTS] + out[k];
    run->call.workspace = (char *)c->memory[RESULTS] + out[p->n_out];
    return ST_OK;
}

static st_status_t open_run(calibrate_clock_t *c, const bench_t *bench, run_t *run) {
    const kern_problem_t *p = &bench->problem;
    *run = (run_t){.clock = c};
    TRY(kern_choose(c->device->name, p, false, &run->impl));
    const size_t workspace = run->impl->workspace ? run->impl->workspace(p, 1) : 0;
    TRY(place(c, p, workspace, run));
    run->call.problem = p;
    run->call.in = run->in;
    run->call.out = run->out;
    run->call.workspace_bytes = workspace;
    run->call.stream = c->stream;
    run->call.team = c->device->team ? c->device->team(c->stream) : NULL;
    if (run->impl->prepare) TRY(run->impl->prepare(p, 1, &run->call.prepared));
    if (run->impl->bind) TRY(run->impl->bind(&run->call));
    if (run->impl->tune) TRY(run->impl->tune(&run->call, &(kern_noise_t){no_noise, NULL}));
    return ST_OK;
}

static void close_run(run_t *run) {
    if (run->impl && run->impl->release && run->call.prepared)
        run->impl->release(run->call.prepared);
}

static st_status_t launches(void *context) {
    const run_t *run = context;
    for (int i = 0; i < run->n; i++) TRY(run->impl->launch(&run->call));
    return ST_OK;
}

static st_status_t sweep(calibrate_clock_t *c) {
    const size_t half = c->bytes[SWEEP] / 2;
    return c->device->copy(c->stream, (char *)c->memory[SWEEP] + half, c->memory[SWEEP], half);
}

/* Median microseconds between the marks around run->n launches, the caches swept before or not. */
static st_status_t between_marks(calibrate_clock_t *c, run_t *run, bool near, double *out_us) {
    double us[2 * ROUNDS], took[ROUNDS];
    TRY(sweep(c));
    for (uint32_t i = 0; i < ROUNDS; i++) {
        if (!near) TRY(sweep(c));
        TRY(c->device->mark(c->stream, 2 * i));
        TRY(launches(run));
        TRY(c->device->mark(c->stream, 2 * i + 1));
    }
    TRY(c->device->synchronize(c->stream));
    TRY(c->device->mark_read(c->stream, 2 * ROUNDS, us));
    for (int i = 0; i < ROUNDS; i++) took[i] = us[2 * i + 1] - us[2 * i];
    qsort(took, ROUNDS, sizeof took[0], ascending);
    *out_us = took[ROUNDS / 2];
    return ST_OK;
}

static st_status_t warm_up(run_t *run) {
    const double begin = now();
    do {
        TRY(launches(run));
        TRY(run->clock->device->synchronize(run->clock->stream));
    } while (now() - begin < WARM_SECONDS);
    return ST_OK;
}

static st_status_t time_op(void *context, bench_t *bench, bool near, double *out_us) {
    calibrate_clock_t *c = context;
    run_t run;
    st_status_t status = open_run(c, bench, &run);
    run.n = 1;
    if (status == ST_OK) status = warm_up(&run);
    if (status == ST_OK) status = between_marks(c, &run, near, out_us);
    close_run(&run);
    if (status == ST_OK) *out_us -= c->empty_us;
    return status;
}

/* ---- launches in a recorded step ---- */

/* Microseconds of a recorded step of n launches. */
static st_status_t time_graph(run_t *run, int n, double *out_us) {
    calibrate_clock_t *c = run->clock;
    dev_graph_t *graph;
    double us[2], took[ROUNDS];
    st_status_t status = ST_OK;
    run->n = n;
    TRY(c->device->capture(c->stream, launches, run, &graph));
    for (int i = 0; i < ROUNDS && status == ST_OK; i++) {
        TRY_GOTO(sweep(c), done); /* while it runs the graph is queued */
        TRY_GOTO(c->device->mark(c->stream, 0), done);
        TRY_GOTO(c->device->replay(c->stream, graph), done);
        TRY_GOTO(c->device->mark(c->stream, 1), done);
        TRY_GOTO(c->device->synchronize(c->stream), done);
        TRY_GOTO(c->device->mark_read(c->stream, 2, us), done);
        took[i] = us[1] - us[0];
    }
    qsort(took, ROUNDS, sizeof took[0], ascending);
    *out_us = took[ROUNDS / 2];
done:
    c->device->graph_destroy(graph);
    return status;
}

static st_status_t time_launch(void *context, bench_t *bench, double *out_us) {
    double few = 0, many = 0;
    run_t run;
    st_status_t status = open_run(context, bench, &run);
    run.n = 1;
    if (status == ST_OK) status = warm_up(&run);
    if (status == ST_OK) status = time_graph(&run, FEW_NODES, &few);
    if (status == ST_OK) status = time_graph(&run, MANY_NODES, &many);
    close_run(&run);
    *out_us = (many - few) / (MANY_NODES - FEW_NODES);
    return status;
}

/* ---- the device ---- */

static st_status_t start(calibrate_clock_t *c, uint64_t cache_bytes) {
    run_t nothing = {.clock = c};
    if (!c->device->mark_reserve || !c->device->capture)
        return FAIL(ST_UNSUPPORTED, "device '%s' cannot be measured: its work has no marks in time",
                    c->device->name);
    TRY(c->device->open(0, 1, &c->stream));
    TRY(reserve(c, SWEEP, 4 * (size_t)(cache_bytes > 1 << 20 ? cache_bytes : 1 << 20)));
    TRY(c->device->mark_reserve(c->stream, 2 * ROUNDS));
    return between_marks(c, &nothing, false, &c->empty_us);
}

st_status_t calibrate_clock_open(const dev_device_t *device, uint64_t cache_bytes,
                                 calibrate_clock_t **out_clock) {
    calibrate_clock_t *c = st_calloc(1, sizeof *c);
    *out_clock = NULL;
    if (!c) return st_no_memory(sizeof *c, "a measurement");
    c->device = device;
    st_status_t status = start(c, cache_bytes);
    if (status == ST_OK)
        *out_clock = c;
    else
        calibrate_clock_close(c);
    return status;
}

calibrate_timer_t calibrate_clock_timer(calibrate_clock_t *clock) {
    return (calibrate_timer_t){clock, time_op, time_launch};
}

void calibrate_clock_close(calibrate_clock_t *c) {
    if (!c) return;
    for (int i = 0; c->stream && i < N_PARTS; i++) (c->device->free)(c->stream, c->memory[i]);
    if (c->stream) c->device->close(c->stream);
    st_free(c);
}
