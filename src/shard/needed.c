/* What the decided nodes need of each other, and which ranks need the same (lower.h). */
#include "ir/node_ctx.h"
#include "shard/internal.h"

st_status_t shard_add_want(shard_lowering_t *lowering, shard_want_t **list,
                           ir_placement_t placement) {
    while (*list) {
        if (ir_placement_equal((*list)->placement, placement)) return ST_OK;
        list = &(*list)->next;
    }
    *list = st_arena_alloc(&lowering->arena, sizeof **list);
    if (!*list) return st_no_memory(sizeof **list, "a placement");
    (*list)->placement = placement;
    return ST_OK;
}

static st_status_t demand(shard_lowering_t *lowering, ir_value_t v, ir_placement_t wanted) {
    shard_value_t *value = &lowering->values[v];
    const ir_graph_t *graph = lowering->graph;
    ir_placement_t input;
    lowering->nodes[graph->values.data[v].producer].needed = true;
    if (ir_placement_equal(value->home, wanted)) {
        value->home_used = true;
        return ST_OK;
    }
    TRY(shard_add_want(lowering, &value->wants, wanted));
    if (value->home.kind == IR_REPLICATE && shard_can_localize(graph, v, wanted, &input)) {
        const ir_node_info_t *node = ir_value_producer(graph, v);
        return node->n_inputs ? demand(lowering, node->inputs[0], input) : ST_OK;
    }
    value->home_used = true;
    return ST_OK;
}

st_status_t shard_mark_needed(shard_lowering_t *lowering) {
    const ir_graph_t *graph = lowering->graph;
    for (size_t o = 0; o < graph->outputs.n; o++)
        TRY(demand(lowering, graph->outputs.data[o].value, shard_output_placement(lowering, o)));
    for (ir_node_t n = (ir_node_t)graph->nodes.n; n-- > 0;) {
        const ir_node_info_t *node = ir_node(graph, n);
        uint32_t flags = ir_op_def(node->op)->flags;
        bool kept = node->op == IR_OP_INPUT || node->op == IR_OP_UPDATE ||
                    (flags & (IR_STATE | IR_SIDE_EFFECT | IR_COLLECTIVE));
        bool home = kept;
        for (uint32_t k = 0; k < node->n_outputs; k++)
            home |= lowering->values[node->first_output + k].home_used;
        lowering->nodes[n].needed |= kept;
        if (!home)
            continue; /* only localized copies of it are made: they have stated their demands */
        for (uint32_t k = 0; k < node->n_outputs; k++)
            lowering->values[node->first_output + k].home_used = true;
        for (uint32_t j = 0; j < node->n_inputs; j++)
            TRY(demand(lowering, node->inputs[j], lowering->nodes[n].in[j]));
    }
    return ST_OK;
}

/* ---- ranks that differ ---- */

static st_status_t note_granules(shard_lowering_t *lowering, ir_placement_t placement) {
    if (placement.kind != IR_SPLIT) return ST_OK;
    for (size_t i = 0; i < lowering->granules.n; i++)
        if (lowering->granules.data[i] == placement.granules) return ST_OK;
    return ST_VEC_PUSH(&lowering->granules, placement.granules);
}

/* A source that ranks make their parts of. What is cut out of a whole value is by the coordinate,
 * which is data, but for bodies: they have no such source. */
static bool is_cut_by_place(const shard_lowering_t *lowering, ir_value_t v, ir_placement_t wanted) {
    const ir_graph_t *graph = lowering->graph;
    ir_placement_t input;
    if (!shard_can_localize(graph, v, wanted, &input)) return lowering->local;
    const ir_node_info_t *node = ir_value_producer(graph, v);
    if (node->op == IR_OP_BROADCAST) return false; /* of an input that has its own demand */
    if (node->op == IR_OP_IOTA) return ir_attr_int(node, "axis") == wanted.dim;
    const ir_type_t *type = ir_value_type(graph, v);
    return ir_node_attr(node, "data")->data.bytes != ir_dtype_bytes(type->dtype);
}

/* A node whose attributes say where its part lies. */
static st_status_t note_place(shard_lowering_t *lowering, ir_node_t n) {
    const ir_graph_t *graph = lowering->graph;
    const ir_node_info_t *node = ir_node(graph, n);
    const ir_op_def_t *def = ir_op_def(node->op);
    ir_node_ctx_t ctx;
    lowering->by_place |= lowering->axis.forced && lowering->axis.forced[n].ring; /* by its peers */
    if (!def->differs_by_place || !lowering->nodes[n].needed) return ST_OK;
    TRY(ir_node_ctx_open(&ctx, graph, n));
    lowering->by_place |= def->differs_by_place(&ctx.op, lowering->values[node->first_output].home);
    ir_node_ctx_close(&ctx);
    return ST_OK;
}

st_status_t shard_find_differences(shard_lowering_t *lowering) {
    const ir_graph_t *graph = lowering->graph;
    for (ir_value_t v = 0; v < graph->values.n; v++) {
        const shard_value_t *value = &lowering->values[v];
        TRY(note_granules(lowering, value->home));
        for (const shard_want_t *want = value->wants; want; want = want->next) {
            TRY(note_granules(lowering, want->placement));
            if (want->placement.kind == IR_REPLICATE) continue;
            if (value->home.kind == IR_REPLICATE && is_cut_by_place(lowering, v, want->placement))
                lowering->by_place = true;
        }
        const ir_node_info_t *node = ir_value_producer(graph, v);
        if ((ir_op_def(node->op)->flags & IR_RANDOM) && value->home.kind == IR_SPLIT)
            lowering->by_place = true;
    }
    for (ir_node_t n = 0; n < graph->nodes.n; n++) TRY(note_place(lowering, n));
    for (shard_lowering_t *body = lowering->bodies; body; body = body->next) {
        TRY(shard_find_differences(body));
        lowering->by_place |= body->by_place;
        for (size_t i = 0; i < body->granules.n; i++)
            TRY(note_granules(lowering, IR_PLACE_SPLIT(0, body->granules.data[i])));
    }
    return ST_OK;
}

bool shard_same_graph(const shard_lowering_t *lowering, uint32_t a, uint32_t b) {
    if (a == b) return true;
    if (lowering->by_place) return false;
    for (size_t i = 0; i < lowering->granules.n; i++) {
        int64_t begin, extent, other, n = lowering->granules.data[i];
        ir_split_range(n, n, a, lowering->n_ranks, &begin, &extent);
        ir_split_range(n, n, b, lowering->n_ranks, &begin, &other);
        if (extent != other) return false;
    }
    return true;
}
