/* Every collective on a communicator, against values written down from what it is defined to do. */
#ifndef TESTS_COMM_COLLECTIVES_H
#define TESTS_COMM_COLLECTIVES_H

#include "comm/comm.h"

/* Every rank calls it. Runs every kind and element type, uneven and empty parts, in place where
 * that is allowed, pairs, and groups that overlap, with several in flight. ST_INTERNAL with a text
 * where a value is wrong; else the first failure of the communicator. */
st_status_t collectives_run(comm_t *comm, unsigned seed);

/* The same in other memory, which host and communicator reach both; after `settle` the host sees
 * what the waits so far have brought. */
typedef struct collectives_memory {
    void *(*alloc)(void *context, size_t bytes); /* zeroed */
    void (*free)(void *context, void *memory);
    st_status_t (*settle)(void *context);
    void *context;
} collectives_memory_t;
st_status_t collectives_run_in(comm_t *comm, unsigned seed, const collectives_memory_t *memory);

#endif
