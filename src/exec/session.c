/* Sessions: rank threads, and what callers see (session.h).
 *
 *   caller   feeds checked | generation + 1 | ---------- waits ---------- | first failure or ok
 *   rank r      (waits for a generation)    | feed · steps · deliver | n_done + 1
 */
#include "exec/session.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/options.h"
#include "compile/simulate.h"
#include "exec/internal.h"

enum { DEFAULT_TIMEOUT_MS = 60000 };

/* ---- rank threads ---- */

/* Records a rank's failure; the first one is the session's. */
static void report(exec_session_t *session, uint32_t rank, st_status_t status) {
    pthread_mutex_lock(&session->mutex);
    bool first = session->failed == ST_OK;
    if (first) {
        if (session->plan->n_ranks > 1 && session->generation)
            st_error_context(status, "step %llu", (unsigned long long)session->generation);
        session->failed = status;
        if (session->plan->n_ranks > 1)
            snprintf(session->message, sizeof session->message, "rank %u: %s", rank,
                     st_last_error());
        else
            snprintf(session->message, sizeof session->message, "%s", st_last_error());
    }
    pthread_mutex_unlock(&session->mutex);
    if (first) st_log(ST_LOG_ERROR, "%s", session->message);
}

static void done(exec_session_t *session) {
    pthread_mutex_lock(&session->mutex);
    if (++session->n_done == session->n_local) pthread_cond_broadcast(&session->changed);
    pthread_mutex_unlock(&session->mutex);
}

/* Waits for the next generation; false when the session ends. */
static bool next_generation(exec_session_t *session, uint64_t *generation) {
    pthread_mutex_lock(&session->mutex);
    while (session->generation == *generation && !session->stop)
        pthread_cond_wait(&session->changed, &session->mutex);
    *generation = session->generation;
    bool go_on = !session->stop;
    pthread_mutex_unlock(&session->mutex);
    return go_on;
}

static void *rank_main(void *argument) {
    exec_rank_t *rank = argument;
    exec_session_t *session = rank->session;
    uint64_t generation = 0;
    st_status_t status = exec_rank_prepare(rank);
    if (status != ST_OK) {
        report(session, rank->index, status);
        if (rank->comm) comm_abort(rank->comm, status, st_last_error());
    }
    done(session);
    while (next_generation(session, &generation)) {
        status = exec_rank_step(rank);
        if (status != ST_OK) {
            report(session, rank->index, status);
            comm_abort(rank->comm, status, st_last_error()); /* and with it all axes */
        }
        done(session);
    }
    exec_rank_release(rank);
    return NULL;
}

static void wait_for_ranks(exec_session_t *session) {
    pthread_mutex_lock(&session->mutex);
    while (session->n_done < session->n_local)
        pthread_cond_wait(&session->changed, &session->mutex);
    pthread_mutex_unlock(&session->mutex);
}

static st_status_t session_status(const exec_session_t *session) {
    return session->failed == ST_OK ? ST_OK : FAIL(session->failed, "%s", session->message);
}

/* ---- life ---- */

/* Type of the state `name`, which the graph has. */
static const ir_type_t *state_type(const ir_graph_t *graph, const char *name) {
    return ir_value_type(graph, ir_node(graph, ir_graph_find(graph, name))->first_output);
}

/* The state regions of both plans are laid out alike. */
static st_status_t check_share(const plan_t *plan, const exec_session_t *share) {
    const plan_t *other = share->plan;
    if (plan->n_ranks != other->n_ranks || strcmp(plan->device, other->device) != 0)
        return FAIL(ST_INVALID,
                    "a plan for %u ranks on %s cannot share the state of one for %u ranks on %s",
                    plan->n_ranks, plan->device, other->n_ranks, other->device);
    for (uint32_t r = 0; r < plan->n_ranks; r++) {
        const plan_program_t *mine = &plan->programs[plan->program_of[r]];
        const plan_program_t *theirs = &other->programs[other->program_of[r]];
        for (ir_node_t n = 0; n < mine->graph->nodes.n; n++) {
            const ir_node_info_t *node = ir_node(mine->graph, n);
            if (!(ir_op_def(node->op)->flags & IR_STATE)) continue;
            const plan_place_t *a = &mine->places[node->first_output];
            const plan_place_t *b = plan_state_place(theirs, node->name);
            if (!b || a->bytes != b->bytes || (a->bytes && a->offset != b->offset) ||
                !ir_type_equal(ir_value_type(mine->graph, node->first_output),
                               state_type(theirs->graph, node->name)))
                return FAIL(ST_INVALID,
                            "'%s' is not of the type or at the place that it has in the shared "
                            "session: compile with state_of = its plan",
                            node->name);
        }
    }
    return ST_OK;
}

/* Kernels of one name give other bits with another instruction set or library. */
static void note_differences(exec_session_t *session) {
    const plan_t *plan = session->plan;
    size_t used = 0;
    for (uint32_t i = 0; i < plan->n_options && used < sizeof session->note; i++) {
        const char *key = plan->options[i].key, *here;
        if (strcmp(key, "kernels") == 0)
            here = kern_cpu_level();
        else if (strcmp(key, "libraries") == 0)
            here = kern_libraries();
        else
            continue;
        if (strcmp(plan->options[i].value, here) == 0) continue;
        used += (size_t)snprintf(session->note + used, sizeof session->note - used,
                                 "%sthe plan was made with %s '%s', here they are '%s'",
                                 used ? "; " : "", key, plan->options[i].value, here);
    }
    if (used && used < sizeof session->note)
        snprintf(session->note + used, sizeof session->note - used,
                 ": results may differ in their last bits; compile again to have the plan say what "
                 "runs");
}

static void stop_ranks(exec_session_t *session) {
    pthread_mutex_lock(&session->mutex);
    session->stop = true;
    pthread_cond_broadcast(&session->changed);
    pthread_mutex_unlock(&session->mutex);
    for (uint32_t i = 0; i < session->n_local; i++) {
        exec_rank_t *rank = &session->ranks[session->first + i];
        if (rank->has_thread) pthread_join(rank->thread, NULL);
    }
}

/* A communicator of its own for each local rank. */
static st_status_t make_comms(exec_session_t *session, comm_t **out_comms) {
    const uint32_t n_ranks = session->plan->n_ranks;
    comm_t *world = session->options.comm;
    if (!world) return comm_local_create((int)n_ranks, session->options.timeout_ms, out_comms);
    int *all = st_malloc(n_ranks * sizeof *all);
    if (!all) return st_no_memory(n_ranks * sizeof *all, "a session");
    for (uint32_t r = 0; r < n_ranks; r++) all[r] = (int)r;
    st_status_t status = comm_group_create(world, (int)n_ranks, all, &session->beside);
    if (status == ST_OK) status = comm_group_create(world, (int)n_ranks, all, out_comms);
    st_free(all);
    return status;
}

static st_status_t start_ranks(exec_session_t *session) {
    uint32_t n_local = session->n_local;
    exec_rank_t *ranks = session->ranks + session->first;
    comm_t **comms = st_calloc(n_local, sizeof *comms);
    if (!comms) return st_no_memory(n_local * sizeof *comms, "a session");
    st_status_t status = make_comms(session, comms);
    for (uint32_t i = 0; i < n_local && status == ST_OK; i++) {
        ranks[i].session = session;
        ranks[i].index = session->first + i;
        ranks[i].program = &session->plan->programs[session->plan->program_of[ranks[i].index]];
        ranks[i].comm = comms[i];
    }
    for (uint32_t i = 0; i < n_local && status == ST_OK; i++)
        if (session->options.comm_latency_s > 0 || session->options.comm_bandwidth > 0)
            status = comm_throttle_create(comms[i], session->options.comm_latency_s,
                                          session->options.comm_bandwidth, &ranks[i].comm);
    st_free(comms);
    /* before devices and their connections, which different plans would open differently */
    if (status == ST_OK && session->beside) status = exec_agree(session);
    if (status != ST_OK) {
        for (uint32_t i = 0; i < n_local; i++) exec_rank_release(&ranks[i]);
        return status;
    }
    for (uint32_t i = 0; i < n_local; i++) {
        exec_rank_t *rank = &ranks[i];
        int failed = pthread_create(&rank->thread, NULL, rank_main, rank);
        if (failed) {
            for (; i < n_local; i++) { /* those without a thread count as done */
                exec_rank_release(&ranks[i]);
                done(session);
            }
            wait_for_ranks(session);
            return FAIL(ST_NO_MEMORY, "the thread of rank %u does not start: %s", rank->index,
                        strerror(failed));
        }
        rank->has_thread = true;
    }
    wait_for_ranks(session);
    return session_status(session);
}

/* Which of the plan's ranks are this process's. */
static st_status_t place_ranks(exec_session_t *session) {
    const comm_t *comm = session->options.comm;
    const uint32_t n_ranks = session->plan->n_ranks;
    session->n_local = n_ranks;
    if (!comm) return ST_OK;
    if ((uint32_t)comm_size(comm) != n_ranks)
        return FAIL(ST_INVALID, "the plan is for %u ranks, %d processes run it", n_ranks,
                    comm_size(comm));
    session->first = (uint32_t)comm_rank(comm);
    session->n_local = 1;
    return ST_OK;
}

static st_status_t init_locks(exec_session_t *session) {
    int failed = pthread_mutex_init(&session->mutex, NULL);
    if (!failed && (failed = pthread_cond_init(&session->changed, NULL)))
        pthread_mutex_destroy(&session->mutex);
    return failed ? FAIL(ST_NO_MEMORY, "a session's locks: %s", strerror(failed)) : ST_OK;
}

static void free_session(exec_session_t *session) {
    comm_destroy(session->beside);
    simulate_destroy(session->simulation);
    st_free(session->ranks);
    st_free(session->feeds);
    st_free(session->ahead);
    st_free(session->fetches);
    st_free(session);
}

void exec_session_destroy(exec_session_t *session) {
    if (!session) return;
    if (session->in_step) wait_for_ranks(session);
    if (session->options.profile && session->failed == ST_OK) exec_profile_print(session);
    stop_ranks(session);
    pthread_cond_destroy(&session->changed);
    pthread_mutex_destroy(&session->mutex);
    free_session(session);
}

static void tell_session(const exec_session_t *session) {
    char text[3][ST_NUMBER_BYTES];
    const exec_rank_t *rank = &session->ranks[session->first];
    st_log(ST_LOG_INFO, "session: %u rank%s on %s; state %s, work %s, collectives %s a rank",
           session->plan->n_ranks, session->plan->n_ranks == 1 ? "" : "s", session->plan->device,
           st_size_text(rank->region_bytes[PLAN_STATE], text[0]),
           st_size_text(rank->region_bytes[PLAN_WORK], text[1]),
           st_size_text(rank->region_bytes[PLAN_COMM], text[2]));
}

st_status_t exec_session_create_with(const plan_t *plan, exec_session_t *share,
                                     const exec_options_t *options, exec_session_t **out_session) {
    *out_session = NULL;
    if (share) TRY(check_share(plan, share));
    if (plan->shares_state && !share)
        return FAIL(ST_INVALID,
                    "the plan was compiled with state_of another plan: pass the session of that "
                    "plan, whose state this one shares");
    exec_session_t *session = st_calloc(1, sizeof *session);
    if (!session) return st_no_memory(sizeof *session, "a session");
    session->plan = plan;
    session->share = share;
    session->options = *options;
    note_differences(session);
    if (session->options.timeout_ms <= 0) session->options.timeout_ms = DEFAULT_TIMEOUT_MS;
    session->ranks = st_calloc(plan->n_ranks, sizeof *session->ranks);
    session->feeds = st_calloc(plan->n_inputs, sizeof *session->feeds);
    session->ahead = st_calloc(plan->n_inputs, sizeof *session->ahead);
    session->fetches = st_calloc(plan->n_outputs, sizeof *session->fetches);
    st_status_t status = ST_OK;
    if (!session->ranks || !session->feeds || !session->ahead || !session->fetches)
        status = st_no_memory(plan->n_ranks * sizeof *session->ranks, "a session");
    if (status == ST_OK) status = place_ranks(session);
    if (status == ST_OK) status = init_locks(session);
    if (status != ST_OK) {
        free_session(session);
        return status;
    }
    status = start_ranks(session);
    if (status != ST_OK) {
        exec_session_destroy(session); /* changes no error record */
        return status;
    }
    if (session->note[0]) st_log(ST_LOG_WARNING, "%s", session->note);
    tell_session(session);
    *out_session = session;
    return ST_OK;
}

static st_status_t read_links(double *latency_s, double *bytes_per_s) {
    char text[64];
    TRY(st_process_option("comm-latency", text, sizeof text));
    if (text[0] && !st_duration_parse(text, latency_s))
        return FAIL(ST_INVALID,
                    "option 'comm-latency' is '%s'; a time like 2ms or 50us is expected", text);
    TRY(st_process_option("comm-bandwidth", text, sizeof text));
    if (text[0] && !st_rate_parse(text, bytes_per_s))
        return FAIL(ST_INVALID,
                    "option 'comm-bandwidth' is '%s'; bytes a second like 200MB/s or "
                    "1GiB/s are expected",
                    text);
    return ST_OK;
}

static bool switched_on(const char *variable) {
    const char *text = st_environment(variable);
    return text && strcmp(text, "0") != 0;
}

st_status_t exec_session_create(const plan_t *plan, exec_session_t *share,
                                exec_session_t **out_session) {
    return exec_session_create_on(plan, share, NULL, out_session);
}

st_status_t exec_session_create_on(const plan_t *plan, exec_session_t *share, comm_t *comm,
                                   exec_session_t **out_session) {
    double latency = 0, bandwidth = 0;
    *out_session = NULL;
    TRY(read_links(&latency, &bandwidth));
    exec_options_t options = {
        .comm = comm,
        .comm_latency_s = latency,
        .comm_bandwidth = bandwidth,
        .timeout_ms = (int64_t)plan->timeout_ms,
        .poison = switched_on("STATOR_POISON"),
        .profile = switched_on("STATOR_PROFILE"),
    };
    return exec_session_create_with(plan, share, &options, out_session);
}

/* ---- a step ---- */

static uint32_t find_port(const plan_port_t *ports, uint32_t n, const char *name) {
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(ports[i].name, name) == 0) return i;
    return n;
}

/* " (inputs: x, y)" into `buffer`. */
static const char *list_ports(const plan_port_t *ports, uint32_t n, char *buffer, size_t capacity) {
    size_t used = 0;
    buffer[0] = '\0';
    for (uint32_t i = 0; i < n && used < capacity; i++)
        used +=
            (size_t)snprintf(buffer + used, capacity - used, "%s%s", i ? ", " : "", ports[i].name);
    return buffer;
}

static st_status_t take_feeds(const plan_t *plan, size_t n, const exec_feed_t *feeds,
                              const void **out) {
    char names[512], given[IR_TYPE_TEXT_BYTES], expected[IR_TYPE_TEXT_BYTES];
    for (uint32_t i = 0; i < plan->n_inputs; i++) out[i] = NULL;
    for (size_t f = 0; f < n; f++) {
        uint32_t i = find_port(plan->inputs, plan->n_inputs, feeds[f].name);
        if (i == plan->n_inputs)
            return FAIL(ST_NOT_FOUND, "there is no input '%s'; the inputs are: %s", feeds[f].name,
                        list_ports(plan->inputs, plan->n_inputs, names, sizeof names));
        if (out[i]) return FAIL(ST_INVALID, "input '%s' is fed twice", feeds[f].name);
        if (!ir_type_equal(&feeds[f].type, &plan->inputs[i].type))
            return FAIL(ST_INVALID, "input '%s' is %s, the plan was compiled for %s", feeds[f].name,
                        ir_type_text(&feeds[f].type, given, sizeof given),
                        ir_type_text(&plan->inputs[i].type, expected, sizeof expected));
        if (!feeds[f].data && ir_type_bytes(&feeds[f].type))
            return FAIL(ST_INVALID, "input '%s' has no data", feeds[f].name);
        out[i] = feeds[f].data ? feeds[f].data : "";
    }
    for (uint32_t i = 0; i < plan->n_inputs; i++)
        if (!out[i])
            return FAIL(ST_INVALID, "input '%s' %s is not fed", plan->inputs[i].name,
                        ir_type_text(&plan->inputs[i].type, expected, sizeof expected));
    return ST_OK;
}

static bool is_kept_on_request(const ir_graph_t *source, const char *name) {
    for (ir_node_t n = 0; n < source->nodes.n; n++)
        if (ir_node(source, n)->n_outputs && strcmp(ir_node(source, n)->name, name) == 0)
            return true;
    return false;
}

static st_status_t take_fetches(exec_session_t *session, size_t n, const exec_fetch_t *fetches) {
    const plan_t *plan = session->plan;
    char names[512];
    for (uint32_t o = 0; o < plan->n_outputs; o++) session->fetches[o] = NULL;
    for (size_t f = 0; f < n; f++) {
        uint32_t o = find_port(plan->outputs, plan->n_outputs, fetches[f].name);
        if (o == plan->n_outputs && is_kept_on_request(plan->source, fetches[f].name))
            return FAIL(ST_NOT_FOUND,
                        "'%s' is a value of the graph that the plan does not keep: compile with "
                        "option fetch=%s",
                        fetches[f].name, fetches[f].name);
        if (o == plan->n_outputs)
            return FAIL(ST_NOT_FOUND, "there is no output '%s'; the outputs are: %s",
                        fetches[f].name,
                        list_ports(plan->outputs, plan->n_outputs, names, sizeof names));
        if (session->fetches[o])
            return FAIL(ST_INVALID, "output '%s' is fetched twice", fetches[f].name);
        size_t bytes = ir_type_bytes(&plan->outputs[o].type);
        if (fetches[f].bytes != bytes)
            return FAIL(ST_INVALID, "output '%s' has %zu bytes, room is given for %zu",
                        fetches[f].name, bytes, fetches[f].bytes);
        session->fetches[o] = bytes ? fetches[f].data : NULL;
    }
    return ST_OK;
}

st_status_t exec_session_idle(const exec_session_t *session) {
    return session->in_step ? FAIL(ST_INVALID, "a step is in progress: wait for it first") : ST_OK;
}

st_status_t exec_session_step_start(exec_session_t *session, size_t n_feeds,
                                    const exec_feed_t *feeds, size_t n_fetches,
                                    const exec_fetch_t *fetches) {
    TRY(exec_session_idle(session));
    TRY(session_status(session));
    const bool ahead = n_feeds == 0 && session->fed_ahead;
    if (!ahead) TRY(take_feeds(session->plan, n_feeds, feeds, session->feeds));
    TRY(take_fetches(session, n_fetches, fetches));
    exec_shadows_note_step(session);
    pthread_mutex_lock(&session->mutex);
    session->in_step = true;
    session->takes_ahead = ahead;
    session->n_done = session->n_taken = 0;
    session->generation++;
    pthread_cond_broadcast(&session->changed);
    pthread_mutex_unlock(&session->mutex);
    return ST_OK;
}

/* Waits until the step in progress, if there is one, has its inputs in place or has ended. */
static st_status_t wait_until_taken(exec_session_t *session) {
    pthread_mutex_lock(&session->mutex);
    while (session->n_done < session->n_local && session->n_taken < session->n_local)
        pthread_cond_wait(&session->changed, &session->mutex);
    st_status_t status = session_status(session);
    pthread_mutex_unlock(&session->mutex);
    return status;
}

st_status_t exec_session_feed(exec_session_t *session, size_t n_feeds, const exec_feed_t *feeds) {
    if (!plan_feeds_ahead(session->plan))
        return FAIL(ST_INVALID,
                    "the plan has no room for inputs ahead of a step: compile with option "
                    "feed-ahead=on");
    TRY(take_feeds(session->plan, n_feeds, feeds, session->ahead));
    TRY(wait_until_taken(session));
    session->fed_ahead = false;
    for (uint32_t i = 0; i < session->n_local; i++)
        TRY(exec_rank_feed_ahead(&session->ranks[session->first + i]));
    session->fed_ahead = true;
    return ST_OK;
}

bool exec_session_step_done(exec_session_t *session) {
    pthread_mutex_lock(&session->mutex);
    bool is_done = session->n_done == session->n_local;
    pthread_mutex_unlock(&session->mutex);
    return is_done;
}

st_status_t exec_session_step_wait(exec_session_t *session) {
    if (!session->in_step) return FAIL(ST_INVALID, "no step is in progress: start one first");
    wait_for_ranks(session);
    session->in_step = false;
    session->has_stepped = session->failed == ST_OK;
    session->step_us = session->ranks[session->first].step_us;
    session->wait_us = session->ranks[session->first].wait_us;
    TRY(session_status(session));
    return session->beside ? exec_complete_outputs(session) : ST_OK;
}

st_status_t exec_session_step(exec_session_t *session, size_t n_feeds, const exec_feed_t *feeds,
                              size_t n_fetches, const exec_fetch_t *fetches) {
    TRY(exec_session_step_start(session, n_feeds, feeds, n_fetches, fetches));
    return exec_session_step_wait(session);
}

/* Of the last step: outputs lie in `work` until the next one. Each rank has its part. */
st_status_t exec_session_fetch(exec_session_t *session, const exec_fetch_t *fetch) {
    TRY(exec_session_idle(session));
    TRY(session_status(session));
    if (!session->has_stepped)
        return FAIL(ST_INVALID, "'%s' has no value yet: no step was run", fetch->name);
    TRY(take_fetches(session, 1, fetch));
    for (uint32_t i = 0; i < session->n_local; i++)
        TRY(exec_rank_deliver(&session->ranks[session->first + i]));
    return session->beside ? exec_complete_outputs(session) : ST_OK;
}

/* ---- figures ---- */

const char *exec_session_note(const exec_session_t *session) {
    return session->note;
}

uint64_t exec_region_bytes(const exec_session_t *session, uint32_t rank, plan_region_t region) {
    if (rank >= session->plan->n_ranks || region <= PLAN_NOWHERE || region >= PLAN_REGION_END)
        return 0;
    return session->ranks[rank].region_bytes[region];
}
st_status_t exec_device_memory(exec_session_t *session, uint64_t *out_taken, uint64_t *out_free) {
    const exec_rank_t *rank = &session->ranks[session->first];
    size_t unused = 0, total;
    *out_taken = rank->taken_bytes;
    *out_free = 0;
    TRY(exec_session_idle(session));
    if (rank->device->memory) TRY(rank->device->memory(rank->stream, &unused, &total));
    *out_free = unused;
    return ST_OK;
}
double exec_last_step_us(const exec_session_t *session) {
    return session->step_us;
}
double exec_last_wait_us(const exec_session_t *session) {
    return session->wait_us;
}

exec_startup_t exec_startup(const exec_session_t *session) {
    const exec_rank_t *rank = &session->ranks[session->first];
    dev_startup_t device = {0};
    if (rank->device && rank->device->startup && rank->stream)
        rank->device->startup(rank->stream, &device);
    return (exec_startup_t){.open_s = rank->open_s,
                            .memory_s = rank->memory_s,
                            .prepare_s = rank->prepare_s,
                            .libraries_s = device.libraries_s,
                            .nests_s = device.nests_s,
                            .plans_s = device.plans_s,
                            .tune_s = rank->tune_s,
                            .capture_s = rank->capture_s,
                            .n_measured = device.n_measured,
                            .choices = device.choices};
}
