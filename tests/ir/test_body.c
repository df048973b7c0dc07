/* Bodies: text, bytes, copy, equality, what the verifier refuses, expansion. */
#include "ir/body.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "ir/codec.h"
#include "ir/expand.h"
#include "ir/structure.h"
#include "ir/text.h"
#include "ir/verify.h"

static ir_graph_t *parse(const char *text) {
    ir_graph_t *graph;
    if (ir_graph_parse(text, strlen(text), &graph) != ST_OK) fail_msg("%s", st_last_error());
    return graph;
}

/* The text is refused with a message that holds `part`. */
static void assert_refused(const char *text, const char *part) {
    ir_graph_t *graph;
    assert_int_not_equal(ir_graph_parse(text, strlen(text), &graph), ST_OK);
    assert_null(graph);
    if (!strstr(st_last_error(), part)) fail_msg("'%s' lacks '%s'", st_last_error(), part);
}

static const char network[] =
    "graph {\n"
    "  %0 x = input {dtype=f32, shape=[4]} : f32[4]\n"
    "  %1 w = parameter {dtype=f32, shape=[4]} : f32[4]\n"
    "  %2, %3 \"two results\" = fused(%0, %1) {body=graph {\n"
    "    %0 a = input {dtype=f32, shape=[4], batch_axis=-1} : f32[4]\n"
    "    %1 b = input {dtype=f32, shape=[4], batch_axis=-1} : f32[4]\n"
    "    %2 = fused(%0) {body=graph \"inner\" {\n"
    "      %0 c = input {dtype=f32, shape=[4], batch_axis=-1} : f32[4]\n"
    "      %1 = neg(%0) : f32[4]\n"
    "      output \"r\" = %1\n"
    "    }} : f32[4]\n"
    "    %3 = mul(%2, %1) : f32[4]\n"
    "    output \"p\" = %3\n"
    "    output \"q\" = %2\n"
    "  }} : f32[4], f32[4]\n"
    "  output \"y\" = %2\n"
    "  output \"z\" = %3\n"
    "}\n";

static void text_and_bytes_come_back(void **state) {
    (void)state;
    ir_graph_t *graph = parse(network), *again, *copy;
    char *text;
    uint8_t *data;
    size_t bytes;
    assert_int_equal(ir_graph_print(graph, &text), ST_OK);
    assert_string_equal(text, network);
    st_free(text);
    assert_int_equal(ir_graph_encode(graph, &data, &bytes), ST_OK);
    assert_int_equal(ir_graph_decode(data, bytes, &again), ST_OK);
    st_free(data);
    ir_graph_destroy(graph); /* bodies are not shared */
    assert_int_equal(ir_graph_copy(again, &copy), ST_OK);
    ir_graph_destroy(again);
    assert_int_equal(ir_graph_verify(copy), ST_OK);
    assert_int_equal(ir_graph_depth(copy), 2);
    assert_int_equal(ir_graph_print(copy, &text), ST_OK);
    assert_string_equal(text, network);
    st_free(text);
    ir_graph_destroy(copy);
}

static ir_graph_t *variant(const char *from, const char *to) {
    char text[sizeof network + 64];
    const char *at = strstr(network, from);
    assert_non_null(at);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - network), network, to, at + strlen(from));
    return parse(text);
}

static void equality_is_by_content(void **state) {
    (void)state;
    static const struct {
        const char *from, *to;
        bool equal;
    } rows[] = {
        {"neg", "neg", true},
        {"\"inner\" ", "", true},                          /* names do not matter */
        {"output \"q\"", "output \"other\"", true},        /* nor here */
        {"neg", "relu", false},                            /* a node two bodies down */
        {"mul(%2, %1)", "mul(%1, %2)", false},             /* operands' order */
        {"output \"p\" = %3", "output \"p\" = %2", false}, /* results */
    };
    ir_graph_t *graph = parse(network);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ir_graph_t *other = variant(rows[i].from, rows[i].to);
        assert_int_equal(ir_graph_equal(graph, other), rows[i].equal);
        assert_int_equal(ir_graph_hash(graph, 7) == ir_graph_hash(other, 7), rows[i].equal);
        ir_graph_destroy(other);
    }
    ir_graph_destroy(graph);
}

#define X "%x x = input {dtype=f32, shape=[4]}\n"
#define A "%a a = input {dtype=f32, shape=[4]}\n"

static void errors_say_what_is_wrong(void **state) {
    (void)state;
    assert_refused("graph {" X "%y = fused(%x) {body=graph {" A A "output r = %a }} }",
                   "%a is defined twice");
    assert_refused("graph {" X "%y = fused(%x, %x) {body=graph {" A "output r = %a }} }",
                   "2 operands, the body has 1 inputs");
    assert_refused("graph {" X
                   "%y = fused(%x) {body=graph { %a a = input {dtype=f32, shape=[5]}\n"
                   "output r = %a }} }",
                   "operand 0 is f32[4] to the body, its input 'a' is f32[5]");
    assert_refused("graph {" X "%y, %z = fused(%x) {body=graph {" A "output r = %a }} }",
                   "2 results, fused has 1");
    assert_refused("graph {" X "%y = fused(%x) {body=graph {" A "output r = %x }} }",
                   "%x is used before it is defined");
    assert_refused("graph {" X "%y = fused(%x) {body=graph {" A
                   "%w w = parameter {dtype=f32, shape=[4]} output r = %w }} }",
                   "node 1 (parameter 'w') is state, which a body must not have");
    assert_refused("graph {" X "%y = fused(%x) {body=graph {" A
                   "%s = all_reduce_start(%a) %r = all_reduce_wait(%s) output r = %r }} }",
                   "is a collective, which a body must not have");
    assert_refused("graph {" X "%y = fused(%x) }", "attribute 'body' is missing");
    assert_refused("graph {" X "%y = fused(%x) {body=4} }", "'graph' expected");
    assert_refused("graph {" X "%y = fused(%x) {body=graph {" A "output r = %a } }", "expected");
}

static void nesting_is_bounded(void **state) {
    (void)state;
    /* one level more than is allowed, as text and through the builder */
    char text[8192] = "graph {" X;
    for (int i = 0; i <= IR_MAX_DEPTH; i++)
        strcat(text, "%y = fused(%x) {body=graph { %x a = input {dtype=f32, shape=[4]}\n");
    assert_refused(text, "bodies in bodies, 8 deep at most");
    ir_graph_t *graph;
    assert_int_equal(ir_graph_create("", &graph), ST_OK);
    ir_type_t type = {.dtype = IR_F32, .rank = 1, .dims = {4}};
    ir_build_t b = {.graph = graph};
    ir_b_body_output(&b, ir_b_unary(&b, IR_OP_NEG, ir_b_body_input(&b, &type)));
    for (int depth = 1; depth <= IR_MAX_DEPTH + 1; depth++) {
        ir_graph_t *outer;
        assert_int_equal(ir_graph_create("", &outer), ST_OK);
        ir_build_t o = {.graph = outer};
        ir_value_t x = ir_b_body_input(&o, &type);
        ir_arg_t body = IR_ARG_GRAPH("body", graph);
        ir_b_body_output(&o, ir_b_node(&o, IR_OP_FUSED, 1, &x, 1, &body));
        assert_int_equal(o.status, depth <= IR_MAX_DEPTH ? ST_OK : ST_DOES_NOT_FIT);
        ir_graph_destroy(graph);
        graph = outer;
        if (depth <= IR_MAX_DEPTH) assert_int_equal(ir_graph_verify(graph), ST_OK);
    }
    ir_graph_destroy(graph);
}

/* A body that breaks a rule after it was made is found from outside. */
static void verifier_goes_into_bodies(void **state) {
    (void)state;
    ir_graph_t *graph = parse(network);
    ir_graph_t *inner = (ir_graph_t *)(uintptr_t)ir_node_attr(ir_node(graph, 2), "body")->graph;
    inner->values.data[3].type.dims[0] = 5;
    assert_int_equal(ir_graph_verify(graph), ST_INVALID);
    assert_non_null(strstr(st_last_error(), "node 2 (fused 'two results')"));
    assert_non_null(strstr(st_last_error(), "node 3 (mul)"));
    ir_graph_destroy(graph);
}

static void expansion_is_the_body(void **state) {
    (void)state;
    ir_graph_t *graph = parse(network), *flat;
    char *text;
    assert_int_equal(ir_expand_composites(graph, ir_expand_any, &flat), ST_OK);
    assert_int_equal(ir_graph_print(flat, &text), ST_OK);
    assert_string_equal(text,
                        "graph {\n"
                        "  %0 x = input {dtype=f32, shape=[4]} : f32[4]\n"
                        "  %1 w = parameter {dtype=f32, shape=[4]} : f32[4]\n"
                        "  %2 = neg(%0) : f32[4]\n"
                        "  %3 = mul(%2, %1) : f32[4]\n"
                        "  output \"y\" = %3\n"
                        "  output \"z\" = %2\n"
                        "}\n");
    st_free(text);
    ir_graph_destroy(flat);
    ir_graph_destroy(graph);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_and_bytes_come_back),  cmocka_unit_test(equality_is_by_content),
        cmocka_unit_test(errors_say_what_is_wrong),  cmocka_unit_test(nesting_is_bounded),
        cmocka_unit_test(verifier_goes_into_bodies), cmocka_unit_test(expansion_is_the_body),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
