/* buffer: state that training does not differentiate: running statistics, moments, counters. */
#include "ir/op.h"

static const ir_attr_spec_t attrs[] = {
    {"dtype", IR_ATTR_DTYPE, true, 0, NULL},
    {"shape", IR_ATTR_INTS, true, 0, NULL},
    {0},
};

const ir_op_def_t ir_op_buffer = {
    .op = IR_OP_BUFFER,
    .name = "buffer",
    .min_inputs = 0,
    .max_inputs = 0,
    .n_outputs = 1,
    .flags = IR_SOURCE | IR_STATE,
    .attrs = attrs,
    .shape = ir_shape_attributes,
    .no_gradient = "state",
    .strategies = ir_strategies_none,
    .localize = ir_localize_shape,
};
