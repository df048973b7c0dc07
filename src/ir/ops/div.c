/* div: x / y; integers toward zero, and 0 where y is 0. dx = dz / y, dy = -dz z / y. */
#include "ir/build.h"
#include "ir/op.h"

static ir_value_t derive(ir_build_t *b, ir_value_t dz, const ir_value_t *operand, ir_value_t z,
                         uint32_t which) {
    ir_value_t dx = ir_b_binary(b, IR_OP_DIV, dz, operand[1]);
    return which == 0 ? dx : ir_b_unary(b, IR_OP_NEG, ir_b_binary(b, IR_OP_MUL, dx, z));
}

static st_status_t gradient(ir_graph_t *graph, ir_node_t node, const ir_value_t *dout,
                            const bool *want, ir_value_t *din) {
    return ir_gradient_binary(graph, node, dout, want, din, derive);
}

/* Linear in x, but an integer quotient is rounded: partial sums pass for floats only. */
static void strategies(const ir_op_ctx_t *ctx, ir_strategy_list_t *list) {
    ir_strategies_scaling(ctx, list, ir_dtype_is_float(ctx->in[0].dtype) ? 1u << 0 : 0);
}

const ir_op_def_t ir_op_div = {
    .op = IR_OP_DIV,
    .name = "div",
    .min_inputs = 2,
    .max_inputs = 2,
    .n_outputs = 1,
    .flags = IR_ELEMENTWISE,
    .shape = ir_shape_number_binary,
    .gradient = gradient,
    .strategies = strategies,
};
