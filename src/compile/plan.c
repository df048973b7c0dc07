/* Life of a plan, and lookups in it. */
#include "compile/plan.h"

#include "base/memory.h"

void plan_destroy(plan_t *plan) {
    if (!plan) return;
    for (uint32_t p = 0; p < plan->n_programs; p++) ir_graph_destroy(plan->programs[p].graph);
    ir_graph_destroy(plan->source);
    st_arena_clear(&plan->arena);
    st_free(plan);
}

const plan_place_t *plan_state_place(const plan_program_t *program, const char *name) {
    ir_node_t node = ir_graph_find(program->graph, name);
    if (node == IR_NONE) return NULL;
    const ir_node_info_t *info = ir_node(program->graph, node);
    if (!(ir_op_def(info->op)->flags & IR_STATE)) return NULL;
    return &program->places[info->first_output];
}
