/* A loop whose turns may run at the same time, for work that is done once: compiling kernels,
 * drawing initial values. What a step does has a team of its own (device/cpu/team.h). */
#ifndef STATOR_BASE_PARALLEL_H
#define STATOR_BASE_PARALLEL_H

#include <stddef.h>

#include "base/status.h"

/* Calls each(context, i) for i of 0 … n - 1, on the calling thread and at most one more for every
 * other processor, 15 in all; which thread takes which turn is not said. After a turn has failed no
 * further one begins; the first failure to be seen is returned, with its message. Blocking. */
st_status_t st_parallel(size_t n, st_status_t (*each)(void *context, size_t i),
                        void *context) ST_WARN_UNUSED;

#endif
