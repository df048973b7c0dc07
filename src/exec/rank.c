/* One step of one rank: a loop over prepared steps. Nothing here allocates. */
#include <string.h>
#include <time.h>

#include "exec/internal.h"

static double clock_us(clockid_t clock) {
    struct timespec at;
    clock_gettime(clock, &at);
    return (double)at.tv_sec * 1e6 + (double)at.tv_nsec * 1e-3;
}
double exec_now_us(void) {
    return clock_us(CLOCK_MONOTONIC);
}

/* A profile's clock: processor time where one thread does all, which other programs do not
 * lengthen. */
static clockid_t profile_clock(const exec_rank_t *rank) {
    const plan_t *plan = rank->session->plan;
    bool alone = plan->n_ranks == 1 && plan->n_threads == 1;
    return alone && strcmp(rank->device->name, "cpu") == 0 ? CLOCK_THREAD_CPUTIME_ID
                                                           : CLOCK_MONOTONIC;
}

static st_status_t run_copies(const exec_rank_t *rank, const exec_step_t *step) {
    for (uint32_t i = 0; i < step->n_copies; i++)
        TRY(rank->device->copy(rank->stream, step->to[i], step->from[i], step->bytes[i]));
    return ST_OK;
}

static st_status_t run_start(const exec_rank_t *rank, const exec_step_t *step) {
    const bool on_device = comm_on_device(step->comm);
    TRY(run_copies(rank, step));
    if (!on_device) TRY(rank->device->synchronize(rank->stream));
    if (rank->session->beside || on_device)
        comm_mark(rank->comm, rank->session->generation,
                  ir_node_label(rank->program->graph, step->node));
    if (step->sides)
        return comm_all_to_all_start(step->comm, step->ticket, step->dtype, step->buffers[0],
                                     step->sides[0], step->buffers[1], step->sides[1]);
    if (step->pair == EXEC_SENDS)
        return comm_send_start(step->comm, step->ticket, step->peer, step->dtype, step->buffers[0],
                               step->sizes[0]);
    if (step->pair == EXEC_RECEIVES)
        return comm_receive_start(step->comm, step->ticket, step->peer, step->dtype,
                                  step->buffers[0], step->sizes[0]);
    if (step->segments && step->scatters)
        return comm_reduce_scatter_start(step->comm, step->ticket, step->dtype, step->n_buffers,
                                         step->segments);
    if (step->segments)
        return comm_all_gather_start(step->comm, step->ticket, step->dtype, step->n_buffers,
                                     step->segments);
    return comm_all_reduce_start(step->comm, step->ticket, step->dtype, step->n_buffers,
                                 step->buffers, step->sizes);
}

static st_status_t run_wait(exec_rank_t *rank, const exec_step_t *step) {
    double begin = exec_now_us();
    st_status_t status = comm_wait(step->comm, step->ticket);
    rank->wait_us += exec_now_us() - begin;
    return status;
}

st_status_t exec_run_kind(exec_rank_t *rank, exec_step_t *step) {
    switch (step->kind) {
        case PLAN_STEP_KERNEL:
            return step->impl->launch(&step->call);
        case PLAN_STEP_COPY:
            return run_copies(rank, step);
        case PLAN_STEP_START:
            return run_start(rank, step);
        case PLAN_STEP_WAIT:
            return run_wait(rank, step);
        case PLAN_STEP_REGION:
            return exec_region_run(step);
        case PLAN_STEP_NOTHING:
            break;
    }
    return ST_OK;
}

static st_status_t run_step(exec_rank_t *rank, uint32_t i) {
    exec_step_t *step = &rank->steps[i];
    if (rank->measure) return exec_measure_run(rank, i);
    if (!step->profile || !rank->has_run) return exec_run_kind(rank, step);
    const clockid_t clock = profile_clock(rank);
    double begin = clock_us(clock);
    st_status_t status = exec_run_kind(rank, step);
    if (status == ST_OK) status = rank->device->synchronize(rank->stream); /* its own time */
    step->profile->us += clock_us(clock) - begin;
    step->profile->n_calls++;
    return status;
}

/* All bits set: a NaN in every float type. */
static void poison(const exec_rank_t *rank, const exec_step_t *step) {
    for (uint32_t i = 0; i < step->n_dead; i++)
        if (step->dead[i].bytes)
            memset(exec_address(rank, &step->dead[i]), 0xff, step->dead[i].bytes);
}

static st_status_t move_ahead(void *context, void *local, size_t offset, size_t bytes) {
    const exec_moved_t *m = context;
    const dev_device_t *device = m->rank->device;
    return (device->aside_copy ? device->aside_copy : device->copy_in)(m->rank->stream, local,
                                                                       m->from + offset, bytes);
}

st_status_t exec_rank_feed_ahead(exec_rank_t *rank) {
    const exec_session_t *session = rank->session;
    for (uint32_t i = 0; i < session->plan->n_inputs; i++) {
        exec_moved_t move = {.rank = rank, .from = session->ahead[i]};
        TRY(exec_part_each(&rank->ahead[i], move_ahead, &move));
    }
    return ST_OK;
}

/* Inputs from the feeds region to their places. */
static st_status_t take_ahead(const exec_rank_t *rank) {
    const plan_program_t *program = rank->program;
    if (rank->device->aside_join) TRY(rank->device->aside_join(rank->stream));
    for (uint32_t i = 0; i < rank->session->plan->n_inputs; i++) {
        ir_node_t node = ir_graph_find(program->graph, rank->session->plan->inputs[i].name);
        if (node == IR_NONE) continue; /* another stage's */
        size_t bytes = program->places[ir_node(program->graph, node)->first_output].bytes;
        if (bytes)
            TRY(rank->device->copy(rank->stream, rank->inputs[i].local, rank->ahead[i].local,
                                   bytes));
    }
    return ST_OK;
}

static st_status_t copy_feeds(const exec_rank_t *rank) {
    const exec_session_t *session = rank->session;
    for (uint32_t i = 0; i < session->plan->n_inputs; i++) {
        exec_moved_t move = {.rank = rank, .from = session->feeds[i]};
        TRY(exec_part_each(&rank->inputs[i], exec_move_in, &move));
    }
    return ST_OK;
}

/* The step's inputs to their places; from then on the feeds region may be filled again. */
static st_status_t feed(const exec_rank_t *rank) {
    exec_session_t *session = rank->session;
    TRY(session->takes_ahead ? take_ahead(rank) : copy_feeds(rank));
    if (!rank->ahead) return ST_OK;
    if (rank->device->aside_begin) TRY(rank->device->aside_begin(rank->stream));
    pthread_mutex_lock(&session->mutex);
    session->n_taken++;
    pthread_cond_broadcast(&session->changed);
    pthread_mutex_unlock(&session->mutex);
    return ST_OK;
}

st_status_t exec_rank_deliver(const exec_rank_t *rank) {
    const exec_session_t *session = rank->session;
    for (uint32_t o = 0; o < session->plan->n_outputs; o++) {
        exec_moved_t move = {.rank = rank, .to = session->fetches[o]};
        if (!session->fetches[o] || !rank->outputs[o].delivers) continue;
        TRY(exec_part_each(&rank->outputs[o], exec_move_out, &move));
    }
    return rank->device->synchronize(rank->stream);
}

st_status_t exec_state_part_out(const exec_rank_t *rank, const exec_part_t *part, void *to) {
    exec_moved_t move = {.rank = rank, .to = to};
    TRY(exec_part_each(part, exec_move_out, &move));
    return rank->device->synchronize(rank->stream);
}

static st_status_t run_steps(void *context) {
    exec_rank_t *rank = context;
    for (uint32_t i = 0; i < rank->n_steps; i++) {
        exec_step_t *step = &rank->steps[i];
        st_status_t status = run_step(rank, i);
        if (status != ST_OK)
            return st_error_context(status, "%s", ir_node_label(rank->program->graph, step->node));
        if (step->n_dead) poison(rank, step);
    }
    return rank->measure ? exec_measure_end(rank) : ST_OK;
}

/* Where the device records graphs, the first step runs launch by launch, which loads all code, the
 * second is recorded, and from then on one launch is the whole step. */
static st_status_t run_program(exec_rank_t *rank) {
    const dev_device_t *device = rank->device;
    if (!device->capture || rank->profile || !rank->has_run) {
        st_status_t status = run_steps(rank);
        rank->has_run = true;
        return status;
    }
    dev_graph_t **graph = rank->measure ? &rank->measure->graph : &rank->graph;
    if (!*graph) {
        double begin = exec_now_us();
        TRY(device->capture(rank->stream, run_steps, rank, graph));
        rank->capture_s = (exec_now_us() - begin) * 1e-6;
    }
    if (rank->measure) rank->measure->replayed = true;
    return device->replay(rank->stream, *graph);
}

/* What kernels that ran apart from the host found. */
static st_status_t check_fault(const exec_rank_t *rank) {
    dev_fault_t fault;
    if (!rank->device->take_fault || !rank->device->take_fault(rank->stream, &fault)) return ST_OK;
    st_status_t status = FAIL(ST_INVALID,
                              "index %lld at position %lld is out of range: from %lld to %lld are "
                              "valid",
                              (long long)fault.index, (long long)fault.position,
                              -(long long)fault.size, (long long)fault.size - 1);
    return st_error_context(status, "%s", ir_node_label(rank->program->graph, fault.node));
}

static st_status_t run_all(exec_rank_t *rank) {
    if (!rank->has_run) {
        double begin = exec_now_us();
        TRY(exec_tune_alike(rank));
        rank->tune_s = (exec_now_us() - begin) * 1e-6;
    }
    TRY(exec_shadows_refresh(rank));
    TRY(feed(rank));
    if (!rank->has_run) TRY(exec_meet(rank));
    if (rank->measure) TRY(exec_measure_begin(rank));
    TRY(run_program(rank));
    if (rank->measure) TRY(exec_measure_read(rank));
    TRY(exec_rank_deliver(rank));
    return check_fault(rank);
}

st_status_t exec_rank_step(exec_rank_t *rank) {
    double begin = exec_now_us();
    rank->step_begin_us = begin;
    dev_team_t *team = rank->device->team(rank->stream);
    rank->wait_us = 0;
    if (team) dev_team_enter(team);
    comm_step_begin(rank->comm, rank->session->generation);
    st_status_t status = run_all(rank), lost = comm_step_end(rank->comm);
    if (lost != ST_OK) status = lost; /* which the failure of a call may come from */
    if (team) dev_team_leave(team);
    rank->step_us = exec_now_us() - begin;
    if (!rank->device->computes) {
        rank->step_us = rank->predicted_us;
        rank->wait_us = rank->predicted_wait_us;
    }
    return status;
}
