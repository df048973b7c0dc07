/* Ranks that are processes: what their callers see. Start hands the request to the engine's thread
 * (progress.c), wait sleeps until that has done it or the watch (control.c) knows why it never will
 * be. */
#include "comm/process/process.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/hash.h"
#include "base/memory.h"
#include "comm/process/internal.h"

static st_status_t latched(const process_t *process) {
    return FAIL(process->failed, "%s", process->reason);
}

/* The mutex is held. */
static void wait_until_quiet(process_t *process) {
    while (!process->quiet) pthread_cond_wait(&process->changed, &process->mutex);
}

/* ---- start ---- */

static st_status_t grow(void **array, uint32_t *cap, uint32_t need, size_t size) {
    if (need <= *cap) return ST_OK;
    void *grown = st_realloc(*array, need * size);
    if (!grown) return st_no_memory(need * size, "a collective");
    *array = grown;
    *cap = need;
    return ST_OK;
}

static st_status_t grow_tickets(process_comm_t *comm, uint32_t ticket) {
    uint32_t old = comm->n_ops;
    if (ticket < old) return ST_OK;
    TRY(grow((void **)&comm->ops, &comm->n_ops, 2 * (ticket + 1), sizeof *comm->ops));
    memset((void *)(comm->ops + old), 0, (comm->n_ops - old) * sizeof *comm->ops);
    return ST_OK;
}

static bool is_pair(comm_kind_t kind) {
    return kind == COMM_SEND || kind == COMM_RECEIVE;
}

/* A hash of all that must be the same on every member. */
static uint64_t check_of(const comm_request_t *request) {
    uint32_t head[3] = {(uint32_t)request->kind, (uint32_t)request->dtype, request->n_segments};
    if (is_pair(request->kind)) head[0] = COMM_SEND;
    uint64_t hash = st_hash64(head, sizeof head, 0);
    if (is_pair(request->kind) || request->kind == COMM_ALL_TO_ALL) return hash;
    return st_hash64(request->numbers, request->n_numbers * sizeof *request->numbers, hash);
}

static st_status_t fill_op(process_op_t *op, process_comm_t *comm, uint32_t ticket,
                           const comm_request_t *request) {
    TRY(grow((void **)&op->numbers, &op->cap_numbers, request->n_numbers, sizeof *op->numbers));
    TRY(grow((void **)&op->data, &op->cap_data, request->n_data, sizeof *op->data));
    if (request->n_numbers)
        memcpy(op->numbers, request->numbers, request->n_numbers * sizeof *op->numbers);
    if (request->n_data) memcpy(op->data, request->data, request->n_data * sizeof *op->data);
    op->request = *request;
    op->request.numbers = op->numbers;
    op->request.data = op->data;
    op->process = comm->process;
    op->comm = comm;
    op->group = comm->id;
    op->check = check_of(request);
    op->ticket = ticket;
    op->pair = is_pair(request->kind);
    op->done = false;
    op->late_ms = 0;
    op->next = NULL;
    if (!op->pair)
        op->sequence = comm->n_collective++;
    else
        op->sequence = comm->n_pairs[(request->kind == COMM_RECEIVE ? comm->base.size : 0) +
                                     (int)request->numbers[0]]++;
    return ST_OK;
}

static void free_op(process_op_t *op) {
    if (!op) return;
    st_free(op->numbers);
    st_free((void *)op->data);
    st_free(op->bounds_room);
    st_free((void *)op->ins);
    st_free(op->seen);
    st_free(op->moves);
    ST_VEC_FREE(&op->staging);
    st_free(op);
}

static st_status_t take_op(process_t *process, process_op_t **out) {
    if (process->idle.n) {
        *out = process->idle.data[--process->idle.n];
        return ST_OK;
    }
    *out = st_calloc(1, sizeof **out);
    return *out ? ST_OK : st_no_memory(sizeof **out, "a collective");
}

static st_status_t process_start(comm_t *base, uint32_t ticket, const comm_request_t *request) {
    process_comm_t *comm = (process_comm_t *)base;
    process_t *process = comm->process;
    process_op_t *op = NULL;
    TRY(grow_tickets(comm, ticket));
    pthread_mutex_lock(&process->mutex);
    st_status_t status = ST_OK;
    if (process->failed !=
        ST_OK) { /* before all else: a step that was lost leaves its tickets taken */
        wait_until_quiet(process);
        status = latched(process);
    } else if (comm->ops[ticket]) {
        status = comm_started_twice(process->rank, ticket);
    } else {
        status = take_op(process, &op);
    }
    pthread_mutex_unlock(&process->mutex);
    TRY(status);
    status = fill_op(op, comm, ticket, request);
    if (status != ST_OK) {
        free_op(op);
        return status;
    }
    comm->ops[ticket] = op;
    comm->n_active++;
    pthread_mutex_lock(&process->mutex);
    if (process->last)
        process->last->next = op;
    else
        process->first = op;
    process->last = op;
    pthread_mutex_unlock(&process->mutex);
    process->transport->ops->wake(process->transport);
    return ST_OK;
}

/* ---- wait ---- */

static st_status_t process_wait(comm_t *base, uint32_t ticket, int64_t limit_ms) {
    enum { LAST_WORD_MS = 2000 };
    process_comm_t *comm = (process_comm_t *)base;
    process_t *process = comm->process;
    process_op_t *op = ticket < comm->n_ops ? comm->ops[ticket] : NULL;
    if (limit_ms <= 0) limit_ms = process->timeout_ms;
    struct timespec deadline = comm_deadline(limit_ms);
    st_status_t status = ST_OK;
    bool nobody_says = false;
    pthread_mutex_lock(&process->mutex);
    if (!op && process->failed == ST_OK) {
        pthread_mutex_unlock(&process->mutex);
        return comm_not_started(process->rank, ticket);
    }
    while (process->failed == ST_OK && !op->done && !nobody_says) {
        if (pthread_cond_timedwait(&process->changed, &process->mutex, &deadline) != ETIMEDOUT)
            continue;
        /* the thread tells the others whom this waits for, and the answer fails the process */
        nobody_says = op->late_ms != 0;
        op->late_ms = limit_ms;
        deadline = comm_deadline(LAST_WORD_MS);
    }
    bool complete = op && op->done; /* also where something else has failed since */
    if (complete) {
        comm->ops[ticket] = NULL;
        comm->n_active--;
        if (ST_VEC_PUSH(&process->idle, op) != ST_OK) free_op(op);
    } else if (process->failed == ST_OK) {
        pthread_mutex_unlock(&process->mutex);
        process_fail(process, ST_PEER_LOST, "a collective does not end, and nobody says why");
        pthread_mutex_lock(&process->mutex);
    }
    if (!complete) {
        wait_until_quiet(process);
        status = latched(process);
    }
    pthread_mutex_unlock(&process->mutex);
    return status;
}

static bool process_done(comm_t *base, uint32_t ticket) {
    process_comm_t *comm = (process_comm_t *)base;
    process_t *process = comm->process;
    const process_op_t *op = ticket < comm->n_ops ? comm->ops[ticket] : NULL;
    pthread_mutex_lock(&process->mutex);
    bool done = process->failed != ST_OK || !op || op->done;
    pthread_mutex_unlock(&process->mutex);
    return done;
}

static void on_fail(void *context, st_status_t status, const char *text) {
    process_fail(context, status, text);
}

static void process_abort(comm_t *base, st_status_t status, const char *reason) {
    process_t *process = ((process_comm_t *)base)->process;
    char text[PROCESS_REASON_BYTES];
    snprintf(text, sizeof text, "rank %d gave up: %s", process->rank, reason);
    control_report(process->control, status, -1, text);
}

static st_status_t process_check(const comm_t *base, char *reason, size_t capacity) {
    process_t *process = ((const process_comm_t *)base)->process;
    pthread_mutex_lock(&process->mutex);
    st_status_t status = process->failed;
    if (status != ST_OK) snprintf(reason, capacity, "%s", process->reason);
    pthread_mutex_unlock(&process->mutex);
    return status;
}

static void process_mark(comm_t *base, uint64_t step, const char *op) {
    control_mark(((process_comm_t *)base)->process->control, step, op);
}

/* ---- life ---- */

static void process_free(process_t *process) {
    if (process->has_thread) {
        pthread_mutex_lock(&process->mutex);
        process->stop = true;
        pthread_mutex_unlock(&process->mutex);
        process->transport->ops->wake(process->transport);
        pthread_join(process->thread, NULL);
    }
    control_close(process->control);
    if (process->transport)
        process->transport->ops->close(process->transport, process->failed == ST_OK);
    for (size_t i = 0; i < process->idle.n; i++) free_op(process->idle.data[i]);
    for (size_t i = 0; i < process->buffers.n; i++) st_free(process->buffers.data[i].data);
    ST_VEC_FREE(&process->idle);
    ST_VEC_FREE(&process->running);
    ST_VEC_FREE(&process->slots);
    ST_VEC_FREE(&process->free_slots);
    ST_VEC_FREE(&process->early);
    ST_VEC_FREE(&process->buffers);
    ST_VEC_FREE(&process->groups);
    st_free(process->lost_ms);
    pthread_cond_destroy(&process->changed);
    pthread_mutex_destroy(&process->mutex);
    st_free(process);
}

static void process_destroy(comm_t *base) {
    process_comm_t *comm = (process_comm_t *)base;
    process_t *process = comm->process;
    if (comm->n_active) {
        process_abort(base, ST_PEER_LOST, "it left with collectives in flight");
        process_fail(process, ST_PEER_LOST, "the rank left with collectives in flight");
        pthread_mutex_lock(&process->mutex);
        wait_until_quiet(process);
        for (uint32_t t = 0; t < comm->n_ops; t++) free_op(comm->ops[t]);
        pthread_mutex_unlock(&process->mutex);
    }
    st_free((void *)comm->ops);
    st_free(comm->n_pairs);
    st_free(comm->ranks);
    comm_release(base);
    st_free(comm);
    if (--process->n_handles == 0) process_free(process);
}

static st_status_t process_group_create(comm_t *parent, int n, const int *ranks, comm_t **out);

static const comm_backend_t backend = {
    .name = "process",
    .group_create = process_group_create,
    .start = process_start,
    .wait = process_wait,
    .done = process_done,
    .mark = process_mark,
    .abort = process_abort,
    .check = process_check,
    .destroy = process_destroy,
};

static st_status_t make_handle(process_t *process, int n, const int *ranks, comm_t **out) {
    process_comm_t *comm = st_calloc(1, sizeof *comm);
    if (!comm) return st_no_memory(sizeof *comm, "a communicator");
    comm->base = (comm_t){.backend = &backend, .size = n};
    comm->process = process;
    comm->ranks = st_malloc((size_t)n * sizeof *comm->ranks);
    comm->n_pairs = st_calloc(2 * (size_t)n, sizeof *comm->n_pairs);
    if (!comm->ranks || !comm->n_pairs) {
        st_free(comm->ranks);
        st_free(comm->n_pairs);
        st_free(comm);
        return st_no_memory((size_t)n * sizeof *comm->ranks, "a communicator");
    }
    memcpy(comm->ranks, ranks, (size_t)n * sizeof *ranks);
    for (int r = 0; r < n; r++)
        if (ranks[r] == process->rank) comm->base.rank = r;
    process->n_handles++;
    *out = &comm->base;
    return ST_OK;
}

/* Members count the groups of one list alike, so that list and count name the group. */
static st_status_t group_id(process_t *process, int n, const int *ranks, uint64_t *out_id) {
    uint64_t list = st_hash64(ranks, (size_t)n * sizeof *ranks, (uint64_t)n);
    size_t i = 0;
    while (i < process->groups.n && process->groups.data[i].list != list) i++;
    process_count_t first = {list, 0};
    if (i == process->groups.n && ST_VEC_PUSH(&process->groups, first) != ST_OK)
        return st_no_memory(sizeof first, "a communicator");
    uint32_t count = process->groups.data[i].n++;
    *out_id = st_hash64(&count, sizeof count, list);
    return ST_OK;
}

static st_status_t process_group_create(comm_t *parent, int n, const int *ranks, comm_t **out) {
    process_comm_t *from = (process_comm_t *)parent;
    int *list = st_malloc((size_t)n * sizeof *list);
    if (!list) return st_no_memory((size_t)n * sizeof *list, "a communicator");
    for (int i = 0; i < n; i++) list[i] = from->ranks[ranks[i]];
    uint64_t id = 0;
    st_status_t status = group_id(from->process, n, list, &id);
    if (status == ST_OK) status = make_handle(from->process, n, list, out);
    if (status == ST_OK) ((process_comm_t *)*out)->id = id;
    st_free(list);
    return status;
}

static st_status_t init_locks(process_t *process) {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&process->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&process->mutex, NULL);
    return ST_OK;
}

st_status_t process_create(int rank, int size, int64_t timeout_ms, transport_t *transport,
                           control_t *control, comm_t **out_comm) {
    *out_comm = NULL;
    process_t *process = st_calloc(1, sizeof *process);
    int *all = st_malloc((size_t)size * sizeof *all);
    st_status_t status = ST_OK;
    if (!process || !all) {
        st_free(process);
        st_free(all);
        control_close(control);
        transport->ops->close(transport, false);
        return st_no_memory(sizeof *process, "a communicator");
    }
    *process = (process_t){.rank = rank,
                           .size = size,
                           .timeout_ms = timeout_ms,
                           .transport = transport,
                           .control = control};
    status = init_locks(process);
    for (int r = 0; r < size; r++) all[r] = r;
    process->lost_ms = st_calloc((size_t)size, sizeof *process->lost_ms);
    if (!process->lost_ms) status = st_no_memory((size_t)size * 8, "a communicator");
    if (status == ST_OK) {
        int failed = pthread_create(&process->thread, NULL, progress_main, process);
        process->has_thread = failed == 0;
        if (failed) status = FAIL(ST_NO_MEMORY, "no thread for collectives: %s", strerror(failed));
    }
    if (status == ST_OK) status = control_watch(control, on_fail, process);
    if (status == ST_OK) status = make_handle(process, size, all, out_comm);
    st_free(all);
    if (status != ST_OK) process_free(process);
    return status;
}
