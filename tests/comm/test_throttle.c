/* Slower links: the values are those of the links as they are, nothing is complete before its time,
 * and what a rank does meanwhile is hidden. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "comm/collectives.h"

enum { MAX_RANKS = 4 };

typedef struct rank_arg {
    comm_t *comm;
    int rank;
    st_status_t status;
    char message[600];
    double ms[3];
} rank_arg_t;

static double now_ms(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec * 1e3 + (double)at.tv_nsec * 1e-6;
}

static void run_ranks(int n, double latency_s, double bytes_per_s, void *(*body)(void *),
                      rank_arg_t *args) {
    comm_t *comms[MAX_RANKS];
    pthread_t threads[MAX_RANKS];
    assert_int_equal(comm_local_create(n, 30000, comms), ST_OK);
    for (int r = 0; r < n; r++) {
        args[r] = (rank_arg_t){.rank = r};
        assert_int_equal(comm_throttle_create(comms[r], latency_s, bytes_per_s, &args[r].comm),
                         ST_OK);
        assert_int_equal(comm_rank(args[r].comm), r);
        assert_int_equal(comm_size(args[r].comm), n);
    }
    for (int r = 0; r < n; r++)
        assert_int_equal(pthread_create(&threads[r], NULL, body, &args[r]), 0);
    for (int r = 0; r < n; r++) pthread_join(threads[r], NULL);
    for (int r = 0; r < n; r++) {
        comm_destroy(args[r].comm);
        if (args[r].status != ST_OK) print_error("%s\n", args[r].message);
        assert_int_equal(args[r].status, ST_OK);
    }
}

static void finish(rank_arg_t *arg, st_status_t status) {
    arg->status = status;
    if (status != ST_OK) snprintf(arg->message, sizeof arg->message, "%s", st_last_error());
}

static void *every_kind_body(void *argument) {
    rank_arg_t *arg = argument;
    finish(arg, collectives_run(arg->comm, (unsigned)arg->rank));
    return NULL;
}

static void every_collective_and_group_works(void **state) {
    (void)state;
    for (int n = 1; n <= MAX_RANKS; n++) {
        rank_arg_t args[MAX_RANKS];
        run_ranks(n, 20e-6, 5e9, every_kind_body, args);
    }
}

/* Two sums of 1 MB on two ranks, that is 1 MB over each link, at 20 MB/s and 30 ms. */
static st_status_t two_sums(rank_arg_t *arg, double compute_ms) {
    enum { N = 125000 };
    double *x = calloc(2 * N, sizeof *x);
    int64_t n = N;
    void *first = x, *second = x + N;
    double begin = now_ms();
    st_status_t status = comm_all_reduce_start(arg->comm, 0, IR_F64, 1, &first, &n);
    if (status == ST_OK) status = comm_all_reduce_start(arg->comm, 1, IR_F64, 1, &second, &n);
    arg->ms[0] = now_ms() - begin;
    usleep((useconds_t)(compute_ms * 1e3));
    if (status == ST_OK) status = comm_wait(arg->comm, 0);
    arg->ms[1] = now_ms() - begin;
    if (status == ST_OK) status = comm_wait(arg->comm, 1);
    arg->ms[2] = now_ms() - begin;
    free(x);
    return status;
}

/* The second of them is waited for first. */
static void *reverse_body(void *argument) {
    enum { N = 125000 };
    rank_arg_t *arg = argument;
    double *x = calloc(2 * N, sizeof *x);
    int64_t n = N;
    void *first = x, *second = x + N;
    double begin = now_ms();
    st_status_t status = comm_all_reduce_start(arg->comm, 0, IR_F64, 1, &first, &n);
    usleep(60000); /* the first is through, but for its latency */
    if (status == ST_OK) status = comm_all_reduce_start(arg->comm, 1, IR_F64, 1, &second, &n);
    if (status == ST_OK) status = comm_wait(arg->comm, 1);
    if (status == ST_OK) status = comm_wait(arg->comm, 0);
    arg->ms[2] = now_ms() - begin;
    free(x);
    finish(arg, status);
    return NULL;
}

static void *bare_body(void *argument) {
    finish(argument, two_sums(argument, 0));
    return NULL;
}
static void *hidden_body(void *argument) {
    finish(argument, two_sums(argument, 200));
    return NULL;
}
static void *late_body(void *argument) {
    rank_arg_t *arg = argument;
    if (arg->rank == 1) usleep(150000);
    finish(arg, two_sums(arg, 0));
    return NULL;
}

/* A busy machine may wake a rank late: what has to be soon enough has to be so once. */
static bool within(const rank_arg_t *args, int which, double ms) {
    return args[0].ms[which] < ms && args[1].ms[which] < ms;
}

enum { TRIES = 20 };

static void transfers_take_their_time_one_after_another(void **state) {
    (void)state;
    rank_arg_t args[MAX_RANKS];
    bool soon = false;
    for (int i = 0; i < TRIES && !soon; i++) {
        run_ranks(2, 0.030, 20e6, bare_body, args);
        for (int r = 0; r < 2; r++) {
            assert_true(args[r].ms[1] >= 50 + 30 - 1);
            assert_true(args[r].ms[2] >= 100 + 30 - 1);
        }
        soon = within(args, 0, 40); /* starts do not wait */
    }
    assert_true(soon);
}

static void links_carry_in_the_order_of_starts(void **state) {
    (void)state;
    rank_arg_t args[MAX_RANKS];
    bool soon = false;
    for (int i = 0; i < TRIES && !soon; i++) {
        run_ranks(2, 0.030, 20e6, reverse_body, args);
        for (int r = 0; r < 2; r++) assert_true(args[r].ms[2] >= 60 + 50 + 30 - 1);
        soon = within(args, 2, 60 + 50 + 30 + 40); /* not 60 + 100 + 30 */
    }
    assert_true(soon);
}

static void what_is_computed_meanwhile_hides_them(void **state) {
    (void)state;
    rank_arg_t args[MAX_RANKS];
    bool soon = false;
    for (int i = 0; i < TRIES && !soon; i++) {
        run_ranks(2, 0.030, 20e6, hidden_body, args);
        for (int r = 0; r < 2; r++) assert_true(args[r].ms[2] >= 200);
        soon = within(args, 2, 200 + 100); /* not 200 + 130: they ran meanwhile */
    }
    assert_true(soon);
}

static void a_transfer_begins_with_the_last_rank(void **state) {
    (void)state;
    rank_arg_t args[MAX_RANKS];
    run_ranks(2, 0.030, 20e6, late_body, args);
    assert_true(args[0].ms[1] >= 150 + 50 + 30 - 30); /* its own start may be as late as 30 ms */
    assert_true(args[0].ms[2] >= 150 + 100 + 30 - 30);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_collective_and_group_works),
        cmocka_unit_test(transfers_take_their_time_one_after_another),
        cmocka_unit_test(links_carry_in_the_order_of_starts),
        cmocka_unit_test(what_is_computed_meanwhile_hides_them),
        cmocka_unit_test(a_transfer_begins_with_the_last_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
