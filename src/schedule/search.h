/* Bounded exact search for a packing (pack.h).
 *
 * Problem: offsets for items that live at the times first … last, below a capacity that shrinks
 * with every packing found.
 *
 * Algorithm: branch and bound over packings in canonical order. Slide every item of a packing down
 * until it stands on another or on the ground, and list the items by offset: every packing that
 * cannot be improved item by item is one such list, so it is enough to try lists. The next item of
 * a list stands on what is placed already, no lower than the one before it. A list is given up when
 *
 *   an item that is still to come would end above the capacity;
 *   at some time the floor and the items still to come do not fit below the capacity;
 *   an item still to come would fit whole below the next one (sliding it down gives another list).
 *
 * With no capacity left to try the best packing is optimal; the limit of nodes ends the search
 * earlier. O(items + times) a node.
 *
 * Source: Moffitt, "MiniMalloc: a lightweight memory allocator for hardware-accelerated machine
 * learning", 2023. */
#ifndef STATOR_SCHEDULE_SEARCH_H
#define STATOR_SCHEDULE_SEARCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct sched_search_item {
    uint32_t first, last; /* times, inclusive */
    uint64_t bytes;       /* > 0 */
    uint64_t offset;      /* result */
} sched_search_item_t;

/* Looks for packings that end below *total, down to `bound`; items that are tried first stand
 * first. *total and the offsets become those of the best one found; without one they stay as they
 * are. *out_optimal: the best total, found here or given, cannot be improved. */
st_status_t sched_search(uint32_t n, sched_search_item_t *items, uint32_t n_times, uint64_t bound,
                         uint64_t n_nodes, uint64_t *total, bool *out_optimal) ST_WARN_UNUSED;

#endif
