/* What a rank needs for its steps, made once: memory, constants, kernels with their arguments. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/parallel.h"
#include "compile/plan_stage.h"
#include "compile/predict.h"
#include "compile/simulate.h"
#include "exec/internal.h"

static st_status_t no_memory(size_t bytes) {
    return st_no_memory(bytes, "a session");
}

/* Array in the rank's arena, or a return. */
#define ARRAY(rank, out, n)                                         \
    do {                                                            \
        (out) = st_arena_array(&(rank)->arena, (n), sizeof *(out)); \
        if (!(out)) return no_memory((n) * sizeof *(out));          \
    } while (0)

static void *value_address(const exec_rank_t *rank, ir_value_t v) {
    return exec_address(rank, &rank->program->places[v]);
}

/* ---- memory ---- */

static st_status_t allocate_regions(exec_rank_t *rank) {
    const exec_session_t *share = rank->session->share;
    for (int r = PLAN_STATE; r < PLAN_REGION_END; r++) {
        if (r == PLAN_STATE && share) {
            rank->regions[r] = share->ranks[rank->index].regions[r];
            rank->region_bytes[r] = share->ranks[rank->index].region_bytes[r];
            continue;
        }
        st_status_t status =
            rank->device->alloc(rank->stream, rank->program->region_bytes[r], &rank->regions[r]);
        if (status != ST_OK) return status;
        rank->region_bytes[r] = rank->program->region_bytes[r];
        if (r == PLAN_STATE) rank->owns_state = true;
    }
    return ST_OK;
}

/* What a lasting node's memory is filled from: all of it, or the one element of a splat. *storage
 * holds it where it is no attribute. */
static st_status_t constant_data(const exec_rank_t *rank, const ir_node_info_t *node,
                                 int64_t *storage, const void **out_data, size_t *out_bytes) {
    if (node->op != IR_OP_AXIS_INDEX) {
        const ir_attr_t *data = ir_node_attr(node, "data");
        *out_data = data->data.p;
        *out_bytes = data->data.bytes;
        return ST_OK;
    }
    const ir_mesh_t *mesh = &rank->session->plan->mesh;
    const char *name = ir_node_attr(node, "mesh")->s;
    uint32_t axis = ir_mesh_find(mesh, name);
    if (axis == IR_NONE) return FAIL(ST_INVALID, "the mesh has no axis '%s'", name);
    *storage = ir_mesh_coordinate(mesh, rank->index, axis);
    *out_data = storage;
    *out_bytes = sizeof *storage;
    return ST_OK;
}

static bool needs_filling(const exec_rank_t *rank, const ir_node_info_t *node) {
    return ir_op_is_lasting(node->op) && rank->program->places[node->first_output].bytes;
}

/* `pinned` NULL: from the node's own data. */
static st_status_t fill_constant(exec_rank_t *rank, const ir_node_info_t *node,
                                 const char **pinned) {
    const plan_place_t *place = &rank->program->places[node->first_output];
    char *to = exec_address(rank, place);
    int64_t storage;
    const void *data;
    size_t done;
    TRY(constant_data(rank, node, &storage, &data, &done));
    if (*pinned) {
        TRY(rank->device->copy(rank->stream, to, *pinned, done));
        *pinned += done;
    } else {
        TRY(rank->device->copy_in(rank->stream, to, data, done));
    }
    /* a splat: the first element is there, then what is there is doubled */
    while (done < place->bytes) {
        size_t more = place->bytes - done < done ? place->bytes - done : done;
        TRY(rank->device->copy(rank->stream, to + done, to, more));
        done += more;
    }
    return ST_OK;
}

st_status_t exec_fill_constants(exec_rank_t *rank) {
    const ir_graph_t *graph = rank->program->graph;
    const char *pinned = rank->frame ? rank->frame->pinned : NULL;
    for (ir_node_t n = 0; n < graph->nodes.n; n++)
        if (needs_filling(rank, ir_node(graph, n)))
            TRY(fill_constant(rank, ir_node(graph, n), &pinned));
    return ST_OK;
}

st_status_t exec_pin_constants(exec_rank_t *rank) {
    const ir_graph_t *graph = rank->program->graph;
    const dev_device_t *device = rank->device;
    size_t total = 0, bytes;
    int64_t storage;
    const void *data;
    if (!device->host_alloc) return ST_OK; /* copies are complete when they return */
    for (int fills = 0; fills < 2; fills++) {
        char *to = rank->frame->pinned;
        for (ir_node_t n = 0; n < graph->nodes.n; n++) {
            if (!needs_filling(rank, ir_node(graph, n))) continue;
            TRY(constant_data(rank, ir_node(graph, n), &storage, &data, &bytes));
            if (fills) memcpy(to + total, data, bytes);
            total += bytes;
        }
        if (!fills && total)
            TRY(device->host_alloc(rank->stream, total, (void **)&rank->frame->pinned));
        if (!fills) total = 0;
    }
    return ST_OK;
}

/* ---- steps ---- */

static st_status_t prepare_kernel(exec_rank_t *rank, exec_step_t *step) {
    const ir_graph_t *graph = rank->program->graph;
    const ir_node_info_t *node = ir_node(graph, step->node);
    const plan_step_t *planned = &rank->program->steps[step->node];
    int n_threads = (int)rank->session->plan->n_threads;
    ir_type_t *in_types, *out_types;
    const void **in;
    void **out;
    ARRAY(rank, in_types, node->n_inputs);
    ARRAY(rank, out_types, node->n_outputs);
    ARRAY(rank, in, node->n_inputs);
    ARRAY(rank, out, node->n_outputs);
    for (uint32_t j = 0; j < node->n_inputs; j++) {
        in_types[j] = *ir_value_type(graph, node->inputs[j]);
        in[j] = value_address(rank, node->inputs[j]);
    }
    for (uint32_t k = 0; k < node->n_outputs; k++) {
        out_types[k] = *ir_value_type(graph, node->first_output + k);
        out[k] = value_address(rank, node->first_output + k);
    }
    step->problem = (kern_problem_t){node->op,  node->n_inputs, node->n_outputs, in_types,
                                     out_types, node->attrs,    node->name};
    step->impl = kern_find_on(rank->device->name, node->op, planned->kernel);
    const char *reason = "";
    if (!step->impl)
        return FAIL(ST_UNSUPPORTED,
                    "kernel '%s' for op %s is not in this build: compile the plan again on this "
                    "machine",
                    planned->kernel, ir_op_def(node->op)->name);
    if (step->impl->can_run && !step->impl->can_run(&step->problem, &reason))
        return FAIL(ST_UNSUPPORTED, "kernel '%s' cannot run this: %s", planned->kernel, reason);
    size_t workspace = step->impl->workspace ? step->impl->workspace(&step->problem, n_threads) : 0;
    if (workspace > planned->workspace.bytes)
        return FAIL(
            ST_UNSUPPORTED,
            "kernel '%s' needs %zu bytes of workspace, the plan has %llu: compile the plan again",
            planned->kernel, workspace, (unsigned long long)planned->workspace.bytes);
    step->call = (kern_call_t){
        .problem = &step->problem,
        .in = in,
        .out = out,
        .workspace = planned->workspace.bytes ? exec_address(rank, &planned->workspace) : NULL,
        .stream = rank->stream,
        .team = rank->device->team(rank->stream),
        .workspace_bytes = planned->workspace.bytes,
        .node = rank->frame ? rank->frame->node : step->node,
    };
    if (step->impl->bind) return ST_OK; /* bind_steps */
    return step->impl->prepare
               ? step->impl->prepare(&step->problem, n_threads, &step->call.prepared)
               : ST_OK;
}

static st_status_t add_copy(exec_rank_t *rank, exec_step_t *step, uint32_t room, ir_value_t to,
                            ir_value_t from) {
    size_t bytes = rank->program->places[to].bytes;
    if (value_address(rank, to) == value_address(rank, from) || !bytes) return ST_OK;
    if (!step->to) {
        ARRAY(rank, step->to, room);
        ARRAY(rank, step->from, room);
        ARRAY(rank, step->bytes, room);
    }
    step->to[step->n_copies] = value_address(rank, to);
    step->from[step->n_copies] = value_address(rank, from);
    step->bytes[step->n_copies++] = bytes;
    return ST_OK;
}

static st_status_t prepare_reduce(exec_rank_t *rank, exec_step_t *step) {
    const ir_graph_t *graph = rank->program->graph;
    const ir_node_info_t *node = ir_node(graph, step->node);
    step->n_buffers = node->n_outputs;
    step->dtype = ir_value_type(graph, node->first_output)->dtype;
    ARRAY(rank, step->buffers, node->n_outputs);
    ARRAY(rank, step->sizes, node->n_outputs);
    for (uint32_t k = 0; k < node->n_outputs; k++) {
        ir_value_t out = node->first_output + k;
        if (ir_value_type(graph, out)->dtype != step->dtype)
            return FAIL(ST_INVALID, "one all-reduce sums one element type, not %s and %s",
                        ir_dtype_text(step->dtype),
                        ir_dtype_text(ir_value_type(graph, out)->dtype));
        step->buffers[k] = value_address(rank, out);
        step->sizes[k] = ir_type_elements(ir_value_type(graph, out));
        TRY(add_copy(rank, step, node->n_outputs, out, node->inputs[k]));
    }
    return ST_OK;
}

/* A whole tensor that is cut along `dim`; `parts` has room for the ranks. */
static comm_side_t side_of(const ir_type_t *type, int64_t dim, int64_t granules, int n_ranks,
                           int64_t *parts) {
    comm_side_t side = {.outer = 1, .parts = parts};
    int64_t inner = 1;
    for (int64_t i = 0; i < dim; i++) side.outer *= type->dims[i];
    for (int64_t i = dim + 1; i < type->rank; i++) inner *= type->dims[i];
    for (int r = 0; r < n_ranks; r++) {
        int64_t begin, extent;
        ir_split_range(type->dims[dim], granules, r, n_ranks, &begin, &extent);
        parts[r] = extent * inner;
    }
    return side;
}

/* Where the collective lays out operand j, NULL if its parts are whole. */
static void *stage_of(const exec_rank_t *rank, const exec_step_t *step, uint32_t j) {
    const plan_place_t *workspace = &rank->program->steps[step->node].workspace;
    uint64_t bytes, offset = plan_stage_offset(rank->program->graph, step->node, j, &bytes);
    return workspace->bytes && bytes ? (char *)exec_address(rank, workspace) + offset : NULL;
}

/* Operand j of a gather, or of a sum of which the rank keeps its part. */
static comm_segment_t cut_segment(exec_rank_t *rank, const exec_step_t *step, uint32_t j,
                                  int64_t *parts) {
    const ir_graph_t *graph = rank->program->graph;
    const ir_node_info_t *node = ir_node(graph, step->node);
    const ir_value_t in = node->inputs[j], out = node->first_output + j;
    const comm_side_t whole = side_of(
        ir_value_type(graph, step->scatters ? in : out), ir_node_attr(node, "axis")->ints.v[j],
        ir_node_attr(node, "granules")->ints.v[j], comm_size(step->comm), parts);
    return (comm_segment_t){.in = value_address(rank, in),
                            .out = value_address(rank, out),
                            .outer = whole.outer,
                            .parts = whole.parts,
                            .stage = stage_of(rank, step, j)};
}

static st_status_t prepare_cuts(exec_rank_t *rank, exec_step_t *step) {
    const ir_graph_t *graph = rank->program->graph;
    const ir_node_info_t *node = ir_node(graph, step->node);
    const size_t n_ranks = (size_t)comm_size(step->comm);
    step->scatters = node->op == IR_OP_REDUCE_SCATTER_START;
    step->dtype = ir_value_type(graph, node->inputs[0])->dtype;
    step->n_buffers = node->n_inputs;
    ARRAY(rank, step->sizes, node->n_inputs * n_ranks);
    ARRAY(rank, step->segments, node->n_inputs);
    for (uint32_t j = 0; j < node->n_inputs; j++) {
        const ir_dtype_t dtype = ir_value_type(graph, node->inputs[j])->dtype;
        if (dtype != step->dtype)
            return FAIL(ST_INVALID, "one collective moves one element type, not %s and %s",
                        ir_dtype_text(step->dtype), ir_dtype_text(dtype));
        step->segments[j] = cut_segment(rank, step, j, step->sizes + j * n_ranks);
    }
    return ST_OK;
}

/* The input is cut along the dim that is to be split, the output along the one that was. */
static st_status_t prepare_exchange(exec_rank_t *rank, exec_step_t *step) {
    const ir_graph_t *graph = rank->program->graph;
    const ir_node_info_t *node = ir_node(graph, step->node);
    const ir_type_t *in = ir_value_type(graph, node->inputs[0]);
    const ir_type_t *out = ir_value_type(graph, node->first_output);
    const int64_t axis = ir_attr_int(node, "axis"), to = ir_attr_int(node, "to");
    const int n_ranks = comm_size(step->comm);
    step->dtype = in->dtype;
    ARRAY(rank, step->sizes, 2 * (size_t)n_ranks);
    ARRAY(rank, step->sides, 2);
    ARRAY(rank, step->buffers, 2);
    step->sides[0] = side_of(in, to, ir_attr_int(node, "to_granules"), n_ranks, step->sizes);
    step->sides[1] =
        side_of(out, axis, ir_attr_int(node, "granules"), n_ranks, step->sizes + n_ranks);
    step->buffers[0] = value_address(rank, node->inputs[0]);
    step->buffers[1] = value_address(rank, node->first_output);
    for (uint32_t j = 0; j < 2; j++) step->sides[j].stage = stage_of(rank, step, j);
    return ST_OK;
}

/* Between two ranks. */
static st_status_t prepare_pair(exec_rank_t *rank, exec_step_t *step) {
    const ir_graph_t *graph = rank->program->graph;
    const ir_node_info_t *node = ir_node(graph, step->node);
    const bool sends = node->op == IR_OP_SEND_START;
    const ir_value_t value = sends ? node->inputs[0] : node->first_output;
    step->pair = sends ? EXEC_SENDS : EXEC_RECEIVES;
    step->peer = (int)ir_attr_int(node, "peer");
    step->dtype = ir_value_type(graph, value)->dtype;
    ARRAY(rank, step->buffers, 1);
    ARRAY(rank, step->sizes, 1);
    step->buffers[0] = value_address(rank, value);
    step->sizes[0] = ir_type_elements(ir_value_type(graph, value));
    return ST_OK;
}

/* The communicator of the mesh axis that a start, or the start of a wait, runs over. */
static st_status_t find_comm(const exec_rank_t *rank, exec_step_t *step) {
    const ir_graph_t *graph = rank->program->graph;
    const ir_node_info_t *node = ir_node(graph, step->node);
    if (!(ir_op_def(node->op)->flags & IR_START)) node = ir_value_producer(graph, node->inputs[0]);
    const char *name = ir_node_attr(node, "mesh")->s;
    uint32_t axis = ir_mesh_find(&rank->session->plan->mesh, name);
    if (axis == IR_NONE) return FAIL(ST_INVALID, "the mesh has no axis '%s'", name);
    step->comm = rank->axes[axis];
    return ST_OK;
}

static st_status_t check_stage(const exec_rank_t *rank, const exec_step_t *step) {
    const uint64_t given = rank->program->steps[step->node].workspace.bytes;
    const uint64_t need = plan_stage_bytes(rank->program->graph, step->node);
    if (!comm_on_device(step->comm) || given >= need) return ST_OK;
    return FAIL(ST_UNSUPPORTED,
                "its parts are laid out in %llu bytes, the plan has %llu: compile the plan again",
                (unsigned long long)need, (unsigned long long)given);
}

static st_status_t prepare_step(exec_rank_t *rank, exec_step_t *step) {
    const ir_node_info_t *node = ir_node(rank->program->graph, step->node);
    step->ticket = rank->program->steps[step->node].ticket;
    if (ir_op_def(node->op)->flags & IR_COLLECTIVE) TRY(find_comm(rank, step));
    switch (step->kind) {
        case PLAN_STEP_KERNEL:
            return prepare_kernel(rank, step);
        case PLAN_STEP_COPY:
            return add_copy(rank, step, 1, node->inputs[0], node->inputs[1]);
        case PLAN_STEP_START:
            TRY(check_stage(rank, step));
            if (node->op == IR_OP_ALL_TO_ALL_START) return prepare_exchange(rank, step);
            if (node->op == IR_OP_SEND_START || node->op == IR_OP_RECEIVE_START)
                return prepare_pair(rank, step);
            return ir_start_reads_input(ir_op_def(node->op)) ? prepare_cuts(rank, step)
                                                             : prepare_reduce(rank, step);
        case PLAN_STEP_REGION:
            return exec_region_prepare(rank, step);
        case PLAN_STEP_WAIT:
        case PLAN_STEP_NOTHING:
            break;
    }
    return ST_OK;
}

/* On a device that computes nothing a step is only its time: the first rank to come here simulates
 * all. */
static st_status_t prepare_time(exec_rank_t *rank) {
    exec_session_t *session = rank->session;
    target_t *target = NULL;
    st_status_t status = ST_OK;
    pthread_mutex_lock(&session->mutex);
    if (!session->simulation) {
        status = predict_target(session->plan, &target);
        if (status == ST_OK) status = simulate_plan(session->plan, target, &session->simulation);
        target_destroy(target);
    }
    if (status == ST_OK) {
        const simulate_rank_t *predicted = &session->simulation->ranks[rank->index];
        rank->predicted_us = predicted->step_us;
        rank->predicted_wait_us = predicted->exposed_us;
    }
    pthread_mutex_unlock(&session->mutex);
    return status;
}

/* ---- what takes long before the first step, on several threads ---- */

static st_status_t warm_step(void *context, size_t i) {
    exec_rank_t *rank = context;
    exec_step_t *step = &rank->steps[i];
    if (step->kind != PLAN_STEP_KERNEL || !step->impl || !step->impl->warm) return ST_OK;
    st_status_t status = step->impl->warm(&step->problem, rank->stream, &step->call.prepared);
    return status == ST_OK
               ? ST_OK
               : st_error_context(status, "%s", ir_node_label(rank->program->graph, step->node));
}

static st_status_t warm_steps(exec_rank_t *rank) {
    bool any = false;
    for (uint32_t i = 0; i < rank->n_steps; i++)
        any |= rank->steps[i].impl && rank->steps[i].impl->warm;
    return any ? st_parallel(rank->n_steps, warm_step, rank) : ST_OK;
}

/* Kernels that want their addresses. */
static st_status_t bind_steps(exec_rank_t *rank) {
    TRY(warm_steps(rank));
    for (uint32_t i = 0; i < rank->n_steps; i++) {
        exec_step_t *step = &rank->steps[i];
        if (step->kind != PLAN_STEP_KERNEL || !step->impl || !step->impl->bind) continue;
        st_status_t status = step->impl->bind(&step->call);
        if (status != ST_OK)
            return st_error_context(status, "%s", ir_node_label(rank->program->graph, step->node));
    }
    return ST_OK;
}

st_status_t exec_prepare_steps(exec_rank_t *rank) {
    const plan_program_t *program = rank->program;
    ARRAY(rank, rank->steps, program->graph->nodes.n);
    for (ir_node_t n = 0; n < program->graph->nodes.n; n++) {
        if (program->steps[n].kind == PLAN_STEP_NOTHING) continue;
        exec_step_t *step = &rank->steps[rank->n_steps++];
        step->kind = program->steps[n].kind;
        step->node = n;
        st_status_t status = prepare_step(rank, step);
        if (status != ST_OK)
            return st_error_context(status, "%s", ir_node_label(program->graph, n));
    }
    return bind_steps(rank);
}

/* ---- poison ---- */

static void touch(const plan_program_t *program, int64_t *last, ir_value_t v, int64_t n) {
    if (last[program->places[v].storage] < n) last[program->places[v].storage] = n;
}

/* For each storage the node after which nothing of it is read any more; -1: it is never touched.
 * Inputs are written before the first node, and one that no one reads shares its bytes with others
 * from then on: only their readers count. */
static void find_last_touch(const plan_program_t *program, int64_t *last) {
    const ir_graph_t *graph = program->graph;
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(graph, n);
        for (uint32_t j = 0; j < node->n_inputs; j++) touch(program, last, node->inputs[j], n);
        for (uint32_t k = 0; k < node->n_outputs && node->op != IR_OP_INPUT; k++)
            touch(program, last, node->first_output + k, n);
        if (ir_op_is_lasting(node->op)) touch(program, last, node->first_output, INT64_MAX);
        if (program->steps[n].kind != PLAN_STEP_WAIT) continue;
        const ir_node_info_t *start = ir_value_producer(graph, node->inputs[0]);
        for (uint32_t j = 0; ir_start_reads_input(ir_op_def(start->op)) && j < start->n_inputs; j++)
            touch(program, last, start->inputs[j], n); /* until here */
    }
    for (size_t o = 0; o < graph->outputs.n; o++)
        touch(program, last, graph->outputs.data[o].value, INT64_MAX);
}

/* Gives each step the places that die with it, or with a node after it that does nothing. */
static st_status_t prepare_poison(exec_rank_t *rank) {
    const plan_program_t *program = rank->program;
    const ir_graph_t *graph = program->graph;
    int64_t *last; /* [storages] */
    ir_value_t *of_storage;
    uint32_t n_storages = 0;
    for (ir_value_t v = 0; v < graph->values.n; v++)
        if (program->places[v].storage >= n_storages) n_storages = program->places[v].storage + 1;
    ARRAY(rank, last, n_storages);
    ARRAY(rank, of_storage, n_storages);
    for (uint32_t s = 0; s < n_storages; s++) {
        of_storage[s] = IR_NONE;
        last[s] = -1;
    }
    find_last_touch(program, last);
    for (ir_value_t v = 0; v < graph->values.n; v++)
        if (program->places[v].region == PLAN_WORK || program->places[v].region == PLAN_COMM)
            of_storage[program->places[v].storage] = v;
    for (uint32_t i = 0; i < rank->n_steps; i++) {
        exec_step_t *step = &rank->steps[i];
        ir_node_t next =
            i + 1 < rank->n_steps ? rank->steps[i + 1].node : (ir_node_t)graph->nodes.n;
        const plan_place_t *workspace = &program->steps[step->node].workspace;
        uint32_t n = workspace->bytes ? 1 : 0;
        for (uint32_t s = 0; s < n_storages; s++)
            n += of_storage[s] != IR_NONE && last[s] >= step->node && last[s] < next;
        ARRAY(rank, step->dead, n);
        if (workspace->bytes) step->dead[step->n_dead++] = *workspace;
        for (uint32_t s = 0; s < n_storages; s++)
            if (of_storage[s] != IR_NONE && last[s] >= step->node && last[s] < next)
                step->dead[step->n_dead++] = program->places[of_storage[s]];
    }
    return ST_OK;
}

/* ---- inputs and outputs ---- */

static st_status_t prepare_ahead(exec_rank_t *rank) {
    const plan_t *plan = rank->session->plan;
    const ir_graph_t *graph = rank->program->graph;
    char *at = rank->regions[PLAN_FEEDS];
    ARRAY(rank, rank->ahead, plan->n_inputs);
    for (ir_node_t n = 0; n < graph->nodes.n; n++) { /* as plan_feeds_bytes counts */
        const ir_node_info_t *node = ir_node(graph, n);
        if (node->op != IR_OP_INPUT) continue;
        for (uint32_t i = 0; i < plan->n_inputs; i++) {
            if (strcmp(plan->inputs[i].name, node->name) != 0) continue;
            rank->ahead[i] = rank->inputs[i];
            rank->ahead[i].local = at;
        }
        if (at)
            at += st_size_align(rank->program->places[node->first_output].bytes, PLAN_ALIGNMENT);
    }
    return ST_OK;
}

static st_status_t prepare_ports(exec_rank_t *rank) {
    const plan_t *plan = rank->session->plan;
    const ir_graph_t *graph = rank->program->graph;
    ARRAY(rank, rank->inputs, plan->n_inputs);
    ARRAY(rank, rank->outputs, plan->n_outputs);
    for (uint32_t i = 0; i < plan->n_inputs; i++) {
        ir_node_t node = ir_graph_find(graph, plan->inputs[i].name);
        void *local =
            node == IR_NONE ? NULL : value_address(rank, ir_node(graph, node)->first_output);
        rank->inputs[i] = exec_part_make(plan, &plan->inputs[i], rank->index, local);
    }
    if (plan_feeds_ahead(plan)) TRY(prepare_ahead(rank));
    for (uint32_t o = 0; o < plan->n_outputs; o++) {
        ir_value_t v = ir_graph_find_output(graph, plan->outputs[o].name);
        rank->outputs[o] = exec_part_make(plan, &plan->outputs[o], rank->index,
                                          v == IR_NONE ? NULL : value_address(rank, v));
        if (rank->session->beside) rank->outputs[o].delivers = true; /* to its own process */
    }
    return ST_OK;
}

/* ---- entry ---- */

/* Seconds since *begin, which becomes now. */
static double take_seconds(double *begin) {
    double last = *begin;
    *begin = exec_now_us();
    return (*begin - last) * 1e-6;
}

/* The ranks along each axis of the mesh. */
static st_status_t open_axes(exec_rank_t *rank) {
    const ir_mesh_t *mesh = &rank->session->plan->mesh;
    const uint32_t n_ranks = rank->session->plan->n_ranks;
    for (uint32_t a = 0; a < mesh->n; a++) {
        const uint32_t size = mesh->axes[a].size;
        int *ranks;
        rank->axes[a] = rank->comm;
        if (size == n_ranks) continue;
        ARRAY(rank, ranks, size);
        for (uint32_t c = 0; c < size; c++) ranks[c] = (int)ir_mesh_peer(mesh, rank->index, a, c);
        TRY(comm_group_create(rank->comm, (int)size, ranks, &rank->axes[a]));
    }
    return ST_OK;
}

/* What the device has less afterwards: blocks are rounded up there. */
static st_status_t count_regions(exec_rank_t *rank) {
    size_t before = 0, after = 0, total;
    if (rank->device->memory) TRY(rank->device->memory(rank->stream, &before, &total));
    TRY(allocate_regions(rank));
    if (rank->device->memory) TRY(rank->device->memory(rank->stream, &after, &total));
    rank->taken_bytes = before > after ? before - after : 0;
    return ST_OK;
}

st_status_t exec_rank_prepare(exec_rank_t *rank) {
    const exec_session_t *session = rank->session;
    st_status_t status = dev_find(session->plan->device, &rank->device);
    if (status != ST_OK)
        return st_error_context(status, "the plan is for target '%s'", plan_target(session->plan));
    double begin = exec_now_us();
    TRY(exec_open_device(rank));
    TRY(open_axes(rank));
    rank->open_s = take_seconds(&begin);
    TRY(count_regions(rank));
    TRY(exec_fill_constants(rank));
    rank->memory_s = take_seconds(&begin);
    TRY(rank->device->computes ? exec_prepare_steps(rank) : prepare_time(rank));
    TRY(exec_open_pairs(rank));
    if (rank->device->computes) TRY(exec_shadows_prepare(rank));
    TRY(prepare_ports(rank));
    rank->prepare_s = take_seconds(&begin);
    if (session->options.poison && rank->device->capture)
        return FAIL(ST_UNSUPPORTED, "STATOR_POISON works on the cpu only, not on %s",
                    rank->device->name);
    if (session->options.poison) TRY(prepare_poison(rank));
    if (session->options.profile && rank->index == session->first && rank->n_steps)
        TRY(exec_profile_prepare(rank));
    return rank->device->synchronize(rank->stream);
}

void exec_release_steps(exec_rank_t *rank) {
    for (uint32_t i = 0; i < rank->n_steps; i++) {
        exec_step_t *step = &rank->steps[i];
        if (step->impl && step->impl->release && step->call.prepared)
            step->impl->release(step->call.prepared);
        exec_region_release(step);
    }
    rank->n_steps = 0;
}

void exec_rank_release(exec_rank_t *rank) {
    exec_shadows_release(rank);
    exec_release_steps(rank);
    exec_measure_release(rank);
    if (rank->graph) rank->device->graph_destroy(rank->graph);
    rank->graph = NULL;
    for (uint32_t a = 0; a < IR_MAX_AXES;
         a++) { /* before the memory that they move, and the stream */
        if (rank->axes[a] != rank->comm) comm_destroy(rank->axes[a]);
        rank->axes[a] = NULL;
    }
    comm_destroy(rank->words);
    comm_destroy(rank->comm);
    rank->words = rank->comm = NULL;
    if (rank->stream) {
        for (int r = PLAN_STATE; r < PLAN_REGION_END; r++)
            if (r != PLAN_STATE || rank->owns_state)
                (rank->device->free)(rank->stream, rank->regions[r]);
        rank->device->close(rank->stream);
    }
    rank->stream = NULL;
    st_arena_clear(&rank->arena);
}
