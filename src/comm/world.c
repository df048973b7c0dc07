#include "comm/world.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/options.h"

static st_status_t read_number(const char *name, int64_t low, int64_t high, int *out) {
    const char *text = st_environment(name);
    int64_t value;
    if (!text)
        return FAIL(ST_INVALID, "%s is not set, though other variables of a launch are", name);
    if (!st_int_parse(text, strlen(text), &value) || value < low || value > high)
        return FAIL(ST_INVALID, "%s is '%s': a number from %lld to %lld is expected", name, text,
                    (long long)low, (long long)high);
    *out = (int)value;
    return ST_OK;
}

enum { MAX_SIZE = 1 << 16, MAX_PORT = 65535 };

static st_status_t read_rank(const char *rank, const char *size, comm_world_t *out) {
    TRY(read_number(size, 1, MAX_SIZE, &out->size));
    return read_number(rank, 0, out->size - 1, &out->rank);
}

static bool copy_address(const char *from, size_t bytes, comm_world_t *out) {
    if (bytes >= sizeof out->address) return false;
    memcpy(out->address, from, bytes);
    out->address[bytes] = '\0';
    return true;
}

static st_status_t meeting_place(comm_world_t *out) {
    const char *address = st_environment("MASTER_ADDR");
    if (!address)
        return FAIL(ST_INVALID, "MASTER_ADDR is not set, though other variables of a launch are");
    if (!copy_address(address, strlen(address), out))
        return FAIL(ST_INVALID, "MASTER_ADDR is longer than %zu bytes", sizeof out->address - 1);
    TRY(read_number("MASTER_PORT", 1, MAX_PORT, &out->port));
    /* torchrun's own store listens at MASTER_PORT */
    const char *store = st_environment("TORCHELASTIC_USE_AGENT_STORE");
    if (store && (strcmp(store, "True") == 0 || strcmp(store, "1") == 0))
        out->port += out->port < MAX_PORT ? 1 : -1;
    return ST_OK;
}

static st_status_t by_rank_variables(comm_world_t *out) {
    TRY(read_rank("RANK", "WORLD_SIZE", out));
    if (out->size == 1) return ST_OK;
    out->kind = COMM_TCP;
    return meeting_place(out);
}

/* First host of "node[03-07,9],other" or "node3,node4". */
static st_status_t first_host(const char *list, comm_world_t *out) {
    size_t n = strcspn(list, ",[");
    char host[256];
    if (n >= sizeof host - 64) return FAIL(ST_INVALID, "the host list '%s' is too long", list);
    memcpy(host, list, n);
    if (list[n] == '[') {
        const char *number = list + n + 1;
        size_t digits = strspn(number, "0123456789");
        if (!digits || digits > 60)
            return FAIL(ST_INVALID, "SLURM_STEP_NODELIST '%s' is not understood", list);
        memcpy(host + n, number, digits);
        n += digits;
    }
    if (!n || !copy_address(host, n, out))
        return FAIL(ST_INVALID, "SLURM_STEP_NODELIST '%s' names no host", list);
    return ST_OK;
}

/* srun without MPI: the first host of the step, and a port that the job's number gives. */
static st_status_t by_slurm(comm_world_t *out) {
    enum { FIRST_PORT = 20000, N_PORTS = 20000 };
    TRY(read_rank("SLURM_PROCID", "SLURM_NTASKS", out));
    if (out->size == 1) return ST_OK;
    out->kind = COMM_TCP;
    if (st_environment("MASTER_ADDR") && st_environment("MASTER_PORT")) return meeting_place(out);
    const char *hosts = st_environment("SLURM_STEP_NODELIST");
    if (!hosts) hosts = st_environment("SLURM_JOB_NODELIST");
    if (!hosts) return FAIL(ST_INVALID, "SLURM_STEP_NODELIST is not set");
    int job = 0, step = 0;
    TRY(read_number("SLURM_JOB_ID", 0, INT32_MAX, &job));
    TRY(read_number("SLURM_STEP_ID", 0, INT32_MAX, &step));
    out->port = FIRST_PORT + (int)(((int64_t)job * 7 + step) % N_PORTS);
    return first_host(hosts, out);
}

static bool under_mpi(void) {
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK",
                                        "MPI_LOCALNRANKS"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (st_environment(names[i])) return true;
    return false;
}

st_status_t comm_world_find(const char *how, comm_world_t *out) {
    *out = (comm_world_t){.kind = COMM_ALONE, .size = 1};
    bool is_auto = strcmp(how, "auto") == 0;
    if (strcmp(how, "none") == 0) return ST_OK;
    if (strcmp(how, "mpi") == 0) {
        out->kind = COMM_MPI;
        return ST_OK;
    }
    if (st_environment("RANK") || st_environment("WORLD_SIZE")) return by_rank_variables(out);
    if (is_auto && under_mpi()) {
        const char *size = st_environment("OMPI_COMM_WORLD_SIZE");
        if (!size) size = st_environment("PMI_SIZE");
        if (!size || strcmp(size, "1") != 0) out->kind = COMM_MPI;
        return ST_OK;
    }
    if (st_environment("SLURM_PROCID") && st_environment("SLURM_STEP_ID")) return by_slurm(out);
    if (is_auto) return ST_OK;
    return FAIL(ST_INVALID,
                "--comm tcp needs RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, which 'stator "
                "launch' and torchrun set");
}
