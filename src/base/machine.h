/* What the system says of the processor that this runs on. */
#ifndef STATOR_BASE_MACHINE_H
#define STATOR_BASE_MACHINE_H

#include <stdint.h>

/* Sizes of a core's first- and second-level data caches and of the third level; 0: not known. */
void st_cache_bytes(uint64_t out_bytes[3]);
/* Frequency of the first core as the system tells it; 1 where it does not. */
double st_clock_ghz(void);

#endif
