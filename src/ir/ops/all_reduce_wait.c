/* all_reduce_wait: waits until the sums that all_reduce_start began are there. */
#include "ir/op.h"

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    for (uint32_t j = 0; j < ctx->n_inputs; j++) {
        TRY(ir_check_number(ctx, j));
        out[j] = ctx->in[j];
    }
    return ST_OK;
}

const ir_op_def_t ir_op_all_reduce_wait = {
    .op = IR_OP_ALL_REDUCE_WAIT,
    .name = "all_reduce_wait",
    .summary = "x × n in flight → x × n",
    .min_inputs = 1,
    .max_inputs = IR_VARIADIC,
    .n_outputs = IR_VARIADIC,
    .flags = IR_COLLECTIVE,
    .shape = shape,
    .no_gradient = "collective",
    .strategies = ir_strategies_none,
};
