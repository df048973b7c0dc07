/* Mixed precision: the global program with its float32 computation in bf16 or f16 where that is
 * safe. */
#ifndef STATOR_AUTODIFF_PRECISION_H
#define STATOR_AUTODIFF_PRECISION_H

#include "ir/graph.h"

/* In: the global program, gradient and optimizer in it or not. Out: the same program with float32
 * values in `compute` (IR_BF16 or IR_F16) as the policy table says. Inputs, outputs and state keep
 * their types; floats other than float32 stay as they are. Deterministic. */
st_status_t ad_precision(const ir_graph_t *graph, ir_dtype_t compute,
                         ir_graph_t **out_graph) ST_WARN_UNUSED;

#endif
