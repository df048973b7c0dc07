/* Weights' shadows: text in, text out; and which parameters have none. */
#include "autodiff/shadow.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "ir/text.h"
#include "ir/verify.h"

static void check(const char *before, const char *after) {
    ir_graph_t *graph, *made;
    char *printed;
    if (ir_graph_parse(before, strlen(before), &graph) != ST_OK) fail_msg("%s", st_last_error());
    if (ad_shadow(graph, &made) != ST_OK) fail_msg("%s", st_last_error());
    assert_int_equal(ir_graph_verify(made), ST_OK);
    assert_int_equal(ir_graph_print(made, &printed), ST_OK);
    assert_string_equal(printed, after);
    st_free(printed);
    ir_graph_destroy(graph);
    ir_graph_destroy(made);
}

#define HEAD                                                 \
    "graph \"g\" {\n"                                        \
    "  %0 x = input {dtype=bf16, shape=[4,6]} : bf16[4,6]\n" \
    "  %1 w = parameter {dtype=f32, shape=[6,5]} : f32[6,5]\n"

static void a_weight_that_is_cast_and_updated_has_a_shadow(void **state) {
    (void)state;
    check(HEAD
          "  %2 = cast(%1) {dtype=bf16} : bf16[6,5]\n"
          "  %3 = matmul(%0, %2) : bf16[4,5]\n"
          "  %4 = neg(%1) : f32[6,5]\n"
          "  update(%1, %4)\n"
          "  output \"y\" = %3\n}\n",
          HEAD
          "  %2 optim.shadow.w = buffer {dtype=bf16, shape=[6,5]} : bf16[6,5]\n"
          "  %3 = matmul(%0, %2) : bf16[4,5]\n"
          "  %4 = neg(%1) : f32[6,5]\n"
          "  update(%1, %4)\n"
          "  %5 = cast(%4) {dtype=bf16} : bf16[6,5]\n"
          "  update(%2, %5)\n"
          "  output \"y\" = %3\n}\n");
}

#define STAYS(text) check(HEAD text, HEAD text)

static void a_weight_that_never_changes_has_none(void **state) {
    (void)state;
    STAYS(
        "  %2 = cast(%1) {dtype=bf16} : bf16[6,5]\n"
        "  %3 = matmul(%0, %2) : bf16[4,5]\n"
        "  output \"y\" = %3\n}\n");
}

static void a_weight_that_is_not_cast_or_cast_to_two_types_has_none(void **state) {
    (void)state;
    STAYS(
        "  %2 = neg(%1) : f32[6,5]\n"
        "  update(%1, %2)\n"
        "  output \"y\" = %2\n}\n");
    STAYS(
        "  %2 = cast(%1) {dtype=bf16} : bf16[6,5]\n"
        "  %3 = cast(%1) {dtype=f16} : f16[6,5]\n"
        "  %4 = neg(%1) : f32[6,5]\n"
        "  update(%1, %4)\n"
        "  output \"y\" = %2\n"
        "  output \"z\" = %3\n}\n");
    STAYS(
        "  %2 = cast(%1) {dtype=f64} : f64[6,5]\n"
        "  %3 = neg(%1) : f32[6,5]\n"
        "  update(%1, %3)\n"
        "  output \"y\" = %2\n}\n");
}

static void a_name_that_is_taken_is_left_alone(void **state) {
    (void)state;
    STAYS(
        "  %2 optim.shadow.w = buffer {dtype=f32, shape=[2]} : f32[2]\n"
        "  %3 = cast(%1) {dtype=bf16} : bf16[6,5]\n"
        "  %4 = neg(%1) : f32[6,5]\n"
        "  update(%1, %4)\n"
        "  output \"y\" = %3\n}\n");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_weight_that_is_cast_and_updated_has_a_shadow),
        cmocka_unit_test(a_weight_that_never_changes_has_none),
        cmocka_unit_test(a_weight_that_is_not_cast_or_cast_to_two_types_has_none),
        cmocka_unit_test(a_name_that_is_taken_is_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
