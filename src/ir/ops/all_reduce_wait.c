/* all_reduce_wait: waits until the sums that all_reduce_start began are there. */
#include "ir/rules_nn.h"

const ir_op_def_t ir_op_all_reduce_wait = {
    .op = IR_OP_ALL_REDUCE_WAIT,
    .name = "all_reduce_wait",
    .min_inputs = 1,
    .max_inputs = IR_VARIADIC,
    .n_outputs = IR_VARIADIC,
    .flags = IR_COLLECTIVE,
    .waits_for = IR_OP_ALL_REDUCE_START,
    .shape = ir_shape_numbers,
    .no_gradient = "collective",
    .strategies = ir_strategies_collective,
};
