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
    ir_graph_destroy(plan->ports);
    fuse_report_destroy(plan->fusion);
    st_arena_clear(&plan->arena);
    st_free(plan);
}

const ir_graph_t *plan_ports(const plan_t *plan) {
    return plan->ports ? plan->ports : plan->programs[0].graph;
}

/* The node of a port, from the first program that has it. */
static st_status_t add_port(plan_t *plan, const char *name) {
    for (uint32_t p = 0; p < plan->n_programs; p++) {
        const ir_graph_t *graph = plan->programs[p].graph;
        ir_node_t n = ir_graph_find(graph, name);
        if (n == IR_NONE || ir_node(graph, n)->n_inputs) continue;
        ir_value_t *map = st_calloc(graph->values.n, sizeof *map);
        if (!map) return st_no_memory(graph->values.n * sizeof *map, "a plan");
        st_status_t status = ir_graph_clone_node(plan->ports, graph, n, NULL, map);
        st_free(map);
        return status;
    }
    return ST_OK; /* the check of the plan says so */
}

static st_status_t add_aliases(plan_t *plan) {
    for (uint32_t p = 0; p < plan->n_programs; p++) {
        const ir_graph_t *graph = plan->programs[p].graph;
        for (size_t i = 0; i < graph->aliases.n; i++) {
            const ir_alias_t *alias = &graph->aliases.data[i];
            bool known = false;
            for (size_t k = 0; k < plan->ports->aliases.n; k++)
                known |= strcmp(plan->ports->aliases.data[k].name, alias->name) == 0;
            if (!known) TRY(ir_graph_append_alias(plan->ports, alias->name, alias->stored));
        }
    }
    return ST_OK;
}

st_status_t plan_make_ports(plan_t *plan) {
    bool differ = false;
    for (uint32_t i = 0; i < plan->n_inputs + plan->n_states; i++) {
        const char *name =
            i < plan->n_inputs ? plan->inputs[i].name : plan->states[i - plan->n_inputs].name;
        differ |= ir_graph_find(plan->programs[0].graph, name) == IR_NONE;
    }
    if (!differ) return ST_OK;
    TRY(ir_graph_create("", &plan->ports));
    for (uint32_t i = 0; i < plan->n_inputs; i++) TRY(add_port(plan, plan->inputs[i].name));
    for (uint32_t i = 0; i < plan->n_states; i++) TRY(add_port(plan, plan->states[i].name));
    return add_aliases(plan);
}

const plan_port_t *plan_state(const plan_t *plan, const char *name) {
    const ir_graph_t *graph = plan_ports(plan);
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
