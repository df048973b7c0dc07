/* Map from strings to ids. */
#include "base/map.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"

static void finds_what_was_added(void **state) {
    (void)state;
    enum { N = 20000, BYTES = 16 };
    static char keys[N][BYTES];
    st_map_t map = {0};
    uint32_t value = 7;
    assert_false(st_map_get_string(&map, "0", &value));
    assert_int_equal(value, 7);
    for (uint32_t i = 0; i < N; i++) {
        bool added;
        snprintf(keys[i], BYTES, "layers.%u", i);
        assert_int_equal(st_map_add_string(&map, keys[i], i, &added), ST_OK);
        assert_true(added);
    }
    assert_int_equal(map.n, N);
    assert_true(map.capacity >= 2 * N);
    for (uint32_t i = 0; i < N; i++) {
        assert_true(st_map_get_string(&map, keys[i], &value));
        assert_int_equal(value, i);
    }
    assert_false(st_map_get_string(&map, "layers.20000", &value));
    st_map_free(&map);
    assert_null(map.slots);
    assert_false(st_map_get_string(&map, "layers.1", &value));
}

static void second_value_of_a_key_is_refused(void **state) {
    (void)state;
    st_map_t map = {0};
    uint32_t found;
    bool added;
    assert_int_equal(st_map_add(&map, "ab", 2, 1, &found), ST_OK);
    assert_int_equal(found, 1);
    char same[] = "ab"; /* equal bytes elsewhere are the same key */
    assert_int_equal(st_map_add(&map, same, 2, 2, &found), ST_OK);
    assert_int_equal(found, 1);
    assert_int_equal(map.n, 1);
    assert_int_equal(st_map_add_string(&map, same, 3, &added), ST_OK);
    assert_false(added);
    st_map_free(&map);
}

static void keys_are_any_bytes(void **state) {
    (void)state;
    st_map_t map = {0};
    uint32_t found, value = 0;
    assert_int_equal(st_map_add(&map, "a\0b", 3, 1, &found), ST_OK);
    assert_int_equal(st_map_add(&map, "a\0c", 3, 2, &found), ST_OK);
    assert_int_equal(st_map_add(&map, "a", 1, 3, &found), ST_OK);
    assert_int_equal(st_map_add(&map, "", 0, 4, &found), ST_OK);
    assert_int_equal(map.n, 4);
    assert_true(st_map_get(&map, "a\0c", 3, &value));
    assert_int_equal(value, 2);
    assert_true(st_map_get(&map, "", 0, &value));
    assert_int_equal(value, 4);
    assert_false(st_map_get(&map, "a\0d", 3, &value));
    st_map_free(&map);
}

static void failed_growth_leaves_the_map(void **state) {
    (void)state;
    static const char keys[9][2] = {"a", "b", "c", "d", "e", "f", "g", "h", "i"};
    st_map_t map = {0};
    bool added;
    uint32_t value;
    st_memory_fail_after(0, false);
    assert_int_equal(st_map_add_string(&map, "x", 0, &added), ST_NO_MEMORY);
    assert_int_equal(map.n, 0);
    for (uint32_t i = 0; i < 8; i++)
        assert_int_equal(st_map_add_string(&map, keys[i], i, &added), ST_OK);
    st_memory_fail_after(0, false); /* the ninth key would fill more than half of 16 slots */
    assert_int_equal(st_map_add_string(&map, keys[8], 8, &added), ST_NO_MEMORY);
    st_memory_fail_after(-1, false);
    for (uint32_t i = 0; i < 8; i++) {
        assert_true(st_map_get_string(&map, keys[i], &value));
        assert_int_equal(value, i);
    }
    assert_false(st_map_get_string(&map, keys[8], &value));
    st_map_free(&map);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_what_was_added),
        cmocka_unit_test(second_value_of_a_key_is_refused),
        cmocka_unit_test(keys_are_any_bytes),
        cmocka_unit_test(failed_growth_leaves_the_map),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
