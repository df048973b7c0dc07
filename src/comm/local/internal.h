/* What the files of the local communicator share; local.c has the picture. */
#ifndef STATOR_COMM_LOCAL_INTERNAL_H
#define STATOR_COMM_LOCAL_INTERNAL_H

#include <pthread.h>

#include "comm/backend.h"

enum { LOCAL_CHUNK_ELEMENTS = 1 << 15, LOCAL_REASON_BYTES = 512 };

/* What one rank brings to a collective. */
typedef struct local_part {
    bool published;
    uint32_t cap_data, cap_numbers;
    void **data;
    int64_t *numbers; /* all-to-all: each rank has its own */
} local_part_t;

typedef struct local_slot {
    comm_kind_t kind; /* COMM_NONE: free */
    ir_dtype_t dtype;
    uint32_t n_segments, n_numbers, cap_numbers;
    int64_t *numbers; /* what all ranks agree on; none of an all-to-all */
    int64_t total;    /* all-reduce: elements of all segments */
    int n_published, n_left;
    int64_t n_chunks, n_taken, n_done;
    local_part_t *parts; /* [size] */
} local_slot_t;

/* A rank's end of a transfer between two ranks. */
typedef struct local_end {
    bool active, done;
    comm_kind_t kind;
    ir_dtype_t dtype;
    int peer;
    int64_t elements;
    void *data;
} local_end_t;

/* Ends of one kind from one rank to another that have not met yet: tickets, oldest first. */
typedef struct local_queue {
    uint32_t n, cap;
    uint32_t *tickets;
} local_queue_t;

typedef struct local_world local_world_t;
typedef struct local local_t;

typedef struct local_group {
    local_world_t *world;
    int size, n_joined, n_handles;
    int *ranks;        /* [size]: in the world */
    local_t **members; /* [size]: NULL before and after */
    bool *joined;      /* [size] */
    uint32_t n_slots;  /* two a ticket */
    local_slot_t **slots;
    local_queue_t *queues; /* [2 × size × size]: sends, receives; by (from, to) */
    struct local_group *next;
} local_group_t;

struct local_world {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int n_handles, n_working; /* n_working: chunks being worked on */
    int64_t timeout_ms;
    st_status_t failed;
    char reason[LOCAL_REASON_BYTES];
    local_group_t *groups;
};

struct local {
    comm_t base;
    local_group_t *group;
    uint32_t n_uses;   /* length of uses and ends */
    uint8_t *uses;     /* [ticket]: parity of this rank's next use */
    local_end_t *ends; /* [ticket] */
    uint32_t n_ends;   /* active ones */
    uint32_t *pending; /* slots started and not waited for, oldest first */
    uint32_t n_pending, cap_pending;
    void **buffers; /* [size]: scratch of a chunk */
};

/* The mutex is held wherever these are called. */

/* Latches the first failure and wakes everyone. */
void local_latch(local_world_t *world, st_status_t status, const char *reason);
/* Sums and copies one chunk of a slot that every rank has published. Called without the mutex. */
void local_chunk(local_t *local, const local_slot_t *slot, int64_t chunk);
int64_t local_chunk_count(const local_slot_t *slot, int size);
/* Enters a send or receive; meets the other end if it is there. The mutex is free in between. */
st_status_t local_pair_start(local_t *local, uint32_t ticket,
                             const comm_request_t *request) ST_WARN_UNUSED;

#endif
