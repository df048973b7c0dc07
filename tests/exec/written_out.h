/* Graphs without control flow that mean the same. */
#ifndef TESTS_EXEC_WRITTEN_OUT_H
#define TESTS_EXEC_WRITTEN_OUT_H

#include "ir/graph.h"

/* Each repeat unrolled over slices and concatenated, each cond as both branches and a selection, at
 * any depth. */
ir_graph_t *written_out(const ir_graph_t *graph);

#endif
