/* pow: x ^ y. dx = dz y x^(y-1), 0 where y = 0; dy = dz z ln x, 0 where x = 0 and y >= 0: elsewhere
 * the product would be 0 times infinity. */
#include "ir/build.h"
#include "ir/op.h"

static ir_value_t derive(ir_build_t *b, ir_value_t dz, const ir_value_t *operand, ir_value_t z,
                         uint32_t which) {
    ir_value_t x = operand[0], y = operand[1];
    ir_dtype_t dtype = ir_b_type(b, z)->dtype;
    ir_value_t zero = ir_b_scalar(b, dtype, 0);
    if (which == 0) {
        ir_value_t power = ir_b_binary(b, IR_OP_POW, x, ir_b_add_scalar(b, y, -1));
        ir_value_t slope = ir_b_binary(b, IR_OP_MUL, y, power);
        ir_value_t flat = ir_b_binary(b, IR_OP_EQ, y, zero);
        return ir_b_select(b, flat, zero, ir_b_binary(b, IR_OP_MUL, dz, slope));
    }
    ir_value_t slope = ir_b_binary(b, IR_OP_MUL, z, ir_b_unary(b, IR_OP_LOG, x));
    ir_value_t x_zero = ir_b_binary(b, IR_OP_EQ, x, zero);
    ir_value_t flat = ir_b_binary(b, IR_OP_LOGICAL_AND, x_zero, ir_b_binary(b, IR_OP_GE, y, zero));
    return ir_b_select(b, flat, zero, ir_b_binary(b, IR_OP_MUL, dz, slope));
}

static st_status_t gradient(ir_graph_t *graph, ir_node_t node, const ir_value_t *dout,
                            const bool *want, ir_value_t *din) {
    return ir_gradient_binary(graph, node, dout, want, din, derive);
}

const ir_op_def_t ir_op_pow = {
    .op = IR_OP_POW,
    .name = "pow",
    .min_inputs = 2,
    .max_inputs = 2,
    .n_outputs = 1,
    .flags = IR_ELEMENTWISE,
    .shape = ir_shape_number_binary,
    .gradient = gradient,
    .strategies = ir_strategies_elementwise,
};
