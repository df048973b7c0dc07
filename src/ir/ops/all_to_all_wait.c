/* all_to_all_wait: waits until the parts that all_to_all_start began to turn are there. */
#include "ir/rules_nn.h"

const ir_op_def_t ir_op_all_to_all_wait = {
    .op = IR_OP_ALL_TO_ALL_WAIT,
    .name = "all_to_all_wait",
    .min_inputs = 1,
    .max_inputs = 1,
    .n_outputs = 1,
    .flags = IR_COLLECTIVE,
    .waits_for = IR_OP_ALL_TO_ALL_START,
    .shape = ir_shape_same,
    .no_gradient = "collective",
    .strategies = ir_strategies_collective,
};
