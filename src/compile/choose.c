/* Choosing a kernel for each node.
 *
 * Problem: an op has several implementations on a device (a library's, our own nests', the
 * reference), each with problems that it cannot run; the plan must say which one runs, since memory
 * and time depend on it.
 * In:  ordered programs, all ops lowered and fused.
 * Out: each node has its kind of step, a kernel that can run it and the bytes of its workspace;
 *      starts and waits of one collective have one ticket, in the order of the program, so that all
 *      ranks agree. Nodes whose every result is empty, and states, views and constants, have
 *      nothing to do.
 * Algorithm: the ordered list of the op on the device is asked from the front (kernels/table.h);
 * the first whose can_run() agrees is taken, the reference being last. Nothing is measured here:
 * tuning fills slots of the plan later and may not change it. A node of control flow has its bodies
 * planned as programs of their own (plan_body.h).
 * Complexity: linear in the nodes times the length of a list (at most a dozen).
 * Source: implementation lists are those of oneDNN. */
#include "compile/memory.h"
#include "compile/plan_stage.h"
#include "compile/target.h"
#include "ir/node_ctx.h"

static plan_step_kind_t step_kind(const ir_graph_t *graph, const ir_node_info_t *node) {
    uint32_t flags = ir_op_def(node->op)->flags;
    if (flags & IR_COLLECTIVE) return flags & IR_START ? PLAN_STEP_START : PLAN_STEP_WAIT;
    if ((flags & (IR_STATE | IR_VIEW)) || node->op == IR_OP_INPUT || ir_op_is_lasting(node->op) ||
        node->op == IR_OP_UPDATE)
        return PLAN_STEP_NOTHING;
    for (uint32_t k = 0; k < node->n_outputs; k++)
        if (ir_type_bytes(ir_value_type(graph, node->first_output + k)))
            return flags & IR_REGION ? PLAN_STEP_REGION : PLAN_STEP_KERNEL;
    return PLAN_STEP_NOTHING; /* a rank whose part is empty */
}

static st_status_t choose(compile_context_t *context, plan_program_t *program, ir_node_t n,
                          st_arena_t *scratch) {
    const ir_graph_t *graph = program->graph;
    const ir_node_info_t *node = ir_node(graph, n);
    ir_type_t *types = st_arena_array(scratch, node->n_inputs + node->n_outputs, sizeof *types);
    if (!types) return st_no_memory(node->n_inputs * sizeof *types, "a kernel's problem");
    const ir_op_ctx_t ctx = ir_node_ctx_in(graph, n, types);
    plan_step_t *step = &program->steps[n];
    const char *reason;
    uint32_t launches;
    size_t workspace;
    const char *kernel = target_choose(context->target.context, &ctx, types + node->n_inputs,
                                       &workspace, &launches, &reason);
    if (!kernel) return FAIL(ST_UNSUPPORTED, "%s: %s", ir_node_label(graph, n), reason);
    step->workspace.bytes = workspace;
    step->kernel = st_arena_strdup(&context->plan->arena, kernel);
    if (!step->kernel) return st_no_memory(0, "a kernel's name");
    if (step->workspace.bytes > INT64_MAX)
        return FAIL(ST_DOES_NOT_FIT,
                    "%s: the scratch space of kernel '%s' overflows 63 bits: make its tensors "
                    "smaller",
                    ir_node_label(graph, n), kernel);
    return ST_OK;
}

st_status_t compile_choose_program(compile_context_t *context, plan_program_t *program) {
    const ir_graph_t *graph = program->graph;
    st_arena_t scratch = {0};
    st_status_t status = ST_OK;
    uint32_t n_tickets = 0;
    program->steps = st_arena_array(&context->plan->arena, graph->nodes.n, sizeof *program->steps);
    if (!program->steps) return st_no_memory(graph->nodes.n * sizeof *program->steps, "the steps");
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(graph, n);
        plan_step_t *step = &program->steps[n];
        step->kind = step_kind(graph, node);
        if (step->kind == PLAN_STEP_START) step->ticket = n_tickets++;
        if (step->kind == PLAN_STEP_START && plan_has_stages(context->plan))
            step->workspace.bytes = plan_stage_bytes(graph, n);
        if (step->kind == PLAN_STEP_WAIT)
            step->ticket = program->steps[graph->values.data[node->inputs[0]].producer].ticket;
        if (step->kind == PLAN_STEP_KERNEL) TRY_GOTO(choose(context, program, n, &scratch), done);
        if (step->kind != PLAN_STEP_REGION) continue;
        status = compile_plan_bodies(context, node, step);
        if (status != ST_OK) {
            st_error_context(status, "in %s", ir_node_label(graph, n));
            goto done;
        }
    }
done:
    st_arena_clear(&scratch);
    return status;
}

st_status_t compile_choose_kernels(compile_context_t *context) {
    for (uint32_t p = 0; p < context->plan->n_programs; p++)
        TRY(compile_choose_program(context, &context->plan->programs[p]));
    return ST_OK;
}
