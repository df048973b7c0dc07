/* Open sizes: text and bytes keep them, binding gives the graph for a size, and families of graphs
 * are identified or refused. */
#include "ir/symbols.h"

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
#include "ir/family.h"
#include "ir/structure.h"
#include "ir/text.h"
#include "ir/verify.h"

static const char open_text[] =
    "graph \"g\" {\n"
    "  %0 x = input {dtype=f32, shape=[4,6]} : f32[4,6]\n"
    "  %1 = reshape(%0) {shape=[24]} : f32[24]\n"
    "  %2 = constant {dtype=f32, shape=[], data=0.25} : f32[]\n"
    "  %3 = mul(%1, %2) : f32[24]\n"
    "  output \"y\" = %3\n"
    "  symbol batch = 4 [1,64]\n"
    "  symbol seq = 6 [2]\n"
    "  vary %0 shape 0 = \"batch\"\n"
    "  vary %0 shape 1 = \"seq\"\n"
    "  vary %1 shape 0 = \"batch*seq\"\n"
    "  vary %2 data 0 = \"1/batch\"\n"
    "}\n";

static ir_graph_t *parse(const char *text) {
    ir_graph_t *graph = NULL;
    if (ir_graph_parse(text, strlen(text), &graph) != ST_OK) fail_msg("%s", st_last_error());
    return graph;
}

static void text_and_bytes_keep_symbols(void **state) {
    (void)state;
    ir_graph_t *graph = parse(open_text), *back = NULL, *copy = NULL;
    char *text;
    uint8_t *data;
    size_t bytes;
    assert_int_equal(ir_graph_print(graph, &text), ST_OK);
    assert_string_equal(text, open_text);
    st_free(text);
    assert_int_equal(ir_graph_encode(graph, &data, &bytes), ST_OK);
    assert_int_equal(ir_graph_decode(data, bytes, &back), ST_OK);
    assert_int_equal(ir_graph_print(back, &text), ST_OK);
    assert_string_equal(text, open_text);
    st_free(text);
    assert_int_equal(ir_graph_copy(back, &copy), ST_OK);
    assert_int_equal(ir_graph_print(copy, &text), ST_OK);
    assert_string_equal(text, open_text);
    st_free(text);
    st_free(data);
    ir_graph_destroy(copy);
    ir_graph_destroy(back);
    ir_graph_destroy(graph);
}

static void binding_infers_types_anew(void **state) {
    (void)state;
    ir_graph_t *graph = parse(open_text), *bound = NULL;
    const ir_binding_t sizes[] = {{"seq", 10}, {"batch", 8}};
    char *text;
    assert_int_equal(ir_graph_bind(graph, 2, sizes, &bound), ST_OK);
    assert_int_equal(ir_graph_print(bound, &text), ST_OK);
    assert_string_equal(text,
                        "graph \"g\" {\n"
                        "  %0 x = input {dtype=f32, shape=[8,10]} : f32[8,10]\n"
                        "  %1 = reshape(%0) {shape=[80]} : f32[80]\n"
                        "  %2 = constant {dtype=f32, shape=[], data=0.125} : f32[]\n"
                        "  %3 = mul(%1, %2) : f32[80]\n"
                        "  output \"y\" = %3\n"
                        "}\n");
    st_free(text);
    ir_graph_destroy(bound);
    ir_graph_destroy(graph);
}

static void expect_unbound(size_t n, const ir_binding_t *bindings, st_status_t status,
                           const char *message) {
    ir_graph_t *graph = parse(open_text), *bound = NULL;
    assert_int_equal(ir_graph_bind(graph, n, bindings, &bound), status);
    assert_null(bound);
    if (!strstr(st_last_error(), message)) fail_msg("%s", st_last_error());
    ir_graph_destroy(graph);
}

static void wrong_bindings_are_told(void **state) {
    (void)state;
    expect_unbound(0, NULL, ST_INVALID, "not bound: batch (1 to 64), seq (2 or more)");
    expect_unbound(1, (ir_binding_t[]){{"batch", 4}}, ST_INVALID, "not bound: seq (2 or more)");
    expect_unbound(2, (ir_binding_t[]){{"batch", 65}, {"seq", 4}}, ST_INVALID,
                   "65 is outside the bounds of symbol batch (1 to 64)");
    expect_unbound(2, (ir_binding_t[]){{"batch", 4}, {"batch", 4}}, ST_INVALID, "bound twice");
    expect_unbound(1, (ir_binding_t[]){{"width", 4}}, ST_NOT_FOUND,
                   "no symbol 'width'; it has batch (1 to 64), seq (2 or more)");
    ir_graph_t *graph = parse(open_text);
    assert_int_equal(ir_symbols_need_none(graph), ST_INVALID);
    assert_non_null(strstr(st_last_error(), "--bind batch="));
    ir_graph_destroy(graph);
}

static void bindings_are_read(void **state) {
    (void)state;
    st_arena_t arena = {0};
    ir_binding_t out[IR_MAX_SYMBOLS];
    size_t n = 9;
    assert_int_equal(ir_bindings_parse("", &arena, out, &n), ST_OK);
    assert_int_equal(n, 0);
    assert_int_equal(ir_bindings_parse("batch=8,seq=128", &arena, out, &n), ST_OK);
    assert_int_equal(n, 2);
    assert_string_equal(out[0].name, "batch");
    assert_int_equal(out[0].value, 8);
    assert_string_equal(out[1].name, "seq");
    assert_int_equal(out[1].value, 128);
    assert_int_equal(ir_bindings_parse("batch", &arena, out, &n), ST_INVALID);
    assert_int_equal(ir_bindings_parse("a,b=3", &arena, out, &n), ST_INVALID);
    assert_int_equal(ir_bindings_parse("batch=x", &arena, out, &n), ST_INVALID);
    assert_non_null(strstr(st_last_error(), "size 'x' of symbol 'batch'"));
    st_arena_clear(&arena);
}

/* Each line makes the graph wrong. */
static void wrong_symbols_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *line, *message;
    } rows[] = {
        {"symbol batch = 4 [5,64]", "from 5 to 64 with the example 4"},
        {"symbol batch = 4 [1,3]", "with the example 4"},
        {"symbol batch = 4 [1,64]\n  symbol batch = 4 [1,64]", "declared twice"},
        {"symbol \"a b\" = 4 [1,64]", "no name for a symbol"},
        {"vary %1 shape 1 = \"4\"", "no entry 1 of an attribute 'shape'"},
        {"vary %1 size 0 = \"4\"", "an attribute 'size'"},
        {"vary %3 shape 0 = \"24\"", "an attribute 'shape'"},
        {"vary %1 shape 0 = \"23\"", "not what 23 gives"},
        {"vary %1 shape 0 = \"seq\"", "no symbol 'seq'"},
        {"vary %1 shape 0 = \"49/2\"", "no whole number"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[1024];
        ir_graph_t *graph = NULL;
        const char *symbols = strstr(open_text, "  symbol");
        snprintf(text, sizeof text, "%.*s  %s\n}\n", (int)(symbols - open_text), open_text,
                 rows[i].line);
        assert_int_not_equal(ir_graph_parse(text, strlen(text), &graph), ST_OK);
        if (!strstr(st_last_error(), rows[i].message))
            fail_msg("%s: %s", rows[i].line, st_last_error());
    }
}

/* ---- families ---- */

typedef enum kind { REGULAR, CLIPPED, MORE_NODES } kind_t;

/* Everything an importer does with sizes: products, sums, quotients, scales, constants. */
static st_status_t build(void *context, const int64_t *sizes, ir_graph_t **out_graph) {
    kind_t kind = *(const kind_t *)context;
    int64_t batch = sizes[0], seq = sizes[1], all = batch * seq * 6;
    TRY(ir_graph_create("family", out_graph));
    ir_build_t b = {.graph = *out_graph};
    ir_value_t x = ir_b_input(&b, "x", ir_type_make(IR_F32, 3, (int64_t[]){batch, seq, 6}), 0);
    ir_value_t flat = ir_b_reshape(&b, x, 1, &all);
    flat = ir_b_scale(&b, flat, 1.0 / (double)(batch * seq));
    ir_value_t heads = ir_b_reshape(&b, flat, 4, (int64_t[]){batch * 2, seq, 1, 3});
    ir_value_t mask = ir_b_iota(&b, ir_type_make(IR_F32, 2, (int64_t[]){2 * seq - 1, batch + 1}), 0,
                                1 - (double)seq, 1);
    int64_t end = kind == CLIPPED && seq > 100 ? 100 : seq;
    ir_value_t part = ir_b_slice_axis(&b, heads, 1, 0, end);
    ir_value_t square = ir_b_reshape(
        &b, ir_b_iota(&b, ir_type_make(IR_F32, 1, (int64_t[]){(batch + 1) * seq * seq}), 0, 0, 1),
        2, (int64_t[]){seq * seq, batch + 1});
    if (kind == MORE_NODES && seq > 8) part = ir_b_unary(&b, IR_OP_NEG, part);
    ir_b_output(&b, "part", part);
    ir_b_output(&b, "mask", mask);
    ir_b_output(&b, "square", square);
    if (b.status != ST_OK) ir_graph_destroy(*out_graph), *out_graph = NULL;
    return b.status;
}

static const ir_symbol_t symbols[] = {{"batch", 1, INT64_MAX, 4}, {"seq", 2, 512, 32}};

static void families_are_identified(void **state) {
    (void)state;
    kind_t kind = REGULAR;
    ir_graph_t *family = NULL;
    if (ir_family_fit(2, symbols, build, &kind, &family) != ST_OK) fail_msg("%s", st_last_error());
    assert_int_equal(family->symbols.n, 2);
    for (int64_t batch = 1; batch < 40; batch += 3)
        for (int64_t seq = 2; seq <= 512; seq += 51) {
            ir_graph_t *bound = NULL, *wanted = NULL;
            const ir_binding_t bindings[] = {{"batch", batch}, {"seq", seq}};
            if (ir_graph_bind(family, 2, bindings, &bound) != ST_OK)
                fail_msg("%s", st_last_error());
            assert_int_equal(build(&kind, (int64_t[]){batch, seq}, &wanted), ST_OK);
            assert_true(ir_graph_equal(bound, wanted));
            ir_graph_destroy(wanted);
            ir_graph_destroy(bound);
        }
    ir_graph_destroy(family);
}

static void families_that_are_none_are_refused(void **state) {
    (void)state;
    ir_graph_t *family = NULL;
    kind_t kind = CLIPPED;
    assert_int_equal(ir_family_fit(2, symbols, build, &kind, &family), ST_UNSUPPORTED);
    assert_null(family);
    assert_non_null(strstr(st_last_error(), "no sum of products of batch, seq"));
    assert_non_null(strstr(st_last_error(), "(slice): "));
    kind = MORE_NODES;
    assert_int_equal(ir_family_fit(2, symbols, build, &kind, &family), ST_UNSUPPORTED);
    assert_non_null(strstr(st_last_error(), "the graph's nodes depend on open sizes"));
    ir_symbol_t five[5] = {symbols[0], symbols[0], symbols[0], symbols[0], symbols[0]};
    assert_int_equal(ir_family_fit(5, five, build, &kind, &family), ST_UNSUPPORTED);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_and_bytes_keep_symbols),
        cmocka_unit_test(binding_infers_types_anew),
        cmocka_unit_test(wrong_bindings_are_told),
        cmocka_unit_test(bindings_are_read),
        cmocka_unit_test(wrong_symbols_are_refused),
        cmocka_unit_test(families_are_identified),
        cmocka_unit_test(families_that_are_none_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
