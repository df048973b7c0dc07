/* Sample nodes of the source, elementwise, shape and reduction ops, over odd shapes: for the tests
 * that hold for every op. */
#ifndef STATOR_TESTS_IR_SAMPLES_H
#define STATOR_TESTS_IR_SAMPLES_H

#include "ir/build.h"
#include "ir/op.h"

enum { SAMPLE_INPUTS = 3, SAMPLE_ARGS = 6 };

typedef struct sample {
    ir_op_t op;
    uint32_t n_inputs;
    ir_type_t in[SAMPLE_INPUTS];
    size_t n_args;
    ir_arg_t args[SAMPLE_ARGS];
    int64_t n_choices; /* integer inputs hold indices from -n_choices to n_choices - 1 */
} sample_t;

/* A sample made into a graph: its inputs are parameters (floats) and buffers, then comes the node.
 * */
typedef struct sampled {
    ir_graph_t *graph;
    ir_node_t node;
    const ir_node_info_t *info;
    ir_op_ctx_t ctx;
    ir_type_t in[SAMPLE_INPUTS], out;
    double *data[SAMPLE_INPUTS]; /* elements of the inputs: floats differ, from 0.4 to 2 */
} sampled_t;

void samples_each(void (*visit)(const sample_t *sample, void *user), void *user);
void sampled_make(const sample_t *sample, sampled_t *out);
void sampled_free(sampled_t *sampled);

#endif
