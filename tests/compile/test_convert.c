/* The passes "mode" and "dtype": text in, text out. */
#include "compile/convert.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/golden.h"

/* ---- evaluation ---- */

static void updates_go_and_dropout_is_off(void **state) {
    (void)state;
    assert_becomes(compile_to_evaluation,
                   "  %0 x = input {dtype=f32, shape=[4]}\n"
                   "  %1 seed = buffer {dtype=i64, shape=[]}\n"
                   "  %2 step = buffer {dtype=i64, shape=[]}\n"
                   "  %3 = dropout(%0, %1, %2) {p=0.5, id=3}\n"
                   "  %4 = constant {dtype=i64, shape=[], data=1}\n"
                   "  %5 = add(%2, %4)\n"
                   "  update(%2, %5)\n"
                   "  output \"y\" = %3\n",
                   "  %0 x = input {dtype=f32, shape=[4]}\n"
                   "  %1 seed = buffer {dtype=i64, shape=[]}\n"
                   "  %2 step = buffer {dtype=i64, shape=[]}\n"
                   "  %3 = dropout(%0, %1, %2) {p=0.5, id=3, train=false}\n"
                   "  %4 = constant {dtype=i64, shape=[], data=1}\n"
                   "  %5 = add(%2, %4)\n"
                   "  output \"y\" = %3\n");
}

/* The running statistics stand in for the batch's, and stay. */
static void norms_read_their_running_statistics(void **state) {
    (void)state;
#define STATES                                    \
    "  %0 x = input {dtype=f32, shape=[4,2]}\n"   \
    "  %1 w = parameter {dtype=f32, shape=[2]}\n" \
    "  %2 b = parameter {dtype=f32, shape=[2]}\n" \
    "  %3 mean = buffer {dtype=f32, shape=[2]}\n" \
    "  %4 var = buffer {dtype=f32, shape=[2]}\n"
    assert_becomes(compile_to_evaluation,
                   STATES
                   "  %5, %6, %7, %8, %9 = batch_norm(%0, %1, %2, %3, %4)\n"
                   "  update(%3, %8)\n"
                   "  update(%4, %9)\n"
                   "  output \"y\" = %5\n",
                   STATES
                   "  %5, %6, %7, %8, %9 = batch_norm(%0, %1, %2, %3, %4) {train=false}\n"
                   "  output \"y\" = %5\n");
}

static void bodies_are_evaluated_too(void **state) {
    (void)state;
    assert_becomes(compile_to_evaluation,
                   "  %0 x = input {dtype=f32, shape=[4]}\n"
                   "  %1 n = input {dtype=i64, shape=[2], batch_axis=-1}\n"
                   "  %2 = repeat(%0, %1) {body=graph {\n"
                   "    %0 \"0\" = input {dtype=f32, shape=[4], batch_axis=-1}\n"
                   "    %1 \"1\" = input {dtype=i64, shape=[], batch_axis=-1}\n"
                   "    %2 = dropout(%0, %1, %1) {p=0.5, id=3}\n"
                   "    output \"0\" = %2\n"
                   "  }, trip=2, carried=1, scanned=1}\n"
                   "  output \"y\" = %2\n",
                   "  %0 x = input {dtype=f32, shape=[4]}\n"
                   "  %1 n = input {dtype=i64, shape=[2], batch_axis=-1}\n"
                   "  %2 = repeat(%0, %1) {body=graph {\n"
                   "    %0 \"0\" = input {dtype=f32, shape=[4], batch_axis=-1}\n"
                   "    %1 \"1\" = input {dtype=i64, shape=[], batch_axis=-1}\n"
                   "    %2 = dropout(%0, %1, %1) {p=0.5, id=3, train=false}\n"
                   "    output \"0\" = %2\n"
                   "  }, trip=2, carried=1, scanned=1}\n"
                   "  output \"y\" = %2\n");
}

/* ---- float64 ---- */

/* Sources, casts and constants; integers and bools stay, and a constant keeps its value. */
static void every_float_becomes_f64(void **state) {
    (void)state;
    assert_becomes(compile_to_f64,
                   "  %0 x = input {dtype=bf16, shape=[2]}\n"
                   "  %1 w = parameter {dtype=f32, shape=[2]}\n"
                   "  %2 i = input {dtype=i64, shape=[2]}\n"
                   "  %3 = cast(%0) {dtype=f32}\n"
                   "  %4 = constant {dtype=f16, shape=[2], data=[0.5,-3]}\n"
                   "  %5 = cast(%4) {dtype=f32}\n"
                   "  %6 = cast(%2) {dtype=f32}\n"
                   "  %7 = iota {dtype=f32, shape=[2], axis=0}\n"
                   "  %8 = mul(%3, %1)\n"
                   "  %9 = add(%8, %5)\n"
                   "  %10 = add(%9, %6)\n"
                   "  %11 = add(%10, %7)\n"
                   "  %12 = gt(%11, %1)\n"
                   "  output \"y\" = %11\n"
                   "  output \"c\" = %12\n",
                   "  %0 x = input {dtype=f64, shape=[2]}\n"
                   "  %1 w = parameter {dtype=f64, shape=[2]}\n"
                   "  %2 i = input {dtype=i64, shape=[2]}\n"
                   "  %3 = cast(%0) {dtype=f64}\n"
                   "  %4 = constant {dtype=f64, shape=[2], data=[0.5,-3]}\n"
                   "  %5 = cast(%4) {dtype=f64}\n"
                   "  %6 = cast(%2) {dtype=f64}\n"
                   "  %7 = iota {dtype=f64, shape=[2], axis=0}\n"
                   "  %8 = mul(%3, %1)\n"
                   "  %9 = add(%8, %5)\n"
                   "  %10 = add(%9, %6)\n"
                   "  %11 = add(%10, %7)\n"
                   "  %12 = gt(%11, %1)\n"
                   "  output \"y\" = %11\n"
                   "  output \"c\" = %12\n");
}

static void bodies_become_f64(void **state) {
    (void)state;
    assert_becomes(compile_to_f64,
                   "  %0 x = input {dtype=f32, shape=[2]}\n"
                   "  %1 = repeat(%0) {body=graph {\n"
                   "    %0 \"0\" = input {dtype=f32, shape=[2], batch_axis=-1}\n"
                   "    %1 = constant {dtype=f32, shape=[], data=0.25}\n"
                   "    %2 = mul(%0, %1)\n"
                   "    output \"0\" = %2\n"
                   "  }, trip=2, carried=1}\n"
                   "  output \"y\" = %1\n",
                   "  %0 x = input {dtype=f64, shape=[2]}\n"
                   "  %1 = repeat(%0) {body=graph {\n"
                   "    %0 \"0\" = input {dtype=f64, shape=[2], batch_axis=-1}\n"
                   "    %1 = constant {dtype=f64, shape=[], data=0.25}\n"
                   "    %2 = mul(%0, %1)\n"
                   "    output \"0\" = %2\n"
                   "  }, trip=2, carried=1}\n"
                   "  output \"y\" = %1\n");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(updates_go_and_dropout_is_off),
        cmocka_unit_test(norms_read_their_running_statistics),
        cmocka_unit_test(bodies_are_evaluated_too),
        cmocka_unit_test(every_float_becomes_f64),
        cmocka_unit_test(bodies_become_f64),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
