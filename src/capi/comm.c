/* Communicators of processes. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "capi/capi.h"
#include "comm/comm.h"
#include "comm/world.h"

enum { LONGEST_TIMEOUT_S = 86400 };

static st_status_t connect_world(const comm_world_t *world, int64_t timeout_ms, comm_t **out) {
    if (world->kind == COMM_MPI) return comm_mpi_create(timeout_ms, stator_version(), out);
    comm_tcp_config_t config = {world->rank, world->size, world->address,
                                world->port, timeout_ms,  stator_version()};
    return comm_tcp_create(&config, out);
}

/* The plan is for as many ranks as there are processes. */
static st_status_t settle_ranks(stator_options_t *options, int size) {
    char text[16];
    int64_t given = st_options_int(options->table, "ranks");
    if (st_options_given(options->table, "ranks") && given != size)
        return FAIL(ST_INVALID,
                    "option 'ranks' is %lld, %d processes run: leave it out, or start as many",
                    (long long)given, size);
    snprintf(text, sizeof text, "%d", size);
    return st_options_set(options->table, "ranks", text);
}

static st_status_t join(stator_options_t *options, comm_t **out) {
    comm_world_t world;
    char how[16];
    TRY(st_process_option("comm", how, sizeof how));
    TRY(comm_world_find(how, &world));
    if (world.kind == COMM_ALONE) return ST_OK;
    double timeout = st_options_float(options->table, "timeout");
    if (!(timeout > 0) || timeout > LONGEST_TIMEOUT_S)
        return FAIL(ST_INVALID, "option 'timeout' is %g seconds; above 0 up to %d are possible",
                    timeout, LONGEST_TIMEOUT_S);
    TRY(connect_world(&world, (int64_t)ceil(timeout * 1000), out));
    if (comm_size(*out) > 1) return settle_ranks(options, comm_size(*out));
    comm_destroy(*out); /* MPI counts one */
    *out = NULL;
    return ST_OK;
}

stator_status_t stator_comm_join(stator_options_t *options, stator_comm_t **out_comm) {
    CAPI_OUT(out_comm);
    CAPI_REQUIRE(options);
    comm_t *world = NULL;
    st_status_t status = join(options, &world);
    stator_comm_t *comm = status == ST_OK && world ? st_calloc(1, sizeof *comm) : NULL;
    if (status == ST_OK && world && !comm) status = st_no_memory(sizeof *comm, "a communicator");
    if (status != ST_OK) {
        if (world) comm_abort(world, status, st_last_error());
        comm_destroy(world);
        return capi_status(status);
    }
    if (comm) comm->world = world;
    *out_comm = comm;
    return STATOR_OK;
}

void stator_comm_destroy(stator_comm_t *comm) {
    if (!comm) return;
    comm_destroy(comm->world);
    st_free(comm);
}

int stator_comm_rank(const stator_comm_t *comm) {
    return comm ? comm_rank(comm->world) : 0;
}
int stator_comm_size(const stator_comm_t *comm) {
    return comm ? comm_size(comm->world) : 1;
}

stator_status_t stator_comm_any(stator_comm_t *comm, int flag, int *out_any) {
    CAPI_REQUIRE(out_any);
    *out_any = flag != 0;
    if (!comm) return STATOR_OK;
    int32_t sum = flag != 0;
    int64_t one = 1;
    void *data = &sum;
    st_status_t status = comm_all_reduce_start(comm->world, 0, IR_I32, 1, &data, &one);
    if (status == ST_OK) status = comm_wait(comm->world, 0);
    *out_any = sum != 0;
    return capi_status(status);
}

stator_status_t stator_comm_agree(stator_comm_t *comm, const char *name, const char *value) {
    CAPI_REQUIRE(name);
    CAPI_REQUIRE(value);
    if (!comm) return STATOR_OK;
    return capi_status(comm_agree(comm->world, 1, &(comm_fact_t){name, value}));
}

void stator_comm_abort(stator_comm_t *comm, stator_status_t status, const char *reason) {
    if (comm) comm_abort(comm->world, (st_status_t)status, reason ? reason : "");
}
