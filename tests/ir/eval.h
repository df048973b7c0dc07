/* The meaning of the source, elementwise, shape and reduction ops, written down a second time and
 * as plainly as possible: the oracle for partition and gradient rules. All elements are doubles. */
#ifndef STATOR_TESTS_IR_EVAL_H
#define STATOR_TESTS_IR_EVAL_H

#include "ir/op.h"

/* Elements of output 0 of a node with inputs in[j]; to be freed. NULL: the op is not known here. */
double *eval_op(const ir_op_ctx_t *ctx, const double *const *in);
/* Elements of every value of the graph; feeds[v] gives those of inputs, parameters and buffers,
 * which the result copies. Fails the test where an op is not known. */
double **eval_graph(const ir_graph_t *graph, const double *const *feeds);
void eval_graph_free(const ir_graph_t *graph, double **values);

/* Row-major position ↔ indices. */
void eval_unravel(const ir_type_t *type, int64_t flat, int64_t *index);
int64_t eval_ravel(const ir_type_t *type, const int64_t *index);

#endif
