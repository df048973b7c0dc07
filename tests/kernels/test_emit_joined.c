/* Kernels of a level that are one launch: squares of many gradients, whose launches would cost more
 * than the sums do (conformance.emit_host says that they are right). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "kernels/emit/single.h"
#include "kernels/emit/source.h"
#include "support/scratch.h"

static int count(const char *text, const char *word) {
    int n = 0;
    for (const char *at = text; (at = strstr(at, word)); at++) n++;
    return n;
}

static void squares_of_all_gradients_are_three_launches(void **state) {
    (void)state;
    enum { N = 40 };
    ir_type_t in[N] = {0}, out = ir_type_scalar(IR_F32);
    for (int i = 0; i < N; i++) {
        in[i].dtype = i % 3 ? IR_BF16 : IR_F32;
        in[i].rank = 2;
        in[i].dims[0] = 16 * (i + 1); /* from one block to several */
        in[i].dims[1] = i % 2 ? 768 : 8;
    }
    const kern_problem_t problem = {IR_OP_SUM_SQUARES, N, 1, in, &out, NULL, ""};
    emit_problem_t made;
    const char *reason;
    char *source;
    assert_ok(emit_problem_create(&problem, &made, &reason));
    assert_non_null(made.schedule);
    assert_int_equal(emit_n_launches(made.schedule), 3); /* pieces, what joins them, their sum */
    int64_t blocks = 0;
    for (uint32_t i = 0; i < made.schedule->n_kernels; i++) {
        const emit_kernel_t *k = &made.schedule->kernels[i];
        if (k->shape == EMIT_LINES) blocks += k->blocks;
    }
    assert_true(blocks > N);
    assert_int_equal(emit_launch_blocks(made.schedule, 0), blocks);
    /* one text a type for the pieces, one for what joins them, one for the sum */
    assert_ok(emit_source(made.schedule, &source));
    assert_int_equal(count(source, "__global__"), 3);
    assert_int_equal(count(source, "enum { V = "), 4);
    st_free(source);
    emit_problem_clear(&made);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(squares_of_all_gradients_are_three_launches)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
