/* Sends and receives of a plan (plan_ranks.h): of stages, or of keys that go round a context axis.
 *
 * Problem: each rank sends and receives at its own places in the order, so that one order of all
 * collectives proves nothing.
 * Algorithm: all ranks are run against each other. A start never stands still; a wait does until
 * what it waits for has been started on the other side: the i-th send to a rank by its i-th
 * receive from here, and the other way round; a collective of a group by all its members. What a
 * rank can do it can still do when others have gone on, so the order in which ranks are looked
 * at does not matter: if one run comes to its end, all do, and a rank that stands at the end is
 * the proof of a deadlock. Collectives of several ranks do not go over the pipe axis.
 * O(collectives of all ranks · members of a group), in sweeps. */
#include <string.h>

#include "base/arena.h"
#include "base/memory.h"
#include "compile/plan_ranks.h"
#include "ir/op.h"

typedef enum event_kind { EVENT_SEND, EVENT_RECEIVE, EVENT_MEET } event_kind_t;

typedef struct event {
    event_kind_t kind;
    bool waits;
    uint32_t axis, peer;
    uint32_t number; /* of its kind, to or from its peer, or of its axis */
    ir_node_t node;
} event_t;

typedef struct program {
    uint32_t n;
    event_t *events;
} program_t;

typedef struct proof {
    const plan_t *plan;
    st_arena_t arena;
    program_t *programs;
    uint32_t axis; /* along which ranks send; IR_NONE: along none */
    uint32_t *at;  /* [ranks]: events that are done */
    uint32_t
        *counts; /* [ranks][3][ranks]: starts by kind; of sends and receives by the other rank, of
                         collectives by axis */
} proof_t;

static uint32_t *count_of(const proof_t *p, uint32_t rank, event_kind_t kind, uint32_t other) {
    return &p->counts[((size_t)rank * 3 + (uint32_t)kind) * p->plan->n_ranks + other];
}

/* ---- events ---- */

static st_status_t describe(const proof_t *p, const ir_graph_t *graph, ir_node_t n,
                            const event_t *starts, event_t *out) {
    const ir_mesh_t *mesh = &p->plan->mesh;
    const ir_node_info_t *node = ir_node(graph, n);
    if (!(ir_op_def(node->op)->flags & IR_START)) {
        *out = starts[graph->values.data[node->inputs[0]].producer];
        out->waits = true;
        out->node = n;
        return ST_OK;
    }
    const char *name = ir_node_attr(node, "mesh")->s;
    *out = (event_t){.kind = node->op == IR_OP_SEND_START      ? EVENT_SEND
                             : node->op == IR_OP_RECEIVE_START ? EVENT_RECEIVE
                                                               : EVENT_MEET,
                     .axis = ir_mesh_find(mesh, name),
                     .node = n};
    if (out->axis == IR_NONE)
        return FAIL(ST_INVALID, "%s runs over axis '%s', which the mesh has not",
                    ir_node_label(graph, n), name);
    if (ir_op_is_pair(node->op)) {
        const int64_t peer = ir_attr_int(node, "peer");
        if (peer < 0 || peer >= (int64_t)mesh->axes[out->axis].size)
            return FAIL(ST_INVALID, "%s is with rank %lld of the %u of axis '%s'",
                        ir_node_label(graph, n), (long long)peer, mesh->axes[out->axis].size, name);
        out->peer = (uint32_t)peer;
        if (strcmp(name, IR_AXIS_PIPE) != 0 && strcmp(name, IR_AXIS_CONTEXT) != 0)
            return FAIL(ST_INVALID,
                        "%s is between two ranks of axis '%s': only pipe and context have that",
                        ir_node_label(graph, n), name);
    } else if (strcmp(name, IR_AXIS_PIPE) == 0 && mesh->axes[out->axis].size > 1) {
        return FAIL(ST_INVALID, "%s is among stages of a pipeline, which only send and receive",
                    ir_node_label(graph, n));
    }
    return ST_OK;
}

/* The collectives of a program, numbered. */
static st_status_t list_events(proof_t *p, uint32_t q) {
    const ir_graph_t *graph = p->plan->programs[q].graph;
    const uint32_t n_ranks = p->plan->n_ranks;
    program_t *program = &p->programs[q];
    event_t *starts = st_arena_array(&p->arena, graph->nodes.n, sizeof *starts);
    uint32_t *numbers = st_arena_array(&p->arena, 3 * (size_t)n_ranks, sizeof *numbers);
    program->events = st_arena_array(&p->arena, graph->nodes.n, sizeof *program->events);
    if (!starts || !numbers || !program->events)
        return st_no_memory(graph->nodes.n * sizeof *starts, "the plan's proof");
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        event_t *event = &program->events[program->n];
        if (!(ir_op_def(ir_node(graph, n)->op)->flags & IR_COLLECTIVE)) continue;
        TRY(describe(p, graph, n, starts, event));
        if (event->kind != EVENT_MEET && p->axis != event->axis) {
            if (p->axis != IR_NONE) /* numbers are by the peer's coordinate */
                return FAIL(ST_INVALID, "%s is along a second axis beside '%s'",
                            ir_node_label(graph, n), p->plan->mesh.axes[p->axis].name);
            p->axis = event->axis;
        }
        if (!event->waits) {
            const uint32_t other = event->kind == EVENT_MEET ? event->axis : event->peer;
            event->number = numbers[(uint32_t)event->kind * n_ranks + other]++;
            starts[n] = *event;
        }
        program->n++;
    }
    return ST_OK;
}

/* ---- types ---- */

static const ir_type_t *type_of(const ir_graph_t *graph, const event_t *event) {
    const ir_node_info_t *node = ir_node(graph, event->node);
    return ir_value_type(graph, event->kind == EVENT_SEND ? node->inputs[0] : node->first_output);
}

static const event_t *next_start(const program_t *program, uint32_t *at, event_kind_t kind,
                                 uint32_t axis, uint32_t peer) {
    for (; *at < program->n; ++*at) {
        const event_t *event = &program->events[*at];
        if (!event->waits && event->kind == kind && event->axis == axis && event->peer == peer)
            return &program->events[(*at)++];
    }
    return NULL;
}

/* What `from` sends to its peer at coordinate `to` of the axis is what that one receives. */
static st_status_t check_channel(const proof_t *p, uint32_t axis, uint32_t from, uint32_t to) {
    const plan_t *plan = p->plan;
    const uint32_t other = ir_mesh_peer(&plan->mesh, from, axis, to), a = plan->program_of[from],
                   b = plan->program_of[other];
    const uint32_t own = ir_mesh_coordinate(&plan->mesh, from, axis);
    for (uint32_t i = 0, j = 0;;) {
        const event_t *sent = next_start(&p->programs[a], &i, EVENT_SEND, axis, to);
        const event_t *taken = next_start(&p->programs[b], &j, EVENT_RECEIVE, axis, own);
        if (!sent && !taken) return ST_OK;
        if (sent && other == from) return FAIL(ST_RANKS_DISAGREE, "rank %u sends to itself", from);
        if (!sent || !taken)
            return FAIL(ST_RANKS_DISAGREE, "rank %u sends %s to rank %u than that receives", from,
                        sent ? "more" : "less", other);
        const ir_type_t *x = type_of(plan->programs[a].graph, sent);
        const ir_type_t *y = type_of(plan->programs[b].graph, taken);
        char given[IR_TYPE_TEXT_BYTES], expected[IR_TYPE_TEXT_BYTES];
        if (!ir_type_equal(x, y))
            return FAIL(ST_RANKS_DISAGREE,
                        "rank %u sends %s as number %u to rank %u, which takes %s", from,
                        ir_type_text(x, given, sizeof given), sent->number, other,
                        ir_type_text(y, expected, sizeof expected));
    }
}

/* Ranks that run the same programs as others before are not looked at again. */
static st_status_t check_channels(proof_t *p, uint32_t axis) {
    const plan_t *plan = p->plan;
    const size_t n = plan->n_programs;
    bool *seen = st_arena_array(&p->arena, n * n, sizeof *seen);
    if (!seen) return st_no_memory(n * n, "the plan's proof");
    for (uint32_t rank = 0; rank < plan->n_ranks; rank++)
        for (uint32_t c = 0; c < plan->mesh.axes[axis].size; c++) {
            const uint32_t other = ir_mesh_peer(&plan->mesh, rank, axis, c);
            bool *known = &seen[plan->program_of[rank] * n + plan->program_of[other]];
            if (*known) continue;
            *known = rank != other;
            TRY(check_channel(p, axis, rank, c));
        }
    return ST_OK;
}

/* ---- the run ---- */

static bool has_met(const proof_t *p, uint32_t rank, const event_t *event) {
    const ir_mesh_t *mesh = &p->plan->mesh;
    for (uint32_t c = 0; c < mesh->axes[event->axis].size; c++) {
        const uint32_t member = ir_mesh_peer(mesh, rank, event->axis, c);
        if (*count_of(p, member, EVENT_MEET, event->axis) <= event->number) return false;
    }
    return true;
}

static bool may_pass(const proof_t *p, uint32_t rank, const event_t *event) {
    if (!event->waits) return true;
    if (event->kind == EVENT_MEET) return has_met(p, rank, event);
    const uint32_t other = ir_mesh_peer(&p->plan->mesh, rank, event->axis, event->peer);
    const event_kind_t kind = event->kind == EVENT_SEND ? EVENT_RECEIVE : EVENT_SEND;
    return *count_of(p, other, kind, rank) > event->number;
}

/* Whether the rank could go on. */
static bool advance(const proof_t *p, uint32_t rank) {
    const program_t *program = &p->programs[p->plan->program_of[rank]];
    bool any = false;
    for (; p->at[rank] < program->n; p->at[rank]++, any = true) {
        const event_t *event = &program->events[p->at[rank]];
        if (!may_pass(p, rank, event)) break;
        if (event->waits) continue;
        const uint32_t other = event->kind == EVENT_MEET
                                   ? event->axis
                                   : ir_mesh_peer(&p->plan->mesh, rank, event->axis, event->peer);
        ++*count_of(p, rank, event->kind, other);
    }
    return any;
}

static st_status_t run(const proof_t *p) {
    const plan_t *plan = p->plan;
    for (bool any = true; any;) {
        any = false;
        for (uint32_t rank = 0; rank < plan->n_ranks; rank++) any |= advance(p, rank);
    }
    for (uint32_t rank = 0; rank < plan->n_ranks; rank++) {
        const program_t *program = &p->programs[plan->program_of[rank]];
        if (p->at[rank] == program->n) continue;
        const event_t *event = &program->events[p->at[rank]];
        return FAIL(ST_RANKS_DISAGREE, "a deadlock: rank %u waits for ever at %s", rank,
                    ir_node_label(plan->programs[plan->program_of[rank]].graph, event->node));
    }
    return ST_OK;
}

static st_status_t prove(proof_t *p) {
    const plan_t *plan = p->plan;
    const size_t n = plan->n_ranks;
    p->axis = IR_NONE;
    p->programs = st_arena_array(&p->arena, plan->n_programs, sizeof *p->programs);
    if (!p->programs) return st_no_memory(plan->n_programs, "the plan's proof");
    for (uint32_t q = 0; q < plan->n_programs; q++) {
        TRY(list_events(p, q));
    }
    if (p->axis == IR_NONE) return ST_OK; /* one order of all collectives is proof enough */
    p->at = st_arena_array(&p->arena, n, sizeof *p->at);
    p->counts = st_arena_array(&p->arena, 3 * n * n, sizeof *p->counts);
    if (!p->at || !p->counts)
        return st_no_memory(3 * n * n * sizeof *p->counts, "the plan's proof");
    TRY(check_channels(p, p->axis));
    return run(p);
}

st_status_t plan_check_pairs(const plan_t *plan) {
    proof_t p = {.plan = plan};
    st_status_t status = prove(&p);
    st_arena_clear(&p.arena);
    return status;
}
