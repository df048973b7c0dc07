/* log_softmax: x - max - log of the sum of exp(x - max) along one axis. */
#include "ir/build.h"
#include "ir/op.h"
#include "ir/rules_nn.h"

static const ir_attr_spec_t attrs[] = {{"axis", IR_ATTR_INT, true, 0, NULL}, {0}};

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    int32_t axis;
    TRY(ir_need_float(ctx, 0, "x"));
    TRY(ir_need_axis(ctx, &axis));
    out[0] = ctx->in[0];
    return ST_OK;
}

static st_status_t gradient(ir_graph_t *graph, ir_node_t node, const ir_value_t *dout,
                            const bool *want, ir_value_t *din) {
    const ir_node_info_t info = *ir_node(graph, node);
    if (dout[0] == IR_NONE || !want[0]) return ST_OK;
    ir_build_t b = {.graph = graph};
    din[0] = ir_b_node(&b, IR_OP_LOG_SOFTMAX_GRAD, 2, (ir_value_t[]){dout[0], info.first_output}, 1,
                       (ir_arg_t[]){IR_ARG_INT("axis", ir_attr_int(&info, "axis"))});
    return b.status;
}

static void strategies(const ir_op_ctx_t *ctx, ir_strategy_list_t *list) {
    uint32_t dims = ir_first_bits(ctx->in[0].rank) & ~(1u << ir_ctx_int(ctx, "axis"));
    ir_strategies_dims(ctx, list, dims, 1u << 0, 1u << 0, 0);
}

const ir_op_def_t ir_op_log_softmax = {
    .op = IR_OP_LOG_SOFTMAX,
    .name = "log_softmax",
    .summary = "x → x - log of the sum of exp(x) along axis",
    .min_inputs = 1,
    .max_inputs = 1,
    .n_outputs = 1,
    .attrs = attrs,
    .shape = shape,
    .gradient = gradient,
    .strategies = strategies,
};
