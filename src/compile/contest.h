/* Among compiled plans: the search for placements (sharding.h) prices candidates before fusion,
 * recomputation and the hiding of collectives, so the one it takes may lose to a uniform plan once
 * both are compiled.
 *
 * Problem: the plan of `--shard auto` must not be slower than a uniform plan's; of many nodes that
 * is promised of the plans that were compiled, no more. In: the plan as the search has it, with the
 * prices of all candidates. Out: that plan, or the uniform one that is faster by its own simulation
 * and fits.
 *
 * Algorithm: uniform forms are compiled too, and all plans are simulated (simulate.h); the fastest
 * stays. Of a step of up to 1,500 nodes every form is compiled. Of one with more, where a plan
 * takes a third of a second, the two whose prices are nearest the best one and within 10 % of it.
 * Where no mesh was asked for, products split over a tensor axis (tp) are a candidate beside the
 * data axis's; the search, which is of the data axis, has no price for it, so it is compiled
 * whatever the nodes. A plan that does not fit is none.
 *
 * Time: that of up to five plans, three where there are many nodes. */
#ifndef STATOR_COMPILE_CONTEST_H
#define STATOR_COMPILE_CONTEST_H

#include "compile/compile.h"

/* One plan, as the options' placements or the search say, without a contest (pipeline.c).
 * `out_found` NULL: it is written to the cache; else that is the caller's, and *out_found says
 * whether the cache had it. */
st_status_t compile_single(const ir_graph_t *graph, const compile_options_t *options,
                           bool *out_found, plan_t **out_plan) ST_WARN_UNUSED;
/* Whether the options' search may lose to another form. */
bool compile_is_contested(const compile_options_t *options);
/* Replaces the plan of the search (NULL: it did not fit) by a faster one. `*plan` NULL afterwards:
 * none fits, and the error is still that of the search. */
st_status_t compile_contest(const ir_graph_t *graph, const compile_options_t *options,
                            plan_t **plan) ST_WARN_UNUSED;

#endif
