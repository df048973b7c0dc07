/* Forward and backward of one step in one graph, over the whole batch at once or over
 * micro-batches. */
#ifndef STATOR_AUTODIFF_BACKWARD_H
#define STATOR_AUTODIFF_BACKWARD_H

#include "autodiff/loss_scale.h"
#include "ir/graph.h"

typedef struct ad_backward {
    ir_graph_t *graph;     /* owned */
    size_t n;              /* parameters, in the forward graph's order */
    ir_value_t *params;    /* [n] */
    ir_value_t *grads;     /* [n]; IR_NONE where frozen */
    ir_value_t divisor;    /* scalar that the gradients are yet to be divided by; IR_NONE: 1 */
    ad_loss_scale_t scale; /* another one */
} ad_backward_t;

void ad_backward_free(ad_backward_t *backward); /* also the graph, unless taken (set to NULL) */

/* `frozen[i]` (NULL: none) leaves out parameter i; `scaling` NULL: none. */
st_status_t ad_backward_whole(const ir_graph_t *forward, ir_value_t loss, const bool *frozen,
                              const ad_scaling_t *scaling, ad_backward_t *out) ST_WARN_UNUSED;

/* The step over `n_micro` micro-batches, in a loop (micro_batch.c). `loss_name` is the name of the
 * loss among the outputs. */
st_status_t ad_backward_micro(const ir_graph_t *forward, ir_value_t loss, const char *loss_name,
                              const bool *frozen, const ad_scaling_t *scaling, int64_t n_micro,
                              bool allow_batch_norm, ad_backward_t *out) ST_WARN_UNUSED;

/* Shared by both: room for the parameters of `forward` in out->params and out->grads. */
st_status_t ad_backward_open(const ir_graph_t *forward, ad_backward_t *out) ST_WARN_UNUSED;
/* Gradients of out->params that are not frozen, into out[] (one a parameter, IR_NONE where frozen).
 */
st_status_t ad_backward_grads(const ad_backward_t *backward, ir_value_t loss, const bool *frozen,
                              ir_value_t *out) ST_WARN_UNUSED;

#endif
