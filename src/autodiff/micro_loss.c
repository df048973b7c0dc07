/* The loss of a micro-batch (micro_batch.h): a sum, and the counts that the sum of all is divided
 * by.
 *
 * Algorithm: from the loss backwards through what is linear (changes of sign, factors and divisors
 * that are constants) to its core:
 *
 *   cross_entropy, a mean        its own sum and count
 *   reduce_mean to a scalar      the sum; the count is the number of items
 *   a sum / N                    the sum, where N comes from data alone: it may be any function of
 *                                sums over data, which are the counts
 *   reduce_sum, cross_entropy    a plain sum: nothing is divided
 *
 * The body has the sum in the place of the core. What N makes of its counts stands behind the loop,
 * over their totals. Linear in the graph. */
#include <stdio.h>

#include "autodiff/micro_batch.h"
#include "ir/build.h"
#include "ir/expand.h"
#include "ir/op.h"

enum { FROM_DATA = 1, FROM_STATE = 2 };

typedef struct split {
    const ir_graph_t *forward;
    uint8_t *from;   /* [values] set of FROM_* */
    ir_value_t core; /* in whose place the sum stands */
    ir_value_t sum;  /* of core, where it divides a sum; else IR_NONE */
    bool *part;      /* [nodes] makes the divisor of the counts; only where core divides */
    bool *count;     /* [values] a count */
} split_t;

static const ir_node_info_t *maker(const split_t *s, ir_value_t v) {
    return ir_value_producer(s->forward, v);
}

static void find_origins(split_t *s) {
    for (ir_node_t i = 0; i < s->forward->nodes.n; i++) {
        const ir_node_info_t *node = ir_node(s->forward, i);
        uint8_t from = node->op == IR_OP_INPUT                        ? FROM_DATA
                       : (ir_op_def(node->op)->flags & IR_STATE) != 0 ? FROM_STATE
                                                                      : 0;
        for (uint32_t j = 0; j < node->n_inputs; j++) from |= s->from[node->inputs[j]];
        for (uint32_t k = 0; k < node->n_outputs; k++) s->from[node->first_output + k] = from;
        /* how many labels are valid, and what they weigh, does not depend on the logits */
        if (node->op == IR_OP_CROSS_ENTROPY)
            s->from[node->first_output + 1] =
                (uint8_t)(FROM_DATA | s->from[node->inputs[1]] |
                          (node->n_inputs > 2 ? s->from[node->inputs[2]] : 0));
    }
}

static bool is_scalar(const split_t *s, ir_value_t v) {
    return ir_value_type(s->forward, v)->rank == 0;
}

/* Operand of which the node is a multiple; IR_NONE: of none. */
static ir_value_t multiple_of(const split_t *s, const ir_node_info_t *node) {
    if (node->op == IR_OP_NEG || node->op == IR_OP_CAST || node->op == IR_OP_RESHAPE)
        return node->inputs[0];
    if (node->op != IR_OP_MUL && node->op != IR_OP_DIV) return IR_NONE;
    if (!s->from[node->inputs[1]]) return node->inputs[0];
    return node->op == IR_OP_MUL && !s->from[node->inputs[0]] ? node->inputs[1] : IR_NONE;
}

static ir_value_t skip_factors(const split_t *s, ir_value_t v) {
    for (ir_value_t next = v; next != IR_NONE && is_scalar(s, next);) {
        v = next;
        next = multiple_of(s, maker(s, v));
    }
    return v;
}

static bool is_sum(const split_t *s, ir_value_t v, bool means) {
    const ir_node_info_t *node = maker(s, v);
    if (!is_scalar(s, v) || v != node->first_output) return false;
    if (node->op == IR_OP_CROSS_ENTROPY) return means || !ir_attr_int(node, "mean");
    return node->op == IR_OP_REDUCE_SUM || (means && node->op == IR_OP_REDUCE_MEAN);
}

static bool is_count(const split_t *s, ir_value_t v) {
    const ir_node_info_t *node = maker(s, v);
    if (!is_scalar(s, v) || s->from[v] != FROM_DATA) return false;
    return node->op == IR_OP_REDUCE_SUM ||
           (node->op == IR_OP_CROSS_ENTROPY && v == node->first_output + 1);
}

/* Marks what makes the divisor, down to counts and constants. */
static st_status_t mark_divisor(split_t *s, ir_value_t divisor) {
    s->part[s->forward->values.data[divisor].producer] = true;
    for (ir_node_t i = s->forward->values.data[divisor].producer + 1; i-- > 0;) {
        const ir_node_info_t *node = ir_node(s->forward, i);
        uint32_t flags = ir_op_def(node->op)->flags;
        if (!s->part[i]) continue;
        bool counts = false;
        for (uint32_t k = 0; k < node->n_outputs; k++)
            counts |= is_count(s, node->first_output + k);
        if (counts) {
            for (uint32_t k = 0; k < node->n_outputs; k++)
                s->count[node->first_output + k] = is_count(s, node->first_output + k);
            s->part[i] = false;
            continue;
        }
        bool plain =
            (flags & IR_ELEMENTWISE) || node->op == IR_OP_RESHAPE || !s->from[node->first_output];
        if (!plain || s->from[node->first_output] & FROM_STATE)
            return FAIL(ST_UNSUPPORTED,
                        "micro-batches divide the loss once, by counts of all of them: the divisor "
                        "comes from %s, which is no function of sums over the inputs",
                        ir_node_label(s->forward, i));
        for (uint32_t j = 0; j < node->n_inputs; j++)
            s->part[s->forward->values.data[node->inputs[j]].producer] = true;
    }
    return ST_OK;
}

static st_status_t not_a_sum(const split_t *s, ir_value_t v) {
    return FAIL(ST_UNSUPPORTED,
                "micro-batches need a loss that is a sum over items, divided by a count of data "
                "alone (cross_entropy, reduce_mean, reduce_sum, or a sum divided by one); this one "
                "comes from %s",
                ir_node_label(s->forward, s->forward->values.data[v].producer));
}

static void split_close(split_t *s) {
    st_free(s->from);
    st_free(s->part);
    st_free(s->count);
}

static st_status_t split_open(split_t *s, const ir_graph_t *forward, ir_value_t loss) {
    *s = (split_t){.forward = forward, .sum = IR_NONE};
    s->from = st_calloc(forward->values.n, sizeof *s->from);
    s->part = st_calloc(forward->nodes.n, sizeof *s->part);
    s->count = st_calloc(forward->values.n, sizeof *s->count);
    if (!s->from || !s->part || !s->count)
        return st_no_memory(forward->values.n, "the loss of micro-batches");
    find_origins(s);
    s->core = skip_factors(s, loss);
    const ir_node_info_t *node = maker(s, s->core);
    if (is_sum(s, s->core, true)) return ST_OK;
    if (node->op != IR_OP_DIV || s->from[node->inputs[1]] != FROM_DATA)
        return not_a_sum(s, s->core);
    s->sum = node->inputs[0];
    ir_value_t inner = skip_factors(s, s->sum);
    if (!is_sum(s, inner, false)) return not_a_sum(s, inner);
    return mark_divisor(s, node->inputs[1]);
}

/* ---- the body ---- */

/* Appends the core's undivided form, and its count as an output of `counts`. */
static st_status_t add_core(const split_t *s, ir_graph_t *to, ir_node_t n, ir_value_t *map,
                            ir_value_t *out_count) {
    const ir_node_info_t *info = ir_node(s->forward, n);
    ir_build_t b = {.graph = to, .name = info->name};
    ir_value_t sum;
    if (s->sum != IR_NONE) {
        sum = map[s->sum];
    } else if (info->op == IR_OP_CROSS_ENTROPY) {
        ir_value_t in[3] = {0};
        for (uint32_t j = 0; j < info->n_inputs; j++) in[j] = map[info->inputs[j]];
        sum = ir_b_node(&b, info->op, info->n_inputs, in, 3,
                        (ir_arg_t[]){{"ignore_index", *ir_node_attr(info, "ignore_index")},
                                     {"smoothing", *ir_node_attr(info, "smoothing")},
                                     IR_ARG_BOOL("mean", false)});
        if (b.status == ST_OK) map[info->first_output + 1] = sum + 1;
        if (ir_attr_int(info, "mean")) *out_count = sum + 1;
    } else {
        sum = ir_b_reduce(&b, IR_OP_REDUCE_SUM, map[info->inputs[0]], 0, NULL, false);
        if (info->op == IR_OP_REDUCE_MEAN) {
            double items = (double)ir_type_elements(ir_value_type(s->forward, info->inputs[0]));
            *out_count =
                ir_b_scalar(&b, ir_dtype_wide(ir_value_type(s->forward, s->core)->dtype), items);
        }
    }
    map[info->first_output] = sum;
    return b.status;
}

st_status_t ad_micro_body(const ir_graph_t *forward, ir_value_t loss, ir_graph_t **out_body) {
    split_t s;
    ir_graph_t *plain = NULL;
    st_status_t status = ST_OK;
    ir_value_t *map = NULL, own = IR_NONE;
    *out_body = NULL;
    TRY_GOTO(split_open(&s, forward, loss), done);
    map = st_calloc(forward->values.n, sizeof *map);
    if (!map) TRY_GOTO(st_no_memory(forward->values.n * sizeof *map, "a micro-batch"), done);
    TRY_GOTO(ir_graph_create_like(forward, &plain), done);
    for (ir_node_t i = 0; i < forward->nodes.n; i++) {
        if (i == forward->values.data[s.core].producer)
            TRY_GOTO(add_core(&s, plain, i, map, &own), done);
        else
            TRY_GOTO(ir_graph_clone_node(plain, forward, i, NULL, map), done);
    }
    ir_build_t b = {.graph = plain};
    ir_b_output(&b, "sum", map[loss]);
    if (own != IR_NONE) ir_b_output(&b, "count", own);
    for (ir_value_t v = 0; v < forward->values.n; v++) {
        char name[24];
        if (!s.count[v]) continue;
        snprintf(name, sizeof name, "count.%zu", plain->outputs.n);
        ir_b_output(&b, name, map[v]);
    }
    TRY_GOTO(b.status, done);
    TRY_GOTO(ir_expand_composites(plain, ir_expand_for_gradient, out_body), done);
done:
    split_close(&s);
    st_free(map);
    ir_graph_destroy(plain);
    return status;
}

/* Labels of a cross-entropy, elements of a sum or mean. */
static double items_of(const split_t *s, ir_value_t v) {
    const ir_node_info_t *node = maker(s, v);
    const ir_value_t items = node->inputs[node->op == IR_OP_CROSS_ENTROPY];
    const double n = (double)ir_type_elements(ir_value_type(s->forward, items));
    return n > 1 ? n : 1;
}

st_status_t ad_micro_items(const ir_graph_t *forward, ir_value_t loss, double *out_items) {
    split_t s;
    st_status_t status = split_open(&s, forward, loss);
    *out_items = 1;
    if (status == ST_OK) {
        if (s.sum != IR_NONE)
            *out_items = items_of(&s, skip_factors(&s, s.sum));
        else if (!is_sum(&s, s.core, false)) /* a mean */
            *out_items = items_of(&s, s.core);
    }
    split_close(&s);
    return status;
}

/* ---- behind the loop ---- */

/* What the graph makes of the counts, over their totals. */
static st_status_t make_divisor(const split_t *s, ir_graph_t *graph, const ir_value_t *counts,
                                ir_value_t *out) {
    const ir_graph_t *forward = s->forward;
    ir_value_t *map = st_calloc(forward->values.n, sizeof *map);
    if (!map) return st_no_memory(forward->values.n * sizeof *map, "the loss of micro-batches");
    st_status_t status = ST_OK;
    ir_build_t b = {.graph = graph};
    for (ir_value_t v = 0; v < forward->values.n; v++)
        if (s->count[v]) map[v] = ir_b_cast(&b, *counts++, ir_value_type(forward, v)->dtype);
    TRY_GOTO(b.status, done);
    for (ir_node_t i = 0; i < forward->nodes.n; i++)
        if (s->part[i]) TRY_GOTO(ir_graph_clone_node(graph, forward, i, NULL, map), done);
    *out = map[maker(s, s->core)->inputs[1]];
done:
    st_free(map);
    return status;
}

st_status_t ad_micro_divide(const ir_graph_t *forward, ir_value_t loss, ir_graph_t *graph,
                            ir_value_t sum, const ir_value_t *counts, ir_value_t *out_loss,
                            ir_value_t *out_divisor) {
    split_t s;
    st_status_t status = ST_OK;
    ir_build_t b = {.graph = graph};
    *out_divisor = IR_NONE;
    TRY_GOTO(split_open(&s, forward, loss), done);
    if (s.sum != IR_NONE) {
        TRY_GOTO(make_divisor(&s, graph, counts, out_divisor), done);
    } else if (maker(&s, s.core)->op == IR_OP_REDUCE_MEAN ||
               (maker(&s, s.core)->op == IR_OP_CROSS_ENTROPY &&
                ir_attr_int(maker(&s, s.core), "mean"))) {
        /* as cross_entropy: a batch without valid items gives 0 */
        ir_dtype_t dtype = ir_b_type(&b, counts[0])->dtype;
        ir_value_t none = ir_b_binary(&b, IR_OP_EQ, counts[0], ir_b_scalar(&b, dtype, 0));
        *out_divisor = ir_b_select(&b, none, ir_b_scalar(&b, dtype, 1), counts[0]);
    }
    if (*out_divisor != IR_NONE)
        sum =
            ir_b_binary(&b, IR_OP_DIV, sum, ir_b_cast(&b, *out_divisor, ir_b_type(&b, sum)->dtype));
    *out_loss = ir_b_cast(&b, sum, ir_value_type(forward, loss)->dtype);
    status = b.status;
done:
    split_close(&s);
    return status;
}
