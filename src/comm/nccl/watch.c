/* The watch over a rank's collectives.
 *
 * A collective whose peer never comes is a kernel that never ends, and who waits for the stream
 * waits with it. So a thread looks, some fifty times a second, whether the host's communicator has
 * failed (a rank has died, gave up, or is silent), whether the library has, and whether any lane
 * has been at one collective for longer than the limit. Then it says so to the other ranks, latches
 * the cause and aborts what is in flight, by which the stream comes free. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "comm/nccl/internal.h"

enum { LOOK_MS = 20, TELL_MS = 100 };

static int64_t now_ms(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (int64_t)at.tv_sec * 1000 + at.tv_nsec / 1000000;
}

st_status_t nccl_latched(nccl_rank_t *rank) {
    pthread_mutex_lock(&rank->mutex);
    st_status_t status = rank->failed == ST_OK ? ST_OK : FAIL(rank->failed, "%s", rank->reason);
    pthread_mutex_unlock(&rank->mutex);
    return status;
}

st_status_t nccl_enter(nccl_rank_t *rank) {
    pthread_mutex_lock(&rank->mutex);
    st_status_t status = rank->failed == ST_OK ? ST_OK : FAIL(rank->failed, "%s", rank->reason);
    rank->in_call = status == ST_OK;
    pthread_mutex_unlock(&rank->mutex);
    return status;
}

void nccl_leave(nccl_rank_t *rank) {
    pthread_mutex_lock(&rank->mutex);
    rank->in_call = false;
    pthread_mutex_unlock(&rank->mutex);
}

void nccl_wait_begin(nccl_rank_t *rank, const nccl_lane_t *lane, uint32_t op) {
    pthread_mutex_lock(&rank->mutex);
    __atomic_store_n(lane->word, op, __ATOMIC_RELEASE);
    rank->in_step = true;
    pthread_mutex_unlock(&rank->mutex);
}

void nccl_wait_end(nccl_rank_t *rank, const nccl_lane_t *lane) {
    pthread_mutex_lock(&rank->mutex);
    __atomic_store_n(lane->word, 0, __ATOMIC_RELEASE);
    rank->in_step = false;
    pthread_mutex_unlock(&rank->mutex);
}

st_status_t nccl_label(nccl_rank_t *rank, const char *label, uint32_t *out_op) {
    char *copy = st_strdup(label);
    *out_op = 0;
    if (!copy) return st_no_memory(strlen(label), "a collective");
    pthread_mutex_lock(&rank->mutex);
    st_status_t status = ST_VEC_PUSH(&rank->ops, copy);
    if (status == ST_OK) *out_op = (uint32_t)rank->ops.n;
    pthread_mutex_unlock(&rank->mutex);
    if (status == ST_OK) return ST_OK;
    st_free(copy);
    return st_no_memory(strlen(label), "a collective");
}

/* ---- giving up ---- */

typedef struct ending {
    nccl_rank_t *rank;
    ncclComm_t comm;
} ending_t;

static void *abort_main(void *argument) {
    ending_t ending = *(ending_t *)argument;
    st_free(argument);
    cudaSetDevice(ending.rank->stream->index);
    ending.rank->nccl->ncclCommAbort(ending.comm);
    pthread_mutex_lock(&ending.rank->mutex);
    ending.rank->n_aborting--;
    pthread_cond_broadcast(&ending.rank->changed);
    pthread_mutex_unlock(&ending.rank->mutex);
    return NULL;
}

/* An abort stops what is in flight at once, then waits until no recorded step has the communicator,
 * so each has a thread of its own: the stream may be held up by any of them. The mutex is held. */
static void abort_all(nccl_rank_t *rank) {
    while (rank->comms.n) {
        pthread_t thread;
        ending_t *ending = st_malloc(sizeof *ending);
        ncclComm_t comm = rank->comms.data[--rank->comms.n];
        if (ending) *ending = (ending_t){rank, comm};
        if (!ending || pthread_create(&thread, NULL, abort_main, ending) != 0) {
            st_free(ending); /* its kernels go on: the process's end takes them */
            continue;
        }
        pthread_detach(thread);
        rank->n_aborting++;
    }
}

/* The mutex is held. The rank's own thread gets a moment to leave the library; if it waits in
 * there, the abort brings it back with an error. */
static void give_up(nccl_rank_t *rank, st_status_t status, const char *reason) {
    enum { MOMENT_MS = 200 };
    rank->failed = status;
    snprintf(rank->reason, sizeof rank->reason, "%s", reason);
    for (int waited = 0; rank->in_call && waited < MOMENT_MS; waited++) {
        pthread_mutex_unlock(&rank->mutex);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        pthread_mutex_lock(&rank->mutex);
    }
    abort_all(rank);
}

/* The label of what the lane is at, NULL if that is nothing. The mutex is held. */
static const char *place_of(const nccl_rank_t *rank, uint32_t word) {
    return word && word <= rank->ops.n ? rank->ops.data[word - 1] : NULL;
}

/* The first lane that has not moved for the limit. The mutex is held. */
static const nccl_lane_t *stuck(nccl_rank_t *rank, uint64_t *step, int64_t now) {
    const nccl_lane_t *found = NULL;
    const bool restarted = *step != rank->step;
    *step = rank->step;
    for (uint32_t i = 0; i < rank->n_lanes; i++) {
        nccl_lane_t *lane = &rank->lanes[i];
        const uint32_t word = __atomic_load_n(lane->word, __ATOMIC_ACQUIRE);
        if (word != lane->seen || restarted || !word || !rank->in_step) lane->since_ms = now;
        lane->seen = word;
        if (!found && now - lane->since_ms >= rank->timeout_ms) found = lane;
    }
    return found;
}

static bool library_failed(const nccl_rank_t *rank, char *reason, size_t capacity) {
    for (size_t i = 0; i < rank->comms.n; i++) {
        ncclResult_t error = ncclSuccess;
        if (rank->nccl->ncclCommGetAsyncError(rank->comms.data[i], &error) == ncclSuccess &&
            (error == ncclSuccess || error == ncclInProgress))
            continue;
        snprintf(reason, capacity, "NCCL: %s (%s)", rank->nccl->ncclGetErrorString(error),
                 rank->nccl->ncclGetLastError(rank->comms.data[i]));
        return true;
    }
    return false;
}

/* The mutex is held; it is given up while others are told. */
static void look(nccl_rank_t *rank, uint64_t *step, int64_t *told_ms) {
    char reason[NCCL_REASON_BYTES] = "";
    const int64_t now = now_ms();
    st_status_t status = comm_check(rank->host, reason, sizeof reason);
    const nccl_lane_t *lane = stuck(rank, step, now);
    if (status == ST_OK && library_failed(rank, reason, sizeof reason)) status = ST_DEVICE;
    if (status == ST_OK && lane) {
        snprintf(reason, sizeof reason, "%s has waited %lld ms for the other ranks at step %llu",
                 place_of(rank, lane->seen), (long long)(now - lane->since_ms),
                 (unsigned long long)rank->step);
        status = ST_PEER_LOST;
    }
    if (status != ST_OK) {
        comm_abort(rank->host, status, reason); /* a host that has failed keeps its own cause */
        give_up(rank, status, reason);
        return;
    }
    if (!rank->in_step || now - *told_ms < TELL_MS) return;
    const char *place = NULL;
    for (uint32_t i = 0; i < rank->n_lanes && !place; i++)
        place = place_of(rank, rank->lanes[i].seen);
    comm_mark(rank->host, rank->step, place ? place : "between collectives");
    *told_ms = now;
}

static void *watch_main(void *argument) {
    nccl_rank_t *rank = argument;
    uint64_t step = 0;
    int64_t told_ms = 0;
    cudaSetDevice(rank->stream->index);
    pthread_mutex_lock(&rank->mutex);
    while (!rank->stop && rank->failed == ST_OK) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += LOOK_MS * 1000000L;
        until.tv_sec += until.tv_nsec / 1000000000L;
        until.tv_nsec %= 1000000000L;
        if (pthread_cond_timedwait(&rank->changed, &rank->mutex, &until) == ETIMEDOUT)
            look(rank, &step, &told_ms);
    }
    pthread_mutex_unlock(&rank->mutex);
    return NULL;
}

st_status_t nccl_watch(nccl_rank_t *rank) {
    if (pthread_create(&rank->thread, NULL, watch_main, rank) != 0)
        return FAIL(ST_NO_MEMORY, "no thread to watch the collectives");
    rank->has_thread = true;
    return ST_OK;
}

void nccl_watch_stop(nccl_rank_t *rank) {
    if (!rank->has_thread) return;
    pthread_mutex_lock(&rank->mutex);
    rank->stop = true;
    pthread_cond_broadcast(&rank->changed);
    pthread_mutex_unlock(&rank->mutex);
    pthread_join(rank->thread, NULL);
    rank->has_thread = false;
    pthread_mutex_lock(&rank->mutex);
    while (rank->n_aborting) pthread_cond_wait(&rank->changed, &rank->mutex);
    pthread_mutex_unlock(&rank->mutex);
}
