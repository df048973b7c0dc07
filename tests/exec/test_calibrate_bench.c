/* Measuring this machine gives a description that the library reads: every point ran, and rates are
 * what a processor may have. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "compile/target.h"
#include "exec/calibrate.h"

static void a_description_comes_out(void **state) {
    (void)state;
    char *text;
    target_t *t;
    if (exec_calibrate("here", &text) != ST_OK) fail_msg("%s", st_last_error());
    if (target_parse("here.target", text, strlen(text), &t) != ST_OK)
        fail_msg("%s", st_last_error());
    assert_string_equal(t->machine.name, "here");
    assert_true(t->n_rates > 500 && t->n_bandwidths == 7);
    for (uint32_t i = 0; i < t->n_rates; i++) {
        const target_rate_t *r = &t->rates[i];
        bool product = r->bytes == 0;
        /* a core does at most 64 multiply-adds a cycle of a fifth of a nanosecond */
        if (r->ns <= (product ? 0.2 / 64 : 1e-4) || r->ns > 1e5)
            fail_msg("%s takes %g ns", ir_op_def(r->op)->name, r->ns);
    }
    target_destroy(t);
    st_free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_description_comes_out)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
