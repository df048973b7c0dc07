/* What happens to a forward graph before its gradient is taken. */
#ifndef STATOR_COMPILE_CAPTURE_H
#define STATOR_COMPILE_CAPTURE_H

#include "ir/graph.h"

/* Writes the same graph with what exporters spelled out as composites (fusion/recognize.h): their
 * gradients are composites too, while those of the chains would be chains. Inputs, state, outputs
 * and aliases stay, in their order. Float arithmetic on constants is left undone, so the graph
 * still means the same under every --dtype. `dump` as in compile_options_t: the passes here are
 * "recognize". */
st_status_t compile_capture(const ir_graph_t *graph, const char *dump,
                            ir_graph_t **out_graph) ST_WARN_UNUSED;

#endif
