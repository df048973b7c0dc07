/* Choices as the lowering takes them (choices.h). */
#include "shard/choices.h"

#include "base/memory.h"
#include "shard/internal.h"

bool shard_is_weight(const ir_graph_t *graph, ir_value_t value) {
    const ir_node_info_t *node = ir_value_producer(graph, value);
    while (node->n_inputs == 1 &&
           (node->op == IR_OP_CAST || (ir_op_def(node->op)->flags & IR_VIEW)))
        node = ir_value_producer(graph, node->inputs[0]);
    return ir_op_def(node->op)->flags & IR_STATE;
}

bool shard_takes_parts(const ir_node_info_t *reader) {
    return reader->op == IR_OP_SUM_SQUARES;
}

bool shard_makes_parts(const ir_graph_t *graph, ir_value_t value, ir_placement_t part) {
    ir_placement_t input;
    return shard_can_localize(graph, value, part, &input);
}

/* ---- choices to the lowering ---- */

/* Every element a granule: so said, it holds for the parts that other axes leave. */
static ir_placement_t general(const ir_type_t *type, ir_placement_t placement) {
    if (placement.kind == IR_SPLIT && placement.granules == type->dims[placement.dim])
        placement.granules = IR_GRANULES_EACH;
    return placement;
}

/* Nodes that the lowering places by themselves: states with their updates, sums of squares. */
static bool is_placed(const ir_node_info_t *node) {
    return node->op == IR_OP_UPDATE || node->op == IR_OP_INPUT || shard_takes_parts(node) ||
           (ir_op_def(node->op)->flags & IR_STATE);
}

static st_status_t settle_node(const ir_graph_t *graph, ir_node_t n, const ir_strategy_t *way,
                               shard_settled_t *settled) {
    const ir_node_info_t *node = ir_node(graph, n);
    ir_placement_t *in, *out;
    if (node->op == IR_OP_INPUT || (ir_op_def(node->op)->flags & IR_STATE))
        settled->homes[n] = general(ir_value_type(graph, node->first_output), way->out[0]);
    if (is_placed(node)) return ST_OK;
    TRY(shard_settle_choice(settled, graph, n, &in, &out));
    for (uint32_t j = 0; j < node->n_inputs; j++)
        in[j] = general(ir_value_type(graph, node->inputs[j]),
                        shard_strategy_in(way, node->n_inputs, j));
    for (uint32_t k = 0; k < node->n_outputs; k++)
        out[k] = general(ir_value_type(graph, node->first_output + k), shard_strategy_out(way, k));
    return ST_OK;
}

/* Phases in which some read the value, but nobody as it is made: there it is pinned to its copy. */
static uint32_t pinned_phases(const ir_graph_t *graph, const shard_choices_t *choices,
                              const ir_uses_t *uses, ir_value_t v, ir_placement_t home) {
    uint32_t read = 0, as_made = 0;
    for (uint32_t u = uses->first[v]; u < uses->first[v + 1]; u++) {
        const ir_node_info_t *node = ir_node(graph, uses->node[u]);
        for (uint32_t j = 0; j < node->n_inputs; j++) {
            if (node->inputs[j] != v || (node->op == IR_OP_UPDATE && j == 0)) continue;
            read |= 1u << node->phase;
            if (!shard_takes_parts(node) &&
                ir_placement_equal(
                    shard_strategy_in(choices->nodes[uses->node[u]], node->n_inputs, j), home))
                as_made |= 1u << node->phase;
        }
    }
    return read & ~as_made;
}

st_status_t shard_choices_settle(const ir_graph_t *graph, const shard_choices_t *choices,
                                 shard_settled_t *settled) {
    ir_uses_t uses;
    st_status_t status = ST_OK;
    settled->places_inputs = true;
    for (ir_node_t n = 0; n < graph->nodes.n; n++)
        TRY(settle_node(graph, n, choices->nodes[n], settled));
    if (!choices->copies) return ST_OK;
    TRY(ir_uses_build(graph, &uses));
    for (ir_value_t v = 0; v < graph->values.n && status == ST_OK; v++) {
        const ir_value_info_t *info = &graph->values.data[v];
        const ir_placement_t home = shard_strategy_out(choices->nodes[info->producer], info->index);
        const ir_placement_t *copy = choices->copies[v];
        if (!copy || ir_placement_equal(*copy, home) || copy->kind == IR_PARTIAL ||
            (home.kind == IR_REPLICATE && shard_makes_parts(graph, v, *copy)))
            continue;
        const uint32_t phases = pinned_phases(graph, choices, &uses, v, home);
        if (phases)
            status = shard_settle_pin(settled, v, general(&info->type, *copy), phases,
                                      shard_is_weight(graph, v));
    }
    ir_uses_free(&uses);
    return status;
}

/* ---- choices of a lowering ---- */

st_status_t shard_choices_of(const shard_lowering_t *lowering, st_arena_t *arena,
                             shard_choices_t *out_choices) {
    const ir_graph_t *graph = lowering->graph;
    *out_choices = (shard_choices_t){0};
    out_choices->nodes = st_arena_array(arena, graph->nodes.n, sizeof *out_choices->nodes);
    if (!out_choices->nodes)
        return st_no_memory(graph->nodes.n * sizeof *out_choices->nodes, "choices");
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(graph, n);
        ir_strategy_t *way = st_arena_alloc(arena, sizeof *way);
        if (!way) return st_no_memory(sizeof *way, "choices");
        for (uint32_t j = 0; j < node->n_inputs && j < IR_MAX_OPERANDS; j++)
            way->in[j] = lowering->nodes[n].in ? lowering->nodes[n].in[j] : IR_PLACE_REPLICATE;
        for (uint32_t k = 0; k < node->n_outputs && k < IR_MAX_OPERANDS; k++)
            way->out[k] = lowering->values[node->first_output + k].home;
        out_choices->nodes[n] = way;
    }
    return ST_OK;
}
