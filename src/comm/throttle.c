/* Any communicator as if its links were slower: a collective is complete no sooner than all ranks
 * have started it, plus latency, plus bytes over bandwidth; a rank's transfers go one after
 * another.
 *
 * The ranks' start times travel beside each collective in a group of their own (one clock: the
 * ranks are on one host); the latest is when a transfer begins. Wait puts all transfers that have
 * begun by then on the link, in the order of their begins whatever the order of the waits, and
 * sleeps until the end of its own:
 *
 *   rank 0   start ──────────────── wait ........|
 *   rank 1            start ─── wait ............|
 *                     ├ transfer (link) ┤ latency ┤
 *
 * So what is hidden behind computation stays hidden, and no thread or spinning is needed. The
 * bytes are what a rank sends in the best algorithm: 2 (n−1)/n of an all-reduce, (n−1)/n of what is
 * gathered or scattered. */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "base/vec.h"
#include "comm/backend.h"

/* A transfer of a handle. */
struct pending {
    struct throttle *of;
    uint32_t ticket;
};

typedef struct link {
    int n_handles;
    double latency_us, bytes_per_us; /* bytes_per_us 0: no limit */
    double free_us;                  /* when the last transfer leaves the link */
    ST_VEC(struct pending) pending;  /* started, not on the link yet; in the order of starts */
} link_t;

typedef struct transfer {
    bool active, begun;
    comm_kind_t kind;
    double bytes, begin_us, end_us; /* begin_us once begun, end_us once on the link */
    int64_t *all_us; /* [size + 1]: when each started, then the own: in flight, so never moved */
} transfer_t;

typedef struct throttle {
    comm_t base;
    comm_t *inner, *clock;
    link_t *link; /* of the rank: shared by its groups */
    int64_t *parts;
    uint32_t n_transfers;
    transfer_t *transfers; /* [ticket] */
} throttle_t;

static int64_t now_us(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (int64_t)at.tv_sec * 1000000 + at.tv_nsec / 1000;
}

static void sleep_until(double us) {
    struct timespec at = {(time_t)(us / 1e6), 0};
    at.tv_nsec = (long)((us - (double)at.tv_sec * 1e6) * 1e3);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR) continue;
}

/* Bytes that this rank's link carries. */
static double bytes_of(const comm_t *comm, const comm_request_t *q) {
    double element = (double)ir_dtype_bytes(q->dtype), n = comm->size, total = 0, back = 0;
    size_t width = 1 + (size_t)comm->size;
    switch (q->kind) {
        case COMM_ALL_REDUCE:
            for (uint32_t s = 0; s < q->n_segments; s++) total += (double)q->numbers[s];
            return 2 * (n - 1) / n * total * element;
        case COMM_ALL_GATHER:
        case COMM_REDUCE_SCATTER:
            for (uint32_t s = 0; s < q->n_segments; s++)
                for (int r = 0; r < comm->size; r++)
                    total += (double)q->numbers[s * width] *
                             (double)q->numbers[s * width + 1 + (size_t)r];
            return (n - 1) / n * total * element;
        case COMM_ALL_TO_ALL:
            for (int r = 0; r < comm->size; r++) {
                if (r == comm->rank) continue;
                total += (double)q->numbers[0] * (double)q->numbers[1 + r];
                back += (double)q->numbers[width] * (double)q->numbers[width + 1 + (size_t)r];
            }
            return (total > back ? total : back) * element;
        case COMM_BROADCAST:
            for (uint32_t s = 0; s < q->n_segments && n > 1; s++)
                total += (double)q->numbers[1 + s];
            return total * element;
        case COMM_SEND:
        case COMM_RECEIVE:
            return (double)q->numbers[1] * element;
        case COMM_NONE:
        case COMM_KIND_END:
            break;
    }
    return 0;
}

static st_status_t grow(throttle_t *t, uint32_t ticket) {
    if (ticket >= t->n_transfers) {
        uint32_t need = 2 * (ticket + 1);
        transfer_t *transfers = st_realloc(t->transfers, need * sizeof *transfers);
        if (!transfers) return st_no_memory(need * sizeof *transfers, "the table of collectives");
        memset(transfers + t->n_transfers, 0, (need - t->n_transfers) * sizeof *transfers);
        t->transfers = transfers;
        t->n_transfers = need;
    }
    transfer_t *made = &t->transfers[ticket];
    if (!made->all_us) made->all_us = st_calloc((size_t)t->base.size + 1, sizeof *made->all_us);
    return made->all_us ? ST_OK
                        : st_no_memory((size_t)t->base.size * sizeof *made->all_us, "a collective");
}

static st_status_t start_clock(throttle_t *t, uint32_t ticket, const comm_request_t *request) {
    transfer_t *transfer = &t->transfers[ticket];
    int64_t *own_us = &transfer->all_us[t->base.size];
    int peer = request->n_numbers ? (int)request->numbers[0] : 0;
    *own_us = now_us();
    if (request->kind == COMM_SEND)
        return comm_send_start(t->clock, ticket, peer, IR_I64, own_us, 1);
    if (request->kind == COMM_RECEIVE)
        return comm_receive_start(t->clock, ticket, peer, IR_I64, transfer->all_us, 1);
    comm_segment_t cut = {.in = own_us, .out = transfer->all_us, .outer = 1, .parts = t->parts};
    return comm_all_gather_start(t->clock, ticket, IR_I64, 1, &cut);
}

static st_status_t throttle_start(comm_t *comm, uint32_t ticket, const comm_request_t *request) {
    throttle_t *t = (throttle_t *)comm;
    TRY(grow(t, ticket));
    transfer_t *transfer = &t->transfers[ticket];
    if (transfer->active) return t->inner->backend->start(t->inner, ticket, request); /* says so */
    struct pending pending = {t, ticket};
    transfer->kind = request->kind;
    transfer->bytes = bytes_of(comm, request);
    transfer->begun = false;
    TRY(start_clock(t, ticket, request));
    TRY(t->inner->backend->start(t->inner, ticket, request));
    if (ST_VEC_PUSH(&t->link->pending, pending) != ST_OK)
        return st_no_memory(sizeof pending, "a collective");
    transfer->active = true;
    return ST_OK;
}

/* All ranks have started it: when the last one did. */
static st_status_t read_clock(throttle_t *t, uint32_t ticket, int64_t limit_ms) {
    transfer_t *transfer = &t->transfers[ticket];
    TRY(t->clock->backend->wait(t->clock, ticket, limit_ms));
    int size = t->base.size;
    int n = transfer->kind == COMM_SEND ? 0 : transfer->kind == COMM_RECEIVE ? 1 : size;
    transfer->begin_us = (double)transfer->all_us[size];
    for (int r = 0; r < n; r++)
        if ((double)transfer->all_us[r] > transfer->begin_us)
            transfer->begin_us = (double)transfer->all_us[r];
    transfer->begun = true;
    return ST_OK;
}

/* The earliest of those that have begun; pending.n if none has. */
static size_t earliest(const link_t *link) {
    size_t found = link->pending.n;
    double begin = 0;
    for (size_t i = 0; i < link->pending.n; i++) {
        const struct pending *p = &link->pending.data[i];
        const transfer_t *transfer = &p->of->transfers[p->ticket];
        if (!transfer->begun || (found < link->pending.n && transfer->begin_us >= begin)) continue;
        found = i;
        begin = transfer->begin_us;
    }
    return found;
}

static void take_off(link_t *link, size_t i) {
    link->pending.n--;
    memmove(link->pending.data + i, link->pending.data + i + 1,
            (link->pending.n - i) * sizeof *link->pending.data);
}

/* Puts those that have begun on the link, up to and with this one. */
static void schedule(link_t *link, const transfer_t *last) {
    for (size_t i; (i = earliest(link)) < link->pending.n;) {
        struct pending p = link->pending.data[i];
        transfer_t *transfer = &p.of->transfers[p.ticket];
        double begin = transfer->begin_us > link->free_us ? transfer->begin_us : link->free_us;
        if (p.of->base.size > 1) { /* else nothing moves */
            link->free_us =
                begin + (link->bytes_per_us > 0 ? transfer->bytes / link->bytes_per_us : 0);
            transfer->end_us = link->free_us + link->latency_us;
        } else {
            transfer->end_us = 0;
        }
        take_off(link, i);
        if (transfer == last) return;
    }
}

static bool is_pending(const link_t *link, const throttle_t *t, uint32_t ticket) {
    for (size_t i = 0; i < link->pending.n; i++)
        if (link->pending.data[i].of == t && link->pending.data[i].ticket == ticket) return true;
    return false;
}

static st_status_t throttle_wait(comm_t *comm, uint32_t ticket, int64_t limit_ms) {
    throttle_t *t = (throttle_t *)comm;
    link_t *link = t->link;
    transfer_t *transfer = ticket < t->n_transfers ? &t->transfers[ticket] : NULL;
    TRY(t->inner->backend->wait(t->inner, ticket, limit_ms));
    if (!transfer || !transfer->active) return ST_OK;
    transfer->active = false;
    if (!transfer->begun) TRY(read_clock(t, ticket, limit_ms));
    for (size_t i = 0; i < link->pending.n; i++) {
        const struct pending *p = &link->pending.data[i];
        if (p->of->transfers[p->ticket].begun ||
            !p->of->clock->backend->done(p->of->clock, p->ticket))
            continue;
        TRY(read_clock(p->of, p->ticket, limit_ms));
    }
    if (is_pending(link, t, ticket)) schedule(link, transfer);
    if (transfer->end_us > 0) sleep_until(transfer->end_us);
    return ST_OK;
}

static bool throttle_done(comm_t *comm, uint32_t ticket) {
    throttle_t *t = (throttle_t *)comm;
    return t->inner->backend->done(t->inner, ticket); /* its wait only sleeps */
}

static void throttle_mark(comm_t *comm, uint64_t step, const char *op) {
    comm_mark(((throttle_t *)comm)->inner, step, op);
}

static void throttle_abort(comm_t *comm, st_status_t status, const char *reason) {
    comm_abort(((throttle_t *)comm)->inner, status, reason);
}

static st_status_t throttle_check(const comm_t *comm, char *reason, size_t capacity) {
    return comm_check(((const throttle_t *)comm)->inner, reason, capacity);
}

static void throttle_destroy(comm_t *comm) {
    throttle_t *t = (throttle_t *)comm;
    for (size_t i = t->link->pending.n; i-- > 0;)
        if (t->link->pending.data[i].of == t) take_off(t->link, i);
    comm_destroy(t->clock);
    comm_destroy(t->inner);
    for (uint32_t i = 0; i < t->n_transfers; i++) st_free(t->transfers[i].all_us);
    st_free(t->transfers);
    st_free(t->parts);
    if (--t->link->n_handles == 0) {
        ST_VEC_FREE(&t->link->pending);
        st_free(t->link);
    }
    comm_release(comm);
    st_free(t);
}

static st_status_t throttle_group_create(comm_t *parent, int n, const int *ranks, comm_t **out);

static const comm_backend_t backend = {
    .name = "throttle",
    .group_create = throttle_group_create,
    .start = throttle_start,
    .wait = throttle_wait,
    .done = throttle_done,
    .mark = throttle_mark,
    .abort = throttle_abort,
    .check = throttle_check,
    .destroy = throttle_destroy,
};

/* Takes `inner` over on success. */
static st_status_t wrap(comm_t *inner, link_t *link, comm_t **out) {
    throttle_t *t = st_calloc(1, sizeof *t);
    int64_t *parts = st_malloc((size_t)inner->size * sizeof *parts);
    int *all = st_malloc((size_t)inner->size * sizeof *all);
    st_status_t status = t && parts && all ? ST_OK : st_no_memory(sizeof *t, "a communicator");
    if (status == ST_OK) {
        for (int r = 0; r < inner->size; r++) all[r] = r, parts[r] = 1;
        *t = (throttle_t){.base = {.backend = &backend, .rank = inner->rank, .size = inner->size},
                          .inner = inner,
                          .link = link,
                          .parts = parts};
        status = comm_group_create(inner, inner->size, all, &t->clock);
    }
    st_free(all);
    if (status != ST_OK) {
        st_free(parts);
        st_free(t);
        return status;
    }
    link->n_handles++;
    *out = &t->base;
    return ST_OK;
}

static st_status_t throttle_group_create(comm_t *parent, int n, const int *ranks, comm_t **out) {
    throttle_t *t = (throttle_t *)parent;
    comm_t *inner = NULL;
    TRY(comm_group_create(t->inner, n, ranks, &inner));
    st_status_t status = wrap(inner, t->link, out);
    if (status != ST_OK) comm_destroy(inner);
    return status;
}

st_status_t comm_throttle_create(comm_t *inner, double latency_s, double bytes_per_s,
                                 comm_t **out_comm) {
    *out_comm = NULL;
    link_t *link = st_calloc(1, sizeof *link);
    if (!link) return st_no_memory(sizeof *link, "a communicator");
    link->latency_us = latency_s * 1e6;
    link->bytes_per_us = bytes_per_s * 1e-6;
    st_status_t status = wrap(inner, link, out_comm);
    if (status != ST_OK) st_free(link);
    return status;
}
