/* logical_not: not x. */
#include "ir/op.h"

const ir_op_def_t ir_op_logical_not = {
    .op = IR_OP_LOGICAL_NOT,
    .name = "logical_not",
    .min_inputs = 1,
    .max_inputs = 1,
    .n_outputs = 1,
    .flags = IR_ELEMENTWISE,
    .shape = ir_shape_bool,
    .no_gradient = "zero",
    .strategies = ir_strategies_elementwise,
};
