/* Every case on every CUDA kernel against the oracle, on a machine with a GPU: outputs and scratch
 * between guard zones, both filled with NaN before, the same bits the second time, and in a
 * recorded graph. An op that the CPU has a kernel for and the GPU has none fails, unless it is
 * listed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cases.h"
#include "device/device.h"

enum { GUARD = 256, GUARD_BYTE = 0xA5 };

static const dev_device_t *device;
static dev_stream_t *stream;

/* Ops without a CUDA kernel, and why. */
static const struct {
    ir_op_t op;
    const char *why;
} without[] = {
    {IR_OP_CONSTANT, "filled in when the session is made"},
    {IR_OP_RESHAPE, "a view"},
    {IR_OP_REPEAT, "its body's kernels run, not one of its own"},
    {IR_OP_COND, "its body's kernels run, not one of its own"},
};

/* Bodies that are no nest, and why: nothing fuses such (conformance.rules holds the reasons). */
static const char *const no_nests[] = {"body=passes"};

static bool is_no_nest(const conf_case_t *row) {
    for (size_t i = 0; i < sizeof no_nests / sizeof no_nests[0]; i++)
        if (row->op == IR_OP_FUSED && strcmp(row->attrs, no_nests[i]) == 0) return true;
    return false;
}

static bool is_without(ir_op_t op) {
    for (size_t i = 0; i < sizeof without / sizeof without[0]; i++)
        if (without[i].op == op) return true;
    return false;
}

/* Device memory between two guard zones. */
typedef struct zone {
    char *block;
    size_t bytes, all;
} zone_t;

static void must(st_status_t status) {
    if (status != ST_OK) fail_msg("%s", st_last_error());
}

static void fill(void *at, int byte, size_t bytes) {
    char *host = malloc(bytes ? bytes : 1);
    memset(host, byte, bytes);
    must(device->copy_in(stream, at, host, bytes));
    must(device->synchronize(stream));
    free(host);
}

static zone_t zone_make(size_t bytes) {
    zone_t z = {.bytes = bytes, .all = 2 * GUARD + (bytes + GUARD - 1) / GUARD * GUARD};
    void *block;
    must(device->alloc(stream, z.all, &block));
    z.block = block;
    fill(block, GUARD_BYTE, z.all);
    fill(z.block + GUARD, 0xFF, bytes);
    return z;
}

static void *zone_data(const zone_t *z) {
    return z->bytes ? z->block + GUARD : NULL;
}

static bool zone_intact(const zone_t *z) {
    unsigned char *host = malloc(z->all);
    bool intact = true;
    must(device->copy_out(stream, host, z->block, z->all));
    must(device->synchronize(stream));
    for (size_t i = 0; i < z->all; i++)
        if (i < GUARD || i >= GUARD + z->bytes) intact = intact && host[i] == GUARD_BYTE;
    free(host);
    return intact;
}

static void zone_free(zone_t *z) {
    (device->free)(stream, z->block);
}

typedef struct launch {
    const kern_impl_t *impl;
    const kern_call_t *call;
} launch_t;

static st_status_t launch(void *context) {
    const launch_t *l = context;
    return l->impl->launch(l->call);
}

/* The operands of a case between guard zones. */
typedef struct operands {
    zone_t in[CONF_MAX_OPERANDS], out[CONF_MAX_OPERANDS], work;
    const void *in_data[CONF_MAX_OPERANDS];
    void *out_data[CONF_MAX_OPERANDS];
} operands_t;

static void make_operands(const conf_built_t *built, size_t work_bytes, operands_t *o) {
    const kern_problem_t *p = &built->problem;
    for (uint32_t j = 0; j < p->n_in; j++) {
        o->in[j] = zone_make(ir_type_bytes(&built->in[j]));
        o->in_data[j] = zone_data(&o->in[j]);
        must(device->copy_in(stream, zone_data(&o->in[j]), built->in_data[j], o->in[j].bytes));
    }
    for (uint32_t k = 0; k < p->n_out; k++) {
        o->out[k] = zone_make(ir_type_bytes(&built->out[k]));
        o->out_data[k] = zone_data(&o->out[k]);
    }
    o->work = zone_make(work_bytes);
}

static void free_operands(const conf_built_t *built, const kern_impl_t *impl, operands_t *o) {
    const kern_problem_t *p = &built->problem;
    for (uint32_t k = 0; k < p->n_out; k++) {
        if (!zone_intact(&o->out[k]))
            fail_msg("%s, %s: wrote outside output %u", built->name, impl->name, k);
        zone_free(&o->out[k]);
    }
    if (!zone_intact(&o->work))
        fail_msg("%s, %s: wrote outside its scratch", built->name, impl->name);
    zone_free(&o->work);
    for (uint32_t j = 0; j < p->n_in; j++) zone_free(&o->in[j]);
}

/* Launched, launched again, and in a recorded graph: right, and each time the same bits. */
static void check_turns(const conf_built_t *built, const launch_t *l, operands_t *o,
                        double *const *expected) {
    const kern_problem_t *p = &built->problem;
    dev_graph_t *graph = NULL;
    void *first[CONF_MAX_OPERANDS];
    for (int turn = 0; turn < 3; turn++) {
        st_status_t status = ST_OK;
        for (uint32_t k = 0; k < p->n_out; k++) fill(o->out_data[k], 0xFF, o->out[k].bytes);
        fill(zone_data(&o->work), 0xFF, o->work.bytes);
        if (turn < 2)
            status = launch((void *)(uintptr_t)l);
        else if ((status = device->capture(stream, launch, (void *)(uintptr_t)l, &graph)) == ST_OK)
            status = device->replay(stream, graph);
        if (status == ST_OK) status = device->synchronize(stream);
        if (status != ST_OK) fail_msg("%s, %s: %s", built->name, l->impl->name, st_last_error());
        for (uint32_t k = 0; k < p->n_out; k++) {
            void *host = malloc(o->out[k].bytes + 1);
            must(device->copy_out(stream, host, o->out_data[k], o->out[k].bytes));
            must(device->synchronize(stream));
            if (turn == 0) {
                conf_compare(built, l->impl->name, k, host, expected[k]);
                first[k] = host;
                continue;
            }
            if (o->out[k].bytes && memcmp(host, first[k], o->out[k].bytes) != 0)
                fail_msg("%s, %s: output %u has other bits %s", built->name, l->impl->name, k,
                         turn == 1 ? "the second time" : "in a graph");
            free(host);
        }
    }
    for (uint32_t k = 0; k < p->n_out; k++) free(first[k]);
    device->graph_destroy(graph);
}

/* The inputs are wanted. */
static st_status_t no_noise(void *context) {
    (void)context;
    return ST_OK;
}

static void check_impl(const conf_built_t *built, const kern_impl_t *impl,
                       double *const *expected) {
    const kern_problem_t *p = &built->problem;
    size_t bytes = impl->workspace ? impl->workspace(p, 1) : 0;
    operands_t o;
    make_operands(built, bytes, &o);
    kern_call_t call = {.problem = p,
                        .in = o.in_data,
                        .out = o.out_data,
                        .workspace = zone_data(&o.work),
                        .workspace_bytes = bytes,
                        .stream = stream};
    if (impl->warm && impl->warm(p, stream, &call.prepared) != ST_OK)
        fail_msg("%s, %s, prepared ahead: %s", built->name, impl->name, st_last_error());
    if (impl->bind && impl->bind(&call) != ST_OK)
        fail_msg("%s, %s: %s", built->name, impl->name, st_last_error());
    launch_t l = {impl, &call};
    check_turns(built, &l, &o, expected);
    if (impl->tune) {
        if (impl->tune(&call, &(kern_noise_t){no_noise, NULL}) != ST_OK)
            fail_msg("%s, %s, tuned: %s", built->name, impl->name, st_last_error());
        check_turns(built, &l, &o, expected);
    }
    free_operands(built, impl, &o);
    if (call.prepared && impl->release) impl->release(call.prepared);
}

/* An index of the second input that is out of range: each kernel names it, its place and the
 * size. */
static void check_fault(const conf_case_t *row, int64_t position, int64_t index, int64_t size) {
    conf_built_t built;
    conf_build(row, IR_F32, &built);
    ((int64_t *)built.in_data[1])[position] = index;
    for (const kern_impl_t *const *impl = kern_list("cuda", row->op); *impl; impl++) {
        const char *reason;
        dev_fault_t fault = {0};
        operands_t o;
        if ((*impl)->can_run && !(*impl)->can_run(&built.problem, &reason)) continue;
        size_t bytes = (*impl)->workspace ? (*impl)->workspace(&built.problem, 1) : 0;
        make_operands(&built, bytes, &o);
        kern_call_t call = {.problem = &built.problem,
                            .in = o.in_data,
                            .out = o.out_data,
                            .workspace = zone_data(&o.work),
                            .workspace_bytes = bytes,
                            .stream = stream,
                            .node = 77};
        if ((*impl)->bind) must((*impl)->bind(&call));
        must((*impl)->launch(&call));
        must(device->synchronize(stream));
        if (!device->take_fault(stream, &fault) || fault.node != 77 || fault.index != index ||
            fault.position != position || fault.size != size)
            fail_msg("%s, %s: index %lld at %lld of size %lld is reported as %lld at %lld of %lld",
                     built.name, (*impl)->name, (long long)index, (long long)position,
                     (long long)size, (long long)fault.index, (long long)fault.position,
                     (long long)fault.size);
        free_operands(&built, *impl, &o);
        if (call.prepared && (*impl)->release) (*impl)->release(call.prepared);
    }
    conf_release(&built);
}

static void indices_out_of_range_are_reported(void **state) {
    (void)state;
    static const conf_case_t rows[] = {
        {IR_OP_GATHER, "f", "T:33,130 l<33:211", "axis=0", 0},
        {IR_OP_SCATTER_ADD, "f", "T:211,72 l<33:211", "axis=0 extent=33", 0},
        {IR_OP_SCATTER_ADD, "f", "T:900,72 l<33:900", "axis=0 extent=33", 0}};
    if (dev_find("cuda", &device) != ST_OK || device->open(0, 1, &stream) != ST_OK) {
        print_message("skipped: %s\n", st_last_error());
        skip();
    }
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        check_fault(&rows[i], 200, 33, 33);
        check_fault(&rows[i], 3, -34, 33);
    }
    device->close(stream);
}

static int n_problems;

static void run_case(const conf_case_t *row, ir_dtype_t dtype) {
    conf_built_t built;
    double *expected[CONF_MAX_OPERANDS];
    conf_build(row, dtype, &built);
    for (uint32_t k = 0; k < built.problem.n_out; k++)
        expected[k] = calloc((size_t)ir_type_elements(&built.out[k]) + 1, sizeof(double));
    if (!conf_oracle(&built, expected)) fail_msg("%s: no oracle", built.name);
    int n_ran = 0;
    bool any = false;
    for (uint32_t k = 0; k < built.problem.n_out; k++) any |= ir_type_bytes(&built.out[k]) != 0;
    for (const kern_impl_t *const *impl = kern_list("cuda", built.problem.op); *impl && any;
         impl++) {
        const char *reason = NULL;
        if ((*impl)->can_run && !(*impl)->can_run(&built.problem, &reason)) continue;
        check_impl(&built, *impl, expected);
        n_ran++;
    }
    if (n_ran && is_no_nest(row)) fail_msg("%s runs, though it is listed as no nest", built.name);
    if (!n_ran && any && !is_without(built.problem.op) && !is_no_nest(row)) {
        print_message("no CUDA kernel: %s\n", built.name);
        n_problems++;
    }
    for (uint32_t k = 0; k < built.problem.n_out; k++) free(expected[k]);
    conf_release(&built);
}

static void cases_on_the_gpu(void **state) {
    (void)state;
    if (dev_find("cuda", &device) != ST_OK || device->open(0, 1, &stream) != ST_OK) {
        print_message("skipped: %s\n", st_last_error());
        skip();
    }
    const char *only = getenv("STATOR_TEST_OP"); /* part of a case's op, to look at it alone */
    for (size_t c = 0; c < conf_n_cases; c++) {
        int n_types;
        const ir_dtype_t *types = conf_types(&conf_cases[c], &n_types);
        ir_dtype_t own[16];
        memcpy(own, types, (size_t)n_types * sizeof *types);
        if (only && !strstr(ir_op_def(conf_cases[c].op)->name, only)) continue;
        for (int t = 0; t < n_types; t++) run_case(&conf_cases[c], own[t]);
    }
    device->close(stream);
    assert_int_equal(n_problems, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(cases_on_the_gpu),
                                       cmocka_unit_test(indices_out_of_range_are_reported)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
