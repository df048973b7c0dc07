/* Plans of bodies (memory.h): each body as a program, through the passes that every program goes
 * through. */
#include "compile/memory.h"
#include "compile/passes.h"
#include "compile/plan_body.h"
#include "fusion/fuse.h"
#include "ir/body.h"
#include "schedule/order.h"

static st_status_t order_nodes(const ir_target_t *target, plan_program_t *program) {
    size_t n = program->graph->nodes.n;
    ir_node_t *order = st_calloc(n, sizeof *order);
    ir_graph_t *made;
    if (!order) return st_no_memory(n * sizeof *order, "the order");
    st_status_t status = sched_order(program->graph, target, order, NULL);
    if (status == ST_OK) status = sched_apply(program->graph, order, &made);
    if (status == ST_OK) compile_replace(&program->graph, made);
    st_free(order);
    return status;
}

static st_status_t fuse_nodes(compile_context_t *context, plan_program_t *program) {
    fuse_decision_t *decision = NULL;
    ir_graph_t *made = NULL;
    /* one that runs parts of itself again: as the pass "recompute" found that its sums stay */
    const fuse_decision_t *like = ir_graph_repeats(program->graph) ? context->fit.like : NULL;
    TRY(fuse_decide(program->graph, &context->target, like, &decision));
    st_status_t status = fuse_apply(decision, program->graph, &made);
    if (status == ST_OK) compile_replace(&program->graph, made);
    fuse_decision_destroy(decision);
    return status;
}

st_status_t compile_plan_bodies(compile_context_t *context, const ir_node_info_t *node,
                                plan_step_t *step) {
    ir_region_info_t info = ir_region_info(node);
    step->bodies = st_arena_array(&context->plan->arena, info.n_bodies, sizeof *step->bodies);
    if (!step->bodies) return st_no_memory(info.n_bodies * sizeof *step->bodies, "the bodies");
    step->workspace.bytes = 0;
    for (uint32_t i = 0; i < info.n_bodies; i++) {
        plan_program_t *program = &step->bodies[step->n_bodies++];
        TRY(plan_body_graph(info.bodies[i], info.carried, &program->graph));
        if (compile_fuses(context)) TRY(fuse_nodes(context, program));
        TRY(order_nodes(&context->target, program));
        TRY(compile_choose_program(context, program));
        TRY(compile_place_program(context, program, true));
        if (program->region_bytes[PLAN_WORK] > step->workspace.bytes)
            step->workspace.bytes = program->region_bytes[PLAN_WORK];
    }
    const uint64_t work = step->workspace.bytes;
    step->workspace.bytes =
        (work + PLAN_ALIGNMENT - 1) / PLAN_ALIGNMENT * PLAN_ALIGNMENT + plan_turn_bytes(&info);
    return ST_OK;
}
