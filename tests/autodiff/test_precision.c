/* Mixed precision: text in, text out. */
#include "autodiff/precision.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "autodiff/train_graph.h"
#include "base/memory.h"
#include "ir/text.h"
#include "ir/verify.h"

static ir_graph_t *parse(const char *body) {
    char text[8192];
    ir_graph_t *graph;
    snprintf(text, sizeof text, "graph \"g\" producer \"p\" {\n%s}\n", body);
    if (ir_graph_parse(text, strlen(text), &graph) != ST_OK) fail_msg("%s", st_last_error());
    return graph;
}

/* `before` and `after` are the statements between the braces; `after` as the printer has it. */
static void assert_becomes(ir_dtype_t compute, const char *before, const char *after) {
    char expected[8192], *printed;
    ir_graph_t *graph = parse(before), *made;
    snprintf(expected, sizeof expected, "graph \"g\" producer \"p\" {\n%s}\n", after);
    if (ad_precision(graph, compute, &made) != ST_OK) fail_msg("%s", st_last_error());
    if (ir_graph_verify(made) != ST_OK) fail_msg("%s", st_last_error());
    assert_int_equal(ir_graph_print(made, &printed), ST_OK);
    assert_string_equal(printed, expected);
    st_free(printed);
    ir_graph_destroy(graph);
    ir_graph_destroy(made);
}

/* One cast of the parameter serves product and transposed copy, whatever moves it; the master goes
 * to the optimizer, which takes the gradient as it comes; outputs keep their type. */
static void a_parameter_is_cast_once(void **state) {
    (void)state;
    assert_becomes(IR_BF16,
                   "  %0 x = input {dtype=f32, shape=[8,4]}\n"
                   "  %1 w = parameter {dtype=f32, shape=[4,4]}\n"
                   "  %2 m = buffer {dtype=f32, shape=[4,4]}\n"
                   "  %3 lr = buffer {dtype=f64, shape=[]}\n"
                   "  %4 s = buffer {dtype=f32, shape=[]}\n"
                   "  %5 = matmul(%0, %1)\n"
                   "  %6 = relu(%5)\n"
                   "  %7 = matmul(%0, %6) {transpose_a=true}\n"
                   "  %8 = transpose(%1) {perm=[1,0]}\n"
                   "  %9 = matmul(%6, %8)\n"
                   "  %10 = sum_squares(%7)\n"
                   "  %11, %12 = sgd(%1, %7, %3, %4, %2) {momentum=0.9}\n"
                   "  update(%1, %11)\n"
                   "  update(%2, %12)\n"
                   "  output \"y\" = %9\n"
                   "  output \"norm\" = %10\n",
                   "  %0 x = input {dtype=f32, shape=[8,4]} : f32[8,4]\n"
                   "  %1 w = parameter {dtype=f32, shape=[4,4]} : f32[4,4]\n"
                   "  %2 m = buffer {dtype=f32, shape=[4,4]} : f32[4,4]\n"
                   "  %3 lr = buffer {dtype=f64, shape=[]} : f64[]\n"
                   "  %4 s = buffer {dtype=f32, shape=[]} : f32[]\n"
                   "  %5 = cast(%0) {dtype=bf16} : bf16[8,4]\n"
                   "  %6 = cast(%1) {dtype=bf16} : bf16[4,4]\n"
                   "  %7 = matmul(%5, %6) : bf16[8,4]\n"
                   "  %8 = relu(%7) : bf16[8,4]\n"
                   "  %9 = matmul(%5, %8) {transpose_a=true} : bf16[4,4]\n"
                   "  %10 = transpose(%1) {perm=[1,0]} : f32[4,4]\n"
                   "  %11 = transpose(%6) {perm=[1,0]} : bf16[4,4]\n"
                   "  %12 = matmul(%8, %11) : bf16[8,4]\n"
                   "  %13 = cast(%12) {dtype=f32} : f32[8,4]\n"
                   "  %14 = sum_squares(%9) : f32[]\n"
                   "  %15, %16 = sgd(%1, %9, %3, %4, %2) {momentum=0.9} : f32[4,4], f32[4,4]\n"
                   "  update(%1, %15)\n"
                   "  update(%2, %16)\n"
                   "  output \"y\" = %13\n"
                   "  output \"norm\" = %14\n");
}

/* Embedding rows are activations, norms keep their weights and statistics in f32, the loss is f32
 * with its gradient back in the compute dtype. */
static void activations_are_low_and_statistics_wide(void **state) {
    (void)state;
    assert_becomes(IR_BF16,
                   "  %0 ids = input {dtype=i64, shape=[6]}\n"
                   "  %1 labels = input {dtype=i64, shape=[6]}\n"
                   "  %2 e = parameter {dtype=f32, shape=[5,4]}\n"
                   "  %3 g = parameter {dtype=f32, shape=[4]}\n"
                   "  %4 = gather(%2, %0) {axis=0}\n"
                   "  %5, %6 = rms_norm(%4, %3)\n"
                   "  %7 = matmul(%5, %2) {transpose_b=true}\n"
                   "  %8, %9, %10 = cross_entropy_rows(%7, %1)\n"
                   "  %11 = reduce_sum(%8) {axes=[0]}\n"
                   "  %12 = constant {dtype=f32, shape=[], data=1}\n"
                   "  %13 = cross_entropy_grad(%12, %7, %1, %10)\n"
                   "  %14 = matmul(%13, %2)\n"
                   "  %15, %16 = rms_norm_grad(%14, %4, %6, %3)\n"
                   "  %17 = scatter_add(%15, %0) {axis=0, extent=5}\n"
                   "  %18 = matmul(%13, %5) {transpose_a=true}\n"
                   "  %19 = add(%17, %18)\n"
                   "  output \"loss\" = %11\n"
                   "  output \"grad.e\" = %19\n"
                   "  output \"grad.g\" = %16\n",
                   "  %0 ids = input {dtype=i64, shape=[6]} : i64[6]\n"
                   "  %1 labels = input {dtype=i64, shape=[6]} : i64[6]\n"
                   "  %2 e = parameter {dtype=f32, shape=[5,4]} : f32[5,4]\n"
                   "  %3 g = parameter {dtype=f32, shape=[4]} : f32[4]\n"
                   "  %4 = cast(%2) {dtype=bf16} : bf16[5,4]\n"
                   "  %5 = gather(%4, %0) {axis=0} : bf16[6,4]\n"
                   "  %6, %7 = rms_norm(%5, %3) : bf16[6,4], f32[6]\n"
                   "  %8 = matmul(%6, %4) {transpose_b=true} : bf16[6,5]\n"
                   "  %9, %10, %11 = cross_entropy_rows(%8, %1) : f32[6], f32[6], f32[6]\n"
                   "  %12 = reduce_sum(%9) {axes=[0]} : f32[]\n"
                   "  %13 = constant {dtype=f32, shape=[], data=1} : f32[]\n"
                   "  %14 = cross_entropy_grad(%13, %8, %1, %11) : bf16[6,5]\n"
                   "  %15 = matmul(%14, %4) : bf16[6,4]\n"
                   "  %16, %17 = rms_norm_grad(%15, %5, %7, %3) : bf16[6,4], f32[4]\n"
                   "  %18 = scatter_add(%16, %0) {axis=0, extent=5} : bf16[5,4]\n"
                   "  %19 = matmul(%14, %6) {transpose_a=true} : bf16[5,4]\n"
                   "  %20 = add(%18, %19) : bf16[5,4]\n"
                   "  %21 = cast(%20) {dtype=f32} : f32[5,4]\n"
                   "  output \"loss\" = %12\n"
                   "  output \"grad.e\" = %21\n"
                   "  output \"grad.g\" = %17\n");
}

/* Tables made of indices and constants are computed in f32 and follow what they meet; rotary ones
 * stay f32. */
static void static_values_stay_wide(void **state) {
    (void)state;
    assert_becomes(IR_BF16,
                   "  %0 x = input {dtype=f32, shape=[1,2,3,4]}\n"
                   "  %1 w = parameter {dtype=f32, shape=[4,4]}\n"
                   "  %2 = iota {dtype=f32, shape=[3,1], axis=0}\n"
                   "  %3 = constant {dtype=f32, shape=[1,2], data=[1,0.01]}\n"
                   "  %4 = matmul(%2, %3)\n"
                   "  %5 = cos(%4)\n"
                   "  %6 = sin(%4)\n"
                   "  %7 = matmul(%0, %1)\n"
                   "  %8 = rope(%7, %5, %6)\n"
                   "  %9 = reshape(%5) {shape=[1,1,3,2]}\n"
                   "  %10 = concat(%9, %9) {axis=3}\n"
                   "  %11 = mul(%8, %10)\n"
                   "  output \"y\" = %11\n",
                   "  %0 x = input {dtype=f32, shape=[1,2,3,4]} : f32[1,2,3,4]\n"
                   "  %1 w = parameter {dtype=f32, shape=[4,4]} : f32[4,4]\n"
                   "  %2 = iota {dtype=f32, shape=[3,1], axis=0} : f32[3,1]\n"
                   "  %3 = constant {dtype=f32, shape=[1,2], data=[1,0.01]} : f32[1,2]\n"
                   "  %4 = matmul(%2, %3) : f32[3,2]\n"
                   "  %5 = cos(%4) : f32[3,2]\n"
                   "  %6 = sin(%4) : f32[3,2]\n"
                   "  %7 = cast(%0) {dtype=bf16} : bf16[1,2,3,4]\n"
                   "  %8 = cast(%1) {dtype=bf16} : bf16[4,4]\n"
                   "  %9 = matmul(%7, %8) : bf16[1,2,3,4]\n"
                   "  %10 = rope(%9, %5, %6) : bf16[1,2,3,4]\n"
                   "  %11 = reshape(%5) {shape=[1,1,3,2]} : f32[1,1,3,2]\n"
                   "  %12 = concat(%11, %11) {axis=3} : f32[1,1,3,4]\n"
                   "  %13 = cast(%5) {dtype=bf16} : bf16[3,2]\n"
                   "  %14 = reshape(%13) {shape=[1,1,3,2]} : bf16[1,1,3,2]\n"
                   "  %15 = concat(%14, %14) {axis=3} : bf16[1,1,3,4]\n"
                   "  %16 = mul(%10, %15) : bf16[1,2,3,4]\n"
                   "  %17 = cast(%16) {dtype=f32} : f32[1,2,3,4]\n"
                   "  output \"y\" = %17\n");
}

/* What f16 cannot hold wins: 1e-8 would vanish, 1e6 overflow; 0.125 and -inf follow. */
static void constants_follow_if_they_fit(void **state) {
    (void)state;
    assert_becomes(IR_F16,
                   "  %0 x = input {dtype=f32, shape=[4,4]}\n"
                   "  %1 w = parameter {dtype=f32, shape=[4,4]}\n"
                   "  %2 = matmul(%0, %1)\n"
                   "  %3 = constant {dtype=f32, shape=[], data=0.125}\n"
                   "  %4 = constant {dtype=f32, shape=[], data=-inf}\n"
                   "  %5 = constant {dtype=f32, shape=[], data=1e-8}\n"
                   "  %6 = constant {dtype=f32, shape=[], data=1e6}\n"
                   "  %7 = mul(%2, %3)\n"
                   "  %8 = maximum(%7, %4)\n"
                   "  %9 = add(%8, %5)\n"
                   "  %10 = mul(%8, %6)\n"
                   "  output \"a\" = %9\n"
                   "  output \"b\" = %10\n",
                   "  %0 x = input {dtype=f32, shape=[4,4]} : f32[4,4]\n"
                   "  %1 w = parameter {dtype=f32, shape=[4,4]} : f32[4,4]\n"
                   "  %2 = cast(%0) {dtype=f16} : f16[4,4]\n"
                   "  %3 = cast(%1) {dtype=f16} : f16[4,4]\n"
                   "  %4 = matmul(%2, %3) : f16[4,4]\n"
                   "  %5 = constant {dtype=f32, shape=[], data=0.125} : f32[]\n"
                   "  %6 = constant {dtype=f32, shape=[], data=-inf} : f32[]\n"
                   "  %7 = constant {dtype=f32, shape=[], data=1e-08} : f32[]\n"
                   "  %8 = constant {dtype=f32, shape=[], data=1e+06} : f32[]\n"
                   "  %9 = cast(%5) {dtype=f16} : f16[]\n"
                   "  %10 = mul(%4, %9) : f16[4,4]\n"
                   "  %11 = cast(%6) {dtype=f16} : f16[]\n"
                   "  %12 = maximum(%10, %11) : f16[4,4]\n"
                   "  %13 = cast(%12) {dtype=f32} : f32[4,4]\n"
                   "  %14 = add(%13, %7) : f32[4,4]\n"
                   "  %15 = mul(%13, %8) : f32[4,4]\n"
                   "  output \"a\" = %14\n"
                   "  output \"b\" = %15\n");
}

/* Sums are f32, and what meets them; a cast to f32 is a demand, though the source has f32
 * anyway. */
static void demands_and_sums_are_wide(void **state) {
    (void)state;
    assert_becomes(IR_BF16,
                   "  %0 x = input {dtype=f32, shape=[4,4]}\n"
                   "  %1 w = parameter {dtype=f32, shape=[4,4]}\n"
                   "  %2 b = parameter {dtype=f32, shape=[4]}\n"
                   "  %3 = matmul(%0, %1)\n"
                   "  %4 = add(%3, %2)\n"
                   "  %5 = reduce_mean(%4) {axes=[1], keep=true}\n"
                   "  %6 = sub(%4, %5)\n"
                   "  %7 = matmul(%6, %1)\n"
                   "  %8 = cast(%7) {dtype=f32}\n"
                   "  %9 = add(%8, %4)\n"
                   "  %10 = exp(%7)\n"
                   "  %11 = reduce_max(%7) {axes=[0]}\n"
                   "  %12 = gt(%7, %9)\n"
                   "  output \"y\" = %9\n"
                   "  output \"z\" = %10\n"
                   "  output \"m\" = %11\n"
                   "  output \"c\" = %12\n",
                   "  %0 x = input {dtype=f32, shape=[4,4]} : f32[4,4]\n"
                   "  %1 w = parameter {dtype=f32, shape=[4,4]} : f32[4,4]\n"
                   "  %2 b = parameter {dtype=f32, shape=[4]} : f32[4]\n"
                   "  %3 = cast(%0) {dtype=bf16} : bf16[4,4]\n"
                   "  %4 = cast(%1) {dtype=bf16} : bf16[4,4]\n"
                   "  %5 = matmul(%3, %4) : bf16[4,4]\n"
                   "  %6 = cast(%2) {dtype=bf16} : bf16[4]\n"
                   "  %7 = add(%5, %6) : bf16[4,4]\n"
                   "  %8 = cast(%7) {dtype=f32} : f32[4,4]\n"
                   "  %9 = reduce_mean(%8) {axes=[1], keep=true} : f32[4,1]\n"
                   "  %10 = sub(%8, %9) : f32[4,4]\n"
                   "  %11 = cast(%10) {dtype=bf16} : bf16[4,4]\n"
                   "  %12 = matmul(%11, %4) : bf16[4,4]\n"
                   "  %13 = cast(%12) {dtype=f32} : f32[4,4]\n"
                   "  %14 = add(%13, %8) : f32[4,4]\n"
                   "  %15 = exp(%13) : f32[4,4]\n"
                   "  %16 = reduce_max(%12) {axes=[0]} : bf16[4]\n"
                   "  %17 = cast(%16) {dtype=f32} : f32[4]\n"
                   "  %18 = gt(%13, %14) : bool[4,4]\n"
                   "  output \"y\" = %14\n"
                   "  output \"z\" = %15\n"
                   "  output \"m\" = %17\n"
                   "  output \"c\" = %18\n");
}

static void convolutions_and_batch_norm(void **state) {
    (void)state;
    assert_becomes(IR_BF16,
                   "  %0 x = input {dtype=f32, shape=[2,3,8,8]}\n"
                   "  %1 w = parameter {dtype=f32, shape=[4,3,3,3]}\n"
                   "  %2 g = parameter {dtype=f32, shape=[4]}\n"
                   "  %3 rm = buffer {dtype=f32, shape=[4]}\n"
                   "  %4 = conv(%0, %1) {strides=[1,1], pads_low=[1,1], pads_high=[1,1], "
                   "dilations=[1,1]}\n"
                   "  %5, %6, %7, %8, %9 = batch_norm(%4, %2, %2, %3, %3)\n"
                   "  %10 = relu(%5)\n"
                   "  update(%3, %8)\n"
                   "  output \"y\" = %10\n",
                   "  %0 x = input {dtype=f32, shape=[2,3,8,8]} : f32[2,3,8,8]\n"
                   "  %1 w = parameter {dtype=f32, shape=[4,3,3,3]} : f32[4,3,3,3]\n"
                   "  %2 g = parameter {dtype=f32, shape=[4]} : f32[4]\n"
                   "  %3 rm = buffer {dtype=f32, shape=[4]} : f32[4]\n"
                   "  %4 = cast(%0) {dtype=bf16} : bf16[2,3,8,8]\n"
                   "  %5 = cast(%1) {dtype=bf16} : bf16[4,3,3,3]\n"
                   "  %6 = conv(%4, %5) {strides=[1,1], pads_low=[1,1], pads_high=[1,1], "
                   "dilations=[1,1]} : bf16[2,4,8,8]\n"
                   "  %7, %8, %9, %10, %11 = batch_norm(%6, %2, %2, %3, %3) : bf16[2,4,8,8], "
                   "f32[4], f32[4], f32[4], f32[4]\n"
                   "  %12 = relu(%7) : bf16[2,4,8,8]\n"
                   "  %13 = cast(%12) {dtype=f32} : f32[2,4,8,8]\n"
                   "  update(%3, %10)\n"
                   "  output \"y\" = %13\n");
}

static void other_floats_stay(void **state) {
    (void)state;
    assert_becomes(IR_BF16,
                   "  %0 x = input {dtype=f64, shape=[4,4]} : f64[4,4]\n"
                   "  %1 = matmul(%0, %0) : f64[4,4]\n"
                   "  output \"y\" = %1\n",
                   "  %0 x = input {dtype=f64, shape=[4,4]} : f64[4,4]\n"
                   "  %1 = matmul(%0, %0) : f64[4,4]\n"
                   "  output \"y\" = %1\n");
}

/* Sums of gradients over micro-batches are f32, though each gradient is in the compute dtype. */
static void gradients_add_up_in_f32(void **state) {
    (void)state;
    ir_graph_t *forward = parse(
        "  %0 x = input {dtype=f32, shape=[4,8]}\n"
        "  %1 w = parameter {dtype=f32, shape=[8,3]}\n"
        "  %2 y = input {dtype=i64, shape=[4]}\n"
        "  %3 = matmul(%0, %1)\n"
        "  %4, %5 = cross_entropy(%3, %2)\n"
        "  output \"loss\" = %4\n");
    ad_train_options_t options;
    ir_graph_t *graph, *made;
    int n_sums = 0, n_products = 0;
    assert_int_equal(ad_train_defaults("sgd", &options), ST_OK);
    options.accumulate = 3;
    assert_int_equal(ad_train_graph(forward, &options, &graph), ST_OK);
    assert_int_equal(ad_precision(graph, IR_BF16, &made), ST_OK);
    const ir_graph_t *body = NULL;
    for (ir_node_t n = 0; n < made->nodes.n; n++)
        if (ir_node(made, n)->op == IR_OP_REPEAT)
            body = ir_node_attr(ir_node(made, n), "body")->graph;
    assert_non_null(body);
    for (ir_node_t n = 0; n < body->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(body, n);
        if (node->n_outputs != 1) continue;
        const ir_type_t *type = ir_value_type(body, node->first_output);
        if (type->rank != 2 || type->dims[0] != 8 || type->dims[1] != 3) continue;
        n_sums += node->op == IR_OP_ADD;
        n_products += node->op == IR_OP_MATMUL;
        if (node->op == IR_OP_ADD) assert_int_equal(type->dtype, IR_F32);
        if (node->op == IR_OP_MATMUL) assert_int_equal(type->dtype, IR_BF16);
    }
    assert_int_equal(n_sums, 1);
    assert_int_equal(n_products, 1);
    ir_graph_destroy(forward);
    ir_graph_destroy(graph);
    ir_graph_destroy(made);
}

static void contradictory_scaling_is_refused(void **state) {
    (void)state;
    ir_graph_t *forward = parse(
        "  %0 w = parameter {dtype=f32, shape=[3]}\n"
        "  %1 = reduce_sum(%0) {axes=[0]}\n"
        "  output \"loss\" = %1\n");
    static const ad_scaling_t bad[] = {{true, 0, false}, {true, 8, true}, {false, -1, false}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ad_train_options_t options;
        ir_graph_t *graph;
        assert_int_equal(ad_train_defaults("sgd", &options), ST_OK);
        options.scaling = bad[i];
        assert_int_equal(ad_train_graph(forward, &options, &graph), ST_INVALID);
        assert_null(graph);
        assert_non_null(strstr(st_last_error(), "loss scale"));
    }
    ir_graph_destroy(forward);
}

static void only_half_types_compute(void **state) {
    ir_graph_t *graph = parse("  %0 x = input {dtype=f32, shape=[4]}\n  output \"y\" = %0\n"),
               *made;
    (void)state;
    assert_int_equal(ad_precision(graph, IR_I32, &made), ST_INVALID);
    assert_null(made);
    assert_non_null(strstr(st_last_error(), "i32"));
    ir_graph_destroy(graph);
}

/* A loop: what is carried stays float32; what is scanned comes as it is; the weight's cast stands
 * before the loop, and the stack goes out as the product made it. */
static void loops_are_swept(void **state) {
    (void)state;
    assert_becomes(IR_BF16,
                   "  %0 x = input {dtype=f32, shape=[5,8,4]}\n"
                   "  %1 h = input {dtype=f32, shape=[8,4]}\n"
                   "  %2 w = parameter {dtype=f32, shape=[4,4]}\n"
                   "  %3, %4 = repeat(%1, %0, %2) {body=graph {\n"
                   "    %0 h = input {dtype=f32, shape=[8,4], batch_axis=-1}\n"
                   "    %1 x = input {dtype=f32, shape=[8,4], batch_axis=-1}\n"
                   "    %2 w = input {dtype=f32, shape=[4,4], batch_axis=-1}\n"
                   "    %3 = matmul(%1, %2)\n"
                   "    %4 = relu(%3)\n"
                   "    %5 = add(%0, %4)\n"
                   "    output \"h\" = %5\n"
                   "    output \"y\" = %4\n"
                   "  }, trip=5, carried=1, scanned=1}\n"
                   "  output \"last\" = %3\n"
                   "  output \"all\" = %4\n",
                   "  %0 x = input {dtype=f32, shape=[5,8,4]} : f32[5,8,4]\n"
                   "  %1 h = input {dtype=f32, shape=[8,4]} : f32[8,4]\n"
                   "  %2 w = parameter {dtype=f32, shape=[4,4]} : f32[4,4]\n"
                   "  %3 = cast(%2) {dtype=bf16} : bf16[4,4]\n"
                   "  %4, %5 = repeat(%1, %0, %2, %3) {body=graph {\n"
                   "    %0 h = input {dtype=f32, shape=[8,4], batch_axis=-1} : f32[8,4]\n"
                   "    %1 x = input {dtype=f32, shape=[8,4], batch_axis=-1} : f32[8,4]\n"
                   "    %2 w = input {dtype=f32, shape=[4,4], batch_axis=-1} : f32[4,4]\n"
                   "    %3 = cast(%1) {dtype=bf16} : bf16[8,4]\n"
                   "    %4 \"3\" = input {dtype=bf16, shape=[4,4], batch_axis=-1} : bf16[4,4]\n"
                   "    %5 = matmul(%3, %4) : bf16[8,4]\n"
                   "    %6 = relu(%5) : bf16[8,4]\n"
                   "    %7 = cast(%6) {dtype=f32} : f32[8,4]\n"
                   "    %8 = add(%0, %7) : f32[8,4]\n"
                   "    output \"h\" = %8\n"
                   "    output \"y\" = %6\n"
                   "  }, trip=5, carried=1, scanned=1} : f32[8,4], bf16[5,8,4]\n"
                   "  %6 = cast(%5) {dtype=f32} : f32[5,8,4]\n"
                   "  output \"last\" = %4\n"
                   "  output \"all\" = %6\n");
}

/* A condition: a result that both branches have in bf16 goes out so, one that differs in
 * float32. */
static void branches_are_swept(void **state) {
    (void)state;
    assert_becomes(IR_BF16,
                   "  %0 p = input {dtype=bool, shape=[], batch_axis=-1}\n"
                   "  %1 x = input {dtype=f32, shape=[8,4]}\n"
                   "  %2 w = parameter {dtype=f32, shape=[4,4]}\n"
                   "  %3 = matmul(%1, %2)\n"
                   "  %4, %5 = cond(%0, %3, %2) {then=graph {\n"
                   "    %0 x = input {dtype=f32, shape=[8,4], batch_axis=-1}\n"
                   "    %1 w = input {dtype=f32, shape=[4,4], batch_axis=-1}\n"
                   "    %2 = matmul(%0, %1)\n"
                   "    %3 = exp(%2)\n"
                   "    output \"a\" = %2\n"
                   "    output \"b\" = %3\n"
                   "  }, else=graph {\n"
                   "    %0 x = input {dtype=f32, shape=[8,4], batch_axis=-1}\n"
                   "    %1 w = input {dtype=f32, shape=[4,4], batch_axis=-1}\n"
                   "    %2 = neg(%0)\n"
                   "    output \"a\" = %0\n"
                   "    output \"b\" = %2\n"
                   "  }}\n"
                   "  %6 = relu(%4)\n"
                   "  output \"a\" = %6\n"
                   "  output \"b\" = %5\n",
                   "  %0 p = input {dtype=bool, shape=[], batch_axis=-1} : bool[]\n"
                   "  %1 x = input {dtype=f32, shape=[8,4]} : f32[8,4]\n"
                   "  %2 w = parameter {dtype=f32, shape=[4,4]} : f32[4,4]\n"
                   "  %3 = cast(%1) {dtype=bf16} : bf16[8,4]\n"
                   "  %4 = cast(%2) {dtype=bf16} : bf16[4,4]\n"
                   "  %5 = matmul(%3, %4) : bf16[8,4]\n"
                   "  %6, %7 = cond(%0, %5, %2) {then=graph {\n"
                   "    %0 x = input {dtype=bf16, shape=[8,4], batch_axis=-1} : bf16[8,4]\n"
                   "    %1 w = input {dtype=f32, shape=[4,4], batch_axis=-1} : f32[4,4]\n"
                   "    %2 = cast(%1) {dtype=bf16} : bf16[4,4]\n"
                   "    %3 = matmul(%0, %2) : bf16[8,4]\n"
                   "    %4 = cast(%3) {dtype=f32} : f32[8,4]\n"
                   "    %5 = exp(%4) : f32[8,4]\n"
                   "    output \"a\" = %3\n"
                   "    output \"b\" = %5\n"
                   "  }, else=graph {\n"
                   "    %0 x = input {dtype=bf16, shape=[8,4], batch_axis=-1} : bf16[8,4]\n"
                   "    %1 w = input {dtype=f32, shape=[4,4], batch_axis=-1} : f32[4,4]\n"
                   "    %2 = neg(%0) : bf16[8,4]\n"
                   "    %3 = cast(%2) {dtype=f32} : f32[8,4]\n"
                   "    output \"a\" = %0\n"
                   "    output \"b\" = %3\n"
                   "  }} : bf16[8,4], f32[8,4]\n"
                   "  %8 = relu(%6) : bf16[8,4]\n"
                   "  %9 = cast(%8) {dtype=f32} : f32[8,4]\n"
                   "  output \"a\" = %9\n"
                   "  output \"b\" = %7\n");
}

/* In a model that is float32 as it stands, a cast to float32 asks for it, and the next one ends
 * that. */
static void casts_in_a_float32_model_ask(void **state) {
    (void)state;
    assert_becomes(IR_BF16,
                   "  %0 x = input {dtype=f32, shape=[8,4]}\n"
                   "  %1 w = parameter {dtype=f32, shape=[4,4]}\n"
                   "  %2 b = parameter {dtype=f32, shape=[4]}\n"
                   "  %3 = matmul(%0, %1)\n"
                   "  %4 = cast(%3) {dtype=f32}\n"
                   "  %5 = add(%4, %2)\n"
                   "  %6 = relu(%5)\n"
                   "  %7 = cast(%6) {dtype=f32}\n"
                   "  %8 = add(%7, %3)\n"
                   "  output \"y\" = %8\n",
                   "  %0 x = input {dtype=f32, shape=[8,4]} : f32[8,4]\n"
                   "  %1 w = parameter {dtype=f32, shape=[4,4]} : f32[4,4]\n"
                   "  %2 b = parameter {dtype=f32, shape=[4]} : f32[4]\n"
                   "  %3 = cast(%0) {dtype=bf16} : bf16[8,4]\n"
                   "  %4 = cast(%1) {dtype=bf16} : bf16[4,4]\n"
                   "  %5 = matmul(%3, %4) : bf16[8,4]\n"
                   "  %6 = cast(%5) {dtype=f32} : f32[8,4]\n"
                   "  %7 = add(%6, %2) : f32[8,4]\n"
                   "  %8 = relu(%7) : f32[8,4]\n"
                   "  %9 = cast(%8) {dtype=bf16} : bf16[8,4]\n"
                   "  %10 = add(%9, %5) : bf16[8,4]\n"
                   "  %11 = cast(%10) {dtype=f32} : f32[8,4]\n"
                   "  output \"y\" = %11\n");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_parameter_is_cast_once),
        cmocka_unit_test(casts_in_a_float32_model_ask),
        cmocka_unit_test(activations_are_low_and_statistics_wide),
        cmocka_unit_test(static_values_stay_wide),
        cmocka_unit_test(constants_follow_if_they_fit),
        cmocka_unit_test(demands_and_sums_are_wide),
        cmocka_unit_test(convolutions_and_batch_norm),
        cmocka_unit_test(other_floats_stay),
        cmocka_unit_test(gradients_add_up_in_f32),
        cmocka_unit_test(contradictory_scaling_is_refused),
        cmocka_unit_test(only_half_types_compute),
        cmocka_unit_test(loops_are_swept),
        cmocka_unit_test(branches_are_swept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
