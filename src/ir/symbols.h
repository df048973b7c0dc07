/* Open sizes: a graph whose dims depend on named symbols, and binding them.
 *
 *   symbol batch 1..64 = 8          a name, bounds, and the example for which the graph stands
 *   vary %3 shape 0 = "batch*seq"   entry 0 of that node's attribute, as an expression of symbols
 *
 * The graph itself is an ordinary one, for the example: it prints, verifies and imports like any
 * other. Attributes are all that varies: types follow from them by the shape rules. Binding copies
 * the graph with the attributes for other values, and every node goes through its shape rule again;
 * what comes out has no symbols. Compiling and differentiating need a graph without symbols.
 *
 * Entries that can vary: integers, lists of integers, floats, and elements of constants. Limits:
 * structure does not vary (a model that has other nodes for other sizes), nor do names, element
 * types and bodies. */
#ifndef STATOR_IR_SYMBOLS_H
#define STATOR_IR_SYMBOLS_H

#include "ir/graph.h"

typedef struct ir_binding {
    const char *name;
    int64_t value;
} ir_binding_t;

enum { IR_MAX_SYMBOLS = 16 };
/* An expression may round otherwise than what made the example: relative difference of doubles. */
#define IR_VARIATION_TOLERANCE 1e-14

/* A letter, then letters, digits and underscores. */
bool ir_symbol_name_valid(const char *name);
st_status_t ir_graph_add_symbol(ir_graph_t *graph, const ir_symbol_t *symbol) ST_WARN_UNUSED;
st_status_t ir_graph_add_variation(ir_graph_t *graph,
                                   const ir_variation_t *variation) ST_WARN_UNUSED;
/* For a copy with the same node numbers. */
st_status_t ir_symbols_copy(const ir_graph_t *from, ir_graph_t *to) ST_WARN_UNUSED;
/* Examples within bounds; entries exist, and are what their expressions give for the example. */
st_status_t ir_symbols_verify(const ir_graph_t *graph) ST_WARN_UNUSED;
/* INVALID "… the symbols batch (1 to 64) and seq (1 to 4096) are not bound" where there are any. */
st_status_t ir_symbols_need_none(const ir_graph_t *graph) ST_WARN_UNUSED;

/* "batch=8,seq=128" into at most IR_MAX_SYMBOLS bindings that borrow from `text`'s copy in the
 * arena. */
st_status_t ir_bindings_parse(const char *text, st_arena_t *arena, ir_binding_t *out,
                              size_t *out_n) ST_WARN_UNUSED;
/* The graph for these values, of all symbols, each within its bounds. */
st_status_t ir_graph_bind(const ir_graph_t *graph, size_t n, const ir_binding_t *bindings,
                          ir_graph_t **out_graph) ST_WARN_UNUSED;

#endif
