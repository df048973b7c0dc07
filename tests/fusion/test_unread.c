/* Dead code out of programs: text in, text out. */
#include "fusion/unread.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "ir/text.h"
#include "ir/verify.h"

static void what_nobody_reads_goes(void **state) {
    static const char *const before =
        "graph \"g\" {\n"
        "  %0 x = input {dtype=f32, shape=[4]} : f32[4]\n"
        "  %1 unused = input {dtype=f32, shape=[4]} : f32[4]\n"
        "  %2 running = buffer {dtype=f32, shape=[4]} : f32[4]\n"
        "  %3 = tanh(%0) : f32[4]\n"
        "  %4 = exp(%3) : f32[4]\n"
        "  %5 = neg(%4) : f32[4]\n"
        "  %6 = add(%3, %2) : f32[4]\n"
        "  update(%2, %6)\n"
        "  %7 = all_reduce_start(%3) : f32[4]\n"
        "  %8 = all_reduce_wait(%7) : f32[4]\n"
        "  %9 = sin(%0) : f32[4]\n"
        "  output \"y\" = %9\n"
        "}\n";
    static const char *const after =
        "graph \"g\" {\n"
        "  %0 x = input {dtype=f32, shape=[4]} : f32[4]\n"
        "  %1 unused = input {dtype=f32, shape=[4]} : f32[4]\n"
        "  %2 running = buffer {dtype=f32, shape=[4]} : f32[4]\n"
        "  %3 = tanh(%0) : f32[4]\n"
        "  %4 = add(%3, %2) : f32[4]\n"
        "  update(%2, %4)\n"
        "  %5 = all_reduce_start(%3) : f32[4]\n"
        "  %6 = all_reduce_wait(%5) : f32[4]\n"
        "  %7 = sin(%0) : f32[4]\n"
        "  output \"y\" = %7\n"
        "}\n";
    ir_graph_t *graph, *made;
    char *printed;
    (void)state;
    if (ir_graph_parse(before, strlen(before), &graph) != ST_OK) fail_msg("%s", st_last_error());
    assert_int_equal(fuse_drop_unread(graph, &made), ST_OK);
    assert_int_equal(ir_graph_verify(made), ST_OK);
    assert_int_equal(ir_graph_print(made, &printed), ST_OK);
    assert_string_equal(printed, after);
    st_free(printed);
    ir_graph_destroy(graph);
    ir_graph_destroy(made);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_nobody_reads_goes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
