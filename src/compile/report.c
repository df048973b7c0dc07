/* Figures of a plan (report.h).
 *
 * Memory of `work` is told at the step where most bytes are alive, from the same storages that the
 * planner packed. A storage's kind is decided by who makes and who reads it: forward to backward is
 * a kept activation, backward to optimizer a gradient. What packing leaves between the pieces at
 * that moment are gaps. Linear, but for sorting the lists. */
#include "compile/report.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "compile/plan_stage.h"
#include "compile/predict.h"
#include "compile/simulate.h"
#include "ir/body.h"
#include "ir/node_ctx.h"
#include "schedule/storage.h"

enum { MOST_TENSORS = 64 }; /* that the report lists */

static const struct {
    const char *text;
    plan_region_t region;
} kinds[REPORT_KINDS] = {
    [REPORT_PARAMETERS] = {"parameters", PLAN_STATE},
    [REPORT_BUFFERS] = {"buffers", PLAN_STATE},
    [REPORT_MOMENTS] = {"moments", PLAN_STATE},
    [REPORT_INPUTS] = {"inputs", PLAN_WORK},
    [REPORT_CONSTANTS] = {"constants", PLAN_WORK},
    [REPORT_ACTIVATIONS] = {"activations", PLAN_WORK},
    [REPORT_GRADIENTS] = {"gradients", PLAN_WORK},
    [REPORT_OUTPUTS] = {"outputs", PLAN_WORK},
    [REPORT_WORKSPACE] = {"workspace", PLAN_WORK},
    [REPORT_TEMPORARIES] = {"temporaries", PLAN_WORK},
    [REPORT_GAPS] = {"gaps", PLAN_WORK},
    [REPORT_COMM] = {"collectives", PLAN_COMM},
    [REPORT_FEEDS] = {"next inputs", PLAN_FEEDS},
};

const char *report_kind_text(report_kind_t kind) {
    return kinds[kind].text;
}
plan_region_t report_kind_region(report_kind_t kind) {
    return kinds[kind].region;
}

typedef struct making {
    const plan_t *plan;
    const plan_program_t *program;
    const target_t *target;
    report_t *report;
    sched_memory_t memory;
    report_kind_t *kind_of;        /* [storages] */
    ir_node_t *workspace_ends;     /* [nodes] */
    ir_cost_t *costs;              /* [nodes] */
    double products[IR_DTYPE_END]; /* FLOP of products by element type */
} making_t;

static uint64_t aligned(uint64_t bytes) {
    return (bytes + PLAN_ALIGNMENT - 1) / PLAN_ALIGNMENT * PLAN_ALIGNMENT;
}

/* ---- kinds ---- */

static bool begins(const char *name, const char *prefix) {
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

static report_kind_t state_kind(const ir_node_info_t *node) {
    if (node->op == IR_OP_PARAMETER) return REPORT_PARAMETERS;
    return begins(node->name, "optim.") || begins(node->name, "ema.") ? REPORT_MOMENTS
                                                                      : REPORT_BUFFERS;
}

/* Who makes and who reads values of the storage, as bits of their phases. */
typedef struct users {
    uint8_t made, read;
    bool fetched;
} users_t;

static report_kind_t work_kind(const ir_graph_t *graph, const sched_storage_t *s,
                               const users_t *u) {
    const uint8_t forward = 1 << IR_PHASE_FORWARD, backward = 1 << IR_PHASE_BACKWARD;
    const uint8_t optimizer = 1 << IR_PHASE_OPTIMIZER;
    ir_op_t op = ir_value_producer(graph, s->first)->op;
    if (op == IR_OP_INPUT) return REPORT_INPUTS;
    if (ir_op_is_lasting(op)) return REPORT_CONSTANTS;
    if (u->made & backward && u->read & optimizer) return REPORT_GRADIENTS;
    if (u->made & forward && u->read & backward) return REPORT_ACTIVATIONS;
    return u->fetched ? REPORT_OUTPUTS : REPORT_TEMPORARIES;
}

static st_status_t find_kinds(making_t *m) {
    const ir_graph_t *graph = m->program->graph;
    uint32_t n = m->memory.n_storages;
    users_t *users = st_calloc(n, sizeof *users);
    m->kind_of = st_calloc(n, sizeof *m->kind_of);
    if (!users || !m->kind_of) {
        st_free(users);
        return st_no_memory(n * sizeof *users, "a report");
    }
    for (ir_node_t i = 0; i < graph->nodes.n; i++) {
        const ir_node_info_t *node = ir_node(graph, i);
        uint8_t phase = (uint8_t)(1 << node->phase);
        if (ir_op_def(node->op)->flags & IR_VIEW) continue;
        for (uint32_t j = 0; j < node->n_inputs; j++)
            users[m->memory.storage_of[node->inputs[j]]].read |= phase;
        for (uint32_t k = 0; k < node->n_outputs; k++)
            users[m->memory.storage_of[node->first_output + k]].made |= phase;
    }
    for (size_t o = 0; o < graph->outputs.n; o++)
        users[m->memory.storage_of[graph->outputs.data[o].value]].fetched = true;
    for (uint32_t s = 0; s < n; s++) {
        const sched_storage_t *storage = &m->memory.storages[s];
        if (storage->kind == SCHED_STATE)
            m->kind_of[s] = state_kind(ir_value_producer(graph, storage->first));
        else
            m->kind_of[s] =
                storage->kind == SCHED_COMM ? REPORT_COMM : work_kind(graph, storage, &users[s]);
    }
    st_free(users);
    return ST_OK;
}

/* ---- memory ---- */

/* The first step with the most live bytes of `work`. */
static st_status_t find_peak(const making_t *m, uint32_t *out_peak) {
    size_t n = m->program->graph->nodes.n;
    int64_t *change = st_calloc(n + 2, sizeof *change), live = 0, most = -1;
    *out_peak = 0;
    if (!change) return st_no_memory(n * sizeof *change, "a report");
    for (size_t i = 0; i < n; i++) {
        const int64_t bytes = (int64_t)aligned(m->program->steps[i].workspace.bytes);
        change[i] += bytes;
        change[m->workspace_ends[i] + 1] -= bytes;
    }
    for (uint32_t s = 0; s < m->memory.n_storages; s++) {
        const sched_storage_t *storage = &m->memory.storages[s];
        if (storage->kind != SCHED_WORK) continue;
        change[storage->begin > 0 ? storage->begin : 0] += (int64_t)aligned(storage->bytes);
        change[storage->end < (int64_t)n ? storage->end + 1 : (int64_t)n + 1] -=
            (int64_t)aligned(storage->bytes);
    }
    for (size_t i = 0; i < n; i++) {
        live += change[i];
        if (live > most) {
            most = live;
            *out_peak = (uint32_t)i;
        }
    }
    st_free(change);
    return ST_OK;
}

static int by_bytes(const void *a, const void *b) {
    const report_tensor_t *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    return (x->from > y->from) - (x->from < y->from);
}

static const char *label(making_t *m, ir_node_t n) {
    const ir_node_info_t *node = ir_node(m->program->graph, n);
    if (node->name[0]) return st_arena_strdup(&m->report->arena, node->name);
    return st_arena_printf(&m->report->arena, "%s %u", ir_op_def(node->op)->name, n);
}

static st_status_t list_tensors(making_t *m) {
    report_t *r = m->report;
    const ir_graph_t *graph = m->program->graph;
    int64_t at = r->peak_step, end = (int64_t)graph->nodes.n - 1;
    r->tensors =
        st_arena_array(&r->arena, m->memory.n_storages + graph->nodes.n, sizeof *r->tensors);
    if (!r->tensors) return st_no_memory(m->memory.n_storages * sizeof *r->tensors, "a report");
    for (uint32_t s = 0; s < m->memory.n_storages; s++) {
        const sched_storage_t *storage = &m->memory.storages[s];
        bool alive = storage->begin <= at && at <= storage->end;
        r->kind_bytes[m->kind_of[s]] +=
            storage->kind != SCHED_WORK || alive ? aligned(storage->bytes) : 0;
        if (storage->kind != SCHED_WORK || !alive || !storage->bytes) continue;
        report_tensor_t *t = &r->tensors[r->n_tensors++];
        *t = (report_tensor_t){label(m, graph->values.data[storage->first].producer),
                               *ir_value_type(graph, storage->first),
                               m->kind_of[s],
                               storage->bytes,
                               (uint32_t)(storage->begin > 0 ? storage->begin : 0),
                               (uint32_t)(storage->end < end ? storage->end : end)};
        if (!t->what) return st_no_memory(0, "a report");
    }
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        const plan_step_t *step = &m->program->steps[n];
        if (!step->workspace.bytes || n > at || m->workspace_ends[n] < at) continue;
        report_tensor_t *t = &r->tensors[r->n_tensors++];
        const char *node = label(m, n), *what = step->kernel ? step->kernel : "bodies";
        if (!node) return st_no_memory(0, "a report");
        *t = (report_tensor_t){
            st_arena_printf(&r->arena, "%s: %s", node,
                            step->kind == PLAN_STEP_START ? "parts laid out" : what),
            ir_type_make(IR_U8, 1, (int64_t[]){(int64_t)step->workspace.bytes}),
            REPORT_WORKSPACE,
            step->workspace.bytes,
            n,
            m->workspace_ends[n]};
        if (!t->what) return st_no_memory(0, "a report");
        r->kind_bytes[REPORT_WORKSPACE] += aligned(step->workspace.bytes);
    }
    if (r->n_tensors) qsort(r->tensors, r->n_tensors, sizeof *r->tensors, by_bytes);
    if (r->n_tensors > MOST_TENSORS) r->n_tensors = MOST_TENSORS;
    return ST_OK;
}

static st_status_t tell_memory(making_t *m) {
    report_t *r = m->report;
    for (int region = PLAN_STATE; region < PLAN_REGION_END; region++) {
        r->region_bytes[region] = m->program->region_bytes[region];
        r->total_bytes += m->program->region_bytes[region];
    }
    r->live_bound_bytes = m->program->live_bound_bytes;
    r->capacity_bytes = m->target->machine.memory_bytes;
    if (!m->program->graph->nodes.n) return ST_OK;
    m->workspace_ends =
        st_arena_array(&r->arena, m->program->graph->nodes.n, sizeof *m->workspace_ends);
    if (!m->workspace_ends) return st_no_memory(m->program->graph->nodes.n * 4, "a report");
    plan_workspace_ends(m->program->graph, m->workspace_ends);
    TRY(find_kinds(m));
    TRY(find_peak(m, &r->peak_step));
    TRY(list_tensors(m));
    uint64_t work = 0, comm = 0;
    for (int k = 0; k < REPORT_KINDS; k++)
        work += kinds[k].region == PLAN_WORK ? r->kind_bytes[k] : 0;
    comm =
        r->region_bytes[PLAN_COMM]; /* buffers there share places too: the region itself is told */
    r->kind_bytes[REPORT_COMM] = comm;
    r->kind_bytes[REPORT_FEEDS] = r->region_bytes[PLAN_FEEDS];
    r->kind_bytes[REPORT_GAPS] = r->region_bytes[PLAN_WORK] - work;
    return ST_OK;
}

/* ---- time ---- */

static report_kernel_t *kernel_row(report_t *r, const char *name) {
    for (uint32_t i = 0; i < r->n_kernels; i++)
        if (strcmp(r->kernels[i].name, name) == 0) return &r->kernels[i];
    r->kernels[r->n_kernels].name = name;
    return &r->kernels[r->n_kernels++];
}

static int by_time(const void *a, const void *b) {
    const report_kernel_t *x = a, *y = b;
    if (x->us != y->us) return x->us > y->us ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* Whether a step moves elements to other places and does nothing else: a transpose, or a nest of
 * transposes. */
static bool only_permutes(const ir_node_info_t *node) {
    bool permutes = node->op == IR_OP_TRANSPOSE;
    if (node->op != IR_OP_FUSED) return permutes;
    const ir_graph_t *body = ir_node_attr(node, "body")->graph;
    for (ir_node_t n = 0; n < body->nodes.n; n++) {
        const ir_node_info_t *inner = ir_node(body, n);
        if (inner->op == IR_OP_INPUT || (ir_op_def(inner->op)->flags & IR_VIEW)) continue;
        if (!only_permutes(inner)) return false;
        permutes = true;
    }
    return permutes;
}

/* Steps of one program or body, as often as they run. */
typedef struct telling {
    making_t *m;
    const plan_program_t *program;
    const ir_cost_t *costs; /* [nodes] */
    double times;
} telling_t;

static void tell_refusals(const telling_t *t, ir_node_t n, report_kernel_t *row) {
    char text[384] = "";
    ir_node_ctx_t ctx;
    if (ir_node_ctx_open(&ctx, t->program->graph, n) == ST_OK) {
        target_refusals(t->m->target, &ctx.op, ctx.out, text, sizeof text);
        ir_node_ctx_close(&ctx);
    }
    row->refusals = st_arena_strdup(&t->m->report->arena, text);
    if (!row->refusals) row->refusals = "";
}

static void tell_step(const telling_t *t, ir_node_t n) {
    report_t *r = t->m->report;
    const ir_graph_t *graph = t->program->graph;
    const ir_node_info_t *node = ir_node(graph, n);
    const ir_cost_t *cost = &t->costs[n];
    const plan_step_t *step = &t->program->steps[n];
    double *phases[IR_PHASE_END] = {&r->us_forward, &r->us_backward, &r->us_optimizer};
    double bytes = (cost->bytes_read + cost->bytes_written) * t->times;
    if (step->kind == PLAN_STEP_START) {
        r->n_collectives++;
        return;
    }
    *phases[node->phase] += cost->us * t->times;
    if (step->kind == PLAN_STEP_KERNEL) r->n_launches += (uint64_t)t->times;
    r->flop += cost->flop * t->times;
    r->product_flop += cost->product_flop * t->times;
    r->bytes_moved += bytes;
    if (node->n_inputs)
        t->m->products[ir_value_type(graph, node->inputs[0])->dtype] +=
            cost->product_flop * t->times;
    if (only_permutes(node)) r->bytes_layout_copied += bytes;
    if (!cost->kernel) return;
    report_kernel_t *row = kernel_row(r, cost->kernel);
    if (!row->n_calls) tell_refusals(t, n, row);
    row->n_calls += (uint64_t)t->times;
    row->us += cost->us * t->times;
    row->flop += cost->flop * t->times;
    row->bytes += bytes;
    if (strcmp(cost->limit, "memory") == 0) row->memory_us += cost->us * t->times;
}

static st_status_t tell_region(const telling_t *outer, ir_node_t n);

static st_status_t tell_steps(const telling_t *t) {
    for (ir_node_t n = 0; n < t->program->graph->nodes.n; n++) {
        if (t->program->steps[n].kind == PLAN_STEP_REGION)
            TRY(tell_region(t, n));
        else if (t->program->steps[n].kind != PLAN_STEP_NOTHING)
            tell_step(t, n);
    }
    return ST_OK;
}

static double sum_us(const ir_cost_t *costs, size_t n) {
    double us = 0;
    for (size_t i = 0; i < n; i++) us += costs[i].us;
    return us;
}

/* The steps of a body; of two bodies the dearer one's, as in predictions. */
static st_status_t tell_region(const telling_t *outer, ir_node_t n) {
    const plan_step_t *step = &outer->program->steps[n];
    const ir_region_info_t info = ir_region_info(ir_node(outer->program->graph, n));
    ir_cost_t *costs[IR_MAX_BODIES] = {NULL};
    st_status_t status = ST_OK;
    uint32_t dearer = 0;
    double most = -1;
    for (uint32_t b = 0; b < step->n_bodies; b++) {
        const plan_program_t *body = &step->bodies[b];
        const size_t nodes = body->graph->nodes.n;
        costs[b] = st_calloc(nodes + 1, sizeof *costs[b]);
        if (!costs[b]) TRY_GOTO(st_no_memory(nodes * sizeof *costs[b], "a report"), done);
        TRY_GOTO(predict_turn(outer->m->target, body, costs[b]), done);
        const double us = sum_us(costs[b], nodes);
        if (us > most) dearer = b, most = us;
    }
    if (step->n_bodies) {
        const telling_t inner = {outer->m, &step->bodies[dearer], costs[dearer],
                                 outer->times * (double)info.trip};
        status = tell_steps(&inner);
    }
done:
    for (uint32_t b = 0; b < IR_MAX_BODIES; b++) st_free(costs[b]);
    return status;
}

/* Steps of a program and of the bodies in it. */
static size_t count_steps(const plan_program_t *program) {
    size_t n = program->graph->nodes.n;
    for (ir_node_t i = 0; i < program->graph->nodes.n; i++)
        for (uint32_t b = 0; b < program->steps[i].n_bodies; b++)
            n += count_steps(&program->steps[i].bodies[b]);
    return n;
}

static st_status_t count_products(const ir_graph_t *graph, double *out_flop) {
    *out_flop = 0;
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        ir_cost_t cost;
        ir_target_t none = {.cost = target_work_only};
        TRY(ir_target_cost(&none, graph, n, &cost));
        *out_flop += cost.product_flop;
    }
    return ST_OK;
}

static st_status_t tell_overlap(making_t *m, uint32_t rank) {
    report_t *r = m->report;
    simulation_t *simulation;
    TRY(simulate_plan(m->plan, m->target, &simulation));
    r->us = simulation->ranks[rank].step_us;
    r->us_link = simulation->ranks[rank].link_us;
    r->us_exposed = simulation->ranks[rank].exposed_us;
    r->us_peers = simulation->ranks[rank].peers_us;
    simulate_destroy(simulation);
    return ST_OK;
}

static st_status_t tell_time(making_t *m, uint32_t rank) {
    report_t *r = m->report;
    const uint32_t program = m->plan->program_of[rank];
    const ir_graph_t *graph = m->program->graph;
    const size_t n_steps = count_steps(m->program);
    ir_dtype_t most = IR_F32;
    m->costs = st_calloc(graph->nodes.n, sizeof *m->costs);
    r->kernels = st_arena_array(&r->arena, n_steps, sizeof *r->kernels);
    if (!m->costs || !r->kernels) return st_no_memory(n_steps * sizeof *m->costs, "a report");
    TRY(predict_steps(m->plan, m->target, program, m->costs));
    TRY(tell_steps(&(telling_t){m, m->program, m->costs, 1}));
    for (uint32_t k = 0; k < r->n_kernels; k++) { /* names outlive the plan */
        r->kernels[k].name = st_arena_strdup(&r->arena, r->kernels[k].name);
        if (!r->kernels[k].name) return st_no_memory(0, "a report");
    }
    if (r->n_kernels) qsort(r->kernels, r->n_kernels, sizeof *r->kernels, by_time);
    TRY(tell_overlap(m, rank));
    for (int d = 1; d < IR_DTYPE_END; d++)
        if (m->products[d] > m->products[most]) most = (ir_dtype_t)d;
    r->peak_gflops = target_peak_gflops(m->target, most);
    TRY(count_products(m->plan->source, &r->model_flop));
    r->model_flop /= m->plan->n_ranks;
    return ST_OK;
}

/* ---- entry ---- */

void report_destroy(report_t *report) {
    if (!report) return;
    st_arena_clear(&report->arena);
    st_free(report);
}

static const uint32_t NO_RANK = UINT32_MAX; /* memory only */

static st_status_t make(const plan_t *plan, const target_t *target, uint32_t program, uint32_t rank,
                        report_t **out_report) {
    making_t m = {.plan = plan, .program = &plan->programs[program], .target = target};
    *out_report = NULL;
    TRY(sched_storages(m.program->graph, &m.memory));
    m.report = st_calloc(1, sizeof *m.report);
    st_status_t status = m.report ? ST_OK : st_no_memory(sizeof *m.report, "a report");
    if (status == ST_OK) {
        m.report->target = st_arena_strdup(&m.report->arena, target->machine.name);
        if (!m.report->target) status = st_no_memory(0, "a report");
    }
    if (status == ST_OK) status = tell_memory(&m);
    if (status == ST_OK && rank != NO_RANK) status = tell_time(&m, rank);
    sched_memory_free(&m.memory);
    st_free(m.kind_of);
    st_free(m.costs);
    if (status == ST_OK)
        *out_report = m.report;
    else
        report_destroy(m.report);
    return status;
}

st_status_t report_memory(const plan_t *plan, const target_t *target, uint32_t program,
                          report_t **out_report) {
    return make(plan, target, program, NO_RANK, out_report);
}

st_status_t report_make(const plan_t *plan, const target_t *target, uint32_t rank,
                        report_t **out_report) {
    *out_report = NULL;
    if (rank >= plan->n_ranks)
        return FAIL(ST_INVALID, "there is no rank %u: the plan has %u", rank, plan->n_ranks);
    return make(plan, target, plan->program_of[rank], rank, out_report);
}
