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
 * Other collectives have a chunk a rank that receives. A send and a receive are no slot: whichever
 * comes second copies (pair.c).
 *
 * Groups: a communicator made from another shares its world, that is the lock, the failure and the
 * timeout, and has slots of its own. Members find each other by the list of ranks: a rank that
 * makes a group joins the oldest one of that list in which it is not yet.
 *
 * One mutex guards everything but the chunks' data; a chunk is large (32 Ki elements) beside the
 * cost of taking it. After a failure no chunk is handed out any more, and a failing call returns
 * only when no chunk is being worked on: the caller may then free its buffers. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "comm/local/internal.h"

/* ---- failure ---- */

static st_status_t latched(const local_world_t *world) {
    return FAIL(world->failed, "%s", world->reason);
}

void local_latch(local_world_t *world, st_status_t status, const char *reason) {
    if (world->failed != ST_OK) return;
    world->failed = status;
    snprintf(world->reason, sizeof world->reason, "%s", reason);
    pthread_cond_broadcast(&world->changed);
}

/* Waits until no chunk is being worked on; the mutex is held. Chunks end by themselves. */
static void drain(local_world_t *world) {
    while (world->n_working) pthread_cond_wait(&world->changed, &world->mutex);
}

/* This rank's number in the world, for messages. */
static int world_rank(const local_t *local) {
    return local->group->ranks[local->base.rank];
}

/* ---- slots ---- */

static st_status_t grow_slots(local_group_t *group, uint32_t ticket) {
    uint32_t need = 2 * (ticket + 1);
    if (need <= group->n_slots) return ST_OK;
    if (need < 2 * group->n_slots) need = 2 * group->n_slots;
    local_slot_t **slots = st_realloc(group->slots, need * sizeof *slots);
    if (!slots) return st_no_memory(need * sizeof *slots, "the table of collectives");
    memset(slots + group->n_slots, 0, (need - group->n_slots) * sizeof *slots);
    group->slots = slots;
    group->n_slots = need;
    return ST_OK;
}

/* Both slots of the ticket. */
static st_status_t make_slots(local_group_t *group, uint32_t ticket) {
    TRY(grow_slots(group, ticket));
    for (uint32_t i = 2 * ticket; i < 2 * ticket + 2; i++) {
        if (group->slots[i]) continue;
        local_slot_t *slot = st_calloc(1, sizeof *slot);
        local_part_t *parts = st_calloc((size_t)group->size, sizeof *parts);
        if (!slot || !parts) {
            st_free(slot);
            st_free(parts);
            return st_no_memory((size_t)group->size * sizeof *parts, "a collective");
        }
        slot->parts = parts;
        group->slots[i] = slot;
    }
    return ST_OK;
}

static st_status_t grow_uses(local_t *local, uint32_t ticket) {
    if (ticket < local->n_uses) return ST_OK;
    uint32_t need = 2 * (ticket + 1), old = local->n_uses;
    uint8_t *uses = st_realloc(local->uses, need);
    if (uses) local->uses = uses;
    local_end_t *ends = uses ? st_realloc(local->ends, need * sizeof *ends) : NULL;
    if (!ends) return st_no_memory(need * sizeof *ends, "the table of collectives");
    local->ends = ends;
    memset(uses + old, 0, need - old);
    memset(ends + old, 0, (need - old) * sizeof *ends);
    local->n_uses = need;
    return ST_OK;
}

static st_status_t grow(void **array, uint32_t *cap, uint32_t need, size_t size) {
    if (need <= *cap) return ST_OK;
    void *grown = st_realloc(*array, need * size);
    if (!grown) return st_no_memory(need * size, "a collective");
    *array = grown;
    *cap = need;
    return ST_OK;
}

/* Room in both slots of the ticket, so that the second step needs no more memory than the first.
 * Nothing is being added from the other slot any more: this rank has left it, so its chunks are
 * done. */
static st_status_t reserve(local_t *local, uint32_t ticket, const comm_request_t *request) {
    for (uint32_t parity = 0; parity < 2; parity++) {
        local_slot_t *slot = local->group->slots[2 * ticket + parity];
        local_part_t *part = &slot->parts[local->base.rank];
        if (request->kind == COMM_ALL_TO_ALL)
            TRY(grow((void **)&part->numbers, &part->cap_numbers, request->n_numbers,
                     sizeof *part->numbers));
        else if (!slot->n_published || parity != local->uses[ticket])
            TRY(grow((void **)&slot->numbers, &slot->cap_numbers, request->n_numbers,
                     sizeof *slot->numbers));
        TRY(grow((void **)&part->data, &part->cap_data, request->n_data, sizeof *part->data));
    }
    if (local->n_pending == local->cap_pending)
        TRY(grow((void **)&local->pending, &local->cap_pending,
                 local->cap_pending ? 2 * local->cap_pending : 16, sizeof *local->pending));
    return ST_OK;
}

/* Takes up to `limit` chunks of the slot and works on them; true if it took any. The mutex is held
 * on entry and exit, not in between. */
static bool work(local_t *local, uint32_t index, int64_t limit) {
    local_world_t *world = local->group->world;
    local_slot_t *slot = local->group->slots[index];
    bool any = false;
    for (; limit > 0; limit--, any = true) {
        if (world->failed != ST_OK || slot->kind == COMM_NONE ||
            slot->n_published < local->base.size || slot->n_taken == slot->n_chunks)
            break;
        int64_t chunk = slot->n_taken++;
        world->n_working++;
        pthread_mutex_unlock(&world->mutex);
        local_chunk(local, slot, chunk);
        pthread_mutex_lock(&world->mutex);
        world->n_working--;
        slot->n_done++;
        if (slot->n_done == slot->n_chunks || (world->failed != ST_OK && !world->n_working))
            pthread_cond_broadcast(&world->changed);
    }
    return any;
}

/* ---- start ---- */

static st_status_t disagree(const local_t *local, uint32_t ticket, const char *what) {
    return FAIL(ST_RANKS_DISAGREE,
                "collective %u of rank %d is not that of the ranks before it: %s differ", ticket,
                world_rank(local), what);
}

/* What an all-to-all's ranks say of their parts is the same at both ends. */
static st_status_t check_all_to_all(const local_t *local, uint32_t ticket,
                                    const local_slot_t *slot) {
    int size = local->base.size;
    for (int a = 0; a < size; a++)
        for (int b = 0; b < size; b++) {
            const int64_t *from = slot->parts[a].numbers, *to = slot->parts[b].numbers + 1 + size;
            if (from[0] * from[1 + b] != to[0] * to[1 + a])
                return FAIL(ST_RANKS_DISAGREE,
                            "collective %u: rank %d sends %lld elements to rank %d, which expects "
                            "%lld",
                            ticket, local->group->ranks[a], (long long)(from[0] * from[1 + b]),
                            local->group->ranks[b], (long long)(to[0] * to[1 + a]));
        }
    return ST_OK;
}

/* Enters the request into the slot; the first rank to come fills in what all must agree on. */
static st_status_t publish(local_t *local, uint32_t ticket, local_slot_t *slot,
                           const comm_request_t *request) {
    local_part_t *part = &slot->parts[local->base.rank];
    bool own_numbers = request->kind == COMM_ALL_TO_ALL;
    size_t bytes = request->n_numbers * sizeof *request->numbers;
    if (part->published) return comm_started_twice(world_rank(local), ticket);
    TRY(reserve(local, ticket, request));
    if (slot->kind == COMM_NONE) {
        slot->kind = request->kind;
        slot->dtype = request->dtype;
        slot->n_segments = request->n_segments;
        slot->n_numbers = request->n_numbers;
        if (bytes && !own_numbers) memcpy(slot->numbers, request->numbers, bytes);
        slot->total = 0;
        for (uint32_t i = 0; request->kind == COMM_ALL_REDUCE && i < request->n_segments; i++)
            slot->total += request->numbers[i];
        slot->n_chunks = local_chunk_count(slot, local->base.size);
    } else if (slot->kind != request->kind || slot->dtype != request->dtype ||
               slot->n_segments != request->n_segments || slot->n_numbers != request->n_numbers ||
               (bytes && !own_numbers && memcmp(slot->numbers, request->numbers, bytes) != 0)) {
        return disagree(local, ticket, "kind, element type or sizes");
    }
    if (bytes && own_numbers) memcpy(part->numbers, request->numbers, bytes);
    if (request->n_data) memcpy(part->data, request->data, request->n_data * sizeof *part->data);
    part->published = true;
    if (++slot->n_published == local->base.size && own_numbers)
        return check_all_to_all(local, ticket, slot);
    return ST_OK;
}

static st_status_t start_slot(local_t *local, uint32_t ticket, const comm_request_t *request) {
    local_group_t *group = local->group;
    TRY(make_slots(group, ticket));
    uint32_t index = 2 * ticket + local->uses[ticket];
    TRY(publish(local, ticket, group->slots[index], request));
    local->pending[local->n_pending++] = index;
    if (group->slots[index]->n_published == group->size)
        pthread_cond_broadcast(&group->world->changed);
    /* one fair share of each collective that is ready, of this one too if this rank is the last to
     * come: the others may be busy elsewhere */
    for (uint32_t i = 0; i < local->n_pending; i++) {
        int64_t n_chunks = group->slots[local->pending[i]]->n_chunks;
        work(local, local->pending[i], (n_chunks + group->size - 1) / group->size);
    }
    return ST_OK;
}

static st_status_t local_start(comm_t *comm, uint32_t ticket, const comm_request_t *request) {
    local_t *local = (local_t *)comm;
    local_world_t *world = local->group->world;
    bool pair = request->kind == COMM_SEND || request->kind == COMM_RECEIVE;
    pthread_mutex_lock(&world->mutex);
    st_status_t status = world->failed != ST_OK ? latched(world) : ST_OK;
    if (status != ST_OK) goto done;
    TRY_GOTO(grow_uses(local, ticket), fail);
    if (local->ends[ticket].active) {
        status = comm_started_twice(world_rank(local), ticket);
        goto fail;
    }
    TRY_GOTO(pair ? local_pair_start(local, ticket, request) : start_slot(local, ticket, request),
             fail);
    goto done;
fail:
    local_latch(world, status == ST_RANKS_DISAGREE ? status : ST_PEER_LOST, st_last_error());
    drain(world);
done:
    pthread_mutex_unlock(&world->mutex);
    return status;
}

/* ---- wait ---- */

/* Latches what is missing after the timeout; `slot` is NULL for a send or receive. */
static void latch_missing(local_t *local, uint32_t ticket, const local_slot_t *slot,
                          int64_t limit_ms) {
    local_group_t *group = local->group;
    char reason[LOCAL_REASON_BYTES];
    int used = snprintf(reason, sizeof reason, "collective %u: rank %d waited %lld ms for rank",
                        ticket, world_rank(local), (long long)limit_ms);
    for (int r = 0, first = 1; r < group->size && used < (int)sizeof reason; r++)
        if (slot ? !slot->parts[r].published : r == local->ends[ticket].peer) {
            used += snprintf(reason + used, sizeof reason - (size_t)used, "%s %d", first ? "" : ",",
                             group->ranks[r]);
            first = 0;
        }
    if (slot && slot->n_published == group->size)
        snprintf(reason, sizeof reason,
                 "collective %u: rank %d waited %lld ms for a rank that began to add and stopped",
                 ticket, world_rank(local), (long long)limit_ms);
    local_latch(group->world, ST_PEER_LOST, reason);
}

static void leave(local_t *local, uint32_t ticket, uint32_t index) {
    local_slot_t *slot = local->group->slots[index];
    uint32_t at = 0;
    while (local->pending[at] != index) at++;
    local->n_pending--;
    memmove(local->pending + at, local->pending + at + 1,
            (local->n_pending - at) * sizeof *local->pending);
    local->uses[ticket] ^= 1;
    if (++slot->n_left < local->group->size) return;
    slot->kind = COMM_NONE;
    slot->n_published = slot->n_left = 0;
    slot->n_chunks = slot->n_taken = slot->n_done = 0;
    for (int r = 0; r < local->group->size; r++) slot->parts[r].published = false;
}

static bool has_started(const local_t *local, uint32_t ticket) {
    if (ticket >= local->n_uses) return false;
    if (local->ends[ticket].active) return true;
    uint32_t index = 2 * ticket + local->uses[ticket];
    return index < local->group->n_slots && local->group->slots[index] &&
           local->group->slots[index]->parts[local->base.rank].published;
}

static st_status_t local_wait(comm_t *comm, uint32_t ticket, int64_t limit_ms) {
    local_t *local = (local_t *)comm;
    local_world_t *world = local->group->world;
    if (limit_ms <= 0) limit_ms = world->timeout_ms;
    struct timespec deadline = comm_deadline(limit_ms);
    st_status_t status = ST_OK;
    bool late = false;
    pthread_mutex_lock(&world->mutex);
    if (world->failed == ST_OK && !has_started(local, ticket)) {
        status = comm_not_started(world_rank(local), ticket);
        goto done;
    }
    for (;;) {
        if (world->failed != ST_OK) {
            drain(world);
            status = latched(world);
            goto done;
        }
        bool pair = local->ends[ticket].active;
        uint32_t index = 2 * ticket + local->uses[ticket];
        const local_slot_t *slot = pair ? NULL : local->group->slots[index];
        if (pair && local->ends[ticket].done) {
            local->ends[ticket].active = false;
            local->n_ends--;
            break;
        }
        if (!pair && slot->n_published == comm->size && slot->n_done == slot->n_chunks) {
            leave(local, ticket, index);
            break;
        }
        if (!pair && work(local, index, INT64_MAX)) continue;
        if (late) {
            latch_missing(local, ticket, slot, limit_ms);
            continue;
        }
        /* the time may be up and the collective done at once: the loop looks once more */
        late = pthread_cond_timedwait(&world->changed, &world->mutex, &deadline) == ETIMEDOUT;
    }
done:
    pthread_mutex_unlock(&world->mutex);
    return status;
}

static bool local_done(comm_t *comm, uint32_t ticket) {
    local_t *local = (local_t *)comm;
    local_world_t *world = local->group->world;
    pthread_mutex_lock(&world->mutex);
    bool done = world->failed != ST_OK || !has_started(local, ticket);
    if (!done && local->ends[ticket].active) {
        done = local->ends[ticket].done;
    } else if (!done) {
        uint32_t index = 2 * ticket + local->uses[ticket];
        work(local, index, INT64_MAX);
        const local_slot_t *slot = local->group->slots[index];
        done = slot->n_published == comm->size && slot->n_done == slot->n_chunks;
    }
    pthread_mutex_unlock(&world->mutex);
    return done;
}

static st_status_t local_check(const comm_t *comm, char *reason, size_t capacity) {
    local_world_t *world = ((const local_t *)comm)->group->world;
    pthread_mutex_lock(&world->mutex);
    st_status_t status = world->failed;
    if (status != ST_OK) snprintf(reason, capacity, "%s", world->reason);
    pthread_mutex_unlock(&world->mutex);
    return status;
}

static void local_abort(comm_t *comm, st_status_t status, const char *reason) {
    local_t *local = (local_t *)comm;
    char text[LOCAL_REASON_BYTES];
    snprintf(text, sizeof text, "rank %d gave up: %s", world_rank(local), reason);
    pthread_mutex_lock(&local->group->world->mutex);
    local_latch(local->group->world, status, text);
    pthread_mutex_unlock(&local->group->world->mutex);
}

/* ---- life ---- */

static void group_free(local_group_t *group) {
    size_t size = (size_t)group->size;
    for (uint32_t i = 0; i < group->n_slots; i++) {
        local_slot_t *slot = group->slots[i];
        for (size_t r = 0; slot && r < size; r++) {
            st_free(slot->parts[r].data);
            st_free(slot->parts[r].numbers);
        }
        if (slot) st_free(slot->parts);
        if (slot) st_free(slot->numbers);
        st_free(slot);
    }
    for (size_t q = 0; group->queues && q < 2 * size * size; q++) st_free(group->queues[q].tickets);
    st_free(group->queues);
    st_free(group->slots);
    st_free(group->ranks);
    st_free(group->members);
    st_free(group->joined);
    st_free(group);
}

static st_status_t group_create(local_world_t *world, int n, local_group_t **out_group) {
    local_group_t *group = st_calloc(1, sizeof *group);
    if (!group) return st_no_memory(sizeof *group, "a communicator");
    group->world = world;
    group->size = n;
    group->ranks = st_calloc((size_t)n, sizeof *group->ranks);
    group->members = st_calloc((size_t)n, sizeof *group->members);
    group->joined = st_calloc((size_t)n, sizeof *group->joined);
    group->queues = st_calloc(2 * (size_t)n * (size_t)n, sizeof *group->queues);
    if (!group->ranks || !group->members || !group->joined || !group->queues) {
        group_free(group);
        return st_no_memory(2 * (size_t)n * (size_t)n * sizeof *group->queues, "a communicator");
    }
    local_group_t **last = &world->groups;
    while (*last) last = &(*last)->next;
    *last = group;
    *out_group = group;
    return ST_OK;
}

static void world_free(local_world_t *world) {
    while (world->groups) {
        local_group_t *group = world->groups;
        world->groups = group->next;
        group_free(group);
    }
    pthread_cond_destroy(&world->changed);
    pthread_mutex_destroy(&world->mutex);
    st_free(world);
}

/* Frees the group that nobody can be in any more. */
static void forget(local_group_t *group) {
    if (group->n_joined < group->size || group->n_handles) return;
    local_group_t **at = &group->world->groups;
    while (*at != group) at = &(*at)->next;
    *at = group->next;
    group_free(group);
}

static void local_destroy(comm_t *comm) {
    local_t *local = (local_t *)comm;
    local_group_t *group = local->group;
    local_world_t *world = group->world;
    pthread_mutex_lock(&world->mutex);
    /* a rank that leaves without waiting must not take its buffers from under a chunk */
    if (local->n_pending || local->n_ends)
        local_latch(world, ST_PEER_LOST, "a rank left with collectives in flight");
    drain(world);
    bool last = --world->n_handles == 0;
    group->members[comm->rank] = NULL;
    group->n_handles--;
    forget(group);
    pthread_mutex_unlock(&world->mutex);
    comm_release(comm);
    st_free(local->uses);
    st_free(local->ends);
    st_free(local->pending);
    st_free(local->buffers);
    st_free(local);
    if (last) world_free(world);
}

static st_status_t local_group_create(comm_t *parent, int n, const int *ranks, comm_t **out_group);

static const comm_backend_t backend = {
    .name = "local",
    .group_create = local_group_create,
    .start = local_start,
    .wait = local_wait,
    .done = local_done,
    .abort = local_abort,
    .check = local_check,
    .destroy = local_destroy,
};

/* A handle on rank r of the group. The mutex is held, or nobody else knows the group. */
static st_status_t join(local_group_t *group, int r, comm_t **out_comm) {
    local_t *local = st_calloc(1, sizeof *local);
    void **buffers = st_calloc((size_t)group->size, sizeof *buffers);
    if (!local || !buffers) {
        st_free(local);
        st_free(buffers);
        return st_no_memory(sizeof *local, "a communicator's handle");
    }
    *local = (local_t){.base = {.backend = &backend, .rank = r, .size = group->size},
                       .group = group,
                       .buffers = buffers};
    group->members[r] = local;
    group->joined[r] = true;
    group->n_joined++;
    group->n_handles++;
    group->world->n_handles++;
    *out_comm = &local->base;
    return ST_OK;
}

static bool same_ranks(const local_group_t *group, int n, const int *ranks) {
    return group->size == n && memcmp(group->ranks, ranks, (size_t)n * sizeof *ranks) == 0;
}

static st_status_t local_group_create(comm_t *parent, int n, const int *ranks, comm_t **out_group) {
    local_t *local = (local_t *)parent;
    local_world_t *world = local->group->world;
    int *list = st_malloc((size_t)n * sizeof *list), own = 0;
    if (!list) return st_no_memory((size_t)n * sizeof *list, "a communicator");
    for (int i = 0; i < n; i++) {
        list[i] = local->group->ranks[ranks[i]];
        if (ranks[i] == parent->rank) own = i;
    }
    pthread_mutex_lock(&world->mutex);
    st_status_t status = world->failed != ST_OK ? latched(world) : ST_OK;
    local_group_t *group = world->groups->next; /* the first is the whole world */
    while (group && (!same_ranks(group, n, list) || group->joined[own])) group = group->next;
    bool made = !group;
    if (status == ST_OK && made) status = group_create(world, n, &group);
    if (status == ST_OK && made) memcpy(group->ranks, list, (size_t)n * sizeof *list);
    if (status == ST_OK) status = join(group, own, out_group);
    pthread_mutex_unlock(&world->mutex);
    st_free(list);
    return status;
}

static st_status_t world_create(int64_t timeout_ms, local_world_t **out_world) {
    local_world_t *world = st_calloc(1, sizeof *world);
    if (!world) return st_no_memory(sizeof *world, "a communicator");
    world->timeout_ms = timeout_ms;
    pthread_condattr_t attributes;
    int failed = pthread_condattr_init(&attributes);
    if (!failed) {
        failed = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
        if (!failed) failed = pthread_cond_init(&world->changed, &attributes);
        pthread_condattr_destroy(&attributes);
    }
    if (!failed && (failed = pthread_mutex_init(&world->mutex, NULL)))
        pthread_cond_destroy(&world->changed);
    if (failed) {
        st_free(world);
        return FAIL(ST_NO_MEMORY, "the communicator's locks: %s", strerror(failed));
    }
    *out_world = world;
    return ST_OK;
}

st_status_t comm_local_create(int n_ranks, int64_t timeout_ms, comm_t **out_ranks) {
    if (n_ranks < 1 || timeout_ms < 1)
        return FAIL(ST_INVALID, "%d ranks with a timeout of %lld ms: both must be at least 1",
                    n_ranks, (long long)timeout_ms);
    for (int r = 0; r < n_ranks; r++) out_ranks[r] = NULL;
    local_world_t *world = NULL;
    local_group_t *group = NULL;
    TRY(world_create(timeout_ms, &world));
    st_status_t status = group_create(world, n_ranks, &group);
    for (int r = 0; status == ST_OK && r < n_ranks; r++) {
        group->ranks[r] = r;
        status = join(group, r, &out_ranks[r]);
    }
    if (status == ST_OK) return ST_OK;
    bool any = world->n_handles > 0;
    for (int r = 0; r < n_ranks; r++) {
        comm_destroy(out_ranks[r]);
        out_ranks[r] = NULL;
    }
    if (!any) world_free(world);
    return status;
}
