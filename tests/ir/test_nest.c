/* Loop nests of bodies: text of a graph in, text of its nest out. */
#include "ir/nest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ir/text.h"
#include "nest_text.h"

#define BODY(text) "graph \"body\" {\n" text "}\n"

static nest_t *build(const char *text, const char **out_reason) {
    ir_graph_t *body = NULL;
    nest_t *nest = NULL;
    if (ir_graph_parse(text, strlen(text), &body) != ST_OK) fail_msg("%s", st_last_error());
    assert_int_equal(nest_build(body, &nest, out_reason), ST_OK);
    assert_true((nest == NULL) == (*out_reason != NULL));
    ir_graph_destroy(body);
    return nest;
}

static void expect_nest(const char *body, const char *expected) {
    const char *reason;
    char text[4096];
    nest_t *nest = build(body, &reason);
    if (!nest) fail_msg("no nest: %s", reason);
    nest_text(nest, text, sizeof text);
    if (strcmp(text, expected) != 0) fail_msg("expected\n%s\ngot\n%s", expected, text);
    nest_destroy(nest);
}

static void expect_none(const char *body, const char *expected) {
    const char *reason;
    nest_t *nest = build(body, &reason);
    assert_null(nest);
    assert_string_equal(reason, expected);
}

static void test_rms_norm(void **state) {
    (void)state;
    expect_nest(BODY("%0 x = input {dtype=f32, shape=[4,8,32]}\n"
                     "%1 w = input {dtype=f32, shape=[32]}\n"
                     "%2, %3 = rms_norm(%0, %1)\n"
                     "output \"y\" = %2\n"
                     "output \"r\" = %3\n"),
                "domain 0: i0=32 i1=32\n"
                "v0 = load 0[32 i0 + i1] : f32 {i0 i1}\n"
                "v1 = load 1[i1] : f32 {i1}\n"
                "v2 = mul v0 v0 : f32 {i0 i1}\n"
                "v3 = reduce_sum v2 over {i1} : f32 {i0}\n"
                "v4 = 0.03125 : f32\n"
                "v5 = mul v3 v4 : f32 {i0}\n"
                "v6 = 9.99999997e-07 : f32\n"
                "v7 = add v5 v6 : f32 {i0}\n"
                "v8 = rsqrt v7 : f32 {i0}\n"
                "v9 = mul v0 v8 : f32 {i0 i1}\n"
                "v10 = mul v9 v1 : f32 {i0 i1}\n"
                "store 0[32 i0 + i1] = v10\n"
                "store 1[i0] = v8\n");
}

static void test_rms_norm_grad(void **state) {
    (void)state;
    expect_nest(BODY("%0 dy = input {dtype=bf16, shape=[4,8,32]}\n"
                     "%1 x = input {dtype=bf16, shape=[4,8,32]}\n"
                     "%2 r = input {dtype=f32, shape=[4,8]}\n"
                     "%3 w = input {dtype=bf16, shape=[32]}\n"
                     "%4, %5 = rms_norm_grad(%0, %1, %2, %3)\n"
                     "output \"dx\" = %4\n"
                     "output \"dw\" = %5\n"),
                "domain 0: i0=32 i1=32\n"
                "v0 = load 0[32 i0 + i1] : bf16 {i0 i1}\n"
                "v1 = load 1[32 i0 + i1] : bf16 {i0 i1}\n"
                "v2 = load 2[i0] : f32 {i0}\n"
                "v3 = load 3[i1] : bf16 {i1}\n"
                "v4 = mul v0 v3 : f32 {i0 i1}\n"
                "v5 = mul v4 v1 : f32 {i0 i1}\n"
                "v6 = reduce_sum v5 over {i1} : f32 {i0}\n"
                "v7 = 0.03125 : f32\n"
                "v8 = mul v6 v7 : f32 {i0}\n"
                "v9 = mul v2 v2 : f32 {i0}\n"
                "v10 = mul v9 v2 : f32 {i0}\n"
                "v11 = mul v10 v8 : f32 {i0}\n"
                "v12 = mul v1 v11 : f32 {i0 i1}\n"
                "v13 = mul v4 v2 : f32 {i0 i1}\n"
                "v14 = sub v13 v12 : f32 {i0 i1}\n"
                "v15 = mul v0 v1 : f32 {i0 i1}\n"
                "v16 = mul v15 v2 : f32 {i0 i1}\n"
                "v17 = reduce_sum v16 over {i0} : f32 {i1}\n"
                "store 0[32 i0 + i1] = v14\n"
                "store 1[i1] = v17\n");
}

static void test_softmax_of_a_middle_axis(void **state) {
    (void)state;
    expect_nest(BODY("%0 x = input {dtype=f32, shape=[4,8,5,6]}\n"
                     "%1 = softmax(%0) {axis=1}\n"
                     "output \"y\" = %1\n"),
                "domain 0: i0=4 i1=8 i2=30\n"
                "v0 = load 0[240 i0 + 30 i1 + i2] : f32 {i0 i1 i2}\n"
                "v1 = reduce_max v0 over {i1} : f32 {i0 i2}\n"
                "v2 = sub v0 v1 : f32 {i0 i1 i2}\n"
                "v3 = exp v2 : f32 {i0 i1 i2}\n"
                "v4 = reduce_sum v3 over {i1} : f32 {i0 i2}\n"
                "v5 = reciprocal v4 : f32 {i0 i2}\n"
                "v6 = mul v3 v5 : f32 {i0 i1 i2}\n"
                "store 0[240 i0 + 30 i1 + i2] = v6\n");
}

static void test_views_and_rows(void **state) {
    (void)state;
    expect_nest(BODY("%0 x = input {dtype=f32, shape=[4,6,32]}\n"
                     "%1 = reshape(%0) {shape=[4,6,2,16]}\n"
                     "%2 = transpose(%1) {perm=[0,2,1,3]}\n"
                     "%3 l = input {dtype=i32, shape=[4]}\n"
                     "%4 e = input {dtype=bf16, shape=[10,16]}\n"
                     "%5 = gather(%4, %3) {axis=0}\n"
                     "%6 = reshape(%5) {shape=[4,1,1,16]}\n"
                     "%7 = cast(%6) {dtype=f32}\n"
                     "%8 = mul(%2, %7)\n"
                     "%9 = slice(%0) {begin=[1,2,0], end=[3,3,32], step=[1,1,2]}\n"
                     "%10 = flip(%0) {axes=[1]}\n"
                     "output \"y\" = %8\n"
                     "output \"z\" = %9\n"
                     "output \"f\" = %10\n"),
                "domain 0: i0=4 i1=6 i2=2 i3=6 i4=16\n"
                "domain 1: i0=2 i1=16\n"
                "v0 = load 0[192 i0 + 16 i2 + 32 i3 + i4] : f32 0{i0 i2 i3 i4}\n"
                "v1 = load 1[i0] : i32 0{i0}\n"
                "v2 = load 2[i4 + 16 v1] : bf16 0{i0 i4}\n"
                "v3 = mul v0 v2 : f32 0{i0 i2 i3 i4}\n"
                "v4 = load 0[192 i0 + 2 i1 + 256] : f32 1{i0 i1}\n"
                "v5 = load 0[192 i0 + -32 i1 + 16 i2 + i4 + 160] : f32 0{i0 i1 i2 i4}\n"
                "store 0[192 i0 + 96 i2 + 16 i3 + i4] = v3\n"
                "store 1[16 i0 + i1] = v4\n"
                "store 2[192 i0 + 32 i1 + 16 i2 + i4] = v5\n");
}

static void test_rows_of_a_table_beside_it_have_the_features_innermost(void **state) {
    (void)state;
    expect_nest(BODY("%0 t = input {dtype=f32, shape=[9,16]}\n"
                     "%1 i = input {dtype=i64, shape=[4]}\n"
                     "%2 = neg(%0)\n"
                     "%3 = gather(%0, %1) {axis=0}\n"
                     "output \"n\" = %2\n"
                     "output \"r\" = %3\n"),
                "domain 0: i0=9 i1=4 i2=16\n"
                "v0 = load 0[16 i0 + i2] : f32 {i0 i2}\n"
                "v1 = load 1[i1] : i64 {i1}\n"
                "v2 = neg v0 : f32 {i0 i2}\n"
                "v3 = load 0[i2 + 16 v1] : f32 {i1 i2}\n"
                "store 0[16 i0 + i2] = v2\n"
                "store 1[16 i1 + i2] = v3\n");
}

static void test_updates_of_two_parameters(void **state) {
    (void)state;
    expect_nest(BODY("%0 p = input {dtype=f32, shape=[3,5]}\n"
                     "%1 g = input {dtype=f32, shape=[3,5]}\n"
                     "%2 q = input {dtype=f32, shape=[7]}\n"
                     "%3 h = input {dtype=f32, shape=[7]}\n"
                     "%4 lr = input {dtype=f64, shape=[], batch_axis=-1}\n"
                     "%5 s = input {dtype=f32, shape=[], batch_axis=-1}\n"
                     "%6, %7 = sgd(%0, %1, %4, %5)\n"
                     "%8, %9 = sgd(%2, %3, %4, %5)\n"
                     "output \"p\" = %6\n"
                     "output \"q\" = %8\n"),
                "domain 0: i0=15\n"
                "domain 1: i0=7\n"
                "v0 = load 0[i0] : f32 0{i0}\n"
                "v1 = load 1[i0] : f32 0{i0}\n"
                "v2 = load 2[i0] : f32 1{i0}\n"
                "v3 = load 3[i0] : f32 1{i0}\n"
                "v4 = load 4[0] : f64\n"
                "v5 = load 5[0] : f32\n"
                "v6 = mul v1 v5 : f32 0{i0}\n"
                "v7 = mul v6 v4 : f32 0{i0}\n"
                "v8 = sub v0 v7 : f32 0{i0}\n"
                "v9 = mul v3 v5 : f32 1{i0}\n"
                "v10 = mul v9 v4 : f32 1{i0}\n"
                "v11 = sub v2 v10 : f32 1{i0}\n"
                "store 0[i0] = v8\n"
                "store 1[i0] = v11\n");
}

static void test_dropout_of_a_part(void **state) {
    (void)state;
    expect_nest(BODY("%0 x = input {dtype=f32, shape=[2,8]}\n"
                     "%1 seed = input {dtype=i64, shape=[], batch_axis=-1}\n"
                     "%2 step = input {dtype=i64, shape=[], batch_axis=-1}\n"
                     "%3 = dropout(%0, %1, %2) {p=0.25, id=7, begin=[4,0], global=[6,8]}\n"
                     "%4 = reduce_sum(%3) {axes=[0,1]}\n"
                     "output \"y\" = %3\n"
                     "output \"s\" = %4\n"),
                "domain 0: i0=16\n"
                "v0 = load 0[i0] : f32 {i0}\n"
                "v1 = load 1[0] : i64\n"
                "v2 = load 2[0] : i64\n"
                "v3 = random 7[i0 + 32] v1 v2 : f32 {i0}\n"
                "v4 = 0.25 : f64\n"
                "v5 = lt v3 v4 : bool {i0}\n"
                "v6 = 0.75 : f32\n"
                "v7 = div v0 v6 : f32 {i0}\n"
                "v8 = 0 : f32\n"
                "v9 = select v5 v8 v7 : f32 {i0}\n"
                "v10 = reduce_sum v9 over {i0} : f32\n"
                "store 0[i0] = v9\n"
                "store 1[0] = v10\n");
}

static void test_refusals(void **state) {
    (void)state;
    /* transposed */
    expect_none(BODY("%0 x = input {dtype=f32, shape=[4,4]}\n"
                     "%1 = transpose(%0) {perm=[1,0]}\n"
                     "%2 = add(%0, %1)\n"
                     "output \"y\" = %2\n"),
                "a value meets itself with its dims in another order, or one dim twice");
    /* outer product */
    expect_none(BODY("%0 x = input {dtype=f32, shape=[4]}\n"
                     "%1 = reshape(%0) {shape=[4,1]}\n"
                     "%2 = mul(%0, %1)\n"
                     "output \"y\" = %2\n"),
                "a value meets itself with its dims in another order, or one dim twice");
    /* slice of computed */
    expect_none(BODY("%0 x = input {dtype=f32, shape=[4]}\n"
                     "%1 = exp(%0)\n"
                     "%2 = slice(%1) {begin=[0], end=[2], step=[1]}\n"
                     "output \"y\" = %2\n"),
                "a slice, flip or gather takes a value computed in the body");
    /* matmul */
    expect_none(BODY("%0 x = input {dtype=f32, shape=[4,4]}\n"
                     "%1 = matmul(%0, %0)\n"
                     "output \"y\" = %1\n"),
                "an op has no form as a loop nest");
    /* factors */
    expect_none(BODY("%0 x = input {dtype=f32, shape=[6,4]}\n"
                     "%1 y = input {dtype=f32, shape=[8,3]}\n"
                     "%2 = reshape(%1) {shape=[6,4]}\n"
                     "%3 = add(%0, %2)\n"
                     "%4 z = input {dtype=f32, shape=[9]}\n"
                     "%5 = reduce_sum(%2) {axes=[0]}\n"
                     "output \"y\" = %3\n"),
                "a reshape cuts dims at places that are no factors of theirs");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rms_norm),
        cmocka_unit_test(test_rms_norm_grad),
        cmocka_unit_test(test_softmax_of_a_middle_axis),
        cmocka_unit_test(test_views_and_rows),
        cmocka_unit_test(test_rows_of_a_table_beside_it_have_the_features_innermost),
        cmocka_unit_test(test_updates_of_two_parameters),
        cmocka_unit_test(test_dropout_of_a_part),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
