/* The proof of plans against a judge of its own (memory_model.h): ten thousand plans of random
 * graphs are sound for both, and of the plans that someone has damaged, all of these six times, the
 * proof refuses every one that does not run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "exec/memory_model.h"
#include "exec/models.h"
#include "ir/verify.h"

enum { N_GRAPHS = 10000, FAULTS_EACH = 6 };

/* A program whose places, steps and graph a fault may change; the plan gets the old ones back. */
typedef struct patient {
    plan_t *plan;
    plan_program_t *program, healthy;
    unsigned *seed;
} patient_t;

static uint32_t below(patient_t *p, size_t n) {
    return (uint32_t)rand_r(p->seed) % (uint32_t)n;
}

static void *copy_of(const void *data, size_t bytes) {
    void *copy = malloc(bytes + 1);
    assert_non_null(copy);
    if (bytes) memcpy(copy, data, bytes);
    return copy;
}

static void open_patient(patient_t *p) {
    const ir_graph_t *graph = p->program->graph;
    p->healthy = *p->program;
    p->program->places = copy_of(p->healthy.places, graph->values.n * sizeof *p->program->places);
    p->program->steps = copy_of(p->healthy.steps, graph->nodes.n * sizeof *p->program->steps);
}

static void close_patient(patient_t *p) {
    if (p->program->graph != p->healthy.graph) ir_graph_destroy(p->program->graph);
    free(p->program->places);
    free(p->program->steps);
    *p->program = p->healthy;
}

/* A random value with memory in some region. */
static plan_place_t *some_place(patient_t *p) {
    for (int attempt = 0; attempt < 50; attempt++) {
        plan_place_t *place = &p->program->places[below(p, p->program->graph->values.n)];
        if (place->bytes) return place;
    }
    return NULL;
}

/* ---- faults: false where the program has nothing to damage ---- */

static bool shift_offset(patient_t *p) {
    plan_place_t *place = some_place(p);
    if (!place) return false;
    uint64_t by = PLAN_ALIGNMENT * (uint64_t)(1 + below(p, 4));
    place->offset = below(p, 2) && place->offset >= by ? place->offset - by : place->offset + by;
    return true;
}

static bool misalign(patient_t *p) {
    plan_place_t *place = some_place(p);
    if (place) place->offset += 4;
    return place != NULL;
}

static bool lie_on_another(patient_t *p) {
    plan_place_t *a = some_place(p), *b = some_place(p);
    if (!a || !b || a->region != b->region || a->offset == b->offset) return false;
    a->offset = b->offset;
    return true;
}

static bool trade_places(patient_t *p) {
    plan_place_t *a = some_place(p), *b = some_place(p);
    if (!a || !b || a->bytes != b->bytes || (a->region == b->region && a->offset == b->offset))
        return false;
    plan_place_t old = *a;
    *a = *b;
    *b = old;
    return true;
}

static bool shrink_region(patient_t *p) {
    plan_region_t region = (plan_region_t)(PLAN_STATE + (int)below(p, 3));
    if (!p->program->region_bytes[region]) return false;
    p->program->region_bytes[region] -= PLAN_ALIGNMENT;
    return true;
}

static bool change_region(patient_t *p) {
    plan_place_t *place = some_place(p);
    if (!place) return false;
    place->region = place->region == PLAN_WORK ? PLAN_COMM : PLAN_WORK;
    return true;
}

static bool change_size(patient_t *p) {
    plan_place_t *place = some_place(p);
    if (!place) return false;
    place->bytes = below(p, 2) ? place->bytes / 2 : place->bytes + 4;
    return true;
}

static bool other_update(patient_t *p) {
    for (int attempt = 0; attempt < 50; attempt++) {
        ir_node_t n = below(p, p->program->graph->nodes.n);
        plan_step_t *step = &p->program->steps[n];
        if (ir_node(p->program->graph, n)->op != IR_OP_UPDATE) continue;
        step->kind = step->kind == PLAN_STEP_COPY ? PLAN_STEP_NOTHING : PLAN_STEP_COPY;
        return true;
    }
    return false;
}

static bool drop_kernel(patient_t *p) {
    plan_step_t *step = &p->program->steps[below(p, p->program->graph->nodes.n)];
    if (step->kind != PLAN_STEP_KERNEL) return false;
    step->kind = PLAN_STEP_NOTHING;
    step->kernel = NULL;
    return true;
}

static bool scratch_on_a_value(patient_t *p) {
    ir_node_t n = below(p, p->program->graph->nodes.n);
    const ir_node_info_t *node = ir_node(p->program->graph, n);
    plan_step_t *step = &p->program->steps[n];
    if (step->kind != PLAN_STEP_KERNEL || !node->n_inputs) return false;
    step->workspace = p->program->places[node->inputs[below(p, node->n_inputs)]];
    return step->workspace.bytes > 0;
}

/* Moves node `from` to place `to` in the order, as far as data allows: the plan is one for another
 * order then. Updates move ahead of readers, starts behind what took their memory. */
static bool move_step(patient_t *p) {
    const ir_graph_t *graph = p->program->graph;
    uint32_t n = (uint32_t)graph->nodes.n, from = below(p, n), to = below(p, n);
    ir_node_t *order = malloc(n * sizeof *order);
    ir_graph_t *made = NULL;
    assert_non_null(order);
    for (uint32_t i = 0; i < n; i++) order[i] = i;
    for (uint32_t at = from; at != to;) {
        uint32_t next = to > at ? at + 1 : at - 1;
        ir_node_t early = order[at < next ? at : next], late = order[at < next ? next : at];
        bool needs = false;
        for (uint32_t j = 0; j < ir_node(graph, late)->n_inputs; j++)
            needs |= graph->values.data[ir_node(graph, late)->inputs[j]].producer == early;
        if (needs) break;
        ir_node_t moved = order[at];
        order[at] = order[next];
        order[next] = moved;
        at = next;
    }
    bool moves = false;
    ir_value_t v = 0;
    for (uint32_t i = 0; i < n; i++) {
        const ir_node_info_t *node = ir_node(graph, order[i]);
        moves |= order[i] != i;
        p->program->steps[i] = p->healthy.steps[order[i]];
        for (uint32_t k = 0; k < node->n_outputs; k++)
            p->program->places[v++] = p->healthy.places[node->first_output + k];
    }
    if (moves) assert_int_equal(ir_graph_rewrite(graph, order, NULL, NULL, &made), ST_OK);
    if (moves) p->program->graph = made;
    free(order);
    return moves;
}

typedef struct fault {
    const char *name;
    bool (*make)(patient_t *p);
} fault_t;

static const fault_t faults[] = {
    {"shifted offset", shift_offset},
    {"misaligned offset", misalign},
    {"one value on another", lie_on_another},
    {"two values in each other's places", trade_places},
    {"shrunk region", shrink_region},
    {"wrong region", change_region},
    {"wrong size", change_size},
    {"update by the other way", other_update},
    {"kernel left out", drop_kernel},
    {"scratch space on an operand", scratch_on_a_value},
    {"moved step", move_step},
};
enum { N_FAULTS = sizeof faults / sizeof faults[0] };

typedef struct tally {
    uint32_t made, harmful;
} tally_t;

static void damage(plan_t *plan, unsigned *seed, tally_t *tallies) {
    size_t kind = (size_t)rand_r(seed) % N_FAULTS;
    patient_t p = {.plan = plan, .seed = seed};
    p.program = &plan->programs[(uint32_t)rand_r(seed) % plan->n_programs];
    open_patient(&p);
    if (faults[kind].make(&p)) {
        bool runs = memory_model_runs(p.program), proved = plan_check(plan) == ST_OK;
        tallies[kind].made++;
        tallies[kind].harmful += !runs;
        if (proved && !runs) fail_msg("the proof does not see: %s", faults[kind].name);
    }
    close_patient(&p);
}

static void plans_are_sound_and_damage_is_found(void **state) {
    (void)state;
    tally_t tallies[N_FAULTS] = {{0, 0}};
    unsigned seed = 1;
    for (unsigned i = 0; i < N_GRAPHS; i++) {
        ir_graph_t *graph = model_random(i, 1 + i % 5, 3 + (int)(i % 24));
        compile_options_t options = {.n_ranks = 1 + i % 3,
                                     .bucket_bytes = i % 2 ? 1 : 4096,
                                     .reference_kernels = i % 7 == 0};
        plan_t *plan = compile_ok(graph, &options); /* which proves it */
        for (uint32_t p = 0; p < plan->n_programs; p++)
            if (!memory_model_runs(&plan->programs[p])) fail_msg("the plan of graph %u fails", i);
        for (int k = 0; k < FAULTS_EACH; k++) damage(plan, &seed, tallies);
        assert_int_equal(plan_check(plan), ST_OK); /* it is as it was */
        plan_destroy(plan);
        ir_graph_destroy(graph);
    }
    for (size_t k = 0; k < N_FAULTS; k++) {
        print_message("%-34s %5u made, %5u harmful\n", faults[k].name, tallies[k].made,
                      tallies[k].harmful);
        assert_true(tallies[k].harmful >= 100);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_are_sound_and_damage_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
