/* Send and receive: whichever end comes second copies. */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "comm/local/internal.h"

static local_queue_t *queue_of(const local_group_t *group, comm_kind_t kind, int from, int to) {
    size_t size = (size_t)group->size;
    return &group->queues[((kind == COMM_RECEIVE ? size : 0) + (size_t)from) * size + (size_t)to];
}

static st_status_t push(local_queue_t *queue, uint32_t ticket) {
    if (queue->n == queue->cap) {
        uint32_t cap = queue->cap ? 2 * queue->cap : 4;
        uint32_t *tickets = st_realloc(queue->tickets, cap * sizeof *tickets);
        if (!tickets) return st_no_memory(cap * sizeof *tickets, "a transfer");
        queue->tickets = tickets;
        queue->cap = cap;
    }
    queue->tickets[queue->n++] = ticket;
    return ST_OK;
}

static uint32_t pop(local_queue_t *queue) {
    uint32_t ticket = queue->tickets[0];
    queue->n--;
    memmove(queue->tickets, queue->tickets + 1, queue->n * sizeof *queue->tickets);
    return ticket;
}

static st_status_t meet(local_t *local, uint32_t ticket, local_t *other, uint32_t its_ticket) {
    local_world_t *world = local->group->world;
    local_end_t mine = local->ends[ticket], its = other->ends[its_ticket];
    if (mine.dtype != its.dtype || mine.elements != its.elements)
        return FAIL(ST_RANKS_DISAGREE, "rank %d's %s of %lld %s meets rank %d's %s of %lld %s",
                    local->group->ranks[local->base.rank], comm_kind_text(mine.kind),
                    (long long)mine.elements, ir_dtype_text(mine.dtype),
                    local->group->ranks[other->base.rank], comm_kind_text(its.kind),
                    (long long)its.elements, ir_dtype_text(its.dtype));
    size_t bytes = (size_t)mine.elements * ir_dtype_bytes(mine.dtype);
    void *to = mine.kind == COMM_RECEIVE ? mine.data : its.data;
    const void *from = mine.kind == COMM_RECEIVE ? its.data : mine.data;
    world->n_working++;
    pthread_mutex_unlock(&world->mutex);
    if (bytes) memcpy(to, from, bytes);
    pthread_mutex_lock(&world->mutex);
    world->n_working--;
    local->ends[ticket].done = other->ends[its_ticket].done = true;
    pthread_cond_broadcast(&world->changed);
    return ST_OK;
}

st_status_t local_pair_start(local_t *local, uint32_t ticket, const comm_request_t *request) {
    local_group_t *group = local->group;
    bool send = request->kind == COMM_SEND;
    int peer = (int)request->numbers[0];
    int from = send ? local->base.rank : peer, to = send ? peer : local->base.rank;
    local_queue_t *mine = queue_of(group, request->kind, from, to);
    local_queue_t *others = queue_of(group, send ? COMM_RECEIVE : COMM_SEND, from, to);
    local->ends[ticket] = (local_end_t){.active = true,
                                        .kind = request->kind,
                                        .dtype = request->dtype,
                                        .peer = peer,
                                        .elements = request->numbers[1],
                                        .data = request->data[0]};
    local->n_ends++;
    if (others->n == 0) return push(mine, ticket);
    return meet(local, ticket, group->members[peer], pop(others));
}
