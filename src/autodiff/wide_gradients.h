/* Gradients in float32 before ranks sum them up. */
#ifndef STATOR_AUTODIFF_WIDE_GRADIENTS_H
#define STATOR_AUTODIFF_WIDE_GRADIENTS_H

#include "ir/graph.h"

/* In: the global program after the precision pass, with its optimizer. Out: the same program, in
 * which updates and what else comes after the backward pass read each 16-bit gradient's cast to
 * float32. */
st_status_t ad_wide_gradients(const ir_graph_t *graph, ir_graph_t **out_graph) ST_WARN_UNUSED;

#endif
