/* CUDA C of the nests of every case that is one, in every type: all of it compiles. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "compile_nests.h"

static void all_nests_compile(void **state) {
    (void)state;
    compiled_nests_t nests;
    compile_nests(true, INFINITY, false, &nests);
    assert_int_equal(nests.n_known, 0);
    assert_int_equal(nests.n_compiled, nests.n_texts);
    assert_true(nests.n_nests > 1500);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_nests_compile)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
