/* Patterns and nearest words. */
#include "base/words.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void nearest_needs_to_be_near(void **state) {
    (void)state;
    static const char *const words[] = {"train", "run", "generate"};
    assert_string_equal(st_nearest("trian", 3, words), "train");
    assert_string_equal(st_nearest("generat", 3, words), "generate");
    assert_string_equal(st_nearest("run", 3, words), "run");
    assert_null(st_nearest("elephant", 3, words));
    char longest[200];
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    (void)st_nearest(longest, 3, words); /* must not write past its row */
    assert_null(st_nearest("x", 0, words));
}

static void glob_matches_the_whole_text(void **state) {
    (void)state;
    assert_true(st_glob("*.weight", "layers.0.weight"));
    assert_true(st_glob("layers.?.weight", "layers.0.weight"));
    assert_true(st_glob("*", ""));
    assert_true(st_glob("a*b*c", "aXbYbZc"));
    assert_true(st_glob("*norm*", "layers.3.input_layernorm.weight"));
    assert_false(st_glob("*.weight", "layers.0.weights"));
    assert_false(st_glob("layers.?.weight", "layers.10.weight"));
    assert_false(st_glob("", "a"));
    assert_false(st_glob("?", ""));
    assert_false(st_glob("a*b*c", "aXbYbZ"));
    /* Many stars must not take exponential time. */
    assert_false(
        st_glob("*a*a*a*a*a*a*a*a*a*a*b",
                "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nearest_needs_to_be_near),
        cmocka_unit_test(glob_matches_the_whole_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
