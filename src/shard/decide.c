/* Deciding the placements (lower.h). */
#include <string.h>

#include "shard/internal.h"

/* ---- cost of conversions, in bytes moved by a rank ---- */

static const double COST_REDUCE = 2.0; /* all-reduce: a reduce-scatter and an all-gather */
static const double COST_GATHER = 1.0;
static const double COST_SCATTER = 1.0;
static const double COST_EXCHANGE = 1.0; /* of a rank's part */
static const double COST_SLICE = 0.125;  /* a local copy of a part: cheap beside the network */
static const double COST_MASK =
    4.0; /* replicated → partial: a sum to pay for later, of what was whole */
static const double COST_FORK =
    2.1; /* a sum carried on by one of several readers: the others sum again */
static const double COST_AGAIN =
    0.25; /* every rank makes all of an output that could be made in parts */

/* Zeros are their own part of a sum. */
static bool is_zero(const ir_node_info_t *node) {
    const ir_attr_t *attr = ir_node_attr(node, "data");
    const unsigned char *data = attr->data.p;
    for (size_t i = 0; i < attr->data.bytes; i++)
        if (data[i]) return false;
    return true;
}

bool shard_can_localize(const ir_graph_t *graph, ir_value_t value, ir_placement_t wanted,
                        ir_placement_t *out_input) {
    const ir_node_info_t *node = ir_value_producer(graph, value);
    *out_input = IR_PLACE_REPLICATE;
    if (wanted.kind == IR_PARTIAL) return node->op == IR_OP_CONSTANT && is_zero(node);
    if (wanted.kind != IR_SPLIT) return false;
    if (node->op == IR_OP_CONSTANT || node->op == IR_OP_IOTA) return true;
    if (node->op != IR_OP_BROADCAST) return false;
    const ir_type_t *in = ir_value_type(graph, node->inputs[0]);
    int32_t own = wanted.dim - (ir_value_type(graph, value)->rank - in->rank);
    if (own >= 0 && in->dims[own] == ir_value_type(graph, value)->dims[wanted.dim] &&
        in->dims[own] != 1)
        *out_input = IR_PLACE_SPLIT(own, wanted.granules);
    return true;
}

static bool already_made(const shard_value_t *value, ir_placement_t wanted) {
    for (const shard_want_t *made = value->made; made; made = made->next)
        if (ir_placement_equal(made->placement, wanted)) return true;
    return false;
}

static double conversion_cost(const shard_lowering_t *lowering, ir_value_t v,
                              ir_placement_t wanted) {
    const shard_value_t *value = &lowering->values[v];
    ir_placement_t home = value->home, input;
    if (ir_placement_equal(home, wanted) || already_made(value, wanted)) return 0;
    double bytes = (double)ir_type_bytes(ir_value_type(lowering->graph, v)), cost = 0;
    if (home.kind == IR_REPLICATE && shard_can_localize(lowering->graph, v, wanted, &input))
        return input.kind == IR_SPLIT ? COST_SLICE * bytes / lowering->n_ranks : 0;
    if (shard_makes_part(home, wanted) && !already_made(value, IR_PLACE_REPLICATE) && !value->lazy)
        return home.kind == IR_PARTIAL ? bytes * COST_SCATTER
                                       : bytes * COST_EXCHANGE / lowering->n_ranks;
    if (shard_needs_link(home, wanted) && !already_made(value, IR_PLACE_REPLICATE))
        cost += bytes * (home.kind == IR_PARTIAL ? COST_REDUCE : COST_GATHER);
    if (wanted.kind == IR_SPLIT) cost += bytes * COST_SLICE / lowering->n_ranks;
    if (wanted.kind == IR_PARTIAL) cost += bytes * COST_MASK;
    return cost;
}

static st_status_t pay(shard_lowering_t *lowering, ir_value_t v, ir_placement_t wanted) {
    shard_value_t *value = &lowering->values[v];
    if (ir_placement_equal(value->home, wanted)) return ST_OK;
    if (shard_needs_link(value->home, wanted)) {
        const bool scatters = shard_makes_part(value->home, wanted) && !value->lazy;
        if (!scatters) TRY(shard_add_want(lowering, &value->made, IR_PLACE_REPLICATE));
        /* never carry partial sums on that have been summed already: they would be summed twice */
        if (value->home.kind == IR_PARTIAL && value->have.kind != IR_REPLICATE)
            value->have = scatters ? wanted : IR_PLACE_REPLICATE;
    }
    return shard_add_want(lowering, &value->made, wanted);
}

/* Whether the operands get to where the strategy wants them; in a body by cutting only. */
static bool is_reachable(const shard_lowering_t *lowering, const ir_node_info_t *node,
                         const ir_placement_t *in) {
    for (uint32_t j = 0; lowering->local && j < node->n_inputs; j++)
        if (shard_needs_link(lowering->values[node->inputs[j]].home, in[j])) return false;
    return true;
}

/* ---- forward: one strategy a node ---- */

static ir_placement_t strategy_in(const ir_strategy_t *strategy, uint32_t n_inputs, uint32_t j) {
    return strategy->in[n_inputs > IR_MAX_OPERANDS ? 0 : j];
}

/* The split makes equal granules of the dim, as localizing assumes. */
static bool splits_evenly(const ir_type_t *type, ir_placement_t placement) {
    return placement.kind != IR_SPLIT || (placement.dim < type->rank && placement.granules > 0 &&
                                          type->dims[placement.dim] % placement.granules == 0);
}

static bool is_legal(const shard_lowering_t *lowering, const ir_node_info_t *node,
                     const ir_strategy_t *strategy) {
    for (uint32_t j = 0; j < node->n_inputs; j++)
        if (!splits_evenly(ir_value_type(lowering->graph, node->inputs[j]),
                           strategy_in(strategy, node->n_inputs, j)))
            return false;
    for (uint32_t k = 0; k < node->n_outputs && k < IR_MAX_OPERANDS; k++)
        if (!splits_evenly(ir_value_type(lowering->graph, node->first_output + k),
                           strategy->out[k]))
            return false;
    return true;
}

/* What the decisions for a like graph were, but for the sizes. */
static bool is_like(const shard_lowering_t *lowering, ir_node_t n, const ir_strategy_t *strategy) {
    const shard_lowering_t *like = lowering->axis.like;
    const ir_node_info_t *node = ir_node(lowering->graph, n);
    bool same = true;
    for (uint32_t j = 0; like && j < node->n_inputs; j++) {
        ir_placement_t in = strategy_in(strategy, node->n_inputs, j), other = like->nodes[n].in[j];
        same &= in.kind == other.kind && in.dim == other.dim;
    }
    for (uint32_t k = 0; like && k < node->n_outputs && k < IR_MAX_OPERANDS; k++) {
        ir_placement_t out = strategy->out[k], other = like->values[node->first_output + k].home;
        same &= out.kind == other.kind && out.dim == other.dim;
    }
    return same;
}

/* What a collective along another axis began is on its way until its wait has it: nothing converts
 * it. */
static bool is_on_its_way(const shard_lowering_t *lowering, ir_value_t v) {
    return ir_op_def(ir_value_producer(lowering->graph, v)->op)->flags & IR_START;
}

/* Its operands get there; in a body without a collective. */
static bool is_local(const shard_lowering_t *lowering, const ir_node_info_t *node,
                     const ir_strategy_t *strategy) {
    for (uint32_t j = 0; j < node->n_inputs; j++) {
        const ir_placement_t home = lowering->values[node->inputs[j]].home;
        const ir_placement_t in = strategy_in(strategy, node->n_inputs, j);
        if (lowering->local && shard_needs_link(home, in)) return false;
        if (is_on_its_way(lowering, node->inputs[j]) && !ir_placement_equal(home, in)) return false;
    }
    return true;
}

/* What a strategy costs beside its conversions: every rank making all of an output that could be
 * made in parts, or an output becoming a sum because a whole value was turned into one. */
static double output_cost(const shard_lowering_t *lowering, const ir_node_info_t *node,
                          const ir_strategy_t *strategy, bool repeats) {
    bool masks = false;
    for (uint32_t j = 0; j < node->n_inputs; j++)
        masks |= lowering->values[node->inputs[j]].home.kind != IR_PARTIAL &&
                 strategy_in(strategy, node->n_inputs, j).kind == IR_PARTIAL;
    double bytes = 0;
    for (uint32_t k = 0; k < node->n_outputs; k++)
        bytes += (double)ir_type_bytes(ir_value_type(lowering->graph, node->first_output + k));
    return (masks ? COST_MASK * bytes : 0) +
           (repeats ? COST_AGAIN * bytes * (1 - 1.0 / lowering->n_ranks) : 0);
}

static double strategy_cost(const shard_lowering_t *lowering, const ir_node_info_t *node,
                            const ir_strategy_t *strategy, bool repeats) {
    double cost = output_cost(lowering, node, strategy, repeats);
    for (uint32_t j = 0; j < node->n_inputs; j++) {
        ir_value_t v = node->inputs[j];
        ir_placement_t wanted = strategy_in(strategy, node->n_inputs, j);
        cost += conversion_cost(lowering, v, wanted);
        if (wanted.kind == IR_PARTIAL && lowering->values[v].n_uses > 1)
            cost += COST_FORK * (double)ir_type_bytes(ir_value_type(lowering->graph, v));
    }
    return cost;
}

/* Control flow: in parts if its bodies allow it, else whole. */
static st_status_t decide_region(shard_lowering_t *lowering, ir_node_t n) {
    const ir_node_info_t *node = ir_node(lowering->graph, n);
    ir_placement_t *have = st_arena_array(&lowering->arena, node->n_inputs, sizeof *have);
    ir_placement_t *in = st_arena_array(&lowering->arena, node->n_inputs, sizeof *in);
    ir_placement_t *out = st_arena_array(&lowering->arena, node->n_outputs, sizeof *out);
    if (!have || !in || !out)
        return st_no_memory(node->n_inputs * sizeof *have, "a node's placements");
    for (uint32_t j = 0; j < node->n_inputs; j++) have[j] = lowering->values[node->inputs[j]].have;
    st_status_t status = shard_decide_region(lowering, n, have, in, out);
    if (status != ST_OK && (status != ST_UNSUPPORTED || lowering->local)) return status;
    lowering->nodes[n].whole = status != ST_OK;
    if (!is_reachable(lowering, node, in))
        return FAIL(ST_UNSUPPORTED, "%s needs a collective", ir_node_label(lowering->graph, n));
    for (uint32_t j = 0; j < node->n_inputs; j++) TRY(pay(lowering, node->inputs[j], in[j]));
    lowering->nodes[n].in = in;
    for (uint32_t k = 0; k < node->n_outputs; k++) {
        shard_value_t *value = &lowering->values[node->first_output + k];
        value->home = value->have = out[k];
    }
    return ST_OK;
}

/* Settles node `n`: operands and results are placed so. */
static st_status_t take(shard_lowering_t *lowering, ir_node_t n, const ir_placement_t *in,
                        const ir_placement_t *out) {
    const ir_node_info_t *node = ir_node(lowering->graph, n);
    for (uint32_t j = 0; j < node->n_inputs; j++) {
        const ir_value_t v = node->inputs[j];
        if (is_on_its_way(lowering, v) && !ir_placement_equal(lowering->values[v].home, in[j]))
            return FAIL(ST_INTERNAL, "%s would convert what it waits for along axis '%s'",
                        ir_node_label(lowering->graph, n), lowering->axis.name);
        TRY(pay(lowering, v, in[j]));
    }
    lowering->nodes[n].in = in;
    for (uint32_t k = 0; k < node->n_outputs; k++) {
        shard_value_t *value = &lowering->values[node->first_output + k];
        value->home = value->have = out ? out[k] : IR_PLACE_REPLICATE;
    }
    return ST_OK;
}

/* A like graph's placement, in granules of as many elements. */
static ir_placement_t as_like(const ir_type_t *type, const ir_type_t *like,
                              ir_placement_t placement) {
    if (placement.kind != IR_SPLIT) return placement;
    const int64_t each = like->dims[placement.dim] / placement.granules;
    placement.granules = each ? type->dims[placement.dim] / each : 1;
    if (placement.granules < 1) placement.granules = 1;
    return placement;
}

/* What the like graph's node does, though the op's rule has no such way here: an extent of one is
 * what is left of the batch, and no dim to be broadcast. */
static st_status_t take_like(shard_lowering_t *lowering, ir_node_t n, bool *out_taken) {
    const ir_node_info_t *node = ir_node(lowering->graph, n);
    const shard_lowering_t *like = lowering->axis.like;
    ir_placement_t *in = st_arena_array(&lowering->arena, node->n_inputs, sizeof *in);
    ir_placement_t *out = st_arena_array(&lowering->arena, node->n_outputs, sizeof *out);
    *out_taken = false;
    if (!in || !out) return st_no_memory(node->n_inputs * sizeof *in, "a node's placements");
    for (uint32_t i = 0; i < node->n_inputs + node->n_outputs; i++) {
        const bool input = i < node->n_inputs;
        const uint32_t k = i - node->n_inputs;
        const ir_value_t v = input ? node->inputs[i] : node->first_output + k;
        const ir_type_t *type = ir_value_type(lowering->graph, v);
        const ir_placement_t made = as_like(type, ir_value_type(like->graph, v),
                                            input ? like->nodes[n].in[i] : like->values[v].home);
        if (!splits_evenly(type, made)) return ST_OK;
        *(input ? &in[i] : &out[k]) = made;
    }
    *out_taken = true;
    return take(lowering, n, in, out);
}

static st_status_t refuse(const shard_lowering_t *lowering, ir_node_t n) {
    if (lowering->axis.forced && lowering->axis.forced[n].in)
        return FAIL(ST_UNSUPPORTED, "%s cannot be split over axis '%s' as it is asked for",
                    ir_node_label(lowering->graph, n), lowering->axis.name);
    if (lowering->axis.like)
        return FAIL(ST_UNSUPPORTED,
                    "%s cannot be split over axis '%s' on all ranks alike: their parts are too "
                    "different",
                    ir_node_label(lowering->graph, n), lowering->axis.name);
    return FAIL(ST_UNSUPPORTED, "%s needs a collective", ir_node_label(lowering->graph, n));
}

/* A settled way, if the op has it for such operands. */
static st_status_t take_forced(shard_lowering_t *lowering, ir_node_t n, ir_op_ctx_t *ctx) {
    const ir_node_info_t *node = ir_node(lowering->graph, n);
    const shard_forced_t *forced = &lowering->axis.forced[n];
    ir_strategy_list_t list = {.have = forced->in};
    bool found = forced->turns || forced->trusted || node->n_inputs > IR_MAX_OPERANDS, even = true;
    bool whole = true;
    for (uint32_t j = 0; j < node->n_inputs; j++) {
        even &= splits_evenly(&ctx->in[j], forced->in[j]);
        whole &= forced->in[j].kind == IR_REPLICATE;
    }
    if (!found && !whole) ir_op_def(node->op)->strategies(ctx, &list);
    for (uint32_t s = 0; s < list.n && !found; s++) {
        found = true;
        for (uint32_t j = 0; j < node->n_inputs; j++)
            found &= ir_placement_equal(list.items[s].in[j], forced->in[j]);
        for (uint32_t k = 0; k < node->n_outputs; k++)
            found &= ir_placement_equal(list.items[s].out[k], forced->out[k]);
    }
    if (!even || !(found || whole)) return refuse(lowering, n);
    if (forced->by_phase && lowering->values[node->inputs[0]].home.kind == IR_SPLIT)
        lowering->values[node->inputs[0]].lazy = true;
    return take(lowering, n, forced->in, forced->out);
}

/* A state is where it lives, and so is what it is updated with. */
static st_status_t take_state(shard_lowering_t *lowering, ir_node_t n) {
    const ir_node_info_t *node = ir_node(lowering->graph, n);
    ir_placement_t *in = st_arena_array(&lowering->arena, node->n_inputs + 1, sizeof *in);
    if (!in) return st_no_memory(sizeof *in, "a node's placements");
    if (node->op != IR_OP_UPDATE) {
        *in = lowering->axis.homes ? lowering->axis.homes[n] : IR_PLACE_REPLICATE;
        if (!splits_evenly(ir_value_type(lowering->graph, node->first_output), *in))
            return FAIL(ST_INVALID, "%s does not split over axis '%s' as it is asked for",
                        ir_node_label(lowering->graph, n), lowering->axis.name);
        return take(lowering, n, in, in);
    }
    in[0] = in[1] = lowering->values[node->inputs[0]].home;
    return take(lowering, n, in, NULL);
}

static st_status_t decide_node(shard_lowering_t *lowering, ir_node_t n) {
    const ir_graph_t *graph = lowering->graph;
    const ir_node_info_t *node = ir_node(graph, n);
    if (ir_op_def(node->op)->flags & IR_REGION) return decide_region(lowering, n);
    if (node->op == IR_OP_UPDATE || (ir_op_def(node->op)->flags & IR_STATE))
        return take_state(lowering, n);
    ir_type_t *types = st_arena_array(&lowering->arena, node->n_inputs, sizeof *types);
    ir_placement_t *have = st_arena_array(&lowering->arena, node->n_inputs, sizeof *have);
    ir_placement_t *out = st_arena_array(&lowering->arena, node->n_outputs, sizeof *out);
    if (!types || !have || !out)
        return st_no_memory(node->n_inputs * sizeof *types, "a node's placements");
    for (uint32_t j = 0; j < node->n_inputs; j++) {
        types[j] = *ir_value_type(graph, node->inputs[j]);
        have[j] = lowering->values[node->inputs[j]].have;
    }
    ir_op_ctx_t ctx = {node->op, node->n_inputs, node->n_outputs, types, node->attrs, node->name};
    if (lowering->axis.forced && lowering->axis.forced[n].in) return take_forced(lowering, n, &ctx);
    ir_strategy_list_t list = {.have = have};
    bool any_placed = false, any_split = false;
    for (uint32_t j = 0; j < node->n_inputs; j++) {
        any_placed |= have[j].kind != IR_REPLICATE;
        any_split |= have[j].kind == IR_SPLIT;
    }
    if (any_placed) ir_op_def(node->op)->strategies(&ctx, &list);
    static const ir_strategy_t all_replicated = {0};
    const ir_strategy_t *best = NULL;
    double best_cost = 0;
    for (uint32_t s = 0; s <= list.n; s++) {
        const ir_strategy_t *strategy = s < list.n ? &list.items[s] : &all_replicated;
        if (!is_legal(lowering, node, strategy)) continue;
        if (!is_local(lowering, node, strategy) || !is_like(lowering, n, strategy)) continue;
        double cost = strategy_cost(lowering, node, strategy, any_split && s == list.n);
        if (!best || cost < best_cost) best = strategy, best_cost = cost;
    }
    bool taken = false;
    if (!best && lowering->axis.like) TRY(take_like(lowering, n, &taken));
    if (taken) return ST_OK;
    if (!best) return refuse(lowering, n);
    for (uint32_t j = 0; j < node->n_inputs; j++) have[j] = strategy_in(best, node->n_inputs, j);
    for (uint32_t k = 0; k < node->n_outputs && k < IR_MAX_OPERANDS; k++) out[k] = best->out[k];
    return take(lowering, n, have, out);
}

/* ---- inputs ---- */

/* Whether an input is split along its batch axis: not one without, or with an extent of 1, which is
 * there to be broadcast. Of a graph like another the other says it: here an extent may be what is
 * left. */
static bool has_batch(const shard_lowering_t *lowering, const ir_node_info_t *node) {
    if (node->op != IR_OP_INPUT) return false;
    const ir_type_t *type = ir_value_type(lowering->graph, node->first_output);
    const shard_lowering_t *like = lowering->axis.like;
    int64_t axis = ir_attr_int(node, "batch_axis");
    if (axis < 0 || axis >= type->rank) return false;
    return like ? like->values[node->first_output].home.kind == IR_SPLIT : type->dims[axis] > 1;
}

static int64_t batch_extent(const ir_graph_t *graph, const ir_node_info_t *node) {
    return ir_value_type(graph, node->first_output)->dims[ir_attr_int(node, "batch_axis")];
}

/* The smallest batch extent is the number of granules; every other must be a multiple of it. */
static st_status_t place_inputs(shard_lowering_t *lowering) {
    const ir_graph_t *graph = lowering->graph;
    int64_t granules = 0;
    ir_node_t smallest = IR_NONE;
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        if (!has_batch(lowering, ir_node(graph, n))) continue;
        int64_t extent = batch_extent(graph, ir_node(graph, n));
        if (smallest == IR_NONE || extent < granules) granules = extent, smallest = n;
    }
    if (granules == 0) granules = 1; /* nothing is left to split */
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(graph, n);
        if (!has_batch(lowering, node)) continue;
        int64_t extent = batch_extent(graph, node);
        if (extent % granules)
            return FAIL(
                ST_INVALID,
                "input '%s' has %lld rows along its batch axis, which is no multiple of the %lld "
                "of "
                "input '%s': give equal batch sizes, or mark one as not split (batch_axis = -1)",
                node->name, (long long)extent, (long long)granules, ir_node(graph, smallest)->name);
        shard_value_t *value = &lowering->values[node->first_output];
        value->home = value->have =
            IR_PLACE_SPLIT((int32_t)ir_attr_int(node, "batch_axis"), granules);
    }
    return ST_OK;
}

/* Inputs lie as it is settled. */
static st_status_t take_inputs(shard_lowering_t *lowering) {
    const ir_graph_t *graph = lowering->graph;
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(graph, n);
        if (node->op != IR_OP_INPUT) continue;
        const ir_placement_t home = lowering->axis.homes[n];
        if (!splits_evenly(ir_value_type(graph, node->first_output), home))
            return FAIL(ST_INVALID, "%s does not split over axis '%s' as it is asked for",
                        ir_node_label(graph, n), lowering->axis.name);
        lowering->values[node->first_output].home = lowering->values[node->first_output].have =
            home;
    }
    return ST_OK;
}

static void count_uses(shard_lowering_t *lowering) {
    const ir_graph_t *graph = lowering->graph;
    for (ir_node_t n = 0; n < graph->nodes.n; n++)
        for (uint32_t j = 0; j < ir_node(graph, n)->n_inputs; j++)
            lowering->values[ir_node(graph, n)->inputs[j]].n_uses++;
    for (size_t o = 0; o < graph->outputs.n; o++)
        lowering->values[graph->outputs.data[o].value].n_uses++;
}

/* ---- entry ---- */

ir_placement_t shard_value_placement(const shard_lowering_t *lowering, ir_value_t value) {
    return lowering->values[value].home;
}

ir_placement_t shard_output_placement(const shard_lowering_t *lowering, size_t output) {
    if (lowering->deliver) return lowering->deliver[output];
    ir_placement_t home = lowering->values[lowering->graph->outputs.data[output].value].home;
    return home.kind == IR_PARTIAL ? IR_PLACE_REPLICATE : home;
}

bool shard_runs_whole(const shard_lowering_t *lowering, ir_node_t node) {
    return lowering->nodes[node].whole;
}

void shard_lowering_destroy(shard_lowering_t *lowering) {
    if (!lowering) return;
    while (lowering->bodies) {
        shard_lowering_t *body = lowering->bodies;
        lowering->bodies = body->next;
        shard_lowering_destroy(body);
    }
    ST_VEC_FREE(&lowering->granules);
    st_arena_clear(&lowering->arena);
    st_free(lowering);
}

static st_status_t open_lowering(const ir_graph_t *graph, const shard_axis_t *axis,
                                 shard_lowering_t **out_lowering) {
    shard_lowering_t *lowering = st_calloc(1, sizeof *lowering);
    *out_lowering = lowering;
    if (!lowering) return st_no_memory(sizeof *lowering, "the lowering");
    lowering->graph = graph;
    lowering->axis = *axis;
    lowering->n_ranks = axis->n_ranks;
    lowering->values = st_arena_array(&lowering->arena, graph->values.n, sizeof *lowering->values);
    lowering->nodes = st_arena_array(&lowering->arena, graph->nodes.n, sizeof *lowering->nodes);
    if (!lowering->values || !lowering->nodes)
        return st_no_memory(graph->values.n * sizeof *lowering->values, "the lowering");
    count_uses(lowering);
    return ST_OK;
}

/* A state, or a view, cast or transpose of one that is split. */
static bool is_lazy(const shard_lowering_t *lowering, const ir_node_info_t *node) {
    if (ir_op_def(node->op)->flags & IR_STATE) return true;
    return shard_moves(node) && lowering->values[node->inputs[0]].lazy &&
           lowering->values[node->first_output].home.kind == IR_SPLIT;
}

static st_status_t decide_nodes(shard_lowering_t *lowering) {
    for (ir_node_t n = 0; n < lowering->graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(lowering->graph, n);
        if (node->op == IR_OP_INPUT) continue;
        TRY(decide_node(lowering, n));
        if (node->n_outputs == 1 && !lowering->local)
            lowering->values[node->first_output].lazy = is_lazy(lowering, node);
    }
    return ST_OK;
}

st_status_t shard_decide_body(const ir_graph_t *body, const shard_axis_t *axis,
                              const ir_placement_t *in, shard_lowering_t **out_lowering) {
    *out_lowering = NULL;
    shard_lowering_t *lowering;
    st_status_t status = ST_OK;
    TRY_GOTO(open_lowering(body, axis, &lowering), fail);
    lowering->local = true;
    /* a body's way follows from what it is given; what is settled is said of the graph around it */
    lowering->axis.like = NULL;
    lowering->axis.forced = NULL;
    lowering->axis.homes = NULL;
    lowering->axis.places_inputs = false;
    for (ir_node_t n = 0; n < body->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(body, n);
        if (node->op != IR_OP_INPUT) continue;
        shard_value_t *value = &lowering->values[node->first_output];
        value->home = value->have = *in++;
        if (!splits_evenly(ir_value_type(body, node->first_output), value->home))
            TRY_GOTO(FAIL(ST_UNSUPPORTED, "%s does not split evenly", ir_node_label(body, n)),
                     fail);
    }
    TRY_GOTO(decide_nodes(lowering), fail);
    *out_lowering = lowering;
    return ST_OK;
fail:
    shard_lowering_destroy(lowering);
    return status;
}

st_status_t shard_decide(const ir_graph_t *graph, const shard_axis_t *axis,
                         shard_lowering_t **out_lowering) {
    *out_lowering = NULL;
    shard_lowering_t *lowering;
    st_status_t status = ST_OK;
    TRY_GOTO(open_lowering(graph, axis, &lowering), fail);
    if (axis->places_inputs)
        TRY_GOTO(take_inputs(lowering), fail);
    else if (axis->n_ranks > 1 && axis->splits_batch)
        TRY_GOTO(place_inputs(lowering), fail);
    TRY_GOTO(decide_nodes(lowering), fail);
    TRY_GOTO(shard_mark_needed(lowering), fail);
    TRY_GOTO(shard_find_differences(lowering), fail);
    *out_lowering = lowering;
    return ST_OK;
fail:
    shard_lowering_destroy(lowering);
    return status;
}
