/* Plans on disk by what they were made from.
 *
 * A plan's key is a hash of all that decides it: the source graph's bytes (with the sizes its
 * symbols were bound to), the options, ranks and threads, the target's description, kernels and
 * libraries, and the versions of format and build. A cache is a folder of plans named by their
 * keys. What is read from it is decoded and proved like any plan, and must have the key; a file
 * that is damaged, or of another program, counts as absent and is written anew. Writing is atomic:
 * processes may share a folder. */
#ifndef STATOR_COMPILE_CACHE_H
#define STATOR_COMPILE_CACHE_H

#include "compile/plan.h"

/* Version, and a hash of the sources of everything that makes plans (cmake/plan_build.cmake): a
 * plan of before a pass changed is not taken. */
extern const char plan_build[];

/* *out_plan is NULL where the folder has no such plan. */
st_status_t plan_cache_read(const char *folder, uint64_t key, plan_t **out_plan) ST_WARN_UNUSED;
/* Makes the folder if it is missing. */
st_status_t plan_cache_write(const char *folder, const plan_t *plan) ST_WARN_UNUSED;

#endif
