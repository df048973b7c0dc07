/* The text form of graphs: what passes are tested with and what `STATOR_DUMP` writes.
 *
 *   graph "llama" producer "pytorch 2.11" {
 *     %0 x = input {dtype=i64, shape=[4,32]} : i64[4,32]
 *     %1 "layers.0.weight" = parameter {dtype=f32, shape=[8]} : f32[8]
 *     %2 = constant {dtype=f32, shape=[4,8], data=0.5} : f32[4,8]
 *     %3, %4 norm = rms_norm(%2, %1) {eps=1e-05} : f32[4,8], f32[4]     # a comment
 *     phase backward                                                  # of the nodes below
 *     update(%1, %5)
 *     output "loss" = %9
 *     alias "lm_head.weight" = "embed.weight"
 *   }
 *
 * A name is bare where it looks like an identifier (letters, digits, '_' and '.', not the words
 * graph, producer, output, alias, phase), else quoted, with \" \\ \n \t \r and \xHH. Value names
 * are the printer's ids; the parser takes any %name, defined before it is used and once. Attributes
 * equal to their default are left out. The types after ':' may be left out; where they stand they
 * are checked. Nodes are of the phase forward until a line says backward, optimizer or forward
 * again.
 *
 * Data is one value for a splat, [a,b,…] up to 64 elements, else the raw little-endian bytes as
 * 0x<hex>. Floats are the shortest decimal that reads back the same, or hexadecimal; a NaN
 * attribute with unusual bits is 0x<16 hex digits>. Printing and parsing give the same graph, bit
 * for bit. */
#ifndef STATOR_IR_TEXT_H
#define STATOR_IR_TEXT_H

#include "ir/graph.h"

/* NUL-terminated; the caller frees *out_text with st_free. */
st_status_t ir_graph_print(const ir_graph_t *graph, char **out_text) ST_WARN_UNUSED;
/* Value of attribute `index` of a node, as it stands there; the same. */
st_status_t ir_attr_print(const ir_node_info_t *node, uint32_t index,
                          char **out_text) ST_WARN_UNUSED;
/* Parses and verifies. Messages begin with "line L, column C". Time and memory are proportional to
 * `bytes`. */
st_status_t ir_graph_parse(const char *text, size_t bytes, ir_graph_t **out_graph) ST_WARN_UNUSED;
/* ir_graph_add with the op by name and the attributes as text: "axis=1, shape=[4,32], dtype=f32".
 */
st_status_t ir_text_add(ir_graph_t *graph, const char *op, const char *name, uint32_t n_inputs,
                        const ir_value_t *inputs, const char *attributes,
                        ir_value_t *out_first) ST_WARN_UNUSED;

#endif
