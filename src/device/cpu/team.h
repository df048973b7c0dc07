/* A rank's threads: the caller and n - 1 workers that sleep between parallel loops (spinning a
 * little first). Ranges are cut at fixed multiples of `grain`, so what a chunk is never depends on
 * the number of threads: kernels that keep one result a chunk get the same bits on any team. */
#ifndef STATOR_DEVICE_CPU_TEAM_H
#define STATOR_DEVICE_CPU_TEAM_H

#include <stdint.h>

#include "base/status.h"

typedef struct dev_team dev_team_t;

st_status_t dev_team_create(int n_threads, dev_team_t **out_team) ST_WARN_UNUSED;
void dev_team_destroy(dev_team_t *team); /* NULL is fine */
int dev_team_size(const dev_team_t *team);

/* The team is in use from enter to leave: about to run one loop after the other. Threads that wait
 * spin a little only while no more threads are in use than there are processors. May be left out.
 */
void dev_team_enter(const dev_team_t *team);
void dev_team_leave(const dev_team_t *team);
/* Turns that a thread which waits spins before it sleeps, by what is in use now. */
int dev_team_spins(void);

/* Handles [begin, end) of the loop; runs on thread `thread` (0 … size - 1). */
typedef void (*dev_team_body_t)(void *arg, int64_t begin, int64_t end, int thread);

/* Runs body over [0, n) in chunks of `grain` (≥ 1; the last may be shorter): each thread gets one
 * contiguous run of chunks and one call of `body` a chunk. Returns when all are done. Runs inline
 * when there is one chunk or one thread, or no team (NULL). Not reentrant. */
void dev_team_for(dev_team_t *team, int64_t n, int64_t grain, dev_team_body_t body, void *arg);

#endif
