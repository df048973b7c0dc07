/* Passes that only change attributes of the global graph: what float type everything has
 * (float64.c), and which mode (evaluation.c). The files tell how. */
#ifndef STATOR_COMPILE_CONVERT_H
#define STATOR_COMPILE_CONVERT_H

#include "ir/graph.h"

/* In: any graph. Out: the same with every float type float64: sources, casts, constants' elements.
 */
st_status_t compile_to_f64(const ir_graph_t *graph, ir_graph_t **out_graph) ST_WARN_UNUSED;
/* Out: every op that has a training mode (attribute `train`) in evaluation mode, and no updates. */
st_status_t compile_to_evaluation(const ir_graph_t *graph, ir_graph_t **out_graph) ST_WARN_UNUSED;

#endif
