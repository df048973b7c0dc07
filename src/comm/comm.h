/* Communicators: collectives between the ranks of a group.
 *
 * Start never blocks on peers; wait does, for a bounded time. All ranks of a communicator start the
 * same collectives of it in the same order (the plan proves it). One handle a rank; all handles of
 * a rank are used by one thread at a time. A failure on any rank is latched for the communicator
 * and all groups made from it, and every later call returns it; a call that returns a failure has
 * left all buffers alone for good.
 *
 * A `ticket` is the number of a collective within the step: the same on all ranks of the
 * communicator, not in use there (a collective that was waited for may be started again under its
 * ticket in the next step). Different communicators may use the same ticket at the same time.
 *
 * Sizes are in elements of `dtype`; parts of size 0 are fine. Arrays that describe the sizes are
 * read during the call only; buffers belong to the collective until the wait. Unless said
 * otherwise, inputs and outputs do not overlap. */
#ifndef STATOR_COMM_COMM_H
#define STATOR_COMM_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ir/types.h"

typedef struct comm comm_t;

/* N ranks of one process. out_ranks[r] is rank r's handle. `timeout_ms` bounds every wait. */
st_status_t comm_local_create(int n_ranks, int64_t timeout_ms, comm_t **out_ranks) ST_WARN_UNUSED;
/* One of `size` ranks that are processes, over TCP. Rank 0 listens at address:port, the others find
 * it there. Returns when all ranks are there; on every rank with the same cause where one is
 * missing, comes twice, or differs in size or version. A rank whose process ends, stops or is cut
 * off is noticed within the timeout, whatever the others are doing, and named with its place. */
typedef struct comm_tcp_config {
    int rank, size;
    const char *address;
    int port;
    int64_t timeout_ms;
    const char *version;
} comm_tcp_config_t;
st_status_t comm_tcp_create(const comm_tcp_config_t *config, comm_t **out_comm) ST_WARN_UNUSED;
/* The same of the processes that mpirun started with this one: bytes go over MPI, by way of
 * libstator_mpi.so; the watch over lost ranks is TCP here too. */
st_status_t comm_mpi_create(int64_t timeout_ms, const char *version,
                            comm_t **out_comm) ST_WARN_UNUSED;
/* `inner`, and all groups made from it here, as if each rank's link had this latency and bandwidth
 * (0: as they are). For ranks of one host. Takes `inner` over on success. */
st_status_t comm_throttle_create(comm_t *inner, double latency_s, double bytes_per_s,
                                 comm_t **out_comm) ST_WARN_UNUSED;
/* The communicator of `n` ranks of `parent` (distinct; the caller's own is among them): rank i of
 * it is ranks[i] of the parent. Every member calls it with the same list, nobody else does; it does
 * not wait for the others. Members that make several communicators of one list make them in the
 * same order. The parent may be destroyed first. */
st_status_t comm_group_create(comm_t *parent, int n, const int *ranks,
                              comm_t **out_group) ST_WARN_UNUSED;
void comm_destroy(comm_t *comm); /* each handle once; NULL is fine */
int comm_rank(const comm_t *comm);
int comm_size(const comm_t *comm);

/* Sum over ranks, in place, of `n` segments: data[i] has elements[i] elements. The order of
 * addition is by rank, so all ranks get the same bits. */
st_status_t comm_all_reduce_start(comm_t *comm, uint32_t ticket, ir_dtype_t dtype, uint32_t n,
                                  void *const *data, const int64_t *elements) ST_WARN_UNUSED;

/* A tensor that is cut along one axis, and one rank's part of it, both dense: `outer` blocks, of
 * each of which rank r's part has parts[r] elements. */
typedef struct comm_segment {
    const void *in;
    void *out;
    int64_t outer;
    const int64_t *parts; /* [size of the communicator] */
    void *stage; /* room for the whole, which a communicator of a device needs where outer is
                           * not 1; others leave it alone */
} comm_segment_t;

/* Concatenation of parts: `in` is the own part, outer × parts[rank]; `out` receives the whole,
 * outer × sum(parts). */
st_status_t comm_all_gather_start(comm_t *comm, uint32_t ticket, ir_dtype_t dtype, uint32_t n,
                                  const comm_segment_t *segments) ST_WARN_UNUSED;
/* The own part of the sum: `in` is whole, outer × sum(parts); `out` receives outer × parts[rank].
 * Bits are those of an all-reduce of `in`. Where outer is 1, `out` may be the own part of `in`. */
st_status_t comm_reduce_scatter_start(comm_t *comm, uint32_t ticket, ir_dtype_t dtype, uint32_t n,
                                      const comm_segment_t *segments) ST_WARN_UNUSED;

/* One side of an all-to-all: a dense tensor of `outer` blocks, parts[r] elements of each of which
 * go to rank r, or come from it. */
typedef struct comm_side {
    int64_t outer;
    const int64_t *parts; /* [size of the communicator] */
    void *stage;          /* as a segment has it */
} comm_side_t;

/* Rank a's part for b, its pieces in order, becomes b's part from a: `in` and `out` may be cut
 * along different axes. The total of a part must be the same at both ends. */
st_status_t comm_all_to_all_start(comm_t *comm, uint32_t ticket, ir_dtype_t dtype, const void *in,
                                  comm_side_t from, void *out, comm_side_t to) ST_WARN_UNUSED;
/* Rank `root`'s data to all others. */
st_status_t comm_broadcast_start(comm_t *comm, uint32_t ticket, ir_dtype_t dtype, int root,
                                 uint32_t n, void *const *data,
                                 const int64_t *elements) ST_WARN_UNUSED;
/* The i-th send from a to b meets the i-th receive of b from a; element type and number must be
 * the same. Tickets are each rank's own and need not be the same at both ends. */
st_status_t comm_send_start(comm_t *comm, uint32_t ticket, int to, ir_dtype_t dtype,
                            const void *data, int64_t elements) ST_WARN_UNUSED;
st_status_t comm_receive_start(comm_t *comm, uint32_t ticket, int from, ir_dtype_t dtype,
                               void *data, int64_t elements) ST_WARN_UNUSED;

/* Blocks until the collective is complete on this rank. FAILs with ST_PEER_LOST naming the missing
 * ranks after the timeout. */
st_status_t comm_wait(comm_t *comm, uint32_t ticket) ST_WARN_UNUSED;
/* The same with a limit of its own, for what takes long while all ranks live. */
st_status_t comm_wait_for(comm_t *comm, uint32_t ticket, int64_t limit_ms) ST_WARN_UNUSED;

/* All ranks have the same facts, in the same order: else ST_RANKS_DISAGREE names the first rank and
 * fact that is not as on rank 0. Blocks; every rank calls it, with ticket 0 free. */
typedef struct comm_fact {
    const char *name, *value;
} comm_fact_t;
st_status_t comm_agree(comm_t *comm, size_t n, const comm_fact_t *facts) ST_WARN_UNUSED;

/* ---- communicators of a device ----
 *
 * Their collectives are work on the device's stream: a start is ordered behind what is there, a
 * wait lets the stream wait, and neither blocks the caller. Sums and their order are the library's:
 * the same bits on all ranks and in each run of the same ranks, not those of another number of
 * ranks. */
bool comm_on_device(const comm_t *comm);
/* Rank `peer` will be sent to (`sends`) or received from: the ends of a pair make the connection
 * together. All ranks go through their pairs in the same order. */
st_status_t comm_pair_open(comm_t *comm, int peer, bool sends) ST_WARN_UNUSED;
/* Around a step's work, of the rank's first communicator: `begin` before it is put on the stream,
 * `end` after the stream was synchronized. If another rank is lost meanwhile, or what is in flight
 * does not move for the timeout, the stream comes free and `end` FAILs with ST_PEER_LOST and the
 * cause. */
void comm_step_begin(comm_t *comm, uint64_t step);
st_status_t comm_step_end(comm_t *comm) ST_WARN_UNUSED;

/* ---- standing ---- */

/* ST_OK, or what every later call will return, with its reason; does not block. From any thread. */
st_status_t comm_check(const comm_t *comm, char *reason, size_t capacity) ST_WARN_UNUSED;
/* Says where the rank stands, for the others' message if it is lost: costs no system call. */
void comm_mark(comm_t *comm, uint64_t step, const char *op);
/* A rank that fails calls it: every call of the others fails with the reason, from now on; what
 * they wait for meanwhile may still be complete or not. Their status is ST_PEER_LOST, or
 * ST_RANKS_DISAGREE where that is `status`. */
void comm_abort(comm_t *comm, st_status_t status, const char *reason);

#endif
