/* Emitting one rank's graph (lower.h). */
#include <string.h>

#include "ir/build.h"
#include "shard/internal.h"

/* Local values of one global value. Lazy ones (internal.h) are made whole once in each phase. */
typedef struct local_value {
    ir_value_t home;
    ir_value_t in_flight[IR_PHASE_END]; /* start of the collective that makes it full */
    ir_value_t full[IR_PHASE_END];      /* its wait */
    ir_value_t *wants;                  /* [phases][wants], as shard_value_t.wants */
    ir_value_t *parted; /* [wants]: starts of what makes a part: a scattered sum, an exchange */
    uint32_t n_wants;
} local_value_t;

/* A lazy value that is made whole, and in which phase. */
typedef struct gather {
    ir_value_t value;
    ir_phase_t phase;
} gather_t;

/* Where the elements of a rank's part lie: a vector of positions. */
typedef struct cut {
    int64_t size, granules;
    ir_value_t positions;
} cut_t;

typedef struct emitter {
    const shard_lowering_t *lowering;
    const ir_graph_t *from;
    uint32_t rank,
        n_parts; /* the parts of `n_parts` ranks, from `rank` on: one, but for estimates */
    ir_graph_t *to;
    st_arena_t arena; /* scratch */
    local_value_t *values;
    bool *emitted; /* [nodes] */
    ST_VEC(gather_t) gathers;
    ST_VEC(cut_t) cuts;
    ir_value_t index; /* the coordinate; IR_NONE until it is needed */
} emitter_t;

/* Where a rank's part of a dim lies. */
static void range_of(const emitter_t *e, int64_t size, int64_t granules, int64_t *begin,
                     int64_t *extent) {
    int64_t last_begin, last_extent;
    const uint32_t last = e->rank + e->n_parts - 1, n_ranks = e->lowering->n_ranks;
    ir_split_range(size, granules, e->rank, n_ranks, begin, extent);
    ir_split_range(size, granules, last, n_ranks, &last_begin, &last_extent);
    *extent = last_begin + last_extent - *begin;
}

/* Part of a global type that a rank holds. */
static ir_type_t local_type(const emitter_t *e, const ir_type_t *global, ir_placement_t placement) {
    ir_type_t local = *global;
    int64_t begin;
    if (placement.kind == IR_SPLIT)
        range_of(e, global->dims[placement.dim], placement.granules, &begin,
                 &local.dims[placement.dim]);
    return local;
}

static ir_part_t part_of(const emitter_t *e, ir_value_t v, ir_placement_t placement) {
    ir_part_t part = {.placement = placement};
    if (placement.kind == IR_SPLIT)
        range_of(e, ir_value_type(e->from, v)->dims[placement.dim], placement.granules, &part.begin,
                 &part.extent);
    return part;
}

/* ---- nodes ---- */

static st_status_t emit_parts(const shard_lowering_t *lowering, uint32_t rank, uint32_t n_parts,
                              ir_graph_t **out_graph);

/* The bodies of control flow as the rank runs them; they are the caller's to free. */
static st_status_t local_bodies(const emitter_t *e, ir_node_t n, ir_attr_t *attrs,
                                ir_graph_t *bodies[2]) {
    const shard_node_t *decision = &e->lowering->nodes[n];
    const ir_op_def_t *def = ir_op_def(ir_node(e->from, n)->op);
    uint32_t b = 0;
    for (uint32_t a = 0; decision->bodies[0] && def->attrs[a].key; a++) {
        if (def->attrs[a].kind != IR_ATTR_GRAPH) continue;
        TRY(emit_parts(decision->bodies[b], e->rank, e->n_parts, &bodies[b]));
        attrs[a].graph = bodies[b++];
    }
    return ST_OK;
}

/* Appends node `n` over the rank's values `inputs`, its attributes rewritten for the rank. */
static st_status_t add_local(emitter_t *e, ir_node_t n, const ir_value_t *inputs,
                             const ir_placement_t *in, const ir_placement_t *out,
                             ir_value_t *out_first) {
    const ir_node_info_t *node = ir_node(e->from, n);
    const ir_op_def_t *def = ir_op_def(node->op);
    uint32_t n_attrs = ir_op_n_attrs(def);
    ir_part_t *parts = st_arena_array(&e->arena, node->n_inputs + node->n_outputs, sizeof *parts);
    ir_type_t *types = st_arena_array(&e->arena, node->n_inputs, sizeof *types);
    ir_attr_t *attrs = st_arena_copy(&e->arena, node->attrs, n_attrs * sizeof *attrs);
    ir_arg_t *args = st_arena_array(&e->arena, n_attrs, sizeof *args);
    if (!parts || !types || !attrs || !args)
        return st_no_memory(n_attrs * sizeof *attrs, "a rank's node");
    bool any_split = false;
    for (uint32_t j = 0; j < node->n_inputs; j++) {
        types[j] = *ir_value_type(e->from, node->inputs[j]);
        parts[j] = part_of(e, node->inputs[j], in[j]);
        any_split |= in[j].kind == IR_SPLIT;
    }
    ir_part_t *out_parts = parts + node->n_inputs;
    for (uint32_t k = 0; k < node->n_outputs; k++) {
        out_parts[k] = part_of(e, node->first_output + k, out[k]);
        any_split |= out[k].kind == IR_SPLIT;
    }
    ir_op_ctx_t ctx = {node->op, node->n_inputs, node->n_outputs, types, node->attrs, node->name};
    if (any_split && def->localize) TRY(def->localize(&ctx, parts, out_parts, &e->arena, attrs));
    ir_graph_t *bodies[2] = {NULL, NULL};
    st_status_t status = local_bodies(e, n, attrs, bodies);
    for (uint32_t a = 0; a < n_attrs; a++) args[a] = (ir_arg_t){def->attrs[a].key, attrs[a]};
    if (status == ST_OK)
        status = ir_graph_add(e->to, node->op, node->name, node->n_inputs, inputs, n_attrs, args,
                              out_first);
    ir_graph_destroy(bodies[0]);
    ir_graph_destroy(bodies[1]);
    TRY(status);
    for (uint32_t k = 0; k < node->n_outputs; k++) {
        const ir_type_t *made = ir_value_type(e->to, *out_first + k);
        ir_type_t wanted = local_type(e, ir_value_type(e->from, node->first_output + k), out[k]);
        char have_text[IR_TYPE_TEXT_BYTES], want_text[IR_TYPE_TEXT_BYTES];
        if (!ir_type_equal(&wanted, made))
            return FAIL(ST_INTERNAL, "output %u is %s on rank %u, its placement says %s", k,
                        ir_type_text(made, have_text, sizeof have_text), e->rank,
                        ir_type_text(&wanted, want_text, sizeof want_text));
    }
    return ST_OK;
}

/* ---- conversions ---- */

/* Which of a value's whole forms readers get that are emitted now. */
static ir_phase_t phase_of(const emitter_t *e, ir_value_t v) {
    return e->lowering->values[v].lazy ? e->to->phase : IR_PHASE_FORWARD;
}

/* First half of the collective that makes a split or partial value whole. */
static st_status_t start_full(emitter_t *e, ir_value_t v, ir_phase_t phase) {
    ir_placement_t home = e->lowering->values[v].home;
    local_value_t *local = &e->values[v];
    ir_arg_t mesh = IR_ARG_STRING("mesh", e->lowering->axis.name);
    if (local->in_flight[phase] != IR_NONE) return ST_OK;
    if (home.kind == IR_PARTIAL)
        return ir_graph_add(e->to, IR_OP_ALL_REDUCE_START, NULL, 1, &local->home, 1, &mesh,
                            &local->in_flight[phase]);
    const int64_t dim = home.dim, extent = ir_value_type(e->from, v)->dims[home.dim];
    ir_arg_t args[] = {IR_ARG_INTS("axis", &dim, 1), IR_ARG_INTS("granules", &home.granules, 1),
                       IR_ARG_INTS("extent", &extent, 1), mesh};
    return ir_graph_add(e->to, IR_OP_ALL_GATHER_START, NULL, 1, &local->home, 4, args,
                        &local->in_flight[phase]);
}

static st_status_t start_scatter(emitter_t *e, ir_value_t v, ir_placement_t wanted,
                                 ir_value_t *out) {
    const int64_t dim = wanted.dim, part = part_of(e, v, wanted).extent;
    ir_arg_t args[] = {IR_ARG_INTS("axis", &dim, 1), IR_ARG_INTS("granules", &wanted.granules, 1),
                       IR_ARG_INTS("part", &part, 1),
                       IR_ARG_STRING("mesh", e->lowering->axis.name)};
    return ir_graph_add(e->to, IR_OP_REDUCE_SCATTER_START, NULL, 1, &e->values[v].home, 4, args,
                        out);
}

/* Parts along one dim begin to become parts along another. */
static st_status_t start_exchange(emitter_t *e, ir_value_t v, ir_placement_t wanted,
                                  ir_value_t *out) {
    const ir_placement_t home = e->lowering->values[v].home;
    ir_arg_t args[] = {IR_ARG_INT("axis", home.dim),
                       IR_ARG_INT("granules", home.granules),
                       IR_ARG_INT("extent", ir_value_type(e->from, v)->dims[home.dim]),
                       IR_ARG_INT("to", wanted.dim),
                       IR_ARG_INT("to_granules", wanted.granules),
                       IR_ARG_INT("part", part_of(e, v, wanted).extent),
                       IR_ARG_STRING("mesh", e->lowering->axis.name)};
    return ir_graph_add(e->to, IR_OP_ALL_TO_ALL_START, NULL, 1, &e->values[v].home, 7, args, out);
}

static st_status_t emit_lazy(emitter_t *e, ir_value_t v);

/* What is made of states alone can be made ahead of its place. */
static bool is_of_states(const emitter_t *e, ir_value_t v) {
    const ir_node_info_t *node = ir_value_producer(e->from, v);
    while (node->n_inputs == 1 && e->lowering->values[node->inputs[0]].lazy)
        node = ir_value_producer(e->from, node->inputs[0]);
    return ir_op_def(node->op)->flags & IR_STATE;
}

/* Begins the gather that comes after that of `v`, so that it goes on while `v` is worked with. */
static st_status_t start_next(emitter_t *e, ir_value_t v, ir_phase_t phase) {
    for (size_t i = 0; i + 1 < e->gathers.n; i++) {
        if (e->gathers.data[i].value != v || e->gathers.data[i].phase != phase) continue;
        const gather_t next = e->gathers.data[i + 1];
        if (e->values[next.value].home == IR_NONE && is_of_states(e, next.value))
            TRY(emit_lazy(e, next.value));
        if (e->values[next.value].home == IR_NONE) return ST_OK; /* it is being made */
        return start_full(e, next.value, next.phase);
    }
    return ST_OK;
}

static st_status_t wait_full(emitter_t *e, ir_value_t v, ir_value_t *out) {
    const shard_value_t *value = &e->lowering->values[v];
    const ir_phase_t phase = phase_of(e, v);
    local_value_t *local = &e->values[v];
    *out = local->home;
    if (value->home.kind == IR_REPLICATE) return ST_OK;
    if (local->full[phase] == IR_NONE) {
        if (value->lazy) {
            TRY(start_full(e, v, phase));
            TRY(start_next(e, v, phase));
        }
        ASSERT(local->in_flight[phase] != IR_NONE);
        TRY(ir_graph_add(
            e->to, value->home.kind == IR_PARTIAL ? IR_OP_ALL_REDUCE_WAIT : IR_OP_ALL_GATHER_WAIT,
            NULL, 1, &local->in_flight[phase], 0, NULL, &local->full[phase]));
    }
    *out = local->full[phase];
    return ST_OK;
}

static st_status_t convert(emitter_t *e, ir_value_t v, uint32_t at, ir_placement_t wanted,
                           ir_value_t *out);

static st_status_t get(emitter_t *e, ir_value_t v, ir_placement_t wanted, ir_value_t *out) {
    const shard_value_t *value = &e->lowering->values[v];
    local_value_t *local = &e->values[v];
    *out = local->home;
    if (ir_placement_equal(value->home, wanted)) return ST_OK;
    uint32_t at = 0;
    const shard_want_t *want = value->wants;
    while (want && !ir_placement_equal(want->placement, wanted)) want = want->next, at++;
    if (!want)
        return FAIL(ST_INTERNAL, "value %u was not asked for in a placement it is used in", v);
    ir_value_t *made = &local->wants[phase_of(e, v) * local->n_wants + at];
    if (*made == IR_NONE) TRY(convert(e, v, at, wanted, made));
    *out = *made;
    return ST_OK;
}

/* The coordinate of the rank on the axis. */
static ir_value_t index_of(emitter_t *e, ir_build_t *b) {
    ir_arg_t mesh = IR_ARG_STRING("mesh", e->lowering->axis.name);
    if (e->index == IR_NONE) e->index = ir_b_node(b, IR_OP_AXIS_INDEX, 0, NULL, 1, &mesh);
    return e->index;
}

/* Positions of a part: it begins at granule floor(index · granules / n). */
static st_status_t positions_of(emitter_t *e, ir_build_t *b, int64_t size, ir_placement_t wanted,
                                ir_value_t *out) {
    for (size_t i = 0; i < e->cuts.n && !e->lowering->axis.has_others; i++)
        if (e->cuts.data[i].size == size && e->cuts.data[i].granules == wanted.granules) {
            *out = e->cuts.data[i].positions;
            return ST_OK;
        }
    int64_t begin, extent;
    range_of(e, size, wanted.granules, &begin, &extent);
    ir_value_t first = index_of(e, b);
    const int64_t n = e->lowering->n_ranks, each = wanted.granules ? size / wanted.granules : 0;
    if (wanted.granules % n || e->lowering->axis.has_others) {
        first = ir_b_binary(b, IR_OP_MUL, first, ir_b_scalar(b, IR_I64, (double)wanted.granules));
        first = ir_b_binary(b, IR_OP_DIV, first, ir_b_scalar(b, IR_I64, (double)n));
        first = ir_b_binary(b, IR_OP_MUL, first, ir_b_scalar(b, IR_I64, (double)each));
    } else {
        first = ir_b_binary(b, IR_OP_MUL, first, ir_b_scalar(b, IR_I64, (double)extent));
    }
    ir_value_t step = ir_b_iota(b, ir_type_make(IR_I64, 1, &extent), 0, 0, 1);
    *out = ir_b_binary(b, IR_OP_ADD, step, first);
    TRY(b->status);
    return ST_VEC_PUSH(&e->cuts, ((cut_t){size, wanted.granules, *out}));
}

/* The rank's part of a whole value. A rank of a body, and the first ranks together, cut by
 * number. */
static st_status_t cut_part(emitter_t *e, ir_build_t *b, ir_value_t v, ir_value_t full,
                            ir_placement_t wanted, ir_value_t *out) {
    ir_part_t part = part_of(e, v, wanted);
    if (e->lowering->local || e->n_parts > 1) {
        *out = ir_b_slice_axis(b, full, wanted.dim, part.begin, part.begin + part.extent);
        return b->status;
    }
    ir_value_t in[2] = {full, IR_NONE};
    ir_arg_t axis = IR_ARG_INT("axis", wanted.dim);
    TRY(positions_of(e, b, ir_value_type(e->from, v)->dims[wanted.dim], wanted, &in[1]));
    *out = ir_b_node(b, IR_OP_GATHER, 2, in, 1, &axis);
    return b->status;
}

static st_status_t convert(emitter_t *e, ir_value_t v, uint32_t at, ir_placement_t wanted,
                           ir_value_t *out) {
    const shard_value_t *value = &e->lowering->values[v];
    ir_build_t b = {.graph = e->to};
    ir_placement_t input;
    if (value->home.kind == IR_REPLICATE && shard_can_localize(e->from, v, wanted, &input)) {
        ir_node_t producer = e->from->values.data[v].producer;
        const ir_node_info_t *node = ir_node(e->from, producer);
        ir_value_t whole = IR_NONE;
        if (node->n_inputs) TRY(get(e, node->inputs[0], input, &whole));
        return add_local(e, producer, &whole, &input, &wanted, out);
    }
    ir_value_t *parted = &e->values[v].parted[at];
    if (*parted != IR_NONE)
        return ir_graph_add(
            e->to,
            value->home.kind == IR_PARTIAL ? IR_OP_REDUCE_SCATTER_WAIT : IR_OP_ALL_TO_ALL_WAIT,
            NULL, 1, parted, 0, NULL, out);
    ir_value_t full;
    TRY(wait_full(e, v, &full));
    if (wanted.kind == IR_REPLICATE) {
        *out = full;
        return ST_OK;
    }
    if (wanted.kind == IR_SPLIT) return cut_part(e, &b, v, full, wanted, out);
    /* the sum over the ranks is the value: rank 0 has it, the others have zeros */
    ir_value_t mine = e->lowering->local || e->n_parts > 1
                          ? ir_b_scalar(&b, IR_BOOL, e->rank == 0)
                          : ir_b_binary(&b, IR_OP_EQ, index_of(e, &b), ir_b_scalar(&b, IR_I64, 0));
    ir_value_t zero = ir_b_scalar(&b, ir_value_type(e->to, full)->dtype, 0);
    *out = ir_b_select(&b, mine, full, zero);
    return b.status;
}

/* ---- the walk ---- */

/* Copies a value that is a state's own memory seen through views: an output or a new value of
 * another state has to keep what the state held before its update. */
static st_status_t copy_of_state(emitter_t *e, ir_value_t *value) {
    ir_value_t root = *value;
    while (ir_op_def(ir_value_producer(e->to, root)->op)->flags & IR_VIEW)
        root = ir_value_producer(e->to, root)->inputs[0];
    if (!(ir_op_def(ir_value_producer(e->to, root)->op)->flags & IR_STATE)) return ST_OK;
    ir_arg_t dtype = IR_ARG_DTYPE("dtype", ir_value_type(e->to, *value)->dtype);
    ir_value_t input = *value;
    return ir_graph_add(e->to, IR_OP_CAST, NULL, 1, &input, 1, &dtype, value);
}

/* Begins what others want of value v, but for lazy values. */
static st_status_t start_wants(emitter_t *e, ir_value_t v) {
    const shard_value_t *value = &e->lowering->values[v];
    bool full = false;
    uint32_t at = 0;
    if (value->lazy) return ST_OK;
    for (const shard_want_t *want = value->wants; want; want = want->next)
        full |= shard_needs_full(value->wants, value->home, want->placement);
    if (full) TRY(start_full(e, v, IR_PHASE_FORWARD));
    for (const shard_want_t *want = value->wants; want && !full; want = want->next, at++) {
        ir_value_t *parted = &e->values[v].parted[at];
        if (value->home.kind == IR_PARTIAL)
            TRY(start_scatter(e, v, want->placement, parted));
        else if (shard_makes_part(value->home, want->placement))
            TRY(start_exchange(e, v, want->placement, parted));
    }
    return ST_OK;
}

/* Whether the node itself is made, not only localized copies of it. */
static bool is_made(const emitter_t *e, ir_node_t n) {
    const ir_node_info_t *node = ir_node(e->from, n);
    bool home = node->n_outputs == 0;
    for (uint32_t k = 0; k < node->n_outputs; k++)
        home |= e->lowering->values[node->first_output + k].home_used;
    return e->lowering->nodes[n].needed && home;
}

static st_status_t emit_node(emitter_t *e, ir_node_t n) {
    const ir_node_info_t *node = ir_node(e->from, n);
    const shard_node_t *decision = &e->lowering->nodes[n];
    const shard_forced_t *forced = e->lowering->axis.forced;
    if (!is_made(e, n) || e->emitted[n]) return ST_OK;
    e->emitted[n] = true;
    ir_placement_t *out = st_arena_array(&e->arena, node->n_outputs, sizeof *out);
    ir_value_t *inputs = st_arena_array(&e->arena, node->n_inputs, sizeof *inputs);
    if (!out || !inputs) return st_no_memory(node->n_outputs * sizeof *out, "a rank's node");
    for (uint32_t k = 0; k < node->n_outputs; k++)
        out[k] = e->lowering->values[node->first_output + k].home;
    for (uint32_t j = 0; j < node->n_inputs; j++)
        TRY(get(e, node->inputs[j], decision->in[j], &inputs[j]));
    if (node->op == IR_OP_UPDATE) TRY(copy_of_state(e, &inputs[1]));
    ir_value_t *made = st_arena_array(&e->arena, node->n_outputs + 1, sizeof *made);
    if (!made) return st_no_memory(node->n_outputs * sizeof *made, "a rank's node");
    made[0] = node->n_inputs ? inputs[0] : IR_NONE;
    if (forced && forced[n].ring) {
        ASSERT(e->n_parts == 1); /* no estimate is made of a context axis */
        TRY(shard_emit_ring(e->lowering, n, e->rank, inputs, e->to, made));
    } else if (!forced || !forced[n].turns) {
        TRY(add_local(e, n, inputs, decision->in, out, made));
        for (uint32_t k = 1; k < node->n_outputs; k++) made[k] = made[0] + k;
    }
    for (uint32_t k = 0; k < node->n_outputs; k++) {
        e->values[node->first_output + k].home = made[k];
        TRY(start_wants(e, node->first_output + k));
    }
    return ST_OK;
}

/* A lazy value ahead of its place: what it is made of needs nothing but states. */
static st_status_t emit_lazy(emitter_t *e, ir_value_t v) {
    ir_node_t n = e->from->values.data[v].producer;
    const ir_node_info_t *node = ir_node(e->from, n);
    if (e->emitted[n]) return ST_OK;
    for (uint32_t j = 0; j < node->n_inputs; j++) TRY(emit_lazy(e, node->inputs[j]));
    return emit_node(e, n);
}

/* The lazy values that are made whole, in the order in which they are needed. */
static st_status_t find_gathers(emitter_t *e) {
    uint32_t *seen = st_arena_array(&e->arena, e->from->values.n, sizeof *seen);
    if (!seen) return st_no_memory(e->from->values.n * sizeof *seen, "a rank's graph");
    for (ir_node_t n = 0; n < e->from->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(e->from, n);
        if (!is_made(e, n)) continue;
        for (uint32_t j = 0; j < node->n_inputs; j++) {
            const shard_value_t *value = &e->lowering->values[node->inputs[j]];
            ir_placement_t wanted = e->lowering->nodes[n].in[j];
            if (!value->lazy || !shard_needs_link(value->home, wanted) ||
                seen[node->inputs[j]] >> node->phase & 1)
                continue;
            seen[node->inputs[j]] |= 1u << node->phase;
            TRY(ST_VEC_PUSH(&e->gathers, ((gather_t){node->inputs[j], node->phase})));
        }
    }
    return ST_OK;
}

static st_status_t emitter_init(emitter_t *e) {
    size_t n = e->from->values.n;
    e->index = IR_NONE;
    e->values = st_arena_array(&e->arena, n, sizeof *e->values);
    e->emitted = st_arena_array(&e->arena, e->from->nodes.n, sizeof *e->emitted);
    if (!e->values || !e->emitted) return st_no_memory(n * sizeof *e->values, "a rank's graph");
    for (ir_value_t v = 0; v < n; v++) {
        local_value_t *local = &e->values[v];
        for (const shard_want_t *want = e->lowering->values[v].wants; want; want = want->next)
            local->n_wants++;
        local->home = IR_NONE;
        for (int p = 0; p < IR_PHASE_END; p++) local->full[p] = local->in_flight[p] = IR_NONE;
        if (!local->n_wants) continue;
        size_t n_slots = (size_t)local->n_wants * IR_PHASE_END;
        local->wants = st_arena_array(&e->arena, n_slots, sizeof(ir_value_t));
        local->parted = st_arena_array(&e->arena, local->n_wants, sizeof(ir_value_t));
        if (!local->wants || !local->parted)
            return st_no_memory(n_slots * sizeof(ir_value_t), "a rank's graph");
        for (size_t i = 0; i < n_slots; i++) local->wants[i] = IR_NONE;
        for (size_t i = 0; i < local->n_wants; i++) local->parted[i] = IR_NONE;
    }
    return find_gathers(e);
}

static st_status_t emit_parts(const shard_lowering_t *lowering, uint32_t rank, uint32_t n_parts,
                              ir_graph_t **out_graph) {
    *out_graph = NULL;
    emitter_t e = {.lowering = lowering, .from = lowering->graph, .rank = rank, .n_parts = n_parts};
    st_status_t status = ST_OK;
    TRY_GOTO(ir_graph_create_like(e.from, &e.to), done);
    TRY_GOTO(emitter_init(&e), done);
    for (ir_node_t n = 0; n < e.from->nodes.n; n++) {
        e.to->phase = ir_node(e.from, n)->phase;
        status = emit_node(&e, n);
        if (status != ST_OK) {
            status = st_error_context(status, "%s", ir_node_label(e.from, n));
            goto done;
        }
    }
    for (size_t o = 0; o < e.from->outputs.n; o++) {
        const ir_output_t *output = &e.from->outputs.data[o];
        ir_value_t value;
        TRY_GOTO(get(&e, output->value, shard_output_placement(lowering, o), &value), done);
        TRY_GOTO(copy_of_state(&e, &value), done);
        TRY_GOTO(ir_graph_append_output(e.to, output->name, value), done);
    }
    e.to->phase = IR_PHASE_FORWARD;
    *out_graph = e.to;
    e.to = NULL;
done:
    ST_VEC_FREE(&e.gathers);
    ST_VEC_FREE(&e.cuts);
    st_arena_clear(&e.arena);
    ir_graph_destroy(e.to);
    return status;
}

st_status_t shard_emit(const shard_lowering_t *lowering, uint32_t rank, ir_graph_t **out_graph) {
    return emit_parts(lowering, rank, 1, out_graph);
}

/* ---- a smaller batch ---- */

static st_status_t without_collectives(void *context, ir_graph_t *to, const ir_graph_t *from,
                                       ir_node_t node, ir_value_t *map) {
    (void)context;
    const ir_node_info_t *info = ir_node(from, node);
    if (!(ir_op_def(info->op)->flags & IR_COLLECTIVE))
        return ir_graph_clone_node(to, from, node, NULL, map);
    if (info->op != IR_OP_ALL_REDUCE_START && info->op != IR_OP_ALL_REDUCE_WAIT)
        return FAIL(ST_UNSUPPORTED, "%s needs all of the batch", ir_node_label(from, node));
    for (uint32_t k = 0; k < info->n_outputs; k++)
        map[info->first_output + k] = map[info->inputs[k]];
    return ST_OK;
}

st_status_t shard_emit_first(const shard_lowering_t *lowering, uint32_t n_parts,
                             ir_graph_t **out_graph) {
    ir_graph_t *parts;
    *out_graph = NULL;
    TRY(emit_parts(lowering, 0, n_parts, &parts));
    st_status_t status = ir_graph_rewrite(parts, NULL, without_collectives, NULL, out_graph);
    ir_graph_destroy(parts);
    return status;
}
