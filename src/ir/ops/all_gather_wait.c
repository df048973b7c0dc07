/* all_gather_wait: waits until what all_gather_start began is whole. */
#include "ir/rules_nn.h"

const ir_op_def_t ir_op_all_gather_wait = {
    .op = IR_OP_ALL_GATHER_WAIT,
    .name = "all_gather_wait",
    .min_inputs = 1,
    .max_inputs = IR_VARIADIC,
    .n_outputs = IR_VARIADIC,
    .flags = IR_COLLECTIVE,
    .waits_for = IR_OP_ALL_GATHER_START,
    .shape = ir_shape_each,
    .no_gradient = "collective",
    .strategies = ir_strategies_collective,
};
