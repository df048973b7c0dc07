/* The schedule of choices of placements (sharding.h). */
#include <string.h>

#include "base/memory.h"
#include "compile/sharding.h"
#include "compile/simulate.h"

/* Weights on their way at one time, unless one alone is larger. */
static const uint64_t PREFETCH_BYTES = (uint64_t)512 << 20;

/* A value brought into another placement. */
typedef struct conversion {
    ir_value_t value;
    ir_placement_t to;
    ir_phase_t phase;      /* of its readers; of what is not a weight: the first's */
    ir_node_t first, last; /* readers */
    shard_conversion_t cost;
    uint32_t start, next; /* its move, IR_NONE before; the next conversion of the value */
    bool weight, waited;
    bool chained; /* from the value's copy, not from the value */
    uint64_t bytes;
} conversion_t;

typedef struct schedule {
    const sharding_request_t *request;
    const ir_graph_t *graph;
    const shard_choices_t *choices;
    uint32_t *first; /* [values]: its conversions; IR_NONE: none */
    ir_node_t *last; /* [values]: the last that reads it as it is made */
    ST_VEC(conversion_t) conversions;
    ST_VEC(uint32_t) gathers; /* of weights, by first reader */
    size_t n_gathers;         /* started */
    uint64_t on_the_way;      /* bytes of gathers started, whose reader has not come */
    ST_VEC(simulate_move_t) moves;
    int64_t pending_ps; /* of compute, not yet a move */
} schedule_t;

static ir_placement_t made_as(const schedule_t *s, ir_value_t v) {
    const ir_value_info_t *info = &s->graph->values.data[v];
    return shard_strategy_out(s->choices->nodes[info->producer], info->index);
}

/* ---- conversions ---- */

/* The value is whole at one rank's cost wherever it is wanted: constants and the like. */
static bool is_free(const schedule_t *s, ir_value_t v, ir_placement_t from, ir_placement_t to) {
    return ir_placement_equal(from, to) ||
           (from.kind == IR_REPLICATE && shard_makes_parts(s->graph, v, to));
}

static uint32_t find(const schedule_t *s, ir_value_t v, ir_placement_t to, ir_phase_t phase) {
    for (uint32_t c = s->first[v]; c != IR_NONE; c = s->conversions.data[c].next) {
        const conversion_t *have = &s->conversions.data[c];
        if (ir_placement_equal(have->to, to) && (!have->weight || have->phase == phase)) return c;
    }
    return IR_NONE;
}

/* The placement that readers of another one get the value from. */
static ir_placement_t copied_as(const schedule_t *s, ir_value_t v) {
    const ir_placement_t *copy = s->choices->copies ? s->choices->copies[v] : NULL;
    return copy ? *copy : made_as(s, v);
}

/* The placement in which node n reads its operand j. */
static ir_placement_t read_as(const schedule_t *s, ir_node_t n, uint32_t j) {
    const ir_node_info_t *node = ir_node(s->graph, n);
    const ir_placement_t copy = copied_as(s, node->inputs[j]);
    if (copy.kind == IR_SPLIT && shard_takes_parts(node)) return copy;
    return shard_strategy_in(s->choices->nodes[n], node->n_inputs, j);
}

static st_status_t want(schedule_t *s, ir_value_t v, ir_placement_t to, ir_node_t reader,
                        ir_phase_t phase) {
    const ir_placement_t copy = copied_as(s, v);
    ir_placement_t from = made_as(s, v);
    bool chained = false;
    const ir_type_t *type = ir_value_type(s->graph, v);
    if (is_free(s, v, from, to)) {
        if (reader > s->last[v]) s->last[v] = reader;
        return ST_OK;
    }
    const uint32_t at = find(s, v, to, phase);
    if (at != IR_NONE) {
        s->conversions.data[at].last = reader;
        return ST_OK;
    }
    if (!ir_placement_equal(copy, from) && !ir_placement_equal(copy, to)) {
        TRY(want(s, v, copy, reader, phase));
        chained = true;
        from = copy;
    }
    conversion_t made = {.value = v, .to = to, .phase = phase, .first = reader, .last = reader};
    made.start = IR_NONE;
    made.chained = chained;
    made.next = s->first[v];
    made.weight = !chained && shard_is_weight(s->graph, v);
    made.bytes = shard_part_bytes(&s->request->ring, type, to);
    /* cut from the whole, where that is made anyway */
    const bool whole = find(s, v, IR_PLACE_REPLICATE, phase) != IR_NONE;
    made.cost = shard_convert_merged(&s->request->ring, s->request->target, type,
                                     whole ? IR_PLACE_REPLICATE : from, to,
                                     made.weight || (phase == IR_PHASE_OPTIMIZER && !chained));
    if (!made.cost.link_ps && !chained && reader > s->last[v]) s->last[v] = reader;
    s->first[v] = (uint32_t)s->conversions.n;
    if (made.weight && made.cost.link_ps) TRY(ST_VEC_PUSH(&s->gathers, (uint32_t)s->conversions.n));
    return ST_VEC_PUSH(&s->conversions, made);
}

static bool stays(const ir_node_info_t *node, uint32_t j) {
    return node->op == IR_OP_UPDATE && j == 0;
}

static st_status_t find_conversions(schedule_t *s) {
    for (ir_value_t v = 0; v < s->graph->values.n; v++) {
        s->first[v] = IR_NONE;
        s->last[v] = s->graph->values.data[v].producer;
    }
    for (ir_node_t n = 0; n < s->graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(s->graph, n);
        for (uint32_t j = 0; j < node->n_inputs; j++)
            if (!stays(node, j)) TRY(want(s, node->inputs[j], read_as(s, n, j), n, node->phase));
    }
    const ir_node_t end = (ir_node_t)s->graph->nodes.n;
    for (size_t o = 0; o < s->graph->outputs.n; o++) {
        const ir_value_t v = s->graph->outputs.data[o].value;
        const ir_placement_t from = made_as(s, v);
        TRY(want(s, v, from.kind == IR_PARTIAL ? IR_PLACE_REPLICATE : from, end,
                 IR_PHASE_OPTIMIZER));
    }
    return ST_OK;
}

/* ---- moves ---- */

static st_status_t flush(schedule_t *s) {
    if (!s->pending_ps) return ST_OK;
    const simulate_move_t move = {.kind = SIMULATE_COMPUTE, .us = (double)s->pending_ps * 1e-6};
    s->pending_ps = 0;
    return ST_VEC_PUSH(&s->moves, move);
}

static st_status_t start(schedule_t *s, conversion_t *c) {
    TRY(flush(s));
    c->start = (uint32_t)s->moves.n;
    return ST_VEC_PUSH(&s->moves, ((simulate_move_t){.kind = SIMULATE_START,
                                                     .us = (double)c->cost.link_ps * 1e-6}));
}

/* Gathers of the weights that are read next. */
static st_status_t start_gathers(schedule_t *s) {
    while (s->n_gathers < s->gathers.n) {
        conversion_t *c = &s->conversions.data[s->gathers.data[s->n_gathers]];
        if (s->on_the_way && s->on_the_way + c->bytes > PREFETCH_BYTES) break;
        s->on_the_way += c->bytes;
        s->n_gathers++;
        TRY(start(s, c));
    }
    return ST_OK;
}

static st_status_t read(schedule_t *s, ir_value_t v, ir_placement_t to, ir_phase_t phase) {
    const uint32_t at = find(s, v, to, phase);
    if (is_free(s, v, made_as(s, v), to)) return ST_OK;
    ASSERT(at != IR_NONE);
    conversion_t *c = &s->conversions.data[at];
    if (c->waited) return ST_OK;
    c->waited = true;
    if (c->chained) TRY(read(s, v, copied_as(s, v), phase));
    if (c->cost.link_ps) {
        if (c->chained) TRY(start(s, c));
        while (c->weight && c->start == IR_NONE) { /* those before it are still on the way */
            s->on_the_way = 0;
            TRY(start_gathers(s));
        }
        TRY(flush(s));
        TRY(ST_VEC_PUSH(&s->moves, ((simulate_move_t){.kind = SIMULATE_WAIT, .start = c->start})));
        if (c->weight) s->on_the_way -= c->bytes < s->on_the_way ? c->bytes : s->on_the_way;
    }
    s->pending_ps += c->cost.pass_ps;
    return c->weight ? start_gathers(s) : ST_OK;
}

static st_status_t run_node(schedule_t *s, ir_node_t n) {
    const ir_node_info_t *node = ir_node(s->graph, n);
    const ir_strategy_t *way = s->choices->nodes[n];
    int64_t ps;
    for (uint32_t j = 0; j < node->n_inputs; j++)
        if (!stays(node, j)) TRY(read(s, node->inputs[j], read_as(s, n, j), node->phase));
    TRY(shard_node_ps(&s->request->ring, s->request->target, s->graph, n, way, &ps));
    s->pending_ps += ps;
    for (uint32_t k = 0; k < node->n_outputs; k++)
        for (uint32_t c = s->first[node->first_output + k]; c != IR_NONE;
             c = s->conversions.data[c].next)
            if (s->conversions.data[c].cost.link_ps && !s->conversions.data[c].weight &&
                !s->conversions.data[c].chained)
                TRY(start(s, &s->conversions.data[c]));
    return ST_OK;
}

static st_status_t make_moves(schedule_t *s) {
    TRY(start_gathers(s));
    for (ir_node_t n = 0; n < s->graph->nodes.n; n++) TRY(run_node(s, n));
    for (size_t o = 0; o < s->graph->outputs.n; o++) {
        const ir_value_t v = s->graph->outputs.data[o].value;
        const ir_placement_t from = made_as(s, v);
        TRY(read(s, v, from.kind == IR_PARTIAL ? IR_PLACE_REPLICATE : from, IR_PHASE_OPTIMIZER));
    }
    return flush(s);
}

/* ---- memory ---- */

/* Views keep what they look at alive: the value whose memory v is. */
static ir_value_t root_of(const ir_graph_t *graph, ir_value_t v) {
    const ir_node_info_t *node = ir_value_producer(graph, v);
    while (node->n_inputs && (ir_op_def(node->op)->flags & IR_VIEW)) {
        v = node->inputs[0];
        node = ir_value_producer(graph, v);
    }
    return v;
}

/* +bytes at `from`, -bytes after `to`. */
static void lies(int64_t *change, ir_node_t from, ir_node_t to, uint64_t bytes) {
    change[from] += (int64_t)bytes;
    change[to + 1] -= (int64_t)bytes;
}

static st_status_t add_memory(schedule_t *s, sharding_price_t *out) {
    const ir_graph_t *graph = s->graph;
    const ir_node_t end = (ir_node_t)graph->nodes.n;
    int64_t *change = st_calloc(graph->nodes.n + 2, sizeof *change), now = 0;
    if (!change) return st_no_memory(graph->nodes.n * sizeof *change, "a simulation");
    for (ir_value_t v = (ir_value_t)graph->values.n; v-- > 0;) {
        const ir_value_t root = root_of(graph, v);
        if (s->last[v] > s->last[root]) s->last[root] = s->last[v];
    }
    for (ir_value_t v = 0; v < graph->values.n; v++) {
        const ir_value_info_t *info = &graph->values.data[v];
        const uint64_t bytes = shard_part_bytes(&s->request->ring, &info->type, made_as(s, v));
        if (ir_op_def(ir_node(graph, info->producer)->op)->flags & IR_STATE)
            out->state_bytes += bytes;
        else if (root_of(graph, v) == v)
            lies(change, info->producer, s->last[v], bytes);
    }
    for (size_t i = 0; i < s->conversions.n; i++) {
        const conversion_t *c = &s->conversions.data[i];
        const ir_node_t made = c->weight ? c->first : graph->values.data[c->value].producer;
        lies(change, made, c->last, c->bytes);
    }
    for (ir_node_t n = 0; n <= end; n++) {
        now += change[n];
        if (now > 0 && (uint64_t)now > out->live_bytes) out->live_bytes = (uint64_t)now;
    }
    st_free(change);
    return ST_OK;
}

/* ---- entry ---- */

static st_status_t run(schedule_t *s, sharding_price_t *out) {
    simulation_t *simulation;
    TRY(find_conversions(s));
    TRY(make_moves(s));
    TRY(add_memory(s, out));
    const simulate_program_t program = {(uint32_t)s->moves.n, s->moves.data};
    const uint32_t program_of[1] = {0};
    const simulate_set_t all = {NULL};
    const simulate_input_t input = {.n_ranks = 1,
                                    .n_programs = 1,
                                    .n_sets = 1,
                                    .programs = &program,
                                    .program_of = program_of,
                                    .sets = &all,
                                    .link_overlap = s->request->link_overlap};
    TRY(simulate_moves(&input, &simulation));
    const simulate_rank_t *rank = &simulation->ranks[0];
    out->step_us = rank->step_us;
    out->compute_us = rank->compute_us;
    out->exposed_us = rank->exposed_us;
    out->link_us = rank->link_us;
    simulate_destroy(simulation);
    return ST_OK;
}

st_status_t sharding_simulate(const sharding_request_t *request, const shard_choices_t *choices,
                              sharding_price_t *out_price) {
    schedule_t s = {.request = request, .graph = request->graph, .choices = choices};
    *out_price = (sharding_price_t){0};
    s.first = st_calloc(s.graph->values.n, sizeof *s.first);
    s.last = st_calloc(s.graph->values.n, sizeof *s.last);
    st_status_t status = s.first && s.last
                             ? run(&s, out_price)
                             : st_no_memory(s.graph->values.n * sizeof *s.first, "a simulation");
    st_free(s.first);
    st_free(s.last);
    ST_VEC_FREE(&s.conversions);
    ST_VEC_FREE(&s.gathers);
    ST_VEC_FREE(&s.moves);
    return status;
}
