/* ne: x != y. */
#include "ir/op.h"

const ir_op_def_t ir_op_ne = {
    .op = IR_OP_NE,
    .name = "ne",
    .min_inputs = 2,
    .max_inputs = 2,
    .n_outputs = 1,
    .flags = IR_ELEMENTWISE,
    .shape = ir_shape_compare,
    .no_gradient = "zero",
    .strategies = ir_strategies_elementwise,
};
