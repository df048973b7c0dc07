/* sum_squares: sum of the squares of all elements of all inputs: the square of a global gradient
 * norm. */
#include "ir/op.h"

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    char ta[IR_TYPE_TEXT_BYTES], tb[IR_TYPE_TEXT_BYTES];
    TRY(ir_check_float(ctx, 0));
    for (uint32_t j = 1; j < ctx->n_inputs; j++)
        if (ctx->in[j].dtype != ctx->in[0].dtype)
            return FAIL(ST_INVALID, "inputs 0 and %u are %s and %s: one float type is needed", j,
                        ir_type_text(&ctx->in[0], ta, sizeof ta),
                        ir_type_text(&ctx->in[j], tb, sizeof tb));
    *out = ir_type_scalar(ctx->in[0].dtype);
    return ST_OK;
}

/* Every input split, each in its own way: partial sums. One replicated input among them would count
 * once a rank. Beyond the operands that a strategy tells apart, all must be split alike. */
static void strategies(const ir_op_ctx_t *ctx, ir_strategy_list_t *list) {
    for (uint32_t j = 0; j < ctx->n_inputs; j++) {
        if (list->have[j].kind != IR_SPLIT) return;
        if (ctx->n_inputs > IR_MAX_OPERANDS && !ir_placement_equal(list->have[j], list->have[0]))
            return;
    }
    ir_strategy_t *made = ir_strategy_add(list);
    if (!made) return;
    for (uint32_t j = 0; j < ctx->n_inputs && j < IR_MAX_OPERANDS; j++) made->in[j] = list->have[j];
    made->out[0] = IR_PLACE_PARTIAL;
}

const ir_op_def_t ir_op_sum_squares = {
    .op = IR_OP_SUM_SQUARES,
    .name = "sum_squares",
    .min_inputs = 1,
    .max_inputs = IR_VARIADIC,
    .n_outputs = 1,
    .flags = IR_BACKWARD,
    .shape = shape,
    .no_gradient = "backward op",
    .strategies = strategies,
};
