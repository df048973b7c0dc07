/* Reports: rows that sum up, a peak that agrees with the packer's bound, operations counted by
 * hand. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "autodiff/train_graph.h"
#include "base/memory.h"
#include "compile/compile.h"
#include "compile/predict.h"
#include "compile/report.h"
#include "ir/build.h"
#include "ir/text.h"

enum { BATCH = 64, IN = 96, HIDDEN = 160, CLASSES = 10 };

/* Two layers with relu, cross entropy, AdamW. */
static ir_graph_t *training_graph(void) {
    ir_build_t b = {0};
    ir_graph_t *step;
    assert_int_equal(ir_graph_create("mlp", &b.graph), ST_OK);
    ir_value_t x = ir_b_input(&b, "x", ir_type_make(IR_F32, 2, (int64_t[]){BATCH, IN}), 0);
    ir_value_t y = ir_b_input(&b, "y", ir_type_make(IR_I64, 1, (int64_t[]){BATCH}), 0);
    ir_value_t w1 = ir_b_parameter(&b, "w1", ir_type_make(IR_F32, 2, (int64_t[]){IN, HIDDEN}));
    ir_value_t w2 = ir_b_parameter(&b, "w2", ir_type_make(IR_F32, 2, (int64_t[]){HIDDEN, CLASSES}));
    ir_value_t h = ir_b_unary(&b, IR_OP_RELU, ir_b_matmul(&b, x, w1, false, false));
    ir_value_t logits = ir_b_matmul(&b, h, w2, false, false);
    ir_value_t loss = ir_b_node(&b, IR_OP_CROSS_ENTROPY, 2, (ir_value_t[]){logits, y}, 0, NULL);
    assert_int_equal(b.status, ST_OK);
    assert_int_equal(ir_graph_add_output(b.graph, "loss", loss), ST_OK);
    ad_train_options_t options;
    assert_int_equal(ad_train_defaults("adamw", &options), ST_OK);
    assert_int_equal(ad_train_graph(b.graph, &options, &step), ST_OK);
    ir_graph_destroy(b.graph);
    return step;
}

static report_t *report_for(const char *target_name, uint32_t n_ranks, plan_t **out_plan) {
    ir_graph_t *step = training_graph();
    compile_options_t options = {.target = target_name, .n_ranks = n_ranks};
    target_t *target;
    report_t *report;
    if (compile_plan(step, &options, out_plan) != ST_OK) fail_msg("%s", st_last_error());
    assert_int_equal(predict_target(*out_plan, &target), ST_OK);
    assert_int_equal(report_make(*out_plan, target, n_ranks - 1, &report), ST_OK);
    target_destroy(target);
    ir_graph_destroy(step);
    return report;
}

static void test_memory(void **state) {
    (void)state;
    static const char *const targets[] = {"cpu", "h200"};
    for (int i = 0; i < 4; i++) {
        plan_t *plan;
        report_t *r = report_for(targets[i % 2], i < 2 ? 1 : 3, &plan);
        uint64_t sum[PLAN_REGION_END] = {0}, alive = 0;
        for (int k = 0; k < REPORT_KINDS; k++)
            sum[report_kind_region((report_kind_t)k)] += r->kind_bytes[k];
        for (int region = PLAN_STATE; region < PLAN_REGION_END; region++)
            assert_int_equal(sum[region], r->region_bytes[region]);
        alive = sum[PLAN_WORK] - r->kind_bytes[REPORT_GAPS];
        assert_int_equal(alive, r->live_bound_bytes);
        assert_int_equal(r->total_bytes,
                         sum[PLAN_STATE] + sum[PLAN_WORK] + sum[PLAN_COMM] + sum[PLAN_FEEDS]);
        /* two matrices, and two moments of each; all are multiples of the alignment */
        assert_int_equal(r->kind_bytes[REPORT_PARAMETERS], 4 * (IN * HIDDEN + HIDDEN * CLASSES));
        assert_true(r->kind_bytes[REPORT_MOMENTS] >= 2 * r->kind_bytes[REPORT_PARAMETERS]);
        report_destroy(r);
        plan_destroy(plan);
    }
}

/* x w1 and h w2 forward; dw2, dh and dw1 backward (x has no gradient). */
static void test_operations(void **state) {
    (void)state;
    plan_t *plan;
    report_t *r = report_for("cpu", 1, &plan);
    double first = 2.0 * BATCH * IN * HIDDEN, second = 2.0 * BATCH * HIDDEN * CLASSES;
    assert_true(r->model_flop == 2 * first + 3 * second);
    assert_true(r->product_flop == r->model_flop && r->flop > r->product_flop);
    double us = 0, flop = 0, bytes = 0;
    uint64_t calls = 0;
    for (uint32_t k = 0; k < r->n_kernels; k++) {
        us += r->kernels[k].us;
        flop += r->kernels[k].flop;
        bytes += r->kernels[k].bytes;
        calls += r->kernels[k].n_calls;
        if (k) assert_true(r->kernels[k - 1].us >= r->kernels[k].us);
    }
    assert_true(fabs(us - r->us) < 1e-9 * us && flop == r->flop && bytes == r->bytes_moved);
    assert_true(calls >= r->n_launches);
    assert_true(fabs(r->us_forward + r->us_backward + r->us_optimizer - r->us) < 1e-9 * us);
    assert_true(r->us_forward > 0 && r->us_backward > 0 && r->us_optimizer > 0);
    report_destroy(r);
    plan_destroy(plan);
}

/* A rank's share is its share of the batch; the link is counted apart. */
static void test_ranks(void **state) {
    (void)state;
    plan_t *one_plan, *four_plan;
    report_t *one = report_for("h200", 1, &one_plan), *four = report_for("h200", 4, &four_plan);
    assert_true(four->model_flop == one->model_flop / 4);
    assert_true(four->product_flop == one->product_flop / 4);
    assert_true(one->us_link == 0 && four->us_link > 0 && four->n_collectives > 0);
    report_destroy(one);
    report_destroy(four);
    plan_destroy(one_plan);
    plan_destroy(four_plan);
}

/* A description from a file goes with the plan, through its bytes too. */
static void test_description(void **state) {
    (void)state;
    const target_builtin_t *cpu = target_builtins;
    while (strcmp(cpu->name, "cpu") != 0) cpu++;
    char text[1 << 17], path[] = "mine.target";
    snprintf(text, sizeof text, "%.*s", (int)cpu->bytes, (const char *)cpu->text);
    char *name = strstr(text, "target cpu");
    assert_non_null(name);
    memcpy(name, "target own", 10);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
    ir_graph_t *step = training_graph();
    compile_options_t options = {.target = "./mine.target"};
    plan_t *plan, *again;
    uint8_t *data;
    size_t bytes;
    target_t *target;
    assert_int_equal(compile_plan(step, &options, &plan), ST_OK);
    assert_int_equal(remove(path), 0);
    assert_int_equal(plan_encode(plan, &data, &bytes), ST_OK);
    assert_int_equal(plan_decode(data, bytes, &again), ST_OK);
    assert_int_equal(predict_target(again, &target), ST_OK);
    assert_string_equal(target->machine.name, "own");
    target_destroy(target);
    st_free(data);
    plan_destroy(plan);
    plan_destroy(again);
    ir_graph_destroy(step);
}

/* A report is its own: the scratch at the peak is named when the plan is gone. */
static void test_outlives_the_plan(void **state) {
    (void)state;
    plan_t *plan;
    report_t *r = report_for("h200", 1, &plan);
    bool found = false;
    plan_destroy(plan);
    for (uint32_t i = 0; i < r->n_tensors; i++)
        if (r->tensors[i].kind == REPORT_WORKSPACE) {
            const char *kernel = strstr(r->tensors[i].what, ": ");
            assert_non_null(kernel);
            assert_true(kernel > r->tensors[i].what); /* behind its node */
            assert_string_equal(kernel, ": cublaslt.matmul");
            found = true;
        }
    assert_true(found);
    report_destroy(r);
}

/* Products in a loop's body count as often as it runs. */
static void test_loops(void **state) {
    (void)state;
    static const char text[] =
        "graph {\n"
        "  %x x = input {dtype=f32, shape=[7,6,6], batch_axis=1}\n"
        "  %h h = input {dtype=f32, shape=[6,6], batch_axis=0}\n"
        "  %y = repeat(%h, %x) {trip=7, carried=1, scanned=1, body=graph {\n"
        "    %h h = input {dtype=f32, shape=[6,6], batch_axis=-1}\n"
        "    %x x = input {dtype=f32, shape=[6,6], batch_axis=-1}\n"
        "    %m = matmul(%h, %h)\n    %s = add(%m, %x)\n    output y = %s\n  }}\n"
        "  output y = %y\n}\n";
    ir_graph_t *graph;
    plan_t *plan;
    target_t *target;
    report_t *r;
    compile_options_t options = {0};
    if (ir_graph_parse(text, strlen(text), &graph) != ST_OK) fail_msg("%s", st_last_error());
    if (compile_plan(graph, &options, &plan) != ST_OK) fail_msg("%s", st_last_error());
    assert_int_equal(predict_target(plan, &target), ST_OK);
    assert_int_equal(report_make(plan, target, 0, &r), ST_OK);
    assert_true(r->product_flop == 7 * 2.0 * 6 * 6 * 6);
    assert_true(r->flop > r->product_flop && r->model_flop == r->product_flop);
    report_destroy(r);
    target_destroy(target);
    plan_destroy(plan);
    ir_graph_destroy(graph);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_operations),
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_description),
        cmocka_unit_test(test_outlives_the_plan),
        cmocka_unit_test(test_loops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
