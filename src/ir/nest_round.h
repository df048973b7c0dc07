/* Part of nest_build: where a value need not be rounded to its node's dtype. */
#ifndef STATOR_IR_NEST_ROUND_H
#define STATOR_IR_NEST_ROUND_H

#include "ir/nest.h"

/* Is the statement's value one of the type already? Ops that choose among their operands or change
 * a sign keep to it. */
bool nest_is_of_type(const nest_stmt_t *stmts, nest_value_t v, ir_dtype_t dtype);
/* What a store of the type takes of value v: it rounds itself. */
nest_value_t nest_stored(const nest_stmt_t *stmts, nest_value_t v, ir_dtype_t dtype);

#endif
