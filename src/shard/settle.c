/* Working what is settled into a graph (settle.h). */
#include "shard/settle.h"

#include <string.h>

#include "base/memory.h"
#include "ir/build.h"
#include "shard/vocabulary.h"

/* ---- saying it ---- */

st_status_t shard_settled_open(const ir_graph_t *graph, shard_settled_t *out) {
    *out = (shard_settled_t){0};
    out->homes = st_arena_array(&out->arena, graph->nodes.n, sizeof *out->homes);
    return out->homes ? ST_OK : st_no_memory(graph->nodes.n * sizeof *out->homes, "the lowering");
}

void shard_settled_free(shard_settled_t *settled) {
    ST_VEC_FREE(&settled->pins);
    ST_VEC_FREE(&settled->choices);
    st_arena_clear(&settled->arena);
    *settled = (shard_settled_t){0};
}

st_status_t shard_settle_pin(shard_settled_t *settled, ir_value_t value, ir_placement_t placement,
                             uint32_t phases, bool by_phase) {
    for (size_t i = 0; i < settled->pins.n; i++) {
        const shard_pin_t *pin = &settled->pins.data[i];
        if (pin->value == value && pin->phases == phases &&
            ir_placement_equal(pin->placement, placement))
            return ST_OK;
    }
    return ST_VEC_PUSH(&settled->pins, ((shard_pin_t){value, placement, phases, by_phase}));
}

st_status_t shard_settle_choice(shard_settled_t *settled, const ir_graph_t *graph, ir_node_t node,
                                ir_placement_t **out_in, ir_placement_t **out_out) {
    const ir_node_info_t *info = ir_node(graph, node);
    *out_in = st_arena_array(&settled->arena, info->n_inputs, sizeof **out_in);
    *out_out = st_arena_array(&settled->arena, info->n_outputs, sizeof **out_out);
    if (!*out_in || !*out_out)
        return st_no_memory(info->n_inputs * sizeof **out_in, "the lowering");
    return ST_VEC_PUSH(&settled->choices,
                       ((shard_choice_t){.node = node, .in = *out_in, .out = *out_out}));
}

st_status_t shard_settle_parts(shard_settled_t *settled, ir_node_t node) {
    return ST_VEC_PUSH(&settled->choices, ((shard_choice_t){.node = node, .parts = true}));
}

/* ---- working it in ---- */

typedef struct preparing {
    const ir_graph_t *from;
    const shard_settled_t *settled;
    shard_prepared_t *out;
    ir_build_t b;
    shard_parts_t parts;
    ir_value_t *map;     /* [values] */
    uint32_t *first_pin; /* [values]: index + 1 of its first pin; 0: none */
    uint32_t *next_pin;  /* [pins]: the value's next, + 1 */
    ir_value_t *turned;  /* [pins][IR_PHASE_END]; by_phase: of each phase, else the first */
    uint32_t *choice_of; /* [nodes]: index + 1 */
    ST_VEC(shard_forced_t) forced;
    ST_VEC(ir_placement_t) homes;
} preparing_t;

/* Granules of a value of this graph. */
static ir_placement_t resolved(const ir_type_t *type, ir_placement_t placement) {
    if (placement.kind == IR_SPLIT && placement.granules == IR_GRANULES_EACH)
        placement.granules = type->dims[placement.dim] ? type->dims[placement.dim] : 1;
    return placement;
}

/* What is known of the nodes that were added since. */
static st_status_t note_nodes(preparing_t *p, shard_forced_t forced, ir_placement_t home) {
    while (p->forced.n < p->out->graph->nodes.n) {
        TRY(ST_VEC_PUSH(&p->forced, forced));
        TRY(ST_VEC_PUSH(&p->homes, home));
    }
    return ST_OK;
}

static st_status_t placements_of(preparing_t *p, const ir_placement_t *given, uint32_t n,
                                 const ir_value_t *values, ir_value_t first,
                                 const ir_placement_t **out) {
    ir_placement_t *made = st_arena_array(&p->out->arena, n, sizeof *made);
    *out = made;
    if (!made) return st_no_memory(n * sizeof *made, "the lowering");
    for (uint32_t i = 0; i < n; i++)
        made[i] = resolved(ir_value_type(p->from, values ? values[i] : first + i), given[i]);
    return ST_OK;
}

static uint32_t pin_of(const preparing_t *p, ir_value_t v, ir_phase_t phase) {
    uint32_t i = p->first_pin[v];
    while (i && !(p->settled->pins.data[i - 1].phases >> phase & 1)) i = p->next_pin[i - 1];
    return i;
}

/* The value as readers of the phase get it. */
static st_status_t turn(preparing_t *p, ir_value_t v, ir_phase_t phase, ir_value_t *out) {
    uint32_t i = pin_of(p, v, phase);
    *out = p->map[v];
    if (!i) return ST_OK;
    const shard_pin_t *pin = &p->settled->pins.data[i - 1];
    ir_value_t *made = &p->turned[(i - 1) * IR_PHASE_END + (pin->by_phase ? phase : 0)];
    if (*made == IR_NONE) {
        const ir_type_t type = *ir_value_type(p->from, v);
        shard_forced_t forced = {.turns = true, .by_phase = pin->by_phase};
        TRY(placements_of(p, &pin->placement, 1, NULL, v, &forced.in));
        forced.out = forced.in;
        p->out->graph->phase = phase;
        ir_arg_t shape = IR_ARG_INTS("shape", type.dims, type.rank);
        TRY(ir_graph_add(p->out->graph, IR_OP_RESHAPE, NULL, 1, &p->map[v], 1, &shape, made));
        TRY(note_nodes(p, forced, IR_PLACE_REPLICATE));
    }
    *out = *made;
    return ST_OK;
}

/* The sum of squares of some operands: all of those that are split, or of the others. */
static st_status_t sum_group(preparing_t *p, const ir_node_info_t *node, const ir_value_t *inputs,
                             bool split, ir_value_t *out) {
    const ir_graph_t *to = p->out->graph;
    ir_value_t *group = st_arena_array(&p->out->arena, node->n_inputs, sizeof *group);
    ir_placement_t *in = st_arena_array(&p->out->arena, node->n_inputs, sizeof *in);
    ir_placement_t *sum = st_arena_array(&p->out->arena, 1, sizeof *sum);
    uint32_t n = 0;
    *out = IR_NONE;
    if (!group || !in || !sum) return st_no_memory(node->n_inputs * sizeof *in, "the lowering");
    for (uint32_t j = 0; j < node->n_inputs; j++) {
        const ir_node_t from = to->values.data[inputs[j]].producer;
        const shard_forced_t *forced = &p->forced.data[from];
        const uint32_t k = inputs[j] - ir_node(to, from)->first_output;
        if ((forced->out && forced->out[k].kind == IR_SPLIT) != split) continue;
        if (split) in[n] = forced->out[k];
        group[n++] = inputs[j];
    }
    if (!n) return ST_OK;
    if (split) *sum = IR_PLACE_PARTIAL;
    *out = ir_b_node(&p->b, IR_OP_SUM_SQUARES, n, group, 0, NULL);
    TRY(p->b.status);
    return note_nodes(p, split ? (shard_forced_t){.in = in, .out = sum} : (shard_forced_t){0},
                      IR_PLACE_REPLICATE);
}

static st_status_t sum_squares(preparing_t *p, const ir_node_info_t *node,
                               const ir_value_t *inputs) {
    ir_value_t split, rest;
    p->out->graph->phase = node->phase;
    TRY(sum_group(p, node, inputs, true, &split));
    TRY(sum_group(p, node, inputs, false, &rest));
    ir_dtype_t wide = ir_value_type(p->from, node->first_output)->dtype;
    if (split != IR_NONE && ir_b_type(&p->b, split)->dtype != wide)
        split = ir_b_cast(&p->b, split, wide);
    if (rest != IR_NONE && ir_b_type(&p->b, rest)->dtype != wide)
        rest = ir_b_cast(&p->b, rest, wide);
    p->map[node->first_output] = split == IR_NONE  ? rest
                                 : rest == IR_NONE ? split
                                                   : ir_b_binary(&p->b, IR_OP_ADD, split, rest);
    TRY(p->b.status);
    return note_nodes(p, (shard_forced_t){0}, IR_PLACE_REPLICATE);
}

/* How the newest node of a replaced one runs; what it has beside it are constants. */
static st_status_t settle_part(void *context, const ir_placement_t *in, ir_placement_t out) {
    preparing_t *p = context;
    const ir_graph_t *to = p->out->graph;
    const ir_node_info_t *node = ir_node(to, (ir_node_t)to->nodes.n - 1);
    shard_forced_t forced = {.trusted = true};
    ir_placement_t *own = st_arena_array(&p->out->arena, 1, sizeof *own);
    if (p->forced.n == to->nodes.n) return ST_OK; /* nothing was added */
    forced.in = st_arena_copy(&p->out->arena, in, node->n_inputs * sizeof *in);
    forced.out = own;
    if (!own || !forced.in) return st_no_memory(sizeof *own, "the lowering");
    *own = out;
    return note_nodes(p, forced, IR_PLACE_REPLICATE);
}

static st_status_t replace_node(preparing_t *p, ir_node_t n, const ir_value_t *inputs) {
    const ir_node_info_t *node = ir_node(p->from, n);
    ir_value_t out[4];
    p->out->graph->phase = node->phase;
    TRY(shard_add_parts(&p->parts, p->from, n, inputs, out));
    for (uint32_t k = 0; k < node->n_outputs; k++) p->map[node->first_output + k] = out[k];
    return ST_OK;
}

static st_status_t copy_node(preparing_t *p, ir_node_t n) {
    const ir_node_info_t *node = ir_node(p->from, n);
    ir_value_t *inputs = st_arena_array(&p->out->arena, node->n_inputs, sizeof *inputs);
    ir_value_t *before = st_arena_array(&p->out->arena, node->n_inputs, sizeof *before);
    shard_forced_t forced = {0};
    if (!inputs || !before) return st_no_memory(node->n_inputs * sizeof *inputs, "the lowering");
    for (uint32_t j = 0; j < node->n_inputs; j++) {
        inputs[j] = p->map[node->inputs[j]];
        if (node->op != IR_OP_UPDATE || j) TRY(turn(p, node->inputs[j], node->phase, &inputs[j]));
    }
    if (node->op == IR_OP_SUM_SQUARES) return sum_squares(p, node, inputs);
    if (p->choice_of[n] && p->settled->choices.data[p->choice_of[n] - 1].parts)
        return replace_node(p, n, inputs);
    if (p->choice_of[n]) {
        const shard_choice_t *choice = &p->settled->choices.data[p->choice_of[n] - 1];
        TRY(placements_of(p, choice->in, node->n_inputs, node->inputs, 0, &forced.in));
        TRY(placements_of(p, choice->out, node->n_outputs, NULL, node->first_output, &forced.out));
        forced.ring = forced.trusted = choice->ring;
    }
    for (uint32_t j = 0; j < node->n_inputs; j++) before[j] = p->map[node->inputs[j]];
    for (uint32_t j = 0; j < node->n_inputs; j++) p->map[node->inputs[j]] = inputs[j];
    TRY(ir_graph_clone_node(p->out->graph, p->from, n, NULL, p->map));
    for (uint32_t j = node->n_inputs; j-- > 0;) p->map[node->inputs[j]] = before[j];
    const ir_node_t master = ir_master_of(p->from, node), lives_as = master == IR_NONE ? n : master;
    ir_placement_t home = p->settled->homes ? p->settled->homes[lives_as] : IR_PLACE_REPLICATE;
    if (home.kind == IR_SPLIT) home = resolved(ir_value_type(p->from, node->first_output), home);
    return note_nodes(p, forced, home);
}

static st_status_t open_tables(preparing_t *p) {
    const shard_settled_t *s = p->settled;
    st_arena_t *arena = &p->out->arena;
    p->map = st_arena_array(arena, p->from->values.n, sizeof *p->map);
    p->first_pin = st_arena_array(arena, p->from->values.n, sizeof *p->first_pin);
    p->next_pin = st_arena_array(arena, s->pins.n, sizeof *p->next_pin);
    p->turned = st_arena_array(arena, s->pins.n * IR_PHASE_END, sizeof *p->turned);
    p->choice_of = st_arena_array(arena, p->from->nodes.n, sizeof *p->choice_of);
    if (!p->map || !p->first_pin || !p->next_pin || !p->turned || !p->choice_of)
        return st_no_memory(p->from->values.n * sizeof *p->map, "the lowering");
    for (size_t i = s->pins.n; i-- > 0;) {
        p->next_pin[i] = p->first_pin[s->pins.data[i].value];
        p->first_pin[s->pins.data[i].value] = (uint32_t)i + 1;
        for (int k = 0; k < IR_PHASE_END; k++) p->turned[i * IR_PHASE_END + (size_t)k] = IR_NONE;
    }
    for (size_t i = 0; i < s->choices.n; i++)
        p->choice_of[s->choices.data[i].node] = (uint32_t)i + 1;
    return ST_OK;
}

static st_status_t take_tables(preparing_t *p) {
    shard_prepared_t *out = p->out;
    size_t n = out->graph->nodes.n;
    out->forced = st_arena_copy(&out->arena, p->forced.data, n * sizeof *out->forced);
    out->homes = st_arena_copy(&out->arena, p->homes.data, n * sizeof *out->homes);
    return out->forced && out->homes ? ST_OK
                                     : st_no_memory(n * sizeof *out->forced, "the lowering");
}

st_status_t shard_prepare(const ir_graph_t *graph, const shard_settled_t *settled,
                          shard_prepared_t *out) {
    preparing_t p = {.from = graph, .settled = settled, .out = out};
    st_status_t status = ST_OK;
    *out = (shard_prepared_t){0};
    TRY_GOTO(ir_graph_create_like(graph, &out->graph), done);
    p.b.graph = out->graph;
    p.parts = (shard_parts_t){.b = {.graph = out->graph},
                              .axis = settled->axis,
                              .n_ranks = settled->n_ranks,
                              .index = IR_NONE,
                              .context = &p,
                              .settle = settle_part};
    TRY_GOTO(open_tables(&p), done);
    for (ir_node_t n = 0; n < graph->nodes.n; n++) TRY_GOTO(copy_node(&p, n), done);
    for (size_t o = 0; o < graph->outputs.n; o++) {
        ir_value_t v = graph->outputs.data[o].value, value;
        ir_phase_t phase = ir_value_producer(graph, v)->phase;
        TRY_GOTO(turn(&p, v, phase, &value), done);
        TRY_GOTO(ir_graph_append_output(out->graph, graph->outputs.data[o].name, value), done);
    }
    out->graph->phase = IR_PHASE_FORWARD;
    TRY_GOTO(take_tables(&p), done);
    out->places_inputs = settled->places_inputs;
done:
    ST_VEC_FREE(&p.forced);
    ST_VEC_FREE(&p.homes);
    return status;
}

void shard_prepared_free(shard_prepared_t *prepared) {
    ir_graph_destroy(prepared->graph);
    st_arena_clear(&prepared->arena);
    *prepared = (shard_prepared_t){0};
}
