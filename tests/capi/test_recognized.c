/* What recognition finds in real exports: numbers of composites in the graph with gradients. That
 * their values stay is what test_cases.c and test_stories.c compare with PyTorch's. */
#include "stator/stator.h"

#include "support/scratch.h"

#define assert_done(expr)                                                        \
    do {                                                                         \
        if ((expr) != STATOR_OK) fail_msg("%s: %s", #expr, stator_last_error()); \
    } while (0)

typedef struct expected {
    const char *op; /* as the text form has it: with the parenthesis */
    int n;
} expected_t;

static int count(const char *text, const char *op) {
    char call[64];
    int n = 0;
    snprintf(call, sizeof call, "= %s(", op);
    for (const char *at = text; (at = strstr(at, call)) != NULL; at++) n++;
    return n;
}

/* NULL where the shared folder is absent. */
static char *captured_text(const char *file) {
    const char *path = shared_file(file);
    stator_options_t *options = NULL;
    stator_graph_t *graph = NULL, *step = NULL;
    stator_tensors_t *values = NULL;
    char *text = NULL;
    if (!path) return NULL;
    assert_done(stator_options_create(&options));
    if (strstr(file, "dynamo")) assert_done(stator_options_set(options, "constant", "*inv_freq"));
    assert_done(stator_graph_import(path, options, &graph, &values));
    assert_done(stator_graph_add_gradients(graph, options, &step));
    assert_done(stator_graph_print(step, &text));
    stator_tensors_destroy(values);
    stator_graph_destroy(step);
    stator_graph_destroy(graph);
    stator_options_destroy(options);
    return text;
}

static void check(const char *file, size_t n, const expected_t *expected) {
    char *text = captured_text(file);
    if (!text) skip();
    for (size_t i = 0; i < n; i++) {
        int given = count(text, expected[i].op);
        if (given != expected[i].n)
            fail_msg("%s: %d of %s, expected %d in\n%s", file, given, expected[i].op, expected[i].n,
                     text);
    }
    stator_free(text);
}

/* Two layers: two attentions, two norms each and one at the end, two rotations each and their
 * gradients, one activation each; nothing of the chains is left. */
static const expected_t llama[] = {
    {"attention", 2}, {"attention_grad", 2}, {"rms_norm", 5},    {"rms_norm_grad", 5},
    {"rope", 8},      {"silu", 2},           {"silu_grad", 2},   {"softmax", 0},
    {"rsqrt", 0},     {"sqrt", 0},           {"sigmoid", 0},     {"square", 0},
    {"cumsum", 0},    {"gather_nd", 0},      {"logical_and", 0}, {"ne", 0},
};

static void llama_exported_by_torch(void **state) {
    (void)state;
    check("cases/llama_tiny/model.pt2", sizeof llama / sizeof llama[0], llama);
    check("cases/llama_tiny_tied/model.pt2", sizeof llama / sizeof llama[0], llama);
}
static void llama_exported_to_onnx(void **state) {
    (void)state;
    check("cases/llama_tiny/model.dynamo.onnx", sizeof llama / sizeof llama[0], llama);
    check("cases/llama_tiny_tied/model.dynamo.onnx", sizeof llama / sizeof llama[0], llama);
}

/* Keys and values come as the two heads that the four queries' heads share. */
static void grouped_heads_and_causal_masks(void **state) {
    (void)state;
    static const char *const files[] = {"cases/llama_tiny/model.pt2",
                                        "cases/llama_tiny/model.dynamo.onnx"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char *text = captured_text(files[i]);
        if (!text) skip();
        const char *at = strstr(text, "= attention(");
        assert_non_null(at);
        assert_non_null(strstr(at, "{causal=true, scale=0.25}"));
        assert_null(strstr(text, "f32[4,2,2,32,16]")); /* heads expanded */
        stator_free(text);
    }
}

static void networks_without_any(void **state) {
    (void)state;
    static const expected_t resnet[] = {{"attention", 0}, {"rms_norm", 0}, {"layer_norm", 0},
                                        {"rope", 0},      {"silu", 0},     {"gelu", 0}};
    check("cases/resnet_tiny/model.pt2", sizeof resnet / sizeof resnet[0], resnet);
    check("cases/resnet_tiny/model.torchscript.onnx", sizeof resnet / sizeof resnet[0], resnet);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama_exported_by_torch),
        cmocka_unit_test(llama_exported_to_onnx),
        cmocka_unit_test(grouped_heads_and_causal_masks),
        cmocka_unit_test(networks_without_any),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
