/* The interpreter (interpret.h). */
#include "interpret.h"

#include <math.h>
#include <string.h>

#include "base/hash.h"
#include "ir/convert.h"
#include "ir/expand.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "kernels/table.h"
#include "support/scratch.h"

static st_status_t evaluate(void *context, const ir_op_ctx_t *ctx, const ir_type_t *out_types,
                            const void *const *in, void *const *out) {
    (void)context;
    if (!kern_list("cpu", ctx->op)[0]) return FAIL(ST_UNSUPPORTED, "no kernel");
    kern_problem_t problem = {ctx->op,   ctx->n_inputs, ctx->n_outputs, ctx->in,
                              out_types, ctx->attrs,    ctx->name};
    return kern_run_once(&problem, in, out);
}

const ir_target_t interpret_target = {.name = "test", .evaluate = evaluate};

ir_graph_t *interpret_parse(const char *text) {
    ir_graph_t *graph;
    if (ir_graph_parse(text, strlen(text), &graph) != ST_OK)
        fail_msg("%s in\n%s", st_last_error(), text);
    return graph;
}

static void fill(const ir_type_t *type, const char *name, uint64_t seed, void *data) {
    for (int64_t i = 0; i < ir_type_elements(type); i++) {
        uint64_t word = st_hash64(&i, sizeof i, st_hash64(name, strlen(name), seed));
        double number = (double)(word >> 11) * 0x1p-53;
        if (ir_dtype_is_float(type->dtype))
            ir_element_store(type->dtype, data, (size_t)i, 2 * number - 1);
        else
            ir_element_store_i64(type->dtype, data, (size_t)i,
                                 (int64_t)(word >> 13) % (type->dtype == IR_BOOL ? 2 : 3));
    }
}

static void run_node(const ir_graph_t *graph, const ir_node_info_t *node, uint64_t seed,
                     void **values) {
    ir_type_t in[64], out[64];
    const void *data[64];
    void *results[64];
    assert_true(node->n_inputs <= 64 && node->n_outputs <= 64);
    for (uint32_t j = 0; j < node->n_inputs; j++) {
        in[j] = *ir_value_type(graph, node->inputs[j]);
        data[j] = values[node->inputs[j]];
    }
    for (uint32_t k = 0; k < node->n_outputs; k++) {
        out[k] = *ir_value_type(graph, node->first_output + k);
        results[k] = values[node->first_output + k] = st_calloc(1, ir_type_bytes(&out[k]) + 1);
    }
    if (node->op == IR_OP_INPUT || (ir_op_def(node->op)->flags & IR_STATE)) {
        fill(&out[0], node->name, seed, results[0]);
        return;
    }
    if (node->n_outputs == 0) return;
    ir_op_ctx_t ctx = {node->op, node->n_inputs, node->n_outputs, in, node->attrs, node->name};
    if (evaluate(NULL, &ctx, out, data, results) != ST_OK)
        fail_msg("%s: %s", ir_op_def(node->op)->name, st_last_error());
}

double *interpret(const ir_graph_t *given, uint64_t seed, size_t *out_n) {
    ir_graph_t *graph;
    assert_ok(ir_expand_composites(given, ir_expand_any, &graph));
    assert_ok(ir_graph_verify(graph));
    void **values = st_calloc(graph->values.n, sizeof *values);
    for (ir_node_t n = 0; n < graph->nodes.n; n++) run_node(graph, ir_node(graph, n), seed, values);
    *out_n = 0;
    for (size_t o = 0; o < graph->outputs.n; o++)
        *out_n += (size_t)ir_type_elements(ir_value_type(graph, graph->outputs.data[o].value));
    double *out = st_malloc((*out_n + 1) * sizeof *out);
    size_t at = 0;
    for (size_t o = 0; o < graph->outputs.n; o++) {
        ir_value_t value = graph->outputs.data[o].value;
        const ir_type_t *type = ir_value_type(graph, value);
        for (int64_t i = 0; i < ir_type_elements(type); i++)
            out[at++] = ir_element_load(type->dtype, values[value], (size_t)i);
    }
    for (size_t v = 0; v < graph->values.n; v++) st_free(values[v]);
    st_free(values);
    ir_graph_destroy(graph);
    return out;
}

double interpret_difference(const ir_graph_t *a, const ir_graph_t *b, uint64_t seed) {
    size_t n, m;
    double *x = interpret(a, seed, &n), *y = interpret(b, seed, &m), largest = 1e-300, worst = 0;
    assert_int_equal(n, m);
    for (size_t i = 0; i < n; i++) {
        if (isfinite(x[i]) && isfinite(y[i])) {
            if (fabs(x[i]) > largest) largest = fabs(x[i]);
            if (fabs(x[i] - y[i]) > worst) worst = fabs(x[i] - y[i]);
        } else if (!(isnan(x[i]) && isnan(y[i])) && x[i] != y[i]) {
            worst = INFINITY;
        }
    }
    st_free(x);
    st_free(y);
    return worst / largest;
}

int count_ops(const ir_graph_t *graph, const char *op) {
    int n = 0;
    for (ir_node_t i = 0; i < graph->nodes.n; i++)
        n += strcmp(ir_op_def(ir_node(graph, i)->op)->name, op) == 0;
    return n;
}
