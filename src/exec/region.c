/* Control flow: repeat and cond run their bodies' programs (compile/plan_body.h) in a loop.
 *
 *   before     carries are copied from the operands to the node's results, where they then live;
 *              the bodies' constants are put into the workspace, which other nodes use meanwhile
 *   iteration  pointers into scanned operands move on; what is passed on is copied to the stacks;
 *              the body's steps run; what was made for the stacks is copied there
 *
 * A body's program stands in a frame: a rank of its own that shares stream and device, whose state
 * region is virtual. Its kernels hold addresses there until they are bound. Nothing here allocates. */
#include <stdio.h>

#include "base/memory.h"
#include "compile/plan_body.h"
#include "exec/internal.h"
#include "ir/body.h"

/* An address that a step holds: of input `input` of the body, `slot` is where it goes. */
typedef struct binding {
    uint32_t input;
    const void **slot;
} binding_t;

/* A result's memory: of the whole (returned) or of its slice i (stacked). */
typedef struct delivery {
    char *to;
    size_t bytes, stride;
    const void *from;       /* NULL: what input `input` is bound to */
    uint32_t input, output; /* of the body */
    bool passed;            /* copied before the iteration */
} delivery_t;

typedef struct frame {
    exec_rank_t rank;
    uint32_t n_bindings, n_deliveries;
    binding_t *bindings; /* those of slices come last, from n_fixed on */
    uint32_t n_fixed;
    delivery_t *deliveries;
    uint64_t *offsets; /* [inputs] in the virtual state region */
} frame_t;

typedef struct exec_region {
    exec_rank_t *rank;
    ir_region_info_t info;
    const unsigned char *condition;
    uint32_t n_inputs; /* of a body */
    char **bound;      /* [inputs]: a slice's is that of slice 0 */
    size_t *stride;    /* [inputs]: of slices, else 0 */
    uint32_t n_frames;
    frame_t frames[2];
    uint32_t n_carries; /* that begin elsewhere than where they live */
    void **to;
    const void **from;
    size_t *bytes;
} exec_region_t;

#define ARRAY(arena_, out, n)                                              \
    do {                                                                   \
        (out) = st_arena_array((arena_), (n), sizeof *(out));              \
        if (!(out)) return st_no_memory((n) * sizeof *(out), "a session"); \
    } while (0)

static bool is_slice(const exec_region_t *region, uint32_t j) {
    return j >= region->info.carried && j < region->info.carried + region->info.scanned;
}

/* ---- preparing ---- */

/* Where inputs lie, and what the loop copies first. */
static st_status_t bind_operands(exec_region_t *region, const exec_step_t *step) {
    exec_rank_t *rank = region->rank;
    const plan_program_t *program = rank->program;
    const ir_node_info_t *node = ir_node(program->graph, step->node);
    uint32_t n = region->n_inputs;
    ARRAY(&rank->arena, region->bound, n);
    ARRAY(&rank->arena, region->stride, n);
    ARRAY(&rank->arena, region->to, n);
    ARRAY(&rank->arena, region->from, n);
    ARRAY(&rank->arena, region->bytes, n);
    for (uint32_t j = 0; j < n; j++) {
        ir_value_t v = node->inputs[region->info.first + j];
        char *operand = exec_address(rank, &program->places[v]);
        size_t bytes = program->places[v].bytes;
        region->bound[j] = operand;
        if (is_slice(region, j) && region->info.trip)
            region->stride[j] = bytes / (size_t)region->info.trip;
        if (j >= region->info.carried) continue;
        region->bound[j] = exec_address(rank, &program->places[node->first_output + j]);
        if (!bytes) continue;
        region->to[region->n_carries] = region->bound[j];
        region->from[region->n_carries] = operand;
        region->bytes[region->n_carries++] = bytes;
    }
    return ST_OK;
}

/* Input whose virtual place this is; IR_NONE for memory of the frame's own. */
static uint32_t input_at(const exec_region_t *region, const frame_t *frame,
                         const plan_place_t *place) {
    if (place->region != PLAN_STATE) return IR_NONE;
    uint32_t j = 0;
    while (j < region->n_inputs && frame->offsets[j] != place->offset) j++;
    return j < region->n_inputs ? j : IR_NONE;
}

static void bind(exec_region_t *region, frame_t *frame, ir_value_t v, const void **slot,
                 bool slices) {
    uint32_t j = input_at(region, frame, &frame->rank.program->places[v]);
    if (j == IR_NONE || is_slice(region, j) != slices) return;
    frame->bindings[frame->n_bindings++] = (binding_t){j, slot};
}

/* What a region among the steps has taken from the frame; it binds its own frames when it runs. */
static void bind_region(exec_region_t *region, frame_t *frame, exec_step_t *step, bool slices) {
    exec_region_t *inner = step->region;
    const ir_node_info_t *node = ir_node(frame->rank.program->graph, step->node);
    const plan_program_t *program = frame->rank.program;
    for (uint32_t j = 0, c = 0; j < inner->n_inputs; j++) {
        ir_value_t operand = node->inputs[inner->info.first + j], result = node->first_output + j;
        bool carry = j < inner->info.carried;
        bind(region, frame, carry ? result : operand, (const void **)(uintptr_t)&inner->bound[j],
             slices);
        if (!carry || !program->places[operand].bytes) continue;
        bind(region, frame, operand, &inner->from[c], slices);
        bind(region, frame, result, (const void **)(uintptr_t)&inner->to[c++], slices);
    }
    if (inner->condition)
        bind(region, frame, node->inputs[0], (const void **)(uintptr_t)&inner->condition, slices);
    for (uint32_t f = 0; f < inner->n_frames; f++)
        for (uint32_t d = 0; d < inner->frames[f].n_deliveries; d++) {
            delivery_t *row = &inner->frames[f].deliveries[d];
            bind(region, frame, node->first_output + row->output,
                 (const void **)(uintptr_t)&row->to, slices);
        }
}

/* The steps' addresses of inputs: slices only, or all others. */
static void bind_steps(exec_region_t *region, frame_t *frame, bool slices) {
    const ir_graph_t *graph = frame->rank.program->graph;
    for (uint32_t i = 0; i < frame->rank.n_steps; i++) {
        exec_step_t *step = &frame->rank.steps[i];
        const ir_node_info_t *node = ir_node(graph, step->node);
        if (step->kind == PLAN_STEP_KERNEL) {
            for (uint32_t j = 0; j < node->n_inputs; j++)
                bind(region, frame, node->inputs[j], (const void **)(uintptr_t)&step->call.in[j],
                     slices);
            for (uint32_t k = 0; k < node->n_outputs; k++)
                bind(region, frame, node->first_output + k,
                     (const void **)(uintptr_t)&step->call.out[k], slices);
        } else if (step->kind == PLAN_STEP_COPY && step->n_copies) {
            bind(region, frame, node->inputs[0], (const void **)(uintptr_t)&step->to[0], slices);
            bind(region, frame, node->inputs[1], &step->from[0], slices);
        } else if (step->kind == PLAN_STEP_REGION) {
            bind_region(region, frame, step, slices);
        }
    }
}

/* More than bind_steps finds. */
static size_t count_addresses(const ir_graph_t *graph) {
    size_t n = 0;
    for (size_t i = 0; i < graph->nodes.n; i++)
        n += graph->nodes.data[i].n_inputs + graph->nodes.data[i].n_outputs;
    return 3 * n;
}

/* What each result beside the carries gets from an iteration. */
static st_status_t find_deliveries(exec_region_t *region, frame_t *frame, const ir_graph_t *body,
                                   const exec_step_t *step) {
    exec_rank_t *rank = region->rank;
    const plan_program_t *program = frame->rank.program;
    const ir_node_info_t *node = ir_node(rank->program->graph, step->node);
    ARRAY(&frame->rank.arena, frame->deliveries, body->outputs.n);
    for (uint32_t k = region->info.carried; k < body->outputs.n; k++) {
        delivery_t *made = &frame->deliveries[frame->n_deliveries];
        const plan_place_t *result = &rank->program->places[node->first_output + k];
        size_t bytes = ir_type_bytes(ir_body_output_type(body, k));
        if (!result->bytes || !bytes) continue;
        char name[24];
        snprintf(name, sizeof name, "%u", k);
        ir_value_t v = ir_graph_find_output(program->graph, name);
        *made = (delivery_t){.to = exec_address(rank, result),
                             .bytes = bytes,
                             .output = k,
                             .stride = result->bytes == bytes ? 0 : bytes};
        made->passed = v == IR_NONE;
        made->input =
            v == IR_NONE ? plan_body_passed(body, k) : input_at(region, frame, &program->places[v]);
        if (made->input == IR_NONE) made->from = exec_address(&frame->rank, &program->places[v]);
        frame->n_deliveries++;
    }
    return ST_OK;
}

static st_status_t prepare_frame(exec_region_t *region, frame_t *frame, const ir_graph_t *body,
                                 const plan_program_t *program, const exec_step_t *step) {
    exec_rank_t *rank = region->rank;
    const plan_step_t *planned = &rank->program->steps[step->node];
    frame->rank = (exec_rank_t){.session = rank->session,
                                .index = rank->index,
                                .program = program,
                                .device = rank->device,
                                .stream = rank->stream};
    region->n_frames++;
    char *work = planned->workspace.bytes ? exec_address(rank, &planned->workspace) : NULL;
    frame->rank.regions[PLAN_WORK] = work;
    /* Never read: what lies here is bound. Places are aligned, so none of these addresses is that of
     * real memory, and distinct places have distinct ones. */
    frame->rank.regions[PLAN_STATE] = (void *)(uintptr_t)1;
    ARRAY(&frame->rank.arena, frame->offsets, region->n_inputs);
    for (uint32_t j = 0; j < region->n_inputs; j++) {
        char name[24];
        snprintf(name, sizeof name, "%u", j);
        const plan_place_t *place = plan_state_place(program, name);
        frame->offsets[j] = place && place->region == PLAN_STATE ? place->offset : UINT64_MAX;
    }
    TRY(exec_prepare_steps(&frame->rank));
    ARRAY(&frame->rank.arena, frame->bindings, count_addresses(program->graph));
    bind_steps(region, frame, false);
    frame->n_fixed = frame->n_bindings;
    bind_steps(region, frame, true);
    return find_deliveries(region, frame, body, step);
}

st_status_t exec_region_prepare(exec_rank_t *rank, exec_step_t *step) {
    const ir_node_info_t *node = ir_node(rank->program->graph, step->node);
    const plan_step_t *planned = &rank->program->steps[step->node];
    step->problem.op = node->op;
    if (rank->device->capture) /* its kernels hold the addresses they were bound to */
        return FAIL(ST_UNSUPPORTED,
                    "op %s does not run on %s yet: bodies' addresses change from turn to turn; "
                    "unroll it, or run on the cpu",
                    ir_op_def(node->op)->name, rank->device->name);
    exec_region_t *region;
    ARRAY(&rank->arena, region, 1);
    step->region = region;
    region->rank = rank;
    region->info = ir_region_info(node);
    region->n_inputs = node->n_inputs - region->info.first;
    if (region->info.n_bodies > 1)
        region->condition = exec_address(rank, &rank->program->places[node->inputs[0]]);
    TRY(bind_operands(region, step));
    for (uint32_t i = 0; i < planned->n_bodies; i++)
        TRY(prepare_frame(region, &region->frames[i], region->info.bodies[i], &planned->bodies[i],
                          step));
    return ST_OK;
}

void exec_region_release(exec_step_t *step) {
    exec_region_t *region = step->region;
    for (uint32_t i = 0; region && i < region->n_frames; i++) {
        exec_release_steps(&region->frames[i].rank);
        st_arena_clear(&region->frames[i].rank.arena);
    }
    step->region = NULL;
}

/* ---- running ---- */

static const void *bound_at(const exec_region_t *region, uint32_t input, int64_t i) {
    const char *base = region->bound[input];
    return base ? base + region->stride[input] * (size_t)i : NULL;
}

static st_status_t deliver(const exec_region_t *region, const frame_t *frame, int64_t i,
                           bool passed) {
    const exec_rank_t *rank = region->rank;
    for (uint32_t d = 0; d < frame->n_deliveries; d++) {
        const delivery_t *row = &frame->deliveries[d];
        if (row->passed != passed) continue;
        const void *from = row->from ? row->from : bound_at(region, row->input, i);
        TRY(rank->device->copy(rank->stream, row->to + row->stride * (size_t)i, from, row->bytes));
    }
    return ST_OK;
}

static st_status_t run_iteration(exec_region_t *region, frame_t *frame, int64_t i) {
    exec_rank_t *rank = &frame->rank;
    for (uint32_t b = frame->n_fixed; b < frame->n_bindings; b++)
        *frame->bindings[b].slot = bound_at(region, frame->bindings[b].input, i);
    TRY(deliver(region, frame, i, true));
    for (uint32_t s = 0; s < rank->n_steps; s++) {
        st_status_t status = exec_run_kind(rank, &rank->steps[s]);
        if (status != ST_OK)
            return st_error_context(status, "iteration %lld: %s", (long long)i,
                                    ir_node_label(rank->program->graph, rank->steps[s].node));
    }
    return deliver(region, frame, i, false);
}

st_status_t exec_region_run(exec_step_t *step) {
    exec_region_t *region = step->region;
    const exec_rank_t *rank = region->rank;
    const ir_region_info_t *info = &region->info;
    frame_t *frame = &region->frames[0];
    if (region->condition) { /* the chosen body's host decides: the device has to be done */
        TRY(rank->device->synchronize(rank->stream));
        frame = &region->frames[*region->condition ? 0 : 1];
    }
    for (uint32_t b = 0; b < frame->n_fixed; b++) /* anew: an outer loop may have moved them */
        *frame->bindings[b].slot = region->bound[frame->bindings[b].input];
    for (uint32_t c = 0; c < region->n_carries; c++)
        TRY(rank->device->copy(rank->stream, region->to[c], region->from[c], region->bytes[c]));
    TRY(exec_fill_constants(&frame->rank));
    for (int64_t n = 0; n < info->trip; n++)
        TRY(run_iteration(region, frame, info->reverse ? info->trip - 1 - n : n));
    return ST_OK;
}
