/* repeat: a body run `trip` times, with carried state (a scan).
 *
 *   operands  carried × c | scanned × s, leading dim trip | captured × m
 *   body      (carry × c, slice × s, captured × m) → (next carry × c, piece × t)
 *   results   last carry × c | stacked × t, leading dim trip
 *
 *   for i in 0 … trip - 1 (reverse: trip - 1 … 0):
 *       carry, piece = body(carry, scanned[i], captured);  stacked[i] = piece
 *
 * The gradient is a repeat the other way round (src/autodiff/region.c); its rule wants the carries
 * at the begin of each iteration among the stacked results, which `save` adds. A random op in the
 * body must be told the iterations apart, by a part, step or seed that comes from what is carried
 * or scanned: the same numbers each time are never meant. */
#include <inttypes.h>
#include <stdio.h>

#include "ir/body.h"

static const ir_attr_spec_t attrs[] = {
    {"body", IR_ATTR_GRAPH, true, 0, NULL},    {"trip", IR_ATTR_INT, true, 0, NULL},
    {"carried", IR_ATTR_INT, false, 0, NULL},  {"scanned", IR_ATTR_INT, false, 0, NULL},
    {"reverse", IR_ATTR_BOOL, false, 0, NULL}, {0},
};

static uint32_t count_outputs(uint32_t n_inputs, const ir_attr_t *attrs_) {
    (void)n_inputs;
    return (uint32_t)attrs_[0].graph->outputs.n;
}

/* ---- shape ---- */

static st_status_t check_counts(const ir_op_ctx_t *ctx, const ir_graph_t *body) {
    int64_t trip = ir_ctx_int(ctx, "trip"), carried = ir_ctx_int(ctx, "carried");
    int64_t scanned = ir_ctx_int(ctx, "scanned");
    uint32_t n = ir_body_n_inputs(body);
    if (trip < 0) return FAIL(ST_INVALID, "trip is %" PRId64, trip);
    if (carried < 0 || scanned < 0 || carried > (int64_t)ctx->n_inputs ||
        scanned > (int64_t)ctx->n_inputs - carried)
        return FAIL(ST_INVALID, "%" PRId64 " carried and %" PRId64 " scanned of %u operands",
                    carried, scanned, ctx->n_inputs);
    if (n != ctx->n_inputs)
        return FAIL(ST_INVALID, "%u operands, the body has %u inputs", ctx->n_inputs, n);
    if (carried > (int64_t)ctx->n_outputs)
        return FAIL(ST_INVALID, "%" PRId64 " carried, the body has %u outputs", carried,
                    ctx->n_outputs);
    return ST_OK;
}

/* What the body sees of operand j. */
static st_status_t seen_type(const ir_op_ctx_t *ctx, uint32_t j, ir_type_t *out) {
    int64_t carried = ir_ctx_int(ctx, "carried"), scanned = ir_ctx_int(ctx, "scanned");
    char text[IR_TYPE_TEXT_BYTES];
    *out = ctx->in[j];
    if (j < carried || j >= carried + scanned) return ST_OK;
    if (out->rank == 0 || out->dims[0] != ir_ctx_int(ctx, "trip"))
        return FAIL(ST_INVALID, "operand %u is %s: what is scanned needs %" PRId64 " slices", j,
                    ir_type_text(out, text, sizeof text), ir_ctx_int(ctx, "trip"));
    *out = ir_type_drop_first(out);
    return ST_OK;
}

/* Marks what depends on the iteration; FAILs on a random node that does not. */
static st_status_t check_random(const ir_graph_t *body, uint32_t n_varying, bool *varies) {
    uint32_t j = 0;
    for (ir_node_t i = 0; i < body->nodes.n; i++) {
        const ir_node_info_t *node = ir_node(body, i);
        bool any = node->op == IR_OP_INPUT && j++ < n_varying, told = false;
        for (uint32_t k = 0; k < node->n_inputs; k++) {
            bool input = varies[node->inputs[k]];
            any |= input;
            told |= input && !ir_dtype_is_float(ir_value_type(body, node->inputs[k])->dtype);
        }
        if (ir_node_is_random(node) && !told)
            return FAIL(ST_INVALID,
                        "%s draws the same numbers in every iteration: derive its part or step "
                        "from what is carried or scanned",
                        ir_node_label(body, i));
        for (uint32_t k = 0; k < node->n_outputs; k++) varies[node->first_output + k] = any;
    }
    return ST_OK;
}

static st_status_t check_body(const ir_op_ctx_t *ctx, const ir_graph_t *body) {
    TRY(ir_body_check(body));
    if (!ir_body_is_random(body) || ir_ctx_int(ctx, "trip") < 2) return ST_OK;
    bool *varies = st_calloc(body->values.n, sizeof *varies);
    if (!varies) return st_no_memory(body->values.n, "a body's check");
    st_status_t status = check_random(
        body, (uint32_t)(ir_ctx_int(ctx, "carried") + ir_ctx_int(ctx, "scanned")), varies);
    st_free(varies);
    return status;
}

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    const ir_graph_t *body = ir_ctx_attr(ctx, "body")->graph;
    char given[IR_TYPE_TEXT_BYTES], made[IR_TYPE_TEXT_BYTES];
    const int64_t carried = ir_ctx_int(ctx, "carried");
    TRY(check_counts(ctx, body));
    TRY(check_body(ctx, body));
    for (uint32_t j = 0, i = ir_body_next_input(body, 0); j < ctx->n_inputs;
         j++, i = ir_body_next_input(body, i + 1)) {
        ir_type_t seen;
        TRY(seen_type(ctx, j, &seen));
        TRY(ir_body_check_operand(body, i, j, &seen));
    }
    for (uint32_t k = 0; k < ctx->n_outputs; k++) {
        const ir_type_t *type = ir_body_output_type(body, k);
        if (k >= carried) {
            if (type->rank == IR_MAX_RANK)
                return FAIL(ST_INVALID, "the body's output '%s' has rank %d: no room for a stack",
                            body->outputs.data[k].name, IR_MAX_RANK);
            out[k] = ir_type_add_first(type, ir_ctx_int(ctx, "trip"));
            continue;
        }
        if (!ir_type_equal(type, &ctx->in[k]))
            return FAIL(ST_INVALID, "operand %u is carried as %s, the body's output '%s' is %s", k,
                        ir_type_text(&ctx->in[k], given, sizeof given), body->outputs.data[k].name,
                        ir_type_text(type, made, sizeof made));
        out[k] = *type;
    }
    return ST_OK;
}

/* ---- the form for the gradient ---- */

static bool is_saved(const ir_graph_t *body, uint32_t carried, ir_value_t carry) {
    for (size_t k = carried; k < body->outputs.n; k++)
        if (body->outputs.data[k].value == carry) return true;
    return false;
}

static bool saves(const ir_attr_t *attrs_) {
    const ir_graph_t *body = attrs_[0].graph;
    uint32_t carried = (uint32_t)attrs_[2].i, i = 0;
    for (uint32_t j = 0; j < carried; j++, i++) {
        i = ir_body_next_input(body, i);
        if (ir_value_type(body, ir_node(body, i)->first_output)->rank < IR_MAX_RANK &&
            !is_saved(body, carried, ir_node(body, i)->first_output))
            return false;
    }
    return true;
}

/* The same node with every carry among the stacked results, after those that are there. */
static st_status_t save(ir_graph_t *graph, const ir_op_ctx_t *ctx, const ir_value_t *inputs,
                        ir_value_t *out) {
    const ir_graph_t *from = ctx->attrs[0].graph;
    uint32_t carried = (uint32_t)ctx->attrs[2].i, i = 0;
    ir_graph_t *body;
    ir_value_t first = IR_NONE;
    TRY(ir_graph_copy(from, &body));
    st_status_t status = ST_OK;
    for (uint32_t j = 0; j < carried; j++, i++) {
        i = ir_body_next_input(from, i);
        ir_value_t carry = ir_node(from, i)->first_output;
        if (ir_value_type(from, carry)->rank < IR_MAX_RANK && !is_saved(from, carried, carry))
            TRY_GOTO(ir_body_add_output(body, carry), done);
    }
    ir_arg_t args[5];
    for (uint32_t a = 0; a < 5; a++) args[a] = (ir_arg_t){attrs[a].key, ctx->attrs[a]};
    args[0].value.graph = body;
    TRY_GOTO(ir_graph_add(graph, IR_OP_REPEAT, ctx->name, ctx->n_inputs, inputs, 5, args, &first),
             done);
    for (uint32_t k = 0; k < ctx->n_outputs; k++) out[k] = first + k;
done:
    ir_graph_destroy(body);
    return status;
}

const ir_op_def_t ir_op_repeat = {
    .op = IR_OP_REPEAT,
    .name = "repeat",
    .min_inputs = 0,
    .max_inputs = IR_VARIADIC,
    .n_outputs = IR_VARIADIC,
    .count_outputs = count_outputs,
    .flags = IR_REGION,
    .attrs = attrs,
    .shape = shape,
    .is_gradient_form = saves,
    .gradient_form = save,
    .strategies = ir_strategies_none,
};
