/* The cases' ONNX files: names, shapes and values of parameters against the weights files, and the
 * step's forward part against PyTorch's numbers; and ONNX's light models. */
#include <json-c/json.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "import/onnx_run.h"
#include "ir/op.h"
#include "ir/verify.h"

static const struct {
    const char *name, *model;
    const char *extra; /* a floating initializer that PyTorch has as a constant; NULL */
} cases[] = {
    {"llama_tiny", "model.dynamo.onnx", "model.hf.model.rotary_emb.inv_freq"},
    {"llama_tiny_tied", "model.dynamo.onnx", "model.hf.model.rotary_emb.inv_freq"},
    {"resnet_tiny", "model.torchscript.onnx", NULL},
};
enum { N_CASES = sizeof cases / sizeof cases[0] };

static bool shared_is_there(void) {
    if (access(STATOR_SHARED_DIR "/cases/README.md", R_OK) == 0) return true;
    print_message("skipped: %s/cases is absent\n", STATOR_SHARED_DIR);
    return false;
}

/* ---- safetensors, as far as the cases need it ---- */

typedef struct weights {
    char *bytes;
    const char *data; /* after the header */
    json_object *header;
} weights_t;

static weights_t open_weights(const char *name, const char *file) {
    char path[512];
    size_t bytes;
    uint64_t length;
    weights_t w;
    snprintf(path, sizeof path, "%s/cases/%s/%s.safetensors", STATOR_SHARED_DIR, name, file);
    w.bytes = onnx_run_file(path, &bytes);
    if (!w.bytes || bytes < 8) fail_msg("cannot read %s", path);
    memcpy(&length, w.bytes, 8);
    w.data = w.bytes + 8 + length;
    char *text = strndup(w.bytes + 8, length);
    w.header = json_tokener_parse(text);
    free(text);
    assert_non_null(w.header);
    return w;
}

static void close_weights(weights_t *w) {
    json_object_put(w->header);
    free(w->bytes);
}

/* Data of a tensor under its own name or an alias; NULL if there is none. */
static const void *find_weight(const weights_t *w, const char *name, ir_type_t *out_type) {
    json_object *entry, *other, *part;
    if (!json_object_object_get_ex(w->header, name, &entry)) {
        if (!json_object_object_get_ex(w->header, "__metadata__", &other)) return NULL;
        if (!json_object_object_get_ex(other, name, &part)) return NULL;
        return find_weight(w, json_object_get_string(part), out_type);
    }
    json_object_object_get_ex(entry, "dtype", &part);
    bool is_float = strcmp(json_object_get_string(part), "F32") == 0;
    *out_type = (ir_type_t){.dtype = is_float ? IR_F32 : IR_I64};
    json_object_object_get_ex(entry, "shape", &part);
    for (size_t i = 0; i < json_object_array_length(part); i++)
        out_type->dims[out_type->rank++] =
            json_object_get_int64(json_object_array_get_idx(part, i));
    json_object_object_get_ex(entry, "data_offsets", &part);
    return w->data + json_object_get_int64(json_object_array_get_idx(part, 0));
}

/* ---- tests ---- */

static import_result_t *import_case(size_t i, const import_options_t *options) {
    char path[512];
    import_result_t *result;
    snprintf(path, sizeof path, "%s/cases/%s/%s", STATOR_SHARED_DIR, cases[i].name, cases[i].model);
    if (import_file(path, options, &result) != ST_OK) fail_msg("%s", st_last_error());
    if (ir_graph_verify(result->graph) != ST_OK) fail_msg("%s: %s", path, st_last_error());
    return result;
}

static void check_parameters(size_t i, const import_result_t *result, const weights_t *weights) {
    size_t n_extra = 0;
    for (size_t k = 0; k < result->tensors.n; k++) {
        const import_tensor_t *tensor = &result->tensors.data[k];
        ir_type_t type;
        const void *data = find_weight(weights, tensor->name, &type);
        if (!data && cases[i].extra && strcmp(tensor->name, cases[i].extra) == 0) {
            n_extra++;
            continue;
        }
        if (!data) fail_msg("%s: the weights have no '%s'", cases[i].name, tensor->name);
        if (!ir_type_equal(&type, &tensor->type)) fail_msg("'%s' has another type", tensor->name);
        ir_node_t node = ir_graph_find(result->graph, tensor->name);
        assert_true(node != IR_NONE);
        const ir_node_info_t *info = ir_node(result->graph, node);
        bool is_buffer = strstr(tensor->name, "running_") != NULL;
        assert_int_equal(info->op, is_buffer ? IR_OP_BUFFER : IR_OP_PARAMETER);
        /* the exporter's own pass has moved the statistics that it writes */
        if (!is_buffer) assert_memory_equal(data, tensor->data, tensor->bytes);
        assert_int_equal(tensor->kind, is_buffer ? IMPORT_BUFFER : IMPORT_PARAMETER);
        if (!is_buffer) assert_int_equal(ir_attr_int(info, "assumed"), 1);
    }
    size_t n = (size_t)json_object_object_length(weights->header);
    if (json_object_object_get_ex(weights->header, "__metadata__", NULL)) n--;
    assert_int_equal(result->tensors.n, n + n_extra);
}

static void test_parameters_are_the_weights(void **state) {
    (void)state;
    if (!shared_is_there()) skip();
    for (size_t i = 0; i < N_CASES; i++) {
        import_result_t *result = import_case(i, NULL);
        weights_t weights = open_weights(cases[i].name, "weights");
        check_parameters(i, result, &weights);
        assert_int_equal(result->messages.n, 0);
        close_weights(&weights);
        import_result_destroy(result);
    }
}

/* With the weights' names known, what they do not name is a constant, and one line says so. */
static void test_weight_names(void **state) {
    (void)state;
    if (!shared_is_there()) skip();
    for (size_t i = 0; i < N_CASES; i++) {
        weights_t weights = open_weights(cases[i].name, "weights");
        const char *names[256];
        import_options_t options = {.weight_names = names};
        json_object_object_foreach(weights.header, name, entry) {
            if (strcmp(name, "__metadata__") != 0) {
                names[options.n_weight_names++] = name;
                continue;
            }
            json_object_object_foreach(entry, alias, stored) {
                (void)stored;
                names[options.n_weight_names++] = alias;
            }
        }
        import_result_t *result = import_case(i, &options);
        if (cases[i].extra) {
            assert_int_equal(result->messages.n, 1);
            assert_non_null(strstr(result->messages.data[0], cases[i].extra));
            assert_true(ir_graph_find(result->graph, cases[i].extra) == IR_NONE);
        } else {
            assert_int_equal(result->messages.n, 0);
        }
        for (size_t k = 0; k < result->graph->nodes.n; k++)
            if (result->graph->nodes.data[k].op == IR_OP_PARAMETER)
                assert_int_equal(ir_attr_int(&result->graph->nodes.data[k], "assumed"), 0);
        close_weights(&weights);
        import_result_destroy(result);
    }
}

static void feed(onnx_run_t *run, const weights_t *batches, const char *name) {
    char numbered[16];
    const ir_type_t *wanted;
    ir_type_t type;
    snprintf(numbered, sizeof numbered, "%s.0", name);
    void *at = onnx_run_at(run, name, &wanted);
    const void *data = find_weight(batches, numbered, &type);
    assert_non_null(at);
    assert_non_null(data);
    assert_true(ir_type_equal(&type, wanted));
    memcpy(at, data, ir_type_bytes(&type));
}

/* State takes the weights file's values where it has them. */
static void load_weights(onnx_run_t *run, const import_result_t *result, const char *name) {
    weights_t weights = open_weights(name, "weights");
    for (size_t k = 0; k < result->tensors.n; k++) {
        ir_type_t type;
        const void *data = find_weight(&weights, result->tensors.data[k].name, &type);
        if (data)
            memcpy(onnx_run_at(run, result->tensors.data[k].name, NULL), data,
                   ir_type_bytes(&type));
    }
    close_weights(&weights);
}

/* |a - b| / |b| */
static double distance(const float *a, const float *b, size_t n) {
    double difference = 0, norm = 0;
    for (size_t i = 0; i < n; i++) {
        difference += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        norm += (double)b[i] * (double)b[i];
    }
    return sqrt(difference / norm);
}

/* Loss within 1e-5, running statistics within 1e-4: the tolerances of the cases' README. */
static void test_forward_agrees(void **state) {
    (void)state;
    if (!shared_is_there()) skip();
    for (size_t i = 0; i < N_CASES; i++) {
        import_result_t *result = import_case(i, NULL);
        weights_t batches = open_weights(cases[i].name, "batches");
        weights_t reference = open_weights(cases[i].name, "reference_step0");
        onnx_run_t run;
        ir_type_t type;
        assert_int_equal(onnx_run_open(&run, result), ST_OK);
        load_weights(&run, result, cases[i].name);
        feed(&run, &batches, "x");
        feed(&run, &batches, "y");
        if (onnx_run_nodes(&run) != ST_OK) fail_msg("%s: %s", cases[i].name, st_last_error());
        ir_value_t loss = ir_graph_find_output(run.graph, "loss");
        assert_true(loss != IR_NONE);
        double off = distance(run.data[loss], find_weight(&reference, "loss", &type), 1);
        if (!(off <= 1e-5)) fail_msg("%s: the loss is off by %g", cases[i].name, off);
        size_t n_updates = 0;
        for (size_t k = 0; k < run.graph->nodes.n; k++) {
            const ir_node_info_t *node = &run.graph->nodes.data[k];
            if (node->op != IR_OP_UPDATE) continue;
            char name[256];
            snprintf(name, sizeof name, "after.%s",
                     ir_value_producer(run.graph, node->inputs[0])->name);
            const float *expected = find_weight(&reference, name, &type);
            assert_non_null(expected);
            off = distance(run.data[node->inputs[1]], expected, (size_t)ir_type_elements(&type));
            if (!(off <= 1e-4)) fail_msg("%s: %s is off by %g", cases[i].name, name, off);
            n_updates++;
        }
        assert_int_equal(n_updates, strstr(cases[i].name, "resnet") ? 34 : 0);
        onnx_run_close(&run);
        close_weights(&reference);
        close_weights(&batches);
        import_result_destroy(result);
    }
}

static void test_light_models(void **state) {
    (void)state;
    static const struct {
        const char *name, *output;
        int64_t batch, classes;
    } models[] = {
        {"densenet121", "fc6_1", 1, 1000},
        {"resnet50", "gpu_0/softmax_1", 1, 1000},
        {"shufflenet", "gpu_0/softmax_1", 1, 1000},
        {"squeezenet", "softmaxout_1", 1, 1000},
    };
    if (!shared_is_there()) skip();
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        char path[512];
        import_result_t *result;
        snprintf(path, sizeof path, "%s/data/light_%s.onnx", STATOR_SHARED_DIR, models[i].name);
        if (import_file(path, NULL, &result) != ST_OK) fail_msg("%s", st_last_error());
        assert_int_equal(ir_graph_verify(result->graph), ST_OK);
        ir_value_t value = ir_graph_find_output(result->graph, models[i].output);
        assert_true(value != IR_NONE);
        const ir_type_t *type = ir_value_type(result->graph, value);
        assert_int_equal(type->dims[0], models[i].batch);
        assert_int_equal(type->dims[1], models[i].classes);
        import_result_destroy(result);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parameters_are_the_weights),
        cmocka_unit_test(test_weight_names),
        cmocka_unit_test(test_forward_agrees),
        cmocka_unit_test(test_light_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
