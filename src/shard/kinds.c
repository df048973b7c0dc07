/* Ways to run (kinds.h). */
#include "shard/kinds.h"

#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "ir/node_ctx.h"
#include "ir/structure.h"
#include "shard/price.h"

/* A dim of `extent` that a reshape cuts into `granules` parts, each a dim of its own. */
typedef struct cut {
    int64_t extent, granules;
} cut_t;

typedef struct finder {
    const ir_graph_t *graph;
    bool splits_inputs;
    const shard_ring_t *ring;
    int64_t batch_granules; /* 0: no input is split */
    shard_kinds_t *kinds;
    ST_VEC(cut_t) cuts;
    st_map_t by_key;    /* kind of a key */
    st_map_t by_places; /* places of a list */
    ir_strategy_list_t list;
    shard_places_t made;
    ir_strategy_t ways[SHARD_MAX_WAYS];
    uint32_t n_ways;
} finder_t;

/* ---- places ---- */

void shard_places_add(shard_places_t *places, ir_placement_t placement) {
    for (uint32_t i = 0; i < places->n; i++)
        if (ir_placement_equal(places->items[i], placement)) return;
    if (places->n < SHARD_MAX_PLACES) places->items[places->n++] = placement;
}

static ir_placement_t clean(ir_placement_t placement) {
    return placement.kind == IR_SPLIT ? placement : (ir_placement_t){.kind = placement.kind};
}

static st_status_t intern(finder_t *f, const shard_places_t *places, uint32_t *out) {
    struct {
        int64_t n, item[SHARD_MAX_PLACES][3];
    } key = {.n = places->n};
    for (uint32_t i = 0; i < places->n; i++) {
        const ir_placement_t p = clean(places->items[i]);
        key.item[i][0] = p.kind;
        key.item[i][1] = p.dim;
        key.item[i][2] = p.granules;
    }
    const size_t bytes = sizeof key.n + places->n * sizeof key.item[0];
    char *copy = st_arena_copy(&f->kinds->arena, &key, bytes);
    const uint32_t next = (uint32_t)f->kinds->places.n;
    if (!copy) return st_no_memory(bytes, "placements");
    TRY(st_map_add(&f->by_places, copy, bytes, next, out));
    return *out == next ? ST_VEC_PUSH(&f->kinds->places, *places) : ST_OK;
}

/* ---- what sources may have ---- */

/* The extents that reshapes cut: [.., 4096, ..] into [.., 32, 128, ..], the dims before it
 * equal. */
static st_status_t find_cuts(finder_t *f) {
    for (ir_node_t n = 0; n < f->graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(f->graph, n);
        if (node->op != IR_OP_RESHAPE) continue;
        const ir_type_t *a = ir_value_type(f->graph, node->inputs[0]);
        const ir_type_t *b = ir_value_type(f->graph, node->first_output);
        if (a->rank > b->rank) { /* merged dims, seen the other way */
            const ir_type_t *swap = a;
            a = b;
            b = swap;
        }
        int32_t d = 0;
        while (d < a->rank && a->dims[d] == b->dims[d]) d++;
        if (d >= a->rank || d + 1 >= b->rank || b->dims[d] < 2 || b->dims[d] >= a->dims[d] ||
            a->dims[d] % b->dims[d] || b->dims[d] * b->dims[d + 1] != a->dims[d])
            continue;
        bool known = false;
        for (size_t i = 0; i < f->cuts.n; i++)
            known |= f->cuts.data[i].extent == a->dims[d] && f->cuts.data[i].granules == b->dims[d];
        if (!known) TRY(ST_VEC_PUSH(&f->cuts, ((cut_t){a->dims[d], b->dims[d]})));
    }
    return ST_OK;
}

/* The smallest batch extent of the inputs, of which all others are multiples; else none is
 * split. */
static int64_t find_granules(const finder_t *f) {
    int64_t granules = 0;
    for (int pass = 0; pass < 2; pass++)
        for (ir_node_t n = 0; n < f->graph->nodes.n; n++) {
            const ir_node_info_t *node = ir_node(f->graph, n);
            if (node->op != IR_OP_INPUT || ir_attr_int(node, "batch_axis") < 0) continue;
            const ir_type_t *type = ir_value_type(f->graph, node->first_output);
            const int64_t axis = ir_attr_int(node, "batch_axis");
            if (axis >= type->rank || type->dims[axis] < 2) continue;
            if (!pass && (!granules || type->dims[axis] < granules)) granules = type->dims[axis];
            if (pass && type->dims[axis] % granules) return 0;
        }
    return granules;
}

static void source_places(finder_t *f, const ir_node_info_t *node) {
    const ir_type_t *type = ir_value_type(f->graph, node->first_output);
    if (node->op == IR_OP_INPUT && f->splits_inputs) {
        const int64_t batch = ir_attr_int(node, "batch_axis");
        for (int32_t d = 0; batch >= 0 && d < type->rank; d++) {
            const int64_t granules = d == batch ? f->batch_granules : type->dims[d];
            if (type->dims[d] >= 2 && granules >= 2)
                shard_places_add(&f->made, IR_PLACE_SPLIT(d, granules));
        }
    }
    if (!(ir_op_def(node->op)->flags & IR_STATE)) return;
    for (int32_t d = 0; d < type->rank; d++) {
        if (type->dims[d] < 2) continue;
        shard_places_add(&f->made, IR_PLACE_SPLIT(d, type->dims[d]));
        for (size_t i = 0; i < f->cuts.n && !f->ring->fine_states; i++)
            if (f->cuts.data[i].extent == type->dims[d])
                shard_places_add(&f->made, IR_PLACE_SPLIT(d, f->cuts.data[i].granules));
    }
}

/* ---- what rules propose ---- */

static bool can_split(const finder_t *f, const ir_type_t *type, ir_placement_t placement) {
    if (placement.kind != IR_SPLIT) return true;
    return placement.dim < type->rank && placement.granules > 0 &&
           type->dims[placement.dim] % placement.granules == 0 &&
           (placement.granules >= f->ring->n_ranks || placement.granules == f->batch_granules);
}

static bool is_legal(const finder_t *f, const ir_node_info_t *node, const ir_strategy_t *way) {
    for (uint32_t j = 0; j < node->n_inputs; j++)
        if (!can_split(f, ir_value_type(f->graph, node->inputs[j]),
                       shard_strategy_in(way, node->n_inputs, j)))
            return false;
    for (uint32_t k = 0; k < node->n_outputs; k++)
        if (!can_split(f, ir_value_type(f->graph, node->first_output + k),
                       shard_strategy_out(way, k)))
            return false;
    return true;
}

static bool same_way(const ir_strategy_t *a, const ir_strategy_t *b) {
    for (uint32_t i = 0; i < IR_MAX_OPERANDS; i++)
        if (!ir_placement_equal(a->in[i], b->in[i]) || !ir_placement_equal(a->out[i], b->out[i]))
            return false;
    return true;
}

static void add_way(finder_t *f, const ir_node_info_t *node, const ir_strategy_t *way) {
    if (f->n_ways == SHARD_MAX_WAYS || !is_legal(f, node, way)) return;
    for (uint32_t i = 0; i < f->n_ways; i++)
        if (same_way(&f->ways[i], way)) return;
    f->ways[f->n_ways++] = *way;
}

static st_status_t ask_rule(finder_t *f, ir_node_t n) {
    const ir_node_info_t *node = ir_node(f->graph, n);
    ir_node_ctx_t ctx;
    ir_placement_t *have = st_calloc(node->n_inputs, sizeof *have);
    if (!have) return st_no_memory(node->n_inputs * sizeof *have, "a node's placements");
    st_status_t status = ir_node_ctx_open(&ctx, f->graph, n);
    if (status != ST_OK) {
        st_free(have);
        return status;
    }
    for (uint32_t j = 0; j < node->n_inputs; j++) {
        const shard_places_t *places = &f->kinds->places.data[f->kinds->of_value[node->inputs[j]]];
        for (uint32_t i = 1; i < places->n; i++) {
            have[j] = places->items[i];
            f->list.have = have;
            f->list.n = 0;
            ir_op_def(node->op)->strategies(&ctx.op, &f->list);
            for (uint32_t s = 0; s < f->list.n; s++) add_way(f, node, &f->list.items[s]);
        }
        have[j] = IR_PLACE_REPLICATE;
    }
    ir_node_ctx_close(&ctx);
    st_free(have);
    return ST_OK;
}

/* ---- kinds ---- */

/* Op, attributes, phase, types, and the operands' places. */
static uint64_t key_of(const finder_t *f, ir_node_t n) {
    const ir_node_info_t *node = ir_node(f->graph, n);
    uint64_t hash = ir_attrs_hash(node->op, node->attrs, (uint64_t)node->phase + 1);
    for (uint32_t i = 0; i < node->n_inputs + node->n_outputs; i++) {
        const ir_value_t v =
            i < node->n_inputs ? node->inputs[i] : node->first_output + i - node->n_inputs;
        const ir_type_t *type = ir_value_type(f->graph, v);
        const int64_t head[3] = {type->dtype, type->rank,
                                 i < node->n_inputs ? (int64_t)f->kinds->of_value[v] : -1};
        hash = st_hash64(head, sizeof head, hash);
        hash = st_hash64(type->dims, (size_t)type->rank * sizeof *type->dims, hash);
    }
    return hash;
}

static st_status_t make_kind(finder_t *f, ir_node_t n, uint64_t hash) {
    const ir_node_info_t *node = ir_node(f->graph, n);
    const uint32_t flags = ir_op_def(node->op)->flags;
    shard_kind_t kind = {.node = n, .hash = hash};
    if (flags & IR_REGION)
        return FAIL(ST_UNSUPPORTED, "%s: placements inside of control flow are not searched for",
                    ir_node_label(f->graph, n));
    f->n_ways = 1;
    memset(&f->ways[0], 0, sizeof f->ways[0]);
    if (!(flags & (IR_SOURCE | IR_STATE))) TRY(ask_rule(f, n));
    kind.out = st_arena_array(&f->kinds->arena, node->n_outputs, sizeof *kind.out);
    if (!kind.out) return st_no_memory(node->n_outputs * sizeof *kind.out, "a kind of nodes");
    for (uint32_t k = 0; k < node->n_outputs; k++) {
        f->made = (shard_places_t){.n = 1};
        if (flags & (IR_SOURCE | IR_STATE)) {
            source_places(f, node);
            for (uint32_t i = 1; i < f->made.n; i++) {
                ir_strategy_t way = {.out = {f->made.items[i]}};
                add_way(f, node, &way);
            }
        }
        for (uint32_t s = 1; s < f->n_ways; s++)
            shard_places_add(&f->made, clean(shard_strategy_out(&f->ways[s], k)));
        TRY(intern(f, &f->made, &kind.out[k]));
    }
    kind.n_ways = f->n_ways;
    kind.ways = st_arena_copy(&f->kinds->arena, f->ways, f->n_ways * sizeof *kind.ways);
    if (!kind.ways) return st_no_memory(f->n_ways * sizeof *kind.ways, "a kind of nodes");
    return ST_VEC_PUSH(&f->kinds->kinds, kind);
}

static st_status_t find_kinds(finder_t *f) {
    shard_kinds_t *kinds = f->kinds;
    kinds->of_node = st_arena_array(&kinds->arena, f->graph->nodes.n, sizeof *kinds->of_node);
    kinds->of_value = st_arena_array(&kinds->arena, f->graph->values.n, sizeof *kinds->of_value);
    if (!kinds->of_node || !kinds->of_value)
        return st_no_memory(f->graph->values.n * sizeof *kinds->of_value, "the kinds of nodes");
    TRY(find_cuts(f));
    f->batch_granules = find_granules(f);
    for (ir_node_t n = 0; n < f->graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(f->graph, n);
        const uint64_t hash = key_of(f, n);
        const uint32_t next = (uint32_t)kinds->kinds.n;
        char *key = st_arena_copy(&kinds->arena, &hash, sizeof hash);
        if (!key) return st_no_memory(sizeof hash, "the kinds of nodes");
        TRY(st_map_add(&f->by_key, key, sizeof hash, next, &kinds->of_node[n]));
        if (kinds->of_node[n] == next) TRY(make_kind(f, n, hash));
        const shard_kind_t *kind = &kinds->kinds.data[kinds->of_node[n]];
        for (uint32_t k = 0; k < node->n_outputs; k++)
            kinds->of_value[node->first_output + k] = kind->out[k];
    }
    return ST_OK;
}

st_status_t shard_kinds_open(const ir_graph_t *graph, const shard_ring_t *ring, bool splits_inputs,
                             shard_kinds_t *out_kinds) {
    finder_t *f = st_calloc(1, sizeof *f);
    *out_kinds = (shard_kinds_t){0};
    if (!f) return st_no_memory(sizeof *f, "the kinds of nodes");
    *f = (finder_t){
        .graph = graph, .splits_inputs = splits_inputs, .ring = ring, .kinds = out_kinds};
    st_status_t status = find_kinds(f);
    ST_VEC_FREE(&f->cuts);
    st_map_free(&f->by_key);
    st_map_free(&f->by_places);
    st_free(f);
    if (status != ST_OK) shard_kinds_close(out_kinds);
    return status;
}

void shard_kinds_close(shard_kinds_t *kinds) {
    ST_VEC_FREE(&kinds->kinds);
    ST_VEC_FREE(&kinds->places);
    st_arena_clear(&kinds->arena);
}
