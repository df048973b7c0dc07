/* Which nodes have a stage, and which (pipe.h). Linear. */
#include <string.h>

#include "ir/unroll.h"
#include "shard/pipe_internal.h"

enum { FROM_INPUT = 1, FROM_WEIGHT = 2 };
static const uint64_t ALL_STAGES = UINT64_MAX;

static bool is_scalar(const ir_graph_t *graph, const ir_node_info_t *node) {
    for (uint32_t k = 0; k < node->n_outputs; k++)
        if (ir_value_type(graph, node->first_output + k)->rank) return false;
    return node->n_outputs > 0;
}

static bool is_staged_forward(const pipe_nodes_t *p, ir_node_t n) {
    return p->nodes[n].staged && ir_node(p->graph, n)->phase == IR_PHASE_FORWARD;
}

static bool is_weight(const ir_graph_t *graph, const ir_node_info_t *node) {
    return node->op == IR_OP_PARAMETER ||
           (node->op == IR_OP_BUFFER && ir_value_type(graph, node->first_output)->rank);
}

/* What is waited for was started in the same place. */
static bool is_wait(const ir_node_info_t *node) {
    const uint32_t flags = ir_op_def(node->op)->flags;
    return (flags & IR_COLLECTIVE) && !(flags & IR_START);
}

/* What a node depends on says whether it has a stage. */
static st_status_t classify(pipe_nodes_t *p) {
    const ir_graph_t *graph = p->graph;
    uint8_t *from = st_arena_array(&p->arena, graph->nodes.n, sizeof *from);
    if (!from) return st_no_memory(graph->nodes.n, "a pipeline");
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(graph, n);
        pipe_node_t *own = &p->nodes[n];
        if (node->op == IR_OP_INPUT) from[n] |= FROM_INPUT;
        if (is_weight(graph, node)) from[n] |= FROM_WEIGHT;
        const uint32_t taken = ir_turn_taken(graph, node, p->pipe->n_micro);
        if (taken != IR_NONE) own->micro = taken;
        for (uint32_t j = 0; j < node->n_inputs; j++) {
            const ir_node_t before = graph->values.data[node->inputs[j]].producer;
            from[n] |= from[before];
            if (p->nodes[before].micro > own->micro) own->micro = p->nodes[before].micro;
        }
        const bool shared = node->phase == IR_PHASE_OPTIMIZER && is_scalar(graph, node);
        own->staged = from[n] == (FROM_INPUT | FROM_WEIGHT) && node->n_outputs && !shared;
        if (is_wait(node)) own->staged = pipe_producer(p, node->inputs[0])->staged;
        own->after = own->staged && node->phase == IR_PHASE_OPTIMIZER;
        own->of_states = from[n] == FROM_WEIGHT && !own->staged;
        p->trains |= node->phase == IR_PHASE_BACKWARD;
        /* what a pass back may be drawn to: constants and scalars are to be had anywhere */
        own->stages = from[n] && !is_scalar(graph, node) && !own->staged ? 0 : ALL_STAGES;
    }
    return ST_OK;
}

/* Stages that read what is made of a state count as the state's: of a weight, its casts' and
 * gathers', and its shadow's. */
static void give_to_states(pipe_nodes_t *p) {
    const ir_graph_t *graph = p->graph;
    for (ir_node_t n = (ir_node_t)graph->nodes.n; n-- > 0;) {
        const ir_node_info_t *node = ir_node(graph, n);
        if (!p->nodes[n].of_states || p->nodes[n].stages == ALL_STAGES) continue;
        for (uint32_t j = 0; j < node->n_inputs; j++) {
            pipe_node_t *before = &p->nodes[graph->values.data[node->inputs[j]].producer];
            if (before->of_states) before->stages |= p->nodes[n].stages;
        }
    }
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        const ir_node_t master = ir_master_of(graph, ir_node(graph, n));
        if (master != IR_NONE) p->nodes[master].stages |= p->nodes[n].stages;
    }
}

/* What the pass back makes of states by itself (zero3 gathers a weight once more) is to be had
 * where they are. */
static void take_from_states(pipe_nodes_t *p, ir_node_t n) {
    const ir_graph_t *graph = p->graph;
    const ir_node_info_t *node = ir_node(graph, n);
    uint64_t stages = ALL_STAGES;
    for (uint32_t j = 0; j < node->n_inputs; j++)
        stages &= p->nodes[graph->values.data[node->inputs[j]].producer].stages;
    p->nodes[n].stages = stages;
}

/* Where values of the forward pass come by: where they are made and where they are read. */
static void find_ways(pipe_nodes_t *p) {
    const ir_graph_t *graph = p->graph;
    for (ir_node_t n = 0; n < graph->nodes.n; n++)
        if (is_staged_forward(p, n)) p->nodes[n].stages = 1ull << p->nodes[n].stage;
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(graph, n);
        if (!is_staged_forward(p, n)) continue;
        for (uint32_t j = 0; j < node->n_inputs; j++)
            p->nodes[graph->values.data[node->inputs[j]].producer].stages |= 1ull
                                                                             << p->nodes[n].stage;
    }
    give_to_states(p);
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        if (!p->nodes[n].stages && p->nodes[n].of_states) take_from_states(p, n);
        if (!p->nodes[n].stages) p->nodes[n].stages = ALL_STAGES;
    }
}

static void keep_waits(pipe_nodes_t *p) {
    for (ir_node_t n = 0; n < p->graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(p->graph, n);
        if (!p->nodes[n].staged || !is_wait(node)) continue;
        const pipe_node_t *start = pipe_producer(p, node->inputs[0]);
        p->nodes[n].stage = start->stage;
        p->nodes[n].pass = start->pass;
    }
}

/* The last stage of those that all it reads of the forward pass comes by, no later than the
 * earliest of the gradients that it reads: gradients go from the last stage to the first. */
static void place_behind(pipe_nodes_t *p, ir_node_t n) {
    const ir_graph_t *graph = p->graph;
    const ir_node_info_t *node = ir_node(graph, n);
    if (is_wait(node)) {
        p->nodes[n].stage = pipe_producer(p, node->inputs[0])->stage;
        return;
    }
    uint64_t ways = ALL_STAGES;
    uint32_t latest = 0, earliest = IR_NONE;
    for (uint32_t j = 0; j < node->n_inputs; j++) {
        const ir_node_t before = graph->values.data[node->inputs[j]].producer;
        const pipe_node_t *from = &p->nodes[before];
        const bool forward = ir_node(graph, before)->phase == IR_PHASE_FORWARD;
        if (from->staged && !forward) {
            if (from->stage < earliest) earliest = from->stage;
            continue;
        }
        ways &= from->stages;
        if (from->staged && from->stage > latest) latest = from->stage;
    }
    if (earliest == IR_NONE) earliest = p->n_stages - 1;
    const uint64_t possible = ways & ((2ull << earliest) - 1);
    p->nodes[n].stage = ways == ALL_STAGES  ? earliest
                        : possible          ? 63 - (uint32_t)__builtin_clzll(possible)
                        : latest < earliest ? latest
                                            : earliest;
}

/* ---- gradients of weights ---- */

/* The one update that the results lead to, plus 2; 0: none yet; 1: several. */
static void lead_to(uint32_t *to, uint32_t where) {
    *to = *to == 0 || *to == where ? where : 1;
}

static st_status_t find_passes(pipe_nodes_t *p) {
    const ir_graph_t *graph = p->graph;
    const bool apart = p->pipe->schedule == SHARD_ZERO_BUBBLE;
    uint32_t *leads = st_arena_array(&p->arena, graph->nodes.n, sizeof *leads);
    if (!leads) return st_no_memory(graph->nodes.n * sizeof *leads, "a pipeline");
    for (ir_node_t n = (ir_node_t)graph->nodes.n; n-- > 0;) {
        const ir_node_info_t *node = ir_node(graph, n);
        pipe_node_t *own = &p->nodes[n];
        if (!own->staged) continue;
        for (uint32_t k = 0; k < node->n_outputs; k++)
            for (uint32_t u = p->uses.first[node->first_output + k];
                 u < p->uses.first[node->first_output + k + 1]; u++) {
                const ir_node_t reader = p->uses.node[u];
                if (p->nodes[reader].after)
                    lead_to(&leads[n], reader + 2);
                else if (p->nodes[reader].staged && leads[reader])
                    lead_to(&leads[n], leads[reader]);
            }
        own->pass = node->phase == IR_PHASE_FORWARD ? PIPE_F
                    : apart && leads[n] > 1         ? PIPE_W
                                                    : PIPE_B;
    }
    return ST_OK;
}

void pipe_nodes_close(pipe_nodes_t *nodes) {
    ir_uses_free(&nodes->uses);
    st_arena_clear(&nodes->arena);
    *nodes = (pipe_nodes_t){0};
}

st_status_t pipe_nodes_open(const shard_pipe_t *pipe, const ir_graph_t *graph,
                            pipe_nodes_t *out_nodes) {
    pipe_nodes_t *p = out_nodes;
    st_status_t status = ST_OK;
    *p = (pipe_nodes_t){.pipe = pipe, .graph = graph, .n_stages = pipe->n_ranks * pipe->per_rank};
    p->nodes = st_arena_array(&p->arena, graph->nodes.n, sizeof *p->nodes);
    if (!p->nodes) TRY_GOTO(st_no_memory(graph->nodes.n * sizeof *p->nodes, "a pipeline"), fail);
    TRY_GOTO(ir_uses_build(graph, &p->uses), fail);
    TRY_GOTO(classify(p), fail);
    TRY_GOTO(pipe_stages_forward(p), fail);
    keep_waits(p);
    find_ways(p);
    for (ir_node_t n = 0; n < graph->nodes.n; n++)
        if (p->nodes[n].staged && ir_node(graph, n)->phase != IR_PHASE_FORWARD) place_behind(p, n);
    TRY_GOTO(find_passes(p), fail);
    keep_waits(p);
    return ST_OK;
fail:
    pipe_nodes_close(p);
    return status;
}
