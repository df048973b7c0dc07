/* Every collective on a communicator, against values written down from what it is defined to do. */
#ifndef TESTS_COMM_COLLECTIVES_H
#define TESTS_COMM_COLLECTIVES_H

#include "comm/comm.h"

/* Every rank calls it. Runs every kind and element type, uneven and empty parts, in place where that
 * is allowed, pairs, and groups that overlap, with several in flight. ST_INTERNAL with a text where
 * a value is wrong; else the first failure of the communicator. */
st_status_t collectives_run(comm_t *comm, unsigned seed);

#endif
