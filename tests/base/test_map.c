/* Map from strings to ids. */
#include "base/map.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"

enum { N = 5000 };
static char keys[N][16];

static void keys_fill(void) {
    for (int i = 0; i < N; i++)
        snprintf(keys[i], sizeof keys[i], "layers.%d.w", i);
}

static void finds_every_key_and_no_other(void **state) {
    (void)state;
    keys_fill();
    st_map_t map = {0};
    uint32_t value = 77;
    assert_false(st_map_get_string(&map, "layers.0.w", &value));
    for (uint32_t i = 0; i < N; i++) {
        bool added = false;
        assert_int_equal(st_map_add_string(&map, keys[i], i, &added), ST_OK);
        assert_true(added);
    }
    assert_int_equal(map.n, N);
    assert_true(map.capacity >= 2 * map.n);
    for (uint32_t i = 0; i < N; i++) {
        assert_true(st_map_get_string(&map, keys[i], &value));
        assert_int_equal(value, i);
    }
    value = 77;
    assert_false(st_map_get_string(&map, "layers.5000.w", &value));
    assert_false(st_map_get_string(&map, "layers.1.", &value));
    assert_false(st_map_get_string(&map, "", &value));
    assert_int_equal(value, 77);
    st_map_free(&map);
    assert_null(map.slots);
    assert_int_equal(map.n + map.capacity, 0);
}

static void first_value_stays(void **state) {
    (void)state;
    st_map_t map = {0};
    uint32_t found = 0;
    bool added = true;
    assert_int_equal(st_map_add(&map, "bias", 4, 3, &found), ST_OK);
    assert_int_equal(found, 3);
    assert_int_equal(st_map_add(&map, "bias", 4, 9, &found), ST_OK);
    assert_int_equal(found, 3);
    assert_int_equal(st_map_add_string(&map, "bias", 9, &added), ST_OK);
    assert_false(added);
    assert_int_equal(map.n, 1);
    st_map_free(&map);
}

static void keys_are_any_bytes(void **state) {
    (void)state;
    st_map_t map = {0};
    uint32_t found = 0;
    assert_int_equal(st_map_add(&map, "a\0b", 3, 1, &found), ST_OK);
    assert_int_equal(st_map_add(&map, "a\0c", 3, 2, &found), ST_OK);
    assert_int_equal(st_map_add(&map, "a", 1, 3, &found), ST_OK);
    assert_int_equal(st_map_add(&map, "", 0, 4, &found), ST_OK);
    assert_int_equal(map.n, 4);
    assert_true(st_map_get(&map, "a\0c", 3, &found));
    assert_int_equal(found, 2);
    assert_true(st_map_get(&map, "", 0, &found));
    assert_int_equal(found, 4);
    st_map_free(&map);
}

/* Whichever allocation fails, what was added before is still there. */
static void failed_growth_keeps_the_map(void **state) {
    (void)state;
    keys_fill();
    for (int64_t countdown = 0; countdown < 6; countdown++) {
        st_map_t map = {0};
        st_memory_fail_after(countdown, true);
        uint32_t n = 0;
        bool added = false;
        while (n < N && st_map_add_string(&map, keys[n], n, &added) == ST_OK)
            n++;
        st_memory_fail_after(-1, false);
        assert_true(n < N);
        assert_false(added);
        assert_int_equal(map.n, n);
        for (uint32_t i = 0; i < n; i++) {
            uint32_t value = 0;
            assert_true(st_map_get_string(&map, keys[i], &value));
            assert_int_equal(value, i);
        }
        st_map_free(&map);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_every_key_and_no_other),
        cmocka_unit_test(first_value_stays),
        cmocka_unit_test(keys_are_any_bytes),
        cmocka_unit_test(failed_growth_keeps_the_map),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
