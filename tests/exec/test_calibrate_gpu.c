/* A GPU's description from single ops, with a clock that says what a device of known rates would
 * take: the library reads it, costs what it measured as that device does, and keeps what was not
 * measured. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/memory.h"
#include "compile/target.h"
#include "exec/calibrate.h"
#include "exec/calibrate_gpu.h"
#include "kernels/table.h"
#include "support/scratch.h"

/* The device: us to launch, and what a microsecond does. */
static const double LAUNCH_US = 2, FLOP_A_US = 5e8, BYTES_A_US = 3e6, NEAR_BYTES_A_US = 6e6,
                    POOL_FLOP_A_US = 2e5, NEST_US = 40, NEST_BYTES_A_US = 2e6;

typedef struct fake {
    int n_ops, n_near;
    bool fails;
} fake_t;

static st_status_t op(void *context, bench_t *bench, bool near, double *out_us) {
    fake_t *fake = context;
    const work_t *w = &bench->work;
    const char *reason;
    size_t workspace;
    uint32_t launches;
    fake->n_ops++;
    fake->n_near += near;
    if (fake->fails) return FAIL(ST_DEVICE, "the device is on fire");
    /* what is asked of the card is what its kernels take */
    static const char *const kernels[] = {"cublaslt.matmul", "cudnn.conv",        "cudnn.attention",
                                          "own.max_pool",    "own.max_pool_grad", "nest"};
    bool runs = false;
    for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++)
        runs |= kern_runs_on_gpu(kernels[i], &bench->problem, &workspace, &launches, &reason);
    if (!runs) return FAIL(ST_UNSUPPORTED, "no kernel");
    const ir_op_t which = bench->node->op;
    const double bytes = w->bytes_read + w->bytes_written;
    *out_us = LAUNCH_US;
    if (which == IR_OP_ADD)
        *out_us += bytes / (near ? NEAR_BYTES_A_US : BYTES_A_US);
    else if (which == IR_OP_MAX_POOL || which == IR_OP_MAX_POOL_GRAD)
        *out_us += w->flop / POOL_FLOP_A_US;
    else if (w->kind == WORK_EACH)
        *out_us = NEST_US + bytes / NEST_BYTES_A_US;
    else
        *out_us += w->flop / FLOP_A_US;
    return ST_OK;
}

static st_status_t launch(void *context, bench_t *bench, double *out_us) {
    (void)context, (void)bench;
    *out_us = LAUNCH_US;
    return ST_OK;
}

static void about(double x, double expected) {
    if (!(x > expected * 0.999 && x < expected * 1.001)) fail_msg("%g is not %g", x, expected);
}

static void a_description_comes_out(void **state) {
    (void)state;
    fake_t fake = {0};
    const calibrate_timer_t timer = {&fake, op, launch};
    target_t *base, *t;
    char *text;
    assert_ok(target_open("h200", &base));
    assert_ok(calibrate_gpu_text(base->text, base->text_bytes, &timer, &text));
    assert_ok(target_parse("mine.target", text, strlen(text), &t));
    assert_true(fake.n_ops > 100 && fake.n_near == 2);
    about(t->machine.launch_us, LAUNCH_US);
    about(t->machine.memory_gbps, BYTES_A_US * 1e-3);
    assert_int_equal(t->n_bandwidths, 3);
    about(t->bandwidths[0].gbps, NEAR_BYTES_A_US * 1e-3);
    about(t->product_gflops[IR_BF16], FLOP_A_US * 1e-3);
    about(t->product_gflops[IR_F64], FLOP_A_US * 1e-3);
    /* launches of nests: a row or a column a pass over what the op reads and writes, so that the
     * rate is the device's; sums over columns have a second launch, whose 1.5 us and parts the base
     * tells of */
    about(t->nests[KERN_SHAPE_FLAT].us, LAUNCH_US);
    about(t->nests[KERN_SHAPE_FLAT].gbps, BYTES_A_US * 1e-3);
    about(t->nests[KERN_SHAPE_ROWS].us, NEST_US);
    about(t->nests[KERN_SHAPE_COLUMNS].us, NEST_US);
    for (int shape = KERN_SHAPE_ROWS; shape <= KERN_SHAPE_LINES; shape++) {
        const target_nest_t *nest = &t->nests[shape];
        if (!(fabs(nest->gbps - NEST_BYTES_A_US * 1e-3) < 20))
            fail_msg("%s: %g", kern_shape_name((kern_shape_t)shape), nest->gbps);
        if (shape != KERN_SHAPE_ROWS && shape != KERN_SHAPE_COLUMNS)
            assert_true(nest->us < NEST_US - 1.5 && nest->us > NEST_US / 2);
    }
    assert_true(t->nests[KERN_SHAPE_FINISH].us == base->nests[KERN_SHAPE_FINISH].us &&
                t->nests[KERN_SHAPE_FINISH].gbps == base->nests[KERN_SHAPE_FINISH].gbps);
    /* what was not measured */
    assert_true(t->machine.link_gbps == base->machine.link_gbps &&
                t->machine.n_cores == base->machine.n_cores);
    about(t->product_gflops[IR_F8E4M3], base->product_gflops[IR_F8E4M3]);
    assert_int_equal(t->n_kernels, base->n_kernels);
    int n_new = 0, n_old = 0;
    for (uint32_t i = 0; i < t->n_rates; i++) {
        const target_rate_t *r = &t->rates[i];
        const bool as_measured = r->ns > 1.99e3 / FLOP_A_US && r->ns < 2.01e3 / FLOP_A_US;
        if (r->dtype == IR_BF16 && strcmp(r->variant, "last") == 0 && !as_measured)
            fail_msg("%s has a rate of before", ir_op_def(r->op)->name);
        n_new += as_measured;
        n_old += !as_measured;
    }
    assert_true(n_new > 100 && n_old > 10);
    for (uint32_t i = 0; i < t->n_kernels; i++)
        if (strcmp(t->kernels[i].name, "own.max_pool_grad") == 0)
            about(t->kernels[i].gflops, POOL_FLOP_A_US * 1e-3);
    target_destroy(base);
    target_destroy(t);
    st_free(text);
}

static void what_fails_is_named(void **state) {
    (void)state;
    fake_t fake = {.fails = true};
    const calibrate_timer_t timer = {&fake, op, launch};
    target_t *base;
    char *text;
    assert_ok(target_open("h200", &base));
    assert_fails(calibrate_gpu_text(base->text, base->text_bytes, &timer, &text), ST_DEVICE,
                 "measuring add(");
    assert_null(text);
    target_destroy(base);
    assert_fails(exec_calibrate_device("null", "cpu", &text), ST_INVALID,
                 "target 'cpu' describes a device 'cpu'");
    assert_fails(exec_calibrate_device("null", "none", &text), ST_NOT_FOUND, "none");
    assert_fails(exec_calibrate_device("gpu", "h200", &text), ST_NOT_FOUND, "gpu");
}

/* ---- the clock, on a processor: its device with marks, and with steps that are recorded ---- */

static struct timespec marks[64];
static int n_replays;

static st_status_t mark_reserve(dev_stream_t *stream, uint32_t n) {
    (void)stream;
    assert_true(n <= sizeof marks / sizeof marks[0]);
    return ST_OK;
}
static st_status_t mark(dev_stream_t *stream, uint32_t index) {
    (void)stream;
    clock_gettime(CLOCK_MONOTONIC, &marks[index]);
    return ST_OK;
}
static st_status_t mark_read(dev_stream_t *stream, uint32_t n, double *out_us) {
    (void)stream;
    for (uint32_t i = 0; i < n; i++)
        out_us[i] = (double)(marks[i].tv_sec - marks[0].tv_sec) * 1e6 +
                    (double)(marks[i].tv_nsec - marks[0].tv_nsec) * 1e-3;
    return ST_OK;
}

static struct {
    st_status_t (*body)(void *context);
    void *context;
} recorded;

static st_status_t record_step(dev_stream_t *stream, st_status_t (*body)(void *context),
                               void *context, dev_graph_t **out_graph) {
    (void)stream;
    recorded.body = body;
    recorded.context = context;
    *out_graph = NULL;
    return ST_OK;
}
static st_status_t replay(dev_stream_t *stream, dev_graph_t *graph) {
    (void)stream, (void)graph;
    n_replays++;
    return recorded.body(recorded.context);
}
static void graph_destroy(dev_graph_t *graph) {
    (void)graph;
}

static void ops_are_timed(void **state) {
    (void)state;
    static const calibrate_point_t small = {"add", "", "f:64,64 f:64,64"},
                                   large = {"add", "", "f:2048,1024 f:2048,1024"},
                                   product = {"matmul", "", "f:96,96 f:96,96"};
    const calibrate_point_t *points[] = {&small, &large, &product};
    const dev_device_t *cpu;
    calibrate_clock_t *clock;
    double us[3], launch_us;
    assert_ok(dev_find("cpu", &cpu));
    assert_fails(calibrate_clock_open(cpu, 1 << 20, &clock), ST_UNSUPPORTED, "no marks");
    dev_device_t device = *cpu;
    device.mark_reserve = mark_reserve;
    device.mark = mark;
    device.mark_read = mark_read;
    device.capture = record_step;
    device.replay = replay;
    device.graph_destroy = graph_destroy;
    assert_ok(calibrate_clock_open(&device, 1 << 20, &clock));
    const calibrate_timer_t timer = calibrate_clock_timer(clock);
    for (int i = 0; i < 3; i++) {
        bench_t bench;
        assert_ok(bench_open(&bench, points[i], IR_F32, 0));
        assert_ok(timer.op(timer.context, &bench, i == 0, &us[i]));
        if (i == 0) assert_ok(timer.launch(timer.context, &bench, &launch_us));
        assert_true(us[i] > 0);
        bench_close(&bench);
    }
    assert_true(us[1] > 8 * us[0]); /* 512 times the elements */
    assert_true(n_replays > 3);
    calibrate_clock_close(clock);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(ops_are_timed),
                                       cmocka_unit_test(a_description_comes_out),
                                       cmocka_unit_test(what_fails_is_named)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
