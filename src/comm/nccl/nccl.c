/* Ranks with a GPU each, over NCCL.
 *
 * A start forks from the rank's stream to a lane, a wait joins back; nothing of it blocks the host,
 * so the whole of a step is recorded with its collectives in it:
 *
 *   stream   kernels ──┬─ kernels ─────────────────────┬─ kernels     (it waits for done[ticket])
 *   lane               └ mark, pack, call, unpack, mark ┘
 *
 * One lane carries every collective of the rank, in the order of their starts, which the plan
 * proves to be the same everywhere; so there is never a choice of which of two the card runs first.
 * Sends and receives have a lane and a communicator of two ranks for each direction, since a
 * transfer that waits for its peer must hold up nothing else (1F1B has sends one way while it waits
 * for the other way).
 *
 * Parts that lie apart (blocks of an outer dim) and parts of different sizes go through the stage
 * that the plan gives, as strided copies (moves.c). The ids by which the library's communicators
 * find each other travel over the host's communicator (open.c), whose failures a thread watches
 * (watch.c): it aborts what is in flight when a rank is lost or nothing moves, for a kernel that
 * waits for a peer waits for ever. */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "comm/nccl/internal.h"
#include "comm/nccl/lanes.h"

st_status_t nccl_fail(const nccl_rank_t *rank, ncclResult_t error, const char *call) {
    return FAIL(ST_DEVICE, "%.*s: %s (%s)", (int)strcspn(call, "("), call,
                rank->nccl->ncclGetErrorString(error), rank->nccl->ncclGetLastError(NULL));
}

/* ---- lanes ---- */

static st_status_t open_lane(nccl_rank_t *rank, nccl_lane_t **out) {
    if (rank->n_lanes == NCCL_MAX_LANES)
        return FAIL(
            ST_UNSUPPORTED,
            "a rank sends to and receives from more than %d others: that needs as many streams",
            NCCL_MAX_LANES - 1);
    nccl_lane_t *lane = &rank->lanes[rank->n_lanes];
    CUDA_TRY(cudaStreamCreateWithFlags(&lane->stream, cudaStreamNonBlocking));
    lane->word = rank->words + rank->n_lanes;
    lane->device_word = rank->device_words + rank->n_lanes;
    pthread_mutex_lock(&rank->mutex);
    rank->n_lanes++;
    pthread_mutex_unlock(&rank->mutex);
    *out = lane;
    return ST_OK;
}

/* ---- start and wait ---- */

/* The label of a ticket's collective, kept once. */
static st_status_t name_op(nccl_rank_t *rank, nccl_ticket_t *ticket) {
    if (ticket->op) return ST_OK;
    return nccl_label(rank, rank->next_op[0] ? rank->next_op : "a collective", &ticket->op);
}

static st_status_t take_ticket(nccl_comm_t *comm, uint32_t ticket, nccl_ticket_t **out) {
    if (ticket >= comm->n_tickets) {
        uint32_t need = 2 * (ticket + 1);
        nccl_ticket_t *tickets = st_realloc(comm->tickets, need * sizeof *tickets);
        if (!tickets) return st_no_memory(need * sizeof *tickets, "the table of collectives");
        memset(tickets + comm->n_tickets, 0, (need - comm->n_tickets) * sizeof *tickets);
        comm->tickets = tickets;
        comm->n_tickets = need;
    }
    nccl_ticket_t *taken = &comm->tickets[ticket];
    if (taken->active) return comm_started_twice(comm->rank->rank, ticket);
    if (!taken->done) CUDA_TRY(cudaEventCreateWithFlags(&taken->done, cudaEventDisableTiming));
    TRY(name_op(comm->rank, taken));
    *out = taken;
    return ST_OK;
}

static st_status_t lane_of(const nccl_comm_t *comm, const comm_request_t *request,
                           nccl_lane_t **out) {
    *out = comm->rank->lanes;
    if (request->kind != COMM_SEND && request->kind != COMM_RECEIVE) return ST_OK;
    const int peer = (int)request->numbers[0];
    const nccl_pair_t *pair =
        &comm->pairs[request->kind == COMM_SEND ? peer : comm->base.size + peer];
    if (!pair->comm)
        return FAIL(ST_INTERNAL, "rank %d has not opened its pair with rank %d", comm->base.rank,
                    peer);
    *out = pair->lane;
    return ST_OK;
}

static st_status_t issue(nccl_comm_t *comm, nccl_ticket_t *taken, const comm_request_t *request) {
    nccl_rank_t *rank = comm->rank;
    nccl_lane_t *lane = NULL;
    TRY(lane_of(comm, request, &lane));
    CUDA_TRY(cudaEventRecord(rank->fork, rank->stream->stream));
    CUDA_TRY(cudaStreamWaitEvent(lane->stream, rank->fork, 0));
    CUDA_TRY(lanes_mark(lane->device_word, taken->op, lane->stream));
    TRY(nccl_enter(rank));
    st_status_t status = nccl_move(comm, request);
    nccl_leave(rank);
    TRY(status);
    CUDA_TRY(lanes_mark(lane->device_word, 0, lane->stream));
    CUDA_TRY(cudaEventRecord(taken->done, lane->stream));
    return ST_OK;
}

/* ---- receives in a step that is not recorded ----
 *
 * The first step runs launch by launch, and a first launch may load code, for which the driver may
 * wait for all that runs on the card. A receive that waits there for a peer who waits for this rank
 * would never end; so it is issued where it is waited for, after those of its pair that were
 * started before. */

static bool is_put_off(const nccl_rank_t *rank, const comm_request_t *request) {
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    if (request->kind != COMM_RECEIVE) return false;
    return cudaStreamIsCapturing(rank->stream->stream, &status) == cudaSuccess &&
           status == cudaStreamCaptureStatusNone;
}

static st_status_t put_off(nccl_comm_t *comm, uint32_t ticket, const comm_request_t *request) {
    nccl_ticket_t *taken = &comm->tickets[ticket];
    nccl_pair_t *pair = &comm->pairs[comm->base.size + (int)request->numbers[0]];
    if (ST_VEC_PUSH(&pair->put_off, ticket) != ST_OK)
        return st_no_memory(sizeof ticket, "a collective");
    memcpy(taken->numbers, request->numbers, sizeof taken->numbers);
    taken->data[0] = request->data[0];
    taken->request = *request;
    return ST_OK;
}

/* Issues the receive of `ticket` if it has been put off, and those before it. */
static st_status_t catch_up(nccl_comm_t *comm, uint32_t ticket) {
    const nccl_ticket_t *last = &comm->tickets[ticket];
    size_t n = 0;
    if (last->request.kind != COMM_RECEIVE) return ST_OK; /* not put off */
    nccl_pair_t *pair = &comm->pairs[comm->base.size + (int)last->numbers[0]];
    while (n < pair->put_off.n && pair->put_off.data[n] != ticket) n++;
    if (n == pair->put_off.n) return ST_OK;
    for (size_t i = 0; i <= n; i++) {
        nccl_ticket_t *next = &comm->tickets[pair->put_off.data[i]];
        next->request.numbers = next->numbers; /* the table may have moved since */
        next->request.data = next->data;
        TRY(issue(comm, next, &next->request));
    }
    pair->put_off.n -= n + 1;
    memmove(pair->put_off.data, pair->put_off.data + n + 1, pair->put_off.n * sizeof ticket);
    return ST_OK;
}

static st_status_t nccl_start(comm_t *base, uint32_t ticket, const comm_request_t *request) {
    nccl_comm_t *comm = (nccl_comm_t *)base;
    nccl_ticket_t *taken = NULL;
    TRY(nccl_latched(comm->rank));
    TRY(take_ticket(comm, ticket, &taken));
    taken->request.kind = COMM_NONE;
    TRY(is_put_off(comm->rank, request) ? put_off(comm, ticket, request)
                                        : issue(comm, taken, request));
    taken->active = true;
    return ST_OK;
}

static st_status_t nccl_wait(comm_t *base, uint32_t ticket, int64_t limit_ms) {
    nccl_comm_t *comm = (nccl_comm_t *)base;
    nccl_ticket_t *taken = ticket < comm->n_tickets ? &comm->tickets[ticket] : NULL;
    (void)limit_ms; /* the step's end waits, for the usual limit */
    TRY(nccl_latched(comm->rank));
    if (!taken || !taken->active) return comm_not_started(comm->rank->rank, ticket);
    TRY(catch_up(comm, ticket));
    CUDA_TRY(cudaStreamWaitEvent(comm->rank->stream->stream, taken->done, 0));
    taken->active = false;
    return ST_OK;
}

static bool is_waiting_to_be_issued(const nccl_comm_t *comm, uint32_t ticket) {
    const nccl_ticket_t *taken = &comm->tickets[ticket];
    if (taken->request.kind != COMM_RECEIVE) return false;
    const nccl_pair_t *pair = &comm->pairs[comm->base.size + (int)taken->numbers[0]];
    for (size_t i = 0; i < pair->put_off.n; i++)
        if (pair->put_off.data[i] == ticket) return true;
    return false;
}

static bool nccl_done(comm_t *base, uint32_t ticket) {
    const nccl_comm_t *comm = (const nccl_comm_t *)base;
    const nccl_ticket_t *taken = ticket < comm->n_tickets ? &comm->tickets[ticket] : NULL;
    if (!taken || !taken->active) return true;
    return !is_waiting_to_be_issued(comm, ticket) && cudaEventQuery(taken->done) == cudaSuccess;
}

static void nccl_mark(comm_t *base, uint64_t step, const char *op) {
    nccl_rank_t *rank = ((nccl_comm_t *)base)->rank;
    (void)step;
    snprintf(rank->next_op, sizeof rank->next_op, "%s", op);
}

static st_status_t nccl_check(const comm_t *base, char *reason, size_t capacity) {
    nccl_rank_t *rank = ((const nccl_comm_t *)base)->rank;
    pthread_mutex_lock(&rank->mutex);
    st_status_t status = rank->failed;
    if (status != ST_OK) snprintf(reason, capacity, "%s", rank->reason);
    pthread_mutex_unlock(&rank->mutex);
    return status;
}

static void nccl_abort(comm_t *base, st_status_t status, const char *reason) {
    comm_abort(((nccl_comm_t *)base)->rank->host, status, reason);
}

static void nccl_step_begin(comm_t *base, uint64_t step) {
    nccl_rank_t *rank = ((nccl_comm_t *)base)->rank;
    pthread_mutex_lock(&rank->mutex);
    rank->step = step;
    rank->in_step = true;
    pthread_mutex_unlock(&rank->mutex);
}

static st_status_t nccl_step_end(comm_t *base) {
    nccl_rank_t *rank = ((nccl_comm_t *)base)->rank;
    pthread_mutex_lock(&rank->mutex);
    rank->in_step = false;
    pthread_mutex_unlock(&rank->mutex);
    return nccl_latched(rank);
}

/* ---- life ---- */

static void free_rank(nccl_rank_t *rank) {
    nccl_watch_stop(rank);
    for (uint32_t i = 0; i < rank->n_lanes; i++) cudaStreamDestroy(rank->lanes[i].stream);
    if (rank->fork) cudaEventDestroy(rank->fork);
    if (rank->words) cudaFreeHost(rank->words);
    for (size_t i = 0; i < rank->ops.n; i++) st_free(rank->ops.data[i]);
    ST_VEC_FREE(&rank->ops);
    ST_VEC_FREE(&rank->comms);
    comm_destroy(rank->host);
    pthread_cond_destroy(&rank->changed);
    pthread_mutex_destroy(&rank->mutex);
    st_free(rank);
}

/* The library's communicator is gone after an abort. */
static void free_comm(nccl_rank_t *rank, ncclComm_t comm) {
    bool there = false;
    pthread_mutex_lock(&rank->mutex);
    for (size_t i = 0; i < rank->comms.n; i++) {
        if (rank->comms.data[i] != comm) continue;
        rank->comms.data[i] = rank->comms.data[--rank->comms.n];
        there = true;
    }
    pthread_mutex_unlock(&rank->mutex);
    if (there) rank->nccl->ncclCommAbort(comm);
}

/* Everybody's kernels are through: they read each other's memory, and an abort takes it away. Then
 * there is nothing that a destroy, which waits for the others inside the library, would be needed
 * for. */
static void part(nccl_comm_t *comm) {
    int32_t one = 1;
    void *data = &one;
    const int64_t n = 1;
    pthread_mutex_lock(&comm->rank->mutex);
    const bool failed = comm->rank->failed != ST_OK;
    pthread_mutex_unlock(&comm->rank->mutex);
    if (failed || comm->base.size == 1) return;
    if (comm_all_reduce_start(comm->host, 0, IR_I32, 1, &data, &n) != ST_OK ||
        comm_wait(comm->host, 0) != ST_OK)
        st_clear_error();
}

static void nccl_destroy(comm_t *base) {
    nccl_comm_t *comm = (nccl_comm_t *)base;
    nccl_rank_t *rank = comm->rank;
    cudaSetDevice(rank->stream->index);
    part(comm);
    for (uint32_t t = 0; t < comm->n_tickets; t++)
        if (comm->tickets[t].done) cudaEventDestroy(comm->tickets[t].done);
    if (comm->comm) free_comm(rank, comm->comm);
    for (int i = 0; comm->pairs && i < 2 * base->size; i++) {
        if (comm->pairs[i].comm) free_comm(rank, comm->pairs[i].comm);
        ST_VEC_FREE(&comm->pairs[i].put_off);
    }
    if (comm->host != rank->host) comm_destroy(comm->host);
    st_free(comm->tickets);
    st_free(comm->pairs);
    comm_release(base);
    st_free(comm);
    if (--rank->n_handles == 0) free_rank(rank);
}

static st_status_t nccl_group_create(comm_t *parent, int n, const int *ranks, comm_t **out);
static st_status_t nccl_pair_open(comm_t *base, int peer, bool sends);

static const comm_backend_t backend = {
    .name = "nccl",
    .group_create = nccl_group_create,
    .start = nccl_start,
    .wait = nccl_wait,
    .done = nccl_done,
    .mark = nccl_mark,
    .abort = nccl_abort,
    .check = nccl_check,
    .destroy = nccl_destroy,
    .pair_open = nccl_pair_open,
    .step_begin = nccl_step_begin,
    .step_end = nccl_step_end,
};

static st_status_t nccl_pair_open(comm_t *base, int peer, bool sends) {
    nccl_comm_t *comm = (nccl_comm_t *)base;
    nccl_pair_t *pair = &comm->pairs[sends ? peer : base->size + peer];
    if (pair->comm) return ST_OK;
    TRY(open_lane(comm->rank, &pair->lane));
    return nccl_open_pair(comm->rank, comm->host, peer, sends, pair->lane, &pair->comm);
}

/* Takes `host` over on success. */
static st_status_t make_handle(nccl_rank_t *rank, comm_t *host, comm_t **out) {
    nccl_comm_t *comm = st_calloc(1, sizeof *comm);
    if (!comm) return st_no_memory(sizeof *comm, "a communicator");
    *comm = (nccl_comm_t){
        .base = {.backend = &backend, .rank = comm_rank(host), .size = comm_size(host)},
        .rank = rank,
        .host = host,
        .pairs = st_calloc(2 * (size_t)comm_size(host), sizeof *comm->pairs)};
    st_status_t status = comm->pairs ? ST_OK : st_no_memory(0, "a communicator");
    if (status == ST_OK && comm_size(host) > 1) status = nccl_open(rank, host, &comm->comm);
    if (status != ST_OK) {
        st_free(comm->pairs);
        st_free(comm);
        return status;
    }
    rank->n_handles++;
    *out = &comm->base;
    return ST_OK;
}

static st_status_t nccl_group_create(comm_t *parent, int n, const int *ranks, comm_t **out) {
    nccl_comm_t *from = (nccl_comm_t *)parent;
    comm_t *host = NULL;
    TRY(comm_group_create(from->host, n, ranks, &host));
    st_status_t status = make_handle(from->rank, host, out);
    if (status != ST_OK) comm_destroy(host);
    return status;
}

static st_status_t open_rank(nccl_rank_t *rank) {
    nccl_lane_t *lane;
    TRY(dev_cuda_nccl(&rank->nccl));
    CUDA_TRY(cudaSetDevice(rank->stream->index));
    const size_t bytes = (NCCL_MAX_LANES + 1) * sizeof *rank->words;
    CUDA_TRY(cudaHostAlloc((void **)&rank->words, bytes, cudaHostAllocMapped));
    memset(rank->words, 0, bytes);
    CUDA_TRY(cudaHostGetDevicePointer((void **)&rank->device_words, rank->words, 0));
    CUDA_TRY(cudaEventCreateWithFlags(&rank->fork, cudaEventDisableTiming));
    TRY(open_lane(rank, &lane));
    return nccl_watch(rank);
}

st_status_t dev_cuda_collectives(dev_stream_t *stream, comm_t *host, int64_t timeout_ms,
                                 comm_t **out_comm) {
    *out_comm = NULL;
    nccl_rank_t *rank = st_calloc(1, sizeof *rank);
    if (!rank) return st_no_memory(sizeof *rank, "a communicator");
    *rank = (nccl_rank_t){
        .stream = stream, .host = host, .rank = comm_rank(host), .timeout_ms = timeout_ms};
    pthread_mutex_init(&rank->mutex, NULL);
    pthread_cond_init(&rank->changed, NULL);
    st_status_t status = open_rank(rank);
    if (status == ST_OK) status = make_handle(rank, host, out_comm);
    if (status == ST_OK) return ST_OK;
    rank->host = NULL; /* stays the caller's */
    free_rank(rank);
    return status;
}
