/* The energy of placements along one axis (model.h). */
#include "shard/model.h"

#include <string.h>

#include "base/hash.h"
#include "base/memory.h"

#define NO_COPY UINT32_MAX
enum { ROUNDS = 2, MOST_STARTS = 16 };

/* Nodes that decide together. */
typedef struct group {
    ir_node_t node; /* the first */
    uint32_t n;
} group_t;

/* A value that several read, of the nodes of a class: the variable of its copy. */
typedef struct copy {
    uint32_t class_of, output; /* of the producer */
    ir_value_t value;          /* of the first */
    uint32_t n;
    shard_places_t places;
} copy_t;

/* Readings between two variables, of one operand. */
typedef struct reading {
    ir_value_t value;         /* one of them */
    uint32_t from, to;        /* variables */
    uint32_t output, operand; /* output IR_NONE: `from` is a copy; operand IR_NONE: `to` is one */
    uint32_t n;
    uint32_t n_phases; /* of the step that read it */
    bool fixed;        /* no conversion: an update reads its state, a wait what is on its way */
} reading_t;

struct shard_model {
    const ir_graph_t *graph;
    const ir_target_t *target;
    shard_ring_t ring;
    shard_kinds_t kinds;
    st_arena_t arena;
    ir_uses_t uses;
    const ir_placement_t *const *pinned; /* [nodes]; NULL: no state is */
    uint64_t *hash;                      /* [nodes] */
    uint32_t *class_of;                  /* [nodes] */
    uint32_t *copy_of;                   /* [values]: NO_COPY */
    bool *is_output;                     /* [values]: of the graph */
    bool *hides; /* [values]: nothing but the optimizer waits for what it becomes */
    ST_VEC(group_t) groups;
    ST_VEC(copy_t) copies;
    ST_VEC(reading_t) readings;
    st_map_t by_hash, by_value, by_reading;
    shard_energy_t energy;
    const int64_t *own_costs; /* of labels, without readings */
    uint32_t n_starts;
    const uint8_t *starts[MOST_STARTS];
};

/* ---- classes ---- */

static uint64_t mix(uint64_t a, uint64_t b) {
    const uint64_t both[2] = {a, b};
    return st_hash64(both, sizeof both, 0);
}

/* Operands of an op of very many are alike: its rule cannot tell them apart either. */
static uint32_t place_of(const ir_node_info_t *node, uint32_t j) {
    return node->n_inputs > IR_MAX_OPERANDS ? 0 : j;
}

/* What readers look like, in any order. */
static uint64_t readers_hash(const shard_model_t *m, ir_value_t v) {
    uint64_t sum = m->is_output[v];
    for (uint32_t u = m->uses.first[v]; u < m->uses.first[v + 1]; u++) {
        const ir_node_info_t *reader = ir_node(m->graph, m->uses.node[u]);
        for (uint32_t j = 0; j < reader->n_inputs; j++)
            if (reader->inputs[j] == v) sum += mix(m->hash[m->uses.node[u]], place_of(reader, j));
    }
    return sum;
}

/* States that are pinned elsewhere decide apart. */
static uint64_t pin_hash(const shard_model_t *m, ir_node_t n) {
    const ir_placement_t *pin = m->pinned ? m->pinned[n] : NULL;
    const uint64_t what[3] = {pin ? 1 + (uint64_t)pin->kind : 0, pin ? (uint64_t)pin->dim : 0,
                              pin ? (uint64_t)pin->granules : 0};
    return st_hash64(what, sizeof what, 0);
}

static st_status_t refine(shard_model_t *m) {
    const ir_graph_t *graph = m->graph;
    uint64_t *next = st_calloc(graph->nodes.n, sizeof *next);
    if (!next) return st_no_memory(graph->nodes.n * sizeof *next, "the classes of nodes");
    for (ir_node_t n = 0; n < graph->nodes.n; n++)
        m->hash[n] = mix(m->kinds.kinds.data[m->kinds.of_node[n]].hash, pin_hash(m, n));
    for (int round = 0; round < ROUNDS; round++) {
        for (ir_node_t n = 0; n < graph->nodes.n; n++) {
            const ir_node_info_t *node = ir_node(graph, n);
            uint64_t hash = m->hash[n], read = 0;
            for (uint32_t j = 0; j < node->n_inputs; j++) {
                const ir_value_info_t *in = &graph->values.data[node->inputs[j]];
                read += mix(mix(m->hash[in->producer], in->index), place_of(node, j));
            }
            hash = mix(hash, read);
            for (uint32_t k = 0; k < node->n_outputs; k++)
                hash = mix(hash, readers_hash(m, node->first_output + k));
            next[n] = hash;
        }
        memcpy(m->hash, next, graph->nodes.n * sizeof *next);
    }
    st_free(next);
    return ST_OK;
}

static st_status_t find_groups(shard_model_t *m) {
    for (ir_node_t n = 0; n < m->graph->nodes.n; n++) {
        const uint32_t next = (uint32_t)m->groups.n;
        TRY(st_map_add(&m->by_hash, (const char *)&m->hash[n], sizeof m->hash[n], next,
                       &m->class_of[n]));
        if (m->class_of[n] == next) TRY(ST_VEC_PUSH(&m->groups, ((group_t){n, 0})));
        m->groups.data[m->class_of[n]].n++;
    }
    return ST_OK;
}

static const shard_kind_t *kind_of(const shard_model_t *m, ir_node_t n) {
    return &m->kinds.kinds.data[m->kinds.of_node[n]];
}

/* ---- variables ---- */

/* How a class names its ways for expansions: by the number of granules, which stays the same along
 * the graph; 0: whole. */
static uint32_t tag_of(const ir_node_info_t *node, const ir_strategy_t *way) {
    for (uint32_t k = 0; k < node->n_outputs && k < IR_MAX_OPERANDS; k++)
        if (way->out[k].kind == IR_SPLIT) return (uint32_t)way->out[k].granules;
    for (uint32_t j = 0; j < node->n_inputs && j < IR_MAX_OPERANDS; j++)
        if (way->in[j].kind == IR_SPLIT) return (uint32_t)way->in[j].granules;
    for (uint32_t j = 0; j < node->n_inputs && j < IR_MAX_OPERANDS; j++)
        if (way->in[j].kind == IR_PARTIAL) return 1;
    return 0;
}

/* Forward values that a later phase reads lie in memory until then. */
static bool is_kept(const shard_model_t *m, const ir_node_info_t *node, ir_value_t v) {
    if (node->phase != IR_PHASE_FORWARD || (ir_op_def(node->op)->flags & (IR_VIEW | IR_SOURCE)))
        return false;
    for (uint32_t u = m->uses.first[v]; u < m->uses.first[v + 1]; u++)
        if (ir_node(m->graph, m->uses.node[u])->phase != IR_PHASE_FORWARD) return true;
    return false;
}

static st_status_t times(int64_t cost, uint32_t n, int64_t *out) {
    if (st_mul_i64(cost, n, out) && *out <= SHARD_ENERGY_LIMIT) return ST_OK;
    return FAIL(ST_DOES_NOT_FIT, "the costs of placements exceed 2^56 picoseconds");
}

/* A pinned state lives in no other way, if it can live so. */
static void keep_pin(const shard_model_t *m, ir_node_t n, const shard_kind_t *kind,
                     int64_t *costs) {
    const ir_placement_t *pin = m->pinned ? m->pinned[n] : NULL;
    bool any = false;
    for (uint32_t x = 0; pin && x < kind->n_ways; x++)
        any |= ir_placement_equal(kind->ways[x].out[0], *pin);
    for (uint32_t x = 0; any && x < kind->n_ways; x++)
        if (!ir_placement_equal(kind->ways[x].out[0], *pin)) costs[x] = SHARD_FORBIDDEN;
}

static st_status_t add_group(shard_model_t *m, const group_t *group) {
    const ir_node_info_t *node = ir_node(m->graph, group->node);
    const shard_kind_t *kind = kind_of(m, group->node);
    int64_t costs[SHARD_MAX_LABELS];
    uint32_t tags[SHARD_MAX_LABELS];
    uint64_t bytes[SHARD_MAX_LABELS];
    for (uint32_t x = 0; x < kind->n_ways; x++) {
        int64_t cost;
        TRY(shard_node_ps(&m->ring, m->target, m->graph, group->node, &kind->ways[x], &cost));
        tags[x] = tag_of(node, &kind->ways[x]);
        bytes[x] = 0;
        for (uint32_t k = 0; k < node->n_outputs; k++) {
            const ir_value_t v = node->first_output + k;
            const ir_type_t *type = ir_value_type(m->graph, v);
            const ir_placement_t out = shard_strategy_out(&kind->ways[x], k);
            if ((ir_op_def(node->op)->flags & IR_STATE) || is_kept(m, node, v))
                bytes[x] += group->n * shard_part_bytes(&m->ring, type, out);
            if (m->is_output[v] && out.kind == IR_PARTIAL)
                cost += shard_convert_ps(&m->ring, m->target, type, out, IR_PLACE_REPLICATE);
        }
        TRY(times(cost, group->n, &costs[x]));
    }
    keep_pin(m, group->node, kind, costs);
    return shard_energy_variable(&m->energy, kind->n_ways, costs, tags, bytes, NULL);
}

/* What the copies of a value may be: as it is made, and as its readers want it. */
static void place_copy(const shard_model_t *m, ir_value_t v, shard_places_t *places) {
    *places = m->kinds.places.data[m->kinds.of_value[v]];
    for (uint32_t u = m->uses.first[v]; u < m->uses.first[v + 1]; u++) {
        const ir_node_info_t *reader = ir_node(m->graph, m->uses.node[u]);
        const shard_kind_t *kind = kind_of(m, m->uses.node[u]);
        for (uint32_t j = 0; j < reader->n_inputs; j++)
            for (uint32_t x = 0; reader->inputs[j] == v && x < kind->n_ways; x++)
                shard_places_add(places, shard_strategy_in(&kind->ways[x], reader->n_inputs, j));
    }
}

static st_status_t find_copies(shard_model_t *m) {
    for (ir_value_t v = 0; v < m->graph->values.n; v++) {
        const ir_value_info_t *info = &m->graph->values.data[v];
        m->copy_of[v] = NO_COPY;
        if (m->uses.first[v + 1] - m->uses.first[v] < 2) continue;
        const uint32_t next = (uint32_t)m->copies.n;
        const uint32_t key[2] = {m->class_of[info->producer], info->index};
        char *name = st_arena_copy(&m->arena, key, sizeof key);
        if (!name) return st_no_memory(sizeof key, "placements");
        TRY(st_map_add(&m->by_value, name, sizeof key, next, &m->copy_of[v]));
        if (m->copy_of[v] == next) {
            copy_t copy = {key[0], key[1], v, 0, {0}};
            place_copy(m, v, &copy.places);
            TRY(ST_VEC_PUSH(&m->copies, copy));
        }
        m->copies.data[m->copy_of[v]].n++;
    }
    return ST_OK;
}

static st_status_t add_copies(shard_model_t *m) {
    for (size_t c = 0; c < m->copies.n; c++) {
        const shard_places_t *places = &m->copies.data[c].places;
        int64_t costs[SHARD_MAX_PLACES] = {0};
        uint32_t tags[SHARD_MAX_PLACES];
        for (uint32_t i = 0; i < places->n; i++)
            tags[i] = places->items[i].kind == IR_SPLIT ? (uint32_t)places->items[i].granules
                                                        : places->items[i].kind == IR_PARTIAL;
        TRY(shard_energy_variable(&m->energy, places->n, costs, tags, NULL, NULL));
    }
    return ST_OK;
}

/* ---- tables ---- */

static st_status_t note_reading(shard_model_t *m, reading_t reading) {
    const uint32_t key[4] = {reading.from, reading.to, reading.output, reading.operand};
    const uint32_t next = (uint32_t)m->readings.n;
    uint32_t at;
    char *name = st_arena_copy(&m->arena, key, sizeof key);
    if (!name) return st_no_memory(sizeof key, "placements");
    TRY(st_map_add(&m->by_reading, name, sizeof key, next, &at));
    if (at == next) TRY(ST_VEC_PUSH(&m->readings, reading));
    m->readings.data[at].n++;
    return ST_OK;
}

/* Weights before the optimizer, which are gathered ahead; and gradients that the optimizer alone
 * reads, through what is no product: their sums run beside the rest of the backward pass. */
static void find_hiding(shard_model_t *m) {
    const ir_graph_t *graph = m->graph;
    for (ir_value_t v = (ir_value_t)graph->values.n; v-- > 0;) {
        const ir_node_info_t *producer = ir_value_producer(graph, v);
        bool alone = producer->phase == IR_PHASE_BACKWARD && !m->is_output[v];
        for (uint32_t u = m->uses.first[v]; alone && u < m->uses.first[v + 1]; u++) {
            const ir_node_info_t *reader = ir_node(graph, m->uses.node[u]);
            if (reader->phase == IR_PHASE_OPTIMIZER) continue;
            alone = !(ir_op_def(reader->op)->flags & IR_CONTRACTION);
            for (uint32_t k = 0; k < reader->n_outputs; k++)
                alone &= m->hides[reader->first_output + k];
        }
        m->hides[v] = alone || (producer->phase != IR_PHASE_OPTIMIZER && shard_is_weight(graph, v));
    }
}

static uint32_t count_phases(const shard_model_t *m, ir_value_t v) {
    uint32_t seen = 0;
    for (uint32_t u = m->uses.first[v]; u < m->uses.first[v + 1]; u++)
        seen |= 1u << ir_node(m->graph, m->uses.node[u])->phase;
    return (uint32_t)__builtin_popcount(seen);
}

/* From each value to its copy and from there to its readers, or straight to the only one. */
static st_status_t find_readings(shard_model_t *m) {
    const ir_graph_t *graph = m->graph;
    const uint32_t n_groups = (uint32_t)m->groups.n;
    for (ir_value_t v = 0; v < graph->values.n; v++) {
        const ir_value_info_t *info = &graph->values.data[v];
        if (m->copy_of[v] == NO_COPY) continue;
        TRY(note_reading(m, (reading_t){v, m->class_of[info->producer], n_groups + m->copy_of[v],
                                        info->index, IR_NONE, 0, count_phases(m, v), false}));
    }
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(graph, n);
        for (uint32_t j = 0; j < node->n_inputs; j++) {
            const ir_value_t v = node->inputs[j];
            const ir_value_info_t *info = &graph->values.data[v];
            const ir_op_t made_by = ir_node(graph, info->producer)->op;
            const bool fixed =
                (node->op == IR_OP_UPDATE && j == 0) || (ir_op_def(made_by)->flags & IR_START) != 0;
            const bool copied = m->copy_of[v] != NO_COPY && !fixed;
            TRY(note_reading(
                m, (reading_t){v, copied ? n_groups + m->copy_of[v] : m->class_of[info->producer],
                               m->class_of[n], copied ? IR_NONE : info->index, place_of(node, j), 0,
                               1, fixed}));
        }
    }
    return ST_OK;
}

/* Placement that label x of a variable gives to output k, or that a copy has (k IR_NONE). */
static ir_placement_t made_as(const shard_model_t *m, uint32_t variable, uint32_t k, uint32_t x) {
    if (k == IR_NONE) return m->copies.data[variable - m->groups.n].places.items[x];
    return shard_strategy_out(&kind_of(m, m->groups.data[variable].node)->ways[x], k);
}
static ir_placement_t read_as(const shard_model_t *m, uint32_t variable, uint32_t j, uint32_t x) {
    if (j == IR_NONE) return m->copies.data[variable - m->groups.n].places.items[x];
    const ir_node_t n = m->groups.data[variable].node;
    return shard_strategy_in(&kind_of(m, n)->ways[x], ir_node(m->graph, n)->n_inputs, j);
}

static st_status_t reading_cost(const shard_model_t *m, double weight, const reading_t *r,
                                uint32_t x, uint32_t y, int64_t *out) {
    const ir_placement_t from = made_as(m, r->from, r->output, x);
    const ir_placement_t to = read_as(m, r->to, r->operand, y);
    *out = 0;
    if (ir_placement_equal(from, to)) return ST_OK;
    if (r->fixed) {
        *out = SHARD_FORBIDDEN;
        return ST_OK;
    }
    if (from.kind == IR_REPLICATE && shard_makes_parts(m->graph, r->value, to)) return ST_OK;
    if (from.kind == IR_SPLIT && r->operand != IR_NONE &&
        shard_takes_parts(ir_node(m->graph, m->groups.data[r->to].node)))
        return ST_OK;
    const bool again =
        from.kind == IR_SPLIT && to.kind == IR_REPLICATE && shard_is_weight(m->graph, r->value);
    shard_conversion_t cost = shard_convert_merged(
        &m->ring, m->target, ir_value_type(m->graph, r->value), from, to, m->hides[r->value]);
    if (m->hides[r->value]) cost.link_ps = (int64_t)((double)cost.link_ps * weight);
    return times(cost.link_ps + cost.pass_ps, (again ? r->n_phases : 1) * r->n, out);
}

static st_status_t add_reading(const shard_model_t *m, double weight, const reading_t *r,
                               shard_energy_t *energy) {
    const shard_variable_t *variables = energy->variables.data;
    const uint32_t n_from = variables[r->from].n_labels, n_to = variables[r->to].n_labels;
    int64_t table[SHARD_MAX_LABELS * SHARD_MAX_LABELS], cost;
    if (r->from == r->to) { /* layer to layer, of one class: the same way on both sides */
        for (uint32_t x = 0; x < n_from; x++) {
            int64_t *own = &energy->costs.data[variables[r->from].first + x];
            TRY(reading_cost(m, weight, r, x, x, &cost));
            *own = shard_cost_add(*own, cost);
        }
        return ST_OK;
    }
    bool any = false;
    for (uint32_t x = 0; x < n_from; x++)
        for (uint32_t y = 0; y < n_to; y++) {
            TRY(reading_cost(m, weight, r, x, y, &table[x * n_to + y]));
            any |= table[x * n_to + y] != 0;
        }
    return any ? shard_energy_pair(energy, r->from, r->to, table) : ST_OK;
}

/* A shadow lives as its parameter does. */
static st_status_t tie_shadows(const shard_model_t *m, shard_energy_t *energy) {
    for (ir_node_t n = 0; n < m->graph->nodes.n; n++) {
        const ir_node_t of = ir_master_of(m->graph, ir_node(m->graph, n));
        if (of != IR_NONE && m->groups.data[m->class_of[n]].node == n)
            TRY(shard_energy_tie(energy, m->class_of[of], m->class_of[n]));
    }
    return ST_OK;
}

static st_status_t add_readings(const shard_model_t *m, double weight, shard_energy_t *energy) {
    TRY(tie_shadows(m, energy));
    for (size_t r = 0; r < m->readings.n; r++)
        TRY(add_reading(m, weight, &m->readings.data[r], energy));
    return ST_OK;
}

st_status_t shard_model_weigh(const shard_model_t *m, double weight, shard_energy_t *out_energy) {
    shard_energy_open(out_energy);
    for (uint32_t v = 0; v < m->energy.variables.n; v++) {
        const shard_variable_t *variable = &m->energy.variables.data[v];
        TRY(shard_energy_variable(out_energy, variable->n_labels, m->own_costs + variable->first,
                                  m->energy.classes.data + variable->first,
                                  m->energy.memory.data + variable->first, NULL));
    }
    return add_readings(m, weight, out_energy);
}

/* ---- starts ---- */

static st_status_t add_start(shard_model_t *m, uint32_t tag) {
    const shard_energy_t *energy = &m->energy;
    uint8_t *labels = st_arena_array(&m->arena, energy->variables.n, 1);
    if (!labels) return st_no_memory(energy->variables.n, "labels");
    for (uint32_t v = 0; v < energy->variables.n; v++) {
        const shard_variable_t *variable = &energy->variables.data[v];
        for (uint32_t x = variable->n_labels; x-- > 0;)
            if (energy->classes.data[variable->first + x] == tag) labels[v] = (uint8_t)x;
    }
    m->starts[m->n_starts++] = labels;
    return ST_OK;
}

/* Whole first, then the tags in the order in which they occur. */
static st_status_t add_starts(shard_model_t *m) {
    uint32_t tags[MOST_STARTS] = {0}, n = 1;
    TRY(add_start(m, 0));
    for (size_t i = 0; i < m->energy.classes.n && n < MOST_STARTS; i++) {
        bool known = false;
        for (uint32_t t = 0; t < n; t++) known |= tags[t] == m->energy.classes.data[i];
        if (known) continue;
        tags[n++] = m->energy.classes.data[i];
        TRY(add_start(m, m->energy.classes.data[i]));
    }
    return ST_OK;
}

/* ---- entry ---- */

static st_status_t build(shard_model_t *m, bool splits_inputs) {
    const ir_graph_t *graph = m->graph;
    TRY(shard_kinds_open(graph, &m->ring, splits_inputs, &m->kinds));
    TRY(ir_uses_build(graph, &m->uses));
    m->hash = st_arena_array(&m->arena, graph->nodes.n, sizeof *m->hash);
    m->class_of = st_arena_array(&m->arena, graph->nodes.n, sizeof *m->class_of);
    m->copy_of = st_arena_array(&m->arena, graph->values.n, sizeof *m->copy_of);
    m->is_output = st_arena_array(&m->arena, graph->values.n, sizeof *m->is_output);
    m->hides = st_arena_array(&m->arena, graph->values.n, sizeof *m->hides);
    if (!m->hash || !m->class_of || !m->copy_of || !m->is_output || !m->hides)
        return st_no_memory(graph->nodes.n * sizeof *m->hash, "the model of placements");
    for (size_t o = 0; o < graph->outputs.n; o++) m->is_output[graph->outputs.data[o].value] = true;
    find_hiding(m);
    TRY(refine(m));
    TRY(find_groups(m));
    TRY(find_copies(m));
    TRY(find_readings(m));
    for (size_t g = 0; g < m->groups.n; g++) TRY(add_group(m, &m->groups.data[g]));
    TRY(add_copies(m));
    m->own_costs = st_arena_copy(&m->arena, m->energy.costs.data,
                                 m->energy.costs.n * sizeof *m->energy.costs.data);
    if (!m->own_costs)
        return st_no_memory(m->energy.costs.n * sizeof *m->own_costs, "the model of placements");
    TRY(add_readings(m, m->ring.weight, &m->energy));
    return add_starts(m);
}

st_status_t shard_model_open(const ir_graph_t *graph, const ir_target_t *target,
                             const shard_ring_t *ring, bool splits_inputs,
                             const ir_placement_t *const *pinned, shard_model_t **out_model) {
    shard_model_t *model = st_calloc(1, sizeof *model);
    *out_model = NULL;
    if (!model) return st_no_memory(sizeof *model, "the model of placements");
    ASSERT(target->cost && target->machine);
    model->graph = graph;
    model->target = target;
    model->ring = *ring;
    model->pinned = pinned;
    const st_status_t status = build(model, splits_inputs);
    if (status == ST_OK)
        *out_model = model;
    else
        shard_model_destroy(model);
    return status;
}

void shard_model_destroy(shard_model_t *model) {
    if (!model) return;
    shard_kinds_close(&model->kinds);
    ir_uses_free(&model->uses);
    shard_energy_close(&model->energy);
    st_map_free(&model->by_hash);
    st_map_free(&model->by_value);
    st_map_free(&model->by_reading);
    ST_VEC_FREE(&model->groups);
    ST_VEC_FREE(&model->copies);
    ST_VEC_FREE(&model->readings);
    st_arena_clear(&model->arena);
    st_free(model);
}

const shard_energy_t *shard_model_energy(const shard_model_t *model) {
    return &model->energy;
}

const ir_graph_t *shard_model_graph(const shard_model_t *model) {
    return model->graph;
}

shard_start_t shard_model_starts(const shard_model_t *model) {
    return (shard_start_t){model->n_starts, model->starts};
}

uint32_t shard_model_class(const shard_model_t *model, ir_node_t node) {
    return model->class_of[node];
}

uint32_t shard_model_n_classes(const shard_model_t *model) {
    return (uint32_t)model->groups.n;
}

ir_node_t shard_model_node(const shard_model_t *model, uint32_t class_of, uint32_t *out_n_ways,
                           const ir_strategy_t **out_ways) {
    const ir_node_t n = model->groups.data[class_of].node;
    *out_n_ways = kind_of(model, n)->n_ways;
    *out_ways = kind_of(model, n)->ways;
    return n;
}

void shard_model_choose(const shard_model_t *model, const uint8_t *labels,
                        shard_choices_t *out_choices) {
    for (ir_node_t n = 0; n < model->graph->nodes.n; n++)
        out_choices->nodes[n] = &kind_of(model, n)->ways[labels[model->class_of[n]]];
    for (ir_value_t v = 0; out_choices->copies && v < model->graph->values.n; v++) {
        const uint32_t c = model->copy_of[v];
        out_choices->copies[v] =
            c == NO_COPY ? NULL : &model->copies.data[c].places.items[labels[model->groups.n + c]];
    }
}

static bool same_choice(const ir_node_info_t *node, const ir_strategy_t *a,
                        const ir_strategy_t *b) {
    for (uint32_t j = 0; j < node->n_inputs; j++)
        if (!ir_placement_equal(shard_strategy_in(a, node->n_inputs, j),
                                shard_strategy_in(b, node->n_inputs, j)))
            return false;
    for (uint32_t k = 0; k < node->n_outputs; k++)
        if (!ir_placement_equal(shard_strategy_out(a, k), shard_strategy_out(b, k))) return false;
    return true;
}

/* The copy's best label, given how the value is made and read. */
static void settle_copy(const shard_model_t *m, uint32_t variable, uint8_t *labels) {
    int64_t best = SHARD_FORBIDDEN;
    uint8_t best_x = 0;
    for (uint32_t x = 0; x < m->energy.variables.data[variable].n_labels; x++) {
        int64_t sum = 0;
        for (size_t p = 0; p < m->energy.pairs.n; p++) {
            const shard_pair_t *pair = &m->energy.pairs.data[p];
            if (pair->a != variable && pair->b != variable) continue;
            sum = shard_cost_add(sum, shard_end_cost(&m->energy, pair, variable, x,
                                                     labels[shard_other_end(pair, variable)]));
        }
        if (sum < best) best = sum, best_x = (uint8_t)x;
    }
    labels[variable] = best_x;
}

bool shard_model_find(const shard_model_t *model, const shard_choices_t *choices,
                      uint8_t *out_labels) {
    for (ir_node_t n = 0; n < model->graph->nodes.n; n++) {
        const shard_kind_t *kind = kind_of(model, n);
        const uint32_t class_of = model->class_of[n];
        const bool first = model->groups.data[class_of].node == n;
        uint32_t x = 0;
        while (x < kind->n_ways &&
               !same_choice(ir_node(model->graph, n), choices->nodes[n], &kind->ways[x]))
            x++;
        if (x == kind->n_ways || (!first && out_labels[class_of] != x)) return false;
        out_labels[class_of] = (uint8_t)x;
    }
    for (size_t c = 0; c < model->copies.n; c++)
        settle_copy(model, (uint32_t)(model->groups.n + c), out_labels);
    return true;
}
