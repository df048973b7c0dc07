/* Sockets with deadlines. */
#ifndef STATOR_COMM_PROCESS_WIRE_H
#define STATOR_COMM_PROCESS_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

int64_t wire_now_ms(void); /* monotonic */
/* Listens on `port` (0: any free one) of the loopback interface if `address` names it, else of all
 * interfaces. A port that is taken is ST_IO and says so. */
st_status_t wire_listen(const char *address, int port, int *out_socket,
                        int *out_port) ST_WARN_UNUSED;
/* Connects, trying again until `deadline` (wire_now_ms) where nobody listens yet. */
st_status_t wire_connect(const char *address, int port, int64_t deadline,
                         int *out_socket) ST_WARN_UNUSED;
/* All bytes or a failure: ST_PEER_LOST at the deadline or where the other side has closed. */
st_status_t wire_read(int socket, void *data, size_t bytes, int64_t deadline) ST_WARN_UNUSED;
st_status_t wire_write(int socket, const void *data, size_t bytes, int64_t deadline) ST_WARN_UNUSED;
/* Non-blocking, no delay for small messages, closed on exec. */
void wire_prepare(int socket);
/* Number of the other side as text, "" if unknown. */
void wire_peer_address(int socket, char *out, size_t capacity);
bool wire_is_loopback(const char *address);
void wire_close(int *socket); /* -1 is fine, and what it leaves */
/* Closes after what was written has arrived, or after `ms`. */
void wire_close_gently(int *socket, int ms);

#endif
