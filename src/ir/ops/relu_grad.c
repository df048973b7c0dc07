/* relu_grad: dy where y > 0, else 0. Linear in dy. */
#include "ir/op.h"

static void strategies(const ir_op_ctx_t *ctx, ir_strategy_list_t *list) {
    ir_strategies_scaling(ctx, list, 1u << 0);
}

const ir_op_def_t ir_op_relu_grad = {
    .op = IR_OP_RELU_GRAD,
    .name = "relu_grad",
    .min_inputs = 2,
    .max_inputs = 2,
    .n_outputs = 1,
    .flags = IR_ELEMENTWISE | IR_BACKWARD,
    .shape = ir_shape_backward,
    .no_gradient = "backward op",
    .strategies = strategies,
};
