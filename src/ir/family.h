/* Graphs with open sizes from a builder of graphs with fixed ones.
 *
 * Problem: an importer or a model maker gives a graph for any sizes of its symbols. Find one graph
 * with symbols (symbols.h) that stands for all of them, without teaching every rule of every
 * importer symbolic arithmetic.
 *
 * Algorithm: the builder is a function of the sizes, and is sampled. All samples must have the same
 * nodes; attributes that are the same in all are fixed. Each entry that differs is identified among
 * sums of products: with one term where its quotient by a product of symbols is the same in all
 * samples, else by solving for the coefficients of all products of degree ≤ 3. Every expression is
 * then computed for every sample, those that took no part in finding it and the ends of the bounds
 * included, and has to give the same value: an entry that is no such sum (a size that is clipped or
 * rounded) is an error that names it, not a wrong graph. Floats are a constant times, or divided
 * by, a product.
 *
 * Samples: as many as there are products, and a few more; sizes in one sample differ from each
 * other, so that what only happens to be equal does not look as if it were the same. */
#ifndef STATOR_IR_FAMILY_H
#define STATOR_IR_FAMILY_H

#include "ir/symbols.h"

enum { IR_FAMILY_SYMBOLS = 4 }; /* at most: the number of products grows fast */

/* The graph for these sizes, in the order of the symbols. */
typedef st_status_t (*ir_family_t)(void *context, const int64_t *sizes, ir_graph_t **out_graph);

st_status_t ir_family_fit(size_t n_symbols, const ir_symbol_t *symbols, ir_family_t make,
                          void *context, ir_graph_t **out_graph) ST_WARN_UNUSED;

#endif
