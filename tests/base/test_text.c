#include "base/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void pieces_follow_each_other(void **state) {
    (void)state;
    st_text_t text = {0};
    assert_int_equal(st_text_put(&text, "%s %d", "layer", 7), ST_OK);
    assert_int_equal(st_text_put_bytes(&text, ": ab", 3), ST_OK);
    assert_int_equal(st_text_put(&text, "%s", ""), ST_OK);
    assert_string_equal(text.data, "layer 7: a");
    assert_int_equal(text.n, strlen("layer 7: a"));
    ST_VEC_FREE(&text);
}

static void pieces_of_any_length_are_whole(void **state) {
    (void)state;
    static const size_t lengths[] = {0, 1, 510, 511, 512, 513, 100000};
    char *name = st_malloc(100001);
    assert_non_null(name);
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        st_text_t text = {0};
        memset(name, 'a', lengths[i]);
        name[lengths[i]] = '\0';
        assert_int_equal(st_text_put(&text, "[%s]", name), ST_OK);
        assert_int_equal(st_text_put(&text, "\n"), ST_OK);
        assert_int_equal(text.n, lengths[i] + 3);
        assert_int_equal(strlen(text.data), text.n);
        assert_memory_equal(text.data + 1, name, lengths[i]);
        assert_string_equal(text.data + 1 + lengths[i], "]\n");
        ST_VEC_FREE(&text);
    }
    st_free(name);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_follow_each_other),
        cmocka_unit_test(pieces_of_any_length_are_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
