/* reduce_min: the smallest element over axes; NaN wins. Elements that tie share the gradient
 * equally. */
#include "ir/op.h"

static const ir_attr_spec_t attrs[] = {
    {"axes", IR_ATTR_INTS, true, 0, NULL},
    {"keep", IR_ATTR_BOOL, false, 0, NULL},
    {0},
};

const ir_op_def_t ir_op_reduce_min = {
    .op = IR_OP_REDUCE_MIN,
    .name = "reduce_min",
    .min_inputs = 1,
    .max_inputs = 1,
    .n_outputs = 1,
    .flags = IR_REDUCTION,
    .attrs = attrs,
    .shape = ir_shape_reduce_nonempty,
    .gradient = ir_gradient_extreme,
    .strategies = ir_strategies_reduce,
};
