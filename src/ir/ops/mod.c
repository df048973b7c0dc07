/* mod: x - y floor(x / y): the remainder has the sign of y. dx = dz, dy = -dz floor(x / y). */
#include "ir/build.h"
#include "ir/op.h"

static ir_value_t derive(ir_build_t *b, ir_value_t dz, const ir_value_t *operand, ir_value_t z,
                         uint32_t which) {
    (void)z;
    if (which == 0) return dz;
    ir_value_t quotient = ir_b_binary(b, IR_OP_DIV, operand[0], operand[1]);
    ir_value_t slope = ir_b_unary(b, IR_OP_NEG, ir_b_unary(b, IR_OP_FLOOR, quotient));
    return ir_b_binary(b, IR_OP_MUL, dz, slope);
}

static st_status_t gradient(ir_graph_t *graph, ir_node_t node, const ir_value_t *dout,
                            const bool *want, ir_value_t *din) {
    return ir_gradient_binary(graph, node, dout, want, din, derive);
}

const ir_op_def_t ir_op_mod = {
    .op = IR_OP_MOD,
    .name = "mod",
    .min_inputs = 2,
    .max_inputs = 2,
    .n_outputs = 1,
    .flags = IR_ELEMENTWISE,
    .shape = ir_shape_number_binary,
    .gradient = gradient,
    .strategies = ir_strategies_elementwise,
};
