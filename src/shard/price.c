/* Prices of conversions and of nodes on a part (price.h). */
#include "shard/price.h"

#include <math.h>

#include "base/memory.h"

/* Of what a node that nests take in costs by itself. */
static const double NEST_SHARE = 0.5;
/* No single thing costs more: a quarter of an hour, or 2^50 ps. */
static const double MOST_US = 900e6;

static int64_t to_ps(double us) {
    return (int64_t)llround((us > MOST_US ? MOST_US : us) * 1e6);
}

static ir_part_t last_part(const shard_ring_t *ring, const ir_type_t *type,
                           ir_placement_t placement) {
    ir_part_t part = {.placement = placement};
    if (placement.kind == IR_SPLIT)
        ir_split_range(type->dims[placement.dim], placement.granules, ring->n_ranks - 1,
                       ring->n_ranks, &part.begin, &part.extent);
    return part;
}

static ir_type_t last_type(const shard_ring_t *ring, const ir_type_t *type,
                           ir_placement_t placement) {
    ir_type_t local = *type;
    if (placement.kind == IR_SPLIT)
        local.dims[placement.dim] = last_part(ring, type, placement).extent;
    return local;
}

uint64_t shard_part_bytes(const shard_ring_t *ring, const ir_type_t *type,
                          ir_placement_t placement) {
    const ir_type_t local = last_type(ring, type, placement);
    return ir_type_bytes(&local);
}

/* ---- conversions ---- */

/* A local pass over the bytes, read and written. */
static double pass_us(const ir_target_t *target, double bytes) {
    const ir_machine_t *m = target->machine;
    return m->launch_us + (m->memory_gbps > 0 ? 2 * bytes / m->memory_gbps * 1e-3 : 0);
}

shard_conversion_t shard_convert(const shard_ring_t *ring, const ir_target_t *target,
                                 const ir_type_t *type, ir_placement_t from, ir_placement_t to) {
    return shard_convert_merged(ring, target, type, from, to, false);
}

shard_conversion_t shard_convert_merged(const shard_ring_t *ring, const ir_target_t *target,
                                        const ir_type_t *type, ir_placement_t from,
                                        ir_placement_t to, bool merges) {
    const double bytes = (double)ir_type_bytes(type);
    ir_transfer_t transfer = IR_TRANSFER_GATHER;
    double link = 0, pass = 0;
    if (ring->n_ranks < 2 || ir_placement_equal(from, to)) return (shard_conversion_t){0, 0};
    if (from.kind == IR_REPLICATE && to.kind == IR_SPLIT)
        pass = pass_us(target, (double)shard_part_bytes(ring, type, to));
    else if (to.kind == IR_PARTIAL)
        pass = pass_us(target, bytes);
    if (from.kind == IR_PARTIAL)
        transfer = to.kind == IR_SPLIT ? IR_TRANSFER_SCATTER : IR_TRANSFER_SUM;
    else if (to.kind == IR_SPLIT)
        transfer = IR_TRANSFER_EXCHANGE;
    if (from.kind != IR_REPLICATE) {
        const double latency = ir_link_us(&ring->links, transfer, 0) + target->machine->launch_us;
        const double wire =
            ir_link_us(&ring->links, transfer, bytes) + target->machine->launch_us - latency;
        link = wire + (merges ? fmin(latency, wire / SHARD_MERGED) : latency);
    }
    return (shard_conversion_t){to_ps(link), to_ps(pass)};
}

/* ---- nodes ---- */

st_status_t shard_node_ps(const shard_ring_t *ring, const ir_target_t *target,
                          const ir_graph_t *graph, ir_node_t n, const ir_strategy_t *strategy,
                          int64_t *out_ps) {
    const ir_node_info_t *node = ir_node(graph, n);
    const ir_op_def_t *def = ir_op_def(node->op);
    const uint32_t n_types = node->n_inputs + node->n_outputs, n_attrs = ir_op_n_attrs(def);
    st_arena_t arena = {0};
    st_status_t status = ST_OK;
    ir_cost_t cost;
    bool any = false;
    *out_ps = 0;
    if (def->flags & (IR_SOURCE | IR_VIEW | IR_STATE) || node->op == IR_OP_UPDATE) return ST_OK;
    ir_type_t *whole = st_arena_array(&arena, n_types, sizeof *whole);
    ir_type_t *local = st_arena_array(&arena, n_types, sizeof *local);
    ir_part_t *parts = st_arena_array(&arena, n_types, sizeof *parts);
    ir_attr_t *attrs = st_arena_copy(&arena, node->attrs, n_attrs * sizeof *attrs);
    if (!whole || !local || !parts || !attrs)
        TRY_GOTO(st_no_memory(n_types * sizeof *parts, "a node's parts"), done);
    for (uint32_t i = 0; i < n_types; i++) {
        const bool input = i < node->n_inputs;
        const uint32_t k = i - node->n_inputs;
        ir_placement_t placement = IR_PLACE_REPLICATE;
        if (strategy)
            placement = input ? shard_strategy_in(strategy, node->n_inputs, i)
                              : shard_strategy_out(strategy, k);
        whole[i] = *ir_value_type(graph, input ? node->inputs[i] : node->first_output + k);
        parts[i] = last_part(ring, &whole[i], placement);
        local[i] = last_type(ring, &whole[i], placement);
        any |= placement.kind == IR_SPLIT;
    }
    ir_op_ctx_t ctx = {node->op, node->n_inputs, node->n_outputs, whole, node->attrs, node->name};
    if (any && def->localize)
        TRY_GOTO(def->localize(&ctx, parts, parts + node->n_inputs, &arena, attrs), done);
    ctx.in = local;
    ctx.attrs = attrs;
    target->cost(target->context, &ctx, local + node->n_inputs, &cost);
    status = cost.status;
    double us = cost.us;
    if (!(def->flags & IR_CONTRACTION) && cost.kernel && !(def->flags & IR_COLLECTIVE))
        us = NEST_SHARE * fmax(0, us - cost.launches * target->machine->launch_us);
    *out_ps = to_ps(us);
done:
    st_arena_clear(&arena);
    return status;
}
