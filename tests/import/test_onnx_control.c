/* ONNX's If, Loop and Scan: models written by control/make.py, against the outputs that it has from
 * other implementations; what a plan cannot have is refused by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "import/onnx_run.h"
#include "ir/op.h"
#include "ir/verify.h"

#define FOLDER STATOR_SOURCE_DIR "/tests/import/control/"

static const struct {
    const char *name;
    int repeats, conds; /* in the graph itself */
} models[] = {
    {"if_then", 0, 1},
    {"if_else", 0, 1},
    {"if_known", 0, 0},
    {"if_nested", 0, 1},
    {"scan", 1, 0},
    {"scan_backward", 1, 0},
    {"scan_input_backward", 1, 0},
    {"scan_output_backward", 1, 0},
    {"scan_axes", 1, 0},
    {"scan_two", 1, 0},
    {"loop", 1, 0},
    {"loop_without_condition", 1, 0},
    {"loop_of_no_turn", 1, 0},
    {"loop_of_one_turn", 1, 0},
    {"loop_true", 1, 0},
    {"loop_if", 1, 0},
    {"loop_scan", 1, 0},
};
enum { N_MODELS = sizeof models / sizeof models[0] };

static void *read_file(const char *name, const char *end, size_t *out_bytes) {
    char path[512];
    snprintf(path, sizeof path, FOLDER "%s.%s", name, end);
    void *data = onnx_run_file(path, out_bytes);
    if (!data) fail_msg("cannot read %s", path);
    return data;
}

static Onnx__ModelProto *open_model(const char *name) {
    size_t bytes;
    void *data = read_file(name, "onnx", &bytes);
    Onnx__ModelProto *model = onnx__model_proto__unpack(NULL, bytes, data);
    assert_non_null(model);
    free(data);
    return model;
}

static Onnx__GraphProto *open_tensors(const char *name) {
    size_t bytes;
    void *data = read_file(name, "tensors", &bytes);
    Onnx__GraphProto *graph = onnx__graph_proto__unpack(NULL, bytes, data);
    assert_non_null(graph);
    free(data);
    return graph;
}

static st_status_t import_model(const Onnx__ModelProto *model, import_result_t **out_result,
                                void **out_data) {
    size_t bytes = onnx__model_proto__get_packed_size(model);
    *out_data = malloc(bytes + 1);
    onnx__model_proto__pack(model, *out_data);
    return import_memory(*out_data, bytes, "made.onnx", &(import_options_t){0}, out_result);
}

static int count(const ir_graph_t *graph, ir_op_t op) {
    int n = 0;
    for (size_t i = 0; i < graph->nodes.n; i++) n += graph->nodes.data[i].op == op;
    return n;
}

static void feed_and_compare(const char *name, const import_result_t *result) {
    Onnx__GraphProto *tensors = open_tensors(name);
    onnx_run_t run;
    size_t n_compared = 0;
    assert_int_equal(onnx_run_open(&run, result), ST_OK);
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < tensors->n_initializer; i++) {
            const Onnx__TensorProto *tensor = tensors->initializer[i];
            bool out = strncmp(tensor->name, "out.", 4) == 0;
            ir_type_t type;
            void *data;
            char text[256];
            if (out != (pass == 1)) continue;
            assert_true(onnx_run_tensor(tensor, &type, &data));
            if (!out) {
                const ir_type_t *wanted;
                void *at = onnx_run_at(&run, tensor->name, &wanted);
                if (at) memcpy(at, data, ir_type_bytes(&type));
            } else {
                ir_value_t v = ir_graph_find_output(run.graph, tensor->name + 4);
                if (v == IR_NONE) fail_msg("%s: no output '%s'", name, tensor->name + 4);
                assert_true(ir_type_equal(&type, ir_value_type(run.graph, v)));
                if (!onnx_run_equal(&type, run.data[v], data, 64, text, sizeof text))
                    fail_msg("%s: output '%s': %s", name, tensor->name + 4, text);
                n_compared++;
            }
            free(data);
        }
        if (pass == 0 && onnx_run_nodes(&run) != ST_OK) fail_msg("%s: %s", name, st_last_error());
    }
    assert_int_equal(n_compared, run.graph->outputs.n);
    onnx_run_close(&run);
    onnx__graph_proto__free_unpacked(tensors, NULL);
}

static void models_give_the_numbers_of_other_implementations(void **state) {
    (void)state;
    for (size_t i = 0; i < N_MODELS; i++) {
        Onnx__ModelProto *model = open_model(models[i].name);
        import_result_t *result;
        void *data;
        if (import_model(model, &result, &data) != ST_OK)
            fail_msg("%s: %s", models[i].name, st_last_error());
        assert_int_equal(ir_graph_verify(result->graph), ST_OK);
        assert_int_equal(count(result->graph, IR_OP_REPEAT), models[i].repeats);
        assert_int_equal(count(result->graph, IR_OP_COND), models[i].conds);
        feed_and_compare(models[i].name, result);
        import_result_destroy(result);
        onnx__model_proto__free_unpacked(model, NULL);
        free(data);
    }
}

/* Weights are parameters of the model, also where only a branch has them. */
static void initializers_of_branches_train(void **state) {
    (void)state;
    Onnx__ModelProto *model = open_model("if_then");
    import_result_t *result;
    void *data;
    assert_int_equal(import_model(model, &result, &data), ST_OK);
    static const char *const names[] = {"w", "tb"};
    for (int i = 0; i < 2; i++) {
        ir_node_t node = ir_graph_find(result->graph, names[i]);
        assert_int_not_equal(node, IR_NONE);
        assert_int_equal(ir_node(result->graph, node)->op, IR_OP_PARAMETER);
    }
    import_result_destroy(result);
    onnx__model_proto__free_unpacked(model, NULL);
    free(data);
}

/* ---- what is refused ---- */

static Onnx__NodeProto *node_of(const Onnx__GraphProto *graph, const char *op) {
    for (size_t i = 0; i < graph->n_node; i++)
        if (strcmp(graph->node[i]->op_type, op) == 0) return graph->node[i];
    fail_msg("there is no %s", op);
    return NULL;
}

static Onnx__GraphProto *body_of(const Onnx__ModelProto *model, const char *op, const char *name) {
    Onnx__NodeProto *node = node_of(model->graph, op);
    for (size_t i = 0; i < node->n_attribute; i++)
        if (strcmp(node->attribute[i]->name, name) == 0) return node->attribute[i]->g;
    fail_msg("there is no '%s'", name);
    return NULL;
}

static void put_name(char **text, const char *to) {
    free(*text);
    *text = strdup(to);
}

typedef void (*change_t)(Onnx__ModelProto *model);

/* The trip count comes from the input. */
static void trip_from_data(Onnx__ModelProto *m) {
    Onnx__NodeProto *loop = node_of(m->graph, "Loop");
    Onnx__TensorProto *trip = m->graph->initializer[0];
    assert_string_equal(trip->name, "trip");
    put_name(&trip->name, "unused");
    put_name(&loop->input[0], "n");
    put_name(&m->graph->input[0]->name, "n");
    put_name(&m->graph->input[1]->name, "x");
}
/* Whether there is another turn comes from what is carried. */
static void condition_from_data(Onnx__ModelProto *m) {
    Onnx__NodeProto *go = node_of(body_of(m, "Loop", "body"), "Identity");
    put_name(&go->op_type, "IsNaN");
    put_name(&go->input[0], "an");
}
static void no_end(Onnx__ModelProto *m) {
    put_name(&node_of(m->graph, "Loop")->input[0], "");
}
static void no_body(Onnx__ModelProto *m) {
    Onnx__NodeProto *loop = node_of(m->graph, "Loop");
    put_name(&loop->attribute[0]->name, "graph");
}
static void unknown_name(Onnx__ModelProto *m) {
    put_name(&node_of(body_of(m, "Loop", "body"), "Sin")->input[0], "nowhere");
}
static void carry_that_grows(Onnx__ModelProto *m) {
    Onnx__NodeProto *add = node_of(body_of(m, "Loop", "body"), "Add");
    put_name(&add->op_type, "Concat");
    add->n_attribute = 1;
    add->attribute = calloc(1, sizeof *add->attribute);
    add->attribute[0] = malloc(sizeof **add->attribute);
    onnx__attribute_proto__init(add->attribute[0]);
    add->attribute[0]->name = strdup("axis");
    add->attribute[0]->has_i = true;
    add->attribute[0]->i = 0;
}
static void other_lengths(Onnx__ModelProto *m) {
    Onnx__NodeProto *scan = node_of(m->graph, "Scan");
    for (size_t i = 0; i < scan->n_attribute; i++)
        if (strcmp(scan->attribute[i]->name, "scan_input_axes") == 0)
            scan->attribute[i]->ints[1] = 0;
}
static void wrong_direction(Onnx__ModelProto *m) {
    Onnx__NodeProto *scan = node_of(m->graph, "Scan");
    for (size_t i = 0; i < scan->n_attribute; i++)
        if (strcmp(scan->attribute[i]->name, "scan_input_directions") == 0)
            scan->attribute[i]->ints[0] = 2;
}
static void too_few_axes(Onnx__ModelProto *m) {
    Onnx__NodeProto *scan = node_of(m->graph, "Scan");
    for (size_t i = 0; i < scan->n_attribute; i++)
        if (strcmp(scan->attribute[i]->name, "scan_input_axes") == 0)
            scan->attribute[i]->n_ints = 1;
}
static void no_scanned(Onnx__ModelProto *m) {
    Onnx__NodeProto *scan = node_of(m->graph, "Scan");
    for (size_t i = 0; i < scan->n_attribute; i++)
        if (strcmp(scan->attribute[i]->name, "num_scan_inputs") == 0) scan->attribute[i]->i = 0;
}
static void branches_of_two_shapes(Onnx__ModelProto *m) {
    Onnx__NodeProto *relu = node_of(body_of(m, "If", "else_branch"), "Relu");
    put_name(&relu->op_type, "Shape");
}
static void condition_of_many(Onnx__ModelProto *m) {
    put_name(&node_of(m->graph, "If")->input[0], "x");
}
static void unsupported_inside(Onnx__ModelProto *m) {
    put_name(&node_of(body_of(m, "If", "else_branch"), "Relu")->op_type, "Unique");
}
static void outputs_too_many(Onnx__ModelProto *m) {
    body_of(m, "If", "then_branch")->n_output = 0;
}

static void what_a_plan_cannot_have_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *model;
        change_t change;
        const char *part;
    } rows[] = {
        {"loop", trip_from_data, "(Loop): the trip count 'n' is computed from data"},
        {"loop", condition_from_data, "whether there is another turn ('go') is computed from"},
        {"loop", no_end, "(Loop): it never ends"},
        {"loop", no_body, "attribute 'body' is no graph"},
        {"loop", unknown_name, "node 3 'Sin_o' (Sin): nothing before it makes the value 'nowhere'"},
        {"loop", carry_that_grows, "the carried value 'an' begins as f32[3] and is f32[6]"},
        {"scan_two", other_lengths, "scanned input 1 has 3 slices, the first has 4"},
        {"scan_two", wrong_direction, "attribute 'scan_input_directions' is 2"},
        {"scan_two", too_few_axes, "attribute 'scan_input_axes' has 1 entries, 2 are needed"},
        {"scan_two", no_scanned, "num_scan_inputs is 0 of 3 inputs"},
        {"if_then", branches_of_two_shapes, "(If)"},
        {"if_then", condition_of_many, "the condition is f32[2,3], one bool is needed"},
        {"if_then", unsupported_inside, "Unique 'Relu_e1'"},
        {"if_then", outputs_too_many,
         "the graph 'then_branch' has 0 inputs and 0 outputs, 0 and 1 belong to the node"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Onnx__ModelProto *model = open_model(rows[i].model);
        import_result_t *result = NULL;
        void *data;
        rows[i].change(model);
        if (import_model(model, &result, &data) == ST_OK) fail_msg("row %zu is imported", i);
        assert_null(result);
        if (!strstr(st_last_error(), rows[i].part))
            fail_msg("row %zu: '%s' lacks '%s'", i, st_last_error(), rows[i].part);
        onnx__model_proto__free_unpacked(model, NULL);
        free(data);
    }
}

/* Cut off or with a bit changed, a model is imported or refused, and nothing else happens. */
static void damage_is_survived(void **state) {
    (void)state;
    static const char *const names[] = {"loop_scan", "if_nested", "scan_two"};
    for (size_t m = 0; m < sizeof names / sizeof *names; m++) {
        size_t bytes;
        unsigned char *data = read_file(names[m], "onnx", &bytes);
        for (size_t i = 0; i < bytes * 8; i += 3) {
            import_result_t *result = NULL;
            data[i / 8] ^= (unsigned char)(1u << i % 8);
            (void)!import_memory(data, bytes, "made.onnx", &(import_options_t){0}, &result);
            import_result_destroy(result);
            data[i / 8] ^= (unsigned char)(1u << i % 8);
        }
        free(data);
    }
}

static void lack_of_memory_is_told(void **state) {
    (void)state;
    static const char *const names[] = {"loop_scan", "if_nested"};
    for (size_t m = 0; m < 2; m++) {
        size_t bytes;
        void *data = read_file(names[m], "onnx", &bytes);
        st_status_t status = ST_NO_MEMORY;
        int64_t at = 0;
        for (; status != ST_OK; at++) {
            import_result_t *result = NULL;
            st_memory_fail_after(at, false);
            status = import_memory(data, bytes, "made.onnx", &(import_options_t){0}, &result);
            st_memory_fail_after(-1, false);
            import_result_destroy(result);
            assert_true(status == ST_OK || status == ST_NO_MEMORY);
        }
        assert_true(at > 20);
        free(data);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_give_the_numbers_of_other_implementations),
        cmocka_unit_test(initializers_of_branches_train),
        cmocka_unit_test(what_a_plan_cannot_have_is_refused),
        cmocka_unit_test(damage_is_survived),
        cmocka_unit_test(lack_of_memory_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
