/* ONNX's own node tests (Debian's libonnx-testdata): import each model, run it through the kernels,
 * compare with the expected outputs. Skipped where the package is not installed.
 *
 * What cannot pass is listed below with its reason. A failure that is not listed fails the test; so
 * does a listed model that passes, and a pattern that matches nothing. Tolerance: 64 units of
 * rounding of the element type, relative to 1 + |expected|; the longest sums have a few hundred
 * terms. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/words.h"
#include "import/onnx_run.h"

#define TEST_DATA "/usr/share/libonnx-testdata/data"
enum { MAX_TENSORS = 12, TOLERANCE = 64 };

typedef struct skip_row {
    const char *pattern, *reason; /* reason: a part of the message, so that it stays true */
} skip_row_t;
/* Ops and types that are not there yet, forms from before opset 9, and masks of another generator.
 */
static const skip_row_t skips[] = {
    {"node/test_acos*", "not supported at opset"},
    {"node/test_asin*", "not supported at opset"},
    {"node/test_atan*", "not supported at opset"},
    {"node/test_cosh*", "not supported at opset"},
    {"node/test_sinh*", "not supported at opset"},
    {"node/test_tan", "not supported at opset"},
    {"node/test_tan_example", "not supported at opset"},
    {"node/test_det_*", "not supported at opset"},
    {"node/test_dft*", "not supported at opset"},
    {"node/test_*stft*", "not supported at opset"},
    {"node/test_*window", "not supported at opset"},
    {"node/test_*window_symmetric", "not supported at opset"},
    {"node/test_melweightmatrix", "not supported at opset"},
    {"node/test_bernoulli*", "not supported at opset"},
    {"node/test_bitshift*", "not supported at opset"},
    {"node/test_compress*", "not supported at opset"},
    {"node/test_eyelike*", "not supported at opset"},
    {"node/test_onehot*", "not supported at opset"},
    {"node/test_hardmax*", "not supported at opset"},
    {"node/test_nonzero*", "not supported at opset"},
    {"node/test_top_k*", "not supported at opset"},
    {"node/test_unique*", "not supported at opset"},
    {"node/test_*convinteger*", "not supported at opset"},
    {"node/test_matmulinteger", "not supported at opset"},
    {"node/test_*quantizelinear*", "not supported at opset"},
    {"node/test_qlinear*", "not supported at opset"},
    {"node/test_gru*", "not supported at opset"},
    {"node/test_lstm_with_peepholes", "peepholes"},
    {"node/test_*rnn*", "not supported at opset"},
    {"node/test_reversesequence*", "not supported at opset"},
    {"node/test_gridsample*", "not supported at opset"},
    {"node/test_resize*", "not supported at opset"},
    {"node/test_upsample*", "not supported at opset"},
    {"node/test_roialign*", "not supported at opset"},
    {"node/test_nonmaxsuppression*", "not supported at opset"},
    {"node/test_maxunpool*", "not supported at opset"},
    {"node/test_lrn*", "not supported at opset"},
    {"node/test_mvn", "not supported at opset"},
    {"*/test_shrink*", "not supported at opset"},
    {"node/test_if_opt", "not supported at opset"},
    {"node/test_if_seq", "not supported at opset"},
    {"node/test_loop1?_seq*", "not supported at opset"},
    {"node/test_loop11", "('slice_start') is computed from data"},
    {"node/test_scan_sum", "3 and 2 belong to the node"}, /* with the batch of before opset 9 */
    {"node/test_range_float*_expanded", "is computed from data"}, /* floats are parameters */
    {"node/test_optional*", "not supported at opset"},
    {"node/test_sequence*", "not supported at opset"},
    {"simple/test_sequence*", "not supported at opset"},
    {"*/test_strnorm*", "not supported at opset"},
    {"node/test_tfidf*", "not supported at opset"},
    {"simple/test_gradient_of*", "not supported at opset"},
    {"node/test_ada*", "names no opset"},
    {"node/test_momentum*", "names no opset"},
    {"node/test_nesterov*", "names no opset"},
    {"node/test_castlike_*BFLOAT16*",
     "has no place"}, /* its data has another shape than the model */
    {"node/test_identity_opt", "is no tensor"},
    {"node/test_identity_sequence", "is no tensor"},
    {"node/test_*_STRING*", "STRING"},
    {"node/test_*int16", "INT16"},
    {"node/test_*uint32", "UINT32"},
    {"node/test_*uint64", "UINT64"},
    {"node/test_einsum_batch_diagonal", "no diagonals"},
    {"node/test_maxpool_with_argmax_2d_precomputed_strides", "storage_order"},
    {"node/test_scatternd_multiply", "'reduction' is 'mul'"},
    {"node/test_training_dropout", "output 0: element"},
    {"node/test_training_dropout_default", "output 0: element"},
    {"node/test_training_dropout_default_mask", "output 1 ('z') is not supported"},
    {"node/test_training_dropout_mask", "output 1 ('z') is not supported"},
    {"pytorch-operator/test_operator_add*", "attribute 'broadcast'"},
    {"pytorch-operator/test_operator_mm", "attribute 'broadcast'"},
    {"pytorch-converted/test_BatchNorm*", "attribute 'is_test'"},
    {"pytorch-converted/test_Linear", "attribute 'broadcast'"},
    {"pytorch-converted/test_Softsign", "attribute 'broadcast'"},
    {"pytorch-converted/test_PReLU_?d_multiparam", "do not broadcast"},
};

/* Where more rounding is right: window functions that write pi with six digits. */
static const struct {
    const char *pattern;
    double scale;
} loose[] = {
    {"test_*window*_expanded", 1024},
};

static double tolerance_of(const char *name) {
    for (size_t i = 0; i < sizeof loose / sizeof loose[0]; i++)
        if (st_glob(loose[i].pattern, name)) return loose[i].scale;
    return TOLERANCE;
}

typedef struct model {
    char folder[512];
    const char *name;
    Onnx__ModelProto *proto;
    Onnx__TensorProto *in[MAX_TENSORS], *out[MAX_TENSORS];
    size_t n_in, n_out;
} model_t;

static size_t load_tensors(const model_t *m, const char *what, Onnx__TensorProto **out) {
    size_t n = 0;
    for (; n < MAX_TENSORS; n++) {
        char path[600];
        size_t bytes;
        snprintf(path, sizeof path, "%s/test_data_set_0/%s_%zu.pb", m->folder, what, n);
        void *data = onnx_run_file(path, &bytes);
        if (!data) break;
        out[n] = onnx__tensor_proto__unpack(NULL, bytes, data);
        free(data);
        if (!out[n]) break;
    }
    return n;
}

static void open_model(model_t *m, const char *group, const char *name) {
    char path[600];
    size_t bytes;
    *m = (model_t){.name = name};
    snprintf(m->folder, sizeof m->folder, TEST_DATA "/%s/%s", group, name);
    snprintf(path, sizeof path, "%s/model.onnx", m->folder);
    void *data = onnx_run_file(path, &bytes);
    if (!data) fail_msg("cannot read %s", path);
    m->proto = onnx__model_proto__unpack(NULL, bytes, data);
    free(data);
    if (!m->proto) fail_msg("cannot unpack %s", path);
    /* a node test names the opset of its op's newest definition: one from before the oldest that is
     * supported still holds there (the older PyTorch exports are listed where it does not) */
    for (size_t i = 0; i < m->proto->n_opset_import; i++)
        if (m->proto->opset_import[i]->version < 9) m->proto->opset_import[i]->version = 9;
    m->n_in = load_tensors(m, "input", m->in);
    m->n_out = load_tensors(m, "output", m->out);
}

static void close_model(model_t *m) {
    onnx__model_proto__free_unpacked(m->proto, NULL);
    for (size_t i = 0; i < m->n_in; i++) onnx__tensor_proto__free_unpacked(m->in[i], NULL);
    for (size_t i = 0; i < m->n_out; i++) onnx__tensor_proto__free_unpacked(m->out[i], NULL);
}

/* The model with the inputs from `first` on as initializers: shapes, axes and bounds must be known
 * when importing, and the node tests feed them. */
static void *bake(model_t *m, size_t first, size_t *out_bytes) {
    Onnx__GraphProto *graph = m->proto->graph;
    size_t n = graph->n_initializer, at = 0;
    Onnx__TensorProto **held = graph->initializer;
    char *names[MAX_TENSORS];
    graph->initializer = calloc(n + MAX_TENSORS, sizeof *graph->initializer);
    if (n) memcpy(graph->initializer, held, n * sizeof *held);
    for (size_t i = 0; i < m->n_in && at < graph->n_input; i++, at++) {
        names[i] = m->in[i]->name;
        if (i < first) continue;
        m->in[i]->name = graph->input[at]->name;
        graph->initializer[graph->n_initializer++] = m->in[i];
    }
    uint8_t *data = malloc(onnx__model_proto__get_packed_size(m->proto) + 1);
    *out_bytes = onnx__model_proto__pack(m->proto, data);
    for (size_t i = first; i < m->n_in && i < at; i++) m->in[i]->name = names[i];
    free(graph->initializer);
    graph->initializer = held;
    graph->n_initializer = n;
    return data;
}

/* The test data stores bfloat16 as 16-bit integers. */
static void as_bfloat16(Onnx__TensorProto *tensor, ir_dtype_t wanted) {
    if (wanted == IR_BF16 && tensor->data_type == ONNX__TENSOR_PROTO__DATA_TYPE__UINT16)
        tensor->data_type = ONNX__TENSOR_PROTO__DATA_TYPE__BFLOAT16;
}

/* Feeds the inputs below `first`, runs, compares. NULL if all is well, else what is not. */
static const char *run_and_compare(const model_t *m, size_t first, const import_result_t *result) {
    static char message[700];
    onnx_run_t run;
    st_status_t status = onnx_run_open(&run, result);
    message[0] = '\0';
    for (size_t i = 0; i < m->n_in && i < first && i < m->proto->graph->n_input && status == ST_OK;
         i++) {
        ir_type_t type;
        const ir_type_t *wanted = NULL;
        void *data = NULL, *at = onnx_run_at(&run, m->proto->graph->input[i]->name, &wanted);
        if (at) as_bfloat16(m->in[i], wanted->dtype);
        bool known = onnx_run_tensor(m->in[i], &type, &data);
        if (!at || !known || !ir_type_equal(&type, wanted))
            snprintf(message, sizeof message, "input %zu has no place in the graph", i);
        else
            memcpy(at, data, ir_type_bytes(&type));
        free(data);
    }
    if (status == ST_OK && !message[0]) status = onnx_run_nodes(&run);
    if (status != ST_OK) snprintf(message, sizeof message, "%.600s", st_last_error());
    for (size_t k = 0; k < m->n_out && !message[0]; k++) {
        ir_type_t type;
        void *expected;
        ir_value_t value = run.graph->outputs.data[k].value;
        const ir_type_t *given = ir_value_type(run.graph, value);
        char text[IR_TYPE_TEXT_BYTES], wanted[IR_TYPE_TEXT_BYTES], difference[256];
        as_bfloat16(m->out[k], given->dtype);
        if (!onnx_run_tensor(m->out[k], &type, &expected))
            snprintf(message, sizeof message, "output %zu has a type that Stator does not have", k);
        else if (!ir_type_equal(&type, given))
            snprintf(message, sizeof message, "output %zu is %s, expected %s", k,
                     ir_type_text(given, text, sizeof text),
                     ir_type_text(&type, wanted, sizeof wanted));
        else if (!onnx_run_equal(&type, run.data[value], expected, tolerance_of(m->name),
                                 difference, sizeof difference))
            snprintf(message, sizeof message, "output %zu: %s", k, difference);
        free(expected);
    }
    onnx_run_close(&run);
    return message[0] ? message : NULL;
}

/* As given; then with all inputs but the first known; then with all known. */
static const char *check_model(model_t *m) {
    static char message[700];
    size_t tries[3] = {m->n_in, 1, 0};
    for (int t = 0; t < 3; t++) {
        import_result_t *result;
        size_t bytes;
        if (t > 0 && m->n_in == 0) break;
        void *data = bake(m, tries[t], &bytes);
        st_status_t status = import_memory(data, bytes, m->name, NULL, &result);
        if (status == ST_OK) {
            const char *problem = run_and_compare(m, tries[t], result);
            import_result_destroy(result);
            free(data);
            return problem;
        }
        free(data);
        snprintf(message, sizeof message, "%.600s", st_last_error());
        if (!strstr(message, "is computed from data")) break;
    }
    return message;
}

static size_t find_skip(const char *group, const char *name) {
    char whole[300];
    size_t i = 0, n = sizeof skips / sizeof skips[0];
    snprintf(whole, sizeof whole, "%s/%s", group, name);
    while (i < n && !st_glob(skips[i].pattern, whole)) i++;
    return i;
}

static void test_node_models(void **state) {
    (void)state;
    static const char *const groups[] = {"node", "simple", "pytorch-operator", "pytorch-converted"};
    enum { N_SKIPS = sizeof skips / sizeof skips[0] };
    static size_t matched[N_SKIPS];
    size_t n_passed = 0, n_skipped = 0, n_bad = 0;
    if (access(TEST_DATA "/node", R_OK) != 0) {
        print_message("skipped: libonnx-testdata is not installed\n");
        skip();
    }
    for (size_t g = 0; g < sizeof groups / sizeof groups[0]; g++) {
        char path[256];
        snprintf(path, sizeof path, TEST_DATA "/%s", groups[g]);
        struct dirent **names;
        int n = scandir(path, &names, NULL, alphasort);
        for (int i = 0; i < n; i++) {
            const char *name = names[i]->d_name;
            if (strncmp(name, "test_", 5) == 0) {
                model_t m;
                open_model(&m, groups[g], name);
                const char *problem = check_model(&m);
                size_t row = find_skip(groups[g], name);
                bool listed = row < N_SKIPS;
                if (listed) matched[row]++;
                bool fine = problem ? listed && strstr(problem, skips[row].reason) : !listed;
                if (!fine)
                    print_error("%s/%s: %s%s%s\n", groups[g], name,
                                problem ? problem : "passes, but is listed",
                                listed ? "; listed because of: " : "",
                                listed ? skips[row].reason : "");
                n_bad += !fine;
                n_passed += !problem;
                n_skipped += problem && fine;
                close_model(&m);
            }
            free(names[i]);
        }
        free(names);
    }
    for (size_t i = 0; i < N_SKIPS; i++)
        if (!matched[i]) print_error("pattern '%s' matches no model\n", skips[i].pattern), n_bad++;
    print_message("%zu models agree, %zu are listed as not supported\n", n_passed, n_skipped);
    assert_int_equal(n_bad, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_node_models)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
