/* sum_squares: sum of the squares of all elements of all inputs: the square of a global gradient
 * norm. The inputs' float types may differ; the sum is f64 if one of them is, else f32. */
#include "ir/define.h"
#include "ir/op.h"

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    ir_dtype_t widest = IR_F32;
    for (uint32_t j = 0; j < ctx->n_inputs; j++) {
        TRY(ir_check_float(ctx, j));
        if (ctx->in[j].dtype == IR_F64) widest = IR_F64;
    }
    *out = ir_type_scalar(widest);
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
    .define = ir_define_sum_squares,
};
