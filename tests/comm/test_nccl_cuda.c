/* Collectives between GPUs of this host: every kind, in flight together, and a rank that never
 * comes. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "comm/collectives.h"
#include "device/device.h"

enum { MAX_RANKS = 8, ARENA_BYTES = 32 << 20 };

typedef struct rank_arg {
    comm_t *host;
    const dev_device_t *device;
    dev_stream_t *stream;
    int rank;
    int64_t timeout_ms;
    char *arena,
        *top; /* pinned: taking and giving back memory waits for all GPUs, so it is done once */
    st_status_t status;
    char message[512];
} rank_arg_t;

static void *pinned(void *context, size_t bytes) {
    rank_arg_t *arg = context;
    char *memory = arg->top;
    if (bytes > ARENA_BYTES - (size_t)(memory - arg->arena)) return NULL;
    arg->top += (bytes + 255) / 256 * 256;
    return memset(memory, 0, bytes);
}
/* The last one first. */
static void unpin(void *context, void *memory) {
    rank_arg_t *arg = context;
    arg->top = memory;
}
static st_status_t settle(void *context) {
    const rank_arg_t *arg = context;
    return arg->device->synchronize(arg->stream);
}

static st_status_t every_kind(rank_arg_t *arg, comm_t *comm) {
    const collectives_memory_t memory = {pinned, unpin, settle, arg};
    return collectives_run_in(comm, (unsigned)arg->rank, &memory);
}

/* The last rank stays away from the second sum. */
static st_status_t stay_away(rank_arg_t *arg, comm_t *comm) {
    const int64_t n = 1000;
    const bool stays = arg->rank == comm_size(comm) - 1;
    void *data = pinned(arg, (size_t)n * sizeof(float));
    st_status_t status = ST_OK, end;
    for (uint64_t step = 1; step <= 2 && status == ST_OK; step++) {
        comm_mark(comm, step, "the sum of all");
        comm_step_begin(comm, step);
        if (step == 2 && stays) usleep(3000 * 1000);
        if (step == 1 || !stays) {
            status = comm_all_reduce_start(comm, 0, IR_F32, 1, &data, &n);
            if (status == ST_OK) status = comm_wait(comm, 0);
        }
        if (settle(arg) != ST_OK) status = ST_DEVICE;
        end = comm_step_end(comm);
        if (end != ST_OK) status = end;
    }
    unpin(arg, data);
    return status;
}

static st_status_t run_rank(rank_arg_t *arg, st_status_t (*body)(rank_arg_t *, comm_t *)) {
    comm_t *comm = NULL;
    TRY(arg->device->open(arg->rank, 1, &arg->stream));
    TRY(arg->device->host_alloc(arg->stream, ARENA_BYTES, (void **)&arg->arena));
    arg->top = arg->arena;
    TRY(arg->device->collectives(arg->stream, arg->host, arg->timeout_ms, &comm));
    st_status_t status = comm_on_device(comm) ? body(arg, comm) : ST_INTERNAL;
    if (status != ST_OK) strncpy(arg->message, st_last_error(), sizeof arg->message - 1);
    comm_destroy(comm);
    arg->device->host_free(arg->stream, arg->arena);
    arg->device->close(arg->stream);
    return status;
}

static void *kinds_main(void *argument) {
    rank_arg_t *arg = argument;
    arg->status = run_rank(arg, every_kind);
    return NULL;
}
static void *away_main(void *argument) {
    rank_arg_t *arg = argument;
    arg->status = run_rank(arg, stay_away);
    return NULL;
}

/* Returns how many ranks there are; skips on a machine without two GPUs. */
static int run_ranks(void *(*body)(void *), int64_t timeout_ms, rank_arg_t *args) {
    const dev_device_t *device;
    comm_t *hosts[MAX_RANKS];
    pthread_t threads[MAX_RANKS];
    int n = 0;
    if (dev_find("cuda", &device) != ST_OK || device->count(&n) != ST_OK || n < 2) {
        print_message("skipped: %s\n", n == 1 ? "there is one GPU" : st_last_error());
        skip();
    }
    if (n > MAX_RANKS) n = MAX_RANKS;
    assert_int_equal(comm_local_create(n, timeout_ms, hosts), ST_OK);
    for (int r = 0; r < n; r++) {
        args[r] =
            (rank_arg_t){.host = hosts[r], .device = device, .rank = r, .timeout_ms = timeout_ms};
        assert_int_equal(pthread_create(&threads[r], NULL, body, &args[r]), 0);
    }
    for (int r = 0; r < n; r++) pthread_join(threads[r], NULL);
    return n;
}

static void every_collective_and_group_works(void **state) {
    (void)state;
    rank_arg_t args[MAX_RANKS];
    const int n = run_ranks(kinds_main, 60000, args);
    for (int r = 0; r < n; r++)
        if (args[r].status != ST_OK) fail_msg("rank %d: %s", r, args[r].message);
}

static void a_rank_that_stays_away_is_given_up(void **state) {
    (void)state;
    rank_arg_t args[MAX_RANKS];
    const int n = run_ranks(away_main, 1000, args);
    for (int r = 0; r < n; r++) {
        if (args[r].status != ST_PEER_LOST) fail_msg("rank %d: %s", r, args[r].message);
        assert_non_null(strstr(args[r].message, "the sum of all has waited"));
        assert_non_null(strstr(args[r].message, "at step 2"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_collective_and_group_works),
        cmocka_unit_test(a_rank_that_stays_away_is_given_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
