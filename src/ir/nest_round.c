/* Which values need no rounding (nest_round.h). */
#include "ir/nest_round.h"

static bool is_of_type(const nest_stmt_t *stmts, nest_value_t v, ir_dtype_t dtype, int depth) {
    static const ir_op_t keep[] = {IR_OP_NEG,     IR_OP_ABS,     IR_OP_RELU,   IR_OP_SIGN,
                                   IR_OP_MAXIMUM, IR_OP_MINIMUM, IR_OP_SELECT, IR_OP_RELU_GRAD};
    enum { DEEPEST = 4 };
    const nest_stmt_t *s = &stmts[v];
    if (s->kind == NEST_LOAD) return s->access.dtype == dtype;
    if (s->kind == NEST_CONSTANT) return s->real == 0 || s->dtype == dtype;
    if (s->kind == NEST_REDUCE)
        return (s->op == IR_OP_REDUCE_MAX || s->op == IR_OP_REDUCE_MIN) && depth < DEEPEST &&
               is_of_type(stmts, s->args[0], dtype, depth + 1);
    if (s->kind != NEST_OP) return false;
    if (s->op == IR_OP_CAST) return s->dtype == dtype && ir_dtype_is_float(stmts[s->args[0]].dtype);
    bool keeps = false;
    for (size_t i = 0; i < sizeof keep / sizeof keep[0]; i++) keeps |= s->op == keep[i];
    for (uint32_t k = s->op == IR_OP_SELECT; k < s->n_args && keeps; k++)
        keeps = depth < DEEPEST && is_of_type(stmts, s->args[k], dtype, depth + 1);
    return keeps;
}

bool nest_is_of_type(const nest_stmt_t *stmts, nest_value_t v, ir_dtype_t dtype) {
    return is_of_type(stmts, v, dtype, 0);
}

nest_value_t nest_stored(const nest_stmt_t *stmts, nest_value_t v, ir_dtype_t dtype) {
    const nest_stmt_t *s = &stmts[v];
    const bool rounds = s->kind == NEST_OP && s->op == IR_OP_CAST && s->dtype == dtype &&
                        ir_dtype_is_float(dtype) && ir_dtype_is_float(stmts[s->args[0]].dtype);
    return rounds ? s->args[0] : v;
}
