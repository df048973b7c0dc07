/* The loop over micro-batches (micro_batch.c).
 *
 *   repeat over k in 0 … K - 1
 *     carried    gradient of each parameter, sum and counts (f32 for smaller floats); state that
 *                the forward graph updates: micro-batch k + 1 reads what k wrote
 *     scanned    inputs [K, b, …], k itself where the body draws random numbers
 *     captured   parameters, other buffers, inputs without a batch
 *     body       forward and backward of one micro-batch; adds what it found to what is carried
 *
 * The memory of one micro-batch is used K times, and the plan has its steps once.
 *
 * Random numbers are those of the union. A random node's values lie after those of `part` others
 * like it, and in the union an item's place is (part * K + k) micro-batches on: that is its part
 * here. Random nodes in inner bodies get the same, k being one more operand of the nodes around
 * them. */
#include <string.h>

#include "autodiff/gradient.h"
#include "autodiff/micro_batch.h"
#include "ir/body.h"
#include "ir/build.h"

typedef struct loop {
    const ir_graph_t *body; /* one micro-batch: outputs sum, counts */
    ad_backward_t *out;
    const bool *frozen;
    int64_t n_micro;
    st_arena_t arena;
    ir_build_t outer, inner;
    ir_value_t *map;     /* body value → value in the loop */
    ir_value_t *operand; /* in the order of the loop's inputs */
    uint32_t n_operands, n_carried, n_scanned;
    ir_value_t *grad_in; /* [params] carried gradient, IR_NONE: frozen */
    ir_value_t *wrt, *grad;
    ir_value_t *total_in; /* [outputs] carried sum of each */
    ir_value_t *outside;  /* body value → of sources without a batch, in the graph around */
    bool *updated;        /* [values] of the body: state that changes */
    ir_value_t part, scale;
} loop_t;

static bool carries_batch(const ir_node_info_t *node) {
    return node->op == IR_OP_INPUT && ir_attr_int(node, "batch_axis") >= 0;
}

static ir_value_t take(loop_t *l, const ir_type_t *seen, ir_value_t operand) {
    l->operand[l->n_operands++] = operand;
    return ir_b_body_input(&l->inner, seen);
}

static st_status_t open_loop(loop_t *l) {
    size_t n = l->body->values.n, n_params = l->out->n, n_totals = l->body->outputs.n;
    l->map = st_arena_array(&l->arena, n, sizeof *l->map);
    l->operand = st_arena_array(&l->arena, n + n_params + n_totals + 2, sizeof *l->operand);
    l->grad_in = st_arena_array(&l->arena, n_params, sizeof *l->grad_in);
    l->wrt = st_arena_array(&l->arena, n_params, sizeof *l->wrt);
    l->grad = st_arena_array(&l->arena, n_params, sizeof *l->grad);
    l->total_in = st_arena_array(&l->arena, n_totals, sizeof *l->total_in);
    l->outside = st_arena_array(&l->arena, n, sizeof *l->outside);
    l->updated = st_arena_array(&l->arena, n, sizeof *l->updated);
    if (!l->map || !l->operand || !l->grad_in || !l->wrt || !l->grad || !l->total_in ||
        !l->outside || !l->updated)
        return st_no_memory(n * sizeof *l->map, "micro-batches");
    return ir_graph_create("", &l->inner.graph);
}

/* State and inputs without a batch stand outside, as they were. */
static st_status_t add_sources(loop_t *l) {
    size_t p = 0;
    for (ir_node_t i = 0; i < l->body->nodes.n; i++) {
        const ir_node_info_t *node = ir_node(l->body, i);
        bool state = ir_op_def(node->op)->flags & IR_STATE;
        if (node->op == IR_OP_UPDATE) l->updated[node->inputs[0]] = true;
        if (carries_batch(node) || (!state && node->op != IR_OP_INPUT)) continue;
        TRY(ir_graph_clone_node(l->outer.graph, l->body, i, NULL, l->outside));
        if (node->op == IR_OP_PARAMETER) l->out->params[p++] = l->outside[node->first_output];
    }
    return ST_OK;
}

static ir_value_t carry(loop_t *l, const ir_type_t *type, ir_value_t begin) {
    l->n_carried++;
    return take(l, type, begin);
}
static ir_value_t carry_sum(loop_t *l, const ir_type_t *type) {
    ir_type_t sum = *type;
    sum.dtype = ir_dtype_wide(type->dtype);
    return carry(l, &sum, ir_b_splat(&l->outer, sum, 0));
}

/* Gradients in the order of the parameters, then totals, then state in the order of the nodes. */
static void add_carried(loop_t *l) {
    const ir_graph_t *body = l->body;
    size_t p = 0;
    for (size_t i = 0; i < body->nodes.n; i++) {
        if (body->nodes.data[i].op != IR_OP_PARAMETER) continue;
        const ir_type_t *type = ir_value_type(body, body->nodes.data[i].first_output);
        l->grad_in[p] = l->frozen && l->frozen[p] ? IR_NONE : carry_sum(l, type);
        p++;
    }
    for (size_t o = 0; o < body->outputs.n; o++)
        l->total_in[o] = carry_sum(l, ir_body_output_type(body, o));
    for (ir_value_t v = 0; v < body->values.n; v++)
        if (l->updated[v]) l->map[v] = carry(l, ir_value_type(body, v), l->outside[v]);
}

/* Inputs that carry the batch get a leading dim. */
static st_status_t add_scanned(loop_t *l) {
    for (ir_node_t i = 0; i < l->body->nodes.n; i++) {
        const ir_node_info_t *node = ir_node(l->body, i);
        if (!carries_batch(node)) continue;
        const ir_type_t *type = ir_value_type(l->body, node->first_output);
        if (type->rank == IR_MAX_RANK)
            return FAIL(ST_UNSUPPORTED, "%s has rank %d: no room for the dim of the micro-batches",
                        ir_node_label(l->body, i), IR_MAX_RANK);
        ir_value_t fed = ir_b_input(&l->outer, node->name, ir_type_add_first(type, l->n_micro),
                                    ir_attr_int(node, "batch_axis") + 1);
        l->map[node->first_output] = take(l, type, fed);
        l->n_scanned++;
    }
    if (!ir_body_is_random(l->body)) return l->outer.status;
    const ir_type_t counter = ir_type_scalar(IR_I64);
    ir_value_t parts = ir_b_iota(&l->outer, ir_type_add_first(&counter, l->n_micro), 0, 0, 1);
    l->part = take(l, &counter, parts);
    l->n_scanned++;
    return l->outer.status;
}

static st_status_t add_captured(loop_t *l) {
    size_t p = 0;
    l->scale = IR_NONE;
    for (ir_node_t i = 0; i < l->body->nodes.n; i++) {
        const ir_node_info_t *node = ir_node(l->body, i);
        const ir_value_t v = node->first_output;
        bool state = ir_op_def(node->op)->flags & IR_STATE;
        if (carries_batch(node) || (!state && node->op != IR_OP_INPUT)) continue;
        if (!l->updated[v]) l->map[v] = take(l, ir_value_type(l->body, v), l->outside[v]);
        if (node->op == IR_OP_PARAMETER) l->wrt[p++] = l->map[v];
    }
    if (l->out->scale.scale != IR_NONE)
        l->scale = take(l, ir_b_type(&l->outer, l->out->scale.scale), l->out->scale.scale);
    return l->inner.status;
}

/* ---- random numbers ---- */

typedef struct numbering {
    int64_t n_micro;
    ir_value_t k;           /* the micro-batch's number; IR_NONE: not there yet */
    const ir_graph_t *body; /* that is copied; NULL: the loop's */
} numbering_t;

static st_status_t number_node(void *context, ir_graph_t *to, const ir_graph_t *from, ir_node_t n,
                               ir_value_t *map);

/* The body with one more input, k, the last one. */
static st_status_t number_body(int64_t n_micro, const ir_graph_t *body, ir_graph_t **out_body) {
    numbering_t inner = {n_micro, IR_NONE, body};
    ir_node_t *order = ir_body_inputs_first(body);
    if (!order) return st_no_memory(body->nodes.n * sizeof *order, "micro-batches");
    st_status_t status = ir_graph_rewrite(body, order, number_node, &inner, out_body);
    st_free(order);
    return status;
}

/* `part * K + k` for the part that the node has; k, where it has none. */
static ir_value_t part_of(numbering_t *s, ir_build_t *b, const ir_node_info_t *node,
                          const ir_value_t *map) {
    const ir_op_def_t *def = ir_op_def(node->op);
    if (node->n_inputs < (uint32_t)def->max_inputs) return s->k;
    ir_value_t number = ir_b_constant(b, ir_type_scalar(IR_I64), &s->n_micro, sizeof s->n_micro);
    ir_value_t before = ir_b_binary(b, IR_OP_MUL, map[node->inputs[node->n_inputs - 1]], number);
    return ir_b_binary(b, IR_OP_ADD, before, s->k);
}

/* Random nodes, and those with random nodes in them. */
static st_status_t number_random(numbering_t *s, ir_graph_t *to, const ir_graph_t *from,
                                 ir_node_t n, ir_value_t *map) {
    const ir_node_info_t *node = ir_node(from, n);
    const ir_op_def_t *def = ir_op_def(node->op);
    const uint32_t n_attrs = ir_op_n_attrs(def);
    const bool own = (def->flags & IR_RANDOM) != 0;
    ir_graph_t *bodies[IR_MAX_BODIES] = {NULL, NULL};
    uint32_t n_bodies = 0, n_in = node->n_inputs;
    ir_build_t b = {.graph = to};
    st_status_t status = ST_OK;
    ir_value_t *in = st_calloc(n_in + 1, sizeof *in);
    ir_arg_t *args = st_calloc(n_attrs, sizeof *args);
    if (!in || !args) TRY_GOTO(st_no_memory(n_in * sizeof *in, "micro-batches"), done);
    for (uint32_t j = 0; j < n_in; j++) in[j] = map[node->inputs[j]];
    if (own && n_in == (uint32_t)def->max_inputs) n_in--;
    in[n_in++] = own ? part_of(s, &b, node, map) : s->k;
    TRY_GOTO(b.status, done);
    for (uint32_t a = 0; a < n_attrs; a++) {
        args[a] = (ir_arg_t){def->attrs[a].key, node->attrs[a]};
        if (def->attrs[a].kind != IR_ATTR_GRAPH) continue;
        ASSERT(n_bodies < IR_MAX_BODIES);
        TRY_GOTO(number_body(s->n_micro, node->attrs[a].graph, &bodies[n_bodies]), done);
        args[a].value.graph = bodies[n_bodies++];
    }
    ir_value_t first;
    TRY_GOTO(ir_graph_add(to, node->op, node->name, n_in, in, n_attrs, args, &first), done);
    for (uint32_t k = 0; k < node->n_outputs; k++) map[node->first_output + k] = first + k;
done:
    st_free(in);
    st_free(args);
    for (int i = 0; i < IR_MAX_BODIES; i++) ir_graph_destroy(bodies[i]);
    return status;
}

static st_status_t number_node(void *context, ir_graph_t *to, const ir_graph_t *from, ir_node_t n,
                               ir_value_t *map) {
    numbering_t *s = context;
    const ir_node_info_t *node = ir_node(from, n);
    if (s->body && s->k == IR_NONE && node->op != IR_OP_INPUT) {
        ir_build_t b = {.graph = to};
        const ir_type_t counter = ir_type_scalar(IR_I64);
        s->k = ir_b_body_input_beside(&b, s->body, &counter);
        TRY(b.status);
    }
    if (ir_node_is_random(node)) return number_random(s, to, from, n, map);
    return ir_graph_clone_node(to, from, n, NULL, map);
}

static st_status_t add_forward(loop_t *l) {
    numbering_t numbering = {l->n_micro, l->part, NULL};
    for (ir_node_t i = 0; i < l->body->nodes.n; i++) {
        const ir_node_info_t *node = ir_node(l->body, i);
        if ((ir_op_def(node->op)->flags & IR_STATE) || node->op == IR_OP_INPUT ||
            node->op == IR_OP_UPDATE)
            continue;
        TRY(number_node(&numbering, l->inner.graph, l->body, i, l->map));
    }
    return ST_OK;
}

/* ---- body and loop ---- */

static st_status_t add_backward(loop_t *l, ir_value_t sum) {
    ir_build_t *b = &l->inner;
    ir_value_t one = l->scale == IR_NONE ? ir_b_scalar(b, ir_b_type(b, sum)->dtype, 1)
                                         : ir_b_cast(b, l->scale, ir_b_type(b, sum)->dtype);
    size_t n = 0;
    TRY(b->status);
    for (size_t p = 0; p < l->out->n; p++)
        if (l->grad_in[p] != IR_NONE) l->wrt[n++] = l->wrt[p];
    if (n == 0)
        return FAIL(ST_INVALID, "there is no parameter to train: the graph has %zu, all frozen",
                    l->out->n);
    TRY(ad_pullback(b->graph, 1, &sum, &one, n, l->wrt, l->grad));
    n = 0;
    for (size_t p = 0; p < l->out->n; p++) {
        ir_value_t carried = l->grad_in[p];
        if (carried == IR_NONE) continue;
        ir_value_t part = l->grad[n++];
        if (part != IR_NONE)
            carried = ir_b_binary(b, IR_OP_ADD, carried,
                                  ir_b_cast(b, part, ir_b_type(b, carried)->dtype));
        ir_b_body_output(b, carried);
    }
    return b->status;
}

/* State is as the forward pass left it; what reads it in the body reads what it was before. */
static st_status_t build_body(loop_t *l) {
    ir_build_t *b = &l->inner;
    TRY(add_forward(l));
    b->graph->phase = IR_PHASE_BACKWARD;
    TRY(add_backward(l, l->map[l->body->outputs.data[0].value]));
    for (size_t o = 0; o < l->body->outputs.n; o++) {
        ir_value_t mine = l->map[l->body->outputs.data[o].value];
        ir_dtype_t dtype = ir_b_type(b, l->total_in[o])->dtype;
        ir_b_body_output(b, ir_b_binary(b, IR_OP_ADD, l->total_in[o], ir_b_cast(b, mine, dtype)));
    }
    for (ir_value_t v = 0; v < l->body->values.n; v++) {
        if (!l->updated[v]) continue;
        for (ir_node_t i = 0; i < l->body->nodes.n; i++) {
            const ir_node_info_t *node = ir_node(l->body, i);
            if (node->op == IR_OP_UPDATE && node->inputs[0] == v)
                ir_b_body_output(b, l->map[node->inputs[1]]);
        }
    }
    return b->status;
}

static st_status_t add_loop(loop_t *l, ir_value_t *out_totals) {
    const ir_arg_t args[] = {IR_ARG_GRAPH("body", l->inner.graph), IR_ARG_INT("trip", l->n_micro),
                             IR_ARG_INT("carried", l->n_carried),
                             IR_ARG_INT("scanned", l->n_scanned)};
    size_t p = 0;
    l->outer.graph->phase = IR_PHASE_BACKWARD; /* also of what comes behind */
    ir_value_t at = ir_b_node(&l->outer, IR_OP_REPEAT, l->n_operands, l->operand, 4, args);
    TRY(l->outer.status);
    for (size_t i = 0; i < l->body->nodes.n; i++) {
        if (l->body->nodes.data[i].op != IR_OP_PARAMETER) continue;
        ir_dtype_t dtype = ir_value_type(l->body, l->body->nodes.data[i].first_output)->dtype;
        l->out->grads[p] = l->grad_in[p] == IR_NONE ? IR_NONE : ir_b_cast(&l->outer, at++, dtype);
        p++;
    }
    for (size_t o = 0; o < l->body->outputs.n; o++) out_totals[o] = at++;
    for (ir_value_t v = 0; v < l->body->values.n; v++)
        if (l->updated[v]) ir_b_update(&l->outer, l->outside[v], at++);
    return l->outer.status;
}

st_status_t ad_micro_loop(const ir_graph_t *body, const bool *frozen, int64_t n_micro,
                          ad_backward_t *out, ir_value_t *out_totals) {
    loop_t l = {.body = body,
                .out = out,
                .frozen = frozen,
                .n_micro = n_micro,
                .outer = {.graph = out->graph},
                .part = IR_NONE};
    st_status_t status = ST_OK;
    TRY_GOTO(open_loop(&l), done);
    TRY_GOTO(add_sources(&l), done);
    add_carried(&l);
    TRY_GOTO(l.outer.status, done);
    TRY_GOTO(add_scanned(&l), done);
    TRY_GOTO(add_captured(&l), done);
    TRY_GOTO(build_body(&l), done);
    TRY_GOTO(add_loop(&l, out_totals), done);
done:
    ir_graph_destroy(l.inner.graph);
    st_arena_clear(&l.arena);
    return status;
}
