/* Replacing composite ops by their definitions in simpler ops. */
#ifndef STATOR_IR_EXPAND_H
#define STATOR_IR_EXPAND_H

#include "ir/op.h"

/* Which composites to expand: any; those that differentiation needs expanded (no rule of their
 * own); the latter also brings nodes into the form that their gradient rule wants. */
bool ir_expand_any(const ir_op_def_t *def);
bool ir_expand_for_gradient(const ir_op_def_t *def);

/* Copy of `graph` in which every node whose op is composite and `wanted` is replaced by its
 * expansion; what expansions contain is looked at again. Outputs, aliases and names stay; nodes of
 * an expansion carry the composite's name. */
st_status_t ir_expand_composites(const ir_graph_t *graph, bool (*wanted)(const ir_op_def_t *def),
                                 ir_graph_t **out_graph) ST_WARN_UNUSED;
/* The same by definitions (ir_op_def_t.define, else .expand), down to what has none: for nests.
 * Values keep their order: output k of the graph stays output k. */
st_status_t ir_expand_definitions(const ir_graph_t *graph, ir_graph_t **out_graph) ST_WARN_UNUSED;

#endif
