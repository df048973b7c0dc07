/* tanh: hyperbolic tangent; dx = dy (1 - y^2). */
#include "ir/build.h"
#include "ir/op.h"

static ir_value_t derive(ir_build_t *b, ir_value_t dy, ir_value_t x, ir_value_t y) {
    (void)x;
    ir_value_t minus_square = ir_b_unary(b, IR_OP_NEG, ir_b_unary(b, IR_OP_SQUARE, y));
    return ir_b_binary(b, IR_OP_MUL, dy, ir_b_add_scalar(b, minus_square, 1));
}

static st_status_t gradient(ir_graph_t *graph, ir_node_t node, const ir_value_t *dout,
                            const bool *want, ir_value_t *din) {
    return ir_gradient_unary(graph, node, dout, want, din, derive);
}

const ir_op_def_t ir_op_tanh = {
    .op = IR_OP_TANH,
    .name = "tanh",
    .min_inputs = 1,
    .max_inputs = 1,
    .n_outputs = 1,
    .flags = IR_ELEMENTWISE,
    .shape = ir_shape_float_unary,
    .gradient = gradient,
    .strategies = ir_strategies_elementwise,
};
