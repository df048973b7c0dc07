/* Numbers as text. */
#include "base/number.h"

#include <float.h>
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"

static void shortest_texts_are_these(void **state) {
    (void)state;
    static const struct {
        double value;
        const char *text;
    } cases[] = {
        {0, "0"},           {-0.0, "-0"},        {1, "1"},
        {0.1, "0.1"},       {1e-5, "1e-05"},     {1.0 / 3, "0.3333333333333333"},
        {1e300, "1e+300"},  {123456, "123456"},  {-2.5, "-2.5"},
        {INFINITY, "inf"},  {-INFINITY, "-inf"}, {NAN, "nan"},
        {5e-324, "5e-324"},
    };
    char text[ST_NUMBER_BYTES];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_string_equal(st_double_shortest(cases[i].value, text), cases[i].text);
}

static void every_double_reads_back(void **state) {
    (void)state;
    char text[ST_NUMBER_BYTES];
    for (uint64_t i = 0; i < 5000; i++) {
        uint32_t words[4];
        uint64_t bits;
        double value, back;
        st_philox(3, i, 0, words);
        bits = (uint64_t)words[0] << 32 | words[1];
        memcpy(&value, &bits, sizeof value);
        if (value != value) continue;
        st_double_shortest(value, text);
        assert_true(st_double_parse(text, strlen(text), &back));
        assert_memory_equal(&back, &value, sizeof value);
    }
}

/* The decimal point does not follow the program's locale. */
static void locale_does_not_matter(void **state) {
    (void)state;
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "C.UTF-8"};
    for (size_t i = 0; i < 4 && !setlocale(LC_ALL, names[i]); i++) continue;
    char text[ST_NUMBER_BYTES];
    double value = 0;
    assert_string_equal(st_double_text(0.5, 3, text), "0.5");
    assert_true(st_double_parse("0.5", 3, &value));
    assert_true(value == 0.5);
    assert_false(st_double_parse("0,5", 3, &value));
    setlocale(LC_ALL, "C");
}

static void only_whole_numbers_parse(void **state) {
    (void)state;
    double value = 0;
    static const char *const bad[] = {"", " 1", "1 ", "1x", "--1", "e5", "x", "1e", "0x"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(st_double_parse(bad[i], strlen(bad[i]), &value));
    assert_false(st_double_parse("1\0", 2, &value));
    char longest[300];
    memset(longest, '1', sizeof longest);
    assert_false(st_double_parse(longest, sizeof longest, &value));
    assert_true(st_double_parse("0x1.8p1", 7, &value));
    assert_true(value == 3.0);
    assert_true(st_double_parse("12345", 2, &value)); /* not NUL-terminated */
    assert_true(value == 12.0);
    assert_true(st_double_parse("-inf", 4, &value));
    assert_true(value == -INFINITY);
    assert_true(st_double_parse("nan", 3, &value));
    assert_true(value != value);
}

static void integers_keep_64_bits(void **state) {
    (void)state;
    int64_t value = 0;
    assert_true(st_int_parse("9223372036854775807", 19, &value));
    assert_true(value == INT64_MAX);
    assert_true(st_int_parse("-9223372036854775808", 20, &value));
    assert_true(value == INT64_MIN);
    assert_true(st_int_parse("+12", 3, &value));
    assert_int_equal(value, 12);
    assert_false(st_int_parse("9223372036854775808", 19, &value));
    assert_false(st_int_parse("-9223372036854775809", 20, &value));
    assert_false(st_int_parse("", 0, &value));
    assert_false(st_int_parse("-", 1, &value));
    assert_false(st_int_parse("1.0", 3, &value));
}

static void sizes_are_told_in_their_unit(void **state) {
    (void)state;
    static const struct {
        uint64_t bytes;
        const char *text;
    } rows[] = {{0, "0 B"},
                {1023, "1023 B"},
                {1024, "1.00 KiB"},
                {1536, "1.50 KiB"},
                {((uint64_t)1 << 20) - 1, "1.00 MiB"},
                {(uint64_t)3 << 19, "1.50 MiB"},
                {(uint64_t)141 << 30, "141.00 GiB"},
                {((uint64_t)1 << 40) - 1, "1.00 TiB"},
                {UINT64_MAX, "16.00 EiB"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[ST_NUMBER_BYTES];
        assert_string_equal(st_size_text(rows[i].bytes, text), rows[i].text);
    }
}

static void times_and_rates_have_units(void **state) {
    (void)state;
    static const struct {
        const char *text;
        double value; /* 0: is none */
    } times[] = {{"2ms", 2e-3}, {"50us", 50e-6}, {"1.5 s", 1.5}, {"3", 3}, {"0ms", 0},
                 {"-1s", 0},    {"ms", 0},       {"", 0},        {"2m", 0}},
      rates[] = {{"200MB/s", 200e6}, {"1GiB/s", 0x1p30}, {"5e7", 5e7}, {"10 kB/s", 1e4},
                 {"7B", 7},          {"3MiB", 0x3p20},   {"/s", 0},    {"0MB/s", 0},
                 {"1Gb/s", 0},       {"1GB/h", 0},       {"nan", 0}};
    double got;
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
        assert_int_equal(st_duration_parse(times[i].text, &got), times[i].value > 0);
        if (times[i].value > 0) assert_true(fabs(got - times[i].value) < 1e-12 * times[i].value);
    }
    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++) {
        assert_int_equal(st_rate_parse(rates[i].text, &got), rates[i].value > 0);
        if (rates[i].value > 0) assert_true(fabs(got - rates[i].value) < 1e-12 * rates[i].value);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shortest_texts_are_these),
        cmocka_unit_test(every_double_reads_back),
        cmocka_unit_test(locale_does_not_matter),
        cmocka_unit_test(only_whole_numbers_parse),
        cmocka_unit_test(integers_keep_64_bits),
        cmocka_unit_test(sizes_are_told_in_their_unit),
        cmocka_unit_test(times_and_rates_have_units),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
