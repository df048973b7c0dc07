/* Plans as bytes: a container (ir/container.h) around the Plan message of proto/stator.proto.
 * Reading rebuilds every graph with all its checks and then proves the plan (plan_check), so that a
 * plan from an untrusted file is as safe to run as one just made. */
#include <string.h>

#include "base/memory.h"
#include "compile/plan.h"
#include "ir/body.h"
#include "ir/codec.h"
#include "ir/container.h"
#include "ir/wire.h"

typedef Stator__Wire__Plan plan_wire_t;
typedef Stator__Wire__Program program_wire_t;

static const ir_container_kind_t plan_file = {
    {'S', 'T', 'A', 'T', 'O', 'R', 'P', '\n'}, PLAN_VERSION, "plan"};

/* ---- writing ---- */

/* A message in the arena, initialized; and an array of pointers to n of them. */
#define MESSAGE(arena, out, type, init)                                   \
    do {                                                                  \
        (out) = st_arena_alloc((arena), sizeof(type));                    \
        if (!(out)) return st_no_memory(sizeof(type), "an encoded plan"); \
        *(out) = (type)init;                                              \
    } while (0)
#define POINTERS(arena, out, n)                                                  \
    do {                                                                         \
        (out) = st_arena_array((arena), (n), sizeof *(out));                     \
        if (!(out)) return st_no_memory((n) * sizeof *(out), "an encoded plan"); \
    } while (0)

static st_status_t graph_bytes(const ir_graph_t *graph, st_arena_t *arena,
                               ProtobufCBinaryData *out) {
    uint8_t *data;
    size_t bytes;
    TRY(ir_graph_encode(graph, &data, &bytes));
    out->data = st_arena_copy(arena, data, bytes);
    out->len = bytes;
    st_free(data);
    return out->data ? ST_OK : st_no_memory(bytes, "an encoded plan");
}

static st_status_t place_to_wire(const plan_place_t *place, st_arena_t *arena,
                                 Stator__Wire__Place **out) {
    MESSAGE(arena, *out, Stator__Wire__Place, STATOR__WIRE__PLACE__INIT);
    (*out)->region = (uint32_t)place->region;
    (*out)->offset = place->offset;
    (*out)->bytes = place->bytes;
    (*out)->storage = place->storage;
    return ST_OK;
}

static st_status_t program_to_wire(const plan_program_t *program, st_arena_t *arena,
                                   program_wire_t **out);

static st_status_t bodies_to_wire(const plan_step_t *step, st_arena_t *arena,
                                  Stator__Wire__Step *wire) {
    if (!step->n_bodies) return ST_OK;
    wire->bodies = st_arena_array(arena, step->n_bodies, sizeof *wire->bodies);
    if (!wire->bodies) return st_no_memory(0, "an encoded plan");
    wire->n_bodies = step->n_bodies;
    for (uint32_t i = 0; i < step->n_bodies; i++) {
        program_wire_t *body;
        TRY(program_to_wire(&step->bodies[i], arena, &body));
        size_t bytes = stator__wire__program__get_packed_size(body);
        wire->bodies[i] = (ProtobufCBinaryData){bytes, st_arena_alloc(arena, bytes)};
        if (!wire->bodies[i].data) return st_no_memory(bytes, "an encoded plan");
        stator__wire__program__pack(body, wire->bodies[i].data);
    }
    return ST_OK;
}

static st_status_t program_to_wire(const plan_program_t *program, st_arena_t *arena,
                                   program_wire_t **out) {
    MESSAGE(arena, *out, program_wire_t, STATOR__WIRE__PROGRAM__INIT);
    program_wire_t *wire = *out;
    TRY(graph_bytes(program->graph, arena, &wire->graph));
    wire->n_places = program->graph->values.n;
    POINTERS(arena, wire->places, wire->n_places);
    for (size_t v = 0; v < wire->n_places; v++)
        TRY(place_to_wire(&program->places[v], arena, &wire->places[v]));
    wire->n_steps = program->graph->nodes.n;
    POINTERS(arena, wire->steps, wire->n_steps);
    for (size_t n = 0; n < wire->n_steps; n++) {
        const plan_step_t *step = &program->steps[n];
        MESSAGE(arena, wire->steps[n], Stator__Wire__Step, STATOR__WIRE__STEP__INIT);
        wire->steps[n]->kind = (uint32_t)step->kind;
        if (step->kernel) wire->steps[n]->kernel = (char *)(uintptr_t)step->kernel;
        wire->steps[n]->ticket = step->ticket;
        TRY(bodies_to_wire(step, arena, wire->steps[n]));
        TRY(place_to_wire(&step->workspace, arena, &wire->steps[n]->workspace));
    }
    wire->n_region_bytes = PLAN_REGION_END - !program->region_bytes[PLAN_FEEDS];
    wire->region_bytes = (uint64_t *)(uintptr_t)program->region_bytes;
    wire->live_bound_bytes = program->live_bound_bytes;
    return ST_OK;
}

static st_status_t ports_to_wire(const plan_port_t *ports, uint32_t n, uint32_t n_axes,
                                 st_arena_t *arena, Stator__Wire__Port ***out) {
    POINTERS(arena, *out, n);
    for (uint32_t i = 0; i < n; i++) {
        MESSAGE(arena, (*out)[i], Stator__Wire__Port, STATOR__WIRE__PORT__INIT);
        Stator__Wire__Port *port = (*out)[i];
        port->name = (char *)(uintptr_t)ports[i].name;
        TRY(ir_type_to_wire(&ports[i].type, arena, &port->type));
        port->n_placements = n_axes;
        POINTERS(arena, port->placements, n_axes);
        for (uint32_t a = 0; a < n_axes; a++) {
            MESSAGE(arena, port->placements[a], Stator__Wire__Placement,
                    STATOR__WIRE__PLACEMENT__INIT);
            port->placements[a]->kind = (uint32_t)ports[i].placements[a].kind;
            port->placements[a]->dim = ports[i].placements[a].dim;
            port->placements[a]->granules = ports[i].placements[a].granules;
        }
    }
    return ST_OK;
}

static st_status_t plan_to_wire(const plan_t *plan, st_arena_t *arena, plan_wire_t *wire) {
    wire->format_version = PLAN_VERSION;
    wire->graph_hash = plan->graph_hash;
    TRY(graph_bytes(plan->source, arena, &wire->source));
    wire->n_ranks = plan->n_ranks;
    wire->n_threads = plan->n_threads;
    wire->timeout_ms = plan->timeout_ms;
    wire->shares_state = plan->shares_state;
    wire->device = (char *)(uintptr_t)plan->device;
    wire->n_options = plan->n_options;
    POINTERS(arena, wire->options, plan->n_options);
    for (uint32_t i = 0; i < plan->n_options; i++) {
        MESSAGE(arena, wire->options[i], Stator__Wire__PlanOption, STATOR__WIRE__PLAN_OPTION__INIT);
        wire->options[i]->key = (char *)(uintptr_t)plan->options[i].key;
        wire->options[i]->value = (char *)(uintptr_t)plan->options[i].value;
    }
    wire->n_inputs = plan->n_inputs;
    TRY(ports_to_wire(plan->inputs, plan->n_inputs, plan->mesh.n, arena, &wire->inputs));
    wire->n_outputs = plan->n_outputs;
    TRY(ports_to_wire(plan->outputs, plan->n_outputs, plan->mesh.n, arena, &wire->outputs));
    wire->n_states = plan->n_states;
    TRY(ports_to_wire(plan->states, plan->n_states, plan->mesh.n, arena, &wire->states));
    wire->mesh = st_arena_alloc(arena, IR_MESH_TEXT_BYTES);
    if (!wire->mesh) return st_no_memory(IR_MESH_TEXT_BYTES, "an encoded plan");
    ir_mesh_text(&plan->mesh, wire->mesh, IR_MESH_TEXT_BYTES);
    wire->n_programs = plan->n_programs;
    POINTERS(arena, wire->programs, plan->n_programs);
    for (uint32_t p = 0; p < plan->n_programs; p++)
        TRY(program_to_wire(&plan->programs[p], arena, &wire->programs[p]));
    wire->n_program_of = plan->n_ranks;
    wire->program_of = plan->program_of;
    if (!plan->recompute.n_nodes) return ST_OK;
    MESSAGE(arena, wire->recompute, Stator__Wire__Recompute, STATOR__WIRE__RECOMPUTE__INIT);
    wire->recompute->nodes = plan->recompute.n_nodes;
    wire->recompute->products = plan->recompute.n_products;
    wire->recompute->freed_bytes = plan->recompute.freed_bytes;
    wire->recompute->flop = plan->recompute.flop;
    wire->recompute->bytes_moved = plan->recompute.bytes_moved;
    wire->recompute->extra_us = plan->recompute.extra_us;
    return ST_OK;
}

st_status_t plan_encode(const plan_t *plan, uint8_t **out_data, size_t *out_bytes) {
    *out_data = NULL;
    *out_bytes = 0;
    st_arena_t arena = {0};
    plan_wire_t wire = STATOR__WIRE__PLAN__INIT;
    st_status_t status = ST_OK;
    TRY_GOTO(plan_to_wire(plan, &arena, &wire), done);
    size_t payload = stator__wire__plan__get_packed_size(&wire);
    if (payload > IR_CONTAINER_MAX_PAYLOAD_BYTES)
        TRY_GOTO(
            FAIL(ST_DOES_NOT_FIT,
                 "the plan needs %zu bytes, the limit of a file is %zu: keep large constants as "
                 "buffers",
                 payload, IR_CONTAINER_MAX_PAYLOAD_BYTES),
            done);
    size_t bytes = IR_CONTAINER_HEADER_BYTES + payload;
    uint8_t *data = st_malloc(bytes);
    if (!data) TRY_GOTO(st_no_memory(bytes, "an encoded plan"), done);
    stator__wire__plan__pack(&wire, data + IR_CONTAINER_HEADER_BYTES);
    ir_container_seal(&plan_file, data, payload);
    *out_data = data;
    *out_bytes = bytes;
done:
    st_arena_clear(&arena);
    return status;
}

/* ---- reading ---- */

static st_status_t text_from_wire(plan_t *plan, const char *text, const char **out) {
    *out = st_arena_strdup(&plan->arena, text);
    return *out ? ST_OK : st_no_memory(strlen(text), "a plan");
}

static st_status_t place_from_wire(const Stator__Wire__Place *wire, plan_place_t *out) {
    if (!wire) return FAIL(ST_PARSE, "a place is missing");
    TRY(ir_wire_check_known(&wire->base));
    if (wire->region >= PLAN_FEEDS) /* no value lies there */
        return FAIL(ST_PARSE, "memory region %u is not known", wire->region);
    *out = (plan_place_t){(plan_region_t)wire->region, wire->offset, wire->bytes, wire->storage};
    return ST_OK;
}

static st_status_t program_from_wire(plan_t *plan, const program_wire_t *wire, int depth,
                                     plan_program_t *program);

static st_status_t bodies_from_wire(plan_t *plan, const Stator__Wire__Step *wire, int depth,
                                    plan_step_t *step) {
    if (!wire->n_bodies) return ST_OK;
    if (depth == IR_MAX_DEPTH)
        return FAIL(ST_PARSE, "bodies in bodies, %d deep at most", IR_MAX_DEPTH);
    step->bodies = st_arena_array(&plan->arena, wire->n_bodies, sizeof *step->bodies);
    if (!step->bodies) return st_no_memory(wire->n_bodies * sizeof *step->bodies, "a plan");
    for (size_t i = 0; i < wire->n_bodies; i++) {
        st_arena_t arena = {0};
        ProtobufCMessage *message;
        step->n_bodies = (uint32_t)i + 1; /* counts while it is built, so that a failure frees it */
        st_status_t status =
            ir_wire_unpack(&stator__wire__program__descriptor, wire->bodies[i].data,
                           wire->bodies[i].len, &arena, &message);
        if (status == ST_OK)
            status = program_from_wire(plan, (const program_wire_t *)message, depth + 1,
                                       &step->bodies[i]);
        st_arena_clear(&arena);
        if (status != ST_OK) return st_error_context(status, "body %zu", i);
    }
    return ST_OK;
}

static st_status_t steps_from_wire(plan_t *plan, const program_wire_t *wire, int depth,
                                   plan_step_t *steps) {
    for (size_t n = 0; n < wire->n_steps; n++) {
        const Stator__Wire__Step *step = wire->steps[n];
        TRY(ir_wire_check_known(&step->base));
        if (step->kind > PLAN_STEP_REGION)
            return FAIL(ST_PARSE, "step %zu: kind %u is not known", n, step->kind);
        steps[n].kind = (plan_step_kind_t)step->kind;
        steps[n].ticket = step->ticket;
        if (step->kernel[0]) TRY(text_from_wire(plan, step->kernel, &steps[n].kernel));
        TRY(place_from_wire(step->workspace, &steps[n].workspace));
        TRY(bodies_from_wire(plan, step, depth, &steps[n]));
    }
    return ST_OK;
}

static st_status_t program_from_wire(plan_t *plan, const program_wire_t *wire, int depth,
                                     plan_program_t *program) {
    TRY(ir_wire_check_known(&wire->base));
    TRY(ir_graph_decode(wire->graph.data, wire->graph.len, &program->graph));
    if (wire->n_places != program->graph->values.n || wire->n_steps != program->graph->nodes.n ||
        (wire->n_region_bytes != PLAN_REGION_END && wire->n_region_bytes != PLAN_FEEDS))
        return FAIL(
            ST_PARSE,
            "%zu places, %zu steps and %zu regions for a graph of %zu values and %zu nodes, and "
            "%d or %d regions",
            wire->n_places, wire->n_steps, wire->n_region_bytes, program->graph->values.n,
            program->graph->nodes.n, PLAN_FEEDS, PLAN_REGION_END);
    program->places = st_arena_array(&plan->arena, wire->n_places, sizeof *program->places);
    program->steps = st_arena_array(&plan->arena, wire->n_steps, sizeof *program->steps);
    if (!program->places || !program->steps)
        return st_no_memory(wire->n_places * sizeof *program->places, "a plan");
    for (size_t v = 0; v < wire->n_places; v++)
        TRY(place_from_wire(wire->places[v], &program->places[v]));
    TRY(steps_from_wire(plan, wire, depth, program->steps));
    memcpy(program->region_bytes, wire->region_bytes,
           wire->n_region_bytes * sizeof *program->region_bytes);
    program->live_bound_bytes = wire->live_bound_bytes;
    return ST_OK;
}

static st_status_t placement_from_wire(const Stator__Wire__Port *port, uint32_t axis,
                                       ir_placement_t *out) {
    const Stator__Wire__Placement *wire = port->placements[axis];
    TRY(ir_wire_check_known(&wire->base));
    if (wire->kind != IR_REPLICATE && wire->kind != IR_SPLIT && wire->kind != IR_HELD)
        return FAIL(ST_PARSE, "'%s': placement %u is not known", port->name, wire->kind);
    *out = (ir_placement_t){(ir_placement_kind_t)wire->kind, wire->dim, wire->granules};
    return ST_OK;
}

static st_status_t ports_from_wire(plan_t *plan, size_t n, Stator__Wire__Port *const *wire,
                                   uint32_t *out_n, plan_port_t **out) {
    *out = st_arena_array(&plan->arena, n, sizeof **out);
    if (!*out) return st_no_memory(n * sizeof **out, "a plan");
    for (size_t i = 0; i < n; i++) {
        TRY(ir_wire_check_known(&wire[i]->base));
        TRY(text_from_wire(plan, wire[i]->name, &(*out)[i].name));
        if (!wire[i]->type || wire[i]->n_placements != plan->mesh.n)
            return FAIL(ST_PARSE, "'%s' has no type, or %zu placements for %u axes", wire[i]->name,
                        wire[i]->n_placements, plan->mesh.n);
        TRY(ir_type_from_wire(wire[i]->type, &(*out)[i].type));
        (*out)[i].placements =
            st_arena_array(&plan->arena, plan->mesh.n, sizeof *(*out)[i].placements);
        if (!(*out)[i].placements) return st_no_memory(plan->mesh.n, "a plan");
        for (uint32_t a = 0; a < plan->mesh.n; a++)
            TRY(placement_from_wire(wire[i], a, &(*out)[i].placements[a]));
    }
    *out_n = (uint32_t)n;
    return ST_OK;
}

static st_status_t plan_from_wire(const plan_wire_t *wire, plan_t *plan) {
    TRY(ir_wire_check_known(&wire->base));
    if (wire->format_version != PLAN_VERSION)
        return FAIL(ST_UNSUPPORTED, "plan format %u, this build reads %d: compile the graph again",
                    wire->format_version, PLAN_VERSION);
    plan->graph_hash = wire->graph_hash;
    TRY(ir_graph_decode(wire->source.data, wire->source.len, &plan->source));
    TRY(ir_mesh_parse(wire->mesh, &plan->mesh));
    plan->n_ranks = wire->n_ranks;
    if (plan->n_ranks != ir_mesh_ranks(&plan->mesh))
        return FAIL(ST_PARSE, "%u ranks, but the mesh is %s", plan->n_ranks, wire->mesh);
    plan->n_threads = wire->n_threads;
    plan->timeout_ms = wire->timeout_ms;
    plan->shares_state = wire->shares_state;
    if (wire->recompute) {
        TRY(ir_wire_check_known(&wire->recompute->base));
        plan->recompute = (plan_recompute_t){
            wire->recompute->nodes, wire->recompute->products,    wire->recompute->freed_bytes,
            wire->recompute->flop,  wire->recompute->bytes_moved, wire->recompute->extra_us};
    }
    TRY(text_from_wire(plan, wire->device, &plan->device));
    plan->options = st_arena_array(&plan->arena, wire->n_options, sizeof *plan->options);
    plan->programs = st_arena_array(&plan->arena, wire->n_programs, sizeof *plan->programs);
    plan->program_of = st_arena_copy(&plan->arena, wire->program_of,
                                     wire->n_program_of * sizeof *plan->program_of);
    if (!plan->options || !plan->programs || !plan->program_of)
        return st_no_memory(wire->n_options * sizeof *plan->options, "a plan");
    if (wire->n_program_of != wire->n_ranks)
        return FAIL(ST_PARSE, "%zu ranks have a program, the plan has %u ranks", wire->n_program_of,
                    wire->n_ranks);
    for (size_t i = 0; i < wire->n_options; i++) {
        TRY(ir_wire_check_known(&wire->options[i]->base));
        TRY(text_from_wire(plan, wire->options[i]->key, &plan->options[i].key));
        TRY(text_from_wire(plan, wire->options[i]->value, &plan->options[i].value));
    }
    plan->n_options = (uint32_t)wire->n_options;
    TRY(ports_from_wire(plan, wire->n_inputs, wire->inputs, &plan->n_inputs, &plan->inputs));
    TRY(ports_from_wire(plan, wire->n_outputs, wire->outputs, &plan->n_outputs, &plan->outputs));
    TRY(ports_from_wire(plan, wire->n_states, wire->states, &plan->n_states, &plan->states));
    for (size_t p = 0; p < wire->n_programs; p++) {
        plan->n_programs =
            (uint32_t)p + 1; /* counts while it is built, so that a failure frees it */
        st_status_t status = program_from_wire(plan, wire->programs[p], 0, &plan->programs[p]);
        if (status != ST_OK) return st_error_context(status, "program %zu", p);
    }
    TRY(plan_make_ports(plan));
    return plan_check(plan);
}

st_status_t plan_decode(const void *data, size_t bytes, plan_t **out_plan) {
    *out_plan = NULL;
    const uint8_t *payload;
    size_t payload_bytes;
    TRY(ir_container_open(&plan_file, data, bytes, &payload, &payload_bytes));
    st_arena_t arena = {0};
    ProtobufCMessage *wire = NULL;
    plan_t *plan = NULL;
    st_status_t status =
        ir_wire_unpack(&stator__wire__plan__descriptor, payload, payload_bytes, &arena, &wire);
    if (status != ST_OK) goto done;
    plan = st_calloc(1, sizeof *plan);
    if (!plan) TRY_GOTO(st_no_memory(sizeof *plan, "a plan"), done);
    TRY_GOTO(plan_from_wire((const plan_wire_t *)wire, plan), done);
    *out_plan = plan;
    plan = NULL;
done:
    plan_destroy(plan);
    st_arena_clear(&arena);
    return status;
}
