/* Communicators through the public API: a process alone, two processes, and one that gives up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <netinet/in.h>

#include <cmocka.h>

#include "stator/stator.h"
#include "support/port.h"

static void a_process_alone_has_no_communicator(void **state) {
    (void)state;
    stator_options_t *options;
    stator_comm_t *comm = (stator_comm_t *)&options;
    int any = -1;
    assert_int_equal(stator_options_create(&options), STATOR_OK);
    assert_int_equal(stator_comm_join(options, &comm), STATOR_OK);
    assert_null(comm);
    assert_int_equal(stator_comm_rank(NULL), 0);
    assert_int_equal(stator_comm_size(NULL), 1);
    assert_int_equal(stator_comm_any(NULL, 3, &any), STATOR_OK);
    assert_int_equal(any, 1);
    stator_comm_abort(NULL, STATOR_IO, "nobody hears this");
    stator_comm_destroy(NULL);
    assert_int_equal(stator_options_get_int(options, "ranks"), 1);
    assert_int_equal(stator_comm_join(NULL, &comm), STATOR_INVALID);
    assert_int_equal(stator_comm_join(options, NULL), STATOR_INVALID);
    stator_options_destroy(options);
}

static void set_number(const char *name, int value) {
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

#define MUST(condition) \
    if (!(condition)) return fprintf(stderr, "line %d: %s\n", __LINE__, stator_last_error()), 1

/* A rank of two: exit code 0 if all is as it should be. */
static int two_ranks(int rank) {
    stator_options_t *options;
    stator_comm_t *comm;
    int any;
    MUST(stator_options_create(&options) == STATOR_OK);
    MUST(stator_options_set(options, "timeout", "10") == STATOR_OK);
    MUST(stator_comm_join(options, &comm) == STATOR_OK);
    MUST(comm && stator_comm_rank(comm) == rank && stator_comm_size(comm) == 2);
    MUST(stator_options_get_int(options, "ranks") == 2);
    MUST(stator_comm_any(comm, 0, &any) == STATOR_OK && any == 0);
    MUST(stator_comm_any(comm, rank, &any) == STATOR_OK && any == 1);
    if (rank == 1) {
        usleep(300000); /* a reason may come before what was complete is known to be */
        stator_comm_abort(comm, STATOR_IO, "it has had enough");
    } else {
        MUST(stator_comm_any(comm, 0, &any) == STATOR_PEER_LOST);
        MUST(strstr(stator_last_error(), "rank 1 gave up: it has had enough"));
    }
    stator_comm_destroy(comm);
    stator_options_destroy(options);
    return 0;
}

/* Another number of ranks than there are processes. */
static int three_of_two(int rank) {
    stator_options_t *options;
    stator_comm_t *comm;
    (void)rank;
    MUST(stator_options_create(&options) == STATOR_OK);
    MUST(stator_options_set(options, "timeout", "10") == STATOR_OK);
    MUST(stator_options_set(options, "ranks", "3") == STATOR_OK);
    stator_status_t status = stator_comm_join(options, &comm);
    MUST(status == STATOR_INVALID && !comm);
    MUST(strstr(stator_last_error(), "option 'ranks' is 3, 2 processes run"));
    stator_options_destroy(options);
    return 0;
}

static void run_two(int (*body)(int rank)) {
    int port = free_port();
    pid_t pids[2];
    for (int r = 0; r < 2; r++) {
        pids[r] = fork();
        assert_true(pids[r] >= 0);
        if (pids[r]) continue;
        set_number("RANK", r);
        set_number("WORLD_SIZE", 2);
        set_number("MASTER_PORT", port);
        setenv("MASTER_ADDR", "127.0.0.1", 1);
        _exit(body(r));
    }
    for (int r = 0; r < 2; r++) {
        int status = 0;
        assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
        assert_int_equal(status, 0);
    }
}

static void two_processes_meet_and_hear_of_each_other(void **state) {
    (void)state;
    run_two(two_ranks);
}

static void another_number_of_ranks_is_an_error(void **state) {
    (void)state;
    run_two(three_of_two);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_alone_has_no_communicator),
        cmocka_unit_test(two_processes_meet_and_hear_of_each_other),
        cmocka_unit_test(another_number_of_ranks_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
