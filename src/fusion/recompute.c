/* The path of recomputation (recompute.h): cuts at falling slopes, and the steps between them. */
#include "fusion/recompute.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/flow.h"
#include "fusion/recompute_model.h"
#include "fusion/unread.h"
#include "ir/body.h"

/* Points of a hull: more than the kinds of values that layers keep. */
enum { MAX_CORNERS = 48 };

/* One choice for the whole graph. */
typedef struct corner {
    bool *again; /* [nodes] */
    uint64_t time_ps, bytes;
} corner_t;

/* From one corner to the next, one part of the graph after the other. */
typedef struct stretch {
    const corner_t *from, *to;
    uint32_t n_parts;
    uint32_t *part_of;         /* [nodes]: IR_NONE: the same at both ends */
    recompute_point_t *points; /* [n_parts]: after that part */
} stretch_t;

struct recompute {
    ir_graph_t *graph; /* the model's: a program, or the body of a loop in it */
    ir_node_t loop;    /* the loop; IR_NONE: there is none */
    double trip;       /* how often the body runs */
    remat_model_t model;
    uint32_t n_corners, n_stretches;
    uint32_t n_fused; /* stretches at whose end no product runs again; first of all */
    corner_t corners[2 * MAX_CORNERS + 2];
    stretch_t stretches[2 * MAX_CORNERS + 2]; /* the first leads away from keeping everything */
};

/* ---- the network ---- */

enum { SOURCE = 0, SINK = 1, FIRST_VERTEX = 2 };

typedef struct network {
    const remat_model_t *model;
    st_flow_t flow;
    uint32_t *vertex_of; /* [nodes], then [values]: 0: none */
    uint32_t *keep_arc;  /* [values] */
    bool *sink;          /* [vertices] */
    double most_price;   /* picoseconds a byte: no capacities overflow */
} network_t;

static void network_close(network_t *net) {
    st_flow_close(&net->flow);
    st_free(net->vertex_of);
    st_free(net->keep_arc);
    st_free(net->sink);
}

static uint32_t value_vertex(const network_t *net, ir_value_t v) {
    return net->vertex_of[net->model->graph->nodes.n + v];
}

static st_status_t network_node(network_t *net, ir_node_t n, remat_level_t level) {
    const remat_model_t *m = net->model;
    const ir_node_info_t *node = ir_node(m->graph, n);
    const uint32_t own = net->vertex_of[n];
    bool allowed = m->nodes[n].level <= level;
    TRY(st_flow_arc(&net->flow, SOURCE, own, allowed ? m->nodes[n].again_ps : ST_FLOW_INFINITE,
                    NULL));
    for (uint32_t j = 0; j < node->n_inputs; j++)
        TRY(st_flow_arc(&net->flow, value_vertex(net, node->inputs[j]), own, ST_FLOW_INFINITE,
                        NULL));
    for (uint32_t k = 0; k < node->n_outputs; k++) {
        ir_value_t v = node->first_output + k;
        const remat_value_t *value = &m->values[v];
        TRY(st_flow_arc(&net->flow, own, value_vertex(net, v),
                        m->nodes[n].view ? ST_FLOW_INFINITE : value->keep_ps, &net->keep_arc[v]));
        if (value->needed)
            TRY(st_flow_arc(&net->flow, value_vertex(net, v), SINK, ST_FLOW_INFINITE, NULL));
    }
    return ST_OK;
}

static st_status_t network_open(const remat_model_t *m, remat_level_t level, network_t *net) {
    const ir_graph_t *graph = m->graph;
    uint32_t n = FIRST_VERTEX;
    double bytes = 1;
    *net = (network_t){.model = m};
    net->vertex_of = st_calloc(graph->nodes.n + graph->values.n, sizeof *net->vertex_of);
    net->keep_arc = st_calloc(graph->values.n, sizeof *net->keep_arc);
    if (!net->vertex_of || !net->keep_arc)
        return st_no_memory(graph->values.n * sizeof *net->keep_arc, "the recompute pass");
    for (ir_node_t i = 0; i < graph->nodes.n; i++) {
        const ir_node_info_t *node = ir_node(graph, i);
        if (!m->nodes[i].used) continue;
        net->vertex_of[i] = n++;
        for (uint32_t k = 0; k < node->n_outputs; k++) {
            net->vertex_of[graph->nodes.n + node->first_output + k] = n++;
            bytes += (double)m->values[node->first_output + k].bytes;
        }
    }
    net->most_price = (double)(ST_FLOW_LIMIT / 2) / bytes;
    net->sink = st_calloc(n, sizeof *net->sink);
    if (!net->sink) return st_no_memory(n, "the recompute pass");
    st_flow_open(n, &net->flow);
    for (ir_node_t i = 0; i < graph->nodes.n; i++)
        if (m->nodes[i].used) TRY(network_node(net, i, level));
    return ST_OK;
}

/* ---- what a choice takes ---- */

/* Marks the values that the backward pass finds kept. `again` says which nodes run there; views do
 * where they are read. */
static void mark_kept(const remat_model_t *m, const bool *again, bool *out_kept) {
    for (ir_value_t v = 0; v < m->graph->values.n; v++) out_kept[v] = m->values[v].needed;
    for (ir_node_t n = (ir_node_t)m->graph->nodes.n; n-- > 0;) {
        const ir_node_info_t *node = ir_node(m->graph, n);
        if (!m->nodes[n].used || !(again[n] || m->nodes[n].view)) continue;
        bool read = false;
        for (uint32_t k = 0; k < node->n_outputs; k++) {
            ir_value_t v = node->first_output + k;
            read |= out_kept[v];
            out_kept[v] &= m->values[v].small && m->values[v].needed;
        }
        for (uint32_t j = 0; read && j < node->n_inputs; j++) out_kept[node->inputs[j]] = true;
    }
}

static st_status_t add_up(const remat_model_t *m, corner_t *corner) {
    bool *kept = st_calloc(m->graph->values.n, sizeof *kept);
    if (!kept) return st_no_memory(m->graph->values.n, "the recompute pass");
    mark_kept(m, corner->again, kept);
    corner->time_ps = corner->bytes = 0;
    for (ir_node_t n = 0; n < m->graph->nodes.n; n++)
        if (corner->again[n]) corner->time_ps += m->nodes[n].again_ps;
    for (ir_value_t v = 0; v < m->graph->values.n; v++) {
        if (!kept[v]) continue;
        corner->time_ps += m->values[v].keep_ps;
        corner->bytes += m->values[v].bytes;
    }
    st_free(kept);
    return ST_OK;
}

static st_status_t corner_add(recompute_t *r, corner_t **out_corner) {
    ASSERT(r->n_corners < sizeof r->corners / sizeof r->corners[0]);
    corner_t *corner = &r->corners[r->n_corners];
    *corner = (corner_t){.again = st_calloc(r->graph->nodes.n, sizeof *corner->again)};
    if (!corner->again) return st_no_memory(r->graph->nodes.n, "the recompute pass");
    r->n_corners++;
    *out_corner = corner;
    return ST_OK;
}

/* The choice that takes least at this price, in picoseconds a byte. */
static st_status_t solve(recompute_t *r, network_t *net, double price, corner_t **out_corner) {
    const remat_model_t *m = &r->model;
    uint64_t value;
    if (price > net->most_price) price = net->most_price;
    for (ir_value_t v = 0; v < m->graph->values.n; v++) {
        if (!value_vertex(net, v)) continue;
        st_flow_arc_t *arc = &net->flow.arcs.data[net->keep_arc[v]];
        if (arc->capacity == ST_FLOW_INFINITE) continue;
        arc->capacity = m->values[v].keep_ps + (uint64_t)(price * (double)m->values[v].bytes);
    }
    TRY(st_flow_cut(&net->flow, SOURCE, SINK, net->sink, &value));
    TRY(corner_add(r, out_corner));
    for (ir_node_t n = 0; n < m->graph->nodes.n; n++)
        (*out_corner)->again[n] =
            net->vertex_of[n] && net->sink[net->vertex_of[n]] && !m->nodes[n].view;
    return add_up(m, *out_corner);
}

static void corner_drop(recompute_t *r) {
    st_free(r->corners[--r->n_corners].again);
}

/* ---- from corner to corner ---- */

static ir_node_t find_root(ir_node_t *parent, ir_node_t n) {
    while (parent[n] != n) n = parent[n] = parent[parent[n]];
    return n;
}

/* The smaller id is the root, so that a part begins with its root. */
static void unite(ir_node_t *parent, ir_node_t a, ir_node_t b) {
    a = find_root(parent, a);
    b = find_root(parent, b);
    if (a < b)
        parent[b] = a;
    else
        parent[a] = b;
}

/* Nodes whose choices depend on each other: those that may run again and share a value, unless it
 * is there whatever they choose. */
static void unite_nodes(const remat_model_t *m, remat_level_t level, ir_node_t *parent) {
    for (ir_node_t n = 0; n < m->graph->nodes.n; n++) parent[n] = n;
    for (ir_node_t n = 0; n < m->graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(m->graph, n);
        if (!m->nodes[n].used) continue;
        const bool free = m->nodes[n].level <= level;
        for (uint32_t k = 0; k < node->n_outputs; k++) {
            const ir_value_t v = node->first_output + k;
            if (!free && (m->values[v].needed || !m->values[v].bytes)) continue;
            ir_node_t with = free ? n : IR_NONE;
            for (uint32_t u = m->uses.first[v]; u < m->uses.first[v + 1]; u++) {
                ir_node_t reader = m->uses.node[u];
                if (!m->nodes[reader].used || m->nodes[reader].level > level) continue;
                if (with != IR_NONE) unite(parent, with, reader);
                with = reader;
            }
        }
    }
}

/* What each part adds to time and memory, both of which may fall. */
typedef struct change {
    int64_t time_ps, bytes;
} change_t;

static void add_changes(const remat_model_t *m, const stretch_t *s, const bool *kept_before,
                        const bool *kept_after, bool *counted, change_t *changes) {
    for (ir_node_t n = 0; n < m->graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(m->graph, n);
        if (s->part_of[n] == IR_NONE) continue;
        change_t *change = &changes[s->part_of[n]];
        change->time_ps += (int64_t)m->nodes[n].again_ps * (s->to->again[n] - s->from->again[n]);
        for (uint32_t i = 0; i < node->n_inputs + node->n_outputs; i++) {
            ir_value_t v =
                i < node->n_inputs ? node->inputs[i] : node->first_output + (i - node->n_inputs);
            if (counted[v]) continue;
            counted[v] = true;
            int by = kept_after[v] - kept_before[v];
            change->time_ps += by * (int64_t)m->values[v].keep_ps;
            change->bytes += by * (int64_t)m->values[v].bytes;
        }
    }
}

static st_status_t stretch_points(const recompute_t *r, stretch_t *s) {
    const remat_model_t *m = &r->model;
    const size_t n_values = m->graph->values.n;
    bool *kept = st_calloc(3 * n_values, sizeof *kept);
    change_t *changes = st_calloc(s->n_parts, sizeof *changes);
    st_status_t status = ST_OK;
    s->points = st_calloc(s->n_parts, sizeof *s->points);
    if (!kept || !changes || !s->points)
        TRY_GOTO(st_no_memory(s->n_parts * sizeof *changes, "the recompute pass"), done);
    mark_kept(m, s->from->again, kept);
    mark_kept(m, s->to->again, kept + n_values);
    add_changes(m, s, kept, kept + n_values, kept + 2 * n_values, changes);
    int64_t time_ps = (int64_t)s->from->time_ps - (int64_t)r->corners[0].time_ps;
    int64_t bytes = (int64_t)s->from->bytes;
    for (uint32_t i = 0; i < s->n_parts; i++) {
        time_ps += changes[i].time_ps;
        bytes += changes[i].bytes;
        s->points[i] = (recompute_point_t){(uint64_t)bytes, (double)time_ps * 1e-6 * r->trip};
    }
    ASSERT(bytes == (int64_t)s->to->bytes &&
           time_ps == (int64_t)s->to->time_ps - (int64_t)r->corners[0].time_ps);
done:
    st_free(kept);
    st_free(changes);
    return status;
}

/* `whole`: all at once. */
static st_status_t stretch_add(recompute_t *r, const corner_t *from, const corner_t *to,
                               remat_level_t level, bool whole) {
    const ir_graph_t *graph = r->graph;
    ASSERT(r->n_stretches < sizeof r->stretches / sizeof r->stretches[0]);
    stretch_t *s = &r->stretches[r->n_stretches++];
    *s = (stretch_t){.from = from, .to = to};
    ir_node_t *parent = st_calloc(graph->nodes.n, sizeof *parent);
    uint32_t *number = st_calloc(graph->nodes.n, sizeof *number); /* of a root's part, plus one */
    st_status_t status = ST_OK;
    s->part_of = st_calloc(graph->nodes.n, sizeof *s->part_of);
    if (!parent || !number || !s->part_of)
        TRY_GOTO(st_no_memory(graph->nodes.n * sizeof *parent, "the recompute pass"), done);
    unite_nodes(&r->model, level, parent);
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        ir_node_t root = whole ? 0 : find_root(parent, n);
        if (to->again[n] != from->again[n] && !number[root]) number[root] = ++s->n_parts;
    }
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        ir_node_t root = whole ? 0 : find_root(parent, n);
        bool changes =
            number[root] && r->model.nodes[n].used && (whole || r->model.nodes[n].level <= level);
        s->part_of[n] = changes ? number[root] - 1 : IR_NONE;
    }
    TRY_GOTO(stretch_points(r, s), done);
done:
    st_free(parent);
    st_free(number);
    return status;
}

/* The hull between two of its corners. */
static st_status_t walk_hull(recompute_t *r, network_t *net, remat_level_t level,
                             const corner_t *from, const corner_t *to, uint32_t *left) {
    double slope = (double)(to->time_ps - from->time_ps) / (double)(from->bytes - to->bytes);
    corner_t *between = NULL;
    if (*left) {
        --*left;
        TRY(solve(r, net, slope, &between));
        bool inside = between->bytes < from->bytes && between->bytes > to->bytes &&
                      between->time_ps > from->time_ps && between->time_ps < to->time_ps;
        double on_line = (double)from->time_ps + slope * (double)(from->bytes - between->bytes);
        if (inside && (double)between->time_ps < on_line * (1 - 1e-12)) {
            TRY(walk_hull(r, net, level, from, between, left));
            return walk_hull(r, net, level, between, to, left);
        }
        corner_drop(r);
    }
    return stretch_add(r, from, to, level, false);
}

/* Goes on from `from` as far as the level allows; *out_end is where that leads. */
static st_status_t walk_level(recompute_t *r, remat_level_t level, const corner_t *from,
                              const corner_t **out_end) {
    network_t net;
    corner_t *first = NULL, *last;
    uint32_t left = MAX_CORNERS - 4;
    *out_end = from;
    st_status_t status = network_open(&r->model, level, &net);
    if (status != ST_OK) goto done;
    if (level == REMAT_FUSED) { /* what memory that costs nothing makes best */
        TRY_GOTO(solve(r, &net, 0, &first), done);
        if (first->time_ps < from->time_ps) {
            TRY_GOTO(stretch_add(r, from, first, level, true), done);
            from = *out_end = first;
        }
    }
    TRY_GOTO(solve(r, &net, net.most_price, &last), done);
    if (last->bytes >= from->bytes || last->time_ps <= from->time_ps) goto done;
    TRY_GOTO(walk_hull(r, &net, level, from, last, &left), done);
    *out_end = last;
done:
    network_close(&net);
    return status;
}

/* ---- entry ---- */

void recompute_destroy(recompute_t *r) {
    if (!r) return;
    for (uint32_t i = 0; i < r->n_corners; i++) st_free(r->corners[i].again);
    for (uint32_t i = 0; i < r->n_stretches; i++) {
        st_free(r->stretches[i].part_of);
        st_free(r->stretches[i].points);
    }
    remat_model_close(&r->model);
    ir_graph_destroy(r->graph);
    st_free(r);
}

ir_node_t recompute_loop(const ir_graph_t *graph) {
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        if (ir_node(graph, n)->op != IR_OP_REPEAT) continue;
        const ir_graph_t *body = ir_region_info(ir_node(graph, n)).bodies[0];
        bool has[IR_PHASE_END] = {false};
        for (ir_node_t i = 0; i < body->nodes.n; i++)
            has[ir_node(body, i)->phase] |= ir_node(body, i)->op != IR_OP_INPUT;
        if (has[IR_PHASE_FORWARD] && has[IR_PHASE_BACKWARD]) return n;
    }
    return IR_NONE;
}

/* The part of a rank's graph that the path is about. */
static const ir_graph_t *part_of(const recompute_t *r, const ir_graph_t *graph) {
    return r->loop == IR_NONE ? graph : ir_region_info(ir_node(graph, r->loop)).bodies[0];
}

st_status_t recompute_open(const ir_graph_t *graph, const ir_target_t *target, bool fuses,
                           const recompute_rules_t *rules, recompute_t **out_recompute) {
    *out_recompute = NULL;
    recompute_t *r = st_calloc(1, sizeof *r);
    if (!r) return st_no_memory(sizeof *r, "the recompute pass");
    st_status_t status = ST_OK;
    corner_t *everything = NULL;
    const corner_t *end;
    r->loop = recompute_loop(graph);
    r->trip = r->loop == IR_NONE ? 1 : (double)ir_region_info(ir_node(graph, r->loop)).trip;
    TRY_GOTO(ir_graph_copy(part_of(r, graph), &r->graph), fail);
    TRY_GOTO(remat_model_open(r->graph, target, fuses, r->loop != IR_NONE, rules, &r->model), fail);
    TRY_GOTO(corner_add(r, &everything), fail);
    TRY_GOTO(add_up(&r->model, everything), fail);
    TRY_GOTO(walk_level(r, REMAT_FUSED, everything, &end), fail);
    r->n_fused = r->n_stretches;
    TRY_GOTO(walk_level(r, REMAT_ALL, end, &end), fail);
    *out_recompute = r;
    return ST_OK;
fail:
    recompute_destroy(r);
    return status;
}

static uint32_t places_of(const recompute_t *r, uint32_t n_stretches) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_stretches; i++) n += r->stretches[i].n_parts;
    return n;
}

uint32_t recompute_n_points(const recompute_t *r) {
    return places_of(r, r->n_stretches) + 1;
}

uint32_t recompute_last_fused(const recompute_t *r) {
    return places_of(r, r->n_fused);
}

/* The stretch of a place > 0, and how many of its parts have changed over. */
static const stretch_t *locate(const recompute_t *r, uint32_t place, uint32_t *out_parts) {
    uint32_t i = 0;
    for (; place > r->stretches[i].n_parts; i++) {
        place -= r->stretches[i].n_parts;
        ASSERT(i + 1 < r->n_stretches);
    }
    *out_parts = place;
    return &r->stretches[i];
}

recompute_point_t recompute_point(const recompute_t *r, uint32_t place) {
    uint32_t parts;
    if (place == 0) return (recompute_point_t){r->corners[0].bytes, 0};
    const stretch_t *s = locate(r, place, &parts);
    return s->points[parts - 1];
}

uint32_t recompute_next_corner(const recompute_t *r, uint32_t place) {
    uint32_t end = 0;
    for (uint32_t i = 0; i < r->n_stretches; i++) {
        end += r->stretches[i].n_parts;
        if (end > place) return end;
    }
    return place;
}

uint32_t recompute_within(const recompute_t *r, double slack) {
    const double most_us = slack * (double)r->model.step_ps * 1e-6 * r->trip;
    uint32_t best = 0, n = recompute_last_fused(r);
    for (uint32_t place = 1; place <= n; place++)
        if (recompute_point(r, place).extra_us <= most_us) best = place;
    return best;
}

/* ---- applying a place ---- */

static void fill_again(const recompute_t *r, uint32_t place, bool *out_again) {
    const size_t n = r->graph->nodes.n;
    uint32_t parts;
    memset(out_again, 0, n * sizeof *out_again);
    if (place == 0) return;
    const stretch_t *s = locate(r, place, &parts);
    for (ir_node_t i = 0; i < n; i++) {
        bool changed = s->part_of[i] != IR_NONE && s->part_of[i] < parts;
        out_again[i] = changed ? s->to->again[i] : s->from->again[i];
    }
}

static st_status_t apply_part(const recompute_t *r, uint32_t place, const ir_graph_t *graph,
                              ir_graph_t **out_graph) {
    *out_graph = NULL;
    if (graph->nodes.n != r->graph->nodes.n || graph->values.n != r->graph->values.n)
        return FAIL(ST_INTERNAL, "the ranks' programs differ in more than sizes");
    bool *again = st_calloc(graph->nodes.n, sizeof *again);
    if (!again) return st_no_memory(graph->nodes.n, "a graph copy");
    fill_again(r, place, again);
    st_status_t status = remat_copy(&r->model, again, graph, out_graph);
    st_free(again);
    return status;
}

typedef struct placing {
    const recompute_t *recompute;
    uint32_t place;
} placing_t;

/* Later passes drop what is left unread of programs, not of bodies. */
static st_status_t apply_body(void *context, const ir_graph_t *body, ir_graph_t **out_body) {
    const placing_t *placing = context;
    ir_graph_t *made;
    *out_body = NULL;
    TRY(apply_part(placing->recompute, placing->place, body, &made));
    st_status_t status = fuse_drop_unread(made, out_body);
    ir_graph_destroy(made);
    return status;
}

static st_status_t apply_node(void *context, ir_graph_t *to, const ir_graph_t *from, ir_node_t n,
                              ir_value_t *map) {
    const placing_t *placing = context;
    if (n != placing->recompute->loop) return ir_graph_clone_node(to, from, n, NULL, map);
    return ir_graph_clone_node_bodies(to, from, n, NULL, apply_body, context, map);
}

st_status_t recompute_apply(const recompute_t *r, uint32_t place, const ir_graph_t *graph,
                            ir_graph_t **out_graph) {
    placing_t placing = {r, place};
    if (r->loop == IR_NONE) return apply_part(r, place, graph, out_graph);
    return ir_graph_rewrite(graph, NULL, apply_node, &placing, out_graph);
}

st_status_t recompute_summarize(const recompute_t *r, uint32_t place, const ir_graph_t *graph,
                                const ir_target_t *target, recompute_summary_t *out_summary) {
    recompute_summary_t *s = out_summary;
    graph = part_of(r, graph);
    recompute_point_t point = recompute_point(r, place);
    *s = (recompute_summary_t){.extra_us = point.extra_us};
    if (point.kept_bytes < r->corners[0].bytes)
        s->freed_bytes = r->corners[0].bytes - point.kept_bytes;
    bool *again = st_calloc(graph->nodes.n, sizeof *again);
    if (!again) return st_no_memory(graph->nodes.n, "the recompute pass");
    st_status_t status = ST_OK;
    fill_again(r, place, again);
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        ir_cost_t cost;
        if (!again[n]) continue;
        TRY_GOTO(ir_target_cost(target, graph, n, &cost), done);
        s->n_nodes++;
        s->n_products += !r->model.nodes[n].soft;
        s->flop += cost.flop * r->trip;
        s->bytes_moved += (cost.bytes_read + cost.bytes_written) * r->trip;
    }
done:
    st_free(again);
    return status;
}
