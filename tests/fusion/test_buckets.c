/* Buckets of all-reduces: text in, text out. */
#include "fusion/buckets.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "ir/text.h"
#include "ir/verify.h"

/* `sizes`: the graph whose sizes count. */
static void expect_by(uint64_t bucket_bytes, const char *sizes, const char *text,
                      const char *wanted) {
    ir_graph_t *graph = NULL, *by = NULL, *result = NULL, *model = NULL;
    char *got, *printed;
    st_status_t status = ir_graph_parse(text, strlen(text), &graph);
    if (status != ST_OK) print_error("%s\n", st_last_error());
    assert_int_equal(status, ST_OK);
    assert_int_equal(ir_graph_parse(sizes, strlen(sizes), &by), ST_OK);
    assert_int_equal(ir_graph_parse(wanted, strlen(wanted), &model), ST_OK);
    assert_int_equal(fuse_buckets(graph, by, bucket_bytes, &result), ST_OK);
    assert_int_equal(ir_graph_verify(result), ST_OK);
    assert_int_equal(ir_graph_print(result, &got), ST_OK);
    assert_int_equal(ir_graph_print(model, &printed), ST_OK);
    assert_string_equal(got, printed);
    st_free(got);
    st_free(printed);
    ir_graph_destroy(graph);
    ir_graph_destroy(by);
    ir_graph_destroy(result);
    ir_graph_destroy(model);
}

static void expect(uint64_t bucket_bytes, const char *text, const char *wanted) {
    expect_by(bucket_bytes, text, text, wanted);
}

static const char three[] =
    "graph \"g\" {\n"
    "  %0 x = input {dtype=f32, shape=[4]}\n"
    "  %1 = exp(%0)\n"
    "  %2 = all_reduce_start(%1)\n"
    "  %3 = tanh(%0)\n"
    "  %4 = all_reduce_start(%3)\n"
    "  %5 = sin(%0)\n"
    "  %6 = all_reduce_start(%5)\n"
    "  %7 = cos(%0)\n"
    "  %8 = all_reduce_wait(%4)\n"
    "  %9 = add(%8, %7)\n"
    "  %10 = all_reduce_wait(%2)\n"
    "  %11 = all_reduce_wait(%6)\n"
    "  %12 = add(%10, %11)\n"
    "  output \"a\" = %9\n"
    "  output \"b\" = %12\n"
    "}\n";

static void all_fit_into_one(void **state) {
    (void)state;
    expect(48, three,
           "graph \"g\" {\n"
           "  %0 x = input {dtype=f32, shape=[4]}\n"
           "  %1 = exp(%0)\n"
           "  %2 = tanh(%0)\n"
           "  %3 = sin(%0)\n"
           "  %4, %5, %6 = all_reduce_start(%1, %2, %3)\n"
           "  %7 = cos(%0)\n"
           "  %8, %9, %10 = all_reduce_wait(%4, %5, %6)\n"
           "  %11 = add(%9, %7)\n"
           "  %12 = add(%8, %10)\n"
           "  output \"a\" = %11\n"
           "  output \"b\" = %12\n"
           "}\n");
}

static void the_limit_closes_a_bucket(void **state) {
    (void)state;
    expect(32, three,
           "graph \"g\" {\n"
           "  %0 x = input {dtype=f32, shape=[4]}\n"
           "  %1 = exp(%0)\n"
           "  %2 = tanh(%0)\n"
           "  %3, %4 = all_reduce_start(%1, %2)\n"
           "  %5 = sin(%0)\n"
           "  %6 = all_reduce_start(%5)\n"
           "  %7 = cos(%0)\n"
           "  %8, %9 = all_reduce_wait(%3, %4)\n"
           "  %10 = add(%9, %7)\n"
           "  %11 = all_reduce_wait(%6)\n"
           "  %12 = add(%8, %11)\n"
           "  output \"a\" = %10\n"
           "  output \"b\" = %12\n"
           "}\n");
    expect(1, three, three);
}

/* A rank of smaller parts does as the one of the largest does, whose sizes close the bucket. */
static void sizes_of_the_model_count_on_a_smaller_rank(void **state) {
    (void)state;
    char small[sizeof three], one[sizeof three], *at;
    memcpy(small, three, sizeof three);
    at = strstr(small, "[4]");
    assert_non_null(at);
    at[1] = '3';
    memcpy(one, small, sizeof three);
    expect_by(24, three, small, one); /* two of 12 bytes would fit, two of 16 do not */
    at[1] = '8';
    memcpy(one, three, sizeof three);
    expect_by(63, small, three, one); /* and where the other is larger */
}

/* What is waited for cannot take another member, and element types do not mix. */
static void waits_and_types_close_a_bucket(void **state) {
    (void)state;
    const char *text =
        "graph \"g\" {\n"
        "  %0 x = input {dtype=f32, shape=[4]}\n"
        "  %1 = all_reduce_start(%0)\n"
        "  %2 = all_reduce_wait(%1)\n"
        "  %3 = exp(%2)\n"
        "  %4 = all_reduce_start(%3)\n"
        "  %5 = cast(%3) {dtype=f64}\n"
        "  %6 = all_reduce_start(%5)\n"
        "  %7 = all_reduce_wait(%4)\n"
        "  %8 = all_reduce_wait(%6)\n"
        "  output \"a\" = %7\n"
        "  output \"b\" = %8\n"
        "}\n";
    expect(1 << 20, text, text);
}

/* A sum that is needed at once, in the middle of the others, is left alone. */
static void what_is_needed_at_once_stays_alone(void **state) {
    (void)state;
    expect(1 << 20,
           "graph \"g\" {\n"
           "  %0 x = input {dtype=f32, shape=[4]}\n"
           "  %1 = exp(%0)\n"
           "  %2 = all_reduce_start(%1)\n"
           "  %3 = tanh(%0)\n"
           "  %4 = all_reduce_start(%3)\n"
           "  %5 = all_reduce_wait(%4)\n"
           "  %6 = sin(%5)\n"
           "  %7 = all_reduce_start(%6)\n"
           "  %8 = all_reduce_wait(%2)\n"
           "  %9 = all_reduce_wait(%7)\n"
           "  output \"a\" = %8\n"
           "  output \"b\" = %9\n"
           "}\n",
           "graph \"g\" {\n"
           "  %0 x = input {dtype=f32, shape=[4]}\n"
           "  %1 = exp(%0)\n"
           "  %2 = tanh(%0)\n"
           "  %3 = all_reduce_start(%2)\n"
           "  %4 = all_reduce_wait(%3)\n"
           "  %5 = sin(%4)\n"
           "  %6, %7 = all_reduce_start(%1, %5)\n"
           "  %8, %9 = all_reduce_wait(%6, %7)\n"
           "  output \"a\" = %8\n"
           "  output \"b\" = %9\n"
           "}\n");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_fit_into_one),
        cmocka_unit_test(the_limit_closes_a_bucket),
        cmocka_unit_test(sizes_of_the_model_count_on_a_smaller_rank),
        cmocka_unit_test(what_is_needed_at_once_stays_alone),
        cmocka_unit_test(waits_and_types_close_a_bucket),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
