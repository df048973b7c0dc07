/* The stem pass: text in, text out; other geometries keep their values. */
#include <string.h>

#include "fusion/stem.h"
#include "interpret.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "support/scratch.h"

/* Convolutions over few channels are slow. */
static void cost(void *context, const ir_op_ctx_t *ctx, const ir_type_t *out_types,
                 ir_cost_t *out) {
    const double *slow = context;
    (void)out_types;
    *out = (ir_cost_t){.us = ctx->in[0].dims[3] < 8 ? *slow : 10};
}
static bool can_run(void *context, const ir_op_ctx_t *ctx, const ir_type_t *out_types,
                    const char **out_reason) {
    (void)context, (void)ctx, (void)out_types;
    *out_reason = "";
    return true;
}

static const ir_machine_t gpu = {.name = "gpu", .device = "gpu", .launch_us = 1};
static const ir_machine_t cpu = {.name = "cpu", .device = "cpu", .launch_us = 1};
static double slow = 100, fast = 10;
static const ir_target_t slow_gpu = {
    .name = "gpu", .context = &slow, .machine = &gpu, .cost = cost, .can_run = can_run};
static const ir_target_t fast_gpu = {
    .name = "gpu", .context = &fast, .machine = &gpu, .cost = cost, .can_run = can_run};
static const ir_target_t slow_cpu = {
    .name = "cpu", .context = &slow, .machine = &cpu, .cost = cost, .can_run = can_run};

static ir_graph_t *apply(const ir_graph_t *graph, const ir_target_t *target) {
    bool marks[64];
    ir_graph_t *made;
    assert_true(graph->nodes.n <= 64);
    assert_ok(stem_decide(graph, target, marks));
    assert_ok(stem_apply(marks, graph, &made));
    assert_ok(ir_graph_verify(made));
    return made;
}

static ir_graph_t *parse(const char *statements) {
    char text[4096];
    snprintf(text, sizeof text, "graph \"g\" {\n%s}\n", statements);
    return interpret_parse(text);
}

static void expect(const ir_target_t *target, const char *before, const char *after) {
    ir_graph_t *graph = parse(before), *made = apply(graph, target), *model = parse(after);
    char *got, *wanted;
    assert_ok(ir_graph_print(made, &got));
    assert_ok(ir_graph_print(model, &wanted));
    assert_string_equal(got, wanted);
    assert_true(interpret_difference(graph, made, 1) <= 1e-12);
    st_free(got);
    st_free(wanted);
    ir_graph_destroy(graph);
    ir_graph_destroy(made);
    ir_graph_destroy(model);
}

static const char before[] =
    "  %0 x = input {dtype=f64, shape=[2,3,8,12]}\n"
    "  %1 w = parameter {dtype=f64, shape=[5,3,7,7]}\n"
    "  %2 dy = input {dtype=f64, shape=[2,5,4,6]}\n"
    "  %3 = conv(%0, %1) {strides=[2,2], pads_low=[3,3], pads_high=[3,3], dilations=[1,1]}\n"
    "  %4 = conv_grad_weight(%0, %2) {strides=[2,2], pads_low=[3,3], pads_high=[3,3], "
    "dilations=[1,1], kernel=[7,7]}\n"
    "  output \"y\" = %3\n"
    "  output \"dw\" = %4\n";

static void three_channels_become_blocks(void **state) {
    (void)state;
    expect(&slow_gpu, before,
           "  %0 x = input {dtype=f64, shape=[2,3,8,12]}\n"
           "  %1 w = parameter {dtype=f64, shape=[5,3,7,7]}\n"
           "  %2 dy = input {dtype=f64, shape=[2,5,4,6]}\n"
           "  %3 = constant {dtype=i32, shape=[4], data=[0,1,2,0]}\n"
           "  %4 = gather(%0, %3) {axis=1}\n"
           "  %5 = constant {dtype=bool, shape=[4,1,1], data=[true,true,true,false]}\n"
           "  %6 = constant {dtype=f64, shape=[], data=0}\n"
           "  %7 = select(%5, %4, %6)\n"
           "  %8 = reshape(%7) {shape=[2,4,4,2,6,2]}\n"
           "  %9 = transpose(%8) {perm=[0,2,4,3,5,1]}\n"
           "  %10 = reshape(%9) {shape=[2,4,6,16]}\n"
           "  %11 = pad(%1) {low=[0,0,1,1], high=[0,1,0,0]}\n"
           "  %12 = reshape(%11) {shape=[5,4,4,2,4,2]}\n"
           "  %13 = transpose(%12) {perm=[0,2,4,3,5,1]}\n"
           "  %14 = reshape(%13) {shape=[5,4,4,16]}\n"
           "  %15 = conv(%10, %14) {strides=[1,1], pads_low=[2,2], pads_high=[1,1], "
           "dilations=[1,1], channels_last=true}\n"
           "  %16 = transpose(%15) {perm=[0,3,1,2]}\n"
           "  %17 = transpose(%2) {perm=[0,2,3,1]}\n"
           "  %18 = conv_grad_weight(%10, %17) {strides=[1,1], pads_low=[2,2], pads_high=[1,1], "
           "dilations=[1,1], kernel=[4,4], channels_last=true}\n"
           "  %19 = reshape(%18) {shape=[5,4,4,2,2,4]}\n"
           "  %20 = transpose(%19) {perm=[0,5,1,3,2,4]}\n"
           "  %21 = reshape(%20) {shape=[5,4,8,8]}\n"
           "  %22 = slice(%21) {begin=[0,0,0,0], end=[5,3,8,8], step=[1,1,1,1]}\n"
           "  %23 = slice(%22) {begin=[0,0,1,0], end=[5,3,8,8], step=[1,1,1,1]}\n"
           "  %24 = slice(%23) {begin=[0,0,0,1], end=[5,3,7,8], step=[1,1,1,1]}\n"
           "  output \"y\" = %16\n"
           "  output \"dw\" = %24\n");
}

/* Over the same pixels, with blocks of equal depth: 3 x 3 x 8 channels and 6 x 6 x 2. */
static void strides_with_blocks_of_one_depth_have_their_own_blocks(void **state) {
    (void)state;
    expect(&slow_gpu,
           "  %0 x = input {dtype=f64, shape=[2,1,12,6]}\n"
           "  %1 v = parameter {dtype=f64, shape=[5,1,3,3]}\n"
           "  %2 w = parameter {dtype=f64, shape=[5,1,6,6]}\n"
           "  %3 = conv(%0, %1) {strides=[3,3], pads_low=[0,0], pads_high=[0,0], "
           "dilations=[1,1]}\n"
           "  %4 = conv(%0, %2) {strides=[6,6], pads_low=[0,0], pads_high=[0,0], "
           "dilations=[1,1]}\n"
           "  output \"y\" = %3\n"
           "  output \"z\" = %4\n",
           "  %0 x = input {dtype=f64, shape=[2,1,12,6]}\n"
           "  %1 v = parameter {dtype=f64, shape=[5,1,3,3]}\n"
           "  %2 w = parameter {dtype=f64, shape=[5,1,6,6]}\n"
           "  %3 = constant {dtype=i32, shape=[8], data=[0,0,0,0,0,0,0,0]}\n"
           "  %4 = gather(%0, %3) {axis=1}\n"
           "  %5 = constant {dtype=bool, shape=[8,1,1], "
           "data=[true,false,false,false,false,false,false,false]}\n"
           "  %6 = constant {dtype=f64, shape=[], data=0}\n"
           "  %7 = select(%5, %4, %6)\n"
           "  %8 = reshape(%7) {shape=[2,8,4,3,2,3]}\n"
           "  %9 = transpose(%8) {perm=[0,2,4,3,5,1]}\n"
           "  %10 = reshape(%9) {shape=[2,4,2,72]}\n"
           "  %11 = pad(%1) {low=[0,0,0,0], high=[0,7,0,0]}\n"
           "  %12 = reshape(%11) {shape=[5,8,1,3,1,3]}\n"
           "  %13 = transpose(%12) {perm=[0,2,4,3,5,1]}\n"
           "  %14 = reshape(%13) {shape=[5,1,1,72]}\n"
           "  %15 = conv(%10, %14) {strides=[1,1], pads_low=[0,0], pads_high=[0,0], "
           "dilations=[1,1], channels_last=true}\n"
           "  %16 = transpose(%15) {perm=[0,3,1,2]}\n"
           "  %17 = constant {dtype=i32, shape=[2], data=[0,0]}\n"
           "  %18 = gather(%0, %17) {axis=1}\n"
           "  %19 = constant {dtype=bool, shape=[2,1,1], data=[true,false]}\n"
           "  %20 = constant {dtype=f64, shape=[], data=0}\n"
           "  %21 = select(%19, %18, %20)\n"
           "  %22 = reshape(%21) {shape=[2,2,2,6,1,6]}\n"
           "  %23 = transpose(%22) {perm=[0,2,4,3,5,1]}\n"
           "  %24 = reshape(%23) {shape=[2,2,1,72]}\n"
           "  %25 = pad(%2) {low=[0,0,0,0], high=[0,1,0,0]}\n"
           "  %26 = reshape(%25) {shape=[5,2,1,6,1,6]}\n"
           "  %27 = transpose(%26) {perm=[0,2,4,3,5,1]}\n"
           "  %28 = reshape(%27) {shape=[5,1,1,72]}\n"
           "  %29 = conv(%24, %28) {strides=[1,1], pads_low=[0,0], pads_high=[0,0], "
           "dilations=[1,1], channels_last=true}\n"
           "  %30 = transpose(%29) {perm=[0,3,1,2]}\n"
           "  output \"y\" = %16\n"
           "  output \"z\" = %30\n");
}

/* No gain, or a processor, whose sums keep their order. */
static void others_stay(void **state) {
    (void)state;
    expect(&fast_gpu, before, before);
    expect(&slow_cpu, before, before);
}

static void every_geometry_keeps_its_values(void **state) {
    (void)state;
    int turned = 0, stayed = 0;
    for (int kernel = 1; kernel <= 7; kernel++)
        for (int stride = 2; stride <= 4; stride++)
            for (int low = 0; low <= 4; low++)
                for (int high = 0; high <= 3; high++) {
                    char text[1024];
                    const int in = 24, out = (in + low + high - kernel) / stride + 1;
                    if (low >= kernel || high >= kernel) continue;
                    snprintf(
                        text, sizeof text,
                        "  %%0 x = input {dtype=f64, shape=[1,2,%d,12]}\n"
                        "  %%1 w = parameter {dtype=f64, shape=[3,2,%d,2]}\n"
                        "  %%2 dy = input {dtype=f64, shape=[1,3,%d,%d]}\n"
                        "  %%3 = conv(%%0, %%1) {strides=[%d,%d], pads_low=[%d,1], "
                        "pads_high=[%d,1], dilations=[1,1]}\n"
                        "  %%4 = conv_grad_weight(%%0, %%2) {strides=[%d,%d], pads_low=[%d,1], "
                        "pads_high=[%d,1], dilations=[1,1], kernel=[%d,2]}\n"
                        "  output \"y\" = %%3\n"
                        "  output \"dw\" = %%4\n",
                        in, kernel, out, (12 + 2 - 2) / stride + 1, stride, stride, low, high,
                        stride, stride, low, high, kernel);
                    ir_graph_t *graph = parse(text), *made = apply(graph, &slow_gpu);
                    const bool is_turned = count_ops(made, "reshape") > 0;
                    turned += is_turned;
                    stayed += !is_turned;
                    double difference = interpret_difference(graph, made, 3);
                    if (!(difference <= 1e-12)) fail_msg("%s differs by %g", text, difference);
                    ir_graph_destroy(graph);
                    ir_graph_destroy(made);
                }
    print_message("%d turned, %d stayed\n", turned, stayed);
    assert_true(turned > 4 * stayed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(three_channels_become_blocks),
        cmocka_unit_test(strides_with_blocks_of_one_depth_have_their_own_blocks),
        cmocka_unit_test(others_stay),
        cmocka_unit_test(every_geometry_keeps_its_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
