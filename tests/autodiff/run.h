/* Runs a graph on host memory, a node at a time, through the reference kernels: the tests'
 * interpreter. */
#ifndef STATOR_TESTS_AUTODIFF_RUN_H
#define STATOR_TESTS_AUTODIFF_RUN_H

#include "ir/op.h"
#include "kernels/table.h"

typedef struct run {
    const ir_graph_t *graph;
    void **data; /* by value; zero until written */
} run_t;

/* One node through its reference kernel, on one thread. */
st_status_t run_reference(const kern_problem_t *problem, const void *const *in, void *const *out);

void run_open(run_t *run, const ir_graph_t *graph);
void run_close(run_t *run);
/* Runs nodes [begin, end); inputs and state hold what the caller put into data[]. */
void run_nodes(run_t *run, ir_node_t begin, ir_node_t end);
/* State takes what its update node says; call after all nodes have run. */
void run_updates(run_t *run);
/* Data of an output or of an input, parameter or buffer; fails the test if there is none. */
void *run_output(run_t *run, const char *name);
void *run_state(run_t *run, const char *name);

void run_ok(st_status_t status, const char *call, int line);
/* The call fails with `status` and a message that contains `part`. */
void run_fails(st_status_t given, st_status_t status, const char *part, int line);

#endif
