/* The rules that every graph keeps; the pass manager checks them after each pass. */
#ifndef STATOR_IR_VERIFY_H
#define STATOR_IR_VERIFY_H

#include "ir/graph.h"

/* Checks, in time linear in the graph: op ids; input and output counts; inputs come from earlier
 * nodes; values and producers agree; attribute kinds and values are those of the schema; types are
 * what the shape rule says; names of inputs, parameters and buffers are unique and not empty;
 * aliases are new names of existing state; outputs exist under unique names; an update goes to a
 * parameter or buffer, keeps its type, and there is at most one for each;
 * bodies keep the same rules, and those of ir_body_check. FAILs ST_INVALID naming
 * the node. */
st_status_t ir_graph_verify(const ir_graph_t *graph) ST_WARN_UNUSED;

#endif
