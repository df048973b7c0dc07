/* Growable arrays. */
#include "base/vec.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void grows_and_keeps_order(void **state) {
    (void)state;
    ST_VEC(int) vec = {0};
    uint64_t before = st_memory_allocations();
    for (int i = 0; i < 10000; i++) assert_int_equal(ST_VEC_PUSH(&vec, i), ST_OK);
    assert_int_equal(vec.n, 10000);
    assert_true(vec.cap >= vec.n);
    for (int i = 0; i < 10000; i++) assert_int_equal(vec.data[i], i);
    /* Doubling from 8: 8·2^11 is the first capacity above 10,000, so 12 allocations. */
    assert_int_equal(st_memory_allocations() - before, 12);
    ST_VEC_FREE(&vec);
    assert_null(vec.data);
    assert_int_equal(vec.n + vec.cap, 0);
}

static void reserve_makes_room_once(void **state) {
    (void)state;
    ST_VEC(double) vec = {0};
    assert_int_equal(ST_VEC_RESERVE(&vec, 1000), ST_OK);
    assert_true(vec.cap >= 1000);
    assert_int_equal(vec.n, 0);
    const double *place = vec.data;
    uint64_t before = st_memory_allocations();
    for (int i = 0; i < 1000; i++) assert_int_equal(ST_VEC_PUSH(&vec, i / 2.0), ST_OK);
    assert_ptr_equal(vec.data, place);
    assert_int_equal(st_memory_allocations(), before);
    ST_VEC_FREE(&vec);
}

static void failed_push_leaves_the_vector(void **state) {
    (void)state;
    ST_VEC(int) vec = {0};
    for (int i = 0; i < 8; i++) assert_int_equal(ST_VEC_PUSH(&vec, i), ST_OK);
    assert_int_equal(vec.cap, 8);
    const int *place = vec.data;
    st_memory_fail_after(0, false);
    assert_int_equal(ST_VEC_PUSH(&vec, 8), ST_NO_MEMORY);
    st_memory_fail_after(-1, false);
    assert_ptr_equal(vec.data, place);
    assert_int_equal(vec.n, 8);
    assert_int_equal(vec.cap, 8);
    for (int i = 0; i < 8; i++) assert_int_equal(vec.data[i], i);
    assert_int_equal(ST_VEC_PUSH(&vec, 8), ST_OK);
    assert_int_equal(vec.data[8], 8);
    ST_VEC_FREE(&vec);
}

static void overflowing_size_is_out_of_memory(void **state) {
    (void)state;
    ST_VEC(int64_t) vec = {0};
    assert_int_equal(ST_VEC_RESERVE(&vec, SIZE_MAX / 4), ST_NO_MEMORY);
    assert_null(vec.data);
    assert_int_equal(vec.cap, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grows_and_keeps_order),
        cmocka_unit_test(reserve_makes_room_once),
        cmocka_unit_test(failed_push_leaves_the_vector),
        cmocka_unit_test(overflowing_size_is_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
