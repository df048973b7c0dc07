/* Making communicators of processes: rendezvous, then the connections for data. */
#include <string.h>

#include "comm/process/process.h"
#include "comm/process/wire.h"

st_status_t comm_tcp_create(const comm_tcp_config_t *config, comm_t **out_comm) {
    *out_comm = NULL;
    if (config->size < 1 || config->rank < 0 || config->rank >= config->size ||
        config->timeout_ms < 1 || config->port < 1 || config->port > 65535)
        return FAIL(ST_INVALID,
                    "rank %d of %d at port %d with a timeout of %lld ms: outside what can be",
                    config->rank, config->size, config->port, (long long)config->timeout_ms);
    int listener = -1, port = 0;
    control_t *control = NULL;
    transport_t *transport = NULL;
    TRY(wire_listen(config->address, 0, &listener, &port));
    control_config_t meeting = {.rank = config->rank,
                                .size = config->size,
                                .address = config->address,
                                .port = config->port,
                                .listener = -1,
                                .timeout_ms = config->timeout_ms,
                                .version = config->version,
                                .data_port = port};
    st_status_t status = control_open(&meeting, &control);
    if (status == ST_OK)
        status = process_tcp_open(config->rank, config->size, control, listener, config->timeout_ms,
                                  &transport);
    wire_close(&listener);
    if (status != ST_OK) {
        control_close(control);
        return status;
    }
    return process_create(config->rank, config->size, config->timeout_ms, transport, control,
                          out_comm);
}
