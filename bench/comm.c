/* All-reduces between two ranks: threads (local), and processes over TCP.
 *
 *   bench_comm [MIB [TIMES]]      under mpirun: over MPI
 *
 * Prints milliseconds an all-reduce, the median of TIMES, and bytes a second of one rank's data. */
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "comm/comm.h"

enum { MAX_TIMES = 1000, TIMEOUT_MS = 60000 };

static double mib = 16;
static int n_times = 21;

static double now_ms(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec * 1e3 + (double)at.tv_nsec * 1e-6;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void check(st_status_t status) {
    if (status == ST_OK) return;
    fprintf(stderr, "%s\n", st_last_error());
    exit(1);
}

static void measure(comm_t *comm, const char *what) {
    int64_t n = (int64_t)(mib * 0x1p20 / sizeof(float));
    float *x = calloc((size_t)n + 1, sizeof *x);
    double ms[MAX_TIMES];
    void *data = x;
    for (int i = -2; i < n_times; i++) { /* two that do not count */
        double begin = now_ms();
        check(comm_all_reduce_start(comm, 0, IR_F32, 1, &data, &n));
        check(comm_wait(comm, 0));
        if (i >= 0) ms[i] = now_ms() - begin;
    }
    qsort(ms, (size_t)n_times, sizeof *ms, ascending);
    double median = ms[n_times / 2];
    if (comm_rank(comm) == 0)
        printf("%-6s %d ranks  %8.3f MiB  %9.3f ms  %7.2f GB/s\n", what, comm_size(comm), mib,
               median, mib * 0x1p20 / median * 1e-6);
    free(x);
}

static void *thread_main(void *comm) {
    measure(comm, "local");
    return NULL;
}

static void threads(void) {
    comm_t *comms[2];
    pthread_t thread;
    check(comm_local_create(2, TIMEOUT_MS, comms));
    if (pthread_create(&thread, NULL, thread_main, comms[1]) != 0) exit(1);
    thread_main(comms[0]);
    pthread_join(thread, NULL);
    comm_destroy(comms[0]);
    comm_destroy(comms[1]);
}

static int free_port(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    int made = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(made, (struct sockaddr *)&at, sizeof at) != 0 ||
        getsockname(made, (struct sockaddr *)&at, &bytes) != 0)
        exit(1);
    close(made);
    return ntohs(at.sin_port);
}

static void processes(void) {
    comm_tcp_config_t config = {0, 2, "127.0.0.1", free_port(), TIMEOUT_MS, "bench"};
    comm_t *comm;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) config.rank = 1;
    check(comm_tcp_create(&config, &comm));
    measure(comm, "tcp");
    comm_destroy(comm);
    if (child == 0) exit(0);
    waitpid(child, NULL, 0);
}

int main(int argc, char **argv) {
    if (argc > 1) mib = atof(argv[1]);
    if (argc > 2) n_times = atoi(argv[2]);
    if (!(mib >= 0) || n_times < 1 || n_times > MAX_TIMES) return 2;
    if (getenv("OMPI_COMM_WORLD_SIZE") || getenv("PMI_SIZE")) {
        comm_t *comm;
        check(comm_mpi_create(TIMEOUT_MS, "bench", &comm));
        measure(comm, "mpi");
        comm_destroy(comm);
        return 0;
    }
    threads();
    processes();
    return 0;
}
