/* Minimum cut (flow.h): Dinic's algorithm, levels counted from the sink, so that walks from the
 * source meet few dead ends. Arcs lie by the vertex that they leave, those of a walk's next look
 * side by side. */
#include "base/flow.h"

#include <string.h>

#include "base/memory.h"

typedef struct network {
    uint32_t n, source, sink;
    uint32_t *first;    /* [n + 1]: arcs out of vertex v are first[v] … first[v + 1] - 1 */
    uint32_t *to;       /* [2 arcs] */
    uint32_t *mate;     /* [2 arcs]: the same arc the other way */
    uint64_t *residual; /* [2 arcs]: what an arc can still take; of a reverse one, what flows */
    uint32_t *current;  /* [n]: the arc to try next */
    uint32_t *level;    /* [n]: distance to the sink; UINT32_MAX: farther than the source's */
    uint32_t *queue;    /* [n]: also the arcs of the walk at hand */
} network_t;

void st_flow_open(uint32_t n_vertices, st_flow_t *out_flow) {
    *out_flow = (st_flow_t){.n = n_vertices};
}

void st_flow_close(st_flow_t *flow) {
    ST_VEC_FREE(&flow->arcs);
}

st_status_t st_flow_arc(st_flow_t *flow, uint32_t from, uint32_t to, uint64_t capacity,
                        uint32_t *out_arc) {
    ASSERT(from < flow->n && to < flow->n);
    if (flow->arcs.n >= UINT32_MAX / 2) return FAIL(ST_DOES_NOT_FIT, "a network of 2^31 arcs");
    if (out_arc) *out_arc = (uint32_t)flow->arcs.n;
    return ST_VEC_PUSH(&flow->arcs, ((st_flow_arc_t){from, to, capacity}));
}

static void network_close(network_t *net) {
    st_free(net->to);
    st_free(net->residual);
    st_free(net->first);
    st_free(net->mate);
    st_free(net->current);
    st_free(net->level);
    st_free(net->queue);
}

/* Finite capacities together; what infinite arcs get is one more. */
static st_status_t finite_total(const st_flow_t *flow, uint64_t *out_total) {
    *out_total = 0;
    for (size_t i = 0; i < flow->arcs.n; i++) {
        uint64_t capacity = flow->arcs.data[i].capacity;
        if (capacity == ST_FLOW_INFINITE) continue;
        if (capacity > ST_FLOW_LIMIT - *out_total)
            return FAIL(ST_DOES_NOT_FIT, "the capacities of a network exceed 2^61 together");
        *out_total += capacity;
    }
    return ST_OK;
}

static st_status_t network_open(const st_flow_t *flow, uint64_t infinite, network_t *net) {
    const size_t n = flow->n, n_arcs = flow->arcs.n;
    net->n = flow->n;
    net->to = st_calloc(2 * n_arcs, sizeof *net->to);
    net->residual = st_calloc(2 * n_arcs, sizeof *net->residual);
    net->mate = st_calloc(2 * n_arcs, sizeof *net->mate);
    net->first = st_calloc(n + 2, sizeof *net->first);
    net->current = st_calloc(n, sizeof *net->current);
    net->level = st_calloc(n, sizeof *net->level);
    net->queue = st_calloc(n, sizeof *net->queue);
    if (!net->to || !net->residual || !net->mate || !net->first || !net->current || !net->level ||
        !net->queue)
        return st_no_memory(2 * n_arcs * sizeof *net->residual, "a network");
    for (size_t i = 0; i < n_arcs; i++) {
        const st_flow_arc_t *arc = &flow->arcs.data[i];
        net->first[arc->from + 2]++;
        net->first[arc->to + 2]++;
    }
    /* counts shifted by two: after the sums first[v + 1] is where v's list is filled */
    for (size_t v = 0; v < n; v++) net->first[v + 2] += net->first[v + 1];
    for (size_t i = 0; i < n_arcs; i++) {
        const st_flow_arc_t *arc = &flow->arcs.data[i];
        const uint32_t there = net->first[arc->from + 1]++, back = net->first[arc->to + 1]++;
        net->to[there] = arc->to;
        net->to[back] = arc->from;
        net->mate[there] = back;
        net->mate[back] = there;
        net->residual[there] = arc->capacity == ST_FLOW_INFINITE ? infinite : arc->capacity;
    }
    return ST_OK;
}

/* Distances to the sink over arcs that can take more, up to the source's; whether there is a way
 * from there. */
static bool find_levels(network_t *net) {
    uint32_t head = 0, tail = 0;
    memset(net->level, 0xff, net->n * sizeof *net->level);
    net->level[net->sink] = 0;
    net->queue[tail++] = net->sink;
    while (head < tail) {
        uint32_t v = net->queue[head++];
        for (uint32_t arc = net->first[v]; arc < net->first[v + 1]; arc++) {
            uint32_t w = net->to[arc];
            if (net->level[w] != UINT32_MAX || !net->residual[net->mate[arc]]) continue;
            net->level[w] = net->level[v] + 1;
            if (w == net->source) return true;
            net->queue[tail++] = w;
        }
    }
    return false;
}

/* Sends what the path of arcs can take; returns how many of its arcs lead up to the first full one.
 */
static uint32_t send(network_t *net, uint32_t depth, uint64_t *value) {
    const uint32_t *path = net->queue;
    uint64_t least = UINT64_MAX;
    uint32_t full = 0;
    for (uint32_t i = depth; i-- > 0;)
        if (net->residual[path[i]] <= least) least = net->residual[path[i]], full = i;
    for (uint32_t i = 0; i < depth; i++) {
        net->residual[path[i]] -= least;
        net->residual[net->mate[path[i]]] += least;
    }
    *value += least;
    return full;
}

/* A flow after which every path of the levels has a full arc, or which is more than `limit`. */
static void block(network_t *net, uint64_t limit, uint64_t *value) {
    uint32_t depth = 0, v = net->source;
    uint32_t *path = net->queue; /* shorter than the number of vertices: levels fall along it */
    for (uint32_t i = 0; i < net->n; i++) net->current[i] = net->first[i];
    for (;;) {
        if (v == net->sink) {
            depth = send(net, depth, value);
            v = net->to[net->mate[path[depth]]];
            if (*value > limit) return;
            continue;
        }
        const uint32_t below = net->level[v] - 1, end = net->first[v + 1];
        uint32_t arc = net->current[v];
        while (arc < end && (net->level[net->to[arc]] != below || !net->residual[arc])) arc++;
        net->current[v] = arc;
        if (arc < end) {
            path[depth++] = arc;
            v = net->to[arc];
        } else if (depth) { /* a dead end: back, and not here again */
            v = net->to[net->mate[path[--depth]]];
            net->current[v]++;
        } else {
            return;
        }
    }
}

/* The vertices from which the sink can still be reached. */
static void mark_sink_side(network_t *net, bool *out_sink) {
    uint32_t head = 0, tail = 0;
    memset(out_sink, 0, net->n * sizeof *out_sink);
    out_sink[net->sink] = true;
    net->queue[tail++] = net->sink;
    while (head < tail) {
        uint32_t v = net->queue[head++];
        for (uint32_t arc = net->first[v]; arc < net->first[v + 1]; arc++) {
            uint32_t w = net->to[arc];
            if (out_sink[w] || !net->residual[net->mate[arc]]) continue;
            out_sink[w] = true;
            net->queue[tail++] = w;
        }
    }
}

st_status_t st_flow_cut(const st_flow_t *flow, uint32_t source, uint32_t sink, bool *out_sink,
                        uint64_t *out_value) {
    network_t net = {.source = source, .sink = sink};
    st_status_t status = ST_OK;
    uint64_t total, value = 0;
    *out_value = 0;
    ASSERT(source < flow->n && sink < flow->n && source != sink);
    TRY(finite_total(flow, &total));
    TRY_GOTO(network_open(flow, total + 1, &net), done);
    while (value <= total && find_levels(&net)) block(&net, total, &value);
    if (value > total)
        TRY_GOTO(FAIL(ST_INVALID, "every cut of the network goes through an infinite arc"), done);
    mark_sink_side(&net, out_sink);
    *out_value = value;
done:
    network_close(&net);
    return status;
}
