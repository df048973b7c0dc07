/* sign: -1, 0 or 1. */
#include "ir/op.h"

const ir_op_def_t ir_op_sign = {
    .op = IR_OP_SIGN,
    .name = "sign",
    .min_inputs = 1,
    .max_inputs = 1,
    .n_outputs = 1,
    .flags = IR_ELEMENTWISE,
    .shape = ir_shape_number_unary,
    .no_gradient = "zero",
    .strategies = ir_strategies_elementwise,
};
