/* The verifier: each rule is broken once, by hand, since the builders would refuse. */
#include "ir/verify.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "ir/build.h"
#include "ir/op.h"
#include "support/clock.h"

/* 0 x = input, 1 w = parameter, 2 b = buffer, 3 add(x, w), 4 rms_norm(add, w) → y, rstd,
 * 5 update(w, y), 6 constant */
enum { X, W, B, ADD, NORM, UPDATE, CONSTANT };

static ir_graph_t *make(void) {
    ir_graph_t *graph;
    assert_int_equal(ir_graph_create("g", &graph), ST_OK);
    ir_build_t b = {.graph = graph};
    ir_type_t type = ir_type_make(IR_F32, 1, (int64_t[]){4});
    ir_value_t x = ir_b_input(&b, "x", type, 0);
    ir_value_t w = ir_b_parameter(&b, "w", type);
    ir_b_buffer(&b, "b", type);
    b.name = "sum";
    ir_value_t sum = ir_b_binary(&b, IR_OP_ADD, x, w);
    b.name = NULL;
    ir_value_t y = ir_b_node(&b, IR_OP_RMS_NORM, 2, (ir_value_t[]){sum, w}, 0, NULL);
    ir_b_update(&b, w, y);
    ir_b_splat(&b, type, 1);
    ir_b_output(&b, "y", y);
    ir_b_output(&b, "rstd", y + 1);
    assert_int_equal(b.status, ST_OK);
    assert_int_equal(ir_graph_add_alias(graph, "tied", "w"), ST_OK);
    if (ir_graph_verify(graph) != ST_OK) fail_msg("%s", st_last_error());
    return graph;
}

static void assert_broken(ir_graph_t *graph, const char *message) {
    st_clear_error();
    assert_int_equal(ir_graph_verify(graph), ST_INVALID);
    if (!strstr(st_last_error(), message))
        fail_msg("'%s' is not in '%s'", message, st_last_error());
    ir_graph_destroy(graph);
}

static ir_node_info_t *node(ir_graph_t *graph, ir_node_t id) {
    return &graph->nodes.data[id];
}

static void empty_graph_is_fine(void **state) {
    (void)state;
    ir_graph_t *graph;
    assert_int_equal(ir_graph_create("", &graph), ST_OK);
    assert_int_equal(ir_graph_verify(graph), ST_OK);
    ir_graph_destroy(graph);
}

static void op_ids_are_known(void **state) {
    (void)state;
    ir_graph_t *graph = make();
    node(graph, ADD)->op = (ir_op_t)5000;
    assert_broken(graph, "node 3 has the unknown op id 5000");
    graph = make();
    node(graph, ADD)->op = IR_OP_NONE;
    assert_broken(graph, "unknown op id 0");
    graph = make();
    node(graph, ADD)->op = (ir_op_t)-1;
    assert_broken(graph, "unknown op id -1");
}

static void inputs_precede_their_nodes(void **state) {
    (void)state;
    static const ir_value_t self[] = {3, 1}, later[] = {4, 1}, far[] = {UINT32_MAX, 1};
    ir_graph_t *graph = make();
    node(graph, ADD)->inputs = self;
    assert_broken(graph, "node 3 (add 'sum'): input 0 is value 3, which no earlier node makes");
    graph = make();
    node(graph, ADD)->inputs = later;
    assert_broken(graph, "input 0 is value 4");
    graph = make();
    node(graph, ADD)->inputs = far;
    assert_broken(graph, "input 0 is value 4294967295");
}

static void counts_are_those_of_the_op(void **state) {
    (void)state;
    ir_graph_t *graph = make();
    node(graph, ADD)->n_inputs = 1;
    assert_broken(graph, "node 3 (add 'sum'): 1 inputs");
    graph = make();
    node(graph, NORM)->n_outputs = 1;
    assert_broken(graph, "1 outputs, 2 expected");
    graph = make();
    node(graph, NORM)->first_output = 3;
    assert_broken(graph, "first output is value 3, 4 expected");
    graph = make();
    graph->values.n--;
    assert_broken(graph, "first output is value 6, 6 expected (6 values)");
    graph = make();
    graph->nodes.n--;
    assert_broken(graph, "7 values, the nodes make 6");
}

static void attributes_are_those_of_the_schema(void **state) {
    (void)state;
    ir_attr_t attrs[3];
    ir_graph_t *graph = make();
    memcpy(attrs, node(graph, NORM)->attrs, sizeof *attrs);
    attrs[0].kind = IR_ATTR_INT;
    node(graph, NORM)->attrs = attrs;
    assert_broken(graph, "attribute 'eps' is of kind int, float is expected");
    graph = make();
    memcpy(attrs, node(graph, X)->attrs, sizeof attrs);
    attrs[0].i = 77;
    node(graph, X)->attrs = attrs;
    assert_broken(graph, "attribute 'dtype' is 77");
    graph = make();
    memcpy(attrs, node(graph, X)->attrs, sizeof attrs);
    attrs[1].ints.v = NULL;
    node(graph, X)->attrs = attrs;
    assert_broken(graph, "attribute 'shape' points nowhere");
    graph = make();
    node(graph, X)->attrs = NULL;
    assert_broken(graph, "attributes are missing");
}

static void types_are_those_of_the_shape_rule(void **state) {
    (void)state;
    ir_graph_t *graph = make();
    graph->values.data[3].type.dims[0] = 5;
    assert_broken(graph, "node 3 (add 'sum'): output 0 is f32[5], the shape rule says f32[4]");
    graph = make();
    graph->values.data[0].type.dtype = IR_F64;
    assert_broken(graph, "node 0 (input 'x'): output 0 is f64[4]");
    graph = make();
    graph->values.data[4].producer = 1;
    assert_broken(graph, "value 4 says it is output 0 of node 1");
    graph = make();
    graph->values.data[5].index = 0;
    assert_broken(graph, "value 5 says it is output 0 of node 4");
}

static void names_are_unique(void **state) {
    (void)state;
    ir_graph_t *graph = make();
    node(graph, B)->name = "x";
    assert_broken(graph, "node 2 (buffer 'x'): the name is taken by node 0");
    graph = make();
    node(graph, W)->name = "";
    assert_broken(graph, "need a name");
    graph = make();
    node(graph, ADD)->name = "w"; /* only inputs and state are found by name */
    assert_int_equal(ir_graph_verify(graph), ST_OK);
    ir_graph_destroy(graph);
}

static void aliases_name_state(void **state) {
    (void)state;
    ir_graph_t *graph = make();
    graph->aliases.data[0].stored = "x";
    assert_broken(graph, "alias 'tied' stands for 'x', which is no parameter or buffer");
    graph = make();
    graph->aliases.data[0].stored = "nothing";
    assert_broken(graph, "stands for 'nothing'");
    graph = make();
    graph->aliases.data[0].name = "b";
    assert_broken(graph, "alias 'b': the name is taken");
    graph = make();
    assert_int_equal(ir_graph_add_alias(graph, "second", "w"), ST_OK);
    graph->aliases.data[1].stored = "tied";
    assert_broken(graph, "stands for 'tied'");
    graph = make();
    graph->aliases.data[0].name = "";
    assert_broken(graph, "an alias of 'w' is empty");
}

static void outputs_exist_and_are_unique(void **state) {
    (void)state;
    ir_graph_t *graph = make();
    graph->outputs.data[1].name = "y";
    assert_broken(graph, "output name 'y' is used twice");
    graph = make();
    graph->outputs.data[1].value = 7;
    assert_broken(graph, "output 'rstd' is value 7, which does not exist");
    graph = make();
    graph->outputs.data[0].name = "";
    assert_broken(graph, "output 0 has no name");
}

static void updates_go_to_state_once(void **state) {
    (void)state;
    static const ir_value_t to_input[] = {0, 4};
    ir_graph_t *graph = make();
    node(graph, UPDATE)->inputs = to_input;
    assert_broken(graph, "updates value 0 of node 0 (input 'x'), which is no parameter or buffer");
    graph = make();
    ir_build_t b = {.graph = graph};
    ir_b_update(&b, 1, 0);
    assert_int_equal(b.status, ST_OK);
    assert_broken(graph, "node 7 (update): 'w' is updated a second time");
}

/* 200,000 nodes, all named, in far less than the seconds that a search for each name would take. */
static void time_is_linear(void **state) {
    (void)state;
    enum { N = 200000 };
    ir_graph_t *graph;
    assert_int_equal(ir_graph_create("", &graph), ST_OK);
    ir_build_t b = {.graph = graph};
    for (int i = 0; i < N; i++) {
        char name[32];
        snprintf(name, sizeof name, "w.%d", i);
        ir_b_parameter(&b, name, ir_type_scalar(IR_F32));
    }
    assert_int_equal(b.status, ST_OK);
    double start = processor_seconds();
    assert_int_equal(ir_graph_verify(graph), ST_OK);
    assert_true(processor_seconds() - start < 5.0);
    ir_graph_destroy(graph);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_graph_is_fine),
        cmocka_unit_test(op_ids_are_known),
        cmocka_unit_test(inputs_precede_their_nodes),
        cmocka_unit_test(counts_are_those_of_the_op),
        cmocka_unit_test(attributes_are_those_of_the_schema),
        cmocka_unit_test(types_are_those_of_the_shape_rule),
        cmocka_unit_test(names_are_unique),
        cmocka_unit_test(aliases_name_state),
        cmocka_unit_test(outputs_exist_and_are_unique),
        cmocka_unit_test(updates_go_to_state_once),
        cmocka_unit_test(time_is_linear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
