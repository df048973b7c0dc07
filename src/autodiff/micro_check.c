/* Whether micro-batches give what their union gives (micro_batch.h).
 *
 * Problem: a node that mixes the items of a batch (statistics over the batch, similarities between
 * its items, a square of a sum) sees other items in a micro-batch than in the union.
 * Algorithm: the partition rules of the ops say what a part of the batch can do by itself. Each
 * value is whole (the same in every micro-batch), split (along the dim that carries the batch) or a
 * partial sum over it. A node passes if one of its strategies takes its operands as they are; whole
 * ones may be cut, since a micro-batch has its own. The loss has to end as a partial sum, and so do
 * its counts. Bodies of loops and conditions go through the same, a loop's until its carries go
 * round. Where each micro-batch is one item, rules cannot tell the batch's dim from one that is
 * there to be broadcast, and nothing is checked. Linear in the nodes, times the carries that
 * change. */
#include <string.h>

#include "autodiff/micro_batch.h"
#include "ir/body.h"
#include "ir/node_ctx.h"

typedef struct check {
    const ir_graph_t *graph;
    ir_placement_t *at;    /* [values] */
    bool allow_batch_norm; /* whose sums over a micro-batch count as whole */
    st_arena_t *arena;
} check_t;

static st_status_t check_nodes(check_t *c);

static st_status_t mixes(const check_t *c, ir_node_t n) {
    return FAIL(ST_UNSUPPORTED,
                "%s mixes the items of the batch, so that micro-batches would not give what the "
                "whole batch gives: leave out --accumulate",
                ir_node_label(c->graph, n));
}

/* ---- regions ---- */

static ir_placement_t moved(ir_placement_t placement, int32_t by) {
    if (placement.kind == IR_SPLIT) placement.dim += by;
    return placement;
}

/* Places of a body's results where its inputs are `in`. */
static st_status_t check_body(const check_t *outer, const ir_graph_t *body,
                              const ir_placement_t *in, ir_placement_t *out) {
    check_t c = {body, NULL, outer->allow_batch_norm, outer->arena};
    c.at = st_arena_array(c.arena, body->values.n, sizeof *c.at);
    if (!c.at) return st_no_memory(body->values.n * sizeof *c.at, "the check of micro-batches");
    for (ir_node_t i = 0; i < body->nodes.n; i++)
        if (ir_node(body, i)->op == IR_OP_INPUT) c.at[ir_node(body, i)->first_output] = *in++;
    TRY(check_nodes(&c));
    for (size_t k = 0; k < body->outputs.n; k++) out[k] = c.at[body->outputs.data[k].value];
    return ST_OK;
}

static st_status_t check_region(check_t *c, ir_node_t n) {
    const ir_node_info_t *node = ir_node(c->graph, n);
    const ir_region_info_t info = ir_region_info(node);
    ir_placement_t *in = st_arena_array(c->arena, info.n_inputs, sizeof *in);
    ir_placement_t *out = st_arena_array(c->arena, node->n_outputs, sizeof *out);
    ir_placement_t *other = st_arena_array(c->arena, node->n_outputs, sizeof *other);
    if (!in || !out || !other) return st_no_memory(0, "the check of micro-batches");
    for (uint32_t j = 0; j < info.n_inputs; j++) {
        bool scanned = j >= info.carried && j < info.carried + info.scanned;
        in[j] = c->at[node->inputs[info.first + j]];
        if (scanned && in[j].kind == IR_SPLIT && in[j].dim == 0) return mixes(c, n);
        in[j] = moved(in[j], scanned ? -1 : 0);
    }
    if (info.first && c->at[node->inputs[0]].kind != IR_REPLICATE) return mixes(c, n);
    for (bool changed = true; changed;) {
        changed = false;
        TRY(check_body(c, info.bodies[0], in, out));
        for (uint32_t j = 0; j < info.carried; j++) {
            if (ir_placement_equal(in[j], out[j])) continue;
            if (in[j].kind != IR_REPLICATE) {
                if (out[j].kind != IR_REPLICATE) return mixes(c, n);
                continue; /* what is the same for all is so for parts */
            }
            in[j] = out[j];
            changed = true;
        }
    }
    if (info.n_bodies > 1) {
        TRY(check_body(c, info.bodies[1], in, other));
        for (uint32_t k = 0; k < node->n_outputs; k++) {
            if (out[k].kind == IR_REPLICATE) out[k] = other[k];
            if (other[k].kind != IR_REPLICATE && !ir_placement_equal(out[k], other[k]))
                return mixes(c, n);
        }
    }
    for (uint32_t k = 0; k < node->n_outputs; k++) {
        if (k < info.carried && out[k].kind == IR_REPLICATE) out[k] = in[k];
        c->at[node->first_output + k] =
            moved(out[k], info.n_bodies == 1 && k >= info.carried ? 1 : 0);
    }
    return ST_OK;
}

/* ---- nodes ---- */

static bool fits(const check_t *c, const ir_node_info_t *node, const ir_strategy_t *strategy) {
    for (uint32_t j = 0; j < node->n_inputs; j++) {
        ir_placement_t have = c->at[node->inputs[j]];
        ir_placement_t want = strategy->in[node->n_inputs > IR_MAX_OPERANDS ? 0 : j];
        bool cut = have.kind == IR_REPLICATE && want.kind == IR_SPLIT;
        if (!cut && !ir_placement_equal(have, want)) return false;
    }
    /* a mean over the items of a micro-batch is none over those of all */
    return node->op != IR_OP_REDUCE_MEAN || strategy->out[0].kind != IR_PARTIAL ||
           strategy->in[0].kind == IR_PARTIAL;
}

static st_status_t check_node(check_t *c, ir_node_t n) {
    const ir_node_info_t *node = ir_node(c->graph, n);
    ir_type_t *types = st_arena_array(c->arena, node->n_inputs + node->n_outputs, sizeof *types);
    ir_placement_t *have = st_arena_array(c->arena, node->n_inputs, sizeof *have);
    bool any = false;
    if (!types || !have) return st_no_memory(0, "the check of micro-batches");
    for (uint32_t j = 0; j < node->n_inputs; j++) {
        have[j] = c->at[node->inputs[j]];
        any |= have[j].kind != IR_REPLICATE;
    }
    if (!any) return ST_OK;
    if (ir_op_def(node->op)->flags & IR_REGION) return check_region(c, n);
    const ir_op_ctx_t ctx = ir_node_ctx_in(c->graph, n, types);
    ir_strategy_list_t list = {.have = have};
    ir_op_def(node->op)->strategies(&ctx, &list);
    const bool statistic = c->allow_batch_norm && (node->op == IR_OP_CHANNEL_SUM ||
                                                   node->op == IR_OP_CHANNEL_CENTERED_SQUARES);
    for (uint32_t s = 0; s < list.n; s++) {
        if (!fits(c, node, &list.items[s])) continue;
        for (uint32_t k = 0; k < node->n_outputs; k++)
            c->at[node->first_output + k] =
                statistic || k >= IR_MAX_OPERANDS ? IR_PLACE_REPLICATE : list.items[s].out[k];
        return ST_OK;
    }
    return mixes(c, n);
}

/* Those that the outputs depend on. */
static st_status_t check_nodes(check_t *c) {
    const ir_graph_t *graph = c->graph;
    bool *live = st_arena_array(c->arena, graph->nodes.n, sizeof *live);
    if (!live) return st_no_memory(graph->nodes.n, "the check of micro-batches");
    for (size_t o = 0; o < graph->outputs.n; o++)
        live[graph->values.data[graph->outputs.data[o].value].producer] = true;
    for (ir_node_t n = (ir_node_t)graph->nodes.n; n-- > 0;)
        for (uint32_t j = 0; live[n] && j < ir_node(graph, n)->n_inputs; j++)
            live[graph->values.data[ir_node(graph, n)->inputs[j]].producer] = true;
    for (ir_node_t n = 0; n < graph->nodes.n; n++)
        if (live[n] && ir_node(graph, n)->n_inputs) TRY(check_node(c, n));
    return ST_OK;
}

/* Cuts the inputs that carry the batch into its items; false: into one. */
static bool place_inputs(check_t *c) {
    int64_t granules = 0;
    for (int pass = 0; pass < 2; pass++)
        for (ir_node_t n = 0; n < c->graph->nodes.n; n++) {
            const ir_node_info_t *node = ir_node(c->graph, n);
            int64_t axis = node->op == IR_OP_INPUT ? ir_attr_int(node, "batch_axis") : -1;
            if (axis < 0) continue;
            int64_t extent = ir_value_type(c->graph, node->first_output)->dims[axis];
            if (extent < 2) return false;
            if (pass == 0 && (!granules || extent < granules)) granules = extent;
            if (pass == 1)
                c->at[node->first_output] =
                    IR_PLACE_SPLIT((int32_t)axis, extent % granules ? extent : granules);
        }
    return true;
}

st_status_t ad_micro_check(const ir_graph_t *body, bool allow_batch_norm) {
    st_arena_t arena = {0};
    check_t c = {body, NULL, allow_batch_norm, &arena};
    st_status_t status = ST_OK;
    c.at = st_arena_array(&arena, body->values.n, sizeof *c.at);
    if (!c.at)
        TRY_GOTO(st_no_memory(body->values.n * sizeof *c.at, "the check of micro-batches"), done);
    if (!place_inputs(&c)) goto done;
    TRY_GOTO(check_nodes(&c), done);
    for (size_t o = 0; o < body->outputs.n; o++) {
        ir_node_t producer = body->values.data[body->outputs.data[o].value].producer;
        bool items = o > 0 && ir_node(body, producer)->op == IR_OP_CONSTANT;
        if (c.at[body->outputs.data[o].value].kind == IR_PARTIAL || items) continue;
        TRY_GOTO(FAIL(ST_UNSUPPORTED,
                      "%s is no sum over the items of the batch, and would be counted once for "
                      "every micro-batch: leave out --accumulate",
                      ir_node_label(body, producer)),
                 done);
    }
done:
    st_arena_clear(&arena);
    return status;
}
