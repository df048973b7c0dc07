/* CUDA C of the nests of every case that is one, in one type each: as many as half a minute allows
 * are compiled, by each run others, until all are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "compile_nests.h"

static void nests_compile(void **state) {
    (void)state;
    compiled_nests_t nests;
    compile_nests(false, 30, true, &nests);
    assert_true(nests.n_nests > 600 && nests.n_texts > 300);
    assert_true(nests.n_known + nests.n_compiled > 100);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(nests_compile)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
