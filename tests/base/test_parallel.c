/* Every turn is taken once, and the first failure ends the loop with its message. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/parallel.h"

enum { TURNS = 1000 };

static atomic_int taken[TURNS];
static atomic_int n_taken;

static st_status_t count(void *context, size_t i) {
    assert_ptr_equal(context, taken);
    atomic_fetch_add(&taken[i], 1);
    return ST_OK;
}

static void every_turn_is_taken_once(void **state) {
    (void)state;
    assert_int_equal(st_parallel(TURNS, count, taken), ST_OK);
    for (size_t i = 0; i < TURNS; i++) assert_int_equal(atomic_load(&taken[i]), 1);
    assert_int_equal(st_parallel(0, count, taken), ST_OK);
}

static st_status_t fail_at_ten(void *context, size_t i) {
    (void)context;
    atomic_fetch_add(&n_taken, 1);
    return i == 10 ? FAIL(ST_NOT_FOUND, "turn %zu", i) : ST_OK;
}

static void a_failure_ends_the_loop(void **state) {
    (void)state;
    assert_int_equal(st_parallel(1u << 30, fail_at_ten, NULL), ST_NOT_FOUND);
    assert_non_null(strstr(st_last_error(), "turn 10"));
    assert_true(atomic_load(&n_taken) < 1 << 29);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_turn_is_taken_once),
                                       cmocka_unit_test(a_failure_ends_the_loop)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
