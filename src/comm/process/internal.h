/* The engine's own: collectives as messages (moves.c), the thread that moves them (progress.c), and
 * what callers see (process.c). */
#ifndef STATOR_COMM_PROCESS_INTERNAL_H
#define STATOR_COMM_PROCESS_INTERNAL_H

#include <pthread.h>

#include "base/vec.h"
#include "comm/backend.h"
#include "comm/process/process.h"

enum { PROCESS_REASON_BYTES = CONTROL_TEXT_BYTES };

typedef struct process process_t;
typedef struct process_op process_op_t;

/* One message to or from a member. */
typedef struct process_move {
    process_op_t *op;
    int member, peer; /* in the group, in the world */
    bool send, flying, done;
    uint8_t phase;
    bool ready;   /* send: the data is there; receive: its buffer is free */
    bool granted; /* send: the note has come */
    uint32_t slot, to;
    void *data; /* the user's memory where that is one piece, else staging */
    bool staged;
    size_t bytes;
} process_move_t;

struct process_op {
    process_t *process;
    const struct process_comm *comm; /* outlives the op */
    /* the request, copied */
    comm_request_t request;
    uint32_t cap_numbers, cap_data;
    int64_t *numbers;
    void **data;
    /* who meets whom */
    uint64_t group, check;
    uint32_t ticket, sequence;
    bool pair;
    /* guarded by the process's mutex */
    bool done;
    int64_t late_ms;    /* the caller has waited so long */
    process_op_t *next; /* in the queue */
    /* the thread's own */
    bool told, summed;
    int64_t *bounds; /* all-reduce: [size + 1], rank r sums elements bounds[r] … bounds[r + 1];
                      * NULL: everybody sums all */
    int64_t *bounds_room;
    const void **ins;                    /* [size]: scratch of a sum */
    bool *seen;                          /* [size]: has shown that it has started */
    uint32_t n_moves, cap_moves, n_left; /* n_left: not done */
    uint32_t n_to_sum;                   /* messages to be summed that have not come */
    process_move_t *moves;
    ST_VEC(void *) staging;
};

typedef struct process_buffer {
    void *data;
    size_t bytes;
    bool used;
} process_buffer_t;

typedef struct process_early {
    int peer;
    process_note_t note;
} process_early_t;

typedef struct process_count {
    uint64_t list; /* hash of a list of ranks */
    uint32_t n;
} process_count_t;

struct process {
    int rank, size, n_handles;
    int64_t timeout_ms;
    transport_t *transport;
    control_t *control;
    pthread_t thread;
    bool has_thread;
    ST_VEC(process_count_t) groups; /* made so far, by list of ranks */
    pthread_mutex_t mutex;          /* of what follows */
    pthread_cond_t changed;
    bool stop, quiet; /* quiet: the thread no longer touches anybody's memory */
    st_status_t failed;
    char reason[PROCESS_REASON_BYTES];
    process_op_t *first, *last; /* started, not yet seen by the thread */
    ST_VEC(process_op_t *) idle;
    /* the thread's own */
    ST_VEC(process_op_t *) running;
    ST_VEC(process_move_t *) slots;
    ST_VEC(uint32_t) free_slots;
    ST_VEC(process_early_t) early;
    ST_VEC(process_buffer_t) buffers;
    int64_t *lost_ms; /* [size]: when the peer's connection closed; 0: it is open */
};

typedef struct process_comm {
    comm_t base;
    process_t *process;
    uint64_t id;
    int *ranks;            /* [size]: in the world */
    uint32_t n_collective; /* started so far: all members count alike */
    uint32_t *n_pairs;     /* [2 × size]: sends to, receives from a member so far */
    uint32_t n_ops;
    process_op_t **ops; /* [ticket]: NULL where none is in flight */
    uint32_t n_active;
} process_comm_t;

/* ---- moves.c: on the engine's thread ---- */
/* Messages of the op, own parts copied, what is sent packed. */
st_status_t moves_plan(process_op_t *op) ST_WARN_UNUSED;
/* A message has come: it goes where it belongs unless it is to be summed. */
void moves_unpack(const process_move_t *move);
/* All to be summed is there: sums, and makes the second phase's messages ready. */
void moves_sum(process_op_t *op);
void moves_release(process_op_t *op);

/* ---- progress.c ---- */
void *progress_main(void *process);
/* Latches the first failure and wakes everyone. Any thread, without the mutex. */
void process_fail(process_t *process, st_status_t status, const char *reason);

#endif
