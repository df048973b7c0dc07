/* fused: several nodes as one, for one kernel. Its results are its body's outputs over its
 * operands. The fuse pass makes it from nodes that are there, so it needs neither gradient nor
 * partition rule: before either it is replaced by its body. */
#include "ir/body.h"

static const ir_attr_spec_t attrs[] = {
    {"body", IR_ATTR_GRAPH, true, 0, NULL},
    {0},
};

static uint32_t count_outputs(uint32_t n_inputs, const ir_attr_t *attrs_) {
    (void)n_inputs;
    return (uint32_t)attrs_[0].graph->outputs.n;
}

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    const ir_graph_t *body = ir_ctx_attr(ctx, "body")->graph;
    uint32_t n = ir_body_n_inputs(body), j = 0;
    TRY(ir_body_check(body));
    if (n != ctx->n_inputs)
        return FAIL(ST_INVALID, "%u operands, the body has %u inputs", ctx->n_inputs, n);
    for (ir_node_t i = ir_body_next_input(body, 0); j < n; j++, i = ir_body_next_input(body, i + 1))
        TRY(ir_body_check_operand(body, i, j, &ctx->in[j]));
    for (uint32_t k = 0; k < ctx->n_outputs; k++) out[k] = *ir_body_output_type(body, k);
    return ST_OK;
}

static st_status_t expand(ir_graph_t *graph, const ir_op_ctx_t *ctx, const ir_value_t *inputs,
                          ir_value_t *out) {
    return ir_body_inline(graph, ir_ctx_attr(ctx, "body")->graph, inputs, out);
}

const ir_op_def_t ir_op_fused = {
    .op = IR_OP_FUSED,
    .name = "fused",
    .min_inputs = 0,
    .max_inputs = IR_VARIADIC,
    .n_outputs = IR_VARIADIC,
    .count_outputs = count_outputs,
    .flags = IR_PURE,
    .attrs = attrs,
    .shape = shape,
    .strategies = ir_strategies_none,
    .expand = expand,
};
