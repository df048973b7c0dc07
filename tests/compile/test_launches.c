/* What a made plan is predicted to take where a GPU runs nests: launch by launch, each with what it
 * moves. The description's rates are set to round numbers, and what comes out is worked out by
 * hand. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "compile/target.h"
#include "ir/node_ctx.h"
#include "ir/text.h"

/* Bytes come at 1 TB/s, of 4 MiB or less at 2; a launch takes 10 us, one that joins parts 1. */
static const double US = 10, US_FINISH = 1, BYTES_A_US = 1e6;

static target_t *target_of(const char *name) {
    target_t *t;
    if (target_open(name, &t) != ST_OK) fail_msg("%s", st_last_error());
    for (int shape = 0; shape < KERN_SHAPES; shape++)
        t->nests[shape] =
            (target_nest_t){shape == KERN_SHAPE_FINISH ? US_FINISH : US, BYTES_A_US * 1e-3};
    assert_true(t->n_bandwidths >= 3);
    for (uint32_t i = 0; i < t->n_bandwidths; i++) t->bandwidths[i].gbps = i ? 1000 : 2000;
    return t;
}

/* Of the body's node, which is the graph's last: what fusion is told, and what is predicted. */
static void costs_of(const target_t *t, const char *text, double far, ir_cost_t *out_judged,
                     ir_cost_t *out_predicted) {
    ir_graph_t *graph;
    ir_node_ctx_t ctx;
    if (ir_graph_parse(text, strlen(text), &graph) != ST_OK) fail_msg("%s", st_last_error());
    assert_int_equal(ir_node_ctx_open(&ctx, graph, (ir_node_t)graph->nodes.n - 1), ST_OK);
    target_cost_at(t, &ctx.op, ctx.out, far, out_judged);
    assert_int_equal(out_judged->status, ST_OK);
    *out_predicted = *out_judged;
    if (target_count_launches(t, &ctx.op, ctx.out, far, out_predicted) != ST_OK)
        fail_msg("%s", st_last_error());
    ir_node_ctx_close(&ctx);
    ir_graph_destroy(graph);
}

static void near_to(double value, double least, double most) {
    if (!(value >= least && value <= most))
        fail_msg("%.9g is not in %.9g to %.9g", value, least, most);
}

/* Columns less their sums. */
static const char *columns_text(char *text, size_t capacity, int64_t rows, int64_t columns) {
    snprintf(text, capacity,
             "graph \"g\" {\n"
             "  %%0 x = input {dtype=f32, shape=[%lld,%lld]}\n"
             "  %%1 = fused(%%0) {body=graph \"\" {\n"
             "    %%0 x = input {dtype=f32, shape=[%lld,%lld], batch_axis=-1}\n"
             "    %%1 = reduce_sum(%%0) {axes=[0]}\n"
             "    %%2 = sub(%%0, %%1)\n"
             "    output \"0\" = %%2\n"
             "  }}\n"
             "  output \"y\" = %%1\n"
             "}\n",
             (long long)rows, (long long)columns, (long long)rows, (long long)columns);
    return text;
}

/* Sums over columns that go back to all rows take their operand a second time, which no cache
 * holds: three times the bytes come and go, in three launches. What fusion is told is two times, in
 * as many. */
static void columns_are_read_twice(void **state) {
    (void)state;
    char text[1024];
    target_t *t = target_of("h200");
    ir_cost_t judged, predicted;
    const double x = 16384.0 * 4096 * 4, fixed = 2 * US + US_FINISH;
    costs_of(t, columns_text(text, sizeof text, 16384, 4096), 0, &judged, &predicted);
    assert_string_equal(judged.kernel, "nest");
    assert_int_equal(judged.launches, 3);
    near_to(judged.us, 2 * x / BYTES_A_US, 2 * x / BYTES_A_US + 10);
    near_to(predicted.us, fixed + 3 * x / BYTES_A_US, fixed + 3.2 * x / BYTES_A_US);
    assert_string_equal(predicted.limit, "memory");
    assert_true(predicted.bytes_read == judged.bytes_read && predicted.launches == 3);
    target_destroy(t);
}

/* What the cache still has comes from there, however far away it was before. */
static void what_is_small_comes_from_the_cache(void **state) {
    (void)state;
    char text[1024];
    target_t *t = target_of("h200");
    ir_cost_t judged, predicted;
    const double x = 2048.0 * 256 * 4, fixed = 2 * US + US_FINISH;
    costs_of(t, columns_text(text, sizeof text, 2048, 256), 1e9, &judged, &predicted);
    /* read from afar, read again from near, written afar; besides parts of sums, 0.1 of x at
     * most */
    near_to(predicted.us, fixed + 2.5 * x / BYTES_A_US, fixed + 2.6 * x / BYTES_A_US);
    assert_string_equal(predicted.limit, "launch");
    target_destroy(t);
}

static void softmax_costs(const target_t *t, int rows, int columns, ir_cost_t *out_judged,
                          ir_cost_t *out_predicted) {
    char text[512];
    snprintf(text, sizeof text,
             "graph \"g\" {\n"
             "  %%0 x = input {dtype=f32, shape=[%d,%d]}\n"
             "  %%1 = softmax(%%0) {axis=1}\n"
             "  output \"y\" = %%1\n"
             "}\n",
             rows, columns);
    costs_of(t, text, 0, out_judged, out_predicted);
}

/* Rows that stay in registers are read once, longer ones once more: of 132 multiprocessors' 4
 * blocks with a row of 256 KiB each, which is beyond 4 MiB. */
static void rows_are_read_as_often_as_they_are_needed(void **state) {
    (void)state;
    target_t *t = target_of("h200");
    ir_cost_t judged, predicted;
    double x = 65536.0 * 512 * 4;
    softmax_costs(t, 65536, 512, &judged, &predicted);
    assert_int_equal(predicted.launches, 1);
    near_to(predicted.us, US + 2 * x / BYTES_A_US - 1e-6, US + 2 * x / BYTES_A_US + 1e-6);
    x = 2048.0 * 65536 * 4;
    softmax_costs(t, 2048, 65536, &judged, &predicted);
    assert_int_equal(predicted.launches, 1);
    near_to(predicted.us, US + 3 * x / BYTES_A_US - 1e-6, US + 3 * x / BYTES_A_US + 1e-6);
    target_destroy(t);
}

/* Other kernels and other devices are predicted as they are judged. */
static void others_stay(void **state) {
    (void)state;
    static const char product[] =
        "graph \"g\" {\n"
        "  %0 x = input {dtype=bf16, shape=[512,512]}\n"
        "  %1 = matmul(%0, %0)\n"
        "  output \"y\" = %1\n"
        "}\n";
    char text[1024];
    target_t *t = target_of("h200"), *cpu;
    ir_cost_t judged, predicted;
    costs_of(t, product, 0, &judged, &predicted);
    assert_memory_equal(&judged, &predicted, sizeof judged);
    target_destroy(t);
    assert_int_equal(target_open("cpu", &cpu), ST_OK);
    costs_of(cpu, columns_text(text, sizeof text, 16384, 4096), 0, &judged, &predicted);
    assert_memory_equal(&judged, &predicted, sizeof judged);
    target_destroy(cpu);
}

/* A description without rows of its own: launch_us and the bandwidth far from all caches. */
static void left_out_is_launch_and_bandwidth(void **state) {
    (void)state;
    target_t *t;
    assert_int_equal(target_open("a100", &t), ST_OK);
    for (int shape = 0; shape < KERN_SHAPES; shape++)
        assert_true(t->nests[shape].us == t->machine.launch_us &&
                    t->nests[shape].gbps == t->bandwidths[t->n_bandwidths - 1].gbps);
    target_destroy(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(columns_are_read_twice),
        cmocka_unit_test(what_is_small_comes_from_the_cache),
        cmocka_unit_test(rows_are_read_as_often_as_they_are_needed),
        cmocka_unit_test(others_stay),
        cmocka_unit_test(left_out_is_launch_and_bandwidth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
