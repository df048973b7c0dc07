/* Life of a plan, and lookups in it. */
#include "compile/plan.h"

#include <string.h>

#include "base/memory.h"
#include "fusion/fuse.h"

static void destroy_graphs(plan_program_t *program) {
    for (size_t n = 0; program->graph && program->steps && n < program->graph->nodes.n; n++)
        for (uint32_t i = 0; i < program->steps[n].n_bodies; i++)
            destroy_graphs(&program->steps[n].bodies[i]);
    ir_graph_destroy(program->graph);
}

void plan_destroy(plan_t *plan) {
    if (!plan) return;
    for (uint32_t p = 0; p < plan->n_programs; p++) destroy_graphs(&plan->programs[p]);
    ir_graph_destroy(plan->source);
    fuse_report_destroy(plan->fusion);
    st_arena_clear(&plan->arena);
    st_free(plan);
}

const plan_port_t *plan_state(const plan_t *plan, const char *name) {
    const ir_graph_t *graph = plan->programs[0].graph;
    ir_node_t node = ir_graph_find(graph, name);
    for (uint32_t i = 0; node != IR_NONE && i < plan->n_states; i++)
        if (strcmp(plan->states[i].name, ir_node(graph, node)->name) == 0) return &plan->states[i];
    return NULL;
}

const plan_place_t *plan_state_place(const plan_program_t *program, const char *name) {
    ir_node_t node = ir_graph_find(program->graph, name);
    if (node == IR_NONE) return NULL;
    const ir_node_info_t *info = ir_node(program->graph, node);
    if (!(ir_op_def(info->op)->flags & IR_STATE)) return NULL;
    return &program->places[info->first_output];
}

uint64_t plan_feeds_bytes(const plan_program_t *program) {
    uint64_t bytes = 0;
    for (ir_node_t n = 0; n < program->graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(program->graph, n);
        if (node->op == IR_OP_INPUT)
            bytes = st_size_add(
                bytes, st_size_align(program->places[node->first_output].bytes, PLAN_ALIGNMENT));
    }
    return bytes;
}

bool plan_feeds_ahead(const plan_t *plan) {
    for (uint32_t p = 0; p < plan->n_programs; p++)
        if (plan->programs[p].region_bytes[PLAN_FEEDS]) return true;
    return false;
}

const char *plan_option(const plan_t *plan, const char *key) {
    for (uint32_t i = 0; i < plan->n_options; i++)
        if (strcmp(plan->options[i].key, key) == 0) return plan->options[i].value;
    return NULL;
}

const char *plan_target(const plan_t *plan) {
    const char *name = plan_option(plan, "target");
    return name ? name : "cpu";
}
