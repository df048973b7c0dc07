/* The report of the fuse pass: what became of each group, and why its neighbours are not in it.
 * Linear in the program, but for the judgements of pairs, which are mostly known. */
#include <stdlib.h>
#include <string.h>

#include "fusion/decision.h"

const char *fuse_why_text(fuse_why_t why) {
    static const char *const texts[] = {
        [FUSE_NO_NEST] = "no-nest", [FUSE_CYCLE] = "cycle",       [FUSE_FAR] = "far",
        [FUSE_SIZE] = "size",       [FUSE_IN_PLACE] = "in-place", [FUSE_MEMORY] = "memory",
        [FUSE_COST] = "cost",       [FUSE_SUMS] = "sums",         [FUSE_SLOT] = "slot",
    };
    return why < FUSE_WHY_END ? texts[why] : "none";
}

void fuse_report_destroy(fuse_report_t *report) {
    if (!report) return;
    st_arena_clear(&report->arena);
    st_free(report);
}

/* A way between two groups: all values that go from the one to the other. */
typedef struct way {
    group_t from, to;
    ir_node_t maker, reader; /* of the first of them */
    uint64_t bytes;
} way_t;

typedef struct explaining {
    fuse_decision_t *d;
    fuse_report_t *report;
    ST_VEC(way_t) ways;
} explaining_t;

/* Unit of a node: its group if that is one node, else itself. */
static uint32_t unit_of(const fuse_decision_t *d, ir_node_t n) {
    return d->fused[d->groups.of[n]] ? d->groups.of[n] : n;
}

/* ---- rows ---- */

static st_status_t fill_row(explaining_t *e, group_t g, fuse_row_t *row) {
    fuse_decision_t *d = e->d;
    const ir_graph_t *graph = d->copies.graph;
    const char *ops = strchr(d->names[g], ':');
    TRY(regions_collect(&d->regions, 1, &g));
    const region_t *region = &d->regions.region;
    *row = (fuse_row_t){.name = st_arena_strdup(&e->report->arena, d->names[g]),
                        .ops = st_arena_strdup(&e->report->arena, ops ? ops + 1 : ""),
                        .phase = ir_node(graph, region->nodes.data[0])->phase,
                        .n_nodes = (uint32_t)region->nodes.n,
                        .us = d->us[g]};
    if (!row->name || !row->ops) return st_no_memory(0, "the fuse report");
    double moved = 0, edges = 0;
    for (size_t i = 0; i < region->nodes.n; i++) {
        ir_cost_t cost;
        TRY(ir_target_cost(&d->target, graph, region->nodes.data[i], &cost));
        row->us_apart += cost.us;
        row->launches_apart += cost.launches;
        moved += cost.launches ? cost.bytes_read + cost.bytes_written : 0;
    }
    for (size_t i = 0; i < region->inputs.n; i++)
        edges += (double)ir_type_bytes(ir_value_type(graph, region->inputs.data[i]));
    for (size_t i = 0; i < region->outputs.n; i++)
        edges += (double)ir_type_bytes(ir_value_type(graph, region->outputs.data[i]));
    row->bytes_saved = moved > edges ? (uint64_t)(moved - edges) : 0;
    return ST_OK;
}

/* Rows in the order of the program, and the sums. */
static st_status_t fill_rows(explaining_t *e) {
    fuse_decision_t *d = e->d;
    fuse_report_t *report = e->report;
    const ir_graph_t *graph = d->copies.graph;
    size_t n = graph->nodes.n;
    uint32_t n_fused = 0;
    group_t last = IR_NONE;
    for (group_t g = 0; g < n; g++) n_fused += d->groups.size[g] && d->fused[g];
    report->rows = st_arena_array(&report->arena, n_fused, sizeof *report->rows);
    if (!report->rows) return st_no_memory(n_fused * sizeof *report->rows, "the fuse report");
    for (size_t i = 0; i < n; i++) {
        ir_node_t node = d->order[i];
        group_t g = d->groups.of[node];
        if (!d->fused[g]) {
            ir_cost_t cost;
            TRY(ir_target_cost(&d->target, graph, node, &cost));
            report->launches_apart += cost.launches;
            report->launches += cost.launches;
            report->us_apart += cost.us;
            report->us += cost.us;
        } else if (g != last) {
            fuse_row_t *row = &report->rows[report->n_rows++];
            TRY(fill_row(e, g, row));
            report->launches_apart += row->launches_apart;
            report->launches++;
            report->us_apart += row->us_apart;
            report->us += row->us;
            report->bytes_saved += row->bytes_saved;
        }
        last = g;
    }
    return ST_OK;
}

/* ---- boundaries ---- */

static bool costs_nothing(const fuse_decision_t *d, ir_node_t n) {
    const ir_node_info_t *node = ir_node(d->copies.graph, n);
    const uint32_t quiet = IR_SOURCE | IR_VIEW | IR_STATE;
    return (ir_op_def(node->op)->flags & quiet) || node->op == IR_OP_UPDATE;
}

static int by_ends(const void *a, const void *b) {
    const way_t *x = a, *y = b;
    if (x->from != y->from) return x->from < y->from ? -1 : 1;
    if (x->to != y->to) return x->to < y->to ? -1 : 1;
    return x->reader < y->reader ? -1 : x->reader > y->reader;
}

static st_status_t find_ways(explaining_t *e) {
    fuse_decision_t *d = e->d;
    const ir_graph_t *graph = d->copies.graph;
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(graph, n);
        for (uint32_t j = 0; j < node->n_inputs; j++) {
            ir_value_t v = node->inputs[j];
            ir_node_t maker = graph->values.data[v].producer;
            uint32_t from = unit_of(d, maker), to = unit_of(d, n);
            if (from == to || costs_nothing(d, maker) || costs_nothing(d, n)) continue;
            TRY(ST_VEC_PUSH(&e->ways,
                            ((way_t){from, to, maker, n, ir_type_bytes(ir_value_type(graph, v))})));
        }
    }
    if (e->ways.n) qsort(e->ways.data, e->ways.n, sizeof *e->ways.data, by_ends);
    size_t n_kept = 0;
    for (size_t i = 0; i < e->ways.n; i++) {
        way_t *way = &e->ways.data[i], *kept = n_kept ? &e->ways.data[n_kept - 1] : NULL;
        if (kept && kept->from == way->from && kept->to == way->to)
            kept->bytes += way->bytes;
        else
            e->ways.data[n_kept++] = *way;
    }
    e->ways.n = n_kept;
    return ST_OK;
}

static const char *label(explaining_t *e, ir_node_t n) {
    const fuse_decision_t *d = e->d;
    const ir_node_info_t *node = ir_node(d->copies.graph, n);
    const char *op = ir_op_def(node->op)->name;
    if (d->fused[d->groups.of[n]])
        return st_arena_strdup(&e->report->arena, d->names[d->groups.of[n]]);
    if (!node->name[0]) return st_arena_strdup(&e->report->arena, op);
    return st_arena_printf(&e->report->arena, "%s '%s'", op, node->name);
}

/* Why a node has no part in any group. */
static st_status_t explain_alone(explaining_t *e, ir_node_t n, const char **out_reason) {
    fuse_decision_t *d = e->d;
    const char *op = ir_op_def(ir_node(d->copies.graph, n)->op)->name;
    bool product = ir_op_def(ir_node(d->copies.graph, n)->op)->flags & IR_CONTRACTION;
    *out_reason = product ? "products have kernels of their own, without epilogues on this target"
                          : "it has an effect or waits for other ranks";
    if (fuse_is_candidate(d->copies.graph, n)) {
        const judgement_t *judgement;
        group_t g = d->groups.of[n];
        TRY(regions_collect(&d->regions, 1, &g));
        TRY(judge_region(&d->judge, &d->regions, &judgement));
        *out_reason = judgement->reason;
    }
    *out_reason = st_arena_printf(&e->report->arena, "%s: %s", op, *out_reason);
    return *out_reason ? ST_OK : st_no_memory(0, "the fuse report");
}

static const char *reason_text(explaining_t *e, const fuse_verdict_t *verdict) {
    st_arena_t *arena = &e->report->arena;
    switch (verdict->why) {
        case FUSE_NO_NEST:
            return st_arena_printf(arena, "together: %s", verdict->reason);
        case FUSE_CYCLE:
            return st_arena_printf(arena, "%s depends on one and leads to the other",
                                   label(e, e->d->groups.first[verdict->third]));
        case FUSE_FAR:
            return st_arena_printf(arena, "more than %d edges between them were searched",
                                   GROUPS_SEARCH_EDGES);
        case FUSE_SLOT:
            return "they run in different turns of the pipeline";
        case FUSE_SIZE:
            return st_arena_printf(arena, "more than %d nodes or %d tensors together",
                                   FUSE_MAX_NODES, FUSE_MAX_TENSORS);
        case FUSE_IN_PLACE:
            return "together, a new value could not be written over the state that it is for";
        case FUSE_MEMORY:
            return st_arena_printf(arena, "%.2f us together, %.2f apart, but %.0f bytes more alive",
                                   verdict->us_together, verdict->us_apart, verdict->bytes_more);
        case FUSE_SUMS:
            return "together, sums would be added up in another order than without recomputation";
        case FUSE_COST:
        case FUSE_WHY_END:
            break;
    }
    return st_arena_printf(arena, "%.2f us together, %.2f apart", verdict->us_together,
                           verdict->us_apart);
}

static st_status_t fill_boundary(explaining_t *e, const way_t *way, fuse_boundary_t *out) {
    fuse_decision_t *d = e->d;
    fuse_verdict_t verdict = {.why = FUSE_NO_NEST};
    *out = (fuse_boundary_t){
        .from = label(e, way->maker), .to = label(e, way->reader), .bytes = way->bytes};
    if (!out->from || !out->to) return st_no_memory(0, "the fuse report");
    if (!d->fusable[way->maker]) {
        TRY(explain_alone(e, way->maker, &out->reason));
    } else if (!d->fusable[way->reader]) {
        TRY(explain_alone(e, way->reader, &out->reason));
    } else {
        TRY(fuse_try(d, d->groups.of[way->maker], d->groups.of[way->reader], &verdict));
        out->reason = reason_text(e, &verdict);
        if (!out->reason) return st_no_memory(0, "the fuse report");
    }
    out->why = verdict.why;
    out->us_apart = verdict.us_apart;
    out->us_together = verdict.us_together;
    return ST_OK;
}

static st_status_t fill_boundaries(explaining_t *e) {
    fuse_report_t *report = e->report;
    TRY(find_ways(e));
    report->boundaries = st_arena_array(&report->arena, e->ways.n, sizeof *report->boundaries);
    if (!report->boundaries) return st_no_memory(e->ways.n, "the fuse report");
    for (size_t i = 0; i < e->ways.n; i++)
        TRY(fill_boundary(e, &e->ways.data[i], &report->boundaries[report->n_boundaries++]));
    return ST_OK;
}

st_status_t fuse_explain(fuse_decision_t *d, fuse_report_t **out_report) {
    *out_report = NULL;
    explaining_t e = {.d = d, .report = st_calloc(1, sizeof *e.report)};
    st_status_t status = ST_OK;
    if (!e.report) return st_no_memory(sizeof *e.report, "the fuse report");
    TRY_GOTO(fill_rows(&e), done);
    TRY_GOTO(fill_boundaries(&e), done);
    *out_report = e.report;
    e.report = NULL;
done:
    ST_VEC_FREE(&e.ways);
    fuse_report_destroy(e.report);
    return status;
}
