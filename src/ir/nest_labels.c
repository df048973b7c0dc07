/* Labels that a body reads: its composites over classes check them, their definitions in primitives
 * cannot. Whoever runs the nest checks the list first.
 *
 * Labels are found at operands, also through reshapes, which keep their order. Labels that the body
 * itself computes make it no legal nest: they could not be checked before it runs. Linear. */
#include "ir/nest.h"
#include "ir/op.h"

static ir_value_t behind_views(const ir_graph_t *body, ir_value_t v) {
    const ir_node_info_t *node = ir_value_producer(body, v);
    while (ir_op_def(node->op)->flags & IR_VIEW) {
        v = node->inputs[0];
        node = ir_value_producer(body, v);
    }
    return v;
}

/* Which input of the body a value is; NEST_NONE: none. */
static uint32_t operand_of(const ir_graph_t *body, ir_value_t v) {
    uint32_t j = 0;
    const ir_node_t producer = body->values.data[v].producer;
    if (ir_node(body, producer)->op != IR_OP_INPUT) return NEST_NONE;
    for (ir_node_t i = 0; i < producer; i++) j += ir_node(body, i)->op == IR_OP_INPUT;
    return j;
}

static uint32_t label_input(const ir_node_info_t *node) {
    return ir_op_def(node->op)->labels;
}

st_status_t nest_find_labels(nest_t *nest, const ir_graph_t *body, const char **out_reason) {
    uint32_t n = 0;
    for (ir_node_t i = 0; i < body->nodes.n; i++) n += label_input(ir_node(body, i)) > 0;
    if (!n) return ST_OK;
    nest->labels = st_arena_array(&nest->arena, n, sizeof *nest->labels);
    if (!nest->labels) return st_no_memory(n * sizeof *nest->labels, "a nest's labels");
    for (ir_node_t i = 0; i < body->nodes.n; i++) {
        const ir_node_info_t *node = ir_node(body, i);
        const uint32_t j = label_input(node);
        if (!j) continue;
        const ir_type_t *logits = ir_value_type(body, node->inputs[j - 2]);
        const ir_value_t labels = behind_views(body, node->inputs[j - 1]);
        nest_labels_t *out = &nest->labels[nest->n_labels++];
        *out = (nest_labels_t){
            operand_of(body, labels), ir_value_type(body, labels)->dtype, logits->dims[0],
            logits->dims[1],          ir_attr_int(node, "ignore_index"),  i};
        if (out->operand == NEST_NONE) *out_reason = "labels are computed inside the nest";
    }
    return ST_OK;
}
