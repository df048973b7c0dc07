/* Shadows of weights (autodiff/shadow.h): made anew from their parameters before a step, wherever a
 * state was written from outside, or another session that shares it has run without shadows, since
 * the rank's last step. Nothing here allocates but preparing. */
#include <string.h>

#include "exec/internal.h"

#define ARRAY(rank, out, n)                                                       \
    do {                                                                          \
        (out) = st_arena_array(&(rank)->arena, (n), sizeof *(out));               \
        if (!(out)) return st_no_memory((n) * sizeof *(out), "weights' shadows"); \
    } while (0)

static const kern_impl_t *find_cast(const exec_rank_t *rank, const kern_problem_t *problem) {
    const char *reason;
    for (const kern_impl_t *const *impl = kern_list(rank->device->name, IR_OP_CAST); *impl; impl++)
        if ((!(*impl)->can_run || (*impl)->can_run(problem, &reason)) &&
            (!(*impl)->workspace || (*impl)->workspace(problem, 1) == 0))
            return *impl;
    return NULL;
}

/* The cast from `master` to `shadow`, nodes of the program. */
static st_status_t prepare_cast(exec_rank_t *rank, ir_node_t master, ir_node_t shadow,
                                exec_step_t *step) {
    const ir_graph_t *graph = rank->program->graph;
    ir_type_t *types;
    ir_attr_t *attr;
    const void **in;
    void **out;
    ir_value_t from = ir_node(graph, master)->first_output;
    ir_value_t to = ir_node(graph, shadow)->first_output;
    ARRAY(rank, types, 2);
    ARRAY(rank, attr, 1);
    ARRAY(rank, in, 1);
    ARRAY(rank, out, 1);
    types[0] = *ir_value_type(graph, from);
    types[1] = *ir_value_type(graph, to);
    if (!ir_dims_equal(&types[0], &types[1])) {
        char text[2][IR_TYPE_TEXT_BYTES];
        return FAIL(ST_INVALID, "a rank has %s of the weight and %s of its shadow",
                    ir_type_text(&types[0], text[0], sizeof text[0]),
                    ir_type_text(&types[1], text[1], sizeof text[1]));
    }
    *attr = (ir_attr_t){.kind = IR_ATTR_DTYPE, .i = types[1].dtype};
    in[0] = exec_address(rank, &rank->program->places[from]);
    out[0] = exec_address(rank, &rank->program->places[to]);
    step->kind = PLAN_STEP_KERNEL;
    step->node = shadow;
    step->problem = (kern_problem_t){
        IR_OP_CAST, 1, 1, &types[0], &types[1], attr, ir_node(graph, shadow)->name};
    step->impl = find_cast(rank, &step->problem);
    if (!step->impl)
        return FAIL(ST_UNSUPPORTED, "%s has no kernel that casts %s to %s without scratch",
                    rank->device->name, ir_dtype_text(types[0].dtype),
                    ir_dtype_text(types[1].dtype));
    step->call = (kern_call_t){.problem = &step->problem,
                               .in = in,
                               .out = out,
                               .stream = rank->stream,
                               .team = rank->device->team(rank->stream),
                               .node = shadow};
    if (step->impl->bind) return step->impl->bind(&step->call);
    return step->impl->prepare
               ? step->impl->prepare(&step->problem, (int)rank->session->plan->n_threads,
                                     &step->call.prepared)
               : ST_OK;
}

st_status_t exec_shadows_prepare(exec_rank_t *rank) {
    const ir_graph_t *graph = rank->program->graph;
    uint32_t n = 0;
    for (ir_node_t s = 0; s < graph->nodes.n; s++) n += ir_is_shadow(ir_node(graph, s));
    if (!n) return ST_OK;
    ARRAY(rank, rank->shadows, n);
    memset(rank->shadows, 0, n * sizeof *rank->shadows);
    rank->seen_writes = UINT64_MAX; /* a new session makes them before its first step */
    for (ir_node_t s = 0; s < graph->nodes.n; s++) {
        const ir_node_info_t *node = ir_node(graph, s);
        if (!ir_is_shadow(node)) continue;
        const ir_node_t master = ir_master_of(graph, node);
        if (master == IR_NONE)
            return FAIL(ST_INVALID, "'%s' is the shadow of no parameter of the program",
                        node->name);
        if (!rank->program->places[node->first_output].bytes) continue;
        st_status_t status = prepare_cast(rank, master, s, &rank->shadows[rank->n_shadows++]);
        if (status != ST_OK) return st_error_context(status, "%s", ir_node_label(graph, s));
    }
    return ST_OK;
}

void exec_shadows_release(exec_rank_t *rank) {
    for (uint32_t i = 0; i < rank->n_shadows; i++) {
        exec_step_t *step = &rank->shadows[i];
        if (step->impl && step->impl->release && step->call.prepared)
            step->impl->release(step->call.prepared);
    }
    rank->n_shadows = 0;
}

static exec_session_t *owner_of_state(exec_session_t *session) {
    while (session->share) session = session->share;
    return session;
}

void exec_shadows_note_write(exec_session_t *session) {
    owner_of_state(session)->state_writes++;
}

void exec_shadows_note_step(exec_session_t *session) {
    if (!session->ranks[session->first].n_shadows) exec_shadows_note_write(session);
}

st_status_t exec_shadows_refresh(exec_rank_t *rank) {
    const uint64_t writes = owner_of_state(rank->session)->state_writes;
    if (!rank->n_shadows || rank->seen_writes == writes) return ST_OK;
    for (uint32_t i = 0; i < rank->n_shadows; i++)
        TRY(rank->shadows[i].impl->launch(&rank->shadows[i].call));
    rank->seen_writes = writes;
    return ST_OK;
}
