/* The kernel table: order of the lists, choice with reasons, names, levels, scratch that cannot be
 * had; and the elementary functions of the vectorized loops, densely over their range. */
#include "kernels/table.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "ir/convert.h"

static void lists_end_with_the_reference(void **state) {
    (void)state;
    const kern_impl_t *const *list = kern_list("cpu", IR_OP_MATMUL);
    size_t n = 0;
    while (list[n]) n++;
    assert_true(n >= 2);
    assert_true(list[n - 1]->reference);
    assert_string_equal(list[n - 1]->name, "cpu.matmul.reference");
    assert_ptr_equal(kern_find("cpu.matmul.reference"), list[n - 1]);
    assert_null(kern_find("cpu.matmul.other"));
    assert_null(kern_list("cpu", IR_OP_INPUT)[0]);
    assert_null(kern_list("abacus", IR_OP_MATMUL)[0]);
    assert_null(kern_list("cpu", (ir_op_t)100000)[0]);
}

static kern_problem_t exp_problem(const ir_type_t *type) {
    return (kern_problem_t){IR_OP_EXP, 1, 1, type, type, NULL, "e"};
}

static void choice_takes_the_first_that_can(void **state) {
    (void)state;
    const kern_impl_t *impl;
    ir_type_t f32 = ir_type_make(IR_F32, 1, (int64_t[]){3}), f16 = f32, f8 = f32;
    f16.dtype = IR_F16;
    f8.dtype = IR_F8E4M3;
    kern_problem_t problem = exp_problem(&f32);
    assert_int_equal(kern_choose("cpu", &problem, false, &impl), ST_OK);
    assert_string_equal(impl->name, "cpu.exp.fast");
    assert_int_equal(kern_choose("cpu", &problem, true, &impl), ST_OK);
    assert_string_equal(impl->name, "cpu.exp.reference");
    problem = exp_problem(&f16);
    assert_int_equal(kern_choose("cpu", &problem, false, &impl), ST_OK);
    assert_string_equal(impl->name, "cpu.exp.small");
    problem = exp_problem(&f8);
    assert_int_equal(kern_choose("cpu", &problem, false, &impl), ST_OK);
    assert_string_equal(impl->name, "cpu.exp.reference");
}

static void no_kernel_is_an_error_that_names_op_and_device(void **state) {
    (void)state;
    const kern_impl_t *impl;
    ir_type_t f32 = ir_type_scalar(IR_F32);
    kern_problem_t problem = exp_problem(&f32);
    assert_int_equal(kern_choose("abacus", &problem, false, &impl), ST_UNSUPPORTED);
    assert_null(impl);
    assert_non_null(strstr(st_last_error(), "abacus"));
    assert_non_null(strstr(st_last_error(), "exp"));
}

static void levels_are_known_and_switch(void **state) {
    (void)state;
    char first[8];
    snprintf(first, sizeof first, "%s", kern_cpu_level());
    const kern_impl_t *before = kern_find("cpu.exp.fast");
    assert_int_equal(kern_set_level("v9"), ST_INVALID);
    assert_int_equal(kern_set_level("base"), ST_OK);
    assert_string_equal(kern_cpu_level(), "base");
    const kern_impl_t *base = kern_find("cpu.exp.fast");
    assert_non_null(base);
    if (strcmp(first, "base") != 0) assert_ptr_not_equal(base, before);
    assert_int_equal(kern_set_level(first), ST_OK);
    assert_ptr_equal(kern_find("cpu.exp.fast"), before);
}

static void any_failing_allocation_is_an_error(void **state) {
    (void)state;
    ir_type_t in[2] = {ir_type_make(IR_F32, 2, (int64_t[]){3, 4}),
                       ir_type_make(IR_F32, 2, (int64_t[]){4, 5})};
    ir_type_t out = ir_type_make(IR_F32, 2, (int64_t[]){3, 5});
    ir_attr_t attrs[2] = {{.kind = IR_ATTR_BOOL}, {.kind = IR_ATTR_BOOL}};
    kern_problem_t problem = {IR_OP_MATMUL, 2, 1, in, &out, attrs, "m"};
    float a[12] = {0}, b[20] = {0}, c[15];
    const void *from[2] = {a, b};
    void *to[1] = {c};
    assert_int_equal(kern_run_once(&problem, from, to), ST_OK);
    uint64_t start = st_memory_allocations();
    assert_int_equal(kern_run_once(&problem, from, to), ST_OK);
    uint64_t n = st_memory_allocations() - start;
    assert_true(n > 0);
    for (uint64_t k = 0; k < n; k++) {
        st_memory_fail_after((int64_t)k, false);
        assert_int_equal(kern_run_once(&problem, from, to), ST_NO_MEMORY);
    }
    st_memory_fail_after(-1, false);
}

/* Largest error of an f32 op in units of the last place of the exact result, over [low, high]. */
static double worst_ulp(const char *name, double (*exact)(double), double low, double high) {
    enum { N = 40000 };
    static float x[N], y[N];
    for (int i = 0; i < N; i++) x[i] = (float)(low + (high - low) * i / (N - 1));
    ir_type_t type = ir_type_make(IR_F32, 1, (int64_t[]){N});
    const kern_impl_t *impl = kern_find(name);
    assert_non_null(impl);
    kern_problem_t problem = {impl->op, 1, 1, &type, &type, NULL, name};
    assert_int_equal(kern_run_impl(impl, &problem, 1, (const void *[]){x}, (void *[]){y}), ST_OK);
    double worst = 0;
    for (int i = 0; i < N; i++) {
        double e = exact((double)x[i]);
        double ulp = fmax(ldexp(1, -149), ldexp(1, ilogb(e == 0 ? 1e-45 : e) - 23));
        double off = fabs((double)y[i] - e) / ulp;
        if (!(off <= worst)) worst = off; /* NaN too */
    }
    return worst;
}

/* Near zeros of the function the error is of the argument's reduction: those intervals stay out. */
static void elementary_functions_are_accurate(void **state) {
    (void)state;
    static const struct {
        const char *name;
        double (*exact)(double);
        double low, high, limit;
    } rows[] = {
        {"cpu.exp.fast", exp, -87, 88.7, 2},     {"cpu.exp.fast", exp, -103, -87, 2},
        {"cpu.exp.fast", exp, -1, 1, 2},         {"cpu.log.fast", log, 1e-30, 0.7, 2},
        {"cpu.log.fast", log, 0.7, 1.5, 2.5},    {"cpu.log.fast", log, 1.5, 1e30, 2},
        {"cpu.tanh.fast", tanh, -0.7, 0.7, 2.5}, {"cpu.tanh.fast", tanh, 0.6, 12, 2.5},
        {"cpu.erf.fast", erf, -1, 1, 2.5},       {"cpu.erf.fast", erf, 0.9, 5, 2.5},
        {"cpu.sin.fast", sin, -3, 3, 2},         {"cpu.cos.fast", cos, -1.5, 1.5, 2},
    };
    static const char *const levels[] = {"base", "v3", "v4"};
    char first[8];
    snprintf(first, sizeof first, "%s", kern_cpu_level());
    for (int l = 0; l < 3; l++) {
        if (kern_set_level(levels[l]) != ST_OK) continue;
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            double worst = worst_ulp(rows[i].name, rows[i].exact, rows[i].low, rows[i].high);
            if (!(worst <= rows[i].limit))
                fail_msg("%s on %s over [%g, %g]: %g units in the last place, %g allowed",
                         rows[i].name, levels[l], rows[i].low, rows[i].high, worst, rows[i].limit);
        }
    }
    assert_int_equal(kern_set_level(first), ST_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_end_with_the_reference),
        cmocka_unit_test(choice_takes_the_first_that_can),
        cmocka_unit_test(no_kernel_is_an_error_that_names_op_and_device),
        cmocka_unit_test(levels_are_known_and_switch),
        cmocka_unit_test(any_failing_allocation_is_an_error),
        cmocka_unit_test(elementary_functions_are_accurate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
