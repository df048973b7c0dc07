/* Communicators: collectives between the ranks of a group.
 *
 * Start never blocks on peers; wait does, for a bounded time. Every rank starts the same
 * collectives in the same order (the plan proves it). One handle a rank, used by one thread at a
 * time. A failure is latched: every later call returns it. */
#ifndef STATOR_COMM_COMM_H
#define STATOR_COMM_COMM_H

#include <stddef.h>
#include <stdint.h>

#include "ir/types.h"

typedef struct comm comm_t;

/* N ranks of one process. out_ranks[r] is rank r's handle. `timeout_ms` bounds every wait. */
st_status_t comm_local_create(int n_ranks, int64_t timeout_ms, comm_t **out_ranks) ST_WARN_UNUSED;
void comm_destroy(comm_t *comm); /* each handle once; NULL is fine */
int comm_rank(const comm_t *comm);
int comm_size(const comm_t *comm);

/* Sum over ranks, in place, of `n` segments: data[i] has elements[i] elements of dtype. The order
 * of addition is by rank, so all ranks get the same bits. The buffers belong to the collective
 * until the wait. `ticket` is the collective's index within the step, the same on all ranks. */
st_status_t comm_all_reduce_start(comm_t *comm, uint32_t ticket, ir_dtype_t dtype, uint32_t n,
                                  void *const *data, const int64_t *elements) ST_WARN_UNUSED;
/* Concatenation: for each of `outer` blocks, rank r's part is part_bytes[r] long; `out` receives
 * outer × sum(part_bytes). `in` and `out` belong to the collective until the wait. */
st_status_t comm_all_gather_start(comm_t *comm, uint32_t ticket, int64_t outer,
                                  const int64_t *part_bytes, const void *in,
                                  void *out) ST_WARN_UNUSED;
/* Blocks until the collective is complete on this rank. FAILs with ST_PEER_LOST naming the missing
 * ranks after the timeout. */
st_status_t comm_wait(comm_t *comm, uint32_t ticket) ST_WARN_UNUSED;
/* Wakes every waiting rank with ST_PEER_LOST and the reason: a rank that fails calls it. */
void comm_abort(comm_t *comm, const char *reason);

#endif
