/* Equality and hash of attributes by content, bit by bit: what CSE, the text form's "is it the
 * default" and comparisons of graphs need. */
#ifndef STATOR_IR_STRUCTURE_H
#define STATOR_IR_STRUCTURE_H

#include "ir/op.h"

/* Floats by their bits: 0 and -0 differ, a NaN equals itself. */
bool ir_attr_equal(const ir_attr_t *a, const ir_attr_t *b);
bool ir_attrs_equal(ir_op_t op, const ir_attr_t *a, const ir_attr_t *b);
/* Hash of op and attributes (schema order), chained on `seed`. */
uint64_t ir_attrs_hash(ir_op_t op, const ir_attr_t *attrs, uint64_t seed);
/* Whether two graphs say the same: nodes, attributes and outputs in one order; names do not
 * matter. */
bool ir_graph_equal(const ir_graph_t *a, const ir_graph_t *b);
uint64_t ir_graph_hash(const ir_graph_t *graph, uint64_t seed);
/* What an attribute that is left out has. */
ir_attr_t ir_attr_default(const ir_attr_spec_t *spec);
/* "int", "float", …, as messages say it. */
const char *ir_attr_kind_text(ir_attr_kind_t kind);

#endif
