/* Dispatch of the communicator interface to the handle's backend. */
#include "comm/backend.h"

void comm_destroy(comm_t *comm) {
    if (comm) comm->backend->destroy(comm);
}
int comm_rank(const comm_t *comm) {
    return comm->rank;
}
int comm_size(const comm_t *comm) {
    return comm->size;
}
st_status_t comm_all_reduce_start(comm_t *comm, uint32_t ticket, ir_dtype_t dtype, uint32_t n,
                                  void *const *data, const int64_t *elements) {
    return comm->backend->all_reduce_start(comm, ticket, dtype, n, data, elements);
}
st_status_t comm_all_gather_start(comm_t *comm, uint32_t ticket, int64_t outer,
                                  const int64_t *part_bytes, const void *in, void *out) {
    return comm->backend->all_gather_start(comm, ticket, outer, part_bytes, in, out);
}
st_status_t comm_wait(comm_t *comm, uint32_t ticket) {
    return comm->backend->wait(comm, ticket);
}
void comm_abort(comm_t *comm, const char *reason) {
    (comm->backend->abort)(comm, reason);
}
