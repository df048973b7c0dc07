/* A plan's memory, played through (memory_model.h). */
#include "exec/memory_model.h"

#include <stdlib.h>
#include <string.h>

#include "ir/nest.h"

/* Contents are numbered: 0 is garbage, v + 1 the value v, n_values + v + 1 the new content of state
 * v. Places are multiples of a granule. */
enum { GRANULE = PLAN_ALIGNMENT };

typedef struct tape {
    const plan_program_t *program;
    const ir_graph_t *graph;
    uint32_t *cells[PLAN_REGION_END];
    uint32_t *content; /* [values]: what a reader of the value has to find */
    uint32_t *held;    /* [values]: what a state has to hold at the end */
} tape_t;

static uint64_t cells_of(uint64_t bytes) {
    return (bytes + GRANULE - 1) / GRANULE;
}

static bool place_is_inside(const tape_t *t, const plan_place_t *place) {
    if (place->region == PLAN_NOWHERE) return !place->bytes;
    return place->offset % GRANULE == 0 &&
           place->offset + place->bytes <= t->program->region_bytes[place->region];
}

static void fill(tape_t *t, const plan_place_t *place, uint32_t content) {
    if (place->region == PLAN_NOWHERE) return;
    for (uint64_t i = 0; i < cells_of(place->bytes); i++)
        t->cells[place->region][place->offset / GRANULE + i] = content;
}

static bool holds(const tape_t *t, const plan_place_t *place, uint32_t content) {
    if (place->region == PLAN_NOWHERE) return true;
    for (uint64_t i = 0; i < cells_of(place->bytes); i++)
        if (t->cells[place->region][place->offset / GRANULE + i] != content) return false;
    return true;
}

static bool finds(const tape_t *t, ir_value_t v) {
    return holds(t, &t->program->places[v], t->content[v]);
}

static void write_value(tape_t *t, ir_value_t v) {
    fill(t, &t->program->places[v], t->content[v]);
}

static bool lie_on_each_other(const plan_place_t *a, const plan_place_t *b) {
    return a->region == b->region && a->region != PLAN_NOWHERE && a->bytes && b->bytes &&
           a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

static bool nest_allows(const ir_node_info_t *fused, uint32_t k, uint32_t j) {
    nest_t *nest = NULL;
    const char *reason;
    bool allows = nest_build(ir_node_attr(fused, "body")->graph, &nest, &reason) == ST_OK && nest &&
                  nest_may_reuse(nest, k, j);
    nest_destroy(nest);
    return allows;
}

/* While a kernel runs: output over input where it goes element by element, nothing else. */
static bool operands_are_apart(const tape_t *t, ir_node_t n) {
    const ir_node_info_t *node = ir_node(t->graph, n);
    const ir_op_def_t *def = ir_op_def(node->op);
    const plan_place_t *scratch = &t->program->steps[n].workspace;
    for (uint32_t k = 0; k < node->n_outputs; k++) {
        const plan_place_t *out = &t->program->places[node->first_output + k];
        const ir_type_t *type = ir_value_type(t->graph, node->first_output + k);
        if (lie_on_each_other(out, scratch)) return false;
        for (uint32_t j = 0; j < node->n_inputs; j++) {
            const plan_place_t *in = &t->program->places[node->inputs[j]];
            const ir_type_t *in_type = ir_value_type(t->graph, node->inputs[j]);
            if (!lie_on_each_other(out, in)) continue;
            bool in_step = (def->flags & IR_ELEMENTWISE) || (k < 4 && def->reuse[k] == j + 1);
            if (node->op == IR_OP_FUSED) in_step = nest_allows(node, k, j);
            if (def->flags & IR_COLLECTIVE) in_step = node->op == IR_OP_ALL_REDUCE_START && j == k;
            bool same = in->offset == out->offset && in->bytes == out->bytes &&
                        ir_type_elements(type) == ir_type_elements(in_type);
            if (!in_step || !same) return false;
        }
    }
    for (uint32_t j = 0; j < node->n_inputs; j++)
        if (lie_on_each_other(scratch, &t->program->places[node->inputs[j]])) return false;
    return true;
}

/* What the workspace of a start holds until its wait. */
static uint32_t stage_content(const tape_t *t, ir_node_t start) {
    return 2 * (uint32_t)t->graph->values.n + start + 1;
}

static bool run_step(tape_t *t, ir_node_t n) {
    const ir_node_info_t *node = ir_node(t->graph, n);
    const plan_step_t *step = &t->program->steps[n];
    const plan_place_t *places = t->program->places;
    if (node->op == IR_OP_UPDATE) {
        ir_value_t state = node->inputs[0], made = node->inputs[1];
        if (!finds(t, made)) return false;
        t->held[state] = t->content[made];
        if (step->kind == PLAN_STEP_NOTHING) return true;
        if (lie_on_each_other(&places[state], &places[made])) return false;
        t->held[state] = (uint32_t)t->graph->values.n + state + 1;
        fill(t, &places[state], t->held[state]);
        return true;
    }
    for (uint32_t j = 0; j < node->n_inputs; j++)
        if (!finds(t, node->inputs[j])) return false;
    if (ir_op_def(node->op)->flags & IR_VIEW) {
        t->content[node->first_output] = t->content[node->inputs[0]];
        return finds(t, node->first_output);
    }
    if (step->kind == PLAN_STEP_WAIT) {
        const ir_node_info_t *start = ir_value_producer(t->graph, node->inputs[0]);
        const plan_place_t *stage =
            &t->program->steps[t->graph->values.data[node->inputs[0]].producer].workspace;
        if (ir_start_reads_input(ir_op_def(start->op)) && !finds(t, start->inputs[0])) return false;
        if (!holds(t, stage, stage_content(t, t->graph->values.data[node->inputs[0]].producer)))
            return false;
        for (uint32_t k = 0; k < node->n_outputs; k++) {
            const plan_place_t *in = &places[node->inputs[k]],
                               *out = &places[node->first_output + k];
            if (in->region != out->region || in->offset != out->offset) return false;
            write_value(t, node->first_output + k);
        }
        return true;
    }
    if (step->kind == PLAN_STEP_NOTHING) return true; /* whoever reads it will not find it */
    if (!operands_are_apart(t, n)) return false;
    fill(t, &step->workspace, step->kind == PLAN_STEP_START ? stage_content(t, n) : 0);
    for (uint32_t k = 0; k < node->n_outputs; k++) write_value(t, node->first_output + k);
    for (uint32_t k = 0; k < node->n_outputs; k++)
        if (!finds(t, node->first_output + k)) return false;
    if (step->kind == PLAN_STEP_START)
        for (uint32_t k = 0; k < node->n_outputs; k++)
            if (places[node->first_output + k].bytes &&
                places[node->first_output + k].region != PLAN_COMM)
                return false;
    return true;
}

static bool is_source(const ir_node_info_t *node) {
    return (ir_op_def(node->op)->flags & IR_STATE) || node->op == IR_OP_INPUT ||
           node->op == IR_OP_CONSTANT || node->op == IR_OP_AXIS_INDEX;
}

/* Whether the value is there when the step has ended; of an updated state, its new content. */
static bool lasts(const tape_t *t, ir_value_t v) {
    return holds(t, &t->program->places[v], t->held[v] ? t->held[v] : t->content[v]);
}

static bool play(tape_t *t) {
    const ir_graph_t *graph = t->graph;
    for (ir_value_t v = 0; v < graph->values.n; v++) {
        const plan_place_t *place = &t->program->places[v];
        t->content[v] = v + 1;
        if (!place_is_inside(t, place) || place->bytes != ir_type_bytes(ir_value_type(graph, v)))
            return false;
        if ((ir_op_def(ir_value_producer(graph, v)->op)->flags & IR_STATE) && place->bytes &&
            place->region != PLAN_STATE)
            return false;
    }
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        if (!place_is_inside(t, &t->program->steps[n].workspace)) return false;
        if (is_source(ir_node(graph, n))) write_value(t, ir_node(graph, n)->first_output);
    }
    for (ir_node_t n = 0; n < graph->nodes.n; n++)
        if (!is_source(ir_node(graph, n)) && !run_step(t, n)) return false;
    for (size_t o = 0; o < graph->outputs.n; o++)
        if (!lasts(t, graph->outputs.data[o].value)) return false;
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(graph, n);
        bool is_kept = is_source(node) && node->op != IR_OP_INPUT;
        if (is_kept && !lasts(t, node->first_output)) return false;
    }
    return true;
}

bool memory_model_runs(const plan_program_t *program) {
    tape_t t = {.program = program, .graph = program->graph};
    t.content = calloc(program->graph->values.n + 1, sizeof *t.content);
    t.held = calloc(program->graph->values.n + 1, sizeof *t.held);
    for (int r = PLAN_STATE; r < PLAN_REGION_END; r++)
        t.cells[r] = calloc(cells_of(program->region_bytes[r]) + 1, sizeof *t.cells[r]);
    bool runs = play(&t);
    for (int r = PLAN_STATE; r < PLAN_REGION_END; r++) free(t.cells[r]);
    free(t.content);
    free(t.held);
    return runs;
}
