/* Bump allocator: many small objects with one lifetime.
 *
 *   chunk 0                      chunk 1 (twice as large)
 *   +--------+------+~~~~~~+     +-----------------+~~~~~~~~~~+
 *   | object | gap  | free |  →  | object          |   free   |
 *   +--------+------+~~~~~~+     +-----------------+~~~~~~~~~~+
 *
 * Under AddressSanitizer a poisoned gap of 16 bytes follows each object. Not thread-safe. */
#ifndef STATOR_BASE_ARENA_H
#define STATOR_BASE_ARENA_H

#include <stddef.h>

#include "base/status.h"

typedef struct st_arena_chunk st_arena_chunk_t;
typedef struct st_arena {
    st_arena_chunk_t *head; /* newest chunk; zero-initialized arena is valid and empty */
    size_t total_bytes;     /* taken from the heap so far */
} st_arena_t;

/* Zeroed memory aligned to 16 bytes, or NULL when out of memory. */
void *st_arena_alloc(st_arena_t *arena, size_t bytes);
/* Same for an array; NULL also when count * bytes overflows. */
void *st_arena_array(st_arena_t *arena, size_t count, size_t bytes);
/* Copies, or NULL when out of memory. */
void *st_arena_copy(st_arena_t *arena, const void *data, size_t bytes);
char *st_arena_strdup(st_arena_t *arena, const char *text);
char *st_arena_printf(st_arena_t *arena, const char *format, ...) ST_PRINTF(2, 3);
/* Frees everything; the arena is empty and usable afterwards. */
void st_arena_clear(st_arena_t *arena);

#endif
