/* Text view of a plan: what is fed and delivered, the memory, and each program step by step. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "compile/plan.h"

typedef struct writer {
    st_text_t text;
    st_status_t status;
} writer_t;

/* The first failure stays. */
#define put(w, ...) \
    ((w)->status = (w)->status != ST_OK ? (w)->status : st_text_put(&(w)->text, __VA_ARGS__))

static const char *const region_names[PLAN_REGION_END] = {"nowhere", "state", "work", "comm",
                                                          "feeds"};
static const char *const step_names[] = {"-", "kernel", "copy", "start", "wait", "region"};

static void put_place(writer_t *w, const plan_place_t *place) {
    if (place->region == PLAN_NOWHERE)
        put(w, " -");
    else
        put(w, " %s+%llu", region_names[place->region], (unsigned long long)place->offset);
}

static void put_port(writer_t *w, const plan_t *plan, const char *what, const plan_port_t *port) {
    char type[IR_TYPE_TEXT_BYTES];
    put(w, "%s \"%s\" %s", what, port->name, ir_type_text(&port->type, type, sizeof type));
    for (uint32_t a = 0; a < plan->mesh.n; a++) {
        const ir_placement_t *p = &port->placements[a];
        if (p->kind != IR_SPLIT) continue;
        put(w, " split dim %d", (int)p->dim);
        if (p->granules != IR_GRANULES_EACH) put(w, " into %lld", (long long)p->granules);
        if (plan->mesh.n > 1) put(w, " over %s", plan->mesh.axes[a].name);
    }
    put(w, "\n");
}

static bool is_split(const plan_t *plan, const plan_port_t *port) {
    for (uint32_t a = 0; a < plan->mesh.n; a++)
        if (port->placements[a].kind == IR_SPLIT) return true;
    return false;
}

static void put_step(writer_t *w, const plan_program_t *program, ir_node_t n, int depth) {
    const ir_graph_t *graph = program->graph;
    const ir_node_info_t *node = ir_node(graph, n);
    const plan_step_t *step = &program->steps[n];
    put(w, "%*s%4u %-6s %s", 2 + 4 * depth, "", n, step_names[step->kind],
        ir_op_def(node->op)->name);
    if (node->name[0]) put(w, " '%s'", node->name);
    for (uint32_t j = 0; j < node->n_inputs; j++)
        put(w, "%s%%%u", j ? ", " : " (", node->inputs[j]);
    if (node->n_inputs) put(w, ")");
    for (uint32_t k = 0; k < node->n_outputs; k++) {
        char type[IR_TYPE_TEXT_BYTES];
        ir_value_t v = node->first_output + k;
        put(w, "%s %%%u %s", k ? "," : " ->", v,
            ir_type_text(ir_value_type(graph, v), type, sizeof type));
        put_place(w, &program->places[v]);
    }
    if (step->kernel) put(w, "  %s", step->kernel);
    if (step->workspace.bytes) {
        put(w, " scratch");
        put_place(w, &step->workspace);
        put(w, ":%llu", (unsigned long long)step->workspace.bytes);
    }
    if (step->kind == PLAN_STEP_START || step->kind == PLAN_STEP_WAIT) put(w, " #%u", step->ticket);
    put(w, "\n");
    for (uint32_t i = 0; i < step->n_bodies; i++) {
        const plan_program_t *inner = &step->bodies[i];
        put(w, "%*sbody %u: work %llu bytes (bound %llu)\n", 6 + 4 * depth, "", i,
            (unsigned long long)inner->region_bytes[PLAN_WORK],
            (unsigned long long)inner->live_bound_bytes);
        for (ir_node_t m = 0; m < inner->graph->nodes.n; m++) put_step(w, inner, m, depth + 1);
    }
}

/* What packing loses: of the work region, above the most bytes alive at one time. */
static double gap_percent(const plan_program_t *program) {
    uint64_t bound = program->live_bound_bytes, bytes = program->region_bytes[PLAN_WORK];
    return bound ? 100.0 * ((double)bytes - (double)bound) / (double)bound : 0;
}

st_status_t plan_print(const plan_t *plan, char **out_text) {
    *out_text = NULL;
    writer_t w = {0};
    put(&w, "plan version %d, key %016llx, graph \"%s\" %016llx\n", PLAN_VERSION,
        (unsigned long long)plan_key(plan), plan->source->name,
        (unsigned long long)plan->graph_hash);
    char mesh[IR_MESH_TEXT_BYTES];
    put(&w, "device %s, %u ranks, %u threads a rank\n", plan->device, plan->n_ranks,
        plan->n_threads);
    if (plan->mesh.n > 1) put(&w, "mesh %s\n", ir_mesh_text(&plan->mesh, mesh, sizeof mesh));
    for (uint32_t i = 0; i < plan->n_options; i++)
        put(&w, "option %s = %s\n", plan->options[i].key, plan->options[i].value);
    for (uint32_t i = 0; i < plan->n_inputs; i++) put_port(&w, plan, "input", &plan->inputs[i]);
    for (uint32_t i = 0; i < plan->n_outputs; i++) put_port(&w, plan, "output", &plan->outputs[i]);
    for (uint32_t i = 0; i < plan->n_states; i++)
        if (is_split(plan, &plan->states[i])) put_port(&w, plan, "state", &plan->states[i]);
    const plan_recompute_t *again = &plan->recompute;
    if (again->n_nodes)
        put(&w, "recomputed %u nodes (%u products), %llu bytes not kept, %.3g flop, %+.1f us\n",
            again->n_nodes, again->n_products, (unsigned long long)again->freed_bytes, again->flop,
            again->extra_us);
    for (uint32_t p = 0; p < plan->n_programs; p++) {
        const plan_program_t *program = &plan->programs[p];
        put(&w, "program %u, ranks", p);
        for (uint32_t r = 0; r < plan->n_ranks; r++)
            if (plan->program_of[r] == p) put(&w, " %u", r);
        put(&w, "\n");
        for (int r = PLAN_STATE; r < PLAN_REGION_END; r++)
            if (r != PLAN_FEEDS || program->region_bytes[r])
                put(&w, "  %s %llu bytes", region_names[r],
                    (unsigned long long)program->region_bytes[r]);
        put(&w, "  (work bound %llu, gap %.2f %%)\n", (unsigned long long)program->live_bound_bytes,
            gap_percent(program));
        for (ir_node_t n = 0; n < program->graph->nodes.n; n++) put_step(&w, program, n, 0);
    }
    if (w.status != ST_OK) {
        size_t n = w.text.n;
        ST_VEC_FREE(&w.text);
        return st_no_memory(n, "the plan's text");
    }
    *out_text = w.text.data;
    return ST_OK;
}
