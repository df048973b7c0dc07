/* What recomputation weighs (recompute_model.h): a few walks over the nodes, linear but for the
 * bounded searches of the bans. */
#include "fusion/recompute_model.h"

#include <math.h>
#include <string.h>

#include "base/heap.h"
#include "ir/nest.h"

enum {
    /* A search for the first node that no nest takes in looks at so many at most: enough to come
     * to the next product of the usual layers, and the walks stay linear. */
    SEARCH_NODES = 128,
    /* A chain of nodes that nests do take in is cut when it has become so long: FUSE_MAX_NODES is
     * 64, so it would be several nests, and each would run those before it again. */
    CHAIN_NODES = 100,
};

/* Arithmetic inside a kernel that waits for memory anyway, as part of the time that it would take
 * as a kernel of its own: an operation against 8 bytes, at 30 TFLOP/s and 4.1 TB/s
 * (h200.target). */
static const double HIDDEN = 0.02;

/* ---- kinds of ops ---- */

static bool is_generator(ir_op_t op) {
    return op == IR_OP_IOTA || op == IR_OP_RANDOM_UNIFORM;
}

void remat_mark_backward(const ir_graph_t *graph, const bool *late, bool *out_backward) {
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(graph, n);
        bool backward = node->phase != IR_PHASE_FORWARD || (late && late[n]);
        for (uint32_t j = 0; j < node->n_inputs; j++)
            backward |= out_backward[graph->values.data[node->inputs[j]].producer];
        out_backward[n] = backward && !(ir_op_def(node->op)->flags & IR_SOURCE);
    }
}

/* Forward nodes whose results reach a backward node. */
static void mark_used(remat_model_t *m) {
    for (ir_node_t n = (ir_node_t)m->graph->nodes.n; n-- > 0;) {
        const ir_node_info_t *node = ir_node(m->graph, n);
        for (uint32_t j = 0; j < node->n_inputs; j++) {
            if (m->nodes[n].backward) m->values[node->inputs[j]].needed = true;
            if (m->nodes[n].backward || m->nodes[n].used)
                m->nodes[m->graph->values.data[node->inputs[j]].producer].used = true;
        }
    }
    for (ir_node_t n = 0; n < m->graph->nodes.n; n++)
        if (m->nodes[n].backward) m->nodes[n].used = false;
}

/* ---- bans ---- */

typedef struct frontier {
    ir_node_t heap[4 * SEARCH_NODES];
    uint32_t n;
} frontier_t;

static bool stands_before(const void *a, const void *b) {
    return *(const ir_node_t *)a < *(const ir_node_t *)b;
}

/* False if there is no room; a node that is there already is not taken in again. */
static bool frontier_push(frontier_t *f, ir_node_t node) {
    for (uint32_t i = 0; i < f->n; i++)
        if (f->heap[i] == node) return true;
    if (f->n == sizeof f->heap / sizeof f->heap[0]) return false;
    f->heap[f->n++] = node;
    st_heap_rise(f->heap, f->n, sizeof f->heap[0], stands_before);
    return true;
}

static ir_node_t frontier_pop(frontier_t *f) {
    st_heap_drop(f->heap, f->n--, sizeof f->heap[0], stands_before);
    return f->heap[f->n];
}

/* Readers of the node's results in the forward pass that come to be needed. What is computed from a
 * statistic needs no more than that. */
static bool push_readers(const remat_model_t *m, frontier_t *f, ir_node_t n, ir_node_t last) {
    const ir_node_info_t *node = ir_node(m->graph, n);
    if (m->nodes[n].soft && m->nodes[n].reduces) return true;
    for (uint32_t k = 0; k < node->n_outputs; k++) {
        ir_value_t v = node->first_output + k;
        for (uint32_t u = m->uses.first[v]; u < m->uses.first[v + 1]; u++) {
            ir_node_t reader = m->uses.node[u];
            if (m->nodes[reader].used && reader <= last && !frontier_push(f, reader)) return false;
        }
    }
    return true;
}

/* The first node after n, along readers, that no nest takes in. */
static ir_node_t first_hard(const remat_model_t *m, frontier_t *f, ir_node_t n, ir_node_t last) {
    f->n = 0;
    if (!push_readers(m, f, n, last)) return n;
    ir_node_t at = n;
    for (int i = 0; f->n; i++) {
        at = frontier_pop(f);
        if (!m->nodes[at].soft || i == SEARCH_NODES || !push_readers(m, f, at, last)) return at;
    }
    return last;
}

static void ban(remat_model_t *m, ir_node_t n) {
    if (!m->nodes[n].view) m->nodes[n].level = REMAT_NEVER;
}

/* Is the node a product that goes on from the value, a residual sum within a product
 * (accumulate.h)? */
static bool goes_on_from(const remat_model_t *m, ir_node_t n, ir_value_t v) {
    const ir_node_info_t *node = ir_node(m->graph, n);
    return node->op == IR_OP_MATMUL && node->n_inputs > 2 && node->inputs[2] == v;
}

/* Readers of a value that lie behind the first product after it: running them again in the backward
 * pass of their layer would need the value there, and so on up to the first layer. */
static void ban_far_readers(remat_model_t *m, frontier_t *f) {
    for (ir_node_t n = 0; n < m->graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(m->graph, n);
        if (!m->nodes[n].used || (ir_op_def(node->op)->flags & IR_SOURCE)) continue;
        ir_node_t last = 0;
        uint32_t n_readers = 0;
        for (uint32_t k = 0; k < node->n_outputs; k++)
            for (uint32_t u = m->uses.first[node->first_output + k];
                 u < m->uses.first[node->first_output + k + 1]; u++)
                if (m->nodes[m->uses.node[u]].used) last = m->uses.node[u], n_readers++;
        if (n_readers < 2) continue;
        ir_node_t hard = first_hard(m, f, n, last);
        for (uint32_t k = 0; k < node->n_outputs; k++)
            for (uint32_t u = m->uses.first[node->first_output + k];
                 u < m->uses.first[node->first_output + k + 1]; u++) {
                ir_node_t reader = m->uses.node[u];
                if (m->nodes[reader].used && reader > hard &&
                    (m->nodes[reader].soft || goes_on_from(m, reader, node->first_output + k)))
                    ban(m, reader);
            }
    }
}

/* A chain of nodes that nests take in, through which everything goes, is broken where it is
 * long. */
static st_status_t ban_long_chains(remat_model_t *m, frontier_t *f) {
    bool *visited = st_calloc(m->graph->nodes.n, sizeof *visited);
    if (!visited) return st_no_memory(m->graph->nodes.n, "the recompute pass");
    for (ir_node_t start = 0; start < m->graph->nodes.n; start++) {
        if (!m->nodes[start].used || !m->nodes[start].soft || visited[start]) continue;
        f->n = 0;
        frontier_push(f, start);
        uint32_t length = 0;
        while (f->n) {
            ir_node_t n = frontier_pop(f);
            if (visited[n] || !m->nodes[n].soft || m->nodes[n].level == REMAT_NEVER) continue;
            visited[n] = true;
            if (++length > CHAIN_NODES && f->n == 0 && !m->nodes[n].view) {
                ban(m, n);
                break;
            }
            if (!push_readers(m, f, n, (ir_node_t)m->graph->nodes.n)) break;
        }
    }
    st_free(visited);
    return ST_OK;
}

static uint64_t value_bytes(const remat_model_t *m, ir_value_t v) {
    return (uint64_t)ir_type_bytes(ir_value_type(m->graph, v));
}

static void find_levels(remat_model_t *m, const bool *banned) {
    const uint32_t never = IR_STATE | IR_SIDE_EFFECT | IR_COLLECTIVE;
    for (ir_node_t n = 0; n < m->graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(m->graph, n);
        const uint32_t flags = ir_op_def(node->op)->flags;
        uint64_t most_in = 0, most_out = 0;
        for (uint32_t j = 0; j < node->n_inputs; j++)
            if (value_bytes(m, node->inputs[j]) > most_in)
                most_in = value_bytes(m, node->inputs[j]);
        for (uint32_t k = 0; k < node->n_outputs; k++)
            if (value_bytes(m, node->first_output + k) > most_out)
                most_out = value_bytes(m, node->first_output + k);
        for (uint32_t k = 0; k < node->n_outputs; k++) {
            uint64_t bytes = value_bytes(m, node->first_output + k);
            m->values[node->first_output + k].small = bytes <= most_in / 4 && bytes <= most_out / 4;
        }
        m->nodes[n].reduces = most_out < most_in / 4 && !(flags & IR_VIEW);
        bool source = (flags & IR_SOURCE) && !is_generator(node->op);
        m->nodes[n].view = (flags & IR_VIEW) != 0;
        m->nodes[n].soft = nest_takes(node->op) && !(flags & never) && !source;
        m->nodes[n].level = m->nodes[n].soft ? REMAT_FUSED : REMAT_ALL;
        if ((flags & never) || source || node->op == IR_OP_INPUT || (banned && banned[n]) ||
            (m->nodes[n].reduces && m->nodes[n].soft))
            m->nodes[n].level = REMAT_NEVER;
    }
}

/* ---- times ---- */

/* Who reads a value, views looked through. */
typedef struct readers {
    bool output, hard_forward, hard_backward, soft_forward, soft_backward;
} readers_t;

static void find_readers(const remat_model_t *m, readers_t *readers) {
    for (size_t o = 0; o < m->graph->outputs.n; o++)
        readers[m->graph->outputs.data[o].value] =
            (readers_t){.output = true, .hard_forward = true};
    for (ir_node_t n = (ir_node_t)m->graph->nodes.n; n-- > 0;) {
        const ir_node_info_t *node = ir_node(m->graph, n);
        for (uint32_t j = 0; j < node->n_inputs; j++) {
            readers_t *r = &readers[node->inputs[j]];
            if (m->nodes[n].view) {
                const readers_t *through = &readers[node->first_output];
                r->hard_forward |= through->hard_forward;
                r->hard_backward |= through->hard_backward;
                r->soft_forward |= through->soft_forward;
                r->soft_backward |= through->soft_backward;
            } else if (m->nodes[n].backward) {
                r->hard_backward |= !m->nodes[n].soft;
                r->soft_backward |= m->nodes[n].soft;
            } else {
                r->hard_forward |= !m->nodes[n].soft;
                r->soft_forward |= m->nodes[n].soft;
            }
        }
    }
}

static uint64_t picoseconds(double us) {
    return us > 0 && us < 1e12 ? (uint64_t)llround(us * 1e6) : 0;
}

static double move_us(const ir_target_t *target, uint64_t bytes) {
    return (double)bytes / target->machine->memory_gbps * 1e-3;
}

/* What a node that nests take in adds where it runs again: its arithmetic, and for a product that
 * reads it a write, and the reads that no other kernel of the backward pass makes anyway. */
static double soft_again_us(const remat_model_t *m, const ir_target_t *target,
                            const readers_t *readers, ir_node_t n, const ir_cost_t *cost) {
    const ir_node_info_t *node = ir_node(m->graph, n);
    double run = cost->us - target->machine->launch_us, us = run > 0 ? run : 0;
    if (strcmp(cost->limit, "compute") != 0) us *= HIDDEN;
    bool written = false, shared = false;
    for (uint32_t k = 0; k < node->n_outputs; k++) {
        ir_value_t v = node->first_output + k;
        if (!readers[v].hard_backward || (m->values[v].small && m->values[v].needed)) continue;
        us += move_us(target, value_bytes(m, v));
        written = true;
    }
    if (!written) return us;
    uint64_t widest = 0;
    for (uint32_t k = 0; k < node->n_outputs; k++)
        if (value_bytes(m, node->first_output + k) > widest)
            widest = value_bytes(m, node->first_output + k);
    for (uint32_t j = 0; j < node->n_inputs; j++) {
        shared |= readers[node->inputs[j]].soft_backward;
        if (readers[node->inputs[j]].soft_backward) continue;
        /* a nest reads what its own inputs were made of: no wider than its result, as a rule */
        uint64_t bytes = value_bytes(m, node->inputs[j]);
        us += move_us(target, bytes < widest ? bytes : widest);
    }
    return shared ? us : us + target->machine->launch_us;
}

/* What nests cannot do without: to read what others make, once a pass, and to write what others
 * read. */
static double nest_us(const remat_model_t *m, const ir_target_t *target, const readers_t *readers,
                      ir_node_t n) {
    const ir_node_info_t *node = ir_node(m->graph, n);
    double us = 0;
    for (uint32_t k = 0; k < node->n_outputs && !m->nodes[n].view; k++) {
        const readers_t *r = &readers[node->first_output + k];
        int moves = m->nodes[n].soft ? r->hard_forward || r->hard_backward
                                     : r->soft_forward + r->soft_backward;
        us += moves * move_us(target, value_bytes(m, node->first_output + k));
    }
    return us;
}

static st_status_t find_times(remat_model_t *m, const ir_target_t *target, bool fuses, bool body) {
    readers_t *readers = st_calloc(m->graph->values.n, sizeof *readers);
    st_status_t status = ST_OK;
    if (!readers) return st_no_memory(m->graph->values.n * sizeof *readers, "the recompute pass");
    find_readers(m, readers);
    for (ir_node_t n = 0; n < m->graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(m->graph, n);
        const uint32_t flags = ir_op_def(node->op)->flags;
        remat_node_t *mine = &m->nodes[n];
        ir_cost_t cost;
        TRY_GOTO(ir_target_cost(target, m->graph, n, &cost), done);
        if (!fuses || !mine->soft) m->step_ps += picoseconds(cost.us);
        if (fuses) m->step_ps += picoseconds(nest_us(m, target, readers, n));
        if (!mine->used) continue;
        if (!mine->view)
            mine->again_ps =
                1 + picoseconds(fuses && mine->soft ? soft_again_us(m, target, readers, n, &cost)
                                                    : cost.us);
        for (uint32_t k = 0; k < node->n_outputs; k++) {
            ir_value_t v = node->first_output + k;
            remat_value_t *value = &m->values[v];
            const readers_t *r = &readers[v];
            if ((flags & IR_STATE) || ir_op_is_lasting(node->op) || r->output || mine->view ||
                (body && node->op == IR_OP_INPUT))
                continue; /* there anyway */
            value->bytes = value_bytes(m, v);
            if (!fuses) continue;
            double us = move_us(target, value->bytes);
            if (mine->soft && !r->hard_forward) value->keep_ps += picoseconds(us); /* to write it */
            if (r->soft_backward || !r->hard_backward) value->keep_ps += picoseconds(us);
        }
    }
done:
    st_free(readers);
    return status;
}

void remat_model_close(remat_model_t *model) {
    ir_uses_free(&model->uses);
    st_free(model->nodes);
    st_free(model->values);
    *model = (remat_model_t){0};
}

st_status_t remat_model_open(const ir_graph_t *graph, const ir_target_t *target, bool fuses,
                             bool body, const recompute_rules_t *rules, remat_model_t *out_model) {
    remat_model_t *m = out_model;
    *m = (remat_model_t){.graph = graph};
    st_status_t status = ST_OK;
    bool *backward = st_calloc(graph->nodes.n, sizeof *backward);
    frontier_t *frontier = st_malloc(sizeof *frontier);
    m->nodes = st_calloc(graph->nodes.n, sizeof *m->nodes);
    m->values = st_calloc(graph->values.n, sizeof *m->values);
    if (!m->nodes || !m->values || !backward || !frontier)
        TRY_GOTO(st_no_memory(graph->nodes.n * sizeof *m->nodes, "the recompute pass"), done);
    TRY_GOTO(ir_uses_build(graph, &m->uses), done);
    remat_mark_backward(graph, rules ? rules->late : NULL, backward);
    for (ir_node_t n = 0; n < graph->nodes.n; n++) m->nodes[n].backward = backward[n];
    mark_used(m);
    find_levels(m, rules ? rules->never : NULL);
    ban_far_readers(m, frontier);
    TRY_GOTO(ban_long_chains(m, frontier), done);
    TRY_GOTO(find_times(m, target, fuses, body), done);
done:
    st_free(backward);
    st_free(frontier);
    if (status != ST_OK) remat_model_close(m);
    return status;
}
