/* The local communicator: collectives on many group sizes, in flight together, and its failures. */
#include "comm/comm.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/memory.h"
#include "comm/collectives.h"
#include "ir/convert.h"

enum { MAX_RANKS = 16, N_TICKETS = 5, N_STEPS = 6 };

static const int sizes[] = {1, 2, 3, 8, 11, 16};

typedef struct rank_arg {
    comm_t *comm;
    int rank, n_ranks;
    unsigned seed;
    st_status_t status;
    char message[512];
    double *sums; /* bits must agree over ranks */
    uint64_t allocations_after_first, allocations_at_end;
} rank_arg_t;

static void nap(unsigned *seed) {
    if (rand_r(seed) % 3 == 0) usleep((unsigned)rand_r(seed) % 300);
}

static void run_ranks(int n_ranks, int64_t timeout_ms, void *(*body)(void *), rank_arg_t *args) {
    comm_t *comms[MAX_RANKS];
    pthread_t threads[MAX_RANKS];
    assert_int_equal(comm_local_create(n_ranks, timeout_ms, comms), ST_OK);
    for (int r = 0; r < n_ranks; r++) {
        args[r].comm = comms[r];
        args[r].rank = r;
        args[r].n_ranks = n_ranks;
        args[r].seed = (unsigned)(17 * r + n_ranks);
        assert_int_equal(comm_rank(comms[r]), r);
        assert_int_equal(comm_size(comms[r]), n_ranks);
        assert_int_equal(pthread_create(&threads[r], NULL, body, &args[r]), 0);
    }
    for (int r = 0; r < n_ranks; r++) pthread_join(threads[r], NULL);
    for (int r = 0; r < n_ranks; r++) comm_destroy(comms[r]);
}

static void finish(rank_arg_t *arg, st_status_t status) {
    arg->status = status;
    if (status != ST_OK) strncpy(arg->message, st_last_error(), sizeof arg->message - 1);
}

/* ---- sums ---- */

enum { SEGMENTS = 3 };
static const int64_t lengths[SEGMENTS] = {70001, 0, 129};

static double element(int rank, int ticket, int step, int64_t i) {
    return 1.0 / (double)(1 + ((i * 7 + rank * 13 + ticket * 3 + step) % 1009)) - 0.01 * rank;
}

/* Several tickets in flight, several steps; rank r's result is compared with the sum in rank order.
 */
static void *sums_body(void *argument) {
    rank_arg_t *arg = argument;
    float *data[N_TICKETS][SEGMENTS];
    size_t checked = 0;
    for (int t = 0; t < N_TICKETS; t++)
        for (int s = 0; s < SEGMENTS; s++)
            data[t][s] = malloc((size_t)(lengths[s] + 1) * sizeof(float));
    for (int step = 0; step < N_STEPS; step++) {
        for (int t = 0; t < N_TICKETS; t++) {
            for (int s = 0; s < SEGMENTS; s++)
                for (int64_t i = 0; i < lengths[s]; i++)
                    data[t][s][i] = (float)element(arg->rank, t, step, i);
            nap(&arg->seed);
            void *pointers[SEGMENTS] = {data[t][0], data[t][1], data[t][2]};
            st_status_t status =
                comm_all_reduce_start(arg->comm, (uint32_t)t, IR_F32, SEGMENTS, pointers, lengths);
            if (status != ST_OK) finish(arg, status);
        }
        for (int t = 0; t < N_TICKETS; t++) {
            nap(&arg->seed);
            st_status_t status = comm_wait(arg->comm, (uint32_t)((t + step) % N_TICKETS));
            if (status != ST_OK) finish(arg, status);
        }
        for (int t = 0; t < N_TICKETS; t++)
            for (int s = 0; s < SEGMENTS; s++)
                for (int64_t i = 0; i < lengths[s]; i += 61) {
                    float want = (float)element(0, t, step, i);
                    for (int r = 1; r < arg->n_ranks; r++) want += (float)element(r, t, step, i);
                    checked++;
                    if (!(data[t][s][i] == want)) finish(arg, ST_INTERNAL);
                }
        if (step == 0) arg->allocations_after_first = st_memory_allocations();
    }
    if (checked == 0) arg->status = ST_INTERNAL;
    for (int t = 0; t < N_TICKETS; t++)
        for (int s = 0; s < SEGMENTS; s++) free(data[t][s]);
    return NULL;
}

static void sums_have_the_bits_of_rank_order(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        rank_arg_t args[MAX_RANKS] = {0};
        run_ranks(sizes[i], 30000, sums_body, args);
        for (int r = 0; r < sizes[i]; r++) {
            if (args[r].status != ST_OK)
                print_error("%d ranks, rank %d: %s\n", sizes[i], r, args[r].message);
            assert_int_equal(args[r].status, ST_OK);
        }
    }
}

static void *types_body(void *argument) {
    rank_arg_t *arg = argument;
    static const ir_dtype_t dtypes[] = {IR_F64, IR_F32, IR_F16, IR_BF16, IR_I32, IR_I64};
    for (uint32_t d = 0; d < sizeof dtypes / sizeof dtypes[0]; d++) {
        uint64_t storage[300];
        int64_t n = 300;
        void *pointer = storage;
        for (int64_t i = 0; i < n; i++)
            ir_element_store(dtypes[d], storage, (size_t)i, (double)(i % 7 + arg->rank));
        st_status_t status = comm_all_reduce_start(arg->comm, d, dtypes[d], 1, &pointer, &n);
        if (status == ST_OK) status = comm_wait(arg->comm, d);
        if (status != ST_OK) finish(arg, status);
        /* small whole numbers: exact in every type */
        for (int64_t i = 0; i < n; i++) {
            double want =
                (double)(arg->n_ranks * (i % 7)) + arg->n_ranks * (arg->n_ranks - 1) / 2.0;
            if (!(ir_element_load(dtypes[d], storage, (size_t)i) == want))
                arg->status = ST_INTERNAL;
        }
    }
    /* no elements at all, then no segment at all */
    int64_t none = 0;
    void *nothing = NULL;
    if (comm_all_reduce_start(arg->comm, 6, IR_F32, 1, &nothing, &none) != ST_OK ||
        comm_all_reduce_start(arg->comm, 7, IR_F32, 0, NULL, NULL) != ST_OK ||
        comm_wait(arg->comm, 7) != ST_OK || comm_wait(arg->comm, 6) != ST_OK)
        arg->status = ST_INTERNAL;
    return NULL;
}

static void every_type_sums(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        rank_arg_t args[MAX_RANKS] = {0};
        run_ranks(sizes[i], 30000, types_body, args);
        for (int r = 0; r < sizes[i]; r++) assert_int_equal(args[r].status, ST_OK);
    }
}

/* ---- every kind ---- */

static void *every_kind_body(void *argument) {
    rank_arg_t *arg = argument;
    finish(arg, collectives_run(arg->comm, arg->seed));
    return NULL;
}

static void every_collective_and_group_works(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        rank_arg_t args[MAX_RANKS] = {0};
        run_ranks(sizes[i], 30000, every_kind_body, args);
        for (int r = 0; r < sizes[i]; r++) {
            if (args[r].status != ST_OK) print_error("%s\n", args[r].message);
            assert_int_equal(args[r].status, ST_OK);
        }
    }
}

/* ---- failures ---- */

static void *absent_body(void *argument) {
    rank_arg_t *arg = argument;
    if (arg->rank == 1 || arg->rank == 3) return NULL;
    double x = 1.0;
    void *pointer = &x;
    int64_t n = 1;
    st_status_t status = comm_all_reduce_start(arg->comm, 0, IR_F64, 1, &pointer, &n);
    if (status == ST_OK) status = comm_wait(arg->comm, 0);
    finish(arg, status);
    if (comm_all_reduce_start(arg->comm, 1, IR_F64, 1, &pointer, &n) != ST_PEER_LOST)
        arg->status = ST_OK; /* the failure must be latched */
    return NULL;
}

static void absent_ranks_are_named(void **state) {
    (void)state;
    rank_arg_t args[MAX_RANKS] = {0};
    run_ranks(4, 200, absent_body, args);
    for (int r = 0; r < 4; r += 2) {
        assert_int_equal(args[r].status, ST_PEER_LOST);
        assert_non_null(strstr(args[r].message, "for rank 1, 3"));
    }
}

/* A wait whose time is up at the moment when its collective is done. This definition goes before
 * the C library's: the timed wait of rank 0 lets rank 1 come and end, then says that the time is
 * up. */
static atomic_bool late_wait, may_come, has_ended;

int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict deadline) {
    if (!atomic_load(&late_wait)) {
        int (*real)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
        *(void **)&real = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
        return real(condition, mutex, deadline);
    }
    pthread_mutex_unlock(mutex);
    atomic_store(&may_come, true);
    while (!atomic_load(&has_ended)) usleep(100);
    pthread_mutex_lock(mutex);
    return ETIMEDOUT;
}

static void *late_body(void *argument) {
    rank_arg_t *arg = argument;
    double x = 1 + arg->rank;
    void *pointer = &x;
    int64_t n = 1;
    while (arg->rank == 1 && !atomic_load(&may_come)) usleep(100);
    st_status_t status = comm_all_reduce_start(arg->comm, 0, IR_F64, 1, &pointer, &n);
    if (status == ST_OK) status = comm_wait(arg->comm, 0);
    if (arg->rank == 1) atomic_store(&has_ended, true);
    finish(arg, status == ST_OK && x != 3 ? ST_INTERNAL : status);
    return NULL;
}

static void what_is_done_when_the_time_is_up_is_done(void **state) {
    (void)state;
    rank_arg_t args[MAX_RANKS] = {0};
    atomic_store(&late_wait, true);
    run_ranks(2, 1000, late_body, args);
    atomic_store(&late_wait, false);
    assert_true(atomic_load(&may_come)); /* else the wait was not a timed one */
    for (int r = 0; r < 2; r++) assert_int_equal(args[r].status, ST_OK);
}

static void *abort_body(void *argument) {
    rank_arg_t *arg = argument;
    if (arg->rank == 2) {
        usleep(20000);
        comm_abort(arg->comm, ST_IO, "its kernel failed");
        return NULL;
    }
    double x = 1.0;
    void *pointer = &x;
    int64_t n = 1;
    st_status_t status = comm_all_reduce_start(arg->comm, 0, IR_F64, 1, &pointer, &n);
    if (status == ST_OK) status = comm_wait(arg->comm, 0);
    finish(arg, status);
    return NULL;
}

static void abort_wakes_waiting_ranks(void **state) {
    (void)state;
    rank_arg_t args[MAX_RANKS] = {0};
    run_ranks(3, 60000, abort_body,
              args); /* without the abort this test would pass its own limit */
    for (int r = 0; r < 2; r++) {
        assert_int_equal(args[r].status, ST_PEER_LOST);
        assert_non_null(strstr(args[r].message, "rank 2 gave up: its kernel failed"));
    }
}

static void *disagree_body(void *argument) {
    rank_arg_t *arg = argument;
    double x[2] = {1.0, 2.0};
    void *pointer = x;
    int64_t n = arg->rank == 1 ? 2 : 1;
    st_status_t status = comm_all_reduce_start(arg->comm, 0, IR_F64, 1, &pointer, &n);
    if (status == ST_OK) status = comm_wait(arg->comm, 0);
    finish(arg, status);
    return NULL;
}

static void different_sizes_are_an_error_everywhere(void **state) {
    (void)state;
    rank_arg_t args[MAX_RANKS] = {0};
    run_ranks(2, 60000, disagree_body, args);
    for (int r = 0; r < 2; r++) assert_int_equal(args[r].status, ST_RANKS_DISAGREE);
}

/* What differs between the ends of a pair or the rows and columns of an all-to-all. */
static void *ends_body(void *argument) {
    rank_arg_t *arg = argument;
    double x[4] = {0}, y[4];
    st_status_t status;
    if (arg->seed == 1) {
        int64_t even[2] = {1, 1}, uneven[2] = {1, 2};
        comm_side_t from = {.outer = 1, .parts = arg->rank ? uneven : even};
        comm_side_t to = {.outer = 1, .parts = even};
        status = comm_all_to_all_start(arg->comm, 0, IR_F64, x, from, y, to);
    } else if (arg->rank == 0) {
        status = comm_send_start(arg->comm, 0, 1, IR_F64, x, 3);
    } else {
        status = comm_receive_start(arg->comm, 0, 0, IR_F64, y, 4);
    }
    if (status == ST_OK) status = comm_wait(arg->comm, 0);
    finish(arg, status);
    return NULL;
}

static void ends_that_differ_are_an_error_everywhere(void **state) {
    (void)state;
    for (unsigned which = 0; which < 2; which++) {
        rank_arg_t args[MAX_RANKS] = {0};
        comm_t *comms[2];
        pthread_t threads[2];
        assert_int_equal(comm_local_create(2, 60000, comms), ST_OK);
        for (int r = 0; r < 2; r++) {
            args[r] = (rank_arg_t){.comm = comms[r], .rank = r, .n_ranks = 2, .seed = which};
            assert_int_equal(pthread_create(&threads[r], NULL, ends_body, &args[r]), 0);
        }
        for (int r = 0; r < 2; r++) pthread_join(threads[r], NULL);
        for (int r = 0; r < 2; r++) {
            comm_destroy(comms[r]);
            assert_int_equal(args[r].status, ST_RANKS_DISAGREE);
            assert_non_null(
                strstr(args[r].message,
                       which ? "rank 1 sends 2 elements to rank 1, which expects 1" : "of 3 f64"));
        }
    }
}

/* A member that fails is known to those who wait in another group of the same ranks. */
static void *group_abort_body(void *argument) {
    rank_arg_t *arg = argument;
    int members[2] = {1, 2};
    comm_t *group = NULL;
    if (arg->rank == 0) {
        usleep(20000);
        comm_abort(arg->comm, ST_IO, "its kernel failed");
        return NULL;
    }
    double x = 1.0;
    st_status_t status = comm_group_create(arg->comm, 2, members, &group);
    if (status == ST_OK && arg->rank == 1) status = comm_receive_start(group, 0, 1, IR_F64, &x, 1);
    if (status == ST_OK && arg->rank == 1) status = comm_wait(group, 0);
    finish(arg, status);
    comm_destroy(group);
    return NULL;
}

static void failures_reach_every_group(void **state) {
    (void)state;
    rank_arg_t args[MAX_RANKS] = {0};
    run_ranks(3, 60000, group_abort_body, args);
    assert_int_equal(args[1].status, ST_PEER_LOST);
    assert_non_null(strstr(args[1].message, "rank 0 gave up: its kernel failed"));
}

static void *silent_sender_body(void *argument) {
    rank_arg_t *arg = argument;
    double x = 1.0;
    if (arg->rank != 0) return NULL;
    st_status_t status = comm_receive_start(arg->comm, 0, 2, IR_F64, &x, 1);
    if (status == ST_OK) status = comm_wait(arg->comm, 0);
    finish(arg, status);
    return NULL;
}

static void a_peer_that_does_not_send_is_named(void **state) {
    (void)state;
    rank_arg_t args[MAX_RANKS] = {0};
    run_ranks(3, 200, silent_sender_body, args);
    assert_int_equal(args[0].status, ST_PEER_LOST);
    assert_non_null(strstr(args[0].message, "rank 0 waited 200 ms for rank 2"));
}

static void misuse_is_an_error(void **state) {
    (void)state;
    comm_t *comm[1];
    assert_int_equal(comm_local_create(0, 1000, comm), ST_INVALID);
    assert_int_equal(comm_local_create(1, 0, comm), ST_INVALID);
    assert_int_equal(comm_local_create(1, 1000, comm), ST_OK);
    assert_int_equal(comm_wait(comm[0], 3), ST_INVALID);
    int64_t n = 1;
    uint8_t byte = 0;
    void *pointer = &byte;
    assert_int_equal(comm_all_reduce_start(comm[0], 0, IR_BOOL, 1, &pointer, &n), ST_UNSUPPORTED);
    int64_t negative = -1;
    int none[1] = {1}, twice[2] = {0, 0};
    comm_t *group;
    assert_int_equal(comm_all_reduce_start(comm[0], 0, IR_F32, 1, &pointer, &negative), ST_INVALID);
    assert_int_equal(comm_all_reduce_start(comm[0], 1u << 20, IR_F32, 1, &pointer, &n), ST_INVALID);
    assert_int_equal(comm_broadcast_start(comm[0], 0, IR_U8, 1, 1, &pointer, &n), ST_INVALID);
    assert_int_equal(comm_send_start(comm[0], 0, 0, IR_U8, &byte, 1), ST_INVALID);
    assert_int_equal(comm_group_create(comm[0], 1, none, &group), ST_INVALID);
    assert_int_equal(comm_group_create(comm[0], 2, twice, &group), ST_INVALID);
    comm_destroy(comm[0]);
    comm_destroy(NULL);
}

/* Every allocation of creation and first use fails once: an error, nothing lost, nothing hanging.
 */
static void allocation_failures_are_reported(void **state) {
    (void)state;
    for (int64_t at = 0;; at++) {
        comm_t *comm[2] = {NULL};
        double x = 1.0;
        void *pointer = &x;
        int64_t n = 1;
        st_memory_fail_after(at, false);
        st_status_t status = comm_local_create(2, 1000, comm);
        if (status == ST_OK) status = comm_all_reduce_start(comm[0], 0, IR_F64, 1, &pointer, &n);
        st_memory_fail_after(-1, false);
        comm_destroy(comm[0]);
        comm_destroy(comm[1]);
        if (status == ST_OK) {
            assert_true(at > 5);
            break;
        }
        assert_int_equal(status, ST_NO_MEMORY);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_have_the_bits_of_rank_order),
        cmocka_unit_test(every_type_sums),
        cmocka_unit_test(every_collective_and_group_works),
        cmocka_unit_test(absent_ranks_are_named),
        cmocka_unit_test(what_is_done_when_the_time_is_up_is_done),
        cmocka_unit_test(abort_wakes_waiting_ranks),
        cmocka_unit_test(different_sizes_are_an_error_everywhere),
        cmocka_unit_test(ends_that_differ_are_an_error_everywhere),
        cmocka_unit_test(failures_reach_every_group),
        cmocka_unit_test(a_peer_that_does_not_send_is_named),
        cmocka_unit_test(misuse_is_an_error),
        cmocka_unit_test(allocation_failures_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
