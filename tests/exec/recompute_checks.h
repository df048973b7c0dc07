/* Recomputation: models for it, and what holds for every model. */
#ifndef TESTS_EXEC_RECOMPUTE_CHECKS_H
#define TESTS_EXEC_RECOMPUTE_CHECKS_H

#include "exec/models.h"

/* Norms, activations, dropout and residual sums, `n` layers of them. */
ir_graph_t *model_deep(int64_t batch, int n);
/* `n` recurrent layers over 8 steps. */
ir_graph_t *model_recurrent(int64_t batch, int n);

/* Steps with and without recomputation have the same bits, and `least_nodes` at least run again. */
void same_bits(const ir_graph_t *graph, compile_options_t options, uint32_t least_nodes);
/* The same for the training step of `forward`, which it destroys, on 1 to 3 ranks. */
void same_bits_on_ranks(ir_graph_t *forward, const char *optimizer, int64_t accumulate,
                        uint32_t least_nodes);
/* Limits between what is needed with and without recomputation, which saves a part `saved` at
 * least, are kept, and lower ones take no less time. Destroys `forward`. */
void keep_limits(ir_graph_t *forward, int64_t accumulate, double saved);

#endif
