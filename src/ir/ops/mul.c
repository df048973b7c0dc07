/* mul: x * y. Linear in either factor: partial sums pass where the other is replicated. */
#include "ir/build.h"
#include "ir/op.h"

static ir_value_t derive(ir_build_t *b, ir_value_t dz, const ir_value_t *operand, ir_value_t z,
                         uint32_t which) {
    (void)z;
    return ir_b_binary(b, IR_OP_MUL, dz, operand[1 - which]);
}

static st_status_t gradient(ir_graph_t *graph, ir_node_t node, const ir_value_t *dout,
                            const bool *want, ir_value_t *din) {
    return ir_gradient_binary(graph, node, dout, want, din, derive);
}

static void strategies(const ir_op_ctx_t *ctx, ir_strategy_list_t *list) {
    ir_strategies_scaling(ctx, list, 1u << 0 | 1u << 1);
}

const ir_op_def_t ir_op_mul = {
    .op = IR_OP_MUL,
    .name = "mul",
    .min_inputs = 2,
    .max_inputs = 2,
    .n_outputs = 1,
    .flags = IR_ELEMENTWISE,
    .shape = ir_shape_number_binary,
    .gradient = gradient,
    .strategies = strategies,
};
