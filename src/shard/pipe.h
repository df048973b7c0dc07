/* Lowering to the pipe axis: its ranks run different parts of the program, on one micro-batch after
 * another.
 *
 *   graph, all micro-batches written out            programs
 *     f(x0) f(x1) f(x2) …  b(x0) b(x1) …  step        rank 0: F0 F1 … B0 …   stage 0, 2, 4 …
 *                                                     rank 1: F0 B0 F1 …     stage 1, 3, 5 …
 *
 * In: graphs that are lowered to all other axes: they have the same nodes in the same order. Out:
 * for each of them a graph a rank of the axis, with sends and receives where a value goes from one
 * rank to another, nodes in the order of execution, slots (ir/graph.h) that say which pass they
 * belong to.
 *
 * Where a node runs:
 *   anywhere   what depends on constants, inputs and scalar states alone (masks, tables of angles,
 *              the learning rate), what is made of states alone (a weight's cast or gather), and
 *              the optimizer's other scalars: every rank that reads it makes it
 *   forward    stages divide the forward pass of one micro-batch (stages.h) by what its nodes take
 *              on the target, the other micro-batches alike
 *   backward   with what it reads of the forward pass, and with the weights that it casts or
 *              gathers, no later than the gradients that it reads come by; gradients that are added
 *              up over several stages (tied weights) are summed in each stage first, so that one
 *              sum a step goes over
 *   updates    with the gradient; a weight that several stages hold gets its new value from there.
 *              A weight is wherever its shadow is
 *
 * The norm of all gradients is a sum of the ranks' parts, which each rank gives to all others and
 * adds in one order. A state lies where it is read, inputs where they are needed. What goes from
 * rank to rank: pairs of starts and waits, a receive begun a pass ahead, a send waited for a pass
 * later.
 *
 * Order: pipe_order.h. Linear in the graph, but for the stages. */
#ifndef STATOR_SHARD_PIPE_H
#define STATOR_SHARD_PIPE_H

#include "ir/target.h"
#include "shard/pipe_order.h"

typedef struct shard_pipe {
    const char *axis; /* static */
    uint32_t n_ranks; /* along it */
    uint32_t per_rank, n_micro;
    shard_schedule_t schedule;
    const ir_target_t *target; /* without costs: every node takes as long as its bytes say */
    /* Ranks that hold a state in another plan, as bits; 0: it has none of the name. NULL: there is
     * no such plan. */
    uint64_t (*held_by)(void *context, const char *name);
    void *context;
} shard_pipe_t;

/* out_graphs[g * n_ranks + r]: graph g's part on rank r. Decided on graph `model`. INVALID: there
 * are fewer nodes than stages. */
st_status_t shard_pipe_lower(const shard_pipe_t *pipe, uint32_t n_graphs, ir_graph_t *const *graphs,
                             uint32_t model, ir_graph_t **out_graphs) ST_WARN_UNUSED;

#endif
