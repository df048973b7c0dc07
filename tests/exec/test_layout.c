/* Channels last: a model whose convolutions and pools are so trains alike on any number of ranks,
 * and a plan whose target favours it computes what one with the model's own order does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "exec/models.h"
#include "ir/text.h"
#include "support/scratch.h"

/* Sums of some hundred terms near 1, a few steps: errors of 1e-15 grow to less than 1e-11. */
static const double tolerance = 1e-11;

static const char model_last[] =
    "graph \"last\" {\n"
    "  %0 x = input {dtype=f32, shape=[6,9,8,4]}\n"
    "  %1 w = parameter {dtype=f32, shape=[6,3,3,2]}\n"
    "  %2 b = parameter {dtype=f32, shape=[6]}\n"
    "  %3 v = parameter {dtype=f32, shape=[6,2,2,5]}\n"
    "  %4 = conv(%0, %1, %2) {strides=[1,2], pads_low=[1,1], pads_high=[1,0], dilations=[1,1], "
    "groups=2, channels_last=true}\n"
    "  %5 = tanh(%4)\n"
    "  %6, %7 = max_pool(%5) {kernel=[3,2], strides=[2,1], pads_low=[1,0], pads_high=[1,0], "
    "dilations=[1,1], channels_last=true}\n"
    "  %8 = avg_pool(%6) {kernel=[2,2], strides=[1,1], pads_low=[0,1], pads_high=[0,0], "
    "channels_last=true}\n"
    "  %9 = conv_grad_input(%8, %3) {strides=[2,1], pads_low=[0,1], pads_high=[0,0], "
    "dilations=[1,1], spatial=[9,3], channels_last=true}\n"
    "  %10 = square(%9)\n"
    "  %11 = reduce_mean(%10) {axes=[0,1,2,3]}\n"
    "  output \"loss\" = %11\n"
    "}\n";

/* Three steps of a plan, which is destroyed: its values become *first, or are equal to them. */
static void run_as_first(plan_t *plan, const char *what, double **first) {
    double *values;
    size_t n = run_plan(plan, 3, &values);
    if (*first)
        assert_close(n, *first, values, tolerance, what);
    else
        *first = values;
    if (*first != values) st_free(values);
    plan_destroy(plan);
}

static void channels_last_models_train_alike_on_1_to_4_ranks(void **state) {
    (void)state;
    ir_graph_t *forward = NULL;
    double *first = NULL;
    assert_ok(ir_graph_parse(model_last, strlen(model_last), &forward));
    ir_graph_t *graph = model_train(forward, "sgd", 1.0);
    for (uint32_t ranks = 1; ranks <= 4; ranks++)
        for (int reference = 0; reference < 2; reference++) {
            compile_options_t options = {
                .n_ranks = ranks, .dtype = IR_F64, .reference_kernels = reference};
            plan_t *plan = compile_ok(graph, &options);
            char what[64];
            snprintf(what, sizeof what, "%u ranks, %s kernels", ranks,
                     reference ? "reference" : "fast");
            run_as_first(plan, what, &first);
        }
    st_free(first);
    ir_graph_destroy(graph);
    ir_graph_destroy(forward);
}

/* This processor, but with convolutions that are slow with channels first. */
static const char *eager_target(void) {
    static const char *const ops[] = {"conv", "conv_grad_input", "conv_grad_weight"};
    const char *path = scratch("eager.target");
    size_t bytes;
    char *text = (char *)slurp(STATOR_SOURCE_DIR "/targets/cpu.target", &bytes);
    FILE *file = fopen(path, "w");
    assert_non_null(text);
    assert_non_null(file);
    for (const char *at = text, *end; at < text + bytes; at = end + 1) {
        end = memchr(at, '\n', (size_t)(text + bytes - at));
        if (strncmp(at, "rate conv", 9) != 0) fprintf(file, "%.*s\n", (int)(end - at), at);
    }
    for (int i = 0; i < 3; i++)
        for (int last = 0; last < 2; last++)
            fprintf(file, "rate %s%s f64 n=4 c=4 o=4 p=64 i=64 r=9 gflops=%s\n", ops[i],
                    last ? ".last" : "", last ? "1000" : "0.001");
    assert_int_equal(fclose(file), 0);
    free(text);
    return path;
}

/* Convolutions of the first program with channels last. */
static int n_turned(const plan_t *plan, int *out_all) {
    const ir_graph_t *graph = plan->programs[0].graph;
    int n = 0;
    *out_all = 0;
    for (ir_node_t i = 0; i < graph->nodes.n; i++) {
        const ir_node_info_t *node = ir_node(graph, i);
        if (node->op < IR_OP_CONV || node->op > IR_OP_CONV_GRAD_WEIGHT) continue;
        *out_all += 1;
        n += ir_attr_int(node, "channels_last") != 0;
    }
    return n;
}

static void turned_plans_compute_what_others_do(void **state) {
    (void)state;
    const char *target = eager_target();
    ir_graph_t *forward = model_conv(6), *graph = model_train(forward, "sgd", 1.0);
    double *first = NULL;
    for (uint32_t ranks = 1; ranks <= 4; ranks++)
        for (int how = 0; how < 3; how++) { /* as it is, turned, turned and fused */
            compile_options_t options = {.n_ranks = ranks,
                                         .dtype = IR_F64,
                                         .target = target,
                                         .no_layout = how == 0,
                                         .no_fusion = how < 2};
            plan_t *plan = compile_ok(graph, &options);
            char what[64];
            int all, turned = n_turned(plan, &all);
            assert_int_equal(turned, how ? all : 0);
            assert_int_equal(all, 5); /* two forward, two for weights, one for an input */
            snprintf(what, sizeof what, "%u ranks, way %d", ranks, how);
            run_as_first(plan, what, &first);
        }
    st_free(first);
    ir_graph_destroy(graph);
    ir_graph_destroy(forward);
}

/* On a processor whose convolutions take as long either way nothing turns. */
static void processors_keep_the_models_order(void **state) {
    (void)state;
    ir_graph_t *forward = model_conv(6), *graph = model_train(forward, "sgd", 0);
    compile_options_t options = {.n_ranks = 1};
    plan_t *plan = compile_ok(graph, &options);
    int all;
    assert_int_equal(n_turned(plan, &all), 0);
    assert_int_equal(all, 5);
    plan_destroy(plan);
    ir_graph_destroy(graph);
    ir_graph_destroy(forward);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(channels_last_models_train_alike_on_1_to_4_ranks),
        cmocka_unit_test(turned_plans_compute_what_others_do),
        cmocka_unit_test(processors_keep_the_models_order),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
