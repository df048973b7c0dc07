/* cond: one of two bodies, by a bool. Both take the operands after it and give the same results.
 *
 *   cond(p, x…) = p ? then(x…) : else(x…)
 *
 * Only the chosen one runs. The gradient is the cond of the bodies' gradients
 * (src/autodiff/region.c). */
#include "ir/body.h"

static const ir_attr_spec_t attrs[] = {
    {"then", IR_ATTR_GRAPH, true, 0, NULL},
    {"else", IR_ATTR_GRAPH, true, 0, NULL},
    {0},
};

static uint32_t count_outputs(uint32_t n_inputs, const ir_attr_t *attrs_) {
    (void)n_inputs;
    return (uint32_t)attrs_[0].graph->outputs.n;
}

static st_status_t check_branch(const ir_op_ctx_t *ctx, const ir_graph_t *body) {
    uint32_t n = ir_body_n_inputs(body);
    TRY(ir_body_check(body));
    if (n != ctx->n_inputs - 1)
        return FAIL(ST_INVALID, "%u operands beside the condition, the body has %u inputs",
                    ctx->n_inputs - 1, n);
    for (uint32_t j = 1, i = ir_body_next_input(body, 0); j < ctx->n_inputs;
         j++, i = ir_body_next_input(body, i + 1))
        TRY(ir_body_check_operand(body, i, j, &ctx->in[j]));
    return ST_OK;
}

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    const ir_type_t flag = ir_type_scalar(IR_BOOL);
    const ir_graph_t *bodies[] = {ctx->attrs[0].graph, ctx->attrs[1].graph};
    char a[IR_TYPE_TEXT_BYTES], b[IR_TYPE_TEXT_BYTES];
    if (!ir_type_equal(&ctx->in[0], &flag))
        return FAIL(ST_INVALID, "the condition is %s, bool[] is needed",
                    ir_type_text(&ctx->in[0], a, sizeof a));
    for (int i = 0; i < 2; i++) {
        st_status_t status = check_branch(ctx, bodies[i]);
        if (status != ST_OK) return st_error_context(status, "'%s'", attrs[i].key);
    }
    if (bodies[0]->outputs.n != bodies[1]->outputs.n)
        return FAIL(ST_INVALID, "'then' has %zu outputs, 'else' %zu", bodies[0]->outputs.n,
                    bodies[1]->outputs.n);
    for (uint32_t k = 0; k < ctx->n_outputs; k++) {
        const ir_type_t *one = ir_body_output_type(bodies[0], k);
        const ir_type_t *other = ir_body_output_type(bodies[1], k);
        if (!ir_type_equal(one, other))
            return FAIL(ST_INVALID, "output %u is %s in 'then' and %s in 'else'", k,
                        ir_type_text(one, a, sizeof a), ir_type_text(other, b, sizeof b));
        out[k] = *one;
    }
    return ST_OK;
}

const ir_op_def_t ir_op_cond = {
    .op = IR_OP_COND,
    .name = "cond",
    .min_inputs = 1,
    .max_inputs = IR_VARIADIC,
    .n_outputs = IR_VARIADIC,
    .count_outputs = count_outputs,
    .flags = IR_REGION,
    .attrs = attrs,
    .shape = shape,
    .strategies = ir_strategies_none,
};
