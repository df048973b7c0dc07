/* Prices of conversions and of nodes on a part (price.h). */
#include "shard/price.h"

#include <math.h>
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "ir/structure.h"

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

/* ---- nodes that are known ---- */

typedef struct price_slot {
    uint64_t key; /* 0: empty */
    int64_t ps;
} price_slot_t;

/* Open addressing, at most half full. */
struct shard_prices {
    size_t n, capacity; /* a power of two */
    price_slot_t *slots;
};

st_status_t shard_prices_create(shard_prices_t **out_prices) {
    enum { FIRST = 4096 };
    shard_prices_t *made = st_calloc(1, sizeof *made);
    *out_prices = made;
    if (!made) return st_no_memory(sizeof *made, "prices");
    made->capacity = FIRST;
    made->slots = st_calloc(FIRST, sizeof *made->slots);
    if (made->slots) return ST_OK;
    st_free(made);
    *out_prices = NULL;
    return st_no_memory(FIRST * sizeof *made->slots, "prices");
}

void shard_prices_destroy(shard_prices_t *prices) {
    if (prices) st_free(prices->slots);
    st_free(prices);
}

/* The key's slot, or the empty one where it goes. */
static price_slot_t *slot_of(const shard_prices_t *prices, uint64_t key) {
    size_t at = (size_t)key & (prices->capacity - 1);
    while (prices->slots[at].key && prices->slots[at].key != key)
        at = (at + 1) & (prices->capacity - 1);
    return &prices->slots[at];
}

static st_status_t keep_price(shard_prices_t *prices, uint64_t key, int64_t ps) {
    if (2 * (prices->n + 1) > prices->capacity) {
        const shard_prices_t old = *prices;
        prices->slots = st_calloc(2 * old.capacity, sizeof *prices->slots);
        if (!prices->slots) {
            *prices = old;
            return st_no_memory(2 * old.capacity * sizeof *prices->slots, "prices");
        }
        prices->capacity *= 2;
        for (size_t i = 0; i < old.capacity; i++)
            if (old.slots[i].key) *slot_of(prices, old.slots[i].key) = old.slots[i];
        st_free(old.slots);
    }
    *slot_of(prices, key) = (price_slot_t){key, ps};
    prices->n++;
    return ST_OK;
}

/* All that a node's cost depends on: op, attributes, types, and how the parts are cut. */
static uint64_t price_key(const ir_graph_t *graph, const ir_node_info_t *node,
                          const ir_strategy_t *strategy) {
    uint64_t hash = ir_attrs_hash(node->op, node->attrs, node->n_inputs);
    for (uint32_t i = 0; i < node->n_inputs + node->n_outputs; i++) {
        const bool input = i < node->n_inputs;
        const uint32_t k = i - node->n_inputs;
        const ir_type_t *type =
            ir_value_type(graph, input ? node->inputs[i] : node->first_output + k);
        ir_placement_t placement = IR_PLACE_REPLICATE;
        if (strategy)
            placement = input ? shard_strategy_in(strategy, node->n_inputs, i)
                              : shard_strategy_out(strategy, k);
        int64_t what[5 + IR_MAX_RANK] = {type->dtype, type->rank, placement.kind};
        if (placement.kind == IR_SPLIT) what[3] = placement.dim, what[4] = placement.granules;
        memcpy(what + 5, type->dims, (size_t)type->rank * sizeof *type->dims);
        hash = st_hash64(what, (5 + (size_t)type->rank) * sizeof *what, hash);
    }
    return hash | 1;
}

/* ---- nodes ---- */

static st_status_t node_ps(const shard_ring_t *ring, const ir_target_t *target,
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

st_status_t shard_node_ps(const shard_ring_t *ring, const ir_target_t *target,
                          const ir_graph_t *graph, ir_node_t n, const ir_strategy_t *strategy,
                          int64_t *out_ps) {
    const ir_node_info_t *node = ir_node(graph, n);
    shard_prices_t *prices = ring->prices;
    *out_ps = 0;
    if (ir_op_def(node->op)->flags & (IR_SOURCE | IR_VIEW | IR_STATE) || node->op == IR_OP_UPDATE)
        return ST_OK;
    if (!prices) return node_ps(ring, target, graph, n, strategy, out_ps);
    const uintptr_t address = (uintptr_t)strategy;
    const uint64_t way = st_hash64(&address, sizeof address, 0) & ~(uint64_t)1;
    const price_slot_t *slot = way ? slot_of(prices, way) : NULL;
    if (strategy && slot && slot->key) {
        *out_ps = slot->ps;
        return ST_OK;
    }
    const uint64_t key = price_key(graph, node, strategy);
    slot = slot_of(prices, key);
    if (slot->key) {
        *out_ps = slot->ps;
    } else {
        TRY(node_ps(ring, target, graph, n, strategy, out_ps));
        TRY(keep_price(prices, key, *out_ps));
    }
    return strategy && way ? keep_price(prices, way, *out_ps) : ST_OK;
}
