/* Communicators over MPI: this program starts itself under mpirun, where every rank runs every
 * collective. Skipped where MPI is not installed. */
#include <libgen.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "comm/collectives.h"

static char own_path[4096], module_path[4200];

static int run_rank(void) {
    comm_t *comm = NULL;
    st_status_t status = comm_mpi_create(60000, "1.0 test", &comm);
    if (status == ST_OK) status = collectives_run(comm, (unsigned)comm_rank(comm) + 1);
    if (status != ST_OK) fprintf(stderr, "%s\n", st_last_error());
    if (comm && comm_rank(comm) == 0) printf("%d ranks\n", comm_size(comm));
    comm_destroy(comm);
    return status == ST_OK ? 0 : 1;
}

/* What mpirun prints, and its exit status. */
static int mpirun(int n, char *output, size_t capacity) {
    char command[9000];
    /* what MPI's own libraries keep is no leak of ours */
    snprintf(command, sizeof command,
             "ASAN_OPTIONS=\"$ASAN_OPTIONS:detect_leaks=0\" "
             "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
             "OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none "
             "STATOR_MODULE_PATH='%s' mpirun -n %d '%s' 2>&1",
             module_path, n, own_path);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    size_t used = fread(output, 1, capacity - 1, pipe);
    output[used] = '\0';
    int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static void every_collective_and_group_works(void **state) {
    (void)state;
    static const int sizes[] = {2, 4};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char output[4000], want[40];
        int status = mpirun(sizes[i], output, sizeof output);
        snprintf(want, sizeof want, "%d ranks\n", sizes[i]);
        if (status != 0 || !strstr(output, want)) print_error("%s\n", output);
        assert_int_equal(status, 0);
        assert_non_null(strstr(output, want));
    }
}

int main(int argc, char **argv) {
    (void)argc;
    if (getenv("OMPI_COMM_WORLD_SIZE") || getenv("PMI_SIZE")) return run_rank();
    if (!realpath(argv[0], own_path)) return 1;
    char folder[4096];
    snprintf(folder, sizeof folder, "%s", own_path);
    snprintf(module_path, sizeof module_path, "%s/..", dirname(folder));
    char library[4300];
    snprintf(library, sizeof library, "%s/libstator_mpi.so", module_path);
    if (access(library, R_OK) != 0 || system("command -v mpirun > /dev/null 2>&1") != 0) {
        printf("skipped: MPI is not installed\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_collective_and_group_works),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
