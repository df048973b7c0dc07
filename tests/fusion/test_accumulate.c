/* Sums of products and something else: text in, text out; and what stays a sum. */
#include "fusion/accumulate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "ir/text.h"
#include "ir/verify.h"

/* Of a device on which a node takes a unit of time, and products that add none more, unless
 * told. */
typedef struct device {
    double adding_us;
    bool refuses;
    const char *adding_kernel;
} device_t;

static void cost(void *context, const ir_op_ctx_t *ctx, const ir_type_t *out_types,
                 ir_cost_t *out) {
    const device_t *device = context;
    bool adds = ctx->op == IR_OP_MATMUL && ctx->n_inputs == 3;
    (void)out_types;
    *out = (ir_cost_t){.us = adds ? device->adding_us : 1,
                       .kernel = adds ? device->adding_kernel : "one"};
}
static bool can_run(void *context, const ir_op_ctx_t *ctx, const ir_type_t *out_types,
                    const char **out_reason) {
    const device_t *device = context;
    (void)out_types;
    *out_reason = "told not to";
    return !(device->refuses && ctx->n_inputs == 3);
}

static ir_graph_t *parse(const char *text) {
    ir_graph_t *graph;
    if (ir_graph_parse(text, strlen(text), &graph) != ST_OK) fail_msg("%s", st_last_error());
    return graph;
}

static void check_on(const device_t *device, const char *before, const char *after) {
    const ir_target_t target = {
        .context = (void *)(uintptr_t)device, .cost = cost, .can_run = can_run};
    ir_graph_t *graph = parse(before), *made;
    char *printed;
    if (fuse_accumulate(graph, graph, &target, &made) != ST_OK) fail_msg("%s", st_last_error());
    assert_int_equal(ir_graph_verify(made), ST_OK);
    assert_int_equal(ir_graph_print(made, &printed), ST_OK);
    assert_string_equal(printed, after);
    st_free(printed);
    ir_graph_destroy(graph);
    ir_graph_destroy(made);
}
static void check(const char *before, const char *after) {
    static const device_t device = {1, false, "one"};
    check_on(&device, before, after);
}

#define OPERANDS                                           \
    "graph \"g\" {\n"                                      \
    "  %0 x = input {dtype=f32, shape=[4,6]} : f32[4,6]\n" \
    "  %1 a = input {dtype=f32, shape=[5,4]} : f32[5,4]\n" \
    "  %2 b = input {dtype=f32, shape=[5,6]} : f32[5,6]\n"
#define PRODUCT "  %3 = matmul(%1, %2) {transpose_a=true} : f32[4,6]\n"

static void a_sum_goes_into_its_product(void **state) {
    (void)state;
    static const char after[] = OPERANDS
        "  %3 = tanh(%0) : f32[4,6]\n"
        "  %4 = matmul(%1, %2, %3) {transpose_a=true} : f32[4,6]\n"
        "  output \"y\" = %4\n}\n";
    check(OPERANDS
          "  %3 = tanh(%0) : f32[4,6]\n"
          "  %4 = matmul(%1, %2) {transpose_a=true} : f32[4,6]\n"
          "  %5 = add(%4, %3) : f32[4,6]\n"
          "  output \"y\" = %5\n}\n",
          after);
    check(OPERANDS
          "  %3 = tanh(%0) : f32[4,6]\n"
          "  %4 = matmul(%1, %2) {transpose_a=true} : f32[4,6]\n"
          "  %5 = add(%3, %4) : f32[4,6]\n"
          "  output \"y\" = %5\n}\n",
          after);
}

static void a_product_waits_for_nothing(void **state) {
    static const char text[] = OPERANDS PRODUCT
        "  %4 = tanh(%0) : f32[4,6]\n"
        "  %5 = add(%4, %3) : f32[4,6]\n"
        "  output \"y\" = %5\n}\n";
    (void)state;
    check(text, text);
}

static void of_two_products_the_later_one_takes_the_sum(void **state) {
    (void)state;
    check(OPERANDS PRODUCT
          "  %4 = matmul(%1, %2) {transpose_a=true} : f32[4,6]\n"
          "  %5 = add(%4, %3) : f32[4,6]\n"
          "  %6 = matmul(%1, %2) {transpose_a=true} : f32[4,6]\n"
          "  %7 = add(%5, %6) : f32[4,6]\n"
          "  output \"y\" = %7\n}\n",
          OPERANDS PRODUCT
          "  %4 = matmul(%1, %2, %3) {transpose_a=true} : f32[4,6]\n"
          "  %5 = matmul(%1, %2, %4) {transpose_a=true} : f32[4,6]\n"
          "  output \"y\" = %5\n}\n");
}

static void a_float32_sum_takes_the_product_uncast(void **state) {
    (void)state;
    check(
        "graph \"g\" {\n"
        "  %0 x = input {dtype=f32, shape=[4,6]} : f32[4,6]\n"
        "  %1 a = input {dtype=bf16, shape=[4,5]} : bf16[4,5]\n"
        "  %2 b = input {dtype=bf16, shape=[5,6]} : bf16[5,6]\n"
        "  %3 = matmul(%1, %2) : bf16[4,6]\n"
        "  %4 = cast(%3) {dtype=f32} : f32[4,6]\n"
        "  %5 = add(%0, %4) : f32[4,6]\n"
        "  output \"y\" = %5\n}\n",
        "graph \"g\" {\n"
        "  %0 x = input {dtype=f32, shape=[4,6]} : f32[4,6]\n"
        "  %1 a = input {dtype=bf16, shape=[4,5]} : bf16[4,5]\n"
        "  %2 b = input {dtype=bf16, shape=[5,6]} : bf16[5,6]\n"
        "  %3 = matmul(%1, %2, %0) : f32[4,6]\n"
        "  output \"y\" = %3\n}\n");
}

#define STAYS(text) check(OPERANDS PRODUCT text, OPERANDS PRODUCT text)

static void a_product_that_others_read_stays(void **state) {
    (void)state;
    STAYS(
        "  %4 = add(%3, %0) : f32[4,6]\n"
        "  %5 = tanh(%3) : f32[4,6]\n"
        "  output \"y\" = %4\n"
        "  output \"z\" = %5\n}\n");
    STAYS(
        "  %4 = add(%3, %0) : f32[4,6]\n"
        "  output \"y\" = %4\n"
        "  output \"z\" = %3\n}\n");
    STAYS(
        "  %4 = add(%3, %3) : f32[4,6]\n"
        "  output \"y\" = %4\n}\n");
}

static void a_broadcast_sum_stays(void **state) {
    (void)state;
    STAYS(
        "  %4 bias = input {dtype=f32, shape=[6]} : f32[6]\n"
        "  %5 = add(%3, %4) : f32[4,6]\n"
        "  output \"y\" = %5\n}\n");
}

static void the_target_decides(void **state) {
    static const device_t devices[] = {{2, false, "one"}, {1, true, "one"}, {1, false, "another"}};
    static const char text[] = OPERANDS PRODUCT
        "  %4 = add(%3, %0) : f32[4,6]\n"
        "  output \"y\" = %4\n}\n";
    (void)state;
    for (size_t i = 0; i < sizeof devices / sizeof devices[0]; i++)
        check_on(&devices[i], text, text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sum_goes_into_its_product),
        cmocka_unit_test(a_product_waits_for_nothing),
        cmocka_unit_test(of_two_products_the_later_one_takes_the_sum),
        cmocka_unit_test(a_float32_sum_takes_the_product_uncast),
        cmocka_unit_test(a_product_that_others_read_stays),
        cmocka_unit_test(a_broadcast_sum_stays),
        cmocka_unit_test(the_target_decides),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
