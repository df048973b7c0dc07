/* What ranks that are processes say to each other beside their data: who they are, that they live,
 * where they stand, and why they give up.
 *
 * A star: rank 0 listens, the others connect. Each sends a beat with its step and op ten times a
 * second; a connection that closes without goodbye, or a rank that is silent for half
 * the timeout, is lost, and rank 0 tells all others. */
#ifndef STATOR_COMM_PROCESS_CONTROL_H
#define STATOR_COMM_PROCESS_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct control control_t;

enum { CONTROL_HOST_BYTES = 64, CONTROL_TEXT_BYTES = 800 };

typedef struct control_config {
    int rank, size;
    const char *address; /* of rank 0 */
    int port;
    int listener; /* rank 0: a socket that listens already, taken over; -1: listen on port */
    int64_t timeout_ms;
    const char *version; /* the same on all ranks, or ST_RANKS_DISAGREE */
    int data_port;       /* told to the others */
} control_config_t;

typedef struct control_peer {
    char address[CONTROL_HOST_BYTES], host[CONTROL_HOST_BYTES];
    int32_t data_port, pid;
} control_peer_t;

/* Waits until all ranks are there. Every rank fails where one is missing, comes twice, counts other
 * ranks or is of another version, and the message says which. */
st_status_t control_open(const control_config_t *config, control_t **out_control) ST_WARN_UNUSED;
const control_peer_t *control_peers(const control_t *control); /* [size] */
uint64_t control_token(const control_t *control);              /* the same on all ranks, random */

/* Begins to watch. `fail` is called at most once, on any thread, with the cause that all ranks get.
 */
typedef void (*control_fail_t)(void *context, st_status_t status, const char *text);
st_status_t control_watch(control_t *control, control_fail_t fail, void *context) ST_WARN_UNUSED;
/* Where this rank stands; `op` is copied. */
void control_mark(control_t *control, uint64_t step, const char *op);
/* A failure to tell all ranks. `about`: the rank that is to blame, whose place is added; -1: none.
 * Returns at once; `fail` follows within a second. */
void control_report(control_t *control, st_status_t status, int about, const char *text);
/* Says goodbye; NULL is fine. */
void control_close(control_t *control);

#endif
