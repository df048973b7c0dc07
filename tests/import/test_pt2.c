/* torch.export archives: state, ties, mutation, nested graphs, damage, and the shared cases. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>
#include <json-c/json.h>

#include "ir/op.h"
#include "ir/verify.h"
#include "pt2_make.h"

#define D(...) ((const double[]){__VA_ARGS__})

/* ---- small archives ---- */

static uint8_t *file;

static import_result_t *import_made(pt2_maker_t *m) {
    size_t bytes;
    import_result_t *result = NULL;
    free(file);
    file = pt2_finish(m, &bytes);
    st_status_t status = import_memory(file, bytes, "made", NULL, &result);
    if (status != ST_OK) fail_msg("%s", st_last_error());
    status = ir_graph_verify(result->graph);
    if (status != ST_OK) fail_msg("%s", st_last_error());
    return result;
}

static void expect_refused(pt2_maker_t *m, const char *text) {
    size_t bytes;
    import_result_t *result = NULL;
    st_clear_error();
    free(file);
    file = pt2_finish(m, &bytes);
    if (import_memory(file, bytes, "made", NULL, &result) == ST_OK)
        fail_msg("imported, not '%s'", text);
    if (!strstr(st_last_error(), text)) fail_msg("'%s', expected '%s'", st_last_error(), text);
    assert_null(result);
}

static void expect_values(const import_result_t *result, const feed_t *feeds, size_t n_feeds,
                          const char *output, size_t n, const double *want) {
    ir_type_t type;
    double *got = run_graph(result, feeds, n_feeds, output, &type);
    assert_int_equal(ir_type_elements(&type), n);
    for (size_t i = 0; i < n; i++)
        if (!(got[i] - want[i] < 1e-6 && want[i] - got[i] < 1e-6))
            fail_msg("%s[%zu] is %g, expected %g", output, i, got[i], want[i]);
    free(got);
}

static const import_tensor_t *tensor_of(const import_result_t *result, const char *name) {
    for (size_t i = 0; i < result->tensors.n; i++)
        if (strcmp(result->tensors.data[i].name, name) == 0) return &result->tensors.data[i];
    return NULL;
}

/* A value changed in place is the new value under both names; a buffer is updated at the end. */
static void test_mutation(void **state) {
    (void)state;
    pt2_maker_t m = {0};
    pt2_state(&m, "buffer", "bn.count", "i64[]", D(4));
    pt2_input(&m, "x", "f32[2]");
    pt2_node(&m, "add_.Tensor", "self=%bn_count other=1", "add_");
    pt2_node(&m, "mul.Tensor", "self=%x other=2", "y");
    pt2_node(&m, "relu_.default", "self=%y", "relu_");
    pt2_node(&m, "add.Tensor", "self=%y other=%relu_", "z");
    pt2_output(&m, "z");
    import_result_t *result = import_made(&m);
    feed_t feeds[] = {{"x", D(1, -1)}};
    expect_values(result, feeds, 1, "z", 2, D(4, 0));
    expect_values(result, feeds, 1, "bn.count", 1, D(5));
    assert_int_equal(ir_graph_find(result->graph, "x") != IR_NONE, 1);
    assert_string_equal(result->graph->producer, "pytorch 2.11.0");
    import_result_destroy(result);
}

/* Sizes that the archive leaves open stay open: x f32[s0,3] as one row of 3·s0, plus a mean over
 * s0. */
static pt2_maker_t symbolic(void) {
    pt2_maker_t m = {.ranges = "{\"s0\":{\"min_val\":2,\"max_val\":64}}"};
    pt2_symbolic_input(&m, "x", "f32", "s0:4,3");
    pt2_node(&m, "sym_size.int", "self=%x dim=0", "&n");
    pt2_node(&m, "*_operator.mul", "a=&n b=3", "&m");
    pt2_node(&m, "view.default", "self=%x size=[&m]", "flat");
    pt2_node(&m, "mean.dim", "self=%x dim=[0]", "mean");
    pt2_output(&m, "flat");
    pt2_output(&m, "mean");
    return m;
}

static void test_open_sizes(void **state) {
    (void)state;
    pt2_maker_t m = symbolic();
    import_result_t *result = import_made(&m);
    ir_graph_t *graph = result->graph, *bound = NULL;
    assert_int_equal(graph->symbols.n, 1);
    assert_string_equal(graph->symbols.data[0].name, "s0");
    assert_int_equal(graph->symbols.data[0].min, 2);
    assert_int_equal(graph->symbols.data[0].max, 64);
    assert_int_equal(graph->symbols.data[0].example, 4);
    assert_int_equal(ir_graph_bind(graph, 1, &(ir_binding_t){"s0", 5}, &bound), ST_OK);
    assert_int_equal(ir_value_type(bound, ir_graph_find_output(bound, "flat"))->dims[0], 15);
    assert_int_equal(bound->symbols.n, 0);
    result->graph = bound;
    feed_t feeds[] = {{"x", D(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)}};
    expect_values(result, feeds, 1, "mean", 3, D(7, 8, 9));
    assert_int_equal(ir_graph_bind(graph, 1, &(ir_binding_t){"s0", 65}, &bound), ST_INVALID);
    assert_non_null(strstr(st_last_error(), "s0 (2 to 64)"));
    assert_int_equal(ir_graph_bind(graph, 0, NULL, &bound), ST_INVALID);
    assert_non_null(strstr(st_last_error(), "not bound: s0 (2 to 64)"));
    ir_graph_destroy(graph);
    import_result_destroy(result);
}

static void test_sizes_bound_at_import(void **state) {
    (void)state;
    import_result_t *result = NULL;
    pt2_maker_t m = symbolic();
    size_t bytes;
    free(file);
    file = pt2_finish(&m, &bytes);
    ir_binding_t binding = {"s0", 7};
    import_options_t options = {.bindings = &binding, .n_bindings = 1};
    assert_int_equal(import_memory(file, bytes, "made", &options, &result), ST_OK);
    assert_int_equal(result->graph->symbols.n, 0);
    ir_value_t flat = ir_graph_find_output(result->graph, "flat");
    assert_int_equal(ir_value_type(result->graph, flat)->dims[0], 21);
    import_result_destroy(result);
    binding.value = 1;
    assert_int_equal(import_memory(file, bytes, "made", &options, &result), ST_INVALID);
    assert_non_null(strstr(st_last_error(), "'s0' is bound to 1, outside 2 to 64"));
    binding = (ir_binding_t){"batch", 7};
    assert_int_equal(import_memory(file, bytes, "made", &options, &result), ST_NOT_FOUND);
    assert_non_null(strstr(st_last_error(), "no symbol 'batch'; it has s0"));
}

/* Change through a view: reading the base afterwards is refused, reading the view is fine. */
static void test_views(void **state) {
    (void)state;
    for (int reads_base = 0; reads_base < 2; reads_base++) {
        pt2_maker_t m = {0};
        pt2_input(&m, "x", "f32[2,2]");
        pt2_node(&m, "mul.Tensor", "self=%x other=1", "base");
        pt2_node(&m, "view.default", "self=%base size=[4]", "v");
        pt2_node(&m, "add_.Tensor", "self=%v other=1", "changed");
        pt2_node(&m, "neg.default", reads_base ? "self=%base" : "self=%changed", "z");
        pt2_output(&m, "z");
        if (reads_base) {
            expect_refused(
                &m,
                "node 'z' (torch.ops.aten.neg.default): reads a view of 'base' that node "
                "'changed' has changed");
        } else {
            import_result_t *result = import_made(&m);
            expect_values(result, (feed_t[]){{"x", D(1, 2, 3, 4)}}, 1, "z", 4, D(-2, -3, -4, -5));
            import_result_destroy(result);
        }
    }
    for (int second = 0; second < 2; second++) { /* results of broadcast_tensors view one each */
        pt2_maker_t m = {0};
        pt2_input(&m, "x", "f32[2,1]");
        pt2_node(&m, "mul.Tensor", "self=%x other=1", "p");
        pt2_node(&m, "mul.Tensor", "self=%x other=2", "q");
        pt2_node(&m, "view.default", "self=%q size=[2]", "v");
        pt2_node(&m, "broadcast_tensors.default", "tensors=[%p,%v]", "[a,b]");
        pt2_node(&m, "add_.Tensor", "self=%q other=1", "changed");
        pt2_node(&m, "neg.default", second ? "self=%b" : "self=%a", "z");
        pt2_output(&m, "z");
        if (second) {
            expect_refused(&m, "reads a view of 'q' that node 'changed' has changed");
        } else {
            import_result_t *result = import_made(&m);
            expect_values(result, (feed_t[]){{"x", D(1, 2)}}, 1, "z", 4, D(-1, -1, -2, -2));
            import_result_destroy(result);
        }
    }
    pt2_maker_t m = {0}; /* a clone is a tensor of its own */
    pt2_input(&m, "x", "f32[2]");
    pt2_node(&m, "clone.default", "self=%x", "c");
    pt2_node(&m, "add_.Tensor", "self=%c other=1", "changed");
    pt2_node(&m, "add.Tensor", "self=%x other=%c", "z");
    pt2_output(&m, "z");
    import_result_t *result = import_made(&m);
    expect_values(result, (feed_t[]){{"x", D(1, 2)}}, 1, "z", 2, D(3, 5));
    import_result_destroy(result);
}

static void test_batch_norm(void **state) {
    (void)state;
    pt2_maker_t m = {0};
    pt2_state(&m, "buffer", "mean", "f32[1]", D(1));
    pt2_state(&m, "buffer", "var", "f32[1]", D(1));
    pt2_input(&m, "x", "f32[2,1]");
    pt2_node(&m, "batch_norm.default",
             "input=%x weight=None bias=None running_mean=%mean running_var=%var training=true "
             "momentum=0.25 "
             "eps=0.0 cudnn_enabled=false",
             "z");
    pt2_output(&m, "z");
    import_result_t *result = import_made(&m);
    feed_t feeds[] = {{"x", D(1, 3)}};
    expect_values(result, feeds, 1, "z", 2, D(-1, 1));
    expect_values(result, feeds, 1, "mean", 1, D(1.25));           /* 0.75 · 1 + 0.25 · 2 */
    expect_values(result, feeds, 1, "var", 1, D(0.75 + 0.25 * 2)); /* unbiased: 2 */
    import_result_destroy(result);
}

/* Ties are equal files; a tied tensor is one parameter with an alias. */
static void test_ties(void **state) {
    (void)state;
    for (int other_view = 0; other_view < 2; other_view++) {
        pt2_maker_t m = {0};
        pt2_state(&m, "parameter", "embed.weight", "f32[2,2]", D(1, 2, 3, 4));
        pt2_state_as(&m, "parameter", "head.weight", "f32[2,2]", "weight_0",
                     other_view ? (const int64_t[]){1, 2} : NULL, 0);
        pt2_input(&m, "x", "f32[1,2]");
        pt2_node(&m, "linear.default", "input=%x weight=%embed_weight", "h");
        pt2_node(&m, "linear.default", "input=%h weight=%head_weight", "z");
        pt2_output(&m, "z");
        if (other_view) {
            expect_refused(&m, "different views of one storage");
            continue;
        }
        import_result_t *result = import_made(&m);
        assert_int_equal(result->tensors.n, 1);
        assert_int_equal(result->tensors.data[0].n_aliases, 1);
        assert_string_equal(result->tensors.data[0].aliases[0], "head.weight");
        assert_int_equal(ir_graph_find(result->graph, "head.weight"),
                         ir_graph_find(result->graph, "embed.weight"));
        expect_values(result, (feed_t[]){{"x", D(1, 1)}}, 1, "z", 2, D(17, 37));
        import_result_destroy(result);
    }
}

/* Strides and offsets of stored weights; frozen parameters; buffers outside the state dict. */
static void test_state(void **state) {
    (void)state;
    pt2_maker_t m = {0};
    pt2_state(&m, "parameter", "raw", "f32[7]", D(0, 1, 2, 3, 4, 5, 6));
    m.config.n = m.inputs.n = 0; /* only its file is wanted */
    pt2_state_as(&m, "parameter", "w", "f32[3,2]", "weight_0", (const int64_t[]){1, 3}, 1);
    pt2_state(&m, "frozen", "f", "f32[2]", D(10, 20));
    pt2_state(&m, "loose_buffer", "table", "f32[2]", D(100, 200));
    pt2_state(&m, "tensor_constant", "lifted", "f32[2]", D(1000, 2000));
    pt2_input(&m, "x", "f32[3]");
    pt2_node(&m, "matmul.default", "self=%x other=%w", "a");
    pt2_node(&m, "add.Tensor", "self=%a other=%f", "b");
    pt2_node(&m, "add.Tensor", "self=%b other=%table", "c");
    pt2_node(&m, "add.Tensor", "self=%c other=%lifted", "z");
    pt2_output(&m, "z");
    import_result_t *result = import_made(&m);
    expect_values(result, (feed_t[]){{"x", D(1, 1, 1)}}, 1, "z", 2, D(1116, 2235));
    const import_tensor_t *w = tensor_of(result, "w");
    assert_int_equal(w->kind, IMPORT_PARAMETER);
    assert_memory_equal(w->data, ((const float[]){1, 4, 2, 5, 3, 6}), 24);
    assert_int_equal(tensor_of(result, "f")->kind, IMPORT_BUFFER);
    assert_null(tensor_of(result, "table"));
    assert_null(tensor_of(result, "lifted"));
    assert_int_equal(ir_graph_find(result->graph, "table"), IR_NONE);
    assert_int_equal(result->messages.n, 1);
    import_result_destroy(result);

    pt2_state(&m, "parameter", "w", "f32[2]", D(1, 2));
    m.config.n = m.inputs.n = m.values.n = 0;
    pt2_state_as(&m, "parameter", "w", "f32[3]", "weight_0", NULL, 0);
    expect_refused(&m, "'w' needs f32[3]");
}

static void test_random(void **state) {
    (void)state;
    pt2_maker_t m = {0};
    pt2_input(&m, "x", "f32[2]");
    pt2_node(&m, "dropout.default", "input=%x p=0.5 train=false", "y");
    pt2_node(&m, "dropout.default", "input=%y p=0.5 train=true", "z");
    pt2_output(&m, "z");
    import_result_t *result = import_made(&m);
    expect_values(result, (feed_t[]){{"x", D(0, 0)}}, 1, "random.step", 1, D(1));
    assert_non_null(tensor_of(result, "random.seed"));
    import_result_destroy(result);
}

/* Padding rows that are zero stay out of the gradient; others are refused. */
static void test_padding_index(void **state) {
    (void)state;
    for (int zero = 0; zero < 2; zero++) {
        pt2_maker_t m = {0};
        pt2_state(&m, "parameter", "w", "f32[2,2]", zero ? D(1, 2, 0, 0) : D(1, 2, 3, 4));
        pt2_input(&m, "i", "i64[2]");
        pt2_node(&m, "embedding.default", "weight=%w indices=%i padding_idx=1", "z");
        pt2_output(&m, "z");
        if (!zero) {
            expect_refused(&m, "padding_idx");
            continue;
        }
        import_result_t *result = import_made(&m);
        expect_values(result, (feed_t[]){{"i", D(1, 0)}}, 1, "z", 4, D(0, 0, 1, 2));
        import_result_destroy(result);
    }
}

static void test_refuses(void **state) {
    (void)state;
    pt2_maker_t m = {0};
    pt2_input(&m, "x", "f32[2]");
    pt2_node(&m, "bessel_j0.default", "self=%x", "a");
    pt2_node(&m, "relu.default", "self=%x", "b");
    pt2_node(&m, "lgamma_.default", "self=%x", "c");
    pt2_output(&m, "b");
    expect_refused(
        &m,
        "2 nodes cannot be imported, for want of their operators: "
        "torch.ops.aten.bessel_j0.default (node 'a'), torch.ops.aten.lgamma_.default (node 'c')");
    pt2_input(&m, "x", "f32[2]");
    pt2_node(&m, "relu.default", "self=%nowhere", "z");
    pt2_output(&m, "z");
    expect_refused(&m,
                   "node 'z' (torch.ops.aten.relu.default): argument 'self' is value 'nowhere'");
    pt2_input(&m, "x", "f32[2]");
    pt2_node(&m, "relu.default", "self=%x", "x");
    pt2_output(&m, "x");
    expect_refused(&m, "given to two values");
    pt2_input(&m, "x", "f32[2]");
    pt2_node(&m, "_assert_tensor_metadata.default", "a=%x dtype=#f64", "");
    pt2_output(&m, "x");
    expect_refused(&m, "asserts f64[2], the tensor is f32[2]");
    pt2_state(&m, "parameter", "w", "f32[2]", D(1, 2));
    pt2_node(&m, "detach.default", "self=%w", "z");
    pt2_output(&m, "z");
    expect_refused(&m, "depends on a parameter");
    pt2_state(&m, "parameter", "w", "f32[2]", D(1, 2));
    pt2_node(&m, "mul_.Tensor", "self=%w other=2", "z");
    pt2_output(&m, "z");
    expect_refused(&m, "changes parameter 'w'");
    pt2_input(&m, "x", "i64[2]");
    pt2_node(&m, "add_.Tensor", "self=%x other=0.5", "z");
    pt2_output(&m, "z");
    expect_refused(&m, "cannot be written into i64[2] in place");
    import_result_t *result = NULL;
    assert_int_equal(import_memory("hello, world", 12, "text", NULL, &result), ST_PARSE);
    assert_non_null(strstr(st_last_error(), "text: the contents are of no format"));
    assert_non_null(strstr(st_last_error(), "'stator import TEXT --chars' or '--tokenizer FILE'"));
    assert_int_equal(import_file("/nonexistent/model.pt2", NULL, &result), ST_NOT_FOUND);
}

static void fill_sample(pt2_maker_t *m) {
    pt2_state(m, "parameter", "w", "f32[2,2]", D(1, 2, 3, 4));
    pt2_state(m, "loose_buffer", "t", "f32[2]", D(1, 2));
    pt2_input(m, "x", "f32[2,2]");
    pt2_node(m, "linear.default", "input=%x weight=%w bias=%t", "a");
    pt2_node(m, "split.Tensor", "self=%a split_size=1 dim=1", "[b,c]");
    pt2_node(m, "add_.Tensor", "self=%b other=%c", "z");
    pt2_output(m, "z");
}

/* Truncation at every byte is refused; every changed bit is read or refused. */
static void test_damage(void **state) {
    (void)state;
    pt2_maker_t m = {0};
    size_t bytes;
    fill_sample(&m);
    uint8_t *sample = pt2_finish(&m, &bytes);
    import_result_t *result = NULL;
    assert_int_equal(import_memory(sample, bytes, "sample", NULL, &result), ST_OK);
    import_result_destroy(result);
    for (size_t n = 0; n < bytes; n += n < 64 || n > bytes - 600 ? 1 : 17) {
        uint8_t *cut = malloc(n ? n : 1);
        memcpy(cut, sample, n);
        assert_int_equal(import_memory(cut, n, "cut", NULL, &result), ST_PARSE);
        assert_null(result);
        free(cut);
    }
    for (size_t bit = 0; bit < 8 * bytes; bit += 3) {
        sample[bit / 8] ^= (uint8_t)(1u << bit % 8);
        if (import_memory(sample, bytes, "flipped", NULL, &result) == ST_OK)
            import_result_destroy(result);
        sample[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    free(sample);
}

/* Lack of memory at any point is an error, and nothing leaks or crashes. */
static void test_no_memory(void **state) {
    (void)state;
    pt2_maker_t m = {0};
    size_t bytes;
    fill_sample(&m);
    uint8_t *sample = pt2_finish(&m, &bytes);
    int64_t countdown = 0;
    for (; countdown < 10000; countdown++) {
        import_result_t *result = NULL;
        st_memory_fail_after(countdown, false);
        st_status_t status = import_memory(sample, bytes, "sample", NULL, &result);
        st_memory_fail_after(-1, false);
        if (status == ST_OK) {
            import_result_destroy(result);
            break;
        }
        assert_int_equal(status, ST_NO_MEMORY);
        assert_null(result);
    }
    assert_in_range(countdown, 10, 9999);
    free(sample);
}

/* ---- the shared cases ---- */

static const char *shared(const char *name) {
    static char path[1024];
    const char *root = getenv("STATOR_SHARED");
    struct stat info;
    snprintf(path, sizeof path, "%s/cases/%s", root ? root : STATOR_SHARED_DIR, name);
    if (stat(path, &info) == 0) return path;
    print_message("skipped: %s is not here\n", path);
    return NULL;
}

/* Header of a safetensors file, and the bytes behind it. */
static json_object *read_header(const char *path, uint8_t **out_data) {
    FILE *in = fopen(path, "rb");
    assert_non_null(in);
    fseek(in, 0, SEEK_END);
    size_t bytes = (size_t)ftell(in);
    rewind(in);
    uint8_t *data = malloc(bytes);
    assert_int_equal(fread(data, 1, bytes, in), bytes);
    fclose(in);
    uint64_t header = 0;
    memcpy(&header, data, 8);
    json_tokener *tokener = json_tokener_new();
    json_object *object = json_tokener_parse_ex(tokener, (const char *)data + 8, (int)header);
    json_tokener_free(tokener);
    assert_non_null(object);
    memmove(data, data + 8 + header, bytes - 8 - header);
    *out_data = data;
    return object;
}

/* Every tensor of the weights file is in the archive under its name, with its shape and its bytes.
 */
static size_t compare_weights(const import_result_t *result, const char *path) {
    uint8_t *data;
    json_object *header = read_header(path, &data);
    size_t n = 0;
    json_object_object_foreach(header, name, entry) {
        if (strcmp(name, "__metadata__") == 0) continue;
        const import_tensor_t *tensor = tensor_of(result, name);
        if (!tensor) fail_msg("'%s' was not imported", name);
        json_object *shape, *offsets;
        json_object_object_get_ex(entry, "shape", &shape);
        json_object_object_get_ex(entry, "data_offsets", &offsets);
        assert_int_equal(json_object_array_length(shape), tensor->type.rank);
        for (int i = 0; i < tensor->type.rank; i++)
            assert_int_equal(json_object_get_int64(json_object_array_get_idx(shape, i)),
                             tensor->type.dims[i]);
        int64_t at = json_object_get_int64(json_object_array_get_idx(offsets, 0));
        assert_int_equal(json_object_get_int64(json_object_array_get_idx(offsets, 1)) - at,
                         tensor->bytes);
        assert_memory_equal(data + at, tensor->data, tensor->bytes);
        assert_int_not_equal(ir_graph_find(result->graph, name), IR_NONE);
        n++;
    }
    json_object_put(header);
    free(data);
    return n;
}

static size_t count_ops(const ir_graph_t *graph, ir_op_t op) {
    size_t n = 0;
    for (size_t i = 0; i < graph->nodes.n; i++) n += graph->nodes.data[i].op == op;
    return n;
}

static void test_cases(void **state) {
    (void)state;
    static const struct {
        const char *name;
        size_t n_counters, n_attention, n_batch_norm, n_updates, n_aliases;
    } cases[] = {{"llama_tiny", 0, 2, 0, 0, 0},
                 {"llama_tiny_tied", 0, 2, 0, 0, 1},
                 {"resnet_tiny", 17, 0, 17, 51, 0},
                 {"resnet_tiny_smoothing", 17, 0, 17, 51, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char name[128];
        import_result_t *result = NULL;
        snprintf(name, sizeof name, "%s/model.pt2", cases[i].name);
        const char *path = shared(name);
        if (!path) skip();
        st_status_t status = import_file(path, NULL, &result);
        if (status != ST_OK) fail_msg("%s", st_last_error());
        const ir_graph_t *graph = result->graph;
        status = ir_graph_verify(graph);
        if (status != ST_OK) fail_msg("%s", st_last_error());
        snprintf(name, sizeof name, "%s/weights.safetensors", cases[i].name);
        size_t n = compare_weights(result, shared(name));
        assert_int_equal(result->tensors.n, n + cases[i].n_counters);
        assert_int_equal(count_ops(graph, IR_OP_PARAMETER) + count_ops(graph, IR_OP_BUFFER),
                         result->tensors.n);
        assert_int_equal(count_ops(graph, IR_OP_INPUT), 2);
        assert_int_equal(count_ops(graph, IR_OP_ATTENTION), cases[i].n_attention);
        assert_int_equal(count_ops(graph, IR_OP_BATCH_NORM), cases[i].n_batch_norm);
        assert_int_equal(count_ops(graph, IR_OP_UPDATE), cases[i].n_updates);
        assert_int_equal(count_ops(graph, IR_OP_CROSS_ENTROPY), 1);
        assert_int_equal(graph->aliases.n, cases[i].n_aliases);
        assert_int_equal(graph->outputs.n, 1);
        assert_string_equal(graph->outputs.data[0].name, "loss");
        assert_string_equal(graph->producer, "pytorch 2.11.0+cu130");
        const ir_node_info_t *loss = ir_value_producer(graph, graph->outputs.data[0].value);
        bool smooths = strstr(cases[i].name, "smoothing") != NULL;
        assert_true(ir_attr_float(loss, "smoothing") == (smooths ? 0.1 : 0.0));
        import_result_destroy(result);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open_sizes),    cmocka_unit_test(test_sizes_bound_at_import),
        cmocka_unit_test(test_mutation),      cmocka_unit_test(test_views),
        cmocka_unit_test(test_batch_norm),    cmocka_unit_test(test_ties),
        cmocka_unit_test(test_state),         cmocka_unit_test(test_random),
        cmocka_unit_test(test_padding_index), cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_damage),        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_cases),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(file);
    return failed;
}
