/* The parts of gradient accumulation (micro_batch.c). */
#ifndef STATOR_AUTODIFF_MICRO_BATCH_H
#define STATOR_AUTODIFF_MICRO_BATCH_H

#include "autodiff/backward.h"

/* The forward graph of one micro-batch with the loss undivided, expanded. Its first output is the
 * sum, the others are counts. FAILs naming the node that keeps the loss from being a sum over items
 * that is divided by a count of data alone. */
st_status_t ad_micro_body(const ir_graph_t *forward, ir_value_t loss,
                          ir_graph_t **out_body) ST_WARN_UNUSED;
/* The loss of all micro-batches out of the totals of what the body gives, and what gradients of the
 * sum are yet to be divided by; IR_NONE: nothing. */
st_status_t ad_micro_divide(const ir_graph_t *forward, ir_value_t loss, ir_graph_t *graph,
                            ir_value_t sum, const ir_value_t *counts, ir_value_t *out_loss,
                            ir_value_t *out_divisor) ST_WARN_UNUSED;

/* Items of a micro-batch whose sum is differentiated in the place of their mean; 1: the loss is a
 * sum itself. */
st_status_t ad_micro_items(const ir_graph_t *forward, ir_value_t loss,
                           double *out_items) ST_WARN_UNUSED;

/* FAILs naming the first node that mixes the items of a batch, so that micro-batches would not give
 * what their union gives. With `allow_batch_norm` batch norms may. */
st_status_t ad_micro_check(const ir_graph_t *body, bool allow_batch_norm) ST_WARN_UNUSED;

/* Appends the loop to out->graph; fills params and grads, and the totals of the body's outputs in
 * out_totals[]. */
st_status_t ad_micro_loop(const ir_graph_t *body, const bool *frozen, int64_t n_micro,
                          ad_backward_t *out, ir_value_t *out_totals) ST_WARN_UNUSED;

#endif
