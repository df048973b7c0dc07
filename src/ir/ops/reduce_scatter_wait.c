/* reduce_scatter_wait: waits until the part that reduce_scatter_start began is there. */
#include "ir/rules_nn.h"

const ir_op_def_t ir_op_reduce_scatter_wait = {
    .op = IR_OP_REDUCE_SCATTER_WAIT,
    .name = "reduce_scatter_wait",
    .min_inputs = 1,
    .max_inputs = IR_VARIADIC,
    .n_outputs = IR_VARIADIC,
    .flags = IR_COLLECTIVE,
    .waits_for = IR_OP_REDUCE_SCATTER_START,
    .shape = ir_shape_each,
    .no_gradient = "collective",
    .strategies = ir_strategies_collective,
};
