/* What started a process, from the variables of the launchers. */
#include "comm/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const known[] = {"RANK",
                                    "WORLD_SIZE",
                                    "MASTER_ADDR",
                                    "MASTER_PORT",
                                    "PMI_SIZE",
                                    "OMPI_COMM_WORLD_SIZE",
                                    "PMIX_RANK",
                                    "MPI_LOCALNRANKS",
                                    "SLURM_PROCID",
                                    "SLURM_NTASKS",
                                    "SLURM_STEP_NODELIST",
                                    "SLURM_JOB_NODELIST",
                                    "SLURM_JOB_ID",
                                    "SLURM_STEP_ID",
                                    "TORCHELASTIC_USE_AGENT_STORE"};

/* Exactly these variables of the known ones: name, value, …, NULL. */
static void variables(const char *name, ...) {
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) unsetenv(known[i]);
    va_list args;
    va_start(args, name);
    for (; name; name = va_arg(args, const char *)) setenv(name, va_arg(args, const char *), 1);
    va_end(args);
}

static comm_world_t found(const char *how) {
    comm_world_t world;
    if (comm_world_find(how, &world) != ST_OK) fail_msg("%s", st_last_error());
    return world;
}

static void refused(const char *how, const char *text) {
    comm_world_t world;
    assert_int_equal(comm_world_find(how, &world), ST_INVALID);
    if (!strstr(st_last_error(), text)) fail_msg("'%s' instead of '%s'", st_last_error(), text);
}

static void no_variables_are_a_process_alone(void **state) {
    (void)state;
    variables(NULL);
    assert_int_equal(found("auto").kind, COMM_ALONE);
    assert_int_equal(found("none").kind, COMM_ALONE);
    refused("tcp", "--comm tcp needs RANK");
    assert_int_equal(found("mpi").kind, COMM_MPI);
}

static void torchruns_variables_are_understood(void **state) {
    (void)state;
    variables("RANK", "3", "WORLD_SIZE", "8", "MASTER_ADDR", "node1", "MASTER_PORT", "29500", NULL);
    comm_world_t world = found("auto");
    assert_int_equal(world.kind, COMM_TCP);
    assert_int_equal(world.rank, 3);
    assert_int_equal(world.size, 8);
    assert_string_equal(world.address, "node1");
    assert_int_equal(world.port, 29500);
    assert_int_equal(found("none").kind, COMM_ALONE);
    /* torchrun's own store has the port */
    setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
    assert_int_equal(found("auto").port, 29501);
    variables("RANK", "0", "WORLD_SIZE", "1", NULL);
    assert_int_equal(found("auto").kind, COMM_ALONE);
}

static void what_is_missing_or_no_number_is_named(void **state) {
    (void)state;
    variables("RANK", "0", NULL);
    refused("auto", "WORLD_SIZE is not set");
    variables("WORLD_SIZE", "2", NULL);
    refused("auto", "RANK is not set");
    variables("RANK", "2", "WORLD_SIZE", "2", NULL);
    refused("auto", "RANK is '2': a number from 0 to 1 is expected");
    variables("RANK", "0", "WORLD_SIZE", "two", NULL);
    refused("auto", "WORLD_SIZE is 'two'");
    variables("RANK", "0", "WORLD_SIZE", "2", NULL);
    refused("auto", "MASTER_ADDR is not set");
    setenv("MASTER_ADDR", "here", 1);
    refused("auto", "MASTER_PORT is not set");
    setenv("MASTER_PORT", "70000", 1);
    refused("auto", "MASTER_PORT is '70000': a number from 1 to 65535");
}

static void mpirun_is_understood(void **state) {
    (void)state;
    variables("OMPI_COMM_WORLD_SIZE", "4", NULL);
    assert_int_equal(found("auto").kind, COMM_MPI);
    variables("PMI_SIZE", "4", NULL);
    assert_int_equal(found("auto").kind, COMM_MPI);
    variables("OMPI_COMM_WORLD_SIZE", "1", NULL);
    assert_int_equal(found("auto").kind, COMM_ALONE);
}

static void srun_without_mpi_is_understood(void **state) {
    (void)state;
    variables("SLURM_PROCID", "5", "SLURM_NTASKS", "16", "SLURM_STEP_ID", "2", "SLURM_JOB_ID",
              "1234", "SLURM_STEP_NODELIST", "gpu[07-09,12],login", NULL);
    comm_world_t world = found("auto");
    assert_int_equal(world.kind, COMM_TCP);
    assert_int_equal(world.rank, 5);
    assert_int_equal(world.size, 16);
    assert_string_equal(world.address, "gpu07");
    assert_int_equal(world.port, 20000 + (1234 * 7 + 2) % 20000);
    setenv("SLURM_STEP_NODELIST", "alpha,beta", 1);
    assert_string_equal(found("auto").address, "alpha");
    setenv("SLURM_STEP_NODELIST", "[x]", 1);
    refused("auto", "SLURM_STEP_NODELIST");
    /* within an allocation, but not started by srun */
    variables("SLURM_PROCID", "0", "SLURM_NTASKS", "16", NULL);
    assert_int_equal(found("auto").kind, COMM_ALONE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_variables_are_a_process_alone),
        cmocka_unit_test(torchruns_variables_are_understood),
        cmocka_unit_test(what_is_missing_or_no_number_is_named),
        cmocka_unit_test(mpirun_is_understood),
        cmocka_unit_test(srun_without_mpi_is_understood),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
