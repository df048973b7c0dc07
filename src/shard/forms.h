/* Uniform plans: rules that settle one axis of the mesh for a whole graph (settle.h).
 *
 *   dp      the batch is split; every rank has all parameters and moments
 *   zero1   moments are split; gradients are summed into parts, parts of parameters updated and
 *           gathered
 *   zero2   the same, and of several micro-batches each gradient is scattered as it is made, so
 *           that sums of gradients are parts too (in one of a loop they are not: ranks cannot meet
 *           in it)
 *   zero3   parameters are split too, and gathered where forward or backward needs them
 *
 * What is split is split along its first dim that the ranks divide evenly, else along its
 * longest. */
#ifndef STATOR_SHARD_FORMS_H
#define STATOR_SHARD_FORMS_H

#include "shard/settle.h"

typedef enum shard_form {
    SHARD_FORM_DP = 0,
    SHARD_FORM_ZERO1,
    SHARD_FORM_ZERO2,
    SHARD_FORM_ZERO3,
    SHARD_FORM_END
} shard_form_t;

typedef enum shard_context { SHARD_CONTEXT_GATHER = 0, SHARD_CONTEXT_RING } shard_context_t;

/* What axis `settled->axis` does by its name, of as many ranks as `settled` says: one of those
 * below. `form` is the data axis's, `how` the context axis's. An axis of another name (pipe)
 * settles nothing. */
st_status_t shard_form_axis(const ir_graph_t *graph, shard_form_t form, shard_context_t how,
                            shard_settled_t *settled) ST_WARN_UNUSED;
/* Whole states, and their parts of ranks along the data axis. `settled` is open. */
st_status_t shard_form_data(const ir_graph_t *graph, uint32_t n_ranks, shard_form_t form,
                            shard_settled_t *settled) ST_WARN_UNUSED;
/* Tensor parallel: a product whose operand is made, by elementwise nodes and attention, of products
 * with weights is split along its inner dim, those along their outer one (columns, then rows). What
 * it gives, a sum over the ranks, is scattered along dim 1 of a [batch, rows, width]: the nodes
 * between, norms and residual sums, run on parts of the rows. Weights, their moments and averages
 * live where they are used. What has no such pair runs whole on every rank. */
st_status_t shard_form_tensor(const ir_graph_t *graph, shard_settled_t *settled) ST_WARN_UNUSED;
/* Routed experts, beside data parallel: weights of three dims that are the operand of products of
 * as many matrices live split along the first, their experts, and so do moments and averages; these
 * products and their gradients run where the weights are. What they read and give is exchanged
 * between the parts of the batch and those of the experts. Other weights are whole. ST_UNSUPPORTED:
 * there are no such weights. */
st_status_t shard_form_expert(const ir_graph_t *graph, shard_settled_t *settled) ST_WARN_UNUSED;
/* Marks the parameters that are experts' weights: [nodes]. */
void shard_expert_weights(const ir_graph_t *graph, bool *out_weights);
/* Context parallel: sequences, dim 1 of the inputs, are split, and with them queries and what is
 * computed for each position by itself; keys and values are gathered, and their gradients
 * scattered sums; or they go round, part by part. All weights are whole. ST_UNSUPPORTED: there
 * is no attention, or what goes round would have to meet a mask. */
st_status_t shard_form_context(const ir_graph_t *graph, shard_context_t how,
                               shard_settled_t *settled) ST_WARN_UNUSED;
/* The parameter that `v` is, is cast from, or is the shadow of; IR_NONE: none of these. */
ir_node_t shard_parameter_of(const ir_graph_t *graph, ir_value_t v);
/* Moments, gradients, averages and shadows of split parameters go with them. */
st_status_t shard_place_followers(const ir_graph_t *graph, shard_settled_t *settled) ST_WARN_UNUSED;
/* Split states are gathered where nodes other than the optimizer's read them. */
st_status_t shard_gather_states(const ir_graph_t *graph, shard_settled_t *settled) ST_WARN_UNUSED;

#endif
