/* attention_grad: gradients of attention in q, k and v, from its output and row statistics.
 *
 * part: the keys are some of those that output and statistics are of, so that the probabilities
 * of a row need not add up to 1. */
#include "ir/define.h"
#include "ir/op.h"
#include "ir/rules_nn.h"

static const ir_attr_spec_t attrs[] = {{"causal", IR_ATTR_BOOL, false, 0, NULL},
                                       {"window", IR_ATTR_INT, false, 0, NULL},
                                       {"scale", IR_ATTR_FLOAT, false, 0, NULL},
                                       {"rows_first", IR_ATTR_BOOL, false, 0, NULL},
                                       {"offset", IR_ATTR_INT, false, 0, NULL},
                                       {"part", IR_ATTR_BOOL, false, 0, NULL},
                                       {0}};

/* The forward op's rule over its inputs gives what do, o and lse must be. */
static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    ir_type_t forward_in[4] = {ctx->in[1], ctx->in[2], ctx->in[3]}, forward_out[2];
    if (ctx->n_inputs > 6) forward_in[3] = ctx->in[6];
    ir_op_ctx_t forward = {IR_OP_ATTENTION, ctx->n_inputs - 3, 2,
                           forward_in,      ctx->attrs,        ctx->name};
    TRY(ir_op_attention.shape(&forward, forward_out));
    TRY(ir_need_type(ctx, 0, "do", &forward_out[0]));
    TRY(ir_need_type(ctx, 4, "o", &forward_out[0]));
    TRY(ir_need_type(ctx, 5, "lse", &forward_out[1]));
    for (int j = 0; j < 3; j++) out[j] = forward_in[j];
    return ST_OK;
}

static st_status_t localize(const ir_op_ctx_t *global, const ir_part_t *in, const ir_part_t *out,
                            st_arena_t *arena, ir_attr_t *local) {
    (void)in, (void)arena;
    ir_localize_rows(global, &out[0], local);
    return ST_OK;
}

static void strategies(const ir_op_ctx_t *ctx, ir_strategy_list_t *list) {
    uint32_t inputs = ir_first_bits(6);
    if (ctx->n_inputs > 6 && ctx->in[6].rank == 4 && ctx->in[6].dims[0] == ctx->in[1].dims[0])
        inputs |= 1u << 6;
    ir_strategies_dims(ctx, list, 1u << 0, inputs, ir_first_bits(3), 0);
    ir_strategies_heads(ctx, list, ir_first_bits(5), 5, UINT32_MAX, 6);
    ir_strategies_queries(ctx, list, 1u << 0 | 1u << 1 | 1u << 4, 5, UINT32_MAX, 6,
                          1u << 1 | 1u << 2);
}

const ir_op_def_t ir_op_attention_grad = {
    .op = IR_OP_ATTENTION_GRAD,
    .name = "attention_grad",
    .min_inputs = 6,
    .max_inputs = 7,
    .n_outputs = 3,
    .flags = IR_BACKWARD | IR_CONTRACTION,
    .attrs = attrs,
    .shape = shape,
    .no_gradient = "backward op",
    .strategies = strategies,
    .localize = localize,
    .differs_by_place = ir_counts_rows,
    .define = ir_define_attention_grad,
};
