/* Ranks of one process.
 *
 * A collective is a slot in a table shared by all ranks. Start writes the rank's buffers into the
 * slot and returns. Once every rank has done so, the work is cut into chunks that any rank may
 * take: a rank that waits, or that starts a later collective, takes chunks until none is left. A
 * chunk of an all-reduce is a range of elements: whoever takes it adds the ranks' ranges in rank
 * order and writes the sum to all of them, so the bits do not depend on who did it and no second
 * phase is needed.
 *
 *   slot(ticket, step parity)   published: r0 r1 r2     chunks: [done][done][taken][ free ]
 *
 * Two slots a ticket suffice: a rank can be at most one use of a ticket ahead of another, since its
 * wait needs the other's start. Slots grow to their final number and size in the first step.
 *
 * What overlaps: a rank never stands still between a start and its wait, so the ranks may be out of
 * step by all that lies in between; and sums of early buckets are done while other ranks still
 * compute. What does not: there is no thread of its own for sums. They take time from the ranks'
 * threads, which on a processor that computes with all its cores is the same time. A rank that
 * computes moves nothing forward until its next start or wait, and its team's other threads rest
 * while it adds. (What that comes to for a small Llama: bench/NOTES.md.)
 *
 * One mutex guards everything but the chunks' data; a chunk is large (32 Ki elements) beside the
 * cost of taking it. After a failure no chunk is handed out any more, and a failing call returns
 * only when no chunk is being worked on: the caller may then free its buffers. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "comm/backend.h"
#include "comm/local/sum.h"

enum { CHUNK_ELEMENTS = 1 << 15, MAX_TICKETS = 1 << 20, REASON_BYTES = 512 };

typedef enum slot_kind { SLOT_FREE = 0, SLOT_ALL_REDUCE, SLOT_ALL_GATHER } slot_kind_t;

typedef struct part {
    bool published;
    uint32_t cap; /* of data */
    void **data;  /* all-reduce: segments; all-gather: {in, out} */
} part_t;

typedef struct slot {
    slot_kind_t kind;
    ir_dtype_t dtype;
    uint32_t n_segments, cap_segments;
    int64_t *elements;    /* all-reduce: a segment; all-gather: part bytes of each rank */
    int64_t outer, total; /* total: elements of all segments, or bytes of one gathered block */
    int n_published, n_left;
    int64_t n_chunks, n_taken, n_done;
    part_t *parts; /* [size] */
} slot_t;

typedef struct group {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int size, n_handles, n_working; /* n_working: chunks being worked on */
    int64_t timeout_ms;
    st_status_t failed;
    char reason[REASON_BYTES];
    uint32_t n_slots; /* two a ticket */
    slot_t *slots;
} group_t;

typedef struct local {
    comm_t base;
    group_t *group;
    uint32_t n_uses;   /* length of uses */
    uint8_t *uses;     /* [ticket]: parity of this rank's next use */
    uint32_t *pending; /* slots started and not waited for, oldest first */
    uint32_t n_pending, cap_pending;
    void **buffers; /* [size]: scratch of a chunk */
} local_t;

/* ---- failure ---- */

static st_status_t latched(const group_t *group) {
    return FAIL(group->failed, "%s", group->reason);
}

/* Latches the first failure and wakes everyone. The mutex is held. */
static void latch(group_t *group, st_status_t status, const char *reason) {
    if (group->failed != ST_OK) return;
    group->failed = status;
    snprintf(group->reason, sizeof group->reason, "%s", reason);
    pthread_cond_broadcast(&group->changed);
}

/* Waits until no chunk is being worked on; the mutex is held. Chunks end by themselves. */
static void drain(group_t *group) {
    while (group->n_working) pthread_cond_wait(&group->changed, &group->mutex);
}

/* ---- slots ---- */

static st_status_t grow_slots(group_t *group, uint32_t ticket) {
    uint32_t need = 2 * (ticket + 1);
    if (need <= group->n_slots) return ST_OK;
    if (need < 2 * group->n_slots) need = 2 * group->n_slots;
    slot_t *slots = st_realloc(group->slots, need * sizeof *slots);
    if (!slots) return st_no_memory(need * sizeof *slots, "the table of collectives");
    memset(slots + group->n_slots, 0, (need - group->n_slots) * sizeof *slots);
    group->slots = slots;
    for (; group->n_slots < need; group->n_slots++) {
        slots[group->n_slots].parts = st_calloc((size_t)group->size, sizeof(part_t));
        if (!slots[group->n_slots].parts)
            return st_no_memory((size_t)group->size * sizeof(part_t), "a collective");
    }
    return ST_OK;
}

static st_status_t grow_uses(local_t *local, uint32_t ticket) {
    if (ticket < local->n_uses) return ST_OK;
    uint32_t need = 2 * (ticket + 1);
    uint8_t *uses = st_realloc(local->uses, need);
    if (!uses) return st_no_memory(need, "the table of collectives");
    memset(uses + local->n_uses, 0, need - local->n_uses);
    local->uses = uses;
    local->n_uses = need;
    return ST_OK;
}

static st_status_t reserve_slot(slot_t *slot, int rank, uint32_t n_numbers, uint32_t n_data) {
    if (n_numbers > slot->cap_segments) {
        int64_t *elements = st_realloc(slot->elements, n_numbers * sizeof *elements);
        if (!elements) return st_no_memory(n_numbers * sizeof *elements, "a collective");
        slot->elements = elements;
        slot->cap_segments = n_numbers;
    }
    part_t *part = &slot->parts[rank];
    if (n_data > part->cap) {
        void **data = st_realloc(part->data, n_data * sizeof *data);
        if (!data) return st_no_memory(n_data * sizeof *data, "a collective");
        part->data = data;
        part->cap = n_data;
    }
    return ST_OK;
}

/* Room in both slots of the ticket, so that the second step needs no more memory than the first.
 * Nothing is being added from the other slot any more: this rank has left it, so its chunks are
 * done. */
static st_status_t reserve(local_t *local, uint32_t ticket, uint32_t n_numbers, uint32_t n_data) {
    for (uint32_t parity = 0; parity < 2; parity++)
        TRY(reserve_slot(&local->group->slots[2 * ticket + parity], local->base.rank, n_numbers,
                         n_data));
    if (local->n_pending == local->cap_pending) {
        uint32_t cap = local->cap_pending ? 2 * local->cap_pending : 16;
        uint32_t *pending = st_realloc(local->pending, cap * sizeof *pending);
        if (!pending) return st_no_memory(cap * sizeof *pending, "the pending collectives");
        local->pending = pending;
        local->cap_pending = cap;
    }
    return ST_OK;
}

/* ---- chunks ---- */

static void sum_chunk(local_t *local, const slot_t *slot, int64_t chunk) {
    int64_t begin = chunk * CHUNK_ELEMENTS, end = begin + CHUNK_ELEMENTS, first = 0;
    if (end > slot->total) end = slot->total;
    for (uint32_t s = 0; s < slot->n_segments && first < end; first += slot->elements[s++]) {
        int64_t from = begin > first ? begin - first : 0;
        int64_t to = end - first < slot->elements[s] ? end - first : slot->elements[s];
        if (from >= to) continue;
        for (int r = 0; r < local->group->size; r++) local->buffers[r] = slot->parts[r].data[s];
        comm_sum(slot->dtype, local->group->size, local->buffers, from, to - from);
    }
}

/* Chunk c fills the result of rank c. */
static void gather_chunk(const local_t *local, const slot_t *slot, int64_t chunk) {
    char *out = slot->parts[chunk].data[1];
    for (int64_t o = 0; o < slot->outer; o++)
        for (int r = 0; r < local->group->size; r++) {
            int64_t bytes = slot->elements[r];
            if (bytes) memcpy(out, (const char *)slot->parts[r].data[0] + o * bytes, (size_t)bytes);
            out += bytes;
        }
}

/* Takes up to `limit` chunks of the slot and works on them; true if it took any. The mutex is held
 * on entry and exit, not in between. */
static bool work(local_t *local, uint32_t index, int64_t limit) {
    group_t *group = local->group;
    bool any = false;
    for (; limit > 0; limit--, any = true) {
        slot_t *slot = &group->slots[index];
        if (group->failed != ST_OK || slot->kind == SLOT_FREE || slot->n_published < group->size ||
            slot->n_taken == slot->n_chunks)
            break;
        int64_t chunk = slot->n_taken++;
        slot_t taken =
            *slot; /* the table may move while the mutex is free; what it points to stays */
        group->n_working++;
        pthread_mutex_unlock(&group->mutex);
        if (taken.kind == SLOT_ALL_REDUCE)
            sum_chunk(local, &taken, chunk);
        else
            gather_chunk(local, &taken, chunk);
        pthread_mutex_lock(&group->mutex);
        group->n_working--;
        slot = &group->slots[index];
        slot->n_done++;
        if (slot->n_done == slot->n_chunks || (group->failed != ST_OK && !group->n_working))
            pthread_cond_broadcast(&group->changed);
    }
    return any;
}

/* ---- start ---- */

typedef struct request {
    slot_kind_t kind;
    ir_dtype_t dtype;
    uint32_t n_numbers, n_data;
    const int64_t *numbers;
    void *const *data;
    int64_t outer, total, n_chunks;
} request_t;

/* Enters the request into the slot; the first rank to come fills in what all must agree on. */
static st_status_t publish(local_t *local, uint32_t ticket, slot_t *slot,
                           const request_t *request) {
    part_t *part = &slot->parts[local->base.rank];
    size_t bytes = request->n_numbers * sizeof *request->numbers;
    if (part->published)
        return FAIL(ST_INVALID, "rank %d starts collective %u again before waiting for it",
                    local->base.rank, ticket);
    TRY(reserve(local, ticket, request->n_numbers, request->n_data));
    if (slot->kind == SLOT_FREE) {
        slot->kind = request->kind;
        slot->dtype = request->dtype;
        slot->n_segments = request->n_numbers;
        if (bytes) memcpy(slot->elements, request->numbers, bytes);
        slot->outer = request->outer;
        slot->total = request->total;
        slot->n_chunks = request->n_chunks;
    } else if (slot->kind != request->kind || slot->dtype != request->dtype ||
               slot->n_segments != request->n_numbers || slot->outer != request->outer ||
               (bytes && memcmp(slot->elements, request->numbers, bytes))) {
        return FAIL(
            ST_RANKS_DISAGREE,
            "collective %u of rank %d is not that of the ranks before it: kind, element type or "
            "sizes differ",
            ticket, local->base.rank);
    }

    if (request->n_data) memcpy(part->data, request->data, request->n_data * sizeof *part->data);
    part->published = true;
    slot->n_published++;
    return ST_OK;
}

static st_status_t start(local_t *local, uint32_t ticket, const request_t *request) {
    group_t *group = local->group;
    if (ticket >= MAX_TICKETS)
        return FAIL(ST_INVALID, "collective index %u is not below %d", ticket, MAX_TICKETS);
    pthread_mutex_lock(&group->mutex);
    st_status_t status = group->failed != ST_OK ? latched(group) : ST_OK;
    if (status != ST_OK) goto done;
    TRY_GOTO(grow_uses(local, ticket), fail);
    TRY_GOTO(grow_slots(group, ticket), fail);
    uint32_t index = 2 * ticket + local->uses[ticket];
    TRY_GOTO(publish(local, ticket, &group->slots[index], request), fail);
    local->pending[local->n_pending++] = index;
    if (group->slots[index].n_published == group->size) pthread_cond_broadcast(&group->changed);
    /* one fair share of each collective that is ready, of this one too if this rank is the last to
     * come: the others may be busy elsewhere */
    for (uint32_t i = 0; i < local->n_pending; i++) {
        int64_t n_chunks = group->slots[local->pending[i]].n_chunks;
        work(local, local->pending[i], (n_chunks + group->size - 1) / group->size);
    }
    goto done;
fail:
    latch(group, status == ST_RANKS_DISAGREE ? status : ST_PEER_LOST, st_last_error());
    drain(group);
done:
    pthread_mutex_unlock(&group->mutex);
    return status;
}

static st_status_t local_all_reduce_start(comm_t *comm, uint32_t ticket, ir_dtype_t dtype,
                                          uint32_t n, void *const *data, const int64_t *elements) {
    if (!comm_sum_supported(dtype))
        return FAIL(ST_UNSUPPORTED,
                    "sums over ranks of %s do not exist: f32, f64, f16, bf16, i32, i64",
                    ir_dtype_text(dtype));
    request_t request = {SLOT_ALL_REDUCE, dtype, n, n, elements, data, 0, 0, 0};
    for (uint32_t i = 0; i < n; i++) request.total += elements[i];
    request.n_chunks = (request.total + CHUNK_ELEMENTS - 1) / CHUNK_ELEMENTS;
    if (comm->size == 1) request.n_chunks = 0; /* the sum over one rank */
    return start((local_t *)comm, ticket, &request);
}

static st_status_t local_all_gather_start(comm_t *comm, uint32_t ticket, int64_t outer,
                                          const int64_t *part_bytes, const void *in, void *out) {
    void *data[2] = {(void *)(uintptr_t)in, out};
    request_t request = {
        SLOT_ALL_GATHER, IR_U8, (uint32_t)comm->size, 2, part_bytes, data, outer, 0, 0};
    for (int r = 0; r < comm->size; r++) request.total += part_bytes[r];
    request.n_chunks = request.total && outer ? comm->size : 0;
    return start((local_t *)comm, ticket, &request);
}

/* ---- wait ---- */

static struct timespec deadline_after(int64_t ms) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_sec += (time_t)(ms / 1000);
    at.tv_nsec += (long)(ms % 1000) * 1000000L;
    if (at.tv_nsec >= 1000000000L) at.tv_sec++, at.tv_nsec -= 1000000000L;
    return at;
}

/* Latches what is missing after the timeout. */
static void latch_missing(local_t *local, uint32_t ticket, const slot_t *slot) {
    group_t *group = local->group;
    char reason[REASON_BYTES];
    int used = snprintf(reason, sizeof reason, "collective %u: rank %d waited %lld ms for rank",
                        ticket, local->base.rank, (long long)group->timeout_ms);
    for (int r = 0, first = 1; r < group->size && used < (int)sizeof reason; r++)
        if (!slot->parts[r].published) {
            used +=
                snprintf(reason + used, sizeof reason - (size_t)used, "%s %d", first ? "" : ",", r);
            first = 0;
        }
    if (slot->n_published == group->size)
        snprintf(reason, sizeof reason,
                 "collective %u: rank %d waited %lld ms for a rank that began to add and stopped",
                 ticket, local->base.rank, (long long)group->timeout_ms);
    latch(group, ST_PEER_LOST, reason);
}

static void leave(local_t *local, uint32_t ticket, uint32_t index) {
    slot_t *slot = &local->group->slots[index];
    uint32_t at = 0;
    while (local->pending[at] != index) at++;
    local->n_pending--;
    memmove(local->pending + at, local->pending + at + 1,
            (local->n_pending - at) * sizeof *local->pending);
    local->uses[ticket] ^= 1;
    if (++slot->n_left < local->group->size) return;
    slot->kind = SLOT_FREE;
    slot->n_published = slot->n_left = 0;
    slot->n_chunks = slot->n_taken = slot->n_done = 0;
    for (int r = 0; r < local->group->size; r++) slot->parts[r].published = false;
}

static st_status_t local_wait(comm_t *comm, uint32_t ticket) {
    local_t *local = (local_t *)comm;
    group_t *group = local->group;
    struct timespec deadline = deadline_after(group->timeout_ms);
    st_status_t status = ST_OK;
    bool late = false;
    pthread_mutex_lock(&group->mutex);
    uint32_t index = ticket < local->n_uses ? 2 * ticket + local->uses[ticket] : 0;
    if (group->failed == ST_OK &&
        (ticket >= local->n_uses || !group->slots[index].parts[comm->rank].published)) {
        status = FAIL(ST_INVALID, "rank %d waits for collective %u, which it has not started",
                      comm->rank, ticket);
        goto done;
    }
    for (;;) {
        if (group->failed != ST_OK) {
            drain(group);
            status = latched(group);
            goto done;
        }
        const slot_t *slot = &group->slots[index];
        if (slot->n_published == group->size && slot->n_done == slot->n_chunks) break;
        if (work(local, index, INT64_MAX)) continue;
        if (late) {
            latch_missing(local, ticket, &group->slots[index]);
            continue;
        }
        /* the time may be up and the collective done at once: the loop looks once more */
        late = pthread_cond_timedwait(&group->changed, &group->mutex, &deadline) == ETIMEDOUT;
    }
    leave(local, ticket, index);
done:
    pthread_mutex_unlock(&group->mutex);
    return status;
}

static void local_abort(comm_t *comm, const char *reason) {
    group_t *group = ((local_t *)comm)->group;
    char text[REASON_BYTES];
    snprintf(text, sizeof text, "rank %d gave up: %s", comm->rank, reason);
    pthread_mutex_lock(&group->mutex);
    latch(group, ST_PEER_LOST, text);
    pthread_mutex_unlock(&group->mutex);
}

/* ---- life ---- */

static void group_destroy(group_t *group) {
    for (uint32_t i = 0; i < group->n_slots; i++) {
        for (int r = 0; r < group->size; r++) st_free(group->slots[i].parts[r].data);
        st_free(group->slots[i].parts);
        st_free(group->slots[i].elements);
    }
    st_free(group->slots);
    pthread_cond_destroy(&group->changed);
    pthread_mutex_destroy(&group->mutex);
    st_free(group);
}

static void local_destroy(comm_t *comm) {
    local_t *local = (local_t *)comm;
    group_t *group = local->group;
    pthread_mutex_lock(&group->mutex);
    /* a rank that leaves without waiting must not take its buffers from under a chunk */
    if (local->n_pending) latch(group, ST_PEER_LOST, "a rank left with collectives in flight");
    drain(group);
    bool last = --group->n_handles == 0;
    pthread_mutex_unlock(&group->mutex);
    st_free(local->uses);
    st_free(local->pending);
    st_free(local->buffers);
    st_free(local);
    if (last) group_destroy(group);
}

static const comm_backend_t backend = {
    .name = "local",
    .all_reduce_start = local_all_reduce_start,
    .all_gather_start = local_all_gather_start,
    .wait = local_wait,
    .abort = local_abort,
    .destroy = local_destroy,
};

static st_status_t group_create(int n_ranks, int64_t timeout_ms, group_t **out_group) {
    group_t *group = st_calloc(1, sizeof *group);
    if (!group) return st_no_memory(sizeof *group, "a communicator");
    group->size = n_ranks;
    group->timeout_ms = timeout_ms;
    pthread_condattr_t attributes;
    int failed = pthread_condattr_init(&attributes);
    if (!failed) {
        failed = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
        if (!failed) failed = pthread_cond_init(&group->changed, &attributes);
        pthread_condattr_destroy(&attributes);
    }
    if (!failed && (failed = pthread_mutex_init(&group->mutex, NULL)))
        pthread_cond_destroy(&group->changed);
    if (failed) {
        st_free(group);
        return FAIL(ST_NO_MEMORY, "the communicator's locks: %s", strerror(failed));
    }
    *out_group = group;
    return ST_OK;
}

st_status_t comm_local_create(int n_ranks, int64_t timeout_ms, comm_t **out_ranks) {
    if (n_ranks < 1 || timeout_ms < 1)
        return FAIL(ST_INVALID, "%d ranks with a timeout of %lld ms: both must be at least 1",
                    n_ranks, (long long)timeout_ms);
    for (int r = 0; r < n_ranks; r++) out_ranks[r] = NULL;
    group_t *group = NULL;
    TRY(group_create(n_ranks, timeout_ms, &group));
    for (int r = 0; r < n_ranks; r++) {
        local_t *local = st_calloc(1, sizeof *local);
        void **buffers = st_calloc((size_t)n_ranks, sizeof *buffers);
        if (!local || !buffers) {
            st_free(local);
            st_free(buffers);
            if (r == 0) group_destroy(group);
            while (r-- > 0) local_destroy(out_ranks[r]), out_ranks[r] = NULL;
            return st_no_memory(sizeof *local, "a communicator's handle");
        }
        *local = (local_t){.base = {&backend, r, n_ranks}, .group = group, .buffers = buffers};
        group->n_handles++;
        out_ranks[r] = &local->base;
    }
    return ST_OK;
}
