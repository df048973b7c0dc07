/* select: condition ? x : y, all three broadcast. */
#include "ir/build.h"
#include "ir/op.h"

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    const ir_type_t *condition = &ctx->in[0], *x = &ctx->in[1], *y = &ctx->in[2];
    char tc[IR_TYPE_TEXT_BYTES], tx[IR_TYPE_TEXT_BYTES], ty[IR_TYPE_TEXT_BYTES];
    if (condition->dtype != IR_BOOL || x->dtype != y->dtype)
        return FAIL(ST_INVALID, "condition %s, values %s and %s: bool and one element type needed",
                    ir_type_text(condition, tc, sizeof tc), ir_type_text(x, tx, sizeof tx),
                    ir_type_text(y, ty, sizeof ty));
    ir_type_t values;
    TRY(ir_dims_broadcast(x, y, &values));
    return ir_dims_broadcast(&values, condition, out);
}

static st_status_t gradient(ir_graph_t *graph, ir_node_t node, const ir_value_t *dout,
                            const bool *want, ir_value_t *din) {
    const ir_node_info_t info = *ir_node(graph, node);
    ir_dtype_t dtype = ir_value_type(graph, info.inputs[1])->dtype;
    if (dout[0] == IR_NONE || !ir_dtype_is_float(dtype)) return ST_OK;
    ir_build_t b = {.graph = graph};
    for (uint32_t j = 1; j <= 2; j++) {
        if (!want[j]) continue;
        const ir_type_t type = *ir_value_type(graph, info.inputs[j]);
        ir_value_t zero = ir_b_scalar(&b, dtype, 0);
        ir_value_t chosen =
            ir_b_select(&b, info.inputs[0], j == 1 ? dout[0] : zero, j == 1 ? zero : dout[0]);
        din[j] = ir_b_sum_to(&b, chosen, &type);
    }
    return b.status;
}

const ir_op_def_t ir_op_select = {
    .op = IR_OP_SELECT,
    .name = "select",
    .min_inputs = 3,
    .max_inputs = 3,
    .n_outputs = 1,
    .flags = IR_ELEMENTWISE,
    .shape = shape,
    .gradient = gradient,
    .strategies = ir_strategies_elementwise,
};
