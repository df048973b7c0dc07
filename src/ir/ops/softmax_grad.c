/* softmax_grad: (dy - sum of dy * y along axis) * y. */
#include "ir/define.h"
#include "ir/op.h"
#include "ir/rules_nn.h"

static const ir_attr_spec_t attrs[] = {{"axis", IR_ATTR_INT, true, 0, NULL}, {0}};

const ir_op_def_t ir_op_softmax_grad = {
    .op = IR_OP_SOFTMAX_GRAD,
    .name = "softmax_grad",
    .min_inputs = 2,
    .max_inputs = 2,
    .n_outputs = 1,
    .flags = IR_BACKWARD,
    .attrs = attrs,
    .shape = ir_shape_softmax_grad,
    .no_gradient = "backward op",
    .strategies = ir_strategies_softmax_grad,
    .define = ir_define_softmax_grad,
};
