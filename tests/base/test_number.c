/* Numbers as text and back, in any locale. */
#include "base/number.h"

#include <float.h>
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"

static void shortest_text_is_known(void **state) {
    (void)state;
    static const struct {
        double value;
        const char *text;
    } rows[] = {
        {0, "0"},
        {-0.0, "-0"},
        {1, "1"},
        {0.1, "0.1"},
        {-2.5, "-2.5"},
        {1e-5, "1e-05"},
        {100000, "1e+05"},
        {0.1 + 0.2, "0.30000000000000004"}, /* the neighbour of 0.3 needs all 17 digits */
        {5e-324, "5e-324"},
        {DBL_MAX, "1.7976931348623157e+308"},
        {INFINITY, "inf"},
        {-INFINITY, "-inf"},
        {NAN, "nan"},
        {-NAN, "nan"},
    };
    char buffer[ST_NUMBER_BYTES];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_string_equal(st_double_shortest(rows[i].value, buffer), rows[i].text);
    }
    assert_string_equal(st_double_text(1.0 / 3, 3, buffer), "0.333");
    assert_string_equal(st_double_text(-1.0 / 3, 17, buffer), "-0.33333333333333331");
}

/* All bit patterns, subnormals and huge ones included, come back as the same bits. */
static void random_values_come_back_exactly(void **state) {
    (void)state;
    char buffer[ST_NUMBER_BYTES];
    for (uint64_t i = 0; i < 5000; i++) {
        uint32_t words[4];
        st_philox(1, i, 0, words);
        double value, back = 0;
        memcpy(&value, words, sizeof value);
        if (value != value) continue;
        st_double_shortest(value, buffer);
        assert_true(st_double_parse(buffer, strlen(buffer), &back));
        assert_memory_equal(&back, &value, sizeof value);
    }
}

static void parse_takes_whole_numbers_only(void **state) {
    (void)state;
    double value = 0;
    assert_true(st_double_parse("1.5", 3, &value) && value == 1.5);
    assert_true(st_double_parse("-1.5e3xyz", 6, &value) && value == -1500);
    assert_true(st_double_parse("+0x1p-3", 7, &value) && value == 0.125);
    assert_true(st_double_parse("1e999", 5, &value) && value == INFINITY);
    assert_true(st_double_parse("-inf", 4, &value) && value == -INFINITY);
    assert_true(st_double_parse("nan", 3, &value) && value != value);
    static const char *const bad[] = {"",    " 1", "1 ", "1,5", "1.5.",
                                      "--1", "e5", "0x", "one", "1e"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_false(st_double_parse(bad[i], strlen(bad[i]), &value));
    }
    assert_false(st_double_parse("1\0", 2, &value));
    char zeros[300];
    memset(zeros, '0', sizeof zeros);
    assert_true(st_double_parse(zeros, 256, &value) && value == 0);
    assert_false(st_double_parse(zeros, 257, &value));
}

static void integers_stop_at_their_range(void **state) {
    (void)state;
    int64_t value = 0;
    assert_true(st_int_parse("-9223372036854775808", 20, &value));
    assert_true(value == INT64_MIN);
    assert_true(st_int_parse("9223372036854775807", 19, &value));
    assert_true(value == INT64_MAX);
    assert_true(st_int_parse("+007", 4, &value));
    assert_int_equal(value, 7);
    assert_true(st_int_parse("42abc", 2, &value));
    assert_int_equal(value, 42);
    static const char *const bad[] = {"",
                                      "-",
                                      "+",
                                      "1.0",
                                      " 1",
                                      "1 ",
                                      "0x10",
                                      "--1",
                                      "9223372036854775808",
                                      "-9223372036854775809",
                                      "99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_false(st_int_parse(bad[i], strlen(bad[i]), &value));
    }
}

/* A program that has set a locale with a decimal comma reads and writes the same files. */
static void locale_does_not_matter(void **state) {
    (void)state;
    static const char *const commas[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "de_DE"};
    const char *set = NULL;
    for (size_t i = 0; !set && i < sizeof commas / sizeof *commas; i++) {
        set = setlocale(LC_NUMERIC, commas[i]);
    }
    if (!set) {
        print_message("skipped: no locale with a decimal comma is installed\n");
        skip();
    }
    char buffer[ST_NUMBER_BYTES];
    double value = 0;
    assert_string_equal(st_double_shortest(2.5, buffer), "2.5");
    assert_true(st_double_parse("2.5", 3, &value) && value == 2.5);
    assert_false(st_double_parse("2,5", 3, &value));
    assert_string_equal(localeconv()->decimal_point, ","); /* the caller's locale is still set */
    setlocale(LC_NUMERIC, "C");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shortest_text_is_known),
        cmocka_unit_test(random_values_come_back_exactly),
        cmocka_unit_test(parse_takes_whole_numbers_only),
        cmocka_unit_test(integers_stop_at_their_range),
        cmocka_unit_test(locale_does_not_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
