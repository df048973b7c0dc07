/* The ONNX reader on models made here: what initializers, inputs and outputs become; and files that
 * are wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "import/onnx_make.h"
#include "import/onnx_run.h"
#include "ir/convert.h"
#include "ir/op.h"
#include "support/clock.h"

#define DIMS(...)   \
    (int64_t[]) {   \
        __VA_ARGS__ \
    }

static import_result_t *import_ok(make_t *m, const import_options_t *options) {
    import_result_t *result;
    if (make_import(m, options, &result) != ST_OK) fail_msg("%s", st_last_error());
    make_close(m);
    return result;
}

/* The import fails with `status` and a message that has all `parts` (separated by '|'). */
static void expect_fail(make_t *m, st_status_t status, const char *parts) {
    import_result_t *result;
    st_status_t given = make_import(m, NULL, &result);
    char copy[256], *rest = copy;
    snprintf(copy, sizeof copy, "%s", parts);
    if (given != status)
        fail_msg("status %d, expected %d (%s): %s", given, status, parts,
                 given ? st_last_error() : "");
    for (char *part; (part = strsep(&rest, "|"));)
        if (!strstr(st_last_error(), part)) fail_msg("'%s' lacks '%s'", st_last_error(), part);
    make_close(m);
}

static ir_op_t op_of(const import_result_t *result, const char *name) {
    ir_node_t node = ir_graph_find(result->graph, name);
    return node == IR_NONE ? IR_OP_NONE : ir_node(result->graph, node)->op;
}

/* y = x w + c in f32[2,2] */
static void open_linear(make_t *m) {
    make_open(m, 17);
    make_input(m, "x", MAKE_F32, 2, DIMS(2, 2));
    make_tensor(m, "w", MAKE_F32, 2, DIMS(2, 2), (float[]){1, 2, 3, 4}, 16);
    make_floats(m, "c", 2, (float[]){5, 6});
    make_node(m, "MatMul", "x,w", "xw");
    make_node(m, "Add", "xw,c", "y");
    make_output(m, "y");
}

/* ---- parameters, constants, buffers ---- */

static void test_floating_initializers_are_parameters(void **state) {
    (void)state;
    make_t m;
    open_linear(&m);
    make_floats(&m, "never_read", 1, (float[]){1});
    import_result_t *result = import_ok(&m, NULL);
    assert_int_equal(result->tensors.n, 2);
    assert_string_equal(result->tensors.data[0].name, "w");
    assert_int_equal(op_of(result, "w"), IR_OP_PARAMETER);
    assert_int_equal(op_of(result, "c"), IR_OP_PARAMETER);
    assert_memory_equal(result->tensors.data[1].data, ((float[]){5, 6}), 8);
    assert_string_equal(result->graph->outputs.data[0].name, "y");
    import_result_destroy(result);
}

static void test_patterns_and_weight_names(void **state) {
    (void)state;
    make_t m;
    const char *patterns[] = {"c*"}, *names[] = {"model.c"};
    open_linear(&m);
    import_result_t *result =
        import_ok(&m, &(import_options_t){.constant_patterns = patterns, .n_constant_patterns = 1});
    assert_int_equal(op_of(result, "w"), IR_OP_PARAMETER);
    assert_int_equal(op_of(result, "c"), IR_OP_NONE);
    assert_int_equal(result->tensors.n, 1);
    import_result_destroy(result);
    open_linear(&m);
    result = import_ok(&m, &(import_options_t){.weight_names = names, .n_weight_names = 1});
    assert_int_equal(op_of(result, "w"), IR_OP_NONE);
    assert_int_equal(op_of(result, "c"), IR_OP_PARAMETER);
    assert_int_equal(result->messages.n, 1);
    assert_non_null(strstr(result->messages.data[0], ": w"));
    import_result_destroy(result);
}

static void test_pattern_without_match(void **state) {
    (void)state;
    make_t m;
    const char *patterns[] = {"c*", "bias.*"};
    import_result_t *result = NULL;
    open_linear(&m);
    import_options_t options = {.constant_patterns = patterns, .n_constant_patterns = 2};
    assert_int_equal(make_import(&m, &options, &result), ST_INVALID);
    assert_null(result);
    assert_non_null(
        strstr(st_last_error(), "no initializer of the 2 matches the pattern 'bias.*'"));
    patterns[1] = "x"; /* an input is no initializer */
    assert_int_equal(make_import(&m, &options, &result), ST_INVALID);
    assert_non_null(strstr(st_last_error(), "'x'"));
    make_close(&m);
}

/* A scalar that would train is worth a word. */
static void test_scalar_parameters_are_noted(void **state) {
    (void)state;
    make_t m;
    open_linear(&m);
    make_tensor(&m, "factor", MAKE_F32, 0, NULL, (float[]){2}, 4);
    make_node(&m, "Mul", "y,factor", "z");
    m.outputs[0]->name = (char *)(uintptr_t) "z";
    import_result_t *result = import_ok(&m, NULL);
    assert_int_equal(op_of(result, "factor"), IR_OP_PARAMETER);
    assert_int_equal(result->messages.n, 1);
    assert_non_null(strstr(result->messages.data[0], ": factor"));
    import_result_destroy(result);
}

/* Up to IR version 3 initializers are listed among the inputs. */
static void test_inputs_that_are_initializers(void **state) {
    (void)state;
    make_t m;
    open_linear(&m);
    make_input(&m, "w", MAKE_F32, 2, DIMS(2, 2));
    import_result_t *result = import_ok(&m, NULL);
    assert_int_equal(op_of(result, "w"), IR_OP_PARAMETER);
    assert_int_equal(op_of(result, "x"), IR_OP_INPUT);
    import_result_destroy(result);
}

static void open_norm(make_t *m, int64_t opset, bool train, const char *producer) {
    make_open(m, opset);
    m->model.producer_name = (char *)(uintptr_t)producer;
    make_input(m, "x", MAKE_F32, 2, DIMS(4, 2));
    make_floats(m, "s", 2, (float[]){1, 1});
    make_floats(m, "b", 2, (float[]){0, 0});
    make_floats(m, "mean", 2, (float[]){0, 0});
    make_floats(m, "var", 2, (float[]){1, 1});
    make_node(m, "Identity", "var", "same_var");
    Onnx__NodeProto *node = make_node(m, "BatchNormalization", "x,s,b,mean,same_var",
                                      train ? "y,new_mean,new_var" : "y");
    make_float(m, node, "momentum", 0.75f);
    if (train && opset >= 14) make_int(m, node, "training_mode", 1);
    make_output(m, "y");
}

/* x has per-channel means 1 and 0 and squared deviations 20 and 0 in 4 items: population variance
 * 5, sample variance 20/3. New = 0.75 old + 0.25 batch. */
static void check_norm(int64_t opset, const char *producer, float variance) {
    make_t m;
    open_norm(&m, opset, true, producer);
    import_result_t *result = import_ok(&m, NULL);
    assert_int_equal(op_of(result, "mean"), IR_OP_BUFFER);
    assert_int_equal(op_of(result, "var"), IR_OP_BUFFER);
    assert_int_equal(op_of(result, "s"), IR_OP_PARAMETER);
    onnx_run_t run;
    assert_int_equal(onnx_run_open(&run, result), ST_OK);
    memcpy(onnx_run_at(&run, "x", NULL), ((float[]){-2, 0, 0, 0, 2, 0, 4, 0}), 32);
    assert_int_equal(onnx_run_nodes(&run), ST_OK);
    int n = 0;
    for (size_t i = 0; i < run.graph->nodes.n; i++) {
        const ir_node_info_t *node = &run.graph->nodes.data[i];
        if (node->op != IR_OP_UPDATE) continue;
        bool is_mean = strcmp(ir_value_producer(run.graph, node->inputs[0])->name, "mean") == 0;
        const float *value = run.data[node->inputs[1]];
        assert_float_equal(value[0], is_mean ? 0.25f : 0.75f + 0.25f * variance, 1e-5f);
        n++;
    }
    assert_int_equal(n, 2);
    onnx_run_close(&run);
    import_result_destroy(result);
}

static void test_batch_norm_statistics(void **state) {
    (void)state;
    check_norm(17, "pytorch", 20.0f / 3);
    check_norm(14, "other", 5);
    check_norm(9, "other", 5); /* training by its further outputs */
    make_t m;
    open_norm(&m, 17, false, "pytorch");
    import_result_t *result = import_ok(&m, NULL);
    assert_int_equal(op_of(result, "mean"), IR_OP_BUFFER);
    for (size_t i = 0; i < result->graph->nodes.n; i++)
        assert_int_not_equal(result->graph->nodes.data[i].op, IR_OP_UPDATE);
    import_result_destroy(result);
}

/* Attributes are f32 in the file; what the graph has is the decimal behind them, in f64. */
static void test_float_attributes_are_decimals(void **state) {
    (void)state;
    static const struct {
        float momentum, epsilon;
        double ours, eps;
    } rows[] = {
        {0.9f, 1e-5f, 1 - 0.9, 1e-5},
        {0.99f, 1e-3f, 1 - 0.99, 1e-3},
        {0.5f, 1001.00006f, 0.5, 1001.00006}, /* no shorter decimal is this f32 */
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        make_t m;
        open_norm(&m, 17, true, "pytorch");
        Onnx__NodeProto *node = m.nodes[1];
        assert_string_equal(node->attribute[0]->name, "momentum");
        node->attribute[0]->f = rows[i].momentum;
        make_float(&m, node, "epsilon", rows[i].epsilon);
        import_result_t *result = import_ok(&m, NULL);
        bool found = false;
        for (size_t j = 0; j < result->graph->nodes.n; j++) {
            const ir_node_info_t *norm = &result->graph->nodes.data[j];
            if (norm->op != IR_OP_BATCH_NORM) continue;
            found = true;
            assert_true(ir_attr_float(norm, "momentum") == rows[i].ours);
            assert_true(ir_attr_float(norm, "eps") == rows[i].eps);
        }
        assert_true(found);
        import_result_destroy(result);
    }
}

/* Half floats stand as bit patterns in int32_data. */
static void test_typed_data(void **state) {
    (void)state;
    static int32_t halves[] = {0x3c00, 0xc000}, brains[] = {0x3f80, 0xc000};
    make_t m;
    make_open(&m, 17);
    Onnx__TensorProto *h = make_tensor(&m, "h", MAKE_F16, 1, DIMS(2), NULL, 0);
    Onnx__TensorProto *b = make_tensor(&m, "b", MAKE_BF16, 1, DIMS(2), NULL, 0);
    h->n_int32_data = b->n_int32_data = 2;
    h->int32_data = halves, b->int32_data = brains;
    make_output(&m, "h");
    make_output(&m, "b");
    import_result_t *result = import_ok(&m, NULL);
    assert_int_equal(result->tensors.n, 2);
    for (size_t i = 0; i < 2; i++) {
        const import_tensor_t *t = &result->tensors.data[i];
        assert_int_equal(t->type.dtype, i ? IR_BF16 : IR_F16);
        assert_float_equal(ir_element_load(t->type.dtype, t->data, 0), 1, 0);
        assert_float_equal(ir_element_load(t->type.dtype, t->data, 1), -2, 0);
    }
    import_result_destroy(result);
}

/* ---- inputs, outputs, nodes ---- */

static void test_loss_name(void **state) {
    (void)state;
    make_t m;
    make_open(&m, 17);
    make_input(&m, "x", MAKE_F32, 2, DIMS(3, 2));
    make_input(&m, "table", MAKE_F32, 1, DIMS(7));
    make_int(&m, make_node(&m, "ReduceSum", "x", "total"), "keepdims", 0);
    make_node(&m, "Relu", "x", "r");
    make_output(&m, "total");
    make_output(&m, "r");
    import_result_t *result = import_ok(&m, NULL);
    assert_true(ir_graph_find_output(result->graph, "loss") != IR_NONE);
    assert_true(ir_graph_find_output(result->graph, "r") != IR_NONE);
    const ir_node_info_t *x = ir_node(result->graph, ir_graph_find(result->graph, "x"));
    const ir_node_info_t *table = ir_node(result->graph, ir_graph_find(result->graph, "table"));
    assert_int_equal(ir_attr_int(x, "batch_axis"), 0);
    assert_int_equal(ir_attr_int(table, "batch_axis"), -1);
    assert_int_equal(result->messages.n, 1);
    import_result_destroy(result);
}

/* Shape → Gather → Concat → Reshape leaves a reshape alone. */
static void test_shape_arithmetic(void **state) {
    (void)state;
    make_t m;
    make_open(&m, 17);
    make_input(&m, "x", MAKE_F32, 3, DIMS(2, 3, 4));
    make_longs(&m, "one", 1, (int64_t[]){1});
    make_longs(&m, "open", 1, (int64_t[]){-1});
    make_node(&m, "Shape", "x", "s");
    make_node(&m, "Gather", "s,one", "d");
    make_node(&m, "Mul", "d,d", "dd");
    make_node(&m, "Div", "dd,d", "d2");
    make_int(&m, make_node(&m, "Concat", "open,d2", "shape"), "axis", 0);
    make_node(&m, "Reshape", "x,shape", "y");
    make_output(&m, "y");
    import_result_t *result = import_ok(&m, NULL);
    assert_int_equal(result->graph->nodes.n, 2);
    const ir_type_t *type = ir_value_type(result->graph, result->graph->outputs.data[0].value);
    assert_int_equal(type->rank, 2);
    assert_int_equal(type->dims[0], 8);
    assert_int_equal(type->dims[1], 3);
    import_result_destroy(result);
}

static void test_training_dropout_has_state(void **state) {
    (void)state;
    make_t m;
    make_open(&m, 17);
    make_input(&m, "x", MAKE_F32, 1, DIMS(64));
    make_tensor(&m, "ratio", MAKE_F32, 0, NULL, (float[]){0.25f}, 4);
    make_tensor(&m, "train", 9, 0, NULL, "\1", 1);
    make_node(&m, "Dropout", "x,ratio,train", "y");
    make_output(&m, "y");
    import_result_t *result = import_ok(&m, NULL);
    assert_int_equal(op_of(result, "random.seed"), IR_OP_BUFFER);
    assert_int_equal(op_of(result, "random.step"), IR_OP_BUFFER);
    assert_int_equal(op_of(result, "ratio"), IR_OP_NONE);
    assert_int_equal(result->tensors.n, 2);
    import_result_destroy(result);
}

static void test_names_of_nodes(void **state) {
    (void)state;
    make_t m;
    open_linear(&m); /* equal and empty node names are fine */
    m.nodes[0]->name = (char *)(uintptr_t) "n";
    m.nodes[1]->name = (char *)(uintptr_t) "n";
    make_node(&m, "Relu", "y", "z")->name = (char *)(uintptr_t) "";
    import_result_destroy(import_ok(&m, NULL));
    open_linear(&m);
    make_longs(&m, "shape", 1, (int64_t[]){1});
    make_longs(&m, "shape", 1, (int64_t[]){1});
    expect_fail(&m, ST_PARSE, "'shape'|another value has that name");
    open_linear(&m);
    make_node(&m, "Relu", "x", "y");
    expect_fail(&m, ST_PARSE, "node 2 'Relu_node' (Relu)|'y'|another value already");
}

static void test_order_of_nodes(void **state) {
    (void)state;
    make_t m;
    make_open(&m, 17);
    make_input(&m, "x", MAKE_F32, 1, DIMS(2));
    make_node(&m, "Add", "x,b", "a"); /* a → b → a */
    make_node(&m, "Relu", "a", "b");
    make_output(&m, "b");
    expect_fail(&m, ST_PARSE, "node 0 'Add_node'|'b'|cycle");
    open_linear(&m);
    make_output(&m, "nowhere");
    expect_fail(&m, ST_PARSE, "output 'nowhere'");
}

/* One message lists all. */
static void test_unsupported_nodes(void **state) {
    (void)state;
    make_t m;
    open_linear(&m);
    make_node(&m, "GRU", "y", "a");
    make_node(&m, "Unique", "y", "b");
    make_node(&m, "Relu", "y", "c")->domain = (char *)(uintptr_t) "com.example";
    make_node(&m, "Gelu", "y", "d");
    expect_fail(&m, ST_UNSUPPORTED,
                "4 nodes|GRU 'GRU_node'|Unique 'Unique_node'|com.example.Relu|Gelu|not in this "
                "opset");
    open_linear(&m);
    make_int(&m, m.nodes[1], "broadcast", 1);
    expect_fail(&m, ST_UNSUPPORTED, "node 1 'Add_node' (Add)|attribute 'broadcast'");
    open_linear(&m);
    m.opset.version = 8;
    expect_fail(&m, ST_UNSUPPORTED, "opset 8|9 to 21");
    open_linear(&m);
    m.opset.version = 22;
    expect_fail(&m, ST_UNSUPPORTED, "opset 22");
}

static void test_symbolic_dim(void **state) {
    (void)state;
    make_t m;
    import_result_t *result = NULL;
    ir_graph_t *bound = NULL;
    make_open(&m, 17);
    make_input(&m, "x", MAKE_F32, 3, DIMS(-1, 2, 3));
    make_longs(&m, "zero", 1, (int64_t[]){0});
    make_longs(&m, "six", 1, (int64_t[]){6});
    make_node(&m, "Shape", "x", "dims");
    make_node(&m, "Gather", "dims,zero", "batch");
    make_node(&m, "Mul", "batch,six", "all");
    make_node(&m, "Reshape", "x,all", "y");
    make_output(&m, "y");
    assert_int_equal(make_import(&m, NULL, &result), ST_OK);
    assert_int_equal(result->graph->symbols.n, 1);
    assert_string_equal(result->graph->symbols.data[0].name, "batch");
    assert_int_equal(ir_graph_bind(result->graph, 1, &(ir_binding_t){"batch", 5}, &bound), ST_OK);
    ir_value_t y = ir_graph_find_output(bound, "y");
    assert_int_equal(ir_value_type(bound, y)->dims[0], 30);
    ir_graph_destroy(bound);
    import_result_destroy(result);
    make_open(&m, 17);
    make_input(&m, "x", MAKE_F32, 2, DIMS(1, 2));
    m.inputs[0]->type = NULL;
    make_node(&m, "Relu", "x", "y");
    make_output(&m, "y");
    expect_fail(&m, ST_PARSE, "input 'x' has no type");
}

/* Ranks that shape inference elsewhere has crashed on. */
static void test_wrong_ranks(void **state) {
    (void)state;
    make_t m;
    make_open(&m, 17);
    make_input(&m, "x", MAKE_F32, 2, DIMS(2, 2));
    make_tensor(&m, "w", MAKE_F32, 0, NULL, (float[]){1}, 4);
    make_node(&m, "Gemm", "x,w", "y");
    make_output(&m, "y");
    expect_fail(&m, ST_INVALID, "(Gemm)|B 0");
    make_open(&m, 17);
    make_input(&m, "x", MAKE_F32, 4, DIMS(1, 1, 3, 3));
    make_tensor(&m, "w", MAKE_F32, 0, NULL, (float[]){1}, 4);
    make_node(&m, "Conv", "x,w", "y");
    make_output(&m, "y");
    expect_fail(&m, ST_INVALID, "(Conv)|f32[]");
    make_open(&m, 17);
    make_node(&m, "Relu", "", "y");
    make_output(&m, "y");
    expect_fail(&m, ST_PARSE, "input 0 is missing");
}

/* Claims that the file cannot back. */
static void test_wrong_tensors(void **state) {
    (void)state;
    static const struct {
        size_t rank;
        int64_t dims[2];
        const char *part;
    } claims[] = {
        {2, {4, 0}, "0 bytes|8"},
        {1, {INT64_C(1) << 60}, "'w'"},
        {2, {INT64_MAX, INT64_MAX}, "'w'"},
        {1, {-3}, "'w'"},
    };
    make_t m;
    for (size_t i = 0; i < sizeof claims / sizeof claims[0]; i++) {
        import_result_t *result;
        make_open(&m, 17);
        make_tensor(&m, "w", MAKE_F32, claims[i].rank, claims[i].dims, (float[]){1, 2}, 8);
        make_output(&m, "w");
        assert_int_not_equal(make_import(&m, NULL, &result), ST_OK);
        assert_non_null(strstr(st_last_error(), "'w'"));
        make_close(&m);
    }
    int64_t *dims = calloc(1000, sizeof *dims);
    make_open(&m, 17);
    make_tensor(&m, "w", MAKE_F32, 1000, dims, "", 0);
    make_output(&m, "w");
    free(dims);
    expect_fail(&m, ST_UNSUPPORTED, "'w'|1000 dims");
}

/* ---- files that are wrong as a whole ---- */

/* Every prefix fails or imports, in no time; so does every file with one bit turned. */
static void test_prefixes_and_bit_flips(void **state) {
    (void)state;
    make_t m;
    size_t bytes;
    open_norm(&m, 17, true, "pytorch");
    const uint8_t *data = make_pack(&m, &bytes);
    uint8_t *copy = malloc(bytes);
    double begin = processor_seconds();
    for (size_t n = 0; n < bytes; n++) {
        import_result_t *result;
        memcpy(copy, data, bytes);
        if (import_memory(copy, n, "prefix", NULL, &result) == ST_OK)
            import_result_destroy(result);
        else
            assert_true(strlen(st_last_error()) > 0);
        for (int bit = 0; bit < 8; bit++) {
            copy[n] = (uint8_t)(data[n] ^ (1 << bit));
            if (import_memory(copy, bytes, "flip", NULL, &result) == ST_OK)
                import_result_destroy(result);
        }
    }
    assert_true(processor_seconds() - begin < 30);
    free(copy);
    make_close(&m);
}

/* Newer schemas describe nodes in further fields, which may be passed over; any other field may
 * not. */
static void test_unknown_fields(void **state) {
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
        st_status_t status;
    } ends[] = {
        {"\xd2\x01\x00", 3, ST_OK},    /* ModelProto.configuration */
        {"\xda\x01\x00", 3, ST_PARSE}, /* field 27 */
        {"\xd0\x01\x00", 3, ST_PARSE}, /* field 26 as a number */
    };
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        make_t m;
        import_result_t *result;
        size_t bytes;
        open_linear(&m);
        const void *data = make_pack(&m, &bytes);
        char *longer = malloc(bytes + ends[i].n);
        memcpy(longer, data, bytes);
        memcpy(longer + bytes, ends[i].bytes, ends[i].n);
        st_status_t status = import_memory(longer, bytes + ends[i].n, "m", NULL, &result);
        if (status != ends[i].status)
            fail_msg("end %zu: status %d, '%s'", i, status, status ? st_last_error() : "");
        if (ends[i].status == ST_OK)
            import_result_destroy(result);
        else
            assert_non_null(strstr(st_last_error(), "not in ONNX's schema"));
        free(longer);
        make_close(&m);
    }
}

/* A graph in an attribute of a node of a graph …, 2000 deep: each level is three messages. */
static void test_deep_nesting(void **state) {
    (void)state;
    enum { LEVELS = 2000 };
    make_t m;
    make_open(&m, 17);
    Onnx__GraphProto *graph = &m.graph, *graphs = calloc(LEVELS, sizeof *graphs);
    for (int i = 0; i < LEVELS; i++) {
        Onnx__NodeProto *node = make_node(&m, "If", "", "");
        m.graph.n_node = 0;
        graph->n_node = 1;
        graph->node = st_arena_copy(&m.arena, &node, sizeof node);
        onnx__graph_proto__init(&graphs[i]);
        Onnx__AttributeProto *a = st_arena_alloc(&m.arena, sizeof *a);
        onnx__attribute_proto__init(a);
        a->g = graph = &graphs[i];
        node->n_attribute = 1;
        node->attribute[0] = a;
    }
    m.graph.n_node = 1;
    expect_fail(&m, ST_PARSE, "nested more than");
    free(graphs);
}

/* Protobuf ends at 2 GB; the error comes before the bytes are read. */
static void test_too_large(void **state) {
    (void)state;
    import_result_t *result;
    size_t bytes = (size_t)INT32_MAX + 1;
    uint8_t *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) skip();

    memcpy(data, "\x08\x08\x12\x01x\x1a\x01y\x22\x01z", 11);
    st_status_t status = import_memory(data, bytes, "large.onnx", NULL, &result);
    munmap(data, bytes);
    assert_int_equal(status, ST_DOES_NOT_FIT);
    assert_non_null(strstr(st_last_error(), "external data"));
}

/* Lack of memory at any point is an error, and leaks nothing. */
static void test_lack_of_memory(void **state) {
    (void)state;
    make_t m;
    size_t bytes;
    open_norm(&m, 17, true, "pytorch");
    const void *data = make_pack(&m, &bytes);
    for (int64_t i = 0;; i++) {
        import_result_t *result;
        st_memory_fail_after(i, false);
        st_status_t status = import_memory(data, bytes, "made", NULL, &result);
        st_memory_fail_after(-1, false);
        if (status == ST_OK) {
            import_result_destroy(result);
            assert_true(i > 5);
            break;
        }
        assert_int_equal(status, ST_NO_MEMORY);
    }
    make_close(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_floating_initializers_are_parameters),
        cmocka_unit_test(test_patterns_and_weight_names),
        cmocka_unit_test(test_pattern_without_match),
        cmocka_unit_test(test_scalar_parameters_are_noted),
        cmocka_unit_test(test_inputs_that_are_initializers),
        cmocka_unit_test(test_batch_norm_statistics),
        cmocka_unit_test(test_float_attributes_are_decimals),
        cmocka_unit_test(test_typed_data),
        cmocka_unit_test(test_loss_name),
        cmocka_unit_test(test_shape_arithmetic),
        cmocka_unit_test(test_training_dropout_has_state),
        cmocka_unit_test(test_names_of_nodes),
        cmocka_unit_test(test_order_of_nodes),
        cmocka_unit_test(test_unsupported_nodes),
        cmocka_unit_test(test_symbolic_dim),
        cmocka_unit_test(test_wrong_ranks),
        cmocka_unit_test(test_wrong_tensors),
        cmocka_unit_test(test_prefixes_and_bit_flips),
        cmocka_unit_test(test_unknown_fields),
        cmocka_unit_test(test_deep_nesting),
        cmocka_unit_test(test_too_large),
        cmocka_unit_test(test_lack_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
