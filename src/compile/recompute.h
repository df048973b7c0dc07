/* The pass "recompute", and plans within a limit of memory.
 *
 * Problem: which point of the path of recomputation (fusion/recompute.h has the cut) a plan takes;
 * what a point needs is known only when its values are placed, several passes later.
 * In:  the programs of ranks before fusion. Out: the same with the copies of one point, the same
 *      point in all programs; placed, all regions of every rank are within the limit, or there is
 *      no plan.
 * Algorithm: a binary search along the path, whose memory falls as its time rises; a try runs the
 * passes from "recompute" to the placing of values on copies of the programs as they were. Without
 * a limit the last point is taken whose predicted time is within the slack of the first.
 * Complexity: O(log points) runs of the passes.
 * Source: see fusion/recompute.h. */
#ifndef STATOR_COMPILE_RECOMPUTE_H
#define STATOR_COMPILE_RECOMPUTE_H

#include "compile/manager.h"

/* Chooses a place on the path of recomputation (fusion/recompute.h) and applies it to all programs:
 * what --recompute says; with --memory-limit, what compile_run_fitting says. */
st_status_t compile_pass_recompute(compile_context_t *context) ST_WARN_UNUSED;

/* Runs `passes`, of which the first is compile_pass_recompute and one places the values. Where the
 * regions of a rank exceed the limit they run again, each time from the programs as the first pass
 * found them, and the result is the first place of the path that fits: the least predicted time.
 * The path does not depend on the limit, so a lower limit never makes a faster plan.
 *
 * ST_DOES_NOT_FIT where no place does: says what the least is, and how many ranks or what batch
 * would do; where the state alone is beyond the limit, what mesh would do whose ranks split it.
 * O(log places) runs of the passes. */
st_status_t compile_run_fitting(compile_context_t *context, const compile_pass_t *passes,
                                size_t n_passes) ST_WARN_UNUSED;
void compile_fit_close(compile_fit_t *fit); /* zeroed is fine */

/* The regions of the rank that needs most. */
uint64_t compile_rank_bytes(const plan_t *plan);

#endif
