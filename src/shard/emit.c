/* Emitting one rank's graph (lower.h). */
#include <string.h>

#include "ir/build.h"
#include "shard/internal.h"

/* Local values of one global value; `wants` runs parallel to shard_value_t.wants. */
typedef struct local_value {
    ir_value_t home;
    ir_value_t in_flight; /* start of the collective that makes it full */
    ir_value_t full;      /* its wait */
    ir_value_t *wants;
} local_value_t;

typedef struct emitter {
    const shard_lowering_t *lowering;
    const ir_graph_t *from;
    uint32_t rank,
        n_parts; /* the parts of `n_parts` ranks, from `rank` on: one, but for estimates */
    ir_graph_t *to;
    st_arena_t arena; /* scratch */
    local_value_t *values;
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

/* The bodies of control flow as the rank runs them; they are the caller's to free. */
static st_status_t local_bodies(const emitter_t *e, ir_node_t n, ir_attr_t *attrs,
                                ir_graph_t *bodies[2]) {
    const shard_node_t *decision = &e->lowering->nodes[n];
    const ir_op_def_t *def = ir_op_def(ir_node(e->from, n)->op);
    uint32_t b = 0;
    for (uint32_t a = 0; decision->bodies[0] && def->attrs[a].key; a++) {
        if (def->attrs[a].kind != IR_ATTR_GRAPH) continue;
        TRY(shard_emit(decision->bodies[b], e->rank, &bodies[b]));
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

/* First half of the collective that makes a split or partial value whole. */
static st_status_t start_full(emitter_t *e, ir_value_t v) {
    ir_placement_t home = e->lowering->values[v].home;
    local_value_t *local = &e->values[v];
    ir_arg_t mesh = IR_ARG_STRING("mesh", e->lowering->axis.name);
    if (home.kind == IR_PARTIAL)
        return ir_graph_add(e->to, IR_OP_ALL_REDUCE_START, NULL, 1, &local->home, 1, &mesh,
                            &local->in_flight);
    ir_arg_t args[] = {IR_ARG_INT("axis", home.dim), IR_ARG_INT("granules", home.granules),
                       IR_ARG_INT("extent", ir_value_type(e->from, v)->dims[home.dim]), mesh};
    return ir_graph_add(e->to, IR_OP_ALL_GATHER_START, NULL, 1, &local->home, 4, args,
                        &local->in_flight);
}

static st_status_t wait_full(emitter_t *e, ir_value_t v) {
    ir_placement_t home = e->lowering->values[v].home;
    local_value_t *local = &e->values[v];
    if (home.kind == IR_REPLICATE) local->full = local->home;
    if (local->full != IR_NONE) return ST_OK;
    ASSERT(local->in_flight != IR_NONE);
    return ir_graph_add(e->to,
                        home.kind == IR_PARTIAL ? IR_OP_ALL_REDUCE_WAIT : IR_OP_ALL_GATHER_WAIT,
                        NULL, 1, &local->in_flight, 0, NULL, &local->full);
}

static st_status_t convert(emitter_t *e, ir_value_t v, ir_placement_t wanted, ir_value_t *out);

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
    if (local->wants[at] == IR_NONE) TRY(convert(e, v, wanted, &local->wants[at]));
    *out = local->wants[at];
    return ST_OK;
}

static st_status_t convert(emitter_t *e, ir_value_t v, ir_placement_t wanted, ir_value_t *out) {
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
    TRY(wait_full(e, v));
    ir_value_t full = e->values[v].full;
    if (wanted.kind == IR_REPLICATE) {
        *out = full;
    } else if (wanted.kind == IR_SPLIT) {
        ir_part_t part = part_of(e, v, wanted);
        *out = ir_b_slice_axis(&b, full, wanted.dim, part.begin, part.begin + part.extent);
    } else { /* the sum over the ranks is the value: rank 0 has it, the others have zeros */
        ir_value_t mine = ir_b_scalar(&b, IR_BOOL, e->rank == 0);
        ir_value_t zero = ir_b_scalar(&b, ir_value_type(e->to, full)->dtype, 0);
        *out = ir_b_select(&b, mine, full, zero);
    }
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

static st_status_t emit_node(emitter_t *e, ir_node_t n) {
    const ir_node_info_t *node = ir_node(e->from, n);
    const shard_node_t *decision = &e->lowering->nodes[n];
    bool home = node->n_outputs == 0;
    for (uint32_t k = 0; k < node->n_outputs; k++)
        home |= e->lowering->values[node->first_output + k].home_used;
    if (!decision->needed || !home) return ST_OK;
    ir_placement_t *out = st_arena_array(&e->arena, node->n_outputs, sizeof *out);
    ir_value_t *inputs = st_arena_array(&e->arena, node->n_inputs, sizeof *inputs);
    if (!out || !inputs) return st_no_memory(node->n_outputs * sizeof *out, "a rank's node");
    for (uint32_t k = 0; k < node->n_outputs; k++)
        out[k] = e->lowering->values[node->first_output + k].home;
    for (uint32_t j = 0; j < node->n_inputs; j++)
        TRY(get(e, node->inputs[j], decision->in[j], &inputs[j]));
    if (node->op == IR_OP_UPDATE) TRY(copy_of_state(e, &inputs[1]));
    ir_value_t first;
    TRY(add_local(e, n, inputs, decision->in, out, &first));
    for (uint32_t k = 0; k < node->n_outputs; k++) {
        ir_value_t v = node->first_output + k;
        const shard_value_t *value = &e->lowering->values[v];
        e->values[v].home = first + k;
        bool full = false;
        for (const shard_want_t *want = value->wants; want; want = want->next)
            full |= shard_needs_full(value->home, want->placement);
        if (full) TRY(start_full(e, v));
    }
    return ST_OK;
}

static st_status_t emitter_init(emitter_t *e) {
    size_t n = e->from->values.n;
    e->values = st_arena_array(&e->arena, n, sizeof *e->values);
    if (!e->values) return st_no_memory(n * sizeof *e->values, "a rank's graph");
    for (ir_value_t v = 0; v < n; v++) {
        size_t n_wants = 0;
        for (const shard_want_t *want = e->lowering->values[v].wants; want; want = want->next)
            n_wants++;
        e->values[v] = (local_value_t){IR_NONE, IR_NONE, IR_NONE, NULL};
        if (!n_wants) continue;
        e->values[v].wants = st_arena_array(&e->arena, n_wants, sizeof(ir_value_t));
        if (!e->values[v].wants)
            return st_no_memory(n_wants * sizeof(ir_value_t), "a rank's graph");
        for (size_t i = 0; i < n_wants; i++) e->values[v].wants[i] = IR_NONE;
    }
    return ST_OK;
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
