/* The side of libstator_mpi.so that needs no MPI: opening it, and a meeting place that MPI's own
 * start tells everybody. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "comm/mpi/module.h"
#include "comm/process/process.h"
#include "comm/process/wire.h"
#include "device/module.h"

static void adopt(const char *message) {
    st_error_adopt(ST_OK, message);
}

/* A library that was opened stays. */
static st_status_t open_module(const comm_mpi_module_t **out) {
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static const comm_mpi_module_t *opened;
    void *symbol = NULL;
    pthread_mutex_lock(&mutex);
    st_status_t status = opened ? ST_OK : dev_module_symbol("mpi", COMM_MPI_ENTRY, &symbol);
    if (status == ST_OK && !opened) {
        const comm_mpi_module_t *(*entry)(void);
        memcpy(&entry, &symbol, sizeof entry);
        const comm_mpi_module_t *module = entry();
        if (strcmp(module->build, DEV_MODULE_BUILD) == 0) {
            module->forward_errors(adopt);
            opened = module;
        } else {
            status = FAIL(ST_UNSUPPORTED, "libstator_mpi.so is of build '%s', this library of '%s'",
                          module->build, DEV_MODULE_BUILD);
        }
    }
    *out = opened;
    pthread_mutex_unlock(&mutex);
    return status;
}

typedef struct place {
    int32_t status, port;
    char address[256], message[512];
} place_t;

/* Rank 0 listens at any port and tells the others. */
static st_status_t choose_place(const comm_mpi_module_t *module, transport_t *transport, int rank,
                                bool one_host, int *out_listener, place_t *out) {
    *out = (place_t){.status = ST_OK};
    if (rank == 0) {
        if (one_host)
            snprintf(out->address, sizeof out->address, "127.0.0.1");
        else if (gethostname(out->address, sizeof out->address - 1) != 0)
            snprintf(out->address, sizeof out->address, "localhost");
        int port = 0;
        out->status = (int32_t)wire_listen(out->address, 0, out_listener, &port);
        out->port = port;
        if (out->status != ST_OK)
            snprintf(out->message, sizeof out->message, "%s", st_last_error());
    }
    TRY(module->broadcast(transport, out, sizeof *out));
    return out->status == ST_OK ? ST_OK : st_error_adopt((st_status_t)out->status, out->message);
}

st_status_t comm_mpi_create(int64_t timeout_ms, const char *version, comm_t **out_comm) {
    *out_comm = NULL;
    const comm_mpi_module_t *module = NULL;
    transport_t *transport = NULL;
    control_t *control = NULL;
    int rank = 0, size = 1, listener = -1;
    bool one_host = false;
    place_t place;
    TRY(open_module(&module));
    TRY(module->open(&transport, &rank, &size, &one_host));
    st_status_t status = choose_place(module, transport, rank, one_host, &listener, &place);
    control_config_t config = {.rank = rank,
                               .size = size,
                               .address = place.address,
                               .port = place.port,
                               .listener = listener,
                               .timeout_ms = timeout_ms,
                               .version = version};
    if (status == ST_OK) {
        status = control_open(&config, &control);
        listener = -1; /* taken over */
    }
    if (status != ST_OK) {
        wire_close(&listener);
        transport->ops->close(transport, false);
        return status;
    }
    return process_create(rank, size, timeout_ms, transport, control, out_comm);
}
