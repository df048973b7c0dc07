/* Replacing composite ops by simpler ones.
 *
 * Problem: passes differ in what they want whole. Kernels and fusion want a norm as one node;
 * reverse mode wants ops that have a gradient rule; loop nests want elementwise operations and
 * reductions.
 * In:  any verified graph. Out: an equivalent one in which no node is left that is wanted, in
 *      bodies neither; outputs, aliases, names of values that stay, and the order of results are as
 *      before. An expansion's nodes carry the composite's name and phase.
 * Algorithm: rounds, each a copy of the graph in which what is met is replaced by its op's own rule
 * (a column of the op table); what a rule brings is looked at in the next round. Each rule's
 * results are checked against the types of those they stand for.
 * Complexity: linear in what comes out, times the depth of definitions, which is one or two; a
 * definition that contains itself is an error after eight rounds.
 * Source: composites with a definition, any of which a backend may take whole: StableHLO's
 * composite op. */
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
 * Values keep their order: output k of the graph stays output k. Nodes that make a value of the
 * graph have an origin (ir_node_info_t), those inside of definitions have none. */
st_status_t ir_expand_definitions(const ir_graph_t *graph, ir_graph_t **out_graph) ST_WARN_UNUSED;

#endif
