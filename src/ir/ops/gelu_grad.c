/* gelu_grad: dy times the derivative of gelu(x), exact or of the tanh approximation. Linear in dy.
 */
#include "ir/op.h"

static const ir_attr_spec_t attrs[] = {{"tanh", IR_ATTR_BOOL, false, 0, NULL}, {0}};

static void strategies(const ir_op_ctx_t *ctx, ir_strategy_list_t *list) {
    ir_strategies_scaling(ctx, list, 1u << 0);
}

const ir_op_def_t ir_op_gelu_grad = {
    .op = IR_OP_GELU_GRAD,
    .name = "gelu_grad",
    .min_inputs = 2,
    .max_inputs = 2,
    .n_outputs = 1,
    .flags = IR_ELEMENTWISE | IR_BACKWARD,
    .attrs = attrs,
    .shape = ir_shape_backward,
    .no_gradient = "backward op",
    .strategies = strategies,
};
