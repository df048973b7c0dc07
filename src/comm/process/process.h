/* Communicators whose ranks are processes: one engine over any transport. */
#ifndef STATOR_COMM_PROCESS_PROCESS_H
#define STATOR_COMM_PROCESS_PROCESS_H

#include "comm/comm.h"
#include "comm/process/control.h"
#include "comm/process/transport.h"

/* Takes transport and control over, also on failure. */
st_status_t process_create(int rank, int size, int64_t timeout_ms, transport_t *transport,
                           control_t *control, comm_t **out_comm) ST_WARN_UNUSED;
/* Connections to all ranks. `listener` takes those of higher ranks; it is left open. */
st_status_t process_tcp_open(int rank, int size, const control_t *control, int listener,
                             int64_t timeout_ms, transport_t **out_transport) ST_WARN_UNUSED;

#endif
