/* add: elementwise sum. */
#include "ir/build.h"
#include "ir/op.h"

static st_status_t gradient(ir_graph_t *graph, ir_node_t node, const ir_value_t *dout,
                            const bool *want, ir_value_t *din) {
    const ir_node_info_t info = *ir_node(graph, node);
    ir_build_t b = {.graph = graph};
    for (uint32_t j = 0; j < 2; j++) {
        ir_type_t type = *ir_value_type(graph, info.inputs[j]);
        if (want[j]) din[j] = ir_b_sum_to(&b, dout[0], &type);
    }
    return b.status;
}

const ir_op_def_t ir_op_add = {
    .op = IR_OP_ADD,
    .name = "add",
    .summary = "x + y, broadcast",
    .min_inputs = 2,
    .max_inputs = 2,
    .n_outputs = 1,
    .flags = IR_ELEMENTWISE | IR_LINEAR,
    .shape = ir_shape_binary,
    .gradient = gradient,
    .strategies = ir_strategies_elementwise,
};
