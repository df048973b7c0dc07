/* Graph storage: building, copying, finding, use lists, and every allocation failing in turn. */
#include "ir/graph.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ir/build.h"
#include "ir/op.h"
#include "ir/verify.h"

static ir_graph_t *create(const char *name) {
    ir_graph_t *graph;
    assert_int_equal(ir_graph_create(name, &graph), ST_OK);
    return graph;
}

static ir_type_t f32(int64_t d0, int64_t d1) {
    return ir_type_make(IR_F32, 2, (const int64_t[]){d0, d1});
}

/* y = concat of nine uses of relu(x w + 1), with an alias, outputs, data and integer attributes. */
static st_status_t build(ir_graph_t *graph) {
    ir_build_t b = {.graph = graph};
    const float one = 1;
    ir_value_t x = ir_b_input(&b, "x", f32(4, 3), 0);
    ir_value_t w = ir_b_parameter(&b, "w", f32(4, 3));
    ir_value_t c = ir_b_constant(&b, f32(4, 3), &one, sizeof one);
    b.name = "product";
    ir_value_t y = ir_b_binary(&b, IR_OP_MUL, x, w);
    b.name = NULL;
    y = ir_b_unary(&b, IR_OP_RELU, ir_b_binary(&b, IR_OP_ADD, y, c));
    const ir_value_t nine[] = {y, y, y, y, y, y, y, y, y};
    ir_value_t z = ir_b_concat(&b, 9, nine, 1);
    ir_b_output(&b, "hidden", y);
    ir_b_output(&b, "z", z);
    if (b.status == ST_OK) b.status = ir_graph_add_alias(graph, "tied", "w");
    return b.status;
}

static void assert_same_graph(const ir_graph_t *a, const ir_graph_t *b);

static void assert_same_attr(const ir_attr_t *a, const ir_attr_t *b) {
    assert_int_equal(a->kind, b->kind);
    switch (a->kind) {
        case IR_ATTR_INTS:
            assert_int_equal(a->ints.n, b->ints.n);
            assert_ptr_not_equal(a->ints.v, b->ints.v);
            if (a->ints.n) assert_memory_equal(a->ints.v, b->ints.v, a->ints.n * sizeof(int64_t));
            return;
        case IR_ATTR_DATA:
            assert_int_equal(a->data.bytes, b->data.bytes);
            assert_ptr_not_equal(a->data.p, b->data.p);
            assert_memory_equal(a->data.p, b->data.p, a->data.bytes);
            return;
        case IR_ATTR_GRAPH:
            assert_ptr_not_equal(a->graph, b->graph);
            assert_same_graph(a->graph, b->graph);
            return;
        case IR_ATTR_STRING:
            assert_string_equal(a->s, b->s);
            return;
        case IR_ATTR_FLOAT:
            assert_true(a->f == b->f);
            return;
        case IR_ATTR_INT:
        case IR_ATTR_BOOL:
        case IR_ATTR_DTYPE:
            assert_true(a->i == b->i);
            return;
    }
    fail_msg("attribute of no kind");
}

static void assert_same_graph(const ir_graph_t *a, const ir_graph_t *b) {
    assert_string_equal(a->name, b->name);
    assert_string_equal(a->producer, b->producer);
    assert_int_equal(a->nodes.n, b->nodes.n);
    assert_int_equal(a->values.n, b->values.n);
    assert_int_equal(a->outputs.n, b->outputs.n);
    assert_int_equal(a->aliases.n, b->aliases.n);
    for (ir_node_t i = 0; i < a->nodes.n; i++) {
        const ir_node_info_t *m = ir_node(a, i), *n = ir_node(b, i);
        assert_int_equal(m->op, n->op);
        assert_string_equal(m->name, n->name);
        assert_int_equal(m->n_inputs, n->n_inputs);
        assert_int_equal(m->n_outputs, n->n_outputs);
        assert_int_equal(m->first_output, n->first_output);
        for (uint32_t j = 0; j < m->n_inputs; j++) assert_int_equal(m->inputs[j], n->inputs[j]);
        for (uint32_t k = 0; k < ir_op_n_attrs(ir_op_def(m->op)); k++)
            assert_same_attr(&m->attrs[k], &n->attrs[k]);
    }
    for (ir_value_t v = 0; v < a->values.n; v++) {
        assert_true(ir_type_equal(ir_value_type(a, v), ir_value_type(b, v)));
        assert_int_equal(a->values.data[v].producer, b->values.data[v].producer);
        assert_int_equal(a->values.data[v].index, b->values.data[v].index);
    }
    for (size_t i = 0; i < a->outputs.n; i++) {
        assert_string_equal(a->outputs.data[i].name, b->outputs.data[i].name);
        assert_int_equal(a->outputs.data[i].value, b->outputs.data[i].value);
    }
    for (size_t i = 0; i < a->aliases.n; i++) {
        assert_string_equal(a->aliases.data[i].name, b->aliases.data[i].name);
        assert_string_equal(a->aliases.data[i].stored, b->aliases.data[i].stored);
    }
}

/* ---- building ---- */

static void nodes_values_and_attributes_stand_as_given(void **state) {
    (void)state;
    ir_graph_t *graph = create("net");
    assert_int_equal(build(graph), ST_OK);
    assert_int_equal(graph->nodes.n, 7);
    assert_int_equal(graph->values.n, 7);
    const ir_node_info_t *product = ir_node(graph, 3);
    assert_int_equal(product->op, IR_OP_MUL);
    assert_string_equal(product->name, "product");
    assert_int_equal(product->inputs[0], 0);
    assert_int_equal(product->inputs[1], 1);
    assert_string_equal(ir_node_label(graph, 3), "node 3 (mul 'product')");
    assert_string_equal(ir_node_label(graph, 4), "node 4 (add)");
    assert_ptr_equal(ir_value_producer(graph, 3), product);
    assert_int_equal(ir_value_type(graph, 6)->dims[1], 27);
    assert_int_equal(ir_attr_int(ir_node(graph, 6), "axis"), 1);
    assert_int_equal(ir_attr_int(ir_node(graph, 0), "dtype"), IR_F32);
    assert_int_equal(ir_node_attr(ir_node(graph, 0), "shape")->ints.n, 2);
    ir_graph_destroy(graph);
    ir_graph_destroy(NULL);
}

static void left_out_attributes_take_the_default(void **state) {
    (void)state;
    ir_graph_t *graph = create("");
    const int64_t dim = 3;
    const ir_arg_t args[] = {IR_ARG_INT("axis", 0), IR_ARG_INTS("shape", &dim, 1),
                             IR_ARG_DTYPE("dtype", IR_F64)}; /* in any order */
    ir_value_t out;
    assert_int_equal(ir_graph_add(graph, IR_OP_IOTA, NULL, 0, NULL, 3, args, &out), ST_OK);
    assert_true(ir_attr_float(ir_node(graph, 0), "start") == 0);
    assert_true(ir_attr_float(ir_node(graph, 0), "step") == 1);
    assert_string_equal(ir_node(graph, 0)->name, "");
    ir_graph_destroy(graph);
}

/* What is given may be freed or changed afterwards. */
static void what_is_given_is_copied(void **state) {
    (void)state;
    ir_graph_t *graph = create("");
    char name[] = "weight", label[] = "out";
    int64_t dims[] = {2, 2};
    ir_build_t b = {.graph = graph};
    ir_value_t w = ir_b_parameter(&b, name, ir_type_make(IR_F32, 2, dims));
    ir_value_t inputs[] = {w, w}, sum;
    assert_int_equal(ir_graph_add(graph, IR_OP_ADD, name, 2, inputs, 0, NULL, &sum), ST_OK);
    assert_int_equal(ir_graph_add_output(graph, label, sum), ST_OK);
    name[0] = label[0] = '?';
    dims[0] = 9;
    inputs[0] = 77;
    assert_string_equal(ir_node(graph, 0)->name, "weight");
    assert_int_equal(ir_node_attr(ir_node(graph, 0), "shape")->ints.v[0], 2);
    assert_int_equal(ir_node(graph, 1)->inputs[0], w);
    assert_int_equal(ir_graph_find_output(graph, "out"), sum);
    ir_graph_destroy(graph);
}

static void refuses(ir_graph_t *graph, ir_op_t op, const char *name, uint32_t n_inputs,
                    const ir_value_t *inputs, size_t n_args, const ir_arg_t *args,
                    const char *message) {
    size_t n_nodes = graph->nodes.n, n_values = graph->values.n;
    ir_value_t out = 5;
    assert_int_equal(ir_graph_add(graph, op, name, n_inputs, inputs, n_args, args, &out),
                     ST_INVALID);
    if (!strstr(st_last_error(), message))
        fail_msg("\"%s\" does not say \"%s\"", st_last_error(), message);
    assert_int_equal(out, IR_NONE);
    assert_int_equal(graph->nodes.n, n_nodes);
    assert_int_equal(graph->values.n, n_values);
}

static void faulty_nodes_leave_the_graph_as_it_was(void **state) {
    (void)state;
    ir_graph_t *graph = create("");
    assert_int_equal(build(graph), ST_OK);
    const ir_value_t good[] = {0, 1, 2}, bad[] = {0, 7};
    const int64_t dim = 2;
    const ir_arg_t stray = IR_ARG_INT("width", 3), kind = IR_ARG_FLOAT("axis", 1);
    const ir_arg_t unnamed[] = {IR_ARG_DTYPE("dtype", IR_F32), IR_ARG_INTS("shape", &dim, 1)};
    refuses(graph, IR_OP_ADD, "sum", 1, good, 0, NULL, "add 'sum': 1 inputs given, 2 to 2");
    refuses(graph, IR_OP_ADD, "sum", 3, good, 0, NULL, "3 inputs given");
    refuses(graph, IR_OP_ADD, NULL, 2, bad, 0, NULL, "add (node 7): input 1 is value 7");
    refuses(graph, IR_OP_ADD, "sum", 2, good, 1, &stray, "no attribute 'width'");
    refuses(graph, IR_OP_CONCAT, "all", 2, good, 1, &kind, "'axis' has the wrong kind");
    refuses(graph, IR_OP_CONCAT, "all", 2, good, 0, NULL, "'axis' is missing");
    refuses(graph, IR_OP_PARAMETER, NULL, 0, NULL, 2, unnamed, "need a name");
    refuses(graph, IR_OP_INPUT, "", 0, NULL, 2, unnamed, "need a name");
    refuses(graph, (ir_op_t)10000, "it", 0, NULL, 0, NULL, "10000");
    refuses(graph, IR_OP_NONE, "it", 0, NULL, 0, NULL, "op id 0");
    ir_graph_destroy(graph);
}

static void a_failed_builder_stays_failed(void **state) {
    (void)state;
    ir_graph_t *graph = create("");
    ir_build_t b = {.graph = graph};
    ir_value_t x = ir_b_buffer(&b, "x", f32(2, 3));
    assert_int_equal(ir_b_binary(&b, IR_OP_ADD, x, 99), IR_NONE);
    assert_int_equal(b.status, ST_INVALID);
    size_t n = graph->nodes.n;
    assert_int_equal(ir_b_unary(&b, IR_OP_EXP, x), IR_NONE);
    assert_int_equal(ir_b_type(&b, x)->rank, 0);
    ir_b_output(&b, "y", x);
    assert_int_equal(graph->nodes.n, n);
    assert_int_equal(graph->outputs.n, 0);
    ir_graph_destroy(graph);
}

/* ---- names ---- */

static void outputs_and_aliases_are_declared_once(void **state) {
    (void)state;
    ir_graph_t *graph = create("");
    assert_int_equal(build(graph), ST_OK);
    assert_int_equal(ir_graph_add_output(graph, "z", 0), ST_INVALID);
    assert_non_null(strstr(st_last_error(), "'z' is used twice"));
    assert_int_equal(ir_graph_add_output(graph, "new", 7), ST_INVALID);
    assert_non_null(strstr(st_last_error(), "value 7"));
    assert_int_equal(ir_graph_add_alias(graph, "tied", "x"), ST_INVALID);
    assert_non_null(strstr(st_last_error(), "'tied' is declared twice"));
    assert_int_equal(graph->outputs.n, 2);
    assert_int_equal(graph->aliases.n, 1);
    /* one value under two names */
    assert_int_equal(ir_graph_add_output(graph, "again", 6), ST_OK);
    assert_int_equal(ir_graph_find_output(graph, "again"), ir_graph_find_output(graph, "z"));
    ir_graph_destroy(graph);
}

/* As many as a model with a tap at every layer has; a search through all of them for each would
 * take longer than the time limit allows. */
static void many_names_are_declared_once(void **state) {
    (void)state;
    enum { N_NAMES = 100000 };
    ir_graph_t *graph = create(""), *copy;
    char name[32];
    assert_int_equal(build(graph), ST_OK);
    size_t n_outputs = graph->outputs.n, n_aliases = graph->aliases.n;
    for (int i = 0; i < N_NAMES; i++) {
        snprintf(name, sizeof name, "tap.%d", i);
        assert_int_equal(
            i % 2 ? ir_graph_add_output(graph, name, 0) : ir_graph_append_output(graph, name, 0),
            ST_OK);
        assert_int_equal(
            i % 2 ? ir_graph_append_alias(graph, name, "w") : ir_graph_add_alias(graph, name, "w"),
            ST_OK);
    }
    snprintf(name, sizeof name, "tap.%d", N_NAMES - 2);
    assert_int_equal(ir_graph_add_output(graph, name, 0), ST_INVALID);
    assert_int_equal(ir_graph_add_alias(graph, "tap.1", "w"), ST_INVALID);
    assert_int_equal(ir_graph_add_output(graph, "other", (ir_value_t)graph->values.n), ST_INVALID);
    assert_int_equal(ir_graph_copy(graph, &copy), ST_OK);
    assert_int_equal(copy->outputs.n, n_outputs + N_NAMES);
    assert_int_equal(copy->aliases.n, n_aliases + N_NAMES);
    assert_int_equal(ir_graph_add_output(copy, name, 0), ST_INVALID);
    assert_int_equal(ir_graph_verify(copy), ST_OK);
    ir_graph_destroy(copy);
    ir_graph_destroy(graph);
}

static st_status_t drop_op(void *context, ir_graph_t *to, const ir_graph_t *from, ir_node_t node,
                           ir_value_t *map) {
    ir_op_t dropped = *(const ir_op_t *)context;
    if (ir_node(from, node)->op == dropped) return ST_OK;
    return ir_graph_clone_node(to, from, node, NULL, map);
}

/* What is left out may not be read, by a node or as an output. */
static void rewriting_leaves_out_what_nothing_reads(void **state) {
    (void)state;
    ir_graph_t *graph = create(""), *made;
    assert_int_equal(build(graph), ST_OK);
    ir_op_t op = IR_OP_CONCAT; /* an output of the graph */
    assert_int_equal(ir_graph_rewrite(graph, NULL, drop_op, &op, &made), ST_INVALID);
    assert_null(made);
    op = IR_OP_MUL; /* read by a node */
    assert_int_equal(ir_graph_rewrite(graph, NULL, drop_op, &op, &made), ST_INVALID);
    assert_null(made);
    ir_value_t unused;
    assert_int_equal(ir_graph_add(graph, IR_OP_NEG, NULL, 1, (ir_value_t[]){0}, 0, NULL, &unused),
                     ST_OK);
    op = IR_OP_NEG;
    assert_int_equal(ir_graph_rewrite(graph, NULL, drop_op, &op, &made), ST_OK);
    assert_int_equal(made->nodes.n, graph->nodes.n - 1);
    assert_int_equal(made->outputs.n, graph->outputs.n);
    ir_graph_destroy(made);
    ir_graph_destroy(graph);
}

static void names_are_found(void **state) {
    (void)state;
    ir_graph_t *graph = create("");
    assert_int_equal(build(graph), ST_OK);
    assert_int_equal(ir_graph_find(graph, "x"), 0);
    assert_int_equal(ir_graph_find(graph, "w"), 1);
    assert_int_equal(ir_graph_find(graph, "tied"), 1);
    assert_int_equal(ir_graph_find(graph, "product"), IR_NONE); /* neither state nor input */
    assert_int_equal(ir_graph_find(graph, ""), IR_NONE);
    assert_int_equal(ir_graph_find_output(graph, "hidden"), 5);
    assert_int_equal(ir_graph_find_output(graph, "x"), IR_NONE);
    for (int op = 1; op < IR_OP_END; op++) {
        const ir_op_def_t *def = ir_op_def((ir_op_t)op);
        if (!def) continue;
        assert_int_equal(def->op, op);
        assert_ptr_equal(ir_op_def_by_name(def->name), def);
        assert_non_null(def->shape);
        assert_non_null(def->strategies);
    }
    assert_null(ir_op_def_by_name("nothing"));
    assert_null(ir_op_def((ir_op_t)-1));
    assert_null(ir_op_def(IR_OP_END));
    ir_graph_destroy(graph);
}

static void collectives_come_in_pairs(void **state) {
    (void)state;
    bool waited_for[IR_OP_END] = {0};
    for (int op = 1; op < IR_OP_END; op++) {
        const ir_op_def_t *def = ir_op_def((ir_op_t)op);
        if (!def) continue;
        const uint32_t collective = def->flags & (IR_COLLECTIVE | IR_START);
        assert_int_equal(def->waits_for != IR_OP_NONE, collective == IR_COLLECTIVE);
        if (!def->waits_for) continue;
        assert_true(ir_op_def(def->waits_for)->flags & IR_START);
        assert_false(waited_for[def->waits_for]);
        waited_for[def->waits_for] = true;
    }
    for (int op = 1; op < IR_OP_END; op++) {
        const ir_op_def_t *def = ir_op_def((ir_op_t)op);
        if (def && (def->flags & IR_START)) assert_true(waited_for[op]);
    }
}

static bool has_attr(const ir_op_def_t *def, const char *key) {
    for (const ir_attr_spec_t *spec = def->attrs; spec && spec->key; spec++)
        if (strcmp(spec->key, key) == 0) return true;
    return false;
}

static void reductions_say_what_they_fold(void **state) {
    (void)state;
    int n = 0;
    for (int op = 1; op < IR_OP_END; op++) {
        const ir_op_def_t *def = ir_op_def((ir_op_t)op);
        if (!def) continue;
        const bool folds = has_attr(def, "axes") && has_attr(def, "keep");
        assert_int_equal((def->flags & IR_REDUCTION) != 0, folds);
        n += folds;
    }
    assert_int_equal(n, 5); /* sum, mean, product, largest, smallest */
}

/* ---- copies ---- */

static void copies_are_deep(void **state) {
    (void)state;
    ir_graph_t *graph = create("net"), *copy, *empty;
    assert_int_equal(build(graph), ST_OK);
    graph->producer = "a test";
    assert_int_equal(ir_graph_copy(graph, &copy), ST_OK);
    assert_same_graph(graph, copy);
    assert_int_equal(ir_graph_create_like(graph, &empty), ST_OK);
    assert_string_equal(empty->name, "net");
    assert_string_equal(empty->producer, "a test");
    assert_int_equal(empty->nodes.n, 0);
    assert_int_equal(empty->outputs.n, 0);
    assert_string_equal(empty->aliases.data[0].stored, "w");
    ir_graph_destroy(graph); /* the copy lives on */
    assert_int_equal(ir_graph_find(copy, "tied"), 1);
    assert_string_equal(ir_node(copy, 3)->name, "product");
    ir_graph_destroy(copy);
    ir_graph_destroy(empty);
}

static void clones_infer_shapes_anew(void **state) {
    (void)state;
    ir_graph_t *graph = create(""), *other = create("");
    assert_int_equal(build(graph), ST_OK);
    ir_value_t map[7];
    for (int i = 0; i < 7; i++) map[i] = IR_NONE;
    ir_build_t b = {.graph = other};
    map[0] = ir_b_buffer(&b, "first", f32(1, 3));
    map[1] = ir_b_buffer(&b, "second", f32(5, 1));
    assert_int_equal(ir_graph_clone_node(other, graph, 3, NULL, map), ST_OK);
    assert_int_equal(map[3], 2);
    ir_type_t wanted = f32(5, 3);
    assert_true(ir_type_equal(ir_value_type(other, map[3]), &wanted));
    assert_string_equal(ir_node(other, 2)->name, "product");

    /* other attributes: the constant for one row */
    const ir_node_info_t *constant = ir_node(graph, 2);
    const int64_t row[] = {1, 3};
    ir_attr_t attrs[3] = {constant->attrs[0], constant->attrs[1], constant->attrs[2]};
    attrs[1].ints.v = row;
    assert_int_equal(ir_graph_clone_node(other, graph, 2, attrs, map), ST_OK);
    wanted = f32(1, 3);
    assert_true(ir_type_equal(ir_value_type(other, map[2]), &wanted));

    /* an input that has not been mapped */
    map[5] = IR_NONE;
    assert_int_equal(ir_graph_clone_node(other, graph, 6, NULL, map), ST_INVALID);
    assert_non_null(strstr(st_last_error(), "node 6 (concat)"));
    assert_int_equal(other->nodes.n, 4);
    ir_graph_destroy(graph);
    ir_graph_destroy(other);
}

/* ---- uses ---- */

static void uses_are_listed_in_order(void **state) {
    (void)state;
    ir_graph_t *graph = create("");
    ir_uses_t uses;
    assert_int_equal(ir_uses_build(graph, &uses), ST_OK);
    assert_int_equal(uses.first[0], 0);
    ir_uses_free(&uses);
    assert_int_equal(build(graph), ST_OK);
    assert_int_equal(ir_uses_build(graph, &uses), ST_OK);
    const uint32_t n_uses[] = {1, 1, 1, 1, 1, 9, 0};
    const ir_node_t user[] = {3, 3, 4, 4, 5, 6, 0};
    for (ir_value_t v = 0; v < 7; v++) {
        assert_int_equal(uses.first[v + 1] - uses.first[v], n_uses[v]);
        for (uint32_t u = uses.first[v]; u < uses.first[v + 1]; u++)
            assert_int_equal(uses.node[u], user[v]);
    }
    assert_int_equal(uses.first[7], 14);
    ir_uses_free(&uses);
    ir_graph_destroy(graph);
}

/* ---- out of memory ---- */

static st_status_t build_copy_and_list(void) {
    ir_graph_t *graph = NULL, *copy = NULL;
    ir_uses_t uses = {0};
    st_status_t status = ir_graph_create("net", &graph);
    if (status == ST_OK) status = build(graph);
    if (status == ST_OK) status = ir_graph_copy(graph, &copy);
    if (status == ST_OK) status = ir_uses_build(copy, &uses);
    if (status == ST_OK) assert_same_graph(graph, copy);
    ir_uses_free(&uses);
    ir_graph_destroy(copy);
    ir_graph_destroy(graph);
    return status;
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    int64_t n_failed = 0;
    for (;; n_failed++) {
        assert_true(n_failed < 10000);
        st_clear_error();
        st_memory_fail_after(n_failed, n_failed % 2);
        st_status_t status = build_copy_and_list();
        st_memory_fail_after(-1, false);
        if (status == ST_OK) break;
        assert_int_equal(status, ST_NO_MEMORY);
        assert_true(st_last_error()[0] != '\0');
    }
    assert_true(n_failed > 10);
}

/* A node that found no memory can be added again, and what was built before is untouched. */
static void a_graph_survives_lack_of_memory(void **state) {
    (void)state;
    ir_graph_t *graph = create("net"), *expected = create("net");
    assert_int_equal(build(expected), ST_OK);
    ir_build_t b = {.graph = graph};
    const float one = 1;
    ir_b_input(&b, "x", f32(4, 3), 0);
    ir_b_parameter(&b, "w", f32(4, 3));
    ir_b_constant(&b, f32(4, 3), &one, sizeof one);
    assert_int_equal(b.status, ST_OK);
    /* filled until the next node needs a chunk and longer arrays */
    size_t n_failed = 0;
    for (int i = 0; i < 2000; i++) {
        ir_value_t out;
        size_t n_nodes = graph->nodes.n;
        st_memory_fail_after(0, true);
        st_status_t status =
            ir_graph_add(graph, IR_OP_ADD, "sum", 2, (ir_value_t[]){0, 1}, 0, NULL, &out);
        st_memory_fail_after(-1, false);
        if (status != ST_OK) {
            n_failed++;
            assert_int_equal(status, ST_NO_MEMORY);
            assert_int_equal(out, IR_NONE);
            assert_int_equal(graph->nodes.n, n_nodes);
            assert_int_equal(graph->values.n, n_nodes);
            assert_int_equal(
                ir_graph_add(graph, IR_OP_ADD, "sum", 2, (ir_value_t[]){0, 1}, 0, NULL, &out),
                ST_OK);
        }
        assert_int_equal(out, n_nodes);
    }
    assert_true(n_failed >= 4);
    for (ir_node_t i = 0; i < 3; i++)
        assert_string_equal(ir_node(graph, i)->name, ir_node(expected, i)->name);
    ir_graph_destroy(graph);
    ir_graph_destroy(expected);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_values_and_attributes_stand_as_given),
        cmocka_unit_test(left_out_attributes_take_the_default),
        cmocka_unit_test(what_is_given_is_copied),
        cmocka_unit_test(faulty_nodes_leave_the_graph_as_it_was),
        cmocka_unit_test(a_failed_builder_stays_failed),
        cmocka_unit_test(outputs_and_aliases_are_declared_once),
        cmocka_unit_test(many_names_are_declared_once),
        cmocka_unit_test(rewriting_leaves_out_what_nothing_reads),
        cmocka_unit_test(names_are_found),
        cmocka_unit_test(collectives_come_in_pairs),
        cmocka_unit_test(reductions_say_what_they_fold),
        cmocka_unit_test(copies_are_deep),
        cmocka_unit_test(clones_infer_shapes_anew),
        cmocka_unit_test(uses_are_listed_in_order),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(a_graph_survives_lack_of_memory),
    };
    return cmocka_run_group_tests_name("graph", tests, NULL, NULL);
}
