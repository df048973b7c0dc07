/* logical_and: x and y. */
#include "ir/op.h"

const ir_op_def_t ir_op_logical_and = {
    .op = IR_OP_LOGICAL_AND,
    .name = "logical_and",
    .min_inputs = 2,
    .max_inputs = 2,
    .n_outputs = 1,
    .flags = IR_ELEMENTWISE,
    .shape = ir_shape_bool,
    .no_gradient = "zero",
    .strategies = ir_strategies_elementwise,
};
