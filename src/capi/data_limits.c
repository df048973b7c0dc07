/* What the model's source graph says of its data: how many tokens its embedding knows, and which
 * labels its loss takes. So data that does not fit is refused when it is opened, by the file's
 * name, and not in the middle of a run.
 *
 * A value follows an input if it comes from it through ops that keep the numbers; in a loop's body,
 * if the operand that the body sees does. */
#include <string.h>

#include "base/memory.h"
#include "capi/capi.h"
#include "ir/body.h"

static bool keeps_numbers(ir_op_t op) {
    static const ir_op_t ops[] = {IR_OP_RESHAPE, IR_OP_TRANSPOSE, IR_OP_CAST, IR_OP_SLICE,
                                  IR_OP_BROADCAST};
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++)
        if (ops[i] == op) return true;
    return false;
}

static bool follows(const ir_graph_t *graph, ir_value_t value, const char *input) {
    const ir_node_info_t *node = ir_value_producer(graph, value);
    while (keeps_numbers(node->op)) node = ir_value_producer(graph, node->inputs[0]);
    return node->op == IR_OP_INPUT && strcmp(node->name, input) == 0;
}

/* Calls `visit` with each body that sees the input, and the body's own name of it. */
static void visit_bodies(const ir_graph_t *graph, const ir_node_info_t *node, const char *input,
                         void (*visit)(const ir_graph_t *body, const char *input, void *least),
                         void *least) {
    ir_region_info_t info = ir_region_info(node);
    for (uint32_t b = 0; b < info.n_bodies; b++) {
        const ir_graph_t *body = info.bodies[b];
        uint32_t j = info.first;
        for (ir_node_t i = ir_body_next_input(body, 0); i < body->nodes.n;
             i = ir_body_next_input(body, i + 1), j++)
            if (follows(graph, node->inputs[j], input)) visit(body, ir_node(body, i)->name, least);
    }
}

static void find_vocabulary(const ir_graph_t *graph, const char *input, void *context) {
    int64_t *least = context;
    for (uint32_t i = 0; i < graph->nodes.n; i++) {
        const ir_node_info_t *node = ir_node(graph, i);
        visit_bodies(graph, node, input, find_vocabulary, least);
        if (node->op != IR_OP_GATHER || !follows(graph, node->inputs[1], input)) continue;
        const ir_type_t *table = ir_value_type(graph, node->inputs[0]);
        int64_t extent = table->dims[ir_attr_int(node, "axis")];
        if (extent < *least) *least = extent;
    }
}

int64_t capi_vocabulary(const ir_graph_t *graph, const char *input) {
    int64_t least = INT64_MAX;
    find_vocabulary(graph, input, &least);
    return least;
}

static void find_classes(const ir_graph_t *graph, const char *input, void *context) {
    capi_classes_t *least = context;
    for (uint32_t i = 0; i < graph->nodes.n; i++) {
        const ir_node_info_t *node = ir_node(graph, i);
        visit_bodies(graph, node, input, find_classes, least);
        const uint32_t labels = ir_op_def(node->op)->labels; /* one past the input */
        if (!labels || !follows(graph, node->inputs[labels - 1], input)) continue;
        const ir_type_t *logits = ir_value_type(graph, node->inputs[labels - 2]);
        int64_t n = logits->dims[logits->rank - 1];
        if (n < least->n) *least = (capi_classes_t){n, ir_attr_int(node, "ignore_index")};
    }
}

capi_classes_t capi_classes(const ir_graph_t *graph, const char *input) {
    capi_classes_t least = {.n = INT64_MAX};
    find_classes(graph, input, &least);
    return least;
}
