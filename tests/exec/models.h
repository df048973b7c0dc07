/* Small training graphs, and running a graph on any number of ranks. */
#ifndef TESTS_EXEC_MODELS_H
#define TESTS_EXEC_MODELS_H

#include "compile/compile.h"
#include "exec/session.h"

/* Forward graphs with input "x" (and "y"), and the output "loss". */
ir_graph_t *model_mlp(int64_t batch);
ir_graph_t *model_conv(
    int64_t batch); /* convolutions, batch norm, pooling, dropout, cross-entropy */
/* Its training step. */
ir_graph_t *model_train(const ir_graph_t *forward, const char *optimizer, double clip);
ir_graph_t *model_train_with(const ir_graph_t *forward, const char *optimizer, double clip,
                             int64_t accumulate, double ema);

/* A graph of random pure ops over inputs with a batch, replicated inputs, parameters and updated
 * buffers; the same for the same seed. */
ir_graph_t *model_random(unsigned seed, int64_t batch, int n_nodes);

/* A plan, or a failed test. */
plan_t *compile_ok(const ir_graph_t *graph, const compile_options_t *options);
/* Pseudo-random content of a type: floats in ±0.5, integers below `n_classes`. */
void fill_random(const ir_type_t *type, void *data, uint64_t seed, int64_t n_classes);
/* Every state gets content by its name. */
void fill_states(exec_session_t *session, const plan_t *plan);

/* Runs `n_steps` steps from content by name; returns all states in name order, then the outputs of
 * the last step, as float64. The caller frees *out_values with st_free. */
size_t run_plan(const plan_t *plan, int n_steps, double **out_values);
/* On one rank of a communicator; every rank has its own copy of the plan or shares one. */
size_t run_plan_on(const plan_t *plan, comm_t *comm, int n_steps, double **out_values);
void assert_close(size_t n, const double *a, const double *b, double tolerance, const char *what);

#endif
