/* Places: storages get offsets in the three regions.
 *
 *   state   by name, one after the other; or as another plan has them, so that sessions can share
 *           it
 *   work    packed by lifetime, workspaces included: a kernel's for its node, a collective's until
 *           its wait
 *   comm    packed by lifetime
 *
 * Problem: every byte of a step is placed before it runs; what lives at the same time must not
 * overlap, and the regions should be no larger than what lives at the fullest moment.
 * In:  ordered programs with kernels and the bytes of their workspaces.
 * Out: each value has a region, an offset that is a multiple of PLAN_ALIGNMENT, and its bytes; each
 *      workspace likewise; updates that happen in place have no step, the others copy.
 * Algorithm: values that share memory (views, updates in place, what a kernel writes over its
 * operand) are one storage with one lifetime, alias by alias to the end (schedule/storage.h). A
 * collective's storages live from its start to its wait. Work and comm are packed as intervals
 * (schedule/pack.h): the best of several orders and fits, beside the bound of live bytes, which the
 * plan tells. The prover (plan_check.c) shares no code with this.
 * Complexity: O(n log n) but for packing (pack.h).
 * Source: the interval view of packing and its heuristics, see schedule/pack.h. */
#include "compile/memory.h"

#include <stdlib.h>
#include <string.h>

#include "compile/plan_stage.h"
#include "schedule/pack.h"
#include "schedule/storage.h"

/* ---- state ---- */

typedef struct state_row {
    const char *name;
    uint32_t storage;
} state_row_t;

static int by_name(const void *a, const void *b) {
    return strcmp(((const state_row_t *)a)->name, ((const state_row_t *)b)->name);
}

/* Type of the state `name`, which the graph has. */
static const ir_type_t *state_type(const ir_graph_t *graph, const char *name) {
    return ir_value_type(graph, ir_node(graph, ir_graph_find(graph, name))->first_output);
}

/* State `name` of the graph lies where the model has it. */
static st_status_t place_like(const plan_program_t *model, const ir_graph_t *graph,
                              const char *name, const sched_storage_t *storage, plan_place_t *out) {
    const ir_graph_t *theirs = model->graph;
    const plan_place_t *place = plan_state_place(model, name);
    if (!place)
        return FAIL(ST_NOT_FOUND,
                    "the plan whose state is to be shared has no parameter or buffer '%s'", name);
    if (place->bytes != storage->bytes)
        return FAIL(ST_INVALID, "'%s' has %llu bytes, in the plan whose state is to be shared %llu",
                    name, (unsigned long long)storage->bytes, (unsigned long long)place->bytes);
    const ir_type_t *type = state_type(graph, name), *other = state_type(theirs, name);
    char text[IR_TYPE_TEXT_BYTES], other_text[IR_TYPE_TEXT_BYTES];
    if (!ir_type_equal(type, other))
        return FAIL(ST_INVALID, "'%s' is %s, in the plan whose state is to be shared %s", name,
                    ir_type_text(type, text, sizeof text),
                    ir_type_text(other, other_text, sizeof other_text));
    out->offset = place->offset;
    return ST_OK;
}

static st_status_t place_state(const plan_program_t *model, plan_program_t *program,
                               const sched_memory_t *memory, plan_place_t *of_storage) {
    const ir_graph_t *graph = program->graph;
    state_row_t *rows = st_calloc(graph->nodes.n, sizeof *rows);
    size_t n = 0;
    uint64_t end = 0;
    st_status_t status = ST_OK;
    if (!rows) return st_no_memory(graph->nodes.n * sizeof *rows, "the state's layout");
    for (ir_node_t i = 0; i < graph->nodes.n; i++)
        if (ir_op_def(ir_node(graph, i)->op)->flags & IR_STATE)
            rows[n++] = (state_row_t){ir_node(graph, i)->name,
                                      memory->storage_of[ir_node(graph, i)->first_output]};
    qsort(rows, n, sizeof *rows, by_name);
    for (size_t i = 0; i < n; i++) {
        const sched_storage_t *storage = &memory->storages[rows[i].storage];
        plan_place_t *place = &of_storage[rows[i].storage];
        if (model) {
            TRY_GOTO(place_like(model, graph, rows[i].name, storage, place), done);
        } else {
            place->offset = end;
            end = st_size_add(end, st_size_align(storage->bytes, PLAN_ALIGNMENT));
            if (end > INT64_MAX)
                TRY_GOTO(FAIL(ST_DOES_NOT_FIT,
                              "the sizes of parameters and buffers up to '%s' overflow 63 bits",
                              rows[i].name),
                         done);
        }
    }
    program->region_bytes[PLAN_STATE] = model ? model->region_bytes[PLAN_STATE] : end;
done:
    st_free(rows);
    return status;
}

/* ---- work and comm ---- */

/* Packs the storages of one kind, for work with the workspaces; piece i < n_storages is storage i,
 * the rest are nodes' workspaces. Pieces of another kind have no bytes. */
static st_status_t pack_kind(plan_program_t *program, const sched_memory_t *memory,
                             sched_kind_t kind, plan_place_t *of_storage) {
    plan_region_t region = kind == SCHED_WORK ? PLAN_WORK : PLAN_COMM;
    size_t n_nodes = program->graph->nodes.n, n = memory->n_storages + n_nodes;
    sched_piece_t *pieces = st_calloc(n, sizeof *pieces);
    ir_node_t *ends = st_calloc(n_nodes, sizeof *ends);
    uint64_t bytes = 0, bound = 0;
    st_status_t status = ST_OK;
    if (!pieces || !ends) TRY_GOTO(st_no_memory(n * sizeof *pieces, "the memory packing"), done);
    plan_workspace_ends(program->graph, ends);
    for (uint32_t s = 0; s < memory->n_storages; s++) {
        const sched_storage_t *storage = &memory->storages[s];
        if (storage->kind == kind)
            pieces[s] = (sched_piece_t){storage->begin, storage->end, storage->bytes, 0};
    }
    if (kind == SCHED_WORK)
        for (size_t i = 0; i < n_nodes; i++)
            pieces[memory->n_storages + i] =
                (sched_piece_t){(int64_t)i, (int64_t)ends[i], program->steps[i].workspace.bytes, 0};
    TRY_GOTO(sched_pack((uint32_t)n, pieces, PLAN_ALIGNMENT, &bytes, &bound), done);
    program->region_bytes[region] = bytes;
    if (kind == SCHED_WORK) program->live_bound_bytes = bound;
    for (uint32_t s = 0; s < memory->n_storages; s++)
        if (memory->storages[s].kind == kind) of_storage[s].offset = pieces[s].offset;
    for (size_t i = 0; i < n_nodes && kind == SCHED_WORK; i++) {
        plan_place_t *workspace = &program->steps[i].workspace;
        if (!workspace->bytes) continue;
        *workspace = (plan_place_t){PLAN_WORK, pieces[memory->n_storages + i].offset,
                                    workspace->bytes, memory->n_storages + (uint32_t)i};
    }
done:
    st_free(ends);
    st_free(pieces);
    return status;
}

/* The program of the plan that the state is shared with, for the ranks of this program: they have
 * one (compile_pass_lower). NULL: it is not shared. */
static const plan_program_t *program_of_model(const compile_context_t *context,
                                              const plan_program_t *program) {
    const plan_t *model = context->options.state_of, *plan = context->plan;
    uint32_t rank = 0;
    if (!model) return NULL;
    const plan_program_t *all = plan->programs - context->first_program;
    while (&all[plan->program_of[rank]] != program) ASSERT(++rank < plan->n_ranks);
    return &model->programs[model->program_of[rank]];
}

st_status_t compile_place_program(compile_context_t *context, plan_program_t *program,
                                  bool is_body) {
    static const plan_region_t regions[] = {
        [SCHED_WORK] = PLAN_WORK, [SCHED_COMM] = PLAN_COMM, [SCHED_STATE] = PLAN_STATE};
    const ir_graph_t *graph = program->graph;
    sched_memory_t memory;
    TRY(sched_storages(graph, &memory));
    st_status_t status = ST_OK;
    plan_place_t *of_storage = st_calloc(memory.n_storages, sizeof *of_storage);
    program->places =
        st_arena_array(&context->plan->arena, graph->values.n, sizeof *program->places);
    if (!of_storage || !program->places)
        TRY_GOTO(st_no_memory(graph->values.n * sizeof *of_storage, "the places"), done);
    const plan_program_t *model = is_body ? NULL : program_of_model(context, program);
    TRY_GOTO(place_state(model, program, &memory, of_storage), done);
    TRY_GOTO(pack_kind(program, &memory, SCHED_WORK, of_storage), done);
    TRY_GOTO(pack_kind(program, &memory, SCHED_COMM, of_storage), done);
    for (ir_value_t v = 0; v < graph->values.n; v++) {
        uint32_t s = memory.storage_of[v];
        uint64_t bytes = memory.storages[s].bytes;
        program->places[v] = (plan_place_t){bytes ? regions[memory.storages[s].kind] : PLAN_NOWHERE,
                                            bytes ? of_storage[s].offset : 0, bytes, s};
    }
    for (ir_node_t n = 0; n < graph->nodes.n; n++)
        if (ir_node(graph, n)->op == IR_OP_UPDATE)
            program->steps[n].kind = memory.update_in_place[n] ? PLAN_STEP_NOTHING : PLAN_STEP_COPY;
done:
    st_free(of_storage);
    sched_memory_free(&memory);
    return status;
}

st_status_t compile_place_values(compile_context_t *context) {
    context->plan->shares_state = context->options.state_of != NULL;
    for (uint32_t p = 0; p < context->plan->n_programs; p++) {
        plan_program_t *program = &context->plan->programs[p];
        TRY(compile_place_program(context, program, false));
        if (context->options.feed_ahead == COMPILE_ON)
            program->region_bytes[PLAN_FEEDS] = plan_feeds_bytes(program);
    }
    return ST_OK;
}
