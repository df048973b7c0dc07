/* Binary heaps in arrays, the first item on top. `before(a, b)`: whether a comes out before b, a
 * strict order; equal items come out in any order. O(log n) each.
 *
 *   TRY(ST_VEC_PUSH(&v, item));  st_heap_rise(v.data, v.n, sizeof *v.data, before);
 *   st_heap_drop(v.data, v.n--, sizeof *v.data, before);  item = v.data[v.n]; */
#ifndef STATOR_BASE_HEAP_H
#define STATOR_BASE_HEAP_H

#include <stdbool.h>
#include <stddef.h>

enum { ST_HEAP_ITEM_BYTES = 32 }; /* of an item, at most */

typedef bool (*st_heap_before_t)(const void *a, const void *b);

/* The last of n items takes its place among the others, which are a heap. */
void st_heap_rise(void *items, size_t n, size_t bytes, st_heap_before_t before);
/* The first of a heap of n > 0 goes to the end; the others are a heap. */
void st_heap_drop(void *items, size_t n, size_t bytes, st_heap_before_t before);

#endif
