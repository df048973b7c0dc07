/* sub: x - y. */
#include "ir/build.h"
#include "ir/op.h"

static ir_value_t derive(ir_build_t *b, ir_value_t dz, const ir_value_t *operand, ir_value_t z,
                         uint32_t which) {
    (void)operand;
    (void)z;
    return which == 0 ? dz : ir_b_unary(b, IR_OP_NEG, dz);
}

static st_status_t gradient(ir_graph_t *graph, ir_node_t node, const ir_value_t *dout,
                            const bool *want, ir_value_t *din) {
    return ir_gradient_binary(graph, node, dout, want, din, derive);
}

const ir_op_def_t ir_op_sub = {
    .op = IR_OP_SUB,
    .name = "sub",
    .min_inputs = 2,
    .max_inputs = 2,
    .n_outputs = 1,
    .flags = IR_ELEMENTWISE | IR_LINEAR,
    .shape = ir_shape_number_binary,
    .gradient = gradient,
    .strategies = ir_strategies_elementwise,
};
