/* Stages of the forward pass (pipe.h).
 *
 * Problem: shard/stages.h divides items that are in order; here are the nodes of a micro-batch's
 * forward pass, with what they take on the target, and all micro-batches must be divided alike.
 * Algorithm: borders between nodes where no border near by has less to pass are candidates: what
 * lies between two of them is an item (of a Llama half a layer, of a ResNet a block). The first
 * micro-batch's items get stages; a node of another micro-batch has the stage of the first one's
 * node of the same structure, which reads the same weights in the same way. What has no such node
 * (running statistics that go from one micro-batch to the next) comes with what it reads. Where
 * another plan has the states already, a node goes to the first stage whose rank holds what it
 * reads. Linear, but for the stages themselves. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "ir/link.h"
#include "ir/structure.h"
#include "shard/pipe_internal.h"
#include "shard/stages.h"

enum { MAX_ITEMS = 192, WINDOWS = 24 };
static const double UNITS = 1e3; /* of a microsecond */

#define ARRAY(p, out, n)                                                    \
    do {                                                                    \
        (out) = st_arena_array(&(p)->arena, (n), sizeof *(out));            \
        if (!(out)) return st_no_memory((n) * sizeof *(out), "a pipeline"); \
    } while (0)

typedef struct chain {
    pipe_nodes_t *p;
    uint32_t n;
    ir_node_t *node; /* [n]: staged ones of the first micro-batch's forward pass, in order */
    double *us;      /* [n] */
    uint64_t *cut;   /* [n + 1]: bytes that go over the border before each */
    uint32_t n_items;
    uint32_t *item; /* [n] */
} chain_t;

static bool is_first(const pipe_nodes_t *p, ir_node_t n) {
    return p->nodes[n].staged && !p->nodes[n].micro &&
           ir_node(p->graph, n)->phase == IR_PHASE_FORWARD;
}

/* ---- the chain ---- */

static st_status_t cost_of(const pipe_nodes_t *p, ir_node_t n, double *out_us) {
    const ir_node_info_t *node = ir_node(p->graph, n);
    const ir_target_t *target = p->pipe->target;
    double us = 0;
    if (target && target->cost && target->machine) {
        ir_cost_t cost;
        TRY(ir_target_cost(target, p->graph, n, &cost));
        us = cost.us;
    } else if (!(ir_op_def(node->op)->flags & IR_VIEW)) {
        for (uint32_t k = 0; k < node->n_outputs; k++)
            us += (double)ir_type_bytes(ir_value_type(p->graph, node->first_output + k)) * 1e-3;
    }
    *out_us = p->trains ? 3 * us : us; /* a pass back takes about twice that forward */
    return ST_OK;
}

/* The last place that reads a value of the node at place `at`. */
static uint32_t last_reader(const chain_t *c, const uint32_t *place, uint32_t at, ir_value_t v) {
    const pipe_nodes_t *p = c->p;
    uint32_t last = at;
    for (uint32_t u = p->uses.first[v]; u < p->uses.first[v + 1]; u++) {
        const ir_node_t reader = p->uses.node[u];
        if (is_first(p, reader) && place[reader] > last) last = place[reader];
    }
    return last;
}

static st_status_t find_chain(chain_t *c, uint32_t *place) {
    pipe_nodes_t *p = c->p;
    for (ir_node_t n = 0; n < p->graph->nodes.n; n++) {
        if (!is_first(p, n)) continue;
        TRY(cost_of(p, n, &c->us[c->n]));
        place[n] = c->n;
        c->node[c->n++] = n;
    }
    for (uint32_t i = 0; i < c->n; i++) {
        const ir_node_info_t *node = ir_node(p->graph, c->node[i]);
        for (uint32_t k = 0; k < node->n_outputs; k++) {
            const ir_value_t v = node->first_output + k;
            const uint32_t last = last_reader(c, place, i, v);
            for (uint32_t b = i + 1; b <= last; b++)
                c->cut[b] += ir_type_bytes(ir_value_type(p->graph, v));
        }
    }
    return ST_OK;
}

/* Whether no border within `window` of the chain's time has less to pass. */
static bool is_narrow(const chain_t *c, uint32_t border, double window) {
    double behind = 0, ahead = 0;
    for (uint32_t b = border; b-- > 1 && (behind += c->us[b]) < window;)
        if (c->cut[b] < c->cut[border]) return false;
    for (uint32_t b = border; ++b < c->n && (ahead += c->us[b - 1]) < window;)
        if (c->cut[b] < c->cut[border]) return false;
    return true;
}

/* Items between candidates; too many, and the windows grow, too few, and each node is one. */
static void find_items(chain_t *c) {
    double all = 0;
    for (uint32_t i = 0; i < c->n; i++) all += c->us[i];
    for (double window = all / (WINDOWS * c->p->n_stages);; window *= 2) {
        c->n_items = 1;
        c->item[0] = 0;
        for (uint32_t i = 1; i < c->n; i++) {
            c->n_items += is_narrow(c, i, window);
            c->item[i] = c->n_items - 1;
        }
        if (c->n_items <= MAX_ITEMS || window >= all) break;
    }
    if (c->n_items >= 2 * c->p->n_stages || c->n_items == c->n) return;
    const uint32_t each = (c->n + MAX_ITEMS - 1) / MAX_ITEMS;
    for (uint32_t i = 0; i < c->n; i++) c->item[i] = i / each;
    c->n_items = (c->n - 1) / each + 1;
}

/* ---- stages of the first micro-batch ---- */

static int64_t units(double us) {
    return (int64_t)fmin(us * UNITS + 0.5, 1e13);
}

/* A value that other items read: costs of passing it to the next stage, and its gradient back. */
static st_status_t add_value(chain_t *c, const ir_links_t *links, uint32_t at, ir_value_t v,
                             shard_stage_value_t *out, bool *out_any) {
    pipe_nodes_t *p = c->p;
    uint32_t *readers, n = 0;
    const uint32_t first = p->uses.first[v], end = p->uses.first[v + 1];
    ARRAY(p, readers, end - first + 1);
    for (uint32_t i = c->item[at] + 1, b = at + 1; b < c->n && i < c->n_items; b++) {
        if (c->item[b] < i) continue;
        bool reads = false;
        const ir_node_info_t *node = ir_node(p->graph, c->node[b]);
        for (uint32_t j = 0; j < node->n_inputs; j++) reads |= node->inputs[j] == v;
        if (!reads) continue;
        if (n < end - first) readers[n++] = c->item[b];
        i = c->item[b] + 1;
    }
    const double bytes = (double)ir_type_bytes(ir_value_type(p->graph, v));
    const double us = links ? ir_link_pair_us(links, bytes) : bytes * 1e-3;
    *out = (shard_stage_value_t){c->item[at], n, readers, units(p->trains ? 2 * us : us)};
    *out_any = n > 0;
    return ST_OK;
}

static st_status_t collect_values(chain_t *c, shard_stage_value_t *values, uint32_t *out_n) {
    pipe_nodes_t *p = c->p;
    const ir_target_t *target = p->pipe->target;
    ir_links_t links = {0};
    const bool known = target && target->machine;
    if (known) links = ir_links_of(target->machine, p->pipe->n_ranks, 1);
    *out_n = 0;
    for (uint32_t i = 0; i < c->n; i++) {
        const ir_node_info_t *node = ir_node(p->graph, c->node[i]);
        for (uint32_t k = 0; k < node->n_outputs; k++) {
            bool any = false;
            TRY(add_value(c, known ? &links : NULL, i, node->first_output + k, &values[*out_n],
                          &any));
            *out_n += any;
        }
    }
    return ST_OK;
}

static st_status_t divide(chain_t *c) {
    pipe_nodes_t *p = c->p;
    shard_stage_item_t *items;
    shard_stage_value_t *values;
    uint32_t *stages;
    ARRAY(p, items, c->n_items);
    ARRAY(p, values, p->graph->values.n + 1);
    ARRAY(p, stages, c->n_items);
    for (uint32_t i = 0; i < c->n; i++) items[c->item[i]].cost += units(c->us[i]);
    shard_stage_input_t input = {.n_items = c->n_items,
                                 .n_stages = p->n_stages,
                                 .n_micro = p->pipe->n_micro,
                                 .items = items,
                                 .values = values,
                                 .limit_bytes = UINT64_MAX};
    shard_stage_result_t result;
    TRY(collect_values(c, values, &input.n_values));
    TRY(shard_stages(&input, stages, &result));
    for (uint32_t i = 0; i < c->n; i++) p->nodes[c->node[i]].stage = stages[c->item[i]];
    return ST_OK;
}

static st_status_t divide_first(pipe_nodes_t *p) {
    const size_t n = p->graph->nodes.n;
    chain_t c = {.p = p};
    uint32_t *place;
    ARRAY(p, place, n);
    ARRAY(p, c.node, n);
    ARRAY(p, c.us, n);
    ARRAY(p, c.cut, n + 1);
    ARRAY(p, c.item, n);
    TRY(find_chain(&c, place));
    if (c.n < p->n_stages)
        return FAIL(ST_INVALID,
                    "the forward pass has %u nodes that depend on inputs and weights, too few for "
                    "%u stages: use a smaller pipe axis",
                    c.n, p->n_stages);
    find_items(&c);
    return divide(&c);
}

/* ---- the other micro-batches ---- */

typedef struct twin {
    uint64_t structure;
    uint32_t stage;
} twin_t;

static int by_structure(const void *a, const void *b) {
    const twin_t *x = a, *y = b;
    if (x->structure != y->structure) return x->structure < y->structure ? -1 : 1;
    return x->stage < y->stage ? -1 : x->stage > y->stage;
}

/* Equal for what every micro-batch does to its own items: numbers of micro-batches do not count. */
static uint64_t structure_of(const pipe_nodes_t *p, ir_node_t n, const uint64_t *structures) {
    const ir_graph_t *graph = p->graph;
    const ir_node_info_t *node = ir_node(graph, n);
    const bool taken =
        node->op == IR_OP_SLICE && ir_value_producer(graph, node->inputs[0])->op == IR_OP_INPUT;
    const bool number = !p->nodes[n].staged && node->n_outputs == 1 &&
                        ir_value_type(graph, node->first_output)->rank == 0 &&
                        ir_value_type(graph, node->first_output)->dtype == IR_I64;
    if (number) return 1;
    uint64_t hash = taken ? 2 : ir_attrs_hash(node->op, node->attrs, node->n_inputs);
    hash = st_hash64(node->name, node->n_inputs ? 0 : strlen(node->name), hash);
    for (uint32_t j = 0; j < node->n_inputs; j++) {
        const ir_value_info_t *value = &graph->values.data[node->inputs[j]];
        const uint64_t in[2] = {structures[value->producer], value->index};
        hash = st_hash64(in, sizeof in, hash);
    }
    return hash;
}

static uint32_t twin_stage(const twin_t *twins, uint32_t n, uint64_t structure) {
    uint32_t low = 0, high = n;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (twins[middle].structure < structure)
            low = middle + 1;
        else
            high = middle;
    }
    return low < n && twins[low].structure == structure ? twins[low].stage : IR_NONE;
}

/* The latest stage of what the node reads. */
static uint32_t stage_before(const pipe_nodes_t *p, ir_node_t n) {
    const ir_node_info_t *node = ir_node(p->graph, n);
    uint32_t stage = 0;
    for (uint32_t j = 0; j < node->n_inputs; j++) {
        const pipe_node_t *from = pipe_producer(p, node->inputs[j]);
        if (from->staged && from->stage > stage) stage = from->stage;
    }
    return stage;
}

static st_status_t follow(pipe_nodes_t *p) {
    const size_t n_nodes = p->graph->nodes.n;
    uint64_t *structures;
    twin_t *twins;
    uint32_t n_twins = 0;
    ARRAY(p, structures, n_nodes);
    ARRAY(p, twins, n_nodes);
    for (ir_node_t n = 0; n < n_nodes; n++) {
        structures[n] = structure_of(p, n, structures);
        if (is_first(p, n)) twins[n_twins++] = (twin_t){structures[n], p->nodes[n].stage};
    }
    qsort(twins, n_twins, sizeof *twins, by_structure);
    for (ir_node_t n = 0; n < n_nodes; n++) {
        pipe_node_t *own = &p->nodes[n];
        if (!own->staged || !own->micro || ir_node(p->graph, n)->phase != IR_PHASE_FORWARD)
            continue;
        const uint32_t least = stage_before(p, n);
        const uint32_t found = twin_stage(twins, n_twins, structures[n]);
        own->stage = found != IR_NONE && found > least ? found : least;
    }
    return ST_OK;
}

/* ---- states that lie somewhere ---- */

static st_status_t follow_states(pipe_nodes_t *p) {
    const ir_graph_t *graph = p->graph;
    uint64_t *held; /* ranks that hold all that a node depends on */
    ARRAY(p, held, graph->nodes.n);
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(graph, n);
        pipe_node_t *own = &p->nodes[n];
        held[n] = UINT64_MAX;
        if (ir_op_def(node->op)->flags & IR_STATE) {
            const uint64_t ranks = p->pipe->held_by(p->pipe->context, node->name);
            if (ranks) held[n] = ranks;
        }
        for (uint32_t j = 0; j < node->n_inputs; j++) {
            const ir_node_t before = graph->values.data[node->inputs[j]].producer;
            if (!p->nodes[before].staged) held[n] &= held[before];
        }
        if (!own->staged || node->phase != IR_PHASE_FORWARD) continue;
        own->stage = stage_before(p, n);
        while (own->stage + 1 < p->n_stages && !(held[n] >> pipe_rank(p, n) & 1)) own->stage++;
        if (!(held[n] >> pipe_rank(p, n) & 1))
            return FAIL(ST_INVALID,
                        "%s reads states that the plan whose state is shared has on other stages",
                        ir_node_label(graph, n));
    }
    return ST_OK;
}

st_status_t pipe_stages_forward(pipe_nodes_t *p) {
    if (p->pipe->held_by) return follow_states(p);
    TRY(divide_first(p));
    return p->pipe->n_micro > 1 ? follow(p) : ST_OK;
}
