/* What the two forms of gradient accumulation share: unrolled (micro_batch.c) and as a loop
 * (micro_loop.c). */
#ifndef STATOR_AUTODIFF_MICRO_BATCH_H
#define STATOR_AUTODIFF_MICRO_BATCH_H

#include "autodiff/backward.h"

/* Outputs of the graph of one micro-batch; the count is there only where it is a value. */
#define AD_MICRO_SUM "sum"
#define AD_MICRO_COUNT "count"

/* Appends the loop to out->graph; fills params and grads, and the sum and count of all
 * micro-batches (IR_NONE where the body has none). FAILs where something goes from one micro-batch to the
 * next. */
st_status_t ad_micro_loop(const ir_graph_t *body, const bool *frozen, int64_t n_micro,
                          ad_backward_t *out, ir_value_t *out_sum,
                          ir_value_t *out_count) ST_WARN_UNUSED;

#endif
