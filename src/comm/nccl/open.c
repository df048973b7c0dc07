/* Making the library's communicators. The first member makes an id, which goes to the others over
 * the host's communicator; then all enter the library together.
 *
 * That call cannot be given up, and waits for ever for a member that has died in the meantime. So
 * it runs on a thread of its own, which is left behind where it does not come back within the
 * limit. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "comm/nccl/internal.h"

enum { POLL_MS = 100 };

/* Freed by whoever of the two is last. */
typedef struct entering {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool done, left;
    const dev_cuda_nccl_t *nccl;
    int device, size, rank;
    ncclUniqueId id;
    ncclComm_t comm;
    ncclResult_t error;
    char text[NCCL_REASON_BYTES];
} entering_t;

static void free_entering(entering_t *e) {
    pthread_cond_destroy(&e->changed);
    pthread_mutex_destroy(&e->mutex);
    st_free(e);
}

static void *enter_main(void *argument) {
    entering_t *e = argument;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm = NULL;
    cudaError_t set = cudaSetDevice(e->device);
    ncclResult_t error = set == cudaSuccess ? e->nccl->ncclCommInitRankConfig(&comm, e->size, e->id,
                                                                              e->rank, &config)
                                            : ncclUnhandledCudaError;
    pthread_mutex_lock(&e->mutex);
    e->comm = comm;
    e->error = error;
    if (error != ncclSuccess)
        snprintf(e->text, sizeof e->text, "%s (%s)", e->nccl->ncclGetErrorString(error),
                 set == cudaSuccess ? e->nccl->ncclGetLastError(NULL) : cudaGetErrorString(set));
    e->done = true;
    bool left = e->left;
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->mutex);
    if (left && comm) e->nccl->ncclCommAbort(comm);
    if (left) free_entering(e);
    return NULL;
}

static struct timespec in_ms(int64_t ms) {
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    at.tv_nsec += (long)(ms % 1000) * 1000000L;
    at.tv_sec += (time_t)(ms / 1000) + at.tv_nsec / 1000000000L;
    at.tv_nsec %= 1000000000L;
    return at;
}

/* Waits until the thread is through, a rank is lost, or the time is up. The mutex is held. */
static st_status_t await(const nccl_rank_t *rank, entering_t *e) {
    char reason[NCCL_REASON_BYTES];
    for (int64_t waited_ms = 0; !e->done; waited_ms += POLL_MS) {
        struct timespec until = in_ms(POLL_MS);
        pthread_cond_timedwait(&e->changed, &e->mutex, &until);
        if (e->done) break;
        st_status_t status = comm_check(rank->host, reason, sizeof reason);
        if (status != ST_OK) return FAIL(status, "%s", reason);
        if (waited_ms >= rank->timeout_ms)
            return FAIL(ST_PEER_LOST,
                        "rank %d waited %lld ms for NCCL's connections to the other ranks",
                        rank->rank, (long long)waited_ms);
    }
    return ST_OK;
}

static st_status_t enter(nccl_rank_t *rank, int size, int own, const ncclUniqueId *id,
                         ncclComm_t *out) {
    entering_t *e = st_calloc(1, sizeof *e);
    pthread_t thread;
    if (!e) return st_no_memory(sizeof *e, "a communicator");
    e->nccl = rank->nccl;
    e->device = rank->stream->index;
    e->size = size;
    e->rank = own;
    e->id = *id;
    pthread_mutex_init(&e->mutex, NULL);
    pthread_cond_init(&e->changed, NULL);
    if (pthread_create(&thread, NULL, enter_main, e) != 0) {
        free_entering(e);
        return FAIL(ST_NO_MEMORY, "no thread to open NCCL's connections");
    }
    pthread_detach(thread);
    pthread_mutex_lock(&e->mutex);
    st_status_t status = await(rank, e);
    const bool done = e->done;
    if (done && status == ST_OK && e->error != ncclSuccess)
        status = FAIL(ST_DEVICE, "ncclCommInitRankConfig: %s", e->text);
    *out = status == ST_OK ? e->comm : NULL;
    e->left = true;
    pthread_mutex_unlock(&e->mutex);
    if (done) free_entering(e);
    return status;
}

static st_status_t keep(nccl_rank_t *rank, ncclComm_t comm) {
    pthread_mutex_lock(&rank->mutex);
    const bool failed = rank->failed != ST_OK; /* then the watch looks after none any more */
    st_status_t status = failed ? ST_OK : ST_VEC_PUSH(&rank->comms, comm);
    pthread_mutex_unlock(&rank->mutex);
    if (failed || status != ST_OK) rank->nccl->ncclCommAbort(comm);
    if (failed) return nccl_latched(rank);
    return status == ST_OK ? ST_OK : st_no_memory(sizeof comm, "a communicator");
}

st_status_t nccl_open(nccl_rank_t *rank, comm_t *host, ncclComm_t *out) {
    ncclUniqueId id;
    void *data = &id;
    const int64_t bytes = sizeof id;
    *out = NULL;
    memset(&id, 0, sizeof id);
    if (comm_rank(host) == 0) NCCL_TRY(rank, ncclGetUniqueId(&id));
    TRY(comm_broadcast_start(host, 0, IR_U8, 0, 1, &data, &bytes));
    TRY(comm_wait(host, 0));
    TRY(enter(rank, comm_size(host), comm_rank(host), &id, out));
    return keep(rank, *out);
}

static st_status_t transfer(nccl_rank_t *rank, ncclComm_t comm, int peer, bool sends,
                            cudaStream_t stream) {
    uint32_t *word = rank->device_words + NCCL_MAX_LANES;
    if (sends)
        NCCL_TRY(rank, ncclSend(word, sizeof *word, ncclUint8, peer, comm, stream));
    else
        NCCL_TRY(rank, ncclRecv(word, sizeof *word, ncclUint8, peer, comm, stream));
    CUDA_TRY(cudaStreamSynchronize(stream));
    return ST_OK;
}

static st_status_t connect(nccl_rank_t *rank, ncclComm_t comm, int peer, bool sends,
                           const nccl_lane_t *lane) {
    uint32_t op;
    TRY(nccl_label(rank, "making connections for sends and receives", &op));
    TRY(nccl_enter(rank));
    nccl_wait_begin(rank, lane, op);
    st_status_t status = transfer(rank, comm, peer, sends, lane->stream);
    nccl_wait_end(rank, lane);
    nccl_leave(rank);
    st_status_t lost = nccl_latched(rank); /* which the failure of a call may come from */
    return lost != ST_OK ? lost : status;
}

st_status_t nccl_open_pair(nccl_rank_t *rank, comm_t *host, int peer, bool sends,
                           const nccl_lane_t *lane, ncclComm_t *out) {
    const int own = comm_rank(host) > peer;
    ncclUniqueId id;
    *out = NULL;
    memset(&id, 0, sizeof id);
    if (sends) {
        NCCL_TRY(rank, ncclGetUniqueId(&id));
        TRY(comm_send_start(host, 0, peer, IR_U8, &id, sizeof id));
    } else {
        TRY(comm_receive_start(host, 0, peer, IR_U8, &id, sizeof id));
    }
    TRY(comm_wait(host, 0));
    TRY(enter(rank, 2, own, &id, out));
    TRY(keep(rank, *out));
    return connect(rank, *out, 1 - own, sends, lane);
}
