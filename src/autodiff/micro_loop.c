/* Gradient accumulation as a loop: the micro-batches of micro_batch.c as one repeat.
 *
 *   repeat over k in 0 … K - 1
 *     carried    gradient of each parameter (f32 for smaller floats), sum S, count N
 *     scanned    inputs [K, b, …], k itself where the body draws random numbers
 *     captured   parameters, buffers, inputs without a batch
 *     body       forward and backward of one micro-batch; adds what it found to what is carried
 *
 * The memory of one micro-batch is used K times, and the plan has its steps once. Not for graphs whose
 * state changes from one micro-batch to the next, as running statistics do: with batch norm the ranks
 * would have to meet in the loop. */
#include <string.h>

#include "autodiff/gradient.h"
#include "autodiff/micro_batch.h"
#include "ir/body.h"
#include "ir/build.h"

typedef struct loop {
    const ir_graph_t *body; /* one micro-batch: outputs "sum", "count" */
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
    ir_value_t sum_in, count_in, part, scale;
} loop_t;

/* Nothing may go from one micro-batch to the next, and all random numbers must differ. */
static st_status_t check_body(const ir_graph_t *body) {
    for (ir_node_t i = 0; i < body->nodes.n; i++) {
        const ir_node_info_t *node = ir_node(body, i);
        const ir_op_def_t *def = ir_op_def(node->op);
        if (node->op == IR_OP_UPDATE)
            return FAIL(
                ST_UNSUPPORTED,
                "'%s' changes from one micro-batch to the next, which a loop over them does "
                "not have: leave out --accumulate-loop",
                ir_value_producer(body, node->inputs[0])->name);
        bool has_part = (def->flags & IR_RANDOM) && node->n_inputs == (uint32_t)def->max_inputs;
        if (has_part || (!(def->flags & IR_RANDOM) && ir_node_is_random(node)))
            return FAIL(ST_UNSUPPORTED,
                        "%s draws random numbers by a part of its own, which a loop over "
                        "micro-batches would repeat: leave out --accumulate-loop",
                        ir_node_label(body, i));
    }
    return ST_OK;
}

static bool carries_batch(const ir_node_info_t *node) {
    return node->op == IR_OP_INPUT && ir_attr_int(node, "batch_axis") >= 0;
}

static ir_value_t take(loop_t *l, const ir_type_t *seen, ir_value_t operand) {
    l->operand[l->n_operands++] = operand;
    return ir_b_body_input(&l->inner, seen);
}

static st_status_t open_loop(loop_t *l) {
    size_t n = l->body->values.n, n_params = l->out->n;
    l->map = st_arena_array(&l->arena, n, sizeof *l->map);
    l->operand = st_arena_array(&l->arena, n + n_params + 4, sizeof *l->operand);
    l->grad_in = st_arena_array(&l->arena, n_params, sizeof *l->grad_in);
    l->wrt = st_arena_array(&l->arena, n_params, sizeof *l->wrt);
    l->grad = st_arena_array(&l->arena, n_params, sizeof *l->grad);
    if (!l->map || !l->operand || !l->grad_in || !l->wrt || !l->grad)
        return st_no_memory(n * sizeof *l->map, "micro-batches");
    TRY(ir_graph_create("", &l->inner.graph));
    return ST_OK;
}

static ir_value_t carry_zero(loop_t *l, ir_type_t type) {
    l->n_carried++;
    return take(l, &type, ir_b_splat(&l->outer, type, 0));
}

/* Gradients in the order of the parameters, then sum and count. */
static void add_carried(loop_t *l) {
    const ir_graph_t *body = l->body;
    size_t p = 0;
    for (size_t i = 0; i < body->nodes.n; i++) {
        if (body->nodes.data[i].op != IR_OP_PARAMETER) continue;
        ir_type_t type = *ir_value_type(body, body->nodes.data[i].first_output);
        type.dtype = ir_dtype_wide(type.dtype);
        l->grad_in[p] = l->frozen && l->frozen[p] ? IR_NONE : carry_zero(l, type);
        p++;
    }
    ir_value_t sum = ir_graph_find_output(body, AD_MICRO_SUM);
    ir_value_t count = ir_graph_find_output(body, AD_MICRO_COUNT);
    l->sum_in = carry_zero(l, *ir_value_type(body, sum));
    l->count_in = count == IR_NONE ? IR_NONE : carry_zero(l, *ir_value_type(body, count));
}

/* Inputs that carry the batch get a leading dim. */
static st_status_t add_scanned(loop_t *l) {
    bool random = ir_body_is_random(l->body);
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
    if (!random) return l->outer.status;
    const ir_type_t counter = ir_type_scalar(IR_I64);
    ir_value_t parts = ir_b_iota(&l->outer, ir_type_add_first(&counter, l->n_micro), 0, 0, 1);
    l->part = take(l, &counter, parts);
    l->n_scanned++;
    return l->outer.status;
}

/* State and inputs without a batch stand outside, as they were. */
static st_status_t add_captured(loop_t *l) {
    size_t p = 0;
    l->scale = IR_NONE;
    ir_value_t *outside = st_arena_array(&l->arena, l->body->values.n, sizeof *outside);
    if (!outside) return st_no_memory(0, "micro-batches");
    for (ir_node_t i = 0; i < l->body->nodes.n; i++) {
        const ir_node_info_t *node = ir_node(l->body, i);
        bool state = ir_op_def(node->op)->flags & IR_STATE;
        if (carries_batch(node) || (!state && node->op != IR_OP_INPUT)) continue;
        TRY(ir_graph_clone_node(l->outer.graph, l->body, i, NULL, outside));
        ir_value_t v = node->first_output;
        l->map[v] = take(l, ir_value_type(l->body, v), outside[v]);
        if (node->op == IR_OP_PARAMETER) {
            l->out->params[p] = outside[v];
            l->wrt[p++] = l->map[v];
        }
    }
    if (l->out->scale.scale != IR_NONE)
        l->scale = take(l, ir_b_type(&l->outer, l->out->scale.scale), l->out->scale.scale);
    return l->inner.status;
}

/* A random node tells the micro-batches apart by its part. */
static st_status_t add_random(loop_t *l, ir_node_t i) {
    const ir_node_info_t *node = ir_node(l->body, i);
    const ir_op_def_t *def = ir_op_def(node->op);
    uint32_t n_attrs = ir_op_n_attrs(def);
    ir_value_t in[IR_MAX_OPERANDS];
    ir_arg_t *args = st_arena_array(&l->arena, n_attrs, sizeof *args);
    if (!args) return st_no_memory(0, "micro-batches");
    ASSERT(node->n_inputs + 1 <= IR_MAX_OPERANDS);
    for (uint32_t j = 0; j < node->n_inputs; j++) in[j] = l->map[node->inputs[j]];
    in[node->n_inputs] = l->part;
    for (uint32_t a = 0; a < n_attrs; a++) args[a] = (ir_arg_t){def->attrs[a].key, node->attrs[a]};
    return ir_graph_add(l->inner.graph, node->op, node->name, node->n_inputs + 1, in, n_attrs, args,
                        &l->map[node->first_output]);
}

static st_status_t add_forward(loop_t *l) {
    for (ir_node_t i = 0; i < l->body->nodes.n; i++) {
        const ir_node_info_t *node = ir_node(l->body, i);
        uint32_t flags = ir_op_def(node->op)->flags;
        if ((flags & IR_STATE) || node->op == IR_OP_INPUT) continue;
        if (flags & IR_RANDOM)
            TRY(add_random(l, i));
        else
            TRY(ir_graph_clone_node(l->inner.graph, l->body, i, NULL, l->map));
    }
    return ST_OK;
}

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

static st_status_t build_body(loop_t *l) {
    ir_build_t *b = &l->inner;
    ir_value_t sum = ir_graph_find_output(l->body, AD_MICRO_SUM);
    ir_value_t count = ir_graph_find_output(l->body, AD_MICRO_COUNT);
    TRY(add_forward(l));
    b->graph->phase = IR_PHASE_BACKWARD;
    TRY(add_backward(l, l->map[sum]));
    ir_b_body_output(b, ir_b_binary(b, IR_OP_ADD, l->sum_in, l->map[sum]));
    if (count != IR_NONE)
        ir_b_body_output(b, ir_b_binary(b, IR_OP_ADD, l->count_in, l->map[count]));
    return b->status;
}

static st_status_t add_loop(loop_t *l, ir_value_t *out_sum, ir_value_t *out_count) {
    const ir_arg_t args[] = {IR_ARG_GRAPH("body", l->inner.graph), IR_ARG_INT("trip", l->n_micro),
                             IR_ARG_INT("carried", l->n_carried),
                             IR_ARG_INT("scanned", l->n_scanned)};
    size_t p = 0;
    l->outer.graph->phase = IR_PHASE_BACKWARD;
    ir_value_t at = ir_b_node(&l->outer, IR_OP_REPEAT, l->n_operands, l->operand, 4, args);
    TRY(l->outer.status);
    for (size_t i = 0; i < l->body->nodes.n; i++) {
        if (l->body->nodes.data[i].op != IR_OP_PARAMETER) continue;
        ir_dtype_t dtype = ir_value_type(l->body, l->body->nodes.data[i].first_output)->dtype;
        l->out->grads[p] = l->grad_in[p] == IR_NONE ? IR_NONE : ir_b_cast(&l->outer, at++, dtype);
        p++;
    }
    *out_sum = at++;
    *out_count = l->count_in == IR_NONE ? IR_NONE : at;
    l->outer.graph->phase = IR_PHASE_FORWARD;
    return l->outer.status;
}

st_status_t ad_micro_loop(const ir_graph_t *body, const bool *frozen, int64_t n_micro,
                          ad_backward_t *out, ir_value_t *out_sum, ir_value_t *out_count) {
    loop_t l = {.body = body,
                .out = out,
                .frozen = frozen,
                .n_micro = n_micro,
                .outer = {.graph = out->graph},
                .part = IR_NONE};
    st_status_t status = ST_OK;
    TRY_GOTO(check_body(body), done);
    TRY_GOTO(open_loop(&l), done);
    add_carried(&l);
    TRY_GOTO(l.outer.status, done);
    TRY_GOTO(add_scanned(&l), done);
    TRY_GOTO(add_captured(&l), done);
    TRY_GOTO(build_body(&l), done);
    TRY_GOTO(add_loop(&l, out_sum, out_count), done);
done:
    ir_graph_destroy(l.inner.graph);
    st_arena_clear(&l.arena);
    return status;
}
