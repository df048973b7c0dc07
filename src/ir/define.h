/* Definitions of composites in primitives (ir_op_def_t.define), for loop nests.
 *
 * They compute in ir_dtype_wide of the operands and cast the results back. The formulas are chosen
 * for few operations per element: what depends on a row or a channel only is computed there. */
#ifndef STATOR_IR_DEFINE_H
#define STATOR_IR_DEFINE_H

#include "ir/op.h"

#define IR_DEFINITIONS(X)       \
    X(softmax)                  \
    X(log_softmax)              \
    X(softmax_grad)             \
    X(log_softmax_grad)         \
    X(cross_entropy_rows)       \
    X(cross_entropy_grad)       \
    X(layer_norm)               \
    X(layer_norm_grad)          \
    X(rms_norm)                 \
    X(rms_norm_grad)            \
    X(channel_sum)              \
    X(channel_centered_squares) \
    X(batch_norm_apply)         \
    X(batch_norm_grad_sums)     \
    X(batch_norm_grad_apply) X(sum_squares) X(sgd) X(adamw) X(attention) X(attention_grad) X(rope)

#define IR_DECLARE_DEFINITION(name)                                                                \
    st_status_t ir_define_##name(ir_graph_t *graph, const ir_op_ctx_t *, const ir_value_t *inputs, \
                                 ir_value_t *out);
IR_DEFINITIONS(IR_DECLARE_DEFINITION)
#undef IR_DECLARE_DEFINITION

#endif
