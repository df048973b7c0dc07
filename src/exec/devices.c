/* Ranks with devices of their own: which device is whose, and what they agree on before they run.
 *
 * Devices of a host are numbered; its ranks take them in their order. Where a device moves
 * collectives itself its communicator takes the place of the host's, which goes on carrying ids,
 * words and failures. Ways that tuning chooses must be the same on all ranks, else copies of one
 * tensor drift apart: what one rank has measured the others take, before kernels are bound to ways
 * that are on record, and after the first rank of each program has measured. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "exec/internal.h"

enum { NAME_BYTES = 320, FOLLOW_MS = 3600 * 1000 };

/* A host, then a device of it. */
typedef struct place {
    char host[NAME_BYTES], device[NAME_BYTES];
} place_t;

static st_status_t gather(comm_t *comm, const void *own, size_t bytes, void *all) {
    const int n = comm_size(comm);
    int64_t *parts = st_malloc((size_t)n * sizeof *parts);
    if (!parts) return st_no_memory((size_t)n * sizeof *parts, "a session");
    for (int r = 0; r < n; r++) parts[r] = (int64_t)bytes;
    const comm_segment_t cut = {.in = own, .out = all, .outer = 1, .parts = parts};
    st_status_t status = comm_all_gather_start(comm, 0, IR_U8, 1, &cut);
    if (status == ST_OK) status = comm_wait(comm, 0);
    st_free(parts);
    return status;
}

/* Name and boot of this host: names alone may be the same on two. */
static void name_host(char *text) {
    char boot[64] = "";
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (gethostname(text, NAME_BYTES - sizeof boot) != 0) text[0] = '\0';
    text[NAME_BYTES - sizeof boot - 1] = '\0';
    if (!file) return;
    if (!fgets(boot, sizeof boot, file)) boot[0] = '\0';
    fclose(file);
    snprintf(text + strlen(text), sizeof boot, " %.*s", (int)strcspn(boot, "\n"), boot);
}

/* How many lower ranks are on this host. */
static st_status_t count_before(exec_rank_t *rank, int *out_n) {
    const uint32_t n = rank->session->plan->n_ranks;
    place_t own = {{0}, {0}}, *all = st_calloc(n, sizeof *all);
    *out_n = 0;
    if (!all) return st_no_memory(n * sizeof *all, "a session");
    name_host(own.host);
    st_status_t status = gather(rank->comm, &own, sizeof own, all);
    for (uint32_t r = 0; r < rank->index && status == ST_OK; r++)
        *out_n += strcmp(all[r].host, own.host) == 0;
    st_free(all);
    return status;
}

/* No two ranks have the same device. */
static st_status_t check_places(exec_rank_t *rank) {
    const uint32_t n = rank->session->plan->n_ranks;
    place_t own = {{0}, {0}}, *all = st_calloc(n, sizeof *all);
    if (!all) return st_no_memory(n * sizeof *all, "a session");
    st_status_t status = rank->device->identity(rank->stream, own.device, sizeof own.device);
    if (status == ST_OK) status = gather(rank->comm, &own, sizeof own, all);
    for (uint32_t r = 0; r < n && status == ST_OK; r++) {
        if (r == rank->index || strcmp(all[r].device, own.device) != 0) continue;
        int found = 0;
        TRY_GOTO(rank->device->count(&found), done);
        status =
            FAIL(ST_NOT_FOUND,
                 "ranks %u and %u would share %s: each rank needs a device of its own, and this "
                 "host shows %d to this process",
                 r < rank->index ? r : rank->index, r < rank->index ? rank->index : r, own.device,
                 found);
    }
done:
    st_free(all);
    return status;
}

/* What `root` has on record, to all. */
static st_status_t share_choices(exec_rank_t *rank, uint32_t root) {
    char *text = NULL;
    int64_t bytes = 0;
    const int64_t one = 1;
    void *data = &bytes;
    if (rank->index == root) TRY(rank->device->choices_give(rank->stream, &text));
    if (text) bytes = (int64_t)strlen(text) + 1;
    st_status_t status = comm_broadcast_start(rank->words, 0, IR_I64, (int)root, 1, &data, &one);
    if (status == ST_OK) status = comm_wait_for(rank->words, 0, FOLLOW_MS);
    if (status == ST_OK && !text && !(text = st_calloc((size_t)bytes + 1, 1)))
        status = st_no_memory((size_t)bytes, "a tuning record");
    data = text;
    if (status == ST_OK)
        status = comm_broadcast_start(rank->words, 0, IR_U8, (int)root, 1, &data, &bytes);
    if (status == ST_OK) status = comm_wait_for(rank->words, 0, FOLLOW_MS);
    if (status == ST_OK && rank->index != root)
        status = rank->device->choices_take(rank->stream, text);
    st_free(text);
    return status;
}

/* The device's communicator over the host's. */
static st_status_t open_collectives(exec_rank_t *rank) {
    const exec_options_t *options = &rank->session->options;
    const uint32_t n = rank->session->plan->n_ranks;
    comm_t *made = NULL;
    if (options->comm_latency_s > 0 || options->comm_bandwidth > 0)
        return FAIL(ST_UNSUPPORTED,
                    "comm-latency and comm-bandwidth slow the links of the host; %s has its own",
                    rank->device->name);
    TRY(check_places(rank));
    int *all = st_malloc(n * sizeof *all);
    if (!all) return st_no_memory(n * sizeof *all, "a session");
    for (uint32_t r = 0; r < n; r++) all[r] = (int)r;
    st_status_t status = comm_group_create(rank->comm, (int)n, all, &rank->words);
    st_free(all);
    TRY(status);
    TRY(rank->device->collectives(rank->stream, rank->comm, options->timeout_ms, &made));
    rank->comm = made;
    return share_choices(rank, 0);
}

st_status_t exec_open_device(exec_rank_t *rank) {
    const dev_device_t *device = rank->device;
    const bool many = device->collectives && rank->session->plan->n_ranks > 1;
    int before = 0, count = 1;
    if (many) {
        TRY(count_before(rank, &before));
        TRY(device->count(&count));
    }
    TRY(device->open(count ? before % count : 0, (int)rank->session->plan->n_threads,
                     &rank->stream));
    return many ? open_collectives(rank) : ST_OK;
}

static bool has_pair(const exec_rank_t *rank, const comm_t *comm, int peer, bool sends) {
    for (uint32_t i = 0; i < rank->n_steps; i++) {
        const exec_step_t *step = &rank->steps[i];
        if (step->kind == PLAN_STEP_START && step->comm == comm && step->peer == peer &&
            step->pair == (sends ? EXEC_SENDS : EXEC_RECEIVES))
            return true;
    }
    return false;
}

/* By lower end, higher end, direction: who is at its next pair finds the other end there, too. */
st_status_t exec_open_pairs(exec_rank_t *rank) {
    const ir_mesh_t *mesh = &rank->session->plan->mesh;
    for (uint32_t a = 0; a < mesh->n; a++) {
        comm_t *comm = rank->axes[a];
        for (int peer = 0; peer < comm_size(comm); peer++)
            for (int up = 1; up >= 0; up--) {
                const bool sends = (comm_rank(comm) < peer) == (up == 1);
                if (peer != comm_rank(comm) && has_pair(rank, comm, peer, sends))
                    TRY(comm_pair_open(comm, peer, sends));
            }
    }
    return ST_OK;
}

/* Before the first collectives: what a rank allocates until then waits for all devices of the
 * process, one of which would be waiting for the rank. */
st_status_t exec_meet(exec_rank_t *rank) {
    int32_t one = 1;
    void *data = &one;
    const int64_t n = 1;
    if (!rank->words) return ST_OK;
    TRY(comm_all_reduce_start(rank->words, 0, IR_I32, 1, &data, &n));
    return comm_wait_for(rank->words, 0, FOLLOW_MS);
}

static uint32_t first_of(const plan_t *plan, uint32_t program) {
    uint32_t r = 0;
    while (plan->program_of[r] != program) ASSERT(++r < plan->n_ranks);
    return r;
}

st_status_t exec_tune_alike(exec_rank_t *rank) {
    const plan_t *plan = rank->session->plan;
    if (!rank->words) return exec_tune(rank);
    for (uint32_t p = 0; p < plan->n_programs; p++) {
        const uint32_t first = first_of(plan, p);
        if (rank->index == first) TRY(exec_tune(rank));
        TRY(share_choices(rank, first));
    }
    return rank->index == first_of(plan, plan->program_of[rank->index]) ? ST_OK : exec_tune(rank);
}
