/* Target descriptions: what is read, what is refused and how that is said, which kernel a node
 * gets, and what the numbers mean. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "compile/compile.h"
#include "compile/target.h"
#include "ir/body.h"

/* A whole description; tests add lines, or leave some out. */
static const char *const lines[] = {
    "target small",    "device cuda",        "cores 4",
    "clock_ghz 1.5",   "memory 1GiB",        "caches 64KiB 1MiB 0",
    "memory_gbps 100", "launch_us 2",        "link_us 3",
    "link_gbps 10",    "bandwidth 1MiB 400", "bandwidth 64MiB 100",
    "passes f32 1000", "products f32 10000",
};
enum { N_LINES = sizeof lines / sizeof lines[0] };

static st_status_t parse(int without, const char *more, target_t **out) {
    char text[8192] = "";
    for (int i = 0; i < N_LINES; i++) {
        if (i == without) continue;
        strcat(text, lines[i]);
        strcat(text, "\n");
    }
    strcat(text, more);
    return target_parse("small.target", text, strlen(text), out);
}

static void test_reads(void **state) {
    (void)state;
    target_t *t;
    assert_int_equal(parse(-1,
                           "nest columns.sums us=7 gbps=90\n"
                           "# a comment\n\n   kernel nest # behind\n ops add\r\n",
                           &t),
                     ST_OK);
    assert_true(t->nests[KERN_SHAPE_COLUMNS_SUMS].us == 7 &&
                t->nests[KERN_SHAPE_COLUMNS_SUMS].gbps == 90);
    assert_true(t->nests[KERN_SHAPE_ROWS].us == 2 && t->nests[KERN_SHAPE_ROWS].gbps == 100);
    assert_string_equal(t->machine.name, "small");
    assert_int_equal(t->machine.n_cores, 4);
    assert_int_equal(t->machine.memory_bytes, 1 << 30);
    assert_int_equal(t->machine.cache_bytes[1], 1 << 20);
    assert_int_equal(t->n_bandwidths, 2);
    assert_string_equal(t->kernels[0].name, "nest");
    assert_true(t->kernels[0].ops[IR_OP_ADD] && !t->kernels[0].ops[IR_OP_MUL]);
    target_destroy(t);
}

/* Collectives run beside kernels where the description does not say how much, but not on
 * processors. */
static void test_link_overlap(void **state) {
    (void)state;
    static const struct {
        int without;
        const char *more;
        double share;
    } rows[] = {{-1, "", 1},
                {1, "device cpu\n", 0},
                {-1, "link_overlap 0.25\n", 0.25},
                {1, "link_overlap 0.75\ndevice cpu\n", 0.75},
                {-1, "link_overlap 0\n", 0}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        target_t *t;
        assert_int_equal(parse(rows[i].without, rows[i].more, &t), ST_OK);
        assert_true(t->machine.link_overlap == rows[i].share);
        target_destroy(t);
    }
}

/* What joins hosts counts for groups that reach beyond one. */
static void test_host_links(void **state) {
    (void)state;
    target_t *t;
    assert_int_equal(parse(-1, "host_ranks 4\nhost_link_us 7\nhost_link_gbps 2\n", &t), ST_OK);
    assert_int_equal(t->machine.host_ranks, 4);
    assert_true(t->machine.host_link_us == 7 && t->machine.host_link_gbps == 2);
    target_destroy(t);
    assert_int_equal(parse(-1, "", &t), ST_OK);
    assert_int_equal(t->machine.host_ranks, 0);
    target_destroy(t);
}

/* The line number is that of the fault; of something missing it is the last. */
static void test_refuses(void **state) {
    (void)state;
    static const struct {
        int without;
        const char *more, *says;
    } rows[] = {
        {-1, "coers 4\n", "small.target:15: 'coers' is not known: did you mean 'cores'?"},
        {-1, "cores 5\n", "small.target:15: 'cores' is given twice, first in line 3"},
        {1, "device tpu\n", "small.target:14: device is 'tpu': cpu or cuda is needed"},
        {2, "", "small.target:13: 'cores' is missing"},
        {2, "cores -1\n", "small.target:14: cores is '-1'"},
        {6, "memory_gbps -3\n", "small.target:14: memory_gbps is '-3': a number above 0 is needed"},
        {7, "launch_us nan\n", "small.target:14: launch_us is 'nan': a number ≥ 0 is needed"},
        {4, "memory 1GB\n", "small.target:14: memory is '1GB': a size such as 40GiB is needed"},
        {-1, "cores\n", "small.target:15: 'cores' is given twice"},
        {2, "cores\n", "small.target:14: 'cores' takes 1 value, 0 given"},
        {-1, "bandwidth 32MiB 50\n", "small.target:15: bandwidth's size 32MiB is not above"},
        {-1, "ops add\n", "small.target:15: 'ops' says something of a kernel, and none stands"},
        {-1, "kernel k\nops ad\n", "small.target:16: there is no op 'ad'"},
        {-1, "kernel k\ndtypes f33\n", "small.target:16: 'f33' is no element type"},
        {-1, "kernel k\nops relu\n", "kernel 'k': device cuda has none of this name for op relu"},
        {-1, "kernel own.rope\nops pad\n",
         "'own.rope': device cuda has none of this name for op pad"},
        {-1, "kernel k\nlaunches 0\n", "launches is '0'"},
        {-1, "rate matmul f32 m=4\n", "small.target:15: a rate needs gflops= or ns="},
        {-1, "rate matmul f32 m=0 ns=1\n", "'m=0': a whole number above 0 is needed"},
        {-1, "rate matmul f32 z=4 ns=1\n", "'z=4': gflops=, ns=, bytes= or one of the op's sizes"},
        {-1, "threads 2 passes=1.5\n", "'threads' takes 3"},
        {-1, "nest diagonal us=1 gbps=2\n", "small.target:15: 'diagonal' is no shape of a nest's"},
        {-1, "nest rows us=1 us=2\n", "small.target:15: nest rows needs us= and gbps="},
        {-1, "nest rows us=1 speed=2\n", "'speed=2' is neither us= nor gbps="},
        {-1, "nest rows us=-1 gbps=2\n", "us is '-1': a number ≥ 0 is needed"},
        {-1, "nest flat us=1 gbps=2\nnest flat us=1 gbps=2\n", ":16: nest flat is given twice"},
        {-1, "link_overlap 1.1\n", "link_overlap is '1.1': a share from 0 to 1 is needed"},
        {-1, "host_ranks 8\n", "'host_ranks' needs 'host_link_us' and 'host_link_gbps'"},
        {-1, "host_ranks 2.5\n", "host_ranks is '2.5': a whole number is needed"},
        {-1, "host_ranks 8\nhost_link_gbps 0\n", "host_link_gbps is '0': a number above 0"},
        {13, "products f64 1\n", "'passes f32' and 'products f32' are needed"},
        {1, "device cpu\nkernel k\n", "kernel 'k': device cpu has the kernels of the build"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        target_t *t;
        assert_int_equal(parse(rows[i].without, rows[i].more, &t), ST_PARSE);
        assert_null(t);
        if (!strstr(st_last_error(), rows[i].says))
            fail_msg("row %zu: '%s' does not say '%s'", i, st_last_error(), rows[i].says);
    }
    target_t *t;
    assert_int_equal(target_open("h2000", &t), ST_NOT_FOUND);
    assert_non_null(strstr(st_last_error(), "a100, cpu, h100, h200 are built in"));
    assert_int_equal(target_open("/nowhere/x.target", &t), ST_NOT_FOUND);
}

static void assert_near(double value, double expected, double tolerance) {
    if (!(fabs(value - expected) <= tolerance))
        fail_msg("%.9g is not within %g of %.9g", value, tolerance, expected);
}

static ir_cost_t cost_of(const target_t *t, const ir_graph_t *graph, ir_value_t value) {
    ir_target_t ask = {0};
    ir_cost_t cost;
    target_fill((target_t *)t, &ask);
    assert_int_equal(ir_target_cost(&ask, graph, graph->values.data[value].producer, &cost), ST_OK);
    return cost;
}

/* By hand, from the description above: 2 us of launch; bytes at 400 GB/s up to 1 MiB and at 100
 * from 64 MiB on; 10 TFLOP/s in products. */
static void test_roofline(void **state) {
    (void)state;
    target_t *t;
    ir_build_t b = {0};
    assert_int_equal(
        parse(-1, "kernel nest\nops elementwise\nkernel cublaslt.matmul\nops matmul\n", &t), ST_OK);
    assert_int_equal(ir_graph_create("g", &b.graph), ST_OK);
    ir_value_t x = ir_b_input(&b, "x", ir_type_make(IR_F32, 2, (int64_t[]){128, 512}), 0);
    ir_value_t y = ir_b_input(&b, "y", ir_type_make(IR_F32, 2, (int64_t[]){16384, 1024}), 0);
    ir_value_t z = ir_b_input(&b, "z", ir_type_make(IR_F32, 2, (int64_t[]){1024, 1024}), 0);
    ir_value_t small = ir_b_unary(&b, IR_OP_RELU, x), large = ir_b_unary(&b, IR_OP_RELU, y);
    ir_value_t product = ir_b_matmul(&b, y, z, false, false);
    assert_int_equal(b.status, ST_OK);
    ir_cost_t cost = cost_of(t, b.graph, small);
    assert_near(cost.us, 2 + 2 * 128 * 512 * 4 / 400e3, 1e-6);
    assert_string_equal(cost.limit, "launch");
    cost = cost_of(t, b.graph, large);
    assert_near(cost.us, 2 + 2.0 * 16384 * 1024 * 4 / 100e3, 1e-6);
    assert_string_equal(cost.limit, "memory");
    cost = cost_of(t, b.graph, product);
    assert_near(cost.us, 2 + 2.0 * 16384 * 1024 * 1024 / 1e7, 1e-6);
    assert_string_equal(cost.limit, "compute");
    assert_string_equal(cost.kernel, "cublaslt.matmul");
    assert_int_equal(cost.workspace, 32 << 20);
    ir_graph_destroy(b.graph);
    target_destroy(t);
}

/* A measured shape costs what was measured; between two of them the rate lies between theirs, and
 * the nearer counts more. */
static void test_rates(void **state) {
    (void)state;
    target_t *t;
    ir_build_t b = {0};
    assert_int_equal(parse(-1,
                           "kernel nest\nops elementwise\nkernel cublaslt.matmul\nops matmul\n"
                           "rate matmul f32 m=64 n=64 k=64 gflops=100\n"
                           "rate matmul f32 m=1024 n=1024 k=1024 gflops=1000\n"
                           "rate exp f32 bytes=8KiB ns=0.5\nrate exp f32 bytes=8MiB ns=1.5\n",
                           &t),
                     ST_OK);
    assert_int_equal(ir_graph_create("g", &b.graph), ST_OK);
    double gflops[4];
    for (int i = 0; i < 4; i++) {
        int64_t n = (int64_t)64 << i * 4 / 3; /* 64, 128, 256, 1024 */
        char name[2] = {(char)('a' + i), 0};
        ir_value_t x = ir_b_input(&b, name, ir_type_make(IR_F32, 2, (int64_t[]){n, n}), 0);
        ir_cost_t cost = cost_of(t, b.graph, ir_b_matmul(&b, x, x, false, false));
        gflops[i] = cost.flop / (cost.us - 2) * 1e-3;
    }
    assert_int_equal(b.status, ST_OK);
    assert_near(gflops[0], 100, 0.1);
    assert_near(gflops[3], 1000, 1);
    assert_true(gflops[0] < gflops[1] && gflops[1] < 200 && gflops[1] < gflops[2]);
    /* halfway in the logarithm: 8 KiB · 2^5 bytes, of which half are read */
    ir_value_t x = ir_b_input(&b, "x", ir_type_make(IR_F32, 1, (int64_t[]){32768}), 0);
    ir_cost_t cost = cost_of(t, b.graph, ir_b_unary(&b, IR_OP_EXP, x));
    assert_near(cost.us, 2 + 32768 * 1.0 * 1e-3, 1e-6);
    ir_graph_destroy(b.graph);
    target_destroy(t);
}

/* 2 (n - 1) steps of a ring for a sum. */
static void test_collective(void **state) {
    (void)state;
    target_t *t;
    ir_build_t b = {0};
    assert_int_equal(parse(-1, "", &t), ST_OK);
    t->machine.n_ranks = 4;
    t->machine.mesh = ir_mesh_of_ranks(4);
    assert_int_equal(ir_graph_create("g", &b.graph), ST_OK);
    ir_value_t x = ir_b_input(&b, "x", ir_type_make(IR_F32, 1, (int64_t[]){1000000}), -1);
    ir_value_t sum = ir_b_node(&b, IR_OP_ALL_REDUCE_START, 1, &x, 0, NULL);
    assert_int_equal(b.status, ST_OK);
    ir_cost_t cost = cost_of(t, b.graph, sum);
    assert_near(cost.us, 6 * 3 + 4e6 * 6 / 4 / 10e3, 1e-6);
    assert_string_equal(cost.limit, "link");
    ir_graph_destroy(b.graph);
    target_destroy(t);
}

/* The body's arithmetic, the node's own edges once, one launch. Materialized it is two launches and
 * the value between them twice. */
static void test_fused(void **state) {
    (void)state;
    target_t *t;
    ir_build_t b = {0}, body = {0};
    ir_type_t type = ir_type_make(IR_F32, 2, (int64_t[]){16384, 1024});
    assert_int_equal(parse(-1, "kernel nest\nops fused exp relu\n", &t), ST_OK);
    assert_int_equal(ir_graph_create("g", &b.graph), ST_OK);
    assert_int_equal(ir_graph_create("body", &body.graph), ST_OK);
    ir_value_t inner = ir_b_body_input(&body, &type);
    ir_b_body_output(&body, ir_b_unary(&body, IR_OP_RELU, ir_b_unary(&body, IR_OP_EXP, inner)));
    assert_int_equal(body.status, ST_OK);
    ir_value_t x = ir_b_input(&b, "x", type, 0);
    ir_value_t y =
        ir_b_node(&b, IR_OP_FUSED, 1, &x, 1, (ir_arg_t[]){IR_ARG_GRAPH("body", body.graph)});
    ir_value_t e = ir_b_unary(&b, IR_OP_EXP, x), r = ir_b_unary(&b, IR_OP_RELU, e);
    assert_int_equal(b.status, ST_OK);
    double bytes = 16384.0 * 1024 * 4;
    ir_cost_t cost = cost_of(t, b.graph, y);
    assert_true(cost.flop == 2 * 16384 * 1024 && cost.launches == 1);
    assert_true(cost.bytes_read == bytes && cost.bytes_written == bytes);
    assert_near(cost.us, 2 + 2 * bytes / 100e3, 1e-6);
    assert_string_equal(cost.kernel, "nest");
    double apart = cost_of(t, b.graph, e).us + cost_of(t, b.graph, r).us;
    assert_near(apart - cost.us, 2 + 2 * bytes / 100e3, 1e-6);
    ir_graph_destroy(body.graph);
    ir_graph_destroy(b.graph);
    target_destroy(t);
}

/* What the first listed kernel cannot do goes to the next; what none can is said with every
 * reason. */
static void test_chooses(void **state) {
    (void)state;
    target_t *t;
    ir_target_t ask = {0};
    ir_build_t b = {0};
    const char *reason;
    assert_int_equal(target_open("h200", &t), ST_OK);
    target_fill(t, &ask);
    assert_int_equal(ir_graph_create("g", &b.graph), ST_OK);
    const struct {
        ir_dtype_t dtype;
        int64_t d, window, offset;
        bool causal, masked;
        const char *kernel;
    } rows[] = {{IR_BF16, 64, 0, 0, false, false, "cudnn.attention"},
                {IR_BF16, 60, 0, 0, false, false, "own.attention"},
                {IR_F32, 64, 0, 0, false, false, "own.attention"},
                {IR_BF16, 64, 16, 0, false, false, "own.attention"}, /* to both sides */
                {IR_BF16, 64, 16, 0, true, false, "cudnn.attention"},
                {IR_BF16, 64, 0, 60, true, false, "cudnn.attention"},
                {IR_BF16, 64, 0, -1, true, false, "own.attention"}, /* query 0 sees no key */
                {IR_BF16, 64, 16, 15, true, false, "cudnn.attention"},
                {IR_BF16, 64, 16, 16, true, false, "own.attention"}, /* the last one sees none */
                {IR_BF16, 64, 0, 0, false, true, "own.attention"}};
    ir_value_t mask = ir_b_input(&b, "mask", ir_type_make(IR_BOOL, 2, (int64_t[]){128, 128}), -1);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char name[2] = {(char)('a' + i), 0};
        ir_value_t q = ir_b_input(
            &b, name, ir_type_make(rows[i].dtype, 4, (int64_t[]){2, 4, 128, rows[i].d}), 0);
        ir_value_t o = ir_b_node(
            &b, IR_OP_ATTENTION, 3 + rows[i].masked, (ir_value_t[]){q, q, q, mask}, 3,
            (ir_arg_t[]){IR_ARG_INT("window", rows[i].window), IR_ARG_INT("offset", rows[i].offset),
                         IR_ARG_BOOL("causal", rows[i].causal)});
        if (b.status != ST_OK) fail_msg("%s", st_last_error());
        assert_string_equal(cost_of(t, b.graph, o).kernel, rows[i].kernel);
    }
    /* the simple kernel's own rate, not that of attention: f32, d = 60 and 2 x 4 heads of 128
     * queries */
    ir_value_t slow =
        ir_b_input(&b, "slow", ir_type_make(IR_F32, 4, (int64_t[]){2, 4, 128, 60}), 0);
    slow = ir_b_node(&b, IR_OP_ATTENTION, 3, (ir_value_t[]){slow, slow, slow}, 0, NULL);
    assert_int_equal(b.status, ST_OK);
    ir_cost_t cost = cost_of(t, b.graph, slow);
    assert_near(cost.us, 1.5 + 8 * 128 * 128 * (2 * 120 + 5) / 2e3, 1e-6);
    assert_string_equal(cost.limit, "compute");
    ir_value_t image = ir_b_input(&b, "image", ir_type_make(IR_F32, 4, (int64_t[]){2, 8, 6, 6}), 0);
    ir_value_t taps = ir_b_parameter(&b, "taps", ir_type_make(IR_F32, 4, (int64_t[]){8, 8, 3, 3}));
    ir_value_t bias = ir_b_parameter(&b, "bias", ir_type_make(IR_F32, 1, (int64_t[]){8}));
    static const int64_t one[] = {1, 1};
    const ir_arg_t plain[] = {IR_ARG_INTS("strides", one, 2), IR_ARG_INTS("dilations", one, 2),
                              IR_ARG_INTS("pads_low", one, 2), IR_ARG_INTS("pads_high", one, 2)};
    for (uint32_t n = 2; n <= 3; n++) {
        ir_value_t y = ir_b_node(&b, IR_OP_CONV, n, (ir_value_t[]){image, taps, bias}, 4, plain);
        if (b.status != ST_OK) fail_msg("%s", st_last_error());
        assert_string_equal(cost_of(t, b.graph, y).kernel, n == 2 ? "cudnn.conv" : "own.conv");
    }
    ir_type_t integers = ir_type_make(IR_I32, 2, (int64_t[]){4, 4}), out = integers;
    ir_attr_t no[2] = {{.kind = IR_ATTR_BOOL}, {.kind = IR_ATTR_BOOL}};
    ir_op_ctx_t ctx = {IR_OP_MATMUL, 2, 1, (ir_type_t[]){integers, integers}, no, ""};
    assert_false(ask.can_run(ask.context, &ctx, &out, &reason));
    assert_string_equal(reason, "no kernel on h200 for matmul; cublaslt.matmul: not for i32");
    ir_graph_destroy(b.graph);
    target_destroy(t);
}

/* The measured shapes of the H200 are in its description: 16384 x 2048 x 8192 at 731 TFLOP/s. */
static void test_h200(void **state) {
    (void)state;
    target_t *t;
    ir_build_t b = {0};
    assert_int_equal(target_open("h200", &t), ST_OK);
    assert_int_equal(ir_graph_create("g", &b.graph), ST_OK);
    ir_value_t x = ir_b_input(&b, "x", ir_type_make(IR_BF16, 2, (int64_t[]){16384, 2048}), 0);
    ir_value_t w = ir_b_input(&b, "w", ir_type_make(IR_BF16, 2, (int64_t[]){2048, 8192}), 0);
    ir_cost_t cost = cost_of(t, b.graph, ir_b_matmul(&b, x, w, false, false));
    assert_int_equal(b.status, ST_OK);
    assert_near(cost.flop / cost.us * 1e-6, 731, 10);
    assert_true(target_peak_gflops(t, IR_BF16) == 767e3);
    assert_true(t->machine.memory_bytes > (uint64_t)139 << 30);
    ir_graph_destroy(b.graph);
    target_destroy(t);
}

/* Each op that does something has a kernel on each built-in GPU target for some element type, or
 * stands here with its reason. */
static void test_complete(void **state) {
    (void)state;
    static const ir_op_t never[] = {
        IR_OP_REDUCE_MEAN, IR_OP_CROSS_ENTROPY, IR_OP_BATCH_NORM, /* expanded before */
    };
    for (const target_builtin_t *builtin = target_builtins; builtin->name; builtin++) {
        target_t *t;
        assert_int_equal(target_open(builtin->name, &t), ST_OK);
        for (int op = 1; op < IR_OP_END && t->n_kernels; op++) {
            const ir_op_def_t *def = ir_op_def((ir_op_t)op);
            bool listed = false, skipped = false;
            if (!def || def->flags & (IR_SOURCE | IR_VIEW | IR_COLLECTIVE) || op == IR_OP_UPDATE)
                continue;
            for (uint32_t k = 0; k < t->n_kernels; k++) listed |= t->kernels[k].ops[op];
            for (size_t i = 0; i < sizeof never / sizeof never[0]; i++)
                skipped |= never[i] == (ir_op_t)op;
            if (!listed && !skipped) fail_msg("%s has no kernel for %s", builtin->name, def->name);
        }
        target_destroy(t);
    }
}

enum { N_THREADS = 8, N_ROUNDS = 50 };

/* Each thread binds its own: nobody sees another's threads or ranks. */
static void *open_many(void *argument) {
    uint32_t own = *(uint32_t *)argument;
    for (int i = 0; i < N_ROUNDS; i++)
        for (const target_builtin_t *b = target_builtins; b->name; b++) {
            target_t *t;
            if (target_open(b->name, &t) != ST_OK) return "it does not open";
            bool cpu = strcmp(b->name, "cpu") == 0;
            ir_mesh_t mesh = ir_mesh_of_ranks(own);
            target_bind(t, &mesh, own);
            if (t->machine.n_ranks != own || t->machine.n_threads != (cpu ? own : 1) || !t->builtin)
                return "it is not its own";
            target_destroy(t);
        }
    return NULL;
}

/* Built-in descriptions are parsed once a process: what one target points to another does. */
static void test_parsed_once(void **state) {
    (void)state;
    pthread_t threads[N_THREADS];
    uint32_t numbers[N_THREADS];
    for (uint32_t i = 0; i < N_THREADS; i++) {
        numbers[i] = i + 2;
        assert_int_equal(pthread_create(&threads[i], NULL, open_many, &numbers[i]), 0);
    }
    for (uint32_t i = 0; i < N_THREADS; i++) {
        void *says;
        assert_int_equal(pthread_join(threads[i], &says), 0);
        if (says) fail_msg("%s", (const char *)says);
    }
    target_t *a, *b;
    assert_int_equal(target_open("cpu", &a), ST_OK);
    assert_int_equal(target_open("cpu", &b), ST_OK);
    assert_true(a != b && a->rates == b->rates && a->machine.n_threads == 1);
    target_destroy(a);
    assert_true(b->rates[0].ns > 0);
    target_destroy(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parsed_once),  cmocka_unit_test(test_reads),
        cmocka_unit_test(test_link_overlap), cmocka_unit_test(test_host_links),
        cmocka_unit_test(test_refuses),      cmocka_unit_test(test_roofline),
        cmocka_unit_test(test_rates),        cmocka_unit_test(test_collective),
        cmocka_unit_test(test_fused),        cmocka_unit_test(test_chooses),
        cmocka_unit_test(test_h200),         cmocka_unit_test(test_complete),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
