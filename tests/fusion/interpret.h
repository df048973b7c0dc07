/* A graph run node by node with the CPU's kernels: what passes are judged by. */
#ifndef STATOR_TESTS_FUSION_INTERPRET_H
#define STATOR_TESTS_FUSION_INTERPRET_H

#include "ir/target.h"

/* Folding with the CPU's kernels. */
extern const ir_target_t interpret_target;

ir_graph_t *interpret_parse(const char *text);

/* The outputs' elements as double, all in one array (free it). Inputs, parameters and buffers get
 * numbers that depend on their names, the element and `seed`: floats in (-1, 1), integers in 0 … 2,
 * bools either. *out_n elements. Composites that only expand are expanded. */
double *interpret(const ir_graph_t *graph, uint64_t seed, size_t *out_n);

/* Both graphs' outputs: the largest difference, relative to the largest element. NaN and infinity
 * must stand in the same places. */
double interpret_difference(const ir_graph_t *a, const ir_graph_t *b, uint64_t seed);

/* "attention" → how many nodes. */
int count_ops(const ir_graph_t *graph, const char *op);

#endif
