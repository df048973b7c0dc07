/* Arithmetic in text: values, exactness, and errors. */
#include "base/expression.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static bool lookup(void *context, const char *name, size_t bytes, int64_t *out_value) {
    (void)context;
    if (bytes == 5 && memcmp(name, "batch", 5) == 0) {
        *out_value = 8;
        return true;
    }
    if (bytes == 2 && memcmp(name, "s0", 2) == 0) {
        *out_value = 5;
        return true;
    }
    return false;
}

static void whole_numbers_are_exact(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int64_t value;
    } rows[] = {
        {"7", 7},
        {"batch", 8},
        {"4*batch*(s0 + 1)", 192},
        {"batch*s0 - 2*s0 + 3", 33},
        {"-s0", -5},
        {"2 - 3 - 4", -5},
        {"s0//2", 2},
        {"-s0//2", -3},
        {"(s0 + 1)/2", 3},
        {"24/4/2", 3},
        {"s0**3", 125},
        {"Max(1, s0, 3)", 5},
        {"Min(batch, s0)", 5},
        {"Mod(batch, s0)", 3},
        {"-1 % s0", 4},
        {"FloorDiv(batch + s0, 4)", 3},
        {"9223372036854775807", INT64_MAX},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        st_number_t n;
        if (st_expression_eval(rows[i].text, lookup, NULL, &n) != ST_OK)
            fail_msg("%s", st_last_error());
        if (!n.whole || n.i != rows[i].value) fail_msg("%s is %lld", rows[i].text, (long long)n.i);
        assert_true(n.f == (double)n.i);
    }
}

static void fractions_are_doubles(void **state) {
    (void)state;
    st_number_t n;
    assert_int_equal(st_expression_eval("1/(batch*s0)", lookup, NULL, &n), ST_OK);
    assert_false(n.whole);
    assert_true(n.f == 1.0 / 40);
    assert_int_equal(st_expression_eval("0.5*batch", lookup, NULL, &n), ST_OK);
    assert_false(n.whole);
    assert_true(n.f == 4);
    assert_int_equal(st_expression_eval("2**-2", lookup, NULL, &n), ST_OK);
    assert_true(n.f == 0.25);
    assert_int_equal(st_expression_eval("1e-3*s0", lookup, NULL, &n), ST_OK);
    assert_true(n.f == 1e-3 * 5);
}

static void what_is_wrong_is_told(void **state) {
    (void)state;
    static const struct {
        const char *text;
        st_status_t status;
        const char *message;
    } rows[] = {
        {"", ST_PARSE, "a number, a symbol or '(' expected at byte 0"},
        {"2 +", ST_PARSE, "expected at byte 3"},
        {"(s0", ST_PARSE, "')' expected at byte 3"},
        {"s0 s0", ST_PARSE, "the end expected at byte 3"},
        {"seq + 1", ST_NOT_FOUND, "no symbol 'seq'"},
        {"Max(s0)", ST_PARSE, "',' expected"},
        {"s0/(s0 - 5)", ST_INVALID, "divides by zero"},
        {"s0 % 0", ST_INVALID, "divides by zero"},
        {"0.5 // 2", ST_INVALID, "whole numbers"},
        {"9223372036854775807 + 1", ST_DOES_NOT_FIT, "overflows"},
        {"9223372036854775807 * 2", ST_DOES_NOT_FIT, "overflows"},
        {"s0 ** batch ** 9", ST_INVALID, "exponents"},
        {"99999999999999999999999999999999999999999999999999999999999999999999", ST_PARSE,
         "a number of 63 bits"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        st_number_t n;
        st_status_t status = st_expression_eval(rows[i].text, lookup, NULL, &n);
        if (status != rows[i].status || !strstr(st_last_error(), rows[i].message))
            fail_msg("'%s': status %d, %s", rows[i].text, (int)status, st_last_error());
    }
    char deep[400];
    memset(deep, '(', sizeof deep);
    deep[399] = '\0';
    st_number_t n;
    assert_int_equal(st_expression_eval(deep, lookup, NULL, &n), ST_PARSE);
    assert_non_null(strstr(st_last_error(), "nests too deep"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_numbers_are_exact),
        cmocka_unit_test(fractions_are_doubles),
        cmocka_unit_test(what_is_wrong_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
