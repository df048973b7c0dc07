/* Bodies of `fused` as problems: operands with data, the nest kernel against the reference. */
#ifndef STATOR_TESTS_KERNELS_BODIES_H
#define STATOR_TESTS_KERNELS_BODIES_H

#include "ir/build.h"
#include "kernels/table.h"

enum { BODY_MAX = 64 };

/* A body with the types, data and problem that running it needs. */
typedef struct body {
    ir_graph_t *graph;
    uint32_t n_in, n_out;
    ir_type_t in[BODY_MAX], out[BODY_MAX];
    void *data[BODY_MAX];
    ir_attr_t attr;
    kern_problem_t problem;
} body_t;

/* Takes the graph over; operands are random: floats about [-2, 2], integers [0, limit). */
body_t body_make(ir_graph_t *graph, int64_t limit, uint64_t seed);
body_t body_parse(const char *text, int64_t limit, uint64_t seed);
void body_free(body_t *body);
/* The same body with every float type f64, and the operands' values. */
body_t body_widen(const body_t *body);

/* Results of one run; each between two guard zones, which are checked. */
typedef struct results {
    void *block[BODY_MAX], *out[BODY_MAX];
} results_t;
results_t body_run(const body_t *body, const char *impl, int n_threads);
void results_free(const body_t *body, results_t *results);

/* Compares with values of the f64 body: `terms` is the length of the longest sum. */
void body_compare(const body_t *body, const results_t *got, const body_t *wide,
                  const results_t *expected, double terms, const char *label);
/* Nest kernel against reference of the f64 body, on 1, 2 and 4 threads with the same bits. */
void body_check(body_t *body, double terms, const char *label);

/* Every pair of result and operand that the planner takes is proved. Returns how many it takes;
 * nothing runs. */
size_t body_check_proof(const ir_graph_t *graph);
/* Runs with each result over each operand where nest_may_reuse allows it: the same bits as apart,
 * by the nest kernel and the reference; no kernel of the GPU's schedule reads the operand too late,
 * and plan_reuse.h proves it. Returns how many such pairs there are. */
uint32_t body_check_in_place(const body_t *body, const char *label);

/* 64 random bits; the state moves on. */
uint64_t body_random(uint64_t *state);

#endif
