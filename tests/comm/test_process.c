/* Communicators over TCP: every collective, and how each kind of failure ends on all ranks. Ranks
 * are threads here where that is enough, and processes where one has to be killed or stopped. */
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/memory.h"
#include "comm/collectives.h"
#include "comm/comm.h"
#include "support/port.h"

enum { MAX_RANKS = 16, LIMIT_MS = 5000 };

static int64_t now_ms(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (int64_t)at.tv_sec * 1000 + at.tv_nsec / 1000000;
}

/* What a rank came to; in memory that processes share. */
typedef struct outcome {
    comm_tcp_config_t config;
    int which; /* of the test's ranks */
    st_status_t status;
    int64_t took_ms; /* from the process's start */
    char message[1200];
} outcome_t;

typedef st_status_t (*body_t)(outcome_t *out);

static void finish(outcome_t *out, st_status_t status) {
    out->status = status;
    if (status != ST_OK) snprintf(out->message, sizeof out->message, "%s", st_last_error());
}

static outcome_t *outcomes(int n, int size, int port) {
    outcome_t *made = mmap(NULL, (size_t)n * sizeof *made, PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(made != MAP_FAILED);
    memset(made, 0, (size_t)n * sizeof *made);
    for (int r = 0; r < n; r++) {
        made[r].config = (comm_tcp_config_t){r, size, "127.0.0.1", port, LIMIT_MS, "1.0 test"};
        made[r].which = r;
        made[r].status = ST_IN_PROGRESS;
    }
    return made;
}

typedef struct thread_arg {
    outcome_t *out;
    body_t body;
} thread_arg_t;

static void *thread_main(void *argument) {
    thread_arg_t *arg = argument;
    finish(arg->out, arg->body(arg->out));
    return NULL;
}

static void run_threads(int n, outcome_t *out, body_t body) {
    pthread_t threads[MAX_RANKS];
    thread_arg_t args[MAX_RANKS];
    for (int r = 0; r < n; r++) {
        args[r] = (thread_arg_t){&out[r], body};
        assert_int_equal(pthread_create(&threads[r], NULL, thread_main, &args[r]), 0);
    }
    for (int r = 0; r < n; r++) pthread_join(threads[r], NULL);
}

/* Processes; after `signal_ms` process `victim` gets `signal` (0: nobody does). */
static void run_processes(int n, outcome_t *out, body_t body, int victim, int signal,
                          int signal_ms) {
    pid_t pids[MAX_RANKS];
    for (int r = 0; r < n; r++) {
        pids[r] = fork();
        assert_true(pids[r] >= 0);
        if (pids[r]) continue;
        int64_t begin = now_ms();
        finish(&out[r], body(&out[r]));
        out[r].took_ms = now_ms() - begin;
        _exit(0);
    }
    if (signal) {
        usleep((unsigned)signal_ms * 1000);
        kill(pids[victim], signal);
    }
    for (int r = 0; r < n; r++)
        if (!signal || r != victim) waitpid(pids[r], NULL, 0);
    if (!signal) return;
    kill(pids[victim], SIGKILL);
    waitpid(pids[victim], NULL, 0);
}

static void drop(outcome_t *out, int n) {
    munmap(out, (size_t)n * sizeof *out);
}

static void assert_failed(const outcome_t *out, st_status_t status, const char *text) {
    if (out->status != status || !strstr(out->message, text))
        print_error("rank %d: status %d, '%s' instead of '%s'\n", out->which, out->status,
                    out->message, text);
    assert_int_equal(out->status, status);
    assert_non_null(strstr(out->message, text));
    assert_true(out->took_ms <= LIMIT_MS);
}

/* ---- collectives ---- */

static st_status_t every_kind(outcome_t *out) {
    comm_t *comm = NULL;
    TRY(comm_tcp_create(&out->config, &comm));
    st_status_t status = collectives_run(comm, (unsigned)out->which + 1);
    comm_destroy(comm);
    return status;
}

static void every_collective_and_group_works(void **state) {
    (void)state;
    static const int sizes[] = {1, 2, 3, 8};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        outcome_t *out = outcomes(sizes[i], sizes[i], free_port());
        for (int r = 0; r < sizes[i]; r++) out[r].config.timeout_ms = 60000;
        run_threads(sizes[i], out, every_kind);
        for (int r = 0; r < sizes[i]; r++) {
            if (out[r].status != ST_OK) print_error("%s\n", out[r].message);
            assert_int_equal(out[r].status, ST_OK);
        }
        drop(out, sizes[i]);
    }
}

/* ---- rendezvous ---- */

static st_status_t come(outcome_t *out) {
    comm_t *comm = NULL;
    TRY(comm_tcp_create(&out->config, &comm));
    comm_destroy(comm);
    return ST_OK;
}

static void a_missing_rank_is_named_on_all(void **state) {
    (void)state;
    outcome_t *out = outcomes(2, 4, free_port());
    out[1].config.rank = 2;
    for (int r = 0; r < 2; r++) out[r].config.timeout_ms = 1500;
    run_processes(2, out, come, 0, 0, 0);
    for (int r = 0; r < 2; r++)
        assert_failed(&out[r], ST_PEER_LOST, "ranks 1, 3 of 4 did not come to 127.0.0.1:");
    assert_true(out[0].took_ms <= 1500 && out[1].took_ms <= 1500);
    drop(out, 2);
}

static void two_processes_with_one_rank_are_named_on_all(void **state) {
    (void)state;
    outcome_t *out = outcomes(3, 3, free_port());
    out[2].config.rank = 1;
    run_processes(3, out, come, 0, 0, 0);
    for (int r = 0; r < 3; r++)
        assert_failed(&out[r], ST_RANKS_DISAGREE, "two processes claim rank 1: pid ");
    drop(out, 3);
}

static void another_version_or_size_is_named_on_all(void **state) {
    (void)state;
    outcome_t *out = outcomes(2, 2, free_port());
    out[1].config.version = "1.1 test";
    run_processes(2, out, come, 0, 0, 0);
    for (int r = 0; r < 2; r++)
        assert_failed(&out[r], ST_RANKS_DISAGREE, "rank 0 is of version 1.0 test, rank 1 (pid");
    drop(out, 2);
    out = outcomes(2, 2, free_port());
    out[1].config.size = 3;
    run_processes(2, out, come, 0, 0, 0);
    for (int r = 0; r < 2; r++)
        assert_failed(&out[r], ST_RANKS_DISAGREE, "rank 0 expects 2 ranks, rank 1 (pid");
    drop(out, 2);
}

/* A stranger listens at the port, takes connections, and says nothing, or something else. */
static void a_port_in_use_is_told_on_all(void **state) {
    (void)state;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    int stranger = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(stranger, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(stranger, 8), 0);
    assert_int_equal(getsockname(stranger, (struct sockaddr *)&at, &bytes), 0);
    outcome_t *out = outcomes(2, 2, ntohs(at.sin_port));
    for (int r = 0; r < 2; r++) out[r].config.timeout_ms = 2000;
    run_processes(2, out, come, 0, 0, 0);
    close(stranger);
    assert_failed(&out[0], ST_IO, "is in use");
    assert_failed(&out[1], ST_PEER_LOST, "the other side does not answer");
    assert_true(out[1].took_ms <= 2000);
    drop(out, 2);
}

/* A stranger that knocks at rank 0's port and says something else is sent away. */
static st_status_t come_after_stranger(outcome_t *out) {
    if (out->which == 0) return come(out);
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)out->config.port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int silent = -1, loud = -1;
    for (int tries = 0; tries < 200 && silent < 0; tries++) {
        silent = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(silent, (struct sockaddr *)&at, sizeof at) == 0) break;
        close(silent);
        silent = -1;
        usleep(10000);
    }
    loud = socket(AF_INET, SOCK_STREAM, 0);
    if (silent < 0 || connect(loud, (struct sockaddr *)&at, sizeof at) != 0 ||
        write(loud, "GET / HTTP/1.0\r\n\r\n", 18) != 18)
        return FAIL(ST_INTERNAL, "the stranger does not get through");
    st_status_t status = come(out);
    close(silent);
    close(loud);
    return status;
}

static void strangers_do_not_disturb_the_rendezvous(void **state) {
    (void)state;
    outcome_t *out = outcomes(2, 2, free_port());
    run_processes(2, out, come_after_stranger, 0, 0, 0);
    for (int r = 0; r < 2; r++) {
        if (out[r].status != ST_OK) print_error("%s\n", out[r].message);
        assert_int_equal(out[r].status, ST_OK);
    }
    drop(out, 2);
}

/* ---- ranks that are lost ---- */

/* Sums until something fails, with a place at each. */
static st_status_t step_on(outcome_t *out) {
    enum { N = 100000 };
    comm_t *comm = NULL;
    float *x = calloc(N, sizeof *x);
    int64_t n = N;
    void *data = x;
    TRY(comm_tcp_create(&out->config, &comm));
    st_status_t status = ST_OK;
    for (uint64_t step = 1; status == ST_OK; step++) {
        comm_mark(comm, step, "all_reduce_start 'gradients'");
        status = comm_all_reduce_start(comm, 0, IR_F32, 1, &data, &n);
        if (status == ST_OK) status = comm_wait(comm, 0);
        usleep(2000);
    }
    char message[1200];
    snprintf(message, sizeof message, "%s", st_last_error());
    comm_destroy(comm);
    free(x);
    return st_error_adopt(status, message);
}

/* All others name the victim and where it stood, within the limit after the signal. */
static void lose(int victim, int signal, const char *how) {
    enum { N = 3, AFTER_MS = 600 };
    char who[40];
    outcome_t *out = outcomes(N, N, free_port());
    for (int r = 0; r < N; r++) out[r].config.timeout_ms = 2500;
    run_processes(N, out, step_on, victim, signal, AFTER_MS);
    snprintf(who, sizeof who, "rank %d (pid ", victim);
    for (int r = 0; r < N; r++) {
        if (r == victim) continue;
        assert_failed(&out[r], ST_PEER_LOST, who);
        assert_failed(&out[r], ST_PEER_LOST, how);
        assert_failed(&out[r], ST_PEER_LOST, ", last seen at step ");
        assert_failed(&out[r], ST_PEER_LOST, "all_reduce_start 'gradients'");
        assert_true(out[r].took_ms <= AFTER_MS + 2500);
    }
    drop(out, N);
}

static void a_killed_rank_is_named_with_step_and_op(void **state) {
    (void)state;
    lose(2, SIGKILL, "is gone: its connection has closed");
    lose(0, SIGKILL, "is gone: its connection has closed");
}

static void a_stopped_rank_is_named_with_step_and_op(void **state) {
    (void)state;
    lose(1, SIGSTOP, "has been silent for ");
    lose(0, SIGSTOP, "has been silent for ");
}

/* Rank 2 lives and does something else. */
static st_status_t wait_for_idler(outcome_t *out) {
    comm_t *comm = NULL;
    double x = 1;
    int64_t n = 1;
    void *data = &x;
    TRY(comm_tcp_create(&out->config, &comm));
    st_status_t status = ST_OK;
    comm_mark(comm, 7, out->which == 2 ? "matmul 'slow'" : "all_reduce_start 'x'");
    usleep(200000);
    if (out->which == 2) {
        usleep(1200000);
        status = comm_all_reduce_start(comm, 1, IR_F64, 1, &data, &n);
    } else {
        status = comm_all_reduce_start(comm, 1, IR_F64, 1, &data, &n);
        if (status == ST_OK) status = comm_wait(comm, 1);
    }
    char message[1200];
    snprintf(message, sizeof message, "%s", st_last_error());
    comm_destroy(comm);
    return st_error_adopt(status, message);
}

static void a_rank_that_does_not_take_part_is_named_with_step_and_op(void **state) {
    (void)state;
    outcome_t *out = outcomes(3, 3, free_port());
    for (int r = 0; r < 3; r++) out[r].config.timeout_ms = 700;
    run_processes(3, out, wait_for_idler, 0, 0, 0);
    for (int r = 0; r < 3; r++) {
        assert_failed(&out[r], ST_PEER_LOST, "collective 1 (all-reduce): rank ");
        assert_failed(&out[r], ST_PEER_LOST, "waited 700 ms for rank 2");
        assert_failed(&out[r], ST_PEER_LOST, "last seen at step 7, matmul 'slow'");
    }
    drop(out, 3);
}

static st_status_t give_up(outcome_t *out) {
    comm_t *comm = NULL;
    double x = 1;
    TRY(comm_tcp_create(&out->config, &comm));
    st_status_t status = ST_OK;
    if (out->which == 1) {
        comm_abort(comm, ST_IO, "its kernel failed");
    } else {
        status = comm_receive_start(comm, 0, 1, IR_F64, &x, 1);
        if (status == ST_OK) status = comm_wait(comm, 0);
    }
    char message[1200];
    snprintf(message, sizeof message, "%s", st_last_error());
    comm_destroy(comm);
    return st_error_adopt(status, message);
}

static void a_rank_that_gives_up_says_why_to_all(void **state) {
    (void)state;
    outcome_t *out = outcomes(3, 3, free_port());
    run_threads(3, out, give_up);
    for (int r = 0; r < 3; r += 2)
        assert_failed(&out[r], ST_PEER_LOST, "rank 1 gave up: its kernel failed");
    drop(out, 3);
}

/* Where the ranks' collectives differ: in size, in kind, at the two ends of a pair. */
static st_status_t differ(outcome_t *out) {
    comm_t *comm = NULL;
    double x[4] = {0};
    void *data = x;
    int64_t n = out->which == 1 ? 3 : 2;
    TRY(comm_tcp_create(&out->config, &comm));
    st_status_t status;
    int which = (int)out->took_ms; /* of the cases */
    if (which == 0 || (which == 1 && out->which == 0))
        status = comm_all_reduce_start(comm, 4, IR_F64, 1, &data, &n);
    else if (which == 1)
        status = comm_broadcast_start(comm, 4, IR_F64, 0, 1, &data, &n);
    else if (out->which == 0)
        status = comm_send_start(comm, 4, 1, IR_F64, x, n);
    else
        status = comm_receive_start(comm, 4, 0, IR_F64, x, n);
    if (status == ST_OK) status = comm_wait(comm, 4);
    char message[1200];
    snprintf(message, sizeof message, "%s", st_last_error());
    comm_destroy(comm);
    return st_error_adopt(status, message);
}

static void collectives_that_differ_are_an_error_on_all(void **state) {
    (void)state;
    static const char *const texts[] = {"kind, element type or sizes differ",
                                        "kind, element type or sizes differ",
                                        "rank 0 sends 16 bytes to rank 1, which expects 24"};
    for (int which = 0; which < 3; which++) {
        outcome_t *out = outcomes(2, 2, free_port());
        for (int r = 0; r < 2; r++) out[r].took_ms = which;
        run_threads(2, out, differ);
        for (int r = 0; r < 2; r++) assert_failed(&out[r], ST_RANKS_DISAGREE, texts[which]);
        drop(out, 2);
    }
}

/* Same sums, same sizes, step after step: the engine takes memory in the first ones only. */
static st_status_t count_allocations(outcome_t *out) {
    comm_t *comm = NULL;
    enum { N = 50000, STEPS = 40 };
    float *x = calloc(N, sizeof *x), *y = calloc(N, sizeof *y);
    int64_t n = N;
    int64_t parts[2] = {N / 2, N / 2};
    TRY(comm_tcp_create(&out->config, &comm));
    st_status_t status = ST_OK;
    uint64_t before = 0;
    for (int step = 0; step < STEPS && status == ST_OK; step++) {
        void *data = x;
        comm_segment_t cut = {.in = y, .out = y, .outer = 1, .parts = parts};
        if (out->which == 1) cut.out = y + N / 2;
        status = comm_all_reduce_start(comm, 0, IR_F32, 1, &data, &n);
        if (status == ST_OK) status = comm_reduce_scatter_start(comm, 1, IR_F32, 1, &cut);
        if (status == ST_OK) status = comm_wait(comm, 0);
        if (status == ST_OK) status = comm_wait(comm, 1);
        if (step == STEPS / 2) before = st_memory_allocations();
    }
    if (status == ST_OK && st_memory_allocations() != before)
        status = FAIL(ST_INTERNAL, "%llu allocations in later steps",
                      (unsigned long long)(st_memory_allocations() - before));
    comm_destroy(comm);
    free(x);
    free(y);
    return status;
}

static void later_steps_allocate_nothing(void **state) {
    (void)state;
    outcome_t *out = outcomes(2, 2, free_port());
    run_processes(2, out, count_allocations, 0, 0, 0);
    for (int r = 0; r < 2; r++) {
        if (out[r].status != ST_OK) print_error("%s\n", out[r].message);
        assert_int_equal(out[r].status, ST_OK);
    }
    drop(out, 2);
}

/* Every allocation of creation and first use fails once: an error, nothing lost, nothing
 * hanging. */
static st_status_t create_and_sum(const comm_tcp_config_t *config) {
    enum { N = 3000 };
    comm_t *comm = NULL, *group = NULL;
    double x[N] = {0}, y[N];
    int64_t n = N, parts[1] = {N};
    int all[1] = {0};
    void *data = x;
    comm_segment_t cut = {.in = x, .out = y, .outer = 1, .parts = parts};
    TRY(comm_tcp_create(config, &comm));
    st_status_t status = comm_group_create(comm, 1, all, &group);
    if (status == ST_OK) status = comm_all_reduce_start(group, 0, IR_F64, 1, &data, &n);
    if (status == ST_OK) status = comm_wait(group, 0);
    if (status == ST_OK) status = comm_all_gather_start(comm, 0, IR_F64, 1, &cut);
    if (status == ST_OK) status = comm_wait(comm, 0);
    char message[1200];
    snprintf(message, sizeof message, "%s", st_last_error());
    comm_destroy(group);
    comm_destroy(comm);
    return status == ST_OK ? ST_OK : st_error_adopt(status, message);
}

static void allocation_failures_are_reported(void **state) {
    (void)state;
    comm_tcp_config_t config = {0, 1, "127.0.0.1", free_port(), 2000, "1.0 test"};
    for (int64_t at = 0;; at++) {
        st_memory_fail_after(at, false);
        st_status_t status = create_and_sum(&config);
        st_memory_fail_after(-1, false);
        if (status == ST_OK) {
            assert_true(at > 15);
            break;
        }
        if (status != ST_NO_MEMORY) print_error("at %d: %s\n", (int)at, st_last_error());
        assert_int_equal(status, ST_NO_MEMORY);
    }
}

int main(void) {
    signal(SIGPIPE, SIG_DFL); /* nothing here may depend on its being ignored */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_collective_and_group_works),
        cmocka_unit_test(a_missing_rank_is_named_on_all),
        cmocka_unit_test(two_processes_with_one_rank_are_named_on_all),
        cmocka_unit_test(another_version_or_size_is_named_on_all),
        cmocka_unit_test(a_port_in_use_is_told_on_all),
        cmocka_unit_test(strangers_do_not_disturb_the_rendezvous),
        cmocka_unit_test(a_killed_rank_is_named_with_step_and_op),
        cmocka_unit_test(a_stopped_rank_is_named_with_step_and_op),
        cmocka_unit_test(a_rank_that_does_not_take_part_is_named_with_step_and_op),
        cmocka_unit_test(a_rank_that_gives_up_says_why_to_all),
        cmocka_unit_test(collectives_that_differ_are_an_error_on_all),
        cmocka_unit_test(later_steps_allocate_nothing),
        cmocka_unit_test(allocation_failures_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
