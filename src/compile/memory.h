/* The last passes: kernels for nodes, places for values. */
#ifndef STATOR_COMPILE_MEMORY_H
#define STATOR_COMPILE_MEMORY_H

#include "compile/manager.h"

/* In: ordered programs. Out: each node has its kind of step, its kernel and the bytes of its
 * workspace, each collective its ticket. */
st_status_t compile_choose_kernels(compile_context_t *context) ST_WARN_UNUSED;
/* Out: every value and workspace has its place; updates that happen in place have nothing to do. */
st_status_t compile_place_values(compile_context_t *context) ST_WARN_UNUSED;

#endif
