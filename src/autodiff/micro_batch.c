/* Gradient accumulation: one step over K micro-batches that equals the step over their union.
 *
 * That holds where the loss is a sum over items divided by a count that depends on data only:
 *
 *   loss     = (S_1 + … + S_K) / (N_1 + … + N_K)
 *   gradient = (grad S_1 + … + grad S_K) / (N_1 + … + N_K)
 *
 * A mean of the micro-batches' means would be wrong as soon as the counts differ. So the loss must
 * come straight from cross_entropy, reduce_mean or reduce_sum; its sum is differentiated a
 * micro-batch at a time, and the division is left to the caller as `divisor`, who has one scalar to
 * fold it into.
 *
 *   inputs [K, b, …] → slice k → forward k → S_k → backward k
 *   parameters ─────────────────────↑ buffers, chained
 *
 * Each backward follows its forward, so that the activations of one micro-batch are gone before the
 * next begins. State that the forward graph updates (running statistics) is chained: micro-batch
 * k + 1 reads what k wrote. The body is unrolled. Random masks are taken from the place of the
 * micro-batch in the whole batch, so they do not repeat. */
#include <string.h>

#include "autodiff/gradient.h"
#include "autodiff/micro_batch.h"
#include "ir/build.h"
#include "ir/expand.h"
#include "ir/op.h"

static st_status_t check_batch_norm(const ir_graph_t *forward) {
    for (ir_node_t i = 0; i < forward->nodes.n; i++) {
        const ir_node_info_t *node = ir_node(forward, i);
        if ((node->op == IR_OP_BATCH_NORM || node->op == IR_OP_BATCH_NORM_APPLY) &&
            ir_attr_int(node, "train"))
            return FAIL(
                ST_UNSUPPORTED,
                "%s takes its statistics from the whole batch, which micro-batches do not have; "
                "use one micro-batch, or take statistics of each micro-batch (--batch-norm micro)",
                ir_node_label(forward, i));
    }
    return ST_OK;
}

/* Appends the loss node's undivided form; fills the sum and, where it is a value, the count. */
static st_status_t add_sum_form(ir_graph_t *to, const ir_graph_t *from, ir_node_t node,
                                ir_value_t *map) {
    const ir_node_info_t *info = ir_node(from, node);
    ir_build_t b = {.graph = to, .name = info->name};
    ir_value_t sum = IR_NONE, count = IR_NONE;
    if (info->op == IR_OP_CROSS_ENTROPY) {
        ir_value_t in[3] = {0};
        for (uint32_t j = 0; j < info->n_inputs; j++) in[j] = map[info->inputs[j]];
        sum = ir_b_node(&b, info->op, info->n_inputs, in, 3,
                        (ir_arg_t[]){{"ignore_index", *ir_node_attr(info, "ignore_index")},
                                     {"smoothing", *ir_node_attr(info, "smoothing")},
                                     IR_ARG_BOOL("mean", false)});
        if (b.status == ST_OK) map[info->first_output + 1] = sum + 1;
        if (ir_attr_int(info, "mean")) count = sum + 1;
    } else {
        sum = ir_b_reduce(&b, IR_OP_REDUCE_SUM, map[info->inputs[0]], 0, NULL, false);
        if (info->op == IR_OP_REDUCE_MEAN) {
            double items = (double)ir_type_elements(ir_value_type(from, info->inputs[0]));
            count = ir_b_scalar(&b, ir_value_type(from, info->first_output)->dtype, items);
        }
    }
    map[info->first_output] = sum;
    ir_b_output(&b, AD_MICRO_SUM, sum);
    if (count != IR_NONE) ir_b_output(&b, AD_MICRO_COUNT, count);
    return b.status;
}

/* The body of one micro-batch: the forward graph with the undivided loss, expanded; outputs "sum",
 * "count". */
static st_status_t make_body(const ir_graph_t *forward, ir_value_t loss, ir_graph_t **out_body) {
    const ir_value_info_t at = forward->values.data[loss];
    const ir_op_t op = ir_node(forward, at.producer)->op;
    *out_body = NULL;
    if (at.index != 0 ||
        (op != IR_OP_CROSS_ENTROPY && op != IR_OP_REDUCE_MEAN && op != IR_OP_REDUCE_SUM))
        return FAIL(ST_UNSUPPORTED,
                    "micro-batches need a loss that is a sum or a mean over items (cross_entropy, "
                    "reduce_mean, reduce_sum); this one comes from %s",
                    ir_node_label(forward, at.producer));
    ir_graph_t *plain = NULL;
    st_status_t status = ST_OK;
    ir_value_t *map = st_calloc(forward->values.n, sizeof *map);
    if (!map) return st_no_memory(forward->values.n * sizeof *map, "a micro-batch");
    TRY_GOTO(ir_graph_create_like(forward, &plain), done);
    for (ir_node_t i = 0; i < forward->nodes.n; i++) {
        if (i == at.producer)
            TRY_GOTO(add_sum_form(plain, forward, i, map), done);
        else
            TRY_GOTO(ir_graph_clone_node(plain, forward, i, NULL, map), done);
    }
    TRY_GOTO(ir_expand_composites(plain, ir_expand_for_gradient, out_body), done);
done:
    st_free(map);
    ir_graph_destroy(plain);
    return status;
}

/* ---- unrolling ---- */

typedef struct unroll {
    const ir_graph_t *body;
    ir_graph_t *graph;
    ir_value_t *map; /* body value → value of this micro-batch; state: its present content */
    ir_value_t
        *next; /* state value of the body → content after this micro-batch, IR_NONE: unchanged */
    ir_value_t *fed; /* input value of the body → the [K, …] input */
    int64_t n_micro;
} unroll_t;

static bool carries_batch(const ir_node_info_t *node) {
    return node->op == IR_OP_INPUT && ir_attr_int(node, "batch_axis") >= 0;
}

/* Sources come once; inputs that carry the batch get the leading dim. */
static st_status_t add_sources(unroll_t *u) {
    for (ir_node_t i = 0; i < u->body->nodes.n; i++) {
        const ir_node_info_t *node = ir_node(u->body, i);
        if (!(ir_op_def(node->op)->flags & IR_SOURCE)) continue;
        if (!carries_batch(node)) {
            TRY(ir_graph_clone_node(u->graph, u->body, i, NULL, u->map));
            continue;
        }
        ir_type_t type = *ir_value_type(u->body, node->first_output);
        if (type.rank == IR_MAX_RANK)
            return FAIL(ST_UNSUPPORTED, "%s has rank %d: no room for the dim of the micro-batches",
                        ir_node_label(u->body, i), IR_MAX_RANK);
        memmove(type.dims + 1, type.dims, (size_t)type.rank * sizeof *type.dims);
        type.dims[0] = u->n_micro;
        type.rank++;
        ir_build_t b = {.graph = u->graph};
        u->fed[node->first_output] =
            ir_b_input(&b, node->name, type, ir_attr_int(node, "batch_axis") + 1);
        TRY(b.status);
    }
    return ST_OK;
}

/* Place of an attribute that the op has. */
static uint32_t attr_place(const ir_op_def_t *def, const char *key) {
    uint32_t i = 0;
    while (strcmp(def->attrs[i].key, key) != 0) ASSERT(def->attrs[++i].key);
    return i;
}

/* Attributes of a random node for micro-batch k: its values lie after those of k earlier ones along
 * dim 0. */
static st_status_t random_attrs(unroll_t *u, const ir_node_info_t *node, int64_t k,
                                const ir_attr_t **out_attrs) {
    const ir_op_def_t *def = ir_op_def(node->op);
    const uint32_t n_attrs = ir_op_n_attrs(def);
    const uint32_t at_begin = attr_place(def, "begin"), at_global = attr_place(def, "global");
    const ir_type_t *type = ir_value_type(u->body, node->first_output);
    const size_t bytes = (size_t)type->rank * sizeof(int64_t);
    st_arena_t *arena = &u->graph->arena;
    ir_attr_t *attrs = st_arena_copy(arena, node->attrs, n_attrs * sizeof *attrs);
    if (!attrs) return st_no_memory(n_attrs * sizeof *attrs, "a micro-batch");
    *out_attrs = attrs;
    if (type->rank == 0) { /* no dim to lie along: another stream instead */
        attrs[attr_place(def, "id")].i += k << 40;
        return ST_OK;
    }
    const bool given = attrs[at_begin].ints.n > 0;
    int64_t *begin = given ? st_arena_copy(arena, attrs[at_begin].ints.v, bytes)
                           : st_arena_array(arena, (size_t)type->rank, sizeof *begin);
    int64_t *global = st_arena_copy(arena, given ? attrs[at_global].ints.v : type->dims, bytes);
    if (!begin || !global) return st_no_memory(bytes, "a micro-batch");
    begin[0] += k * global[0];
    global[0] *= u->n_micro;
    attrs[at_begin].ints.v = begin;
    attrs[at_global].ints.v = global;
    attrs[at_begin].ints.n = attrs[at_global].ints.n = (uint32_t)type->rank;
    return ST_OK;
}

static st_status_t add_forward(unroll_t *u, int64_t k) {
    ir_build_t b = {.graph = u->graph};
    for (ir_node_t i = 0; i < u->body->nodes.n; i++) {
        const ir_node_info_t *node = ir_node(u->body, i);
        const ir_attr_t *attrs = NULL;
        if (carries_batch(node)) {
            const ir_type_t *type = ir_value_type(u->body, node->first_output);
            ir_value_t part = ir_b_slice_axis(&b, u->fed[node->first_output], 0, k, k + 1);
            u->map[node->first_output] = ir_b_reshape(&b, part, type->rank, type->dims);
            TRY(b.status);
            continue;
        }
        if (ir_op_def(node->op)->flags & IR_SOURCE) continue;
        if (node->op == IR_OP_UPDATE) {
            u->next[node->inputs[0]] = u->map[node->inputs[1]];
            continue;
        }
        if (ir_op_def(node->op)->flags & IR_RANDOM) TRY(random_attrs(u, node, k, &attrs));
        TRY(ir_graph_clone_node(u->graph, u->body, i, attrs, u->map));
    }
    for (size_t v = 0; v < u->body->values.n; v++)
        if (u->next[v] != IR_NONE) u->map[v] = u->next[v];
    return ST_OK;
}

/* The forward graph's updates, once, with what the last micro-batch left. */
static void add_updates(unroll_t *u, ir_build_t *b, const ir_value_t *state) {
    for (ir_node_t i = 0; i < u->body->nodes.n; i++) {
        const ir_node_info_t *node = ir_node(u->body, i);
        if (node->op == IR_OP_UPDATE)
            ir_b_update(b, state[node->inputs[0]], u->map[node->inputs[0]]);
    }
}

/* A gradient as a term of the sum over micro-batches: the cast, which changes nothing, tells mixed
 * precision that the sum is to be f32. */
static ir_value_t term(ir_build_t *b, ir_value_t part) {
    if (ir_b_type(b, part)->dtype != IR_F32) return part;
    return ir_b_node(b, IR_OP_CAST, 1, &part, 1, (ir_arg_t[]){IR_ARG_DTYPE("dtype", IR_F32)});
}

static ir_value_t added(ir_build_t *b, ir_value_t sum, ir_value_t part) {
    return sum == IR_NONE ? part : ir_b_binary(b, IR_OP_ADD, sum, part);
}

/* The loss of all micro-batches, and what the gradients are yet to be divided by. */
static st_status_t finish(ir_graph_t *graph, const char *loss_name, ir_value_t sum,
                          ir_value_t count, ad_backward_t *out) {
    ir_build_t b = {.graph = graph};
    if (count != IR_NONE) {
        /* as cross_entropy: a batch without valid items gives 0 */
        ir_dtype_t dtype = ir_b_type(&b, count)->dtype;
        ir_value_t none = ir_b_binary(&b, IR_OP_EQ, count, ir_b_scalar(&b, dtype, 0));
        out->divisor = ir_b_select(&b, none, ir_b_scalar(&b, dtype, 1), count);
        sum = ir_b_binary(&b, IR_OP_DIV, sum, out->divisor);
    }
    ir_b_output(&b, loss_name, sum);
    return b.status;
}

static st_status_t run_micro_batches(unroll_t *u, const bool *frozen, const char *loss_name,
                                     const ad_scaling_t *scaling, ir_value_t *part,
                                     ir_value_t *state, ad_backward_t *out) {
    const ir_value_t body_sum = ir_graph_find_output(u->body, AD_MICRO_SUM);
    const ir_value_t body_count = ir_graph_find_output(u->body, AD_MICRO_COUNT);
    ir_value_t sum = IR_NONE, count = IR_NONE;
    size_t n = 0;
    TRY(add_sources(u));
    TRY(ad_loss_scale_open(u->graph, scaling, &out->scale));
    memcpy(state, u->map, u->body->values.n * sizeof *state);
    for (size_t i = 0; i < u->body->nodes.n; i++)
        if (u->body->nodes.data[i].op == IR_OP_PARAMETER)
            out->params[n++] = u->map[u->body->nodes.data[i].first_output];
    ir_build_t b = {.graph = u->graph};
    for (int64_t k = 0; k < u->n_micro; k++) {
        TRY(add_forward(u, k));
        TRY(ad_backward_grads(out, u->map[body_sum], frozen, part));
        for (size_t i = 0; i < out->n; i++)
            if (part[i] != IR_NONE) {
                u->graph->phase = IR_PHASE_BACKWARD;
                out->grads[i] = added(&b, out->grads[i], term(&b, part[i]));
            }
        u->graph->phase = IR_PHASE_FORWARD;
        sum = added(&b, sum, u->map[body_sum]);
        if (body_count != IR_NONE) count = added(&b, count, u->map[body_count]);
        TRY(b.status);
    }
    add_updates(u, &b, state);
    TRY(b.status);
    return finish(u->graph, loss_name, sum, count, out);
}

st_status_t ad_backward_micro(const ir_graph_t *forward, ir_value_t loss, const char *loss_name,
                              const bool *frozen, const ad_scaling_t *scaling, int64_t n_micro,
                              bool allow_batch_norm, bool loop, ad_backward_t *out) {
    *out = (ad_backward_t){.divisor = IR_NONE};
    if (!allow_batch_norm) TRY(check_batch_norm(forward));
    ir_graph_t *body = NULL;
    TRY(make_body(forward, loss, &body));
    unroll_t u = {.body = body, .n_micro = n_micro};
    ir_value_t *part = NULL, *state = NULL;
    st_status_t status = ST_OK;
    TRY_GOTO(ad_backward_open(forward, out), done);
    TRY_GOTO(ir_graph_create_like(forward, &out->graph), done);
    u.graph = out->graph;
    if (loop) {
        ir_value_t sum, count;
        TRY_GOTO(ad_loss_scale_open(out->graph, scaling, &out->scale), done);
        TRY_GOTO(ad_micro_loop(body, frozen, n_micro, out, &sum, &count), done);
        TRY_GOTO(finish(out->graph, loss_name, sum, count, out), done);
        goto done;
    }
    u.map = st_calloc(body->values.n, sizeof *u.map);
    u.next = st_calloc(body->values.n, sizeof *u.next);
    u.fed = st_calloc(body->values.n, sizeof *u.fed);
    state = st_calloc(body->values.n, sizeof *state);
    part = st_calloc(out->n, sizeof *part);
    if (!u.map || !u.next || !u.fed || !state || !part)
        TRY_GOTO(st_no_memory(4 * body->values.n * sizeof *u.map, "micro-batches"), done);
    for (size_t v = 0; v < body->values.n; v++) u.next[v] = IR_NONE;
    TRY_GOTO(run_micro_batches(&u, frozen, loss_name, scaling, part, state, out), done);
done:
    st_free(u.map);
    st_free(u.next);
    st_free(u.fed);
    st_free(state);
    st_free(part);
    ir_graph_destroy(body);
    if (status != ST_OK) ad_backward_free(out);
    return status;
}
