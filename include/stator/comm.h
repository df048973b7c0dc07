/* Stator: communicators – ranks that are processes, on one host or several.
 *
 * A session made with a communicator runs one rank of its plan; every process makes a session of an
 * equal plan and calls the same functions in the same order. Without one (NULL) all ranks of a plan
 * are threads of the process. Calls on one communicator, and on the sessions made with it, come
 * from one thread at a time. */
#ifndef STATOR_COMM_H
#define STATOR_COMM_H

#include "stator/options.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct stator_comm stator_comm_t;

/* Joins the processes that were started with this one: option "comm" says how they are found; with
 * "auto" by the variables of `stator launch` and torchrun (RANK, WORLD_SIZE, MASTER_ADDR,
 * MASTER_PORT), of mpirun, and of srun. *out_comm is NULL for a process on its own. Blocks until
 * all are there, at most as long as option "timeout" says. The option "ranks" becomes their number
 * unless it is given, and is an error if it is given as another.
 * PEER_LOST names ranks that did not come; RANKS_DISAGREE two processes with one rank, other
 * numbers of ranks, other versions; IO a port that is taken. (Nearest: MPI_Init, or
 * torch.distributed.init_process_group.) */
STATOR_API stator_status_t stator_comm_join(stator_options_t *options,
                                            stator_comm_t **out_comm) STATOR_WARN_UNUSED;
/* After the sessions made with it; NULL is fine. The others are told, and go on. */
STATOR_API void stator_comm_destroy(stator_comm_t *comm);
/* 0 and 1 of NULL. */
STATOR_API int stator_comm_rank(const stator_comm_t *comm);
STATOR_API int stator_comm_size(const stator_comm_t *comm);
/* *out_any is 1 on every rank if `flag` is not 0 on any. Every rank calls it; blocks until they do,
 * so it is a barrier too. */
STATOR_API stator_status_t stator_comm_any(stator_comm_t *comm, int flag,
                                           int *out_any) STATOR_WARN_UNUSED;
/* RANKS_DISAGREE, on every rank, where `value` is not everywhere what it is on rank 0: the message
 * names the first rank that has another, `name` ("option 'seed'") and both. NUL-terminated, at most
 * 255 bytes of a value count. Every rank calls it with the same name; blocks until they do. NULL is
 * fine. */
STATOR_API stator_status_t stator_comm_agree(stator_comm_t *comm, const char *name,
                                             const char *value) STATOR_WARN_UNUSED;
/* This rank cannot go on: every call of the others fails with this rank's number and the reason.
 * `status` is why; the others get PEER_LOST, or RANKS_DISAGREE where it is that. NULL is fine. Does
 * not block. (Nearest: MPI_Abort, ncclCommAbort; the other processes go on.) */
STATOR_API void stator_comm_abort(stator_comm_t *comm, stator_status_t status, const char *reason);

#ifdef __cplusplus
}
#endif
#endif
