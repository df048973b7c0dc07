/* What would fit where a plan does not.
 *
 * Problem: a rank needs more than its limit; how many ranks, what batch, or which form would do?
 * In:  a compilation whose plan does not fit.
 * Out: the words of it: the largest batch on one rank, the fewest ranks, the mesh whose ranks split
 *      the state, or what the least of all that was tried needs.
 * Algorithm: plans of other numbers are compiled, without advice of their own: first the most ranks
 * and the smallest batch (where they do not fit nothing does), then doubling and halving between
 * what fits and what does not. Memory falls with both.
 * Complexity: O(log(ranks · batch)) compilations. */
#ifndef STATOR_COMPILE_ADVICE_H
#define STATOR_COMPILE_ADVICE_H

#include "compile/manager.h"

enum { COMPILE_ADVICE_BYTES = 640 };

/* Appends to `text`, which has COMPILE_ADVICE_BYTES and is a string. */
st_status_t compile_advise(const compile_context_t *context, uint64_t limit,
                           char *text) ST_WARN_UNUSED;

#endif
