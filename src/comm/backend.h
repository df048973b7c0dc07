/* What a communicator backend supplies. A backend is one folder of src/comm/ with a create function
 * and one comm_backend_t; its handle begins with a `comm_t`. comm.c has checked arguments: tickets,
 * ranks, sizes and element types are valid. */
#ifndef STATOR_COMM_BACKEND_H
#define STATOR_COMM_BACKEND_H

#include <time.h>

#include "comm/comm.h"

enum { COMM_MAX_TICKETS = 1 << 20 };

typedef enum comm_kind {
    COMM_NONE = 0,
    COMM_ALL_REDUCE,
    COMM_ALL_GATHER,
    COMM_REDUCE_SCATTER,
    COMM_ALL_TO_ALL,
    COMM_BROADCAST,
    COMM_SEND,
    COMM_RECEIVE,
    COMM_KIND_END
} comm_kind_t;

/* A collective as started on one rank. Numbers and data by kind:
 *   all-reduce       numbers: elements of each segment           data: a pointer a segment
 *   all-gather,      numbers: (outer, parts[size]) a segment     data: (in, out) a segment, then a
 *   reduce-scatter                                               stage a segment
 *   all-to-all       numbers: outer, parts[size] of `in`, then   data: in, out, their stages
 *                    the same of `out`
 *   broadcast        numbers: root, elements of each segment     data: a pointer a segment
 *   send, receive    numbers: peer, elements                     data: a pointer
 */
typedef struct comm_request {
    comm_kind_t kind;
    ir_dtype_t dtype;
    uint32_t n_segments, n_numbers, n_data;
    const int64_t *numbers;
    void *const *data;
} comm_request_t;

typedef struct comm_backend {
    const char *name;
    st_status_t (*group_create)(comm_t *parent, int n, const int *ranks, comm_t **out_group);
    /* Copies what it keeps of the request. */
    st_status_t (*start)(comm_t *comm, uint32_t ticket, const comm_request_t *request);
    st_status_t (*wait)(comm_t *comm, uint32_t ticket, int64_t limit_ms); /* 0: the usual limit */
    /* A started collective is complete, or has failed: its wait would not block. */
    bool (*done)(comm_t *comm, uint32_t ticket);
    void (*mark)(comm_t *comm, uint64_t step, const char *op); /* NULL: nobody asks */
    /* `status` is PEER_LOST or RANKS_DISAGREE. */
    void (*abort)(comm_t *comm, st_status_t status, const char *reason);
    void (*destroy)(comm_t *comm);
    st_status_t (*check)(const comm_t *comm, char *reason, size_t capacity);
    /* Of a device's communicators alone. */
    st_status_t (*pair_open)(comm_t *comm, int peer, bool sends);
    void (*step_begin)(comm_t *comm, uint64_t step);
    st_status_t (*step_end)(comm_t *comm);
} comm_backend_t;

struct comm {
    const comm_backend_t *backend;
    int rank, size;
    /* comm.c: where requests are put together; freed by comm_release */
    uint32_t cap_numbers, cap_data;
    int64_t *numbers;
    void **data;
};

/* Frees what comm.c keeps in the handle; a backend's destroy calls it. */
void comm_release(comm_t *comm);
/* When `ms` from now will have passed, by CLOCK_MONOTONIC. */
struct timespec comm_deadline(int64_t ms);
/* INVALID: a collective is started a second time before it has been waited for, or waited for
 * without having been started; `rank` as the user counts them. */
st_status_t comm_started_twice(int rank, uint32_t ticket);
st_status_t comm_not_started(int rank, uint32_t ticket);
const char *comm_kind_text(comm_kind_t kind); /* "all-reduce", … */

#endif
