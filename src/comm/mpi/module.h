/* libstator_mpi.so: MPI as a transport (comm/process/transport.h), opened when a process runs under
 * mpirun, so that nothing else needs MPI. It links nothing of libstator and carries its own copy of
 * base; host and module are of one build. */
#ifndef STATOR_COMM_MPI_MODULE_H
#define STATOR_COMM_MPI_MODULE_H

#include "comm/process/transport.h"

typedef struct comm_mpi_module {
    const char *build;
    void (*forward_errors)(void (*to)(const char *message));
    /* Initializes MPI unless the program has. On the thread that later calls broadcast and close.
     * *one_host: all ranks share this host's memory. */
    st_status_t (*open)(transport_t **out_transport, int *out_rank, int *out_size,
                        bool *out_one_host);
    /* Rank 0's bytes to all, before the engine's thread runs. */
    st_status_t (*broadcast)(transport_t *transport, void *data, size_t bytes);
} comm_mpi_module_t;

/* The module's only symbol: const comm_mpi_module_t *(void). */
#define COMM_MPI_ENTRY "stator_mpi_module"

#endif
