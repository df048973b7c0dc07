/* Among compiled plans: the search for placements (sharding.h) prices candidates before fusion,
 * recomputation and the hiding of collectives, and one axis after another, so what it takes may
 * lose to a uniform plan once both are compiled.
 *
 * Problem: the plan of `--shard auto` must not be slower than any plan that can be asked for by
 * name on the same mesh. In: a graph and options. Out: the fastest plan of these that fits, by its
 * own simulation (simulate.h):
 *
 *   auto             placements searched for on all axes of the mesh
 *   auto, data only  of a mesh of several axes: on the data axis alone, the others as their names
 *                    say
 *   dp … zero3       the uniform plans of the mesh
 *   tp               where no mesh is asked for: products split over a tensor axis in place of the
 *                    data axis
 *   other meshes     where none is asked for: of those of several axes the few that are priced
 *                    least (meshes.h), each with its form, and searched for
 *
 * A candidate that is refused by any pass, the proof included, or does not fit, drops out; the
 * plan's table has its reason. Only lack of memory of this process, an interrupt, or a file that
 * cannot be written ends the contest. The first of equals wins. Where none is left the error is the
 * search's.
 *
 * Time: that of up to six plans; without a mesh of six more, of a step of many nodes two. */
#ifndef STATOR_COMPILE_CONTEST_H
#define STATOR_COMPILE_CONTEST_H

#include "compile/manager.h"
#include "compile/target.h"

/* One plan, as the options' placements or the search say, without a contest (pipeline.c).
 * `out_found` NULL: it is written to the cache; else that is the caller's, and *out_found says
 * whether the cache had it. */
st_status_t compile_single(const ir_graph_t *graph, const compile_options_t *options,
                           bool *out_found, plan_t **out_plan) ST_WARN_UNUSED;
/* The global graph as the lowering finds it, in context->graph, and what else the context then has.
 * Closed with compile_front_close, whatever came out. */
st_status_t compile_front(const ir_graph_t *graph, const compile_options_t *options,
                          compile_context_t *context, target_t **out_target) ST_WARN_UNUSED;
void compile_front_close(compile_context_t *context, target_t *target);
/* Whether the options' search may lose to another form. */
bool compile_is_contested(const compile_options_t *options);
/* The fastest plan, or that of the cache: *out_found. */
st_status_t compile_contest(const ir_graph_t *graph, const compile_options_t *options,
                            bool *out_found, plan_t **out_plan) ST_WARN_UNUSED;

#endif
