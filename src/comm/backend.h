/* What a communicator backend supplies. A backend is one folder of src/comm/ with a create function
 * and one comm_backend_t; its handle begins with a `comm_t`. */
#ifndef STATOR_COMM_BACKEND_H
#define STATOR_COMM_BACKEND_H

#include "comm/comm.h"

typedef struct comm_backend {
    const char *name;
    st_status_t (*all_reduce_start)(comm_t *comm, uint32_t ticket, ir_dtype_t dtype, uint32_t n,
                                    void *const *data, const int64_t *elements);
    st_status_t (*all_gather_start)(comm_t *comm, uint32_t ticket, int64_t outer,
                                    const int64_t *part_bytes, const void *in, void *out);
    st_status_t (*wait)(comm_t *comm, uint32_t ticket);
    void (*abort)(comm_t *comm, const char *reason);
    void (*destroy)(comm_t *comm);
} comm_backend_t;

struct comm {
    const comm_backend_t *backend;
    int rank, size;
};

#endif
