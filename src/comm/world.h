/* What started this process: which rank it is, of how many, and where they meet. */
#ifndef STATOR_COMM_WORLD_H
#define STATOR_COMM_WORLD_H

#include "base/status.h"

typedef enum comm_world_kind { COMM_ALONE, COMM_TCP, COMM_MPI } comm_world_kind_t;

typedef struct comm_world {
    comm_world_kind_t kind;
    int rank, size;    /* not of MPI, which knows them itself */
    char address[256]; /* of rank 0 */
    int port;
} comm_world_t;

/* `how`: "auto" understands, in this order, RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT (stator
 * launch, torchrun), the variables of mpirun (MPI), and those of srun; where there is none of
 * these, or they count one rank, the process is alone. "tcp" and "mpi" insist, "none" is always
 * alone. A variable that is missing beside others, or is no number, is an error that names it. */
st_status_t comm_world_find(const char *how, comm_world_t *out_world) ST_WARN_UNUSED;

#endif
