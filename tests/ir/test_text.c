/* The text form: what is printed, what parses, what is refused and where. */
#include "ir/text.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "ir/build.h"
#include "ir/codec.h"
#include "ir/op.h"

static ir_graph_t *parse(const char *text) {
    ir_graph_t *graph = NULL;
    if (ir_graph_parse(text, strlen(text), &graph) != ST_OK) fail_msg("%s", st_last_error());
    return graph;
}

/* print(parse(text)) == text, and the graph survives the trip bit for bit. */
static void assert_stable(const char *text) {
    ir_graph_t *graph = parse(text), *again;
    char *printed;
    uint8_t *one, *two;
    size_t one_bytes, two_bytes;
    assert_int_equal(ir_graph_print(graph, &printed), ST_OK);
    assert_string_equal(printed, text);
    again = parse(printed);
    assert_int_equal(ir_graph_encode(graph, &one, &one_bytes), ST_OK);
    assert_int_equal(ir_graph_encode(again, &two, &two_bytes), ST_OK);
    assert_int_equal(one_bytes, two_bytes);
    assert_memory_equal(one, two, one_bytes);
    st_free(one);
    st_free(two);
    st_free(printed);
    ir_graph_destroy(graph);
    ir_graph_destroy(again);
}

static void canonical_form_is_stable(void **state) {
    (void)state;
    assert_stable("graph {\n}\n");
    assert_stable(
        "graph \"llama\" producer \"pytorch 2.11\" {\n"
        "  %0 x = input {dtype=f32, shape=[4,8]} : f32[4,8]\n"
        "  %1 layers.0.weight = parameter {dtype=f32, shape=[8]} : f32[8]\n"
        "  %2 \"a b\\\"\\\\\\n\\x01\" = buffer {dtype=f32, shape=[8]} : f32[8]\n"
        "  %3, %4 norm = rms_norm(%0, %1) {eps=1e-05} : f32[4,8], f32[4]\n"
        "  %5, %6 \"output\" = rms_norm(%3, %2) : f32[4,8], f32[4]\n"
        "  %7 = add(%5, %3) : f32[4,8]\n"
        "  update(%2, %1)\n"
        "  \"named effect\" = update(%1, %2)\n"
        "  output \"loss\" = %7\n"
        "  output \"again\" = %7\n"
        "  alias \"lm_head.weight\" = \"layers.0.weight\"\n"
        "}\n");
}

static void phases_stand_where_they_change(void **state) {
    (void)state;
    assert_stable(
        "graph {\n"
        "  %0 \"phase\" = parameter {dtype=f32, shape=[2]} : f32[2]\n"
        "  phase backward\n"
        "  %1 = neg(%0) : f32[2]\n"
        "  %2 = exp(%1) : f32[2]\n"
        "  phase optimizer\n"
        "  update(%0, %2)\n"
        "  phase forward\n"
        "  %3 = abs(%0) : f32[2]\n"
        "  output \"y\" = %3\n"
        "}\n");
    ir_graph_t *graph =
        parse("graph { %0 x = input {dtype=f32, shape=[2]} phase optimizer %1 = neg(%0) }");
    assert_int_equal(ir_node(graph, 0)->phase, IR_PHASE_FORWARD);
    assert_int_equal(ir_node(graph, 1)->phase, IR_PHASE_OPTIMIZER);
    assert_int_equal(graph->phase, IR_PHASE_FORWARD); /* what is added later is forward again */
    ir_graph_destroy(graph);
}

static void constants_keep_their_bits(void **state) {
    (void)state;
    assert_stable(
        "graph {\n"
        "  %0 = constant {dtype=f32, shape=[4,8], data=0.1} : f32[4,8]\n"
        "  %1 = constant {dtype=f32, shape=[5], data=[0,-0,inf,-inf,nan]} : f32[5]\n"
        "  %2 = constant {dtype=f32, shape=[2], data=0x0100c07f0000803f} : f32[2]\n"
        "  %3 = constant {dtype=i64, shape=[2], data=[9223372036854775807,-9223372036854775808]} : "
        "i64[2]\n"
        "  %4 = constant {dtype=bool, shape=[3], data=[true,false,true]} : bool[3]\n"
        "  %5 = constant {dtype=bool, shape=[2], data=0x0201} : bool[2]\n"
        "  %6 = constant {dtype=f64, shape=[2], data=[0.1,5e-324]} : f64[2]\n"
        "  %7 = constant {dtype=bf16, shape=[2], data=[0.1,-3e+38]} : bf16[2]\n"
        "  %8 = constant {dtype=f16, shape=[], data=6.55e+04} : f16[]\n"
        "  %9 = constant {dtype=u8, shape=[0], data=[]} : u8[0]\n"
        "  %10 = constant {dtype=i8, shape=[2], data=[-128,127]} : i8[2]\n"
        "}\n");
}

static void long_data_is_hexadecimal(void **state) {
    (void)state;
    ir_graph_t *graph;
    char *text;
    int64_t values[65], dim = 65, short_dim = 64;
    for (int i = 0; i < 65; i++) values[i] = i;
    assert_int_equal(ir_graph_create("", &graph), ST_OK);
    ir_build_t b = {.graph = graph};
    ir_b_constant(&b, ir_type_make(IR_I64, 1, &dim), values, sizeof values);
    ir_b_constant(&b, ir_type_make(IR_I64, 1, &short_dim), values, 64 * sizeof *values);
    assert_int_equal(b.status, ST_OK);
    assert_int_equal(ir_graph_print(graph, &text), ST_OK);
    assert_non_null(strstr(text, "data=0x00000000000000000100000000000000"));
    assert_non_null(strstr(text, "data=[0,1,2,"));
    assert_stable(text);
    st_free(text);
    ir_graph_destroy(graph);
}

static void float_attributes_keep_their_bits(void **state) {
    (void)state;
    uint64_t odd_nan_bits = 0x7ff8000000000123u;
    double odd_nan, values[] = {0.1, 1e-300, -0.0, INFINITY, -INFINITY, NAN, 0x1.fffffffffffffp-3};
    memcpy(&odd_nan, &odd_nan_bits, sizeof odd_nan);
    ir_graph_t *graph;
    char *text;
    assert_int_equal(ir_graph_create("", &graph), ST_OK);
    ir_build_t b = {.graph = graph};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        ir_b_iota(&b, ir_type_make(IR_F32, 1, (int64_t[]){3}), 0, values[i], 1);
    ir_b_iota(&b, ir_type_make(IR_F32, 1, (int64_t[]){3}), 0, odd_nan, 1);
    assert_int_equal(b.status, ST_OK);
    assert_int_equal(ir_graph_print(graph, &text), ST_OK);
    assert_non_null(strstr(text, "0x7ff8000000000123"));
    ir_graph_t *again = parse(text);
    for (ir_node_t i = 0; i < graph->nodes.n; i++)
        assert_memory_equal(&ir_node_attr(ir_node(graph, i), "start")->f,
                            &ir_node_attr(ir_node(again, i), "start")->f, sizeof(double));
    st_free(text);
    ir_graph_destroy(graph);
    ir_graph_destroy(again);
}

static void hand_written_text_parses(void **state) {
    (void)state;
    ir_graph_t *graph = parse(
        "# what a person writes\n"
        "graph\"g\"{%x in=input{shape=[ 2 , 3 ],dtype=f32} # types left out\n"
        "%half=constant{dtype=f32,shape=[],data=0x1p-1}\r\n"
        "\t%y = mul ( %x , %half )\n output y = %y alias a.b=w %w "
        "w=parameter{dtype=f32,shape=[]}}");
    assert_int_equal(graph->nodes.n, 4);
    assert_string_equal(graph->name, "g");
    assert_int_equal(ir_graph_find(graph, "in"), 0);
    assert_int_equal(ir_graph_find_output(graph, "y"), 2);
    assert_int_equal(ir_graph_find(graph, "a.b"), 3);
    float half;
    memcpy(&half, ir_node_attr(ir_node(graph, 1), "data")->data.p, sizeof half);
    assert_true(half == 0.5f);
    ir_graph_destroy(graph);
}

static void assert_refused(const char *text, size_t bytes, const char *message) {
    ir_graph_t *graph = (ir_graph_t *)1;
    st_clear_error();
    st_status_t status = ir_graph_parse(text, bytes, &graph);
    if (status != ST_PARSE && status != ST_DOES_NOT_FIT)
        fail_msg("status %d for: %s (%s)", status, text, st_last_error());
    assert_null(graph);
    if (!strstr(st_last_error(), message))
        fail_msg("'%s' is not in '%s'", message, st_last_error());
}

static void errors_say_where_and_what(void **state) {
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"", "line 1, column 1: 'graph' expected, the text ends here"},
        {"graph", "'{' expected"},
        {"graph {\n", "line 2, column 1: '}' expected, the text ends here"},
        {"graph {} x", "line 1, column 10: the end of the text expected, found 'x'"},
        {"graph \"a", "line 1, column 7: the string does not end"},
        {"graph \"a\\q\" {}", "bad escape at byte 2"},
        {"graph \"\\x00\" {}", "bad escape"},
        {"graph {\n  %0 = nothing\n}", "line 2, column 8: there is no op 'nothing'"},
        {"graph { %0 = 7 }", "an op expected, found '7'"},
        {"graph { % = add }", "without a value name"},
        {"graph { ! }", "unexpected character 0x21"},
        {"graph { = }", "a statement expected"},
        {"graph { \"x\" }", "a statement expected, found '}'"},
        {"graph { %0 x = input {dtype=f32, shape=[2]} %1 = add(%0, %2) }",
         "%2 is used before it is defined"},
        {"graph { %0 = add(%0, %0) }", "%0 is used before it is defined"},
        {"graph { %0 x = input {dtype=f32, shape=[2]} %0 = neg(%0) }", "%0 is defined twice"},
        {"graph { %0, %1 x = input {dtype=f32, shape=[2]} }", "2 results, input has 1"},
        {"graph { %0 x = input {dtype=f32, shape=[2]} neg(%0) }", "0 results, neg has 1"},
        {"graph { %0 x = input {dtype=f32, shape=[2]} %1 = neg(%0, %0) }", "2 inputs given"},
        {"graph { %0 x = input {dtype=f32, shape=[2]} : f32[3] }",
         "column 47: output 0 is f32[3], the shape rule says f32[2]"},
        {"graph { %0 x = input {dtype=f32, shape=[2]} : f32[1,1,1,1,1,1,1,1,1] }", "rank 9"},
        {"graph { %0 x = input {dtype=f33, shape=[2]} }", "an element type expected, found 'f33'"},
        {"graph { %0 x = input {shape=[2]} }", "attribute 'dtype' is missing"},
        {"graph { %0 x = input {dtype=f32, shape=[2], shape=[2]} }", "'shape' is given twice"},
        {"graph { %0 x = input {dtype=f32, size=[2]} }", "input has no attribute 'size'"},
        {"graph { %0 x = input {dtype=f32, shape=2} }", "'[' expected, found '2'"},
        {"graph { %0 x = input {dtype=f32, shape=[2.5]} }", "a 64-bit integer expected"},
        {"graph { %0 x = input {dtype=f32, shape=[9223372036854775808]} }", "a 64-bit integer"},
        {"graph { %0 x = input {dtype=f32, shape=[-2]} }", "-2"},
        {"graph { %0 x = input {dtype=f32, shape=[4294967296,4294967296]} }", "overflow"},
        {"graph { %0 = input {dtype=f32, shape=[2]} }", "need a name"},
        {"graph { %0 \"\" = input {dtype=f32, shape=[2]} }", "need a name"},
        {"graph { %0 x = parameter {dtype=f32, shape=[]} %1 x = parameter {dtype=f32, shape=[]} }",
         "the name is taken by node 0"},
        {"graph { %0 x = parameter {dtype=f32, shape=[]} output a = %0 output a = %0 }",
         "output name 'a' is used twice"},
        {"graph { output a = %0 }", "%0 is used before it is defined"},
        {"graph { alias a = b }", "alias 'a' stands for 'b'"},
        {"graph { %0 x = constant {shape=[], data=1, dtype=f32} }",
         "needs the attribute dtype before"},
        {"graph { %0 x = constant {dtype=f32, shape=[], data=0x123} }", "odd number of hex digits"},
        {"graph { %0 x = constant {dtype=f32, shape=[], data=0x1g} }", "not hexadecimal"},
        {"graph { %0 x = constant {dtype=f32, shape=[2], data=[1,2,3]} }", "12 bytes given"},
        {"graph { %0 x = constant {dtype=u8, shape=[], data=256} }", "256 does not fit in u8"},
        {"graph { %0 x = constant {dtype=bool, shape=[], data=1} }", "true or false expected"},
        {"graph { %0 x = constant {dtype=f32, shape=[], data=1..2} }", "a number expected"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_refused(cases[i].text, strlen(cases[i].text), cases[i].message);
    assert_refused("graph \"a\0b\" {}", 15, "NUL byte");
    assert_refused("graph {\0}", 9, "unexpected character 0x00");
}

/* Every prefix of a text, which need not end in NUL, is refused without reading past it. */
static void every_prefix_is_refused(void **state) {
    (void)state;
    static const char text[] =
        "graph \"a\\\"\" producer \"p\" { %0 x = input {dtype=f32, shape=[2]} : f32[2]\n"
        "%1 = constant {dtype=f32, shape=[2], data=0x0000803f0000803f} %2 = constant {dtype=f32, "
        "shape=[2], data=[1e-5,-inf]} # c\n %3 \"s\\x41\" = add(%0, %1) output \"y\" = %3 }";
    for (size_t n = 0; n < sizeof text - 1; n++) {
        char *copy = st_malloc(n); /* so that the sanitizer sees a read past the end */
        ir_graph_t *graph;
        memcpy(copy, text, n);
        assert_int_equal(ir_graph_parse(copy, n, &graph), ST_PARSE);
        assert_null(graph);
        st_free(copy);
    }
    ir_graph_destroy(parse(text));
}

static void every_failed_allocation_is_reported(void **state) {
    (void)state;
    static const char text[] =
        "graph \"a\" { %0 x = input {dtype=f32, shape=[2]} %1 = constant {dtype=f32, shape=[2], "
        "data=[1,2]} %2 = add(%0, %1) output \"y\" = %2 }";
    int64_t n = 0;
    st_status_t status;
    do {
        ir_graph_t *graph = NULL;
        char *printed = NULL;
        st_memory_fail_after(n++, false);
        status = ir_graph_parse(text, sizeof text - 1, &graph);
        if (status == ST_OK) status = ir_graph_print(graph, &printed);
        st_memory_fail_after(-1, false);
        assert_true(status == ST_OK || status == ST_NO_MEMORY);
        st_free(printed);
        ir_graph_destroy(graph);
        assert_true(n < 1000);
    } while (status != ST_OK);
    assert_true(n > 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(canonical_form_is_stable),
        cmocka_unit_test(phases_stand_where_they_change),
        cmocka_unit_test(constants_keep_their_bits),
        cmocka_unit_test(long_data_is_hexadecimal),
        cmocka_unit_test(float_attributes_keep_their_bits),
        cmocka_unit_test(hand_written_text_parses),
        cmocka_unit_test(errors_say_where_and_what),
        cmocka_unit_test(every_prefix_is_refused),
        cmocka_unit_test(every_failed_allocation_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
