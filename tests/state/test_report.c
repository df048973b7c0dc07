/* Lists of names in messages: ten names, the count, and no overflow by long names. */
#include "state/report.h"

#include "support/scratch.h"

static void counts_and_cuts(void **state) {
    (void)state;
    state_report_t report = {0};
    char text[1000];
    assert_string_equal(state_report_text(&report, "missing", text, sizeof text), "");
    state_report_add(&report, "%s", "a");
    assert_string_equal(state_report_text(&report, "missing", text, sizeof text), "1 missing: a");
    for (int i = 2; i <= 10; i++) state_report_add(&report, "n%d", i);
    assert_string_equal(state_report_text(&report, "missing", text, sizeof text),
                        "10 missing: a, n2, n3, n4, n5, n6, n7, n8, n9, n10");
    state_report_add(&report, "n11");
    assert_string_equal(state_report_text(&report, "missing", text, sizeof text),
                        "11 missing: a, n2, n3, n4, n5, n6, n7, n8, n9, n10, …");
}

static void long_names_fit(void **state) {
    (void)state;
    state_report_t report = {0};
    char name[700], text[300];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    for (int i = 0; i < 20; i++) state_report_add(&report, "%s", name);
    assert_int_equal(report.n, 20);
    assert_true(report.used < sizeof report.text);
    state_report_text(&report, "left over", text, sizeof text);
    assert_int_equal(strlen(text), sizeof text - 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_and_cuts),
        cmocka_unit_test(long_names_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
