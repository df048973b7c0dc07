/* A test hook beside those of memory.h: how large a single allocation may be. */
#ifndef STATOR_BASE_MEMORY_LIMIT_H
#define STATOR_BASE_MEMORY_LIMIT_H

#include <stddef.h>

/* Allocations of more than `bytes` fail, in all threads; 0 switches it off. */
void st_memory_fail_above(size_t bytes);

#endif
