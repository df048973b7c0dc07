/* Binary heaps in arrays (heap.h): a hole moves, not the items twice. */
#include "base/heap.h"

#include <string.h>

#include "base/status.h"

static char *at(void *items, size_t i, size_t bytes) {
    return (char *)items + i * bytes;
}

void st_heap_rise(void *items, size_t n, size_t bytes, st_heap_before_t before) {
    char moved[ST_HEAP_ITEM_BYTES];
    ASSERT(n > 0 && bytes <= sizeof moved);
    size_t hole = n - 1;
    memcpy(moved, at(items, hole, bytes), bytes);
    for (; hole > 0 && before(moved, at(items, (hole - 1) / 2, bytes)); hole = (hole - 1) / 2)
        memcpy(at(items, hole, bytes), at(items, (hole - 1) / 2, bytes), bytes);
    memcpy(at(items, hole, bytes), moved, bytes);
}

void st_heap_drop(void *items, size_t n, size_t bytes, st_heap_before_t before) {
    char moved[ST_HEAP_ITEM_BYTES];
    ASSERT(n > 0 && bytes <= sizeof moved);
    size_t last = n - 1, hole = 0;
    memcpy(moved, at(items, last, bytes), bytes);
    memmove(at(items, last, bytes), items, bytes); /* itself if it is the only one */
    for (size_t child; (child = 2 * hole + 1) < last; hole = child) {
        if (child + 1 < last && before(at(items, child + 1, bytes), at(items, child, bytes)))
            child++;
        if (!before(at(items, child, bytes), moved)) break;
        memcpy(at(items, hole, bytes), at(items, child, bytes), bytes);
    }
    if (last > 0) memcpy(at(items, hole, bytes), moved, bytes);
}
