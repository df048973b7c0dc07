/* Packing: offsets for pieces of memory that live at different times, so that the whole is small.
 *
 *   offset
 *     ^  +-----c-----+  +--d--+
 *     |  +---a---+   +--+--b------+        a's place is free for d once a is dead
 *     +----------------------------> time
 *
 * Finding the least total is NP-hard; this takes the best of six greedy packings: pieces ordered by
 * size, by lifetime, or by their product, each put at the lowest gap that is large enough (first
 * fit) or at the smallest one (best fit). The most bytes alive at one time bound the total from
 * below; a packing that meets the bound ends the search. Near O(n · log² n) a packing while there are few
 * gaps (occupied.h). */
#ifndef STATOR_SCHEDULE_PACK_H
#define STATOR_SCHEDULE_PACK_H

#include <stdint.h>

#include "base/status.h"

typedef struct sched_piece {
    int64_t begin, end; /* inclusive */
    uint64_t bytes;     /* 0: needs no place, offset 0 */
    uint64_t offset;    /* result: a multiple of the alignment */
} sched_piece_t;

/* Fills in the offsets. *out_bytes is the end of the last piece, rounded up to the alignment;
 * *out_live_bound the most aligned bytes alive at one time. */
st_status_t sched_pack(uint32_t n, sched_piece_t *pieces, uint64_t alignment, uint64_t *out_bytes,
                       uint64_t *out_live_bound) ST_WARN_UNUSED;

#endif
