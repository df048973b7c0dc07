/* Packing of pieces of memory that live for a while each.
 *
 * Problem: give each piece an offset so that no two that live at one time overlap, in little
 * memory.
 *
 *   offset ^   +----C-----+          what lives all the time (C) lies at the bottom; the rest
 *              stands
 *          |   |  B  | A' |          on it, each piece in a gap that lasts as long as it lives
 *          +---+-----+----+-> time
 *
 * Algorithm, each step only while the total is above the bound, the most bytes alive at one time:
 *
 *   greedy   the pieces one after the other, by size, size · lifetime or lifetime, each at the
 *            lowest gap that is free while it lives (first fit) or at the smallest one (best fit)
 *   repair   the pieces that ended too high move forward in the order, again and again: what stands
 *            in each other's way is seen by placing it
 *   search   where the gap is still over 1 %: branch and bound over the pieces in the order of
 *            their offsets (search.h), with a limit of nodes
 *
 * Near O(n · log² n) a packing while there are few gaps (occupied.h). The first greedy packing is
 * always finished; the others share a budget of work that is counted, not timed, so that the result
 * is the same everywhere. Of a large number of pieces a total within 0.1 % of the bound is enough.
 *
 * Source: priorities raised for what went wrong are Joslin and Clements, "Squeaky Wheel
 * Optimization", 1999; the search's order is that of MiniMalloc (Moffitt, 2023). */
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
