/* The communicator interface over the handle's backend: arguments are checked, sizes and buffers
 * put together as one request. */
#include <string.h>

#include "base/memory.h"
#include "comm/backend.h"
#include "comm/sum.h"

void comm_destroy(comm_t *comm) {
    if (comm) comm->backend->destroy(comm);
}
int comm_rank(const comm_t *comm) {
    return comm->rank;
}
int comm_size(const comm_t *comm) {
    return comm->size;
}
st_status_t comm_wait(comm_t *comm, uint32_t ticket) {
    return comm->backend->wait(comm, ticket, 0);
}
st_status_t comm_wait_for(comm_t *comm, uint32_t ticket, int64_t limit_ms) {
    return comm->backend->wait(comm, ticket, limit_ms);
}
void comm_mark(comm_t *comm, uint64_t step, const char *op) {
    if (comm->backend->mark) comm->backend->mark(comm, step, op);
}
st_status_t comm_check(const comm_t *comm, char *reason, size_t capacity) {
    return comm->backend->check(comm, reason, capacity);
}
bool comm_on_device(const comm_t *comm) {
    return comm->backend->step_begin != NULL;
}
st_status_t comm_pair_open(comm_t *comm, int peer, bool sends) {
    return comm->backend->pair_open ? comm->backend->pair_open(comm, peer, sends) : ST_OK;
}
void comm_step_begin(comm_t *comm, uint64_t step) {
    if (comm->backend->step_begin) comm->backend->step_begin(comm, step);
}
st_status_t comm_step_end(comm_t *comm) {
    return comm->backend->step_end ? comm->backend->step_end(comm) : ST_OK;
}
void comm_abort(comm_t *comm, st_status_t status, const char *reason) {
    (comm->backend->abort)(comm, status == ST_RANKS_DISAGREE ? status : ST_PEER_LOST, reason);
}

void comm_release(comm_t *comm) {
    st_free(comm->numbers);
    st_free(comm->data);
    comm->numbers = NULL;
    comm->data = NULL;
    comm->cap_numbers = comm->cap_data = 0;
}

struct timespec comm_deadline(int64_t ms) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_sec += (time_t)(ms / 1000);
    at.tv_nsec += (long)(ms % 1000) * 1000000L;
    if (at.tv_nsec >= 1000000000L) at.tv_sec++, at.tv_nsec -= 1000000000L;
    return at;
}

st_status_t comm_started_twice(int rank, uint32_t ticket) {
    return FAIL(ST_INVALID, "rank %d starts collective %u again before waiting for it", rank,
                ticket);
}

st_status_t comm_not_started(int rank, uint32_t ticket) {
    return FAIL(ST_INVALID, "rank %d waits for collective %u, which it has not started", rank,
                ticket);
}

const char *comm_kind_text(comm_kind_t kind) {
    static const char *const names[COMM_KIND_END] = {
        [COMM_NONE] = "nothing",
        [COMM_ALL_REDUCE] = "all-reduce",
        [COMM_ALL_GATHER] = "all-gather",
        [COMM_REDUCE_SCATTER] = "reduce-scatter",
        [COMM_ALL_TO_ALL] = "all-to-all",
        [COMM_BROADCAST] = "broadcast",
        [COMM_SEND] = "send",
        [COMM_RECEIVE] = "receive",
    };
    return names[kind];
}

st_status_t comm_group_create(comm_t *parent, int n, const int *ranks, comm_t **out_group) {
    *out_group = NULL;
    bool own = false;
    if (n < 1 || n > parent->size)
        return FAIL(ST_INVALID, "a group of %d ranks out of %d", n, parent->size);
    for (int i = 0; i < n; i++) {
        if (ranks[i] < 0 || ranks[i] >= parent->size)
            return FAIL(ST_INVALID, "rank %d of a group: there are %d", ranks[i], parent->size);
        for (int j = 0; j < i; j++)
            if (ranks[j] == ranks[i])
                return FAIL(ST_INVALID, "rank %d is twice in a group", ranks[i]);
        own |= ranks[i] == parent->rank;
    }
    if (!own) return FAIL(ST_INVALID, "rank %d is not in the group it makes", parent->rank);
    return parent->backend->group_create(parent, n, ranks, out_group);
}

/* ---- requests ---- */

/* Room for a request in the handle; kept, so that later steps allocate nothing. */
static st_status_t room(comm_t *comm, uint32_t ticket, uint32_t n_numbers, uint32_t n_data) {
    if (ticket >= COMM_MAX_TICKETS)
        return FAIL(ST_INVALID, "collective index %u is not below %d", ticket, COMM_MAX_TICKETS);
    if (n_numbers > comm->cap_numbers) {
        int64_t *numbers = st_realloc(comm->numbers, n_numbers * sizeof *numbers);
        if (!numbers) return st_no_memory(n_numbers * sizeof *numbers, "a collective");
        comm->numbers = numbers;
        comm->cap_numbers = n_numbers;
    }
    if (n_data > comm->cap_data) {
        void **data = st_realloc(comm->data, n_data * sizeof *data);
        if (!data) return st_no_memory(n_data * sizeof *data, "a collective");
        comm->data = data;
        comm->cap_data = n_data;
    }
    return ST_OK;
}

static st_status_t check_count(int64_t n, const char *what) {
    return n >= 0 ? ST_OK : FAIL(ST_INVALID, "%lld %s", (long long)n, what);
}

/* Sizes of one cut tensor; fails where they do not fit in 64 bits. */
static st_status_t put_split(const comm_t *comm, int64_t *to, int64_t outer, const int64_t *parts) {
    TRY(check_count(outer, "blocks in a collective"));
    int64_t block = 0, total;
    to[0] = outer;
    for (int r = 0; r < comm->size; r++) {
        TRY(check_count(parts[r], "elements in a part of a collective"));
        to[1 + r] = parts[r];
        if (__builtin_add_overflow(block, parts[r], &block))
            return FAIL(ST_INVALID, "the parts of a collective are too large");
    }
    if (__builtin_mul_overflow(block, outer, &total))
        return FAIL(ST_INVALID, "the parts of a collective are too large");
    return ST_OK;
}

static st_status_t start(comm_t *comm, uint32_t ticket, comm_kind_t kind, ir_dtype_t dtype,
                         uint32_t n_segments, uint32_t n_numbers, uint32_t n_data) {
    if (!ir_dtype_valid((int64_t)dtype))
        return FAIL(ST_INVALID, "a collective of element type %d", (int)dtype);
    comm_request_t request = {kind,   dtype,         n_segments, n_numbers,
                              n_data, comm->numbers, comm->data};
    return comm->backend->start(comm, ticket, &request);
}

st_status_t comm_all_reduce_start(comm_t *comm, uint32_t ticket, ir_dtype_t dtype, uint32_t n,
                                  void *const *data, const int64_t *elements) {
    TRY(comm_sum_check(dtype));
    TRY(room(comm, ticket, n, n));
    for (uint32_t i = 0; i < n; i++) {
        TRY(check_count(elements[i], "elements in an all-reduce"));
        comm->numbers[i] = elements[i];
        comm->data[i] = data[i];
    }
    return start(comm, ticket, COMM_ALL_REDUCE, dtype, n, n, n);
}

static st_status_t start_cut(comm_t *comm, uint32_t ticket, comm_kind_t kind, ir_dtype_t dtype,
                             uint32_t n, const comm_segment_t *segments) {
    uint32_t width = 1 + (uint32_t)comm->size;
    TRY(room(comm, ticket, n * width, 3 * n));
    for (uint32_t i = 0; i < n; i++) {
        TRY(put_split(comm, comm->numbers + (size_t)i * width, segments[i].outer,
                      segments[i].parts));
        comm->data[2 * i] = (void *)(uintptr_t)segments[i].in;
        comm->data[2 * i + 1] = segments[i].out;
        comm->data[2 * n + i] = segments[i].stage;
    }
    return start(comm, ticket, kind, dtype, n, n * width, 3 * n);
}

st_status_t comm_all_gather_start(comm_t *comm, uint32_t ticket, ir_dtype_t dtype, uint32_t n,
                                  const comm_segment_t *segments) {
    return start_cut(comm, ticket, COMM_ALL_GATHER, dtype, n, segments);
}

st_status_t comm_reduce_scatter_start(comm_t *comm, uint32_t ticket, ir_dtype_t dtype, uint32_t n,
                                      const comm_segment_t *segments) {
    TRY(comm_sum_check(dtype));
    return start_cut(comm, ticket, COMM_REDUCE_SCATTER, dtype, n, segments);
}

st_status_t comm_all_to_all_start(comm_t *comm, uint32_t ticket, ir_dtype_t dtype, const void *in,
                                  comm_side_t from, void *out, comm_side_t to) {
    uint32_t width = 1 + (uint32_t)comm->size;
    TRY(room(comm, ticket, 2 * width, 4));
    TRY(put_split(comm, comm->numbers, from.outer, from.parts));
    TRY(put_split(comm, comm->numbers + width, to.outer, to.parts));
    comm->data[0] = (void *)(uintptr_t)in;
    comm->data[1] = out;
    comm->data[2] = from.stage;
    comm->data[3] = to.stage;
    return start(comm, ticket, COMM_ALL_TO_ALL, dtype, 1, 2 * width, 4);
}

st_status_t comm_broadcast_start(comm_t *comm, uint32_t ticket, ir_dtype_t dtype, int root,
                                 uint32_t n, void *const *data, const int64_t *elements) {
    if (root < 0 || root >= comm->size)
        return FAIL(ST_INVALID, "a broadcast from rank %d: there are %d", root, comm->size);
    TRY(room(comm, ticket, 1 + n, n));
    comm->numbers[0] = root;
    for (uint32_t i = 0; i < n; i++) {
        TRY(check_count(elements[i], "elements in a broadcast"));
        comm->numbers[1 + i] = elements[i];
        comm->data[i] = data[i];
    }
    return start(comm, ticket, COMM_BROADCAST, dtype, n, 1 + n, n);
}

static st_status_t start_pair(comm_t *comm, uint32_t ticket, comm_kind_t kind, int peer,
                              ir_dtype_t dtype, void *data, int64_t elements) {
    if (peer < 0 || peer >= comm->size || peer == comm->rank)
        return FAIL(ST_INVALID, "rank %d cannot %s with rank %d of %d", comm->rank,
                    comm_kind_text(kind), peer, comm->size);
    TRY(check_count(elements, "elements to send"));
    TRY(room(comm, ticket, 2, 1));
    comm->numbers[0] = peer;
    comm->numbers[1] = elements;
    comm->data[0] = data;
    return start(comm, ticket, kind, dtype, 1, 2, 1);
}

st_status_t comm_send_start(comm_t *comm, uint32_t ticket, int to, ir_dtype_t dtype,
                            const void *data, int64_t elements) {
    return start_pair(comm, ticket, COMM_SEND, to, dtype, (void *)(uintptr_t)data, elements);
}

st_status_t comm_receive_start(comm_t *comm, uint32_t ticket, int from, ir_dtype_t dtype,
                               void *data, int64_t elements) {
    return start_pair(comm, ticket, COMM_RECEIVE, from, dtype, data, elements);
}
