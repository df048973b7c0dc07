/* receive_wait: waits until what receive_start takes is there. */
#include "ir/rules_nn.h"

const ir_op_def_t ir_op_receive_wait = {
    .op = IR_OP_RECEIVE_WAIT,
    .name = "receive_wait",
    .min_inputs = 1,
    .max_inputs = 1,
    .n_outputs = 1,
    .flags = IR_COLLECTIVE,
    .waits_for = IR_OP_RECEIVE_START,
    .shape = ir_shape_same,
    .no_gradient = "collective",
    .strategies = ir_strategies_none,
};
