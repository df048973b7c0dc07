/* Messages over MPI. All calls come one at a time (MPI_THREAD_SERIALIZED): from the thread that
 * opens and closes, and in between from the engine's.
 *
 * A note is a message of tag 1 from anybody; what a note grants comes under the tag 2 + slot that
 * the receiver chose, in parts that a C int can count. MPI has no wait that another thread could
 * end, so where nothing moves the engine naps, longer each time up to a millisecond, and where
 * nothing is expected it sleeps until it is woken. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "base/vec.h"
#include "comm/mpi/module.h"

enum { TAG_NOTE = 1, TAG_FIRST = 2, PART_BYTES = 1 << 30, MIN_NAP_US = 20, MAX_NAP_US = 1000 };

typedef enum item_kind { ITEM_NOTE_IN, ITEM_NOTE_OUT, ITEM_RECEIVE, ITEM_SEND } item_kind_t;

/* A message in flight; requests of its parts point to it. */
typedef struct item {
    item_kind_t kind;
    uint32_t slot;
    int n_parts; /* not complete */
    process_note_t note;
} item_t;

typedef struct transport_mpi {
    transport_t base;
    MPI_Comm comm;
    int rank, size, tag_limit;
    ST_VEC(MPI_Request) requests;
    ST_VEC(item_t *) items; /* of each request */
    ST_VEC(int) done;       /* indices that a test found complete */
    ST_VEC(MPI_Status) statuses;
    ST_VEC(item_t *) spare, found;
    ST_VEC(int) sources; /* of those found */
    item_t incoming;     /* the note that is waited for */
    long nap_us;
    pthread_mutex_t mutex;
    pthread_cond_t woken;
    bool wake;
} transport_mpi_t;

static bool initialized_here, finalized;

static st_status_t check(int code, const char *call) {
    char text[MPI_MAX_ERROR_STRING];
    int n = 0;
    if (code == MPI_SUCCESS) return ST_OK;
    MPI_Error_string(code, text, &n);
    return FAIL(ST_PEER_LOST, "%s: %.*s", call, n, text);
}

static st_status_t take_item(transport_mpi_t *t, item_kind_t kind, uint32_t slot, item_t **out) {
    if (t->spare.n) {
        *out = t->spare.data[--t->spare.n];
    } else {
        *out = st_calloc(1, sizeof **out);
        if (!*out) return st_no_memory(sizeof **out, "messages between ranks");
    }
    **out = (item_t){.kind = kind, .slot = slot};
    return ST_OK;
}

static st_status_t add_request(transport_mpi_t *t, MPI_Request request, item_t *item) {
    size_t need = t->requests.n + 1;
    TRY(ST_VEC_RESERVE(&t->requests, need));
    TRY(ST_VEC_RESERVE(&t->items, need));
    TRY(ST_VEC_RESERVE(&t->done, need));
    TRY(ST_VEC_RESERVE(&t->statuses, need));
    TRY(ST_VEC_RESERVE(&t->spare, need));
    TRY(ST_VEC_RESERVE(&t->found, need));
    TRY(ST_VEC_RESERVE(&t->sources, need));
    t->requests.data[t->requests.n++] = request;
    t->items.data[t->items.n++] = item;
    item->n_parts++;
    return ST_OK;
}

static st_status_t listen_for_note(transport_mpi_t *t) {
    MPI_Request request;
    t->incoming = (item_t){.kind = ITEM_NOTE_IN};
    TRY(check(MPI_Irecv(&t->incoming.note, sizeof t->incoming.note, MPI_BYTE, MPI_ANY_SOURCE,
                        TAG_NOTE, t->comm, &request),
              "MPI_Irecv"));
    return add_request(t, request, &t->incoming);
}

static st_status_t mpi_note(transport_t *transport, int peer, const process_note_t *note) {
    transport_mpi_t *t = (transport_mpi_t *)transport;
    item_t *item;
    MPI_Request request;
    TRY(take_item(t, ITEM_NOTE_OUT, 0, &item));
    item->note = *note;
    TRY(check(
        MPI_Isend(&item->note, sizeof item->note, MPI_BYTE, peer, TAG_NOTE, t->comm, &request),
        "MPI_Isend"));
    return add_request(t, request, item);
}

static st_status_t move(transport_mpi_t *t, item_kind_t kind, int peer, uint32_t tag, uint32_t slot,
                        char *data, size_t bytes) {
    item_t *item;
    if (tag > (uint32_t)t->tag_limit - TAG_FIRST)
        return FAIL(ST_UNSUPPORTED, "%u messages in flight: this MPI numbers up to %d", tag,
                    t->tag_limit);
    TRY(take_item(t, kind, slot, &item));
    for (size_t at = 0; at < bytes; at += PART_BYTES) {
        int n = (int)(bytes - at < PART_BYTES ? bytes - at : PART_BYTES);
        MPI_Request request;
        if (kind == ITEM_RECEIVE)
            TRY(check(
                MPI_Irecv(data + at, n, MPI_BYTE, peer, TAG_FIRST + (int)tag, t->comm, &request),
                "MPI_Irecv"));
        else
            TRY(check(
                MPI_Isend(data + at, n, MPI_BYTE, peer, TAG_FIRST + (int)tag, t->comm, &request),
                "MPI_Isend"));
        TRY(add_request(t, request, item));
    }
    return ST_OK;
}

static st_status_t mpi_receive(transport_t *transport, int peer, uint32_t slot, void *data,
                               size_t bytes) {
    return move((transport_mpi_t *)transport, ITEM_RECEIVE, peer, slot, slot, data, bytes);
}

static st_status_t mpi_send(transport_t *transport, int peer, uint32_t to, uint32_t slot,
                            const void *data, size_t bytes) {
    return move((transport_mpi_t *)transport, ITEM_SEND, peer, to, slot, (char *)(uintptr_t)data,
                bytes);
}

/* ---- progress ---- */

static st_status_t complete(transport_mpi_t *t, item_t *item, int source,
                            const transport_events_t *events) {
    if (--item->n_parts) return ST_OK;
    uint32_t slot = item->slot;
    item_kind_t kind = item->kind;
    process_note_t note = item->note;
    if (kind == ITEM_NOTE_IN) {
        TRY(listen_for_note(t));
        return events->note(events->context, source, &note);
    }
    t->spare.data[t->spare.n++] = item;
    if (kind == ITEM_RECEIVE) return events->received(events->context, slot);
    return kind == ITEM_SEND ? events->sent(events->context, slot) : ST_OK;
}

static void rest(transport_mpi_t *t, bool busy) {
    enum { IDLE_MS = 50 };
    struct timespec at;
    if (busy) {
        at = (struct timespec){0, t->nap_us * 1000};
        nanosleep(&at, NULL);
        if (t->nap_us < MAX_NAP_US) t->nap_us *= 2;
        return;
    }
    clock_gettime(CLOCK_REALTIME, &at);
    at.tv_nsec += IDLE_MS * 1000000L;
    if (at.tv_nsec >= 1000000000L) at.tv_sec++, at.tv_nsec -= 1000000000L;
    pthread_mutex_lock(&t->mutex);
    if (!t->wake) pthread_cond_timedwait(&t->woken, &t->mutex, &at);
    t->wake = false;
    pthread_mutex_unlock(&t->mutex);
}

static st_status_t mpi_progress(transport_t *transport, bool busy,
                                const transport_events_t *events) {
    transport_mpi_t *t = (transport_mpi_t *)transport;
    int n_done = 0, n = (int)t->requests.n;
    TRY(check(MPI_Testsome(n, t->requests.data, &n_done, t->done.data, t->statuses.data),
              "MPI_Testsome"));
    if (n_done == MPI_UNDEFINED || n_done == 0) {
        rest(t, busy);
        return ST_OK;
    }
    t->nap_us = MIN_NAP_US;
    /* items out first, in the order found: what is complete is MPI_REQUEST_NULL now */
    for (int d = 0; d < n_done; d++) {
        t->found.data[d] = t->items.data[t->done.data[d]];
        t->sources.data[d] = t->statuses.data[d].MPI_SOURCE;
    }
    size_t kept = 0;
    for (size_t i = 0; i < t->requests.n; i++) {
        if (t->requests.data[i] == MPI_REQUEST_NULL) continue;
        t->requests.data[kept] = t->requests.data[i];
        t->items.data[kept++] = t->items.data[i];
    }
    t->requests.n = t->items.n = kept;
    for (int d = 0; d < n_done; d++) TRY(complete(t, t->found.data[d], t->sources.data[d], events));
    return ST_OK;
}

static void mpi_wake(transport_t *transport) {
    transport_mpi_t *t = (transport_mpi_t *)transport;
    pthread_mutex_lock(&t->mutex);
    t->wake = true;
    pthread_cond_signal(&t->woken);
    pthread_mutex_unlock(&t->mutex);
}

/* ---- life ---- */

/* After a failure MPI may wait for ever for a rank that is gone, and may still write to what is in
 * flight: then it and its messages are left as they are, and mpirun ends what is left. */
static void mpi_close(transport_t *transport, bool orderly) {
    transport_mpi_t *t = (transport_mpi_t *)transport;
    if (orderly) {
        for (size_t i = 0; i < t->requests.n; i++) {
            if (t->items.data[i]->kind == ITEM_NOTE_IN) MPI_Cancel(&t->requests.data[i]);
            MPI_Wait(&t->requests.data[i], MPI_STATUS_IGNORE);
        }
        MPI_Comm_free(&t->comm);
        if (initialized_here) MPI_Finalize();
        finalized = initialized_here;
    }
    for (size_t i = 0; i < t->spare.n; i++) st_free(t->spare.data[i]);
    ST_VEC_FREE(&t->requests);
    ST_VEC_FREE(&t->items);
    ST_VEC_FREE(&t->done);
    ST_VEC_FREE(&t->statuses);
    ST_VEC_FREE(&t->spare);
    ST_VEC_FREE(&t->found);
    ST_VEC_FREE(&t->sources);
    pthread_cond_destroy(&t->woken);
    pthread_mutex_destroy(&t->mutex);
    if (orderly) st_free(t);
}

static const transport_ops_t ops = {
    .name = "mpi",
    .note = mpi_note,
    .receive = mpi_receive,
    .send = mpi_send,
    .progress = mpi_progress,
    .wake = mpi_wake,
    .close = mpi_close,
};

static st_status_t init_mpi(void) {
    int ready = 0, provided = MPI_THREAD_SINGLE;
    if (finalized)
        return FAIL(ST_UNSUPPORTED, "MPI was ended in this process and does not begin again");
    MPI_Initialized(&ready);
    if (ready) {
        TRY(check(MPI_Query_thread(&provided), "MPI_Query_thread"));
    } else {
        TRY(check(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided),
                  "MPI_Init_thread"));
        initialized_here = true;
    }
    if (provided >= MPI_THREAD_SERIALIZED) return ST_OK;
    return FAIL(ST_UNSUPPORTED,
                "this MPI lets only one thread call it; a communicator has one of its own: it "
                "needs MPI_THREAD_SERIALIZED");
}

static st_status_t describe(transport_mpi_t *t, bool *out_one_host) {
    MPI_Comm host;
    int *limit, found = 0, n = 0;
    TRY(check(MPI_Comm_dup(MPI_COMM_WORLD, &t->comm), "MPI_Comm_dup"));
    TRY(check(MPI_Comm_set_errhandler(t->comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler"));
    MPI_Comm_rank(t->comm, &t->rank);
    MPI_Comm_size(t->comm, &t->size);
    MPI_Comm_get_attr(t->comm, MPI_TAG_UB, (void *)&limit, &found);
    t->tag_limit = found ? *limit : 32767;
    TRY(check(MPI_Comm_split_type(t->comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host),
              "MPI_Comm_split_type"));
    MPI_Comm_size(host, &n);
    MPI_Comm_free(&host);
    int all = n == t->size, every = 0; /* ranks on other hosts count otherwise */
    TRY(check(MPI_Allreduce(&all, &every, 1, MPI_INT, MPI_MIN, t->comm), "MPI_Allreduce"));
    *out_one_host = every != 0;
    return ST_OK;
}

static st_status_t open_transport(transport_t **out_transport, int *out_rank, int *out_size,
                                  bool *out_one_host) {
    TRY(init_mpi());
    transport_mpi_t *t = st_calloc(1, sizeof *t);
    if (!t) return st_no_memory(sizeof *t, "messages between ranks");
    t->base.ops = &ops;
    t->nap_us = MIN_NAP_US;
    pthread_mutex_init(&t->mutex, NULL);
    pthread_cond_init(&t->woken, NULL);
    st_status_t status = describe(t, out_one_host);
    if (status == ST_OK) status = listen_for_note(t);
    if (status != ST_OK) {
        mpi_close(&t->base, false);
        return status;
    }
    *out_rank = t->rank;
    *out_size = t->size;
    *out_transport = &t->base;
    return ST_OK;
}

static st_status_t broadcast(transport_t *transport, void *data, size_t bytes) {
    return check(MPI_Bcast(data, (int)bytes, MPI_BYTE, 0, ((transport_mpi_t *)transport)->comm),
                 "MPI_Bcast");
}

static const comm_mpi_module_t module = {
    .build = STATOR_BUILD,
    .forward_errors = st_error_forward,
    .open = open_transport,
    .broadcast = broadcast,
};

__attribute__((visibility("default"))) const comm_mpi_module_t *stator_mpi_module(void);
const comm_mpi_module_t *stator_mpi_module(void) {
    return &module;
}
