/* Ranks that have a GPU each: what the files of the communicator share. nccl.c has the picture. */
#ifndef STATOR_COMM_NCCL_INTERNAL_H
#define STATOR_COMM_NCCL_INTERNAL_H

#include <pthread.h>

#include "base/vec.h"
#include "comm/backend.h"
#include "device/cuda/libraries.h"

enum { NCCL_REASON_BYTES = 512, NCCL_MAX_LANES = 1024 };

/* A stream of collectives. What it is at, a ticket of a communicator, is in host memory. */
typedef struct nccl_lane {
    cudaStream_t stream;
    uint32_t *word, *device_word; /* 0: nothing in flight; else index + 1 in nccl_rank.ops */
    /* the watch's own */
    uint32_t seen;
    int64_t since_ms;
} nccl_lane_t;

/* What all communicators of one rank share. */
typedef struct nccl_rank {
    dev_stream_t *stream;
    const dev_cuda_nccl_t *nccl;
    comm_t *host; /* of all ranks: ids go over it, and failures */
    int rank, n_handles;
    int64_t timeout_ms;
    uint32_t *words, *device_words; /* [NCCL_MAX_LANES], mapped; then one for first transfers */
    uint32_t n_lanes;
    nccl_lane_t lanes[NCCL_MAX_LANES]; /* the first: all collectives but those of pairs */
    cudaEvent_t fork;
    char next_op[160]; /* who starts the next collective */
    bool has_thread;
    pthread_t thread;
    pthread_mutex_t mutex; /* of what follows */
    pthread_cond_t changed;
    ST_VEC(ncclComm_t) comms;    /* to be aborted */
    ST_VEC(char *) ops;          /* labels of what lanes are at */
    bool stop, in_step, in_call; /* in_call: the rank's own thread is inside the library */
    int n_aborting;
    uint64_t step;
    st_status_t failed;
    char reason[NCCL_REASON_BYTES];
} nccl_rank_t;

/* One direction between two ranks. */
typedef struct nccl_pair {
    ncclComm_t comm; /* NULL: not opened */
    nccl_lane_t *lane;
    ST_VEC(uint32_t)
    put_off; /* tickets of receives that have been started but not issued, oldest first */
} nccl_pair_t;

typedef struct nccl_ticket {
    bool active;
    cudaEvent_t done;
    uint32_t op; /* in nccl_rank.ops */
    /* of a receive that is put off */
    comm_request_t request;
    int64_t numbers[2];
    void *data[1];
} nccl_ticket_t;

typedef struct nccl_comm {
    comm_t base;
    nccl_rank_t *rank;
    comm_t *host;       /* of the group */
    ncclComm_t comm;    /* NULL: the group is this rank alone */
    nccl_pair_t *pairs; /* [2 × size]: sends to, receives from */
    uint32_t n_tickets;
    nccl_ticket_t *tickets;
} nccl_comm_t;

/* FAILs with what the library says of its last error. */
st_status_t nccl_fail(const nccl_rank_t *rank, ncclResult_t error, const char *call);
#define NCCL_TRY(rank_, call)                                                          \
    do {                                                                               \
        ncclResult_t nccl_error_ = (rank_)->nccl->call;                                \
        if (nccl_error_ != ncclSuccess) return nccl_fail((rank_), nccl_error_, #call); \
    } while (0)

/* ---- moves.c ---- */
/* Puts the collective on the stream: pieces into the stage where they lie apart, the library's
 * call, pieces from there. */
st_status_t nccl_move(nccl_comm_t *comm, const comm_request_t *request);

/* ---- open.c ---- */
/* The library's communicator of the members of `host`, which is made by all of them together. */
st_status_t nccl_open(nccl_rank_t *rank, comm_t *host, ncclComm_t *out);
/* The same of two of them, connected by a first transfer on the lane: the library makes connections
 * in the first call of each end, which waits for the other's. */
st_status_t nccl_open_pair(nccl_rank_t *rank, comm_t *host, int peer, bool sends,
                           const nccl_lane_t *lane, ncclComm_t *out);

/* ---- watch.c ---- */
st_status_t nccl_watch(nccl_rank_t *rank);
void nccl_watch_stop(nccl_rank_t *rank);
/* The failure as latched; ST_OK if there is none. */
st_status_t nccl_latched(nccl_rank_t *rank);
/* Around calls of the library on the rank's own thread; `enter` FAILs with the failure as
 * latched. */
st_status_t nccl_enter(nccl_rank_t *rank);
void nccl_leave(nccl_rank_t *rank);
/* While connections are made nothing else tells the watch that somebody waits, and where. */
void nccl_wait_begin(nccl_rank_t *rank, const nccl_lane_t *lane, uint32_t op);
void nccl_wait_end(nccl_rank_t *rank, const nccl_lane_t *lane);
/* A label's number, for lanes to show. */
st_status_t nccl_label(nccl_rank_t *rank, const char *label, uint32_t *out_op);

#endif
