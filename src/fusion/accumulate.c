/* Sums into products.
 *
 * Problem: y = x + a b as two nodes writes the product and reads it again. Libraries of products
 * add what they are given, and in place where that dies: a residual connection, a gradient that
 * sums over two uses, a gradient that sums over micro-batches.
 * In:  a program before nests are made. Out: the same, where the target's one kernel that adds
 *      costs less than the product and the sum apart, with matmul(a, b, x) in the sum's place. A
 *      sum in f32 of a product of smaller floats, cast, begins with it too: the product is rounded
 *      no more.
 *
 *   add(x, matmul(a, b))         → matmul(a, b, x)
 *   add(x, cast(matmul(a, b)))   → matmul(a, b, x)      x f32, a and b smaller
 *
 * One walk over the sums, whose products must have no other reader, and stand after x, so of two
 * products the later one: a product that waits for x keeps its operands alive (the logits'
 * gradient, where x is the other gradient of a tied embedding). Linear. */
#include "fusion/accumulate.h"

#include <string.h>

#include "base/memory.h"

typedef struct sum {
    bool taken, gone;  /* the sum becomes a product; the node is part of one */
    ir_node_t product; /* of a taken one */
    ir_value_t other;
} sum_t;

typedef struct decision {
    const ir_graph_t *graph; /* the model */
    const ir_target_t *target;
    ir_uses_t uses;
    sum_t *sums; /* [nodes] */
} decision_t;

/* Reads it exactly one node, once, and no output? */
static bool read_once(const decision_t *d, ir_value_t v) {
    if (d->uses.first[v + 1] - d->uses.first[v] != 1) return false;
    for (size_t o = 0; o < d->graph->outputs.n; o++)
        if (d->graph->outputs.data[o].value == v) return false;
    return true;
}

static ir_node_t producer(const ir_graph_t *graph, ir_value_t v) {
    return graph->values.data[v].producer;
}

/* The product behind an operand of a sum; IR_NONE: there is none that may move. */
static ir_node_t product_behind(const decision_t *d, ir_value_t v) {
    ir_node_t n = producer(d->graph, v);
    if (!read_once(d, v)) return IR_NONE;
    if (ir_node(d->graph, n)->op == IR_OP_CAST) {
        v = ir_node(d->graph, n)->inputs[0];
        n = producer(d->graph, v);
        if (!read_once(d, v)) return IR_NONE;
    }
    const ir_node_info_t *node = ir_node(d->graph, n);
    return node->op == IR_OP_MATMUL && node->n_inputs == 2 ? n : IR_NONE;
}

/* Whether matmul(a, b, x) is an op that the target runs with the product's own kernel, for less. */
static st_status_t pays(const decision_t *d, ir_node_t add, ir_node_t product, ir_value_t other,
                        bool *out_pays) {
    const ir_node_info_t *node = ir_node(d->graph, product);
    const ir_type_t *y = ir_value_type(d->graph, ir_node(d->graph, add)->first_output);
    const ir_type_t in[3] = {*ir_value_type(d->graph, node->inputs[0]),
                             *ir_value_type(d->graph, node->inputs[1]),
                             *ir_value_type(d->graph, other)};
    const ir_op_ctx_t ctx = {IR_OP_MATMUL, 3, 1, in, node->attrs, node->name};
    ir_cost_t together, apart, sum;
    *out_pays = false;
    bool wider = in[2].dtype == ir_dtype_wide(in[0].dtype);
    if (!ir_type_equal(&in[2], y) || (in[2].dtype != in[0].dtype && !wider)) return ST_OK;
    const char *reason;
    if (!d->target->can_run(d->target->context, &ctx, y, &reason)) return ST_OK;
    d->target->cost(d->target->context, &ctx, y, &together);
    if (together.status != ST_OK) return together.status;
    TRY(ir_target_cost(d->target, d->graph, product, &apart));
    TRY(ir_target_cost(d->target, d->graph, add, &sum));
    *out_pays = together.kernel && apart.kernel && strcmp(together.kernel, apart.kernel) == 0 &&
                together.us < apart.us + sum.us;
    return ST_OK;
}

static st_status_t look_at(decision_t *d, ir_node_t n) {
    const ir_node_info_t *node = ir_node(d->graph, n);
    if (node->op != IR_OP_ADD || node->inputs[0] == node->inputs[1]) return ST_OK;
    for (int i = 0; i < 2 && !d->sums[n].taken; i++) {
        const ir_value_t from = node->inputs[i], other = node->inputs[1 - i];
        const ir_node_t product = product_behind(d, from);
        bool yes;
        if (product == IR_NONE || producer(d->graph, other) > product) continue;
        TRY(pays(d, n, product, other, &yes));
        if (!yes) continue;
        d->sums[n] = (sum_t){.taken = true, .product = product, .other = other};
        d->sums[product].gone = true;
        if (producer(d->graph, from) != product) d->sums[producer(d->graph, from)].gone = true;
    }
    return ST_OK;
}

static st_status_t emit(void *context, ir_graph_t *to, const ir_graph_t *from, ir_node_t n,
                        ir_value_t *map) {
    const decision_t *d = context;
    const sum_t *sum = &d->sums[n];
    if (sum->gone) return ST_OK;
    if (!sum->taken) return ir_graph_clone_node(to, from, n, NULL, map);
    const ir_node_info_t *product = ir_node(from, sum->product);
    const ir_value_t in[3] = {map[product->inputs[0]], map[product->inputs[1]], map[sum->other]};
    const ir_arg_t args[2] = {IR_ARG_BOOL("transpose_a", ir_attr_int(product, "transpose_a") != 0),
                              IR_ARG_BOOL("transpose_b", ir_attr_int(product, "transpose_b") != 0)};
    return ir_graph_add(to, IR_OP_MATMUL, product->name, 3, in, 2, args,
                        &map[ir_node(from, n)->first_output]);
}

st_status_t fuse_accumulate(const ir_graph_t *graph, const ir_graph_t *model,
                            const ir_target_t *target, ir_graph_t **out_graph) {
    decision_t d = {.graph = model, .target = target};
    st_status_t status = ST_OK;
    *out_graph = NULL;
    ASSERT(graph->nodes.n == model->nodes.n);
    d.sums = st_calloc(model->nodes.n, sizeof *d.sums);
    if (!d.sums) return st_no_memory(model->nodes.n * sizeof *d.sums, "sums of products");
    TRY_GOTO(ir_uses_build(model, &d.uses), done);
    for (ir_node_t n = 0; n < model->nodes.n && target->cost && target->can_run; n++)
        TRY_GOTO(look_at(&d, n), done);
    status = ir_graph_rewrite(graph, NULL, emit, &d, out_graph);
done:
    ir_uses_free(&d.uses);
    st_free(d.sums);
    return status;
}
