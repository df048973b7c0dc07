/* What packing has placed so far, by time and offset: where is a gap during a span of time?
 *
 * A binary tree over time. Each node holds two unions of offset intervals, as sorted lists in which
 * neighbors that touch are one interval:
 *
 *   all     of the items that live at some time of the node's span
 *   whole   of the items that live through the span, but not through the parent's
 *
 * What is occupied during a span is the union of `all` at the nodes that tile it and of `whole` at
 * the nodes above them: 4 log(times) lists at most. Greedy packings leave few gaps, so that the
 * lists stay short; a query costs lists · gaps. */
#ifndef STATOR_SCHEDULE_OCCUPIED_H
#define STATOR_SCHEDULE_OCCUPIED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct sched_occupied sched_occupied_t;

/* Times are 0 … n_times - 1, n_times ≥ 1. */
st_status_t sched_occupied_create(uint32_t n_times, sched_occupied_t **out) ST_WARN_UNUSED;
void sched_occupied_destroy(sched_occupied_t *occupied); /* NULL is fine */
void sched_occupied_clear(sched_occupied_t *occupied);
/* Occupies `bytes` > 0 from `offset` during the times begin … end. */
st_status_t sched_occupied_add(sched_occupied_t *occupied, uint32_t begin, uint32_t end,
                               uint64_t offset, uint64_t bytes) ST_WARN_UNUSED;
/* Offset of a gap of at least `bytes` during the times begin … end: the lowest, or with `best` the
 * smallest of them; what follows all that is occupied is taken where there is no other. */
uint64_t sched_occupied_find(sched_occupied_t *occupied, uint32_t begin, uint32_t end,
                             uint64_t bytes, bool best);

/* List entries that finds have looked at since the creation: a measure of time that is the same on
 * every machine. */
uint64_t sched_occupied_work(const sched_occupied_t *occupied);

#endif
