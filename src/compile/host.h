/* Evaluation of single nodes on the host while compiling: constant folding, and proofs about
 * constants. */
#ifndef STATOR_COMPILE_HOST_H
#define STATOR_COMPILE_HOST_H

#include "ir/op.h"

/* The signature and contract of ir_target_t.evaluate; `context` is not used. */
st_status_t compile_evaluate(void *context, const ir_op_ctx_t *ctx, const ir_type_t *out_types,
                             const void *const *in, void *const *out);

#endif
