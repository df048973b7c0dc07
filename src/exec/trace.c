/* Timelines (trace.h): events go to the file as they come, figures are summed beside them. */
#include "exec/trace.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "compile/predict.h"
#include "compile/simulate.h"
#include "exec/internal.h"
#include "exec/trace_json.h"

enum { FEW_RANKS = 8, MOST_RANKS = 64, PLANNED = 1, PLANNED_LINK, MEASURED };
static const uint64_t MOST_BYTES = (uint64_t)256 << 20;

struct exec_trace {
    st_arena_t arena;
    const plan_t *plan;
    exec_session_t *session;
    target_t *target;
    simulation_t *simulation;
    trace_json_t json;
    uint32_t n_ranks, *ranks; /* in the file; the first has the figures */
    uint32_t n_left_out_ranks;
    ir_cost_t **costs; /* [programs]: NULL of programs that are not shown */
    double peak_gflops[IR_DTYPE_END], peak_gbps;
    double origin_us; /* host's clock at the begin of the first measured step */
    /* [nodes] of the figures' rank, on its compute stream: measured, summed over the steps;
     * planned. */
    double *node_us, *planned_us;
    double step_us, kernels_us;
    uint32_t n_measured, n_left_out;
    const char *clock;
    bool finished;
    size_t n_kernels, n_nodes;
    exec_trace_row_t *kernels, *nodes;
};

#define ARRAY(trace_, out, n)                                            \
    do {                                                                 \
        (out) = st_arena_array(&(trace_)->arena, (n), sizeof *(out));    \
        if (!(out)) return st_no_memory((n) * sizeof *(out), "a trace"); \
    } while (0)

/* ---- what nodes are and could do ---- */

static const plan_program_t *program_of(const exec_trace_t *t, uint32_t rank) {
    return &t->plan->programs[t->plan->program_of[rank]];
}

static double bytes_of(const ir_cost_t *cost) {
    return cost->bytes_read + cost->bytes_written;
}

static ir_dtype_t dtype_of(const ir_graph_t *graph, ir_node_t n) {
    const ir_node_info_t *node = ir_node(graph, n);
    ir_value_t v = node->n_inputs ? node->inputs[0] : node->first_output;
    return node->n_inputs || node->n_outputs ? ir_value_type(graph, v)->dtype : IR_F32;
}

static double roofline_us(const exec_trace_t *t, const plan_program_t *program, ir_node_t n,
                          const ir_cost_t *cost) {
    if (program->steps[n].kind == PLAN_STEP_START) return cost->us;
    double memory = bytes_of(cost) / t->peak_gbps * 1e-3;
    double peak = t->peak_gflops[dtype_of(program->graph, n)];
    return fmax(memory, peak > 0 ? cost->product_flop / peak * 1e-3 : 0);
}

/* What the slice is called: the kernel, else the op. */
static const char *title_of(const plan_program_t *program, ir_node_t n, const ir_cost_t *cost) {
    plan_step_kind_t kind = program->steps[n].kind;
    if ((kind == PLAN_STEP_KERNEL || kind == PLAN_STEP_COPY) && cost->kernel) return cost->kernel;
    return ir_op_def(ir_node(program->graph, n)->op)->name;
}

/* Of a collective as a whole: "all_reduce". `text` has TITLE_BYTES. */
enum { TITLE_BYTES = 48 };
static const char *collective_of(const plan_program_t *program, ir_node_t start, char *text) {
    const char *name = ir_op_def(ir_node(program->graph, start)->op)->name,
               *end = strrchr(name, '_');
    snprintf(text, TITLE_BYTES, "%.*s", end ? (int)(end - name) : TITLE_BYTES - 1, name);
    return text;
}

/* ---- preparing ---- */

static bool first_of_program(const plan_t *plan, uint32_t rank) {
    uint32_t r = 0;
    while (plan->program_of[r] != plan->program_of[rank]) r++;
    return r == rank;
}

static st_status_t choose_ranks(exec_trace_t *t, uint32_t rank) {
    const plan_t *plan = t->plan;
    if (rank != EXEC_TRACE_ALL && rank >= plan->n_ranks)
        return FAIL(ST_INVALID, "there is no rank %u: the plan has %u", rank, plan->n_ranks);
    ARRAY(t, t->ranks, MOST_RANKS);
    for (uint32_t r = 0; r < plan->n_ranks; r++) {
        bool shown = rank == EXEC_TRACE_ALL
                         ? plan->n_ranks <= FEW_RANKS || first_of_program(plan, r)
                         : r == rank;
        if (t->session && t->session->n_local < plan->n_ranks && rank == EXEC_TRACE_ALL)
            shown = exec_is_local(t->session, r); /* the others are other processes' to tell of */
        if (!shown) continue;
        if (t->n_ranks < MOST_RANKS)
            t->ranks[t->n_ranks++] = r;
        else
            t->n_left_out_ranks++;
    }
    return ST_OK;
}

static st_status_t prepare(exec_trace_t *t, uint32_t rank) {
    const plan_t *plan = t->plan;
    TRY(predict_target(plan, &t->target));
    TRY(simulate_plan(plan, t->target, &t->simulation));
    TRY(choose_ranks(t, rank));
    ARRAY(t, t->costs, plan->n_programs);
    for (uint32_t i = 0; i < t->n_ranks; i++) {
        uint32_t p = plan->program_of[t->ranks[i]];
        if (t->costs[p]) continue;
        ARRAY(t, t->costs[p], plan->programs[p].graph->nodes.n);
        TRY(predict_steps(plan, t->target, p, t->costs[p]));
    }
    for (int d = 0; d < IR_DTYPE_END; d++)
        t->peak_gflops[d] = target_peak_gflops(t->target, (ir_dtype_t)d);
    t->peak_gbps = target_peak_gbps(t->target);
    ARRAY(t, t->node_us, program_of(t, t->ranks[0])->graph->nodes.n);
    ARRAY(t, t->planned_us, program_of(t, t->ranks[0])->graph->nodes.n);
    t->clock = "none";
    return ST_OK;
}

/* ---- events ---- */

/* "0-3,7" of the ranks of a program, at most `capacity` with its end. */
static const char *list_ranks(const plan_t *plan, uint32_t program, char *text, size_t capacity) {
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t r = 0; r < plan->n_ranks; r++) {
        uint32_t first = r;
        if (plan->program_of[r] != program) continue;
        while (r + 1 < plan->n_ranks && plan->program_of[r + 1] == program) r++;
        if (used + 32 > capacity) return strcpy(text + used, ",…"), text;
        used += (size_t)snprintf(text + used, capacity - used, first == r ? "%s%u" : "%s%u-%u",
                                 used ? "," : "", first, r);
    }
    return text;
}

static void name_thread(exec_trace_t *t, uint32_t rank, uint32_t thread, const char *name) {
    trace_json_open(&t->json,
                    &(trace_json_event_t){"M", "thread_name", NULL, rank, thread, 0, 0, 0});
    trace_json_text(&t->json, "name", name);
    trace_json_close(&t->json);
    trace_json_open(&t->json,
                    &(trace_json_event_t){"M", "thread_sort_index", NULL, rank, thread, 0, 0, 0});
    trace_json_number(&t->json, "sort_index", thread);
    trace_json_close(&t->json);
}

static void name_rank(exec_trace_t *t, uint32_t rank) {
    char name[32], ranks[400];
    uint32_t program = t->plan->program_of[rank];
    snprintf(name, sizeof name, "rank %u", rank);
    trace_json_open(&t->json, &(trace_json_event_t){"M", "process_name", NULL, rank, 0, 0, 0, 0});
    trace_json_text(&t->json, "name", name);
    trace_json_close(&t->json);
    trace_json_open(&t->json, &(trace_json_event_t){"M", "process_labels", NULL, rank, 0, 0, 0, 0});
    trace_json_text(&t->json, "labels", list_ranks(t->plan, program, ranks, sizeof ranks));
    trace_json_number(&t->json, "program", program);
    trace_json_close(&t->json);
    name_thread(t, rank, PLANNED, "planned: compute");
    if (t->plan->n_ranks > 1) name_thread(t, rank, PLANNED_LINK, "planned: link");
    if (t->session) name_thread(t, rank, MEASURED, "measured: compute");
}

/* Arguments that both kinds of slices have. */
static void put_node(exec_trace_t *t, uint32_t rank, ir_node_t n) {
    const plan_program_t *program = program_of(t, rank);
    const ir_node_info_t *node = ir_node(program->graph, n);
    const ir_cost_t *cost = &t->costs[t->plan->program_of[rank]][n];
    trace_json_number(&t->json, "node", n);
    if (node->name[0]) trace_json_text(&t->json, "name", node->name);
    trace_json_text(&t->json, "op", ir_op_def(node->op)->name);
    trace_json_text(&t->json, "phase", ir_phase_text(node->phase));
    if (program->steps[n].kind == PLAN_STEP_WAIT) return;
    trace_json_number(&t->json, "bytes", bytes_of(cost));
    trace_json_number(&t->json, "flop", cost->flop);
    trace_json_number(&t->json, "predicted_us", cost->us);
    trace_json_number(&t->json, "roofline_us", roofline_us(t, program, n, cost));
    trace_json_text(&t->json, "limit", cost->limit ? cost->limit : "launch");
}

static void put_rates(exec_trace_t *t, const ir_cost_t *cost, double us) {
    if (!(us > 0)) return;
    if (bytes_of(cost) > 0) trace_json_number(&t->json, "gbps", bytes_of(cost) / us * 1e-3);
    if (cost->flop > 0) trace_json_number(&t->json, "gflops", cost->flop / us * 1e-3);
}

static void put_step(exec_trace_t *t, uint32_t rank, uint32_t thread, const char *name,
                     double begin, double end) {
    trace_json_open(&t->json,
                    &(trace_json_event_t){"X", name, "step", rank, thread, begin, end, 0});
    trace_json_number(&t->json, "us", end - begin);
    trace_json_close(&t->json);
}

static st_status_t put_planned(exec_trace_t *t, uint32_t rank) {
    const plan_program_t *program = program_of(t, rank);
    const ir_cost_t *costs = t->costs[t->plan->program_of[rank]];
    simulate_event_t *events;
    size_t n;
    TRY(simulate_events(t->simulation, t->plan, rank, costs, &n, &events));
    put_step(t, rank, PLANNED, "planned step", 0, t->simulation->ranks[rank].step_us);
    for (size_t i = 0; i < n; i++) {
        const simulate_event_t *e = &events[i];
        bool link = e->stream == SIMULATE_STREAM_LINK;
        if (!link && rank == t->ranks[0]) t->planned_us[e->node] = e->end_us - e->begin_us;
        char title[TITLE_BYTES];
        const char *name = link ? collective_of(program, e->node, title)
                                : title_of(program, e->node, &costs[e->node]);
        trace_json_event_t event = {"X", name, "planned", rank, PLANNED, e->begin_us, e->end_us, 0};
        if (link) event.category = "collective", event.thread = PLANNED_LINK;
        trace_json_open(&t->json, &event);
        put_node(t, rank, e->node);
        if (program->steps[e->node].kind != PLAN_STEP_WAIT)
            put_rates(t, &costs[e->node], e->end_us - e->begin_us);
        trace_json_close(&t->json);
    }
    st_free(events);
    return t->json.status;
}

/* A collective is in flight from the begin of its start to the end of its wait. */
static void put_flight(exec_trace_t *t, uint32_t rank, const exec_span_t *span, bool begins) {
    const plan_program_t *program = program_of(t, rank);
    const ir_node_info_t *node = ir_node(program->graph, span->node);
    ir_node_t start = begins ? span->node : program->graph->values.data[node->inputs[0]].producer;
    char title[TITLE_BYTES];
    const char *name = collective_of(program, start, title);
    int64_t id = ((int64_t)t->n_measured << 32 | rank << 20) + program->steps[start].ticket;
    double at = begins ? span->begin_us : span->end_us;
    trace_json_open(&t->json, &(trace_json_event_t){begins ? "b" : "e", name, "collective", rank,
                                                    MEASURED, at - t->origin_us, 0, id});
    if (begins) put_node(t, rank, start);
    trace_json_close(&t->json);
}

static void put_measured(exec_trace_t *t, uint32_t rank, const exec_measured_t *m) {
    const plan_program_t *program = program_of(t, rank);
    const ir_cost_t *costs = t->costs[t->plan->program_of[rank]];
    double zero = t->origin_us;
    char name[32];
    snprintf(name, sizeof name, "step %u", t->n_measured);
    put_step(t, rank, MEASURED, name, m->begin_us - zero, m->end_us - zero);
    put_step(t, rank, MEASURED, "inputs", m->begin_us - zero, m->program_begin_us - zero);
    for (size_t i = 0; i < m->n; i++) {
        const exec_span_t *span = &m->spans[i];
        const ir_cost_t *cost = &costs[span->node];
        plan_step_kind_t kind = program->steps[span->node].kind;
        double us = span->end_us - span->begin_us;
        if (kind == PLAN_STEP_START) put_flight(t, rank, span, true);
        trace_json_open(&t->json, &(trace_json_event_t){
                                      "X", title_of(program, span->node, cost), "measured", rank,
                                      MEASURED, span->begin_us - zero, span->end_us - zero, 0});
        put_node(t, rank, span->node);
        if (kind != PLAN_STEP_START && kind != PLAN_STEP_WAIT) put_rates(t, cost, us);
        trace_json_close(&t->json);
        if (kind == PLAN_STEP_WAIT) put_flight(t, rank, span, false);
    }
    put_step(t, rank, MEASURED, "outputs", m->program_end_us - zero, m->end_us - zero);
}

/* ---- entry ---- */

static st_status_t begin_file(exec_trace_t *t, const char *path) {
    if (path) TRY(st_writer_create(path, &t->json.writer));
    trace_json_put(&t->json, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[");
    for (uint32_t i = 0; i < t->n_ranks; i++) {
        name_rank(t, t->ranks[i]);
        TRY(put_planned(t, t->ranks[i]));
    }
    return t->json.status;
}

void exec_trace_destroy(exec_trace_t *t) {
    if (!t) return;
    if (t->session && !t->finished && exec_measure(t->session, false) != ST_OK) st_clear_error();
    st_writer_abandon(t->json.writer);
    simulate_destroy(t->simulation);
    target_destroy(t->target);
    st_arena_clear(&t->arena);
    st_free(t);
}

st_status_t exec_trace_create(const plan_t *plan, exec_session_t *session, const char *path,
                              uint32_t rank, exec_trace_t **out_trace) {
    *out_trace = NULL;
    exec_trace_t *t = st_calloc(1, sizeof *t);
    if (!t) return st_no_memory(sizeof *t, "a trace");
    t->plan = plan;
    t->session = session;
    st_status_t status = prepare(t, rank);
    if (status == ST_OK && session) status = exec_measure(session, true);
    if (status == ST_OK) status = begin_file(t, path);
    if (status == ST_OK)
        *out_trace = t;
    else
        exec_trace_destroy(t);
    return status;
}

static void sum_up(exec_trace_t *t, const exec_measured_t *m) {
    for (size_t i = 0; i < m->n; i++) {
        double us = m->spans[i].end_us - m->spans[i].begin_us;
        t->node_us[m->spans[i].node] += us;
        t->kernels_us += us;
    }
    t->step_us += m->end_us - m->begin_us;
    t->clock = !m->by_device ? "host"
               : m->replayed ? "device, in the recorded step"
                             : "device, step by step";
}

st_status_t exec_trace_add(exec_trace_t *t) {
    if (!t->session) return FAIL(ST_INVALID, "the trace has no session: nothing is measured");
    if (t->finished) return FAIL(ST_INVALID, "the trace is finished");
    TRY(exec_session_idle(t->session));
    exec_measured_t first = exec_last_measured(t->session, t->ranks[0]);
    if (!first.n) return ST_OK;
    if (!t->n_measured) {
        t->origin_us = first.begin_us;
        for (uint32_t i = 1; i < t->n_ranks; i++)
            t->origin_us = fmin(t->origin_us, exec_last_measured(t->session, t->ranks[i]).begin_us);
    }
    sum_up(t, &first);
    bool full = t->json.bytes > MOST_BYTES;
    for (uint32_t i = 0; i < t->n_ranks && !full; i++) {
        exec_measured_t m = exec_last_measured(t->session, t->ranks[i]);
        if (m.n) put_measured(t, t->ranks[i], &m);
    }
    t->n_measured++;
    t->n_left_out += full;
    return t->json.status;
}

/* ---- figures ---- */

static int by_time(const void *a, const void *b) {
    const exec_trace_row_t *x = a, *y = b;
    double left = x->measured_us > 0 || y->measured_us > 0 ? x->measured_us : x->predicted_us;
    double right = x->measured_us > 0 || y->measured_us > 0 ? y->measured_us : y->predicted_us;
    return left != right ? (left > right ? -1 : 1) : strcmp(x->name, y->name);
}
static int by_difference(const void *a, const void *b) {
    const exec_trace_row_t *x = a, *y = b;
    double left = fabs(x->measured_us - x->predicted_us);
    double right = fabs(y->measured_us - y->predicted_us);
    return left != right ? (left > right ? -1 : 1) : strcmp(x->name, y->name);
}

static exec_trace_row_t *row_of(exec_trace_t *t, const char *name) {
    for (size_t i = 0; i < t->n_kernels; i++)
        if (strcmp(t->kernels[i].name, name) == 0) return &t->kernels[i];
    t->kernels[t->n_kernels].name = name;
    return &t->kernels[t->n_kernels++];
}

static st_status_t make_rows(exec_trace_t *t) {
    const plan_program_t *program = program_of(t, t->ranks[0]);
    const ir_graph_t *graph = program->graph;
    const ir_cost_t *costs = t->costs[t->plan->program_of[t->ranks[0]]];
    ARRAY(t, t->kernels, graph->nodes.n);
    ARRAY(t, t->nodes, graph->nodes.n);
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        if (program->steps[n].kind == PLAN_STEP_NOTHING) continue;
        exec_trace_row_t *node = &t->nodes[t->n_nodes++];
        const char *title = title_of(program, n, &costs[n]);
        *node = (exec_trace_row_t){.name = st_arena_strdup(&t->arena, ir_node_label(graph, n)),
                                   .op = ir_op_def(ir_node(graph, n)->op)->name,
                                   .n_calls = 1,
                                   .measured_us = t->n_measured ? t->node_us[n] / t->n_measured : 0,
                                   .predicted_us = t->planned_us[n],
                                   .roofline_us = roofline_us(t, program, n, &costs[n]),
                                   .flop = costs[n].flop,
                                   .bytes = bytes_of(&costs[n])};
        if (program->steps[n].kind == PLAN_STEP_WAIT) node->bytes = node->roofline_us = 0;
        if (!node->name) return st_no_memory(0, "a trace");
        exec_trace_row_t *row = row_of(t, title);
        row->op = node->op;
        row->n_calls++;
        row->measured_us += node->measured_us;
        row->predicted_us += node->predicted_us;
        row->roofline_us += node->roofline_us;
        row->flop += node->flop;
        row->bytes += node->bytes;
    }
    if (t->n_kernels) qsort(t->kernels, t->n_kernels, sizeof *t->kernels, by_time);
    if (t->n_nodes)
        qsort(t->nodes, t->n_nodes, sizeof *t->nodes, t->n_measured ? by_difference : by_time);
    return ST_OK;
}

exec_trace_totals_t exec_trace_totals(const exec_trace_t *t) {
    const simulate_rank_t *planned = &t->simulation->ranks[t->ranks[0]];
    const plan_program_t *program = program_of(t, t->ranks[0]);
    const ir_cost_t *costs = t->costs[t->plan->program_of[t->ranks[0]]];
    double by_dtype[IR_DTYPE_END] = {0}, n = t->n_measured ? t->n_measured : 1;
    ir_dtype_t most = IR_F32;
    for (ir_node_t i = 0; i < program->graph->nodes.n; i++)
        if (costs[i].product_flop > 0)
            by_dtype[dtype_of(program->graph, i)] += costs[i].product_flop;
    for (int d = 1; d < IR_DTYPE_END; d++)
        if (by_dtype[d] > by_dtype[most]) most = (ir_dtype_t)d;
    return (exec_trace_totals_t){.rank = t->ranks[0],
                                 .n_ranks = t->n_ranks,
                                 .n_measured = t->n_measured,
                                 .n_left_out = t->n_left_out,
                                 .measured_us = t->step_us / n,
                                 .kernels_us = t->kernels_us / n,
                                 .predicted_us = planned->step_us,
                                 .exposed_us = planned->exposed_us,
                                 .peak_gbps = t->peak_gbps,
                                 .peak_gflops = t->peak_gflops[most],
                                 .clock = t->clock};
}

/* What the file says of itself: how it was measured, and what it leaves out. */
static void put_about(exec_trace_t *t) {
    exec_trace_totals_t totals = exec_trace_totals(t);
    char ranks[400];
    trace_json_put(&t->json, "\n],\"otherData\":{");
    t->json.inner = false;
    trace_json_text(&t->json, "target", t->target->machine.name);
    trace_json_text(&t->json, "device", t->plan->device);
    trace_json_number(&t->json, "ranks", t->plan->n_ranks);
    trace_json_number(&t->json, "threads", t->plan->n_threads);
    trace_json_text(&t->json, "measured_by", totals.clock);
    trace_json_number(&t->json, "measured_steps", totals.n_measured);
    trace_json_number(&t->json, "steps_left_out", totals.n_left_out);
    trace_json_number(&t->json, "ranks_left_out", t->n_left_out_ranks);
    trace_json_number(&t->json, "rank", totals.rank);
    trace_json_number(&t->json, "measured_step_us", totals.measured_us);
    trace_json_number(&t->json, "predicted_step_us", totals.predicted_us);
    trace_json_number(&t->json, "exposed_us", totals.exposed_us);
    trace_json_number(&t->json, "peak_gbps", totals.peak_gbps);
    trace_json_number(&t->json, "peak_gflops", totals.peak_gflops);
    trace_json_put(&t->json, ",\"programs\":[");
    for (uint32_t p = 0; p < t->plan->n_programs; p++) {
        trace_json_put(&t->json, "%s", p ? "," : "");
        trace_json_string(&t->json, list_ranks(t->plan, p, ranks, sizeof ranks));
    }
    trace_json_put(&t->json, "]}}\n");
}

st_status_t exec_trace_finish(exec_trace_t *t) {
    if (t->finished) return FAIL(ST_INVALID, "the trace is finished");
    if (t->session) TRY(exec_measure(t->session, false));
    t->finished = true;
    put_about(t);
    TRY(t->json.status);
    TRY(make_rows(t));
    st_writer_t *writer = t->json.writer;
    t->json.writer = NULL;
    return writer ? st_writer_commit(writer) : ST_OK;
}

size_t exec_trace_kernels(const exec_trace_t *t, const exec_trace_row_t **out_rows) {
    *out_rows = t->kernels;
    return t->n_kernels;
}
size_t exec_trace_nodes(const exec_trace_t *t, const exec_trace_row_t **out_rows) {
    *out_rows = t->nodes;
    return t->n_nodes;
}
