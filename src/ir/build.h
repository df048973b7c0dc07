/* Building graphs with few words: a builder with a sticky status.
 *
 *   ir_build_t b = {graph};
 *   ir_value_t y = ir_b_matmul(&b, x, w, false, true);
 *   y = ir_b_binary(&b, IR_OP_ADD, y, bias);
 *   return b.status;
 *
 * After the first failure every call does nothing and returns IR_NONE, so the status is looked at
 * once. Gradient rules, expansions, importers and model builders all use it. */
#ifndef STATOR_IR_BUILD_H
#define STATOR_IR_BUILD_H

#include "ir/graph.h"

typedef struct ir_build {
    ir_graph_t *graph;
    st_status_t status;
    const char *name; /* given to the nodes made; NULL: none */
} ir_build_t;

/* General form: first output of a new node. */
ir_value_t ir_b_node(ir_build_t *b, ir_op_t op, uint32_t n_inputs, const ir_value_t *inputs,
                     size_t n_args, const ir_arg_t *args);
const ir_type_t *ir_b_type(const ir_build_t *b, ir_value_t value); /* f32[] after a failure */

ir_value_t ir_b_unary(ir_build_t *b, ir_op_t op, ir_value_t x);
ir_value_t ir_b_binary(ir_build_t *b, ir_op_t op, ir_value_t x, ir_value_t y);
ir_value_t ir_b_select(ir_build_t *b, ir_value_t condition, ir_value_t x, ir_value_t y);
ir_value_t ir_b_cast(ir_build_t *b, ir_value_t x, ir_dtype_t dtype); /* x itself if it has it */

/* Sources; names must be unique among inputs, parameters and buffers. */
ir_value_t ir_b_input(ir_build_t *b, const char *name, ir_type_t type, int64_t batch_axis);
ir_value_t ir_b_parameter(ir_build_t *b, const char *name, ir_type_t type);
ir_value_t ir_b_buffer(ir_build_t *b, const char *name, ir_type_t type);
ir_value_t ir_b_constant(ir_build_t *b, ir_type_t type, const void *data, size_t bytes);
/* All elements equal `value`, converted to the dtype. */
ir_value_t ir_b_splat(ir_build_t *b, ir_type_t type, double value);
ir_value_t ir_b_scalar(ir_build_t *b, ir_dtype_t dtype, double value);
ir_value_t ir_b_iota(ir_build_t *b, ir_type_t type, int32_t axis, double start, double step);
/* x op scalar of x's dtype */
ir_value_t ir_b_scale(ir_build_t *b, ir_value_t x, double factor);
ir_value_t ir_b_add_scalar(ir_build_t *b, ir_value_t x, double addend);

/* Shape; reshape and broadcast return x itself when nothing changes. */
ir_value_t ir_b_reshape(ir_build_t *b, ir_value_t x, int32_t rank, const int64_t *dims);
ir_value_t ir_b_broadcast(ir_build_t *b, ir_value_t x, int32_t rank, const int64_t *dims);
ir_value_t ir_b_transpose(ir_build_t *b, ir_value_t x, const int64_t *perm);
ir_value_t ir_b_swap(ir_build_t *b, ir_value_t x, int32_t axis_a, int32_t axis_b);
/* Elements [begin, end) of one axis. */
ir_value_t ir_b_slice_axis(ir_build_t *b, ir_value_t x, int32_t axis, int64_t begin, int64_t end);
ir_value_t ir_b_concat(ir_build_t *b, uint32_t n, const ir_value_t *xs, int32_t axis);
ir_value_t ir_b_gather(ir_build_t *b, ir_value_t x, ir_value_t idx, int32_t axis);

/* `op` is a reduction with {axes, keep}; n_axes = 0 means all axes. */
ir_value_t ir_b_reduce(ir_build_t *b, ir_op_t op, ir_value_t x, int32_t n_axes, const int64_t *axes,
                       bool keep);
/* Adjoint of broadcasting: sums x down to `type`'s shape. */
ir_value_t ir_b_sum_to(ir_build_t *b, ir_value_t x, const ir_type_t *type);
ir_value_t ir_b_matmul(ir_build_t *b, ir_value_t x, ir_value_t y, bool transpose_x,
                       bool transpose_y);
void ir_b_update(ir_build_t *b, ir_value_t state, ir_value_t value);
void ir_b_output(ir_build_t *b, const char *name, ir_value_t value);

#endif
