/* Control flow: repeat and cond run their bodies' programs (compile/plan_body.h).
 *
 *   before   carries are copied from the operands to the node's results, where they then live; the
 *            bodies' constants are put into the workspace, which other nodes use meanwhile
 *   turn     slices of scanned operands are copied to places of their own; what is passed on is
 *            copied to the stacks; the body's steps run; what was made for the stacks is copied
 *            there
 *
 * A body's program stands in a frame: a rank of its own that shares stream and device, whose state
 * region is the operands, results and slices around it. Every address that a kernel holds stays,
 * and a turn's number is in the device's memory, so that a loop of any length is one node of a
 * recorded step (device.h: repeat). Nothing here allocates once it is prepared. */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "compile/plan_body.h"
#include "exec/internal.h"
#include "ir/body.h"

/* From or to a stack: a stride of 0 is memory that does not move with the turns. */
typedef struct turn_copy {
    char *to;
    const char *from;
    size_t bytes, to_stride, from_stride;
} turn_copy_t;

typedef struct turn_body {
    exec_rank_t rank;
    exec_frame_t frame;
    uint32_t n_before, n_after;
    turn_copy_t *before, *after;
} turn_body_t;

typedef struct exec_region {
    exec_rank_t *rank;
    ir_region_info_t info;
    const unsigned char *condition;
    int64_t *index;
    uint32_t n_carries; /* that begin elsewhere than where they live */
    turn_copy_t *carries;
    uint32_t n_bodies;
    turn_body_t bodies[IR_MAX_BODIES];
} exec_region_t;

#define ARRAY(arena_, out, n)                                              \
    do {                                                                   \
        (out) = st_arena_array((arena_), (n), sizeof *(out));              \
        if (!(out)) return st_no_memory((n) * sizeof *(out), "a session"); \
    } while (0)

/* ---- preparing ---- */

/* Where input j of the bodies lies during a turn. */
static char *address_of_input(const exec_region_t *region, const exec_step_t *step, uint32_t j) {
    const exec_rank_t *rank = region->rank;
    const plan_program_t *program = rank->program;
    const ir_node_info_t *node = ir_node(program->graph, step->node);
    if (j < region->info.carried)
        return exec_address(rank, &program->places[node->first_output + j]);
    if (j < region->info.carried + region->info.scanned)
        return (char *)region->index + plan_turn_offset(&region->info, j);
    return exec_address(rank, &program->places[node->inputs[region->info.first + j]]);
}

static st_status_t find_carries(exec_region_t *region, const exec_step_t *step) {
    exec_rank_t *rank = region->rank;
    const plan_program_t *program = rank->program;
    const ir_node_info_t *node = ir_node(program->graph, step->node);
    ARRAY(&rank->arena, region->carries, region->info.carried);
    for (uint32_t j = 0; j < region->info.carried; j++) {
        const plan_place_t *from = &program->places[node->inputs[region->info.first + j]];
        char *to = address_of_input(region, step, j);
        if (from->bytes && exec_address(rank, from) != to)
            region->carries[region->n_carries++] =
                (turn_copy_t){to, exec_address(rank, from), from->bytes, 0, 0};
    }
    return ST_OK;
}

/* Slices to where the body's kernels find them. */
static void find_slices(exec_region_t *region, turn_body_t *body, const exec_step_t *step) {
    const exec_rank_t *rank = region->rank;
    const ir_node_info_t *node = ir_node(rank->program->graph, step->node);
    for (uint32_t s = 0; s < region->info.scanned && region->info.trip; s++) {
        const uint32_t j = region->info.carried + s;
        const plan_place_t *whole = &rank->program->places[node->inputs[region->info.first + j]];
        const size_t bytes = whole->bytes / (size_t)region->info.trip;
        if (bytes)
            body->before[body->n_before++] =
                (turn_copy_t){body->frame.inputs[j], exec_address(rank, whole), bytes, 0, bytes};
    }
}

/* What each result beside the carries gets from a turn: what is passed on before its steps, which
 * may write there; what they make, after them. */
static void find_deliveries(exec_region_t *region, turn_body_t *body, const ir_graph_t *graph,
                            const exec_step_t *step) {
    const exec_rank_t *rank = region->rank;
    const plan_program_t *program = body->rank.program;
    const ir_node_info_t *node = ir_node(rank->program->graph, step->node);
    for (uint32_t k = region->info.carried; k < graph->outputs.n; k++) {
        const plan_place_t *result = &rank->program->places[node->first_output + k];
        const size_t bytes = ir_type_bytes(ir_body_output_type(graph, k));
        if (!result->bytes || !bytes) continue;
        char name[24];
        snprintf(name, sizeof name, "%u", k);
        ir_value_t v = ir_graph_find_output(program->graph, name);
        turn_copy_t made = {.to = exec_address(rank, result),
                            .bytes = bytes,
                            .to_stride = result->bytes == bytes ? 0 : bytes};
        if (v == IR_NONE) {
            made.from = body->frame.inputs[plan_body_passed(graph, k)];
            body->before[body->n_before++] = made;
        } else {
            made.from = exec_address(&body->rank, &program->places[v]);
            body->after[body->n_after++] = made;
        }
    }
}

static st_status_t make_frame(exec_region_t *region, turn_body_t *body, const exec_step_t *step) {
    exec_rank_t *rank = region->rank;
    exec_frame_t *frame = &body->frame;
    frame->n = region->info.n_inputs;
    frame->node = rank->frame ? rank->frame->node : step->node;
    ARRAY(&rank->arena, frame->offsets, frame->n);
    ARRAY(&rank->arena, frame->inputs, frame->n);
    for (uint32_t j = 0; j < frame->n; j++) {
        char name[24];
        snprintf(name, sizeof name, "%u", j);
        const plan_place_t *place = plan_state_place(body->rank.program, name);
        frame->offsets[j] = place && place->region == PLAN_STATE ? place->offset : UINT64_MAX;
        frame->inputs[j] = address_of_input(region, step, j);
    }
    body->rank.frame = frame;
    return ST_OK;
}

static st_status_t prepare_body(exec_region_t *region, turn_body_t *body, const ir_graph_t *graph,
                                const plan_program_t *program, const exec_step_t *step) {
    exec_rank_t *rank = region->rank;
    const plan_place_t *workspace = &rank->program->steps[step->node].workspace;
    body->rank = (exec_rank_t){.session = rank->session,
                               .index = rank->index,
                               .program = program,
                               .device = rank->device,
                               .stream = rank->stream};
    region->n_bodies++;
    body->rank.regions[PLAN_WORK] = exec_address(rank, workspace);
    TRY(make_frame(region, body, step));
    TRY(exec_pin_constants(&body->rank));
    TRY(exec_prepare_steps(&body->rank));
    ARRAY(&rank->arena, body->before, region->info.scanned + graph->outputs.n);
    ARRAY(&rank->arena, body->after, graph->outputs.n);
    find_slices(region, body, step);
    find_deliveries(region, body, graph, step);
    return ST_OK;
}

st_status_t exec_region_prepare(exec_rank_t *rank, exec_step_t *step) {
    const ir_node_info_t *node = ir_node(rank->program->graph, step->node);
    const plan_step_t *planned = &rank->program->steps[step->node];
    exec_region_t *region;
    ARRAY(&rank->arena, region, 1);
    step->region = region;
    region->rank = rank;
    region->info = ir_region_info(node);
    const size_t bytes = plan_turn_bytes(&region->info);
    if (planned->workspace.bytes < bytes)
        return FAIL(ST_UNSUPPORTED,
                    "its turns need %zu bytes beside its bodies' work, the plan has %llu in all: "
                    "compile the plan again",
                    bytes, (unsigned long long)planned->workspace.bytes);
    region->index = (int64_t *)((char *)exec_address(rank, &planned->workspace) +
                                (planned->workspace.bytes - bytes));
    step->problem.op = node->op;
    if (region->info.n_bodies > 1)
        region->condition = exec_address(rank, &rank->program->places[node->inputs[0]]);
    TRY(find_carries(region, step));
    for (uint32_t i = 0; i < planned->n_bodies; i++)
        TRY(prepare_body(region, &region->bodies[i], region->info.bodies[i], &planned->bodies[i],
                         step));
    return ST_OK;
}

void exec_region_release(exec_step_t *step) {
    exec_region_t *region = step->region;
    for (uint32_t i = 0; region && i < region->n_bodies; i++) {
        exec_rank_t *rank = &region->bodies[i].rank;
        exec_release_steps(rank);
        if (region->bodies[i].frame.pinned)
            rank->device->host_free(rank->stream, region->bodies[i].frame.pinned);
        st_arena_clear(&rank->arena);
    }
    step->region = NULL;
}

st_status_t exec_region_tune(const exec_step_t *step) {
    for (uint32_t i = 0; step->region && i < step->region->n_bodies; i++)
        TRY(exec_tune(&step->region->bodies[i].rank));
    return ST_OK;
}

/* ---- running ---- */

static st_status_t run_copies(const exec_region_t *region, const turn_copy_t *copies, uint32_t n) {
    const exec_rank_t *rank = region->rank;
    for (uint32_t i = 0; i < n; i++) {
        const turn_copy_t *c = &copies[i];
        if (c->to_stride || c->from_stride)
            TRY(rank->device->copy_turn(rank->stream, c->to, c->to_stride, c->from, c->from_stride,
                                        c->bytes, region->index));
        else
            TRY(rank->device->copy(rank->stream, c->to, c->from, c->bytes));
    }
    return ST_OK;
}

static st_status_t run_body(void *context, int which) {
    exec_region_t *region = context;
    turn_body_t *body = &region->bodies[which];
    exec_rank_t *rank = &body->rank;
    if (region->condition) TRY(exec_fill_constants(rank));
    TRY(run_copies(region, body->before, body->n_before));
    for (uint32_t s = 0; s < rank->n_steps; s++) {
        st_status_t status = exec_run_kind(rank, &rank->steps[s]);
        if (status != ST_OK)
            return st_error_context(status, "body %d: %s", which,
                                    ir_node_label(rank->program->graph, rank->steps[s].node));
    }
    return run_copies(region, body->after, body->n_after);
}

st_status_t exec_region_run(exec_step_t *step) {
    exec_region_t *region = step->region;
    const exec_rank_t *rank = region->rank;
    const dev_turns_t count = {region->info.trip, region->info.reverse, region->index};
    TRY(run_copies(region, region->carries, region->n_carries));
    if (region->condition)
        return rank->device->choose(rank->stream, region->condition, run_body, region);
    TRY(exec_fill_constants(&region->bodies[0].rank));
    return rank->device->repeat(rank->stream, &count, run_body, region);
}
