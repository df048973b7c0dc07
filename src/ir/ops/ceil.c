/* ceil: smallest whole number ≥ x. */
#include "ir/op.h"

const ir_op_def_t ir_op_ceil = {
    .op = IR_OP_CEIL,
    .name = "ceil",
    .min_inputs = 1,
    .max_inputs = 1,
    .n_outputs = 1,
    .flags = IR_ELEMENTWISE,
    .shape = ir_shape_float_unary,
    .no_gradient = "zero",
    .strategies = ir_strategies_elementwise,
};
