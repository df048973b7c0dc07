/* How ranks find each other: greetings over the sockets that control.c then keeps. */
#ifndef STATOR_COMM_PROCESS_RENDEZVOUS_H
#define STATOR_COMM_PROCESS_RENDEZVOUS_H

#include "comm/process/control.h"

typedef struct rendezvous {
    int *sockets;          /* [size]: rank 0 has one a peer, the others one to rank 0; else -1 */
    control_peer_t *peers; /* [size] */
    uint64_t token;
} rendezvous_t;

/* The arrays are there; sockets that were opened before a failure stay in them. */
st_status_t rendezvous_meet(const control_config_t *config, rendezvous_t *meeting) ST_WARN_UNUSED;

#endif
