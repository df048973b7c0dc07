/* Reverse mode: one sweep over the nodes from the loss backwards.
 *
 *   need[v]   v depends on one of the wanted values through floats (forward sweep); only such
 *             inputs get gradients
 *   grad[v]   sum of the gradient's contributions so far, IR_NONE where none has arrived
 *
 * Array order is topological, so when the sweep reaches a node all users of its outputs are done
 * and its gradients are complete. Each node and edge is touched a fixed number of times:
 * O(nodes + edges).
 *
 * A node without a rule does not end the sweep: it hands zeros on, so that nodes behind it are
 * examined too and one error can list them all. The zeros never get out, since the graph is cut
 * back. */
#include "autodiff/gradient.h"

#include <stdio.h>
#include <string.h>

#include "autodiff/region.h"
#include "ir/build.h"

typedef struct sweep {
    ir_graph_t *graph;
    bool *need;
    ir_value_t *grad;
    size_t n_values; /* of the forward part: length of both arrays */
    /* scratch as wide as the widest node */
    ir_value_t *dout, *din;
    bool *want;
    /* nodes without a rule */
    char missing[1600];
    size_t missing_used;
    uint32_t n_missing, n_listed;
} sweep_t;

static st_status_t sweep_open(sweep_t *s, ir_graph_t *graph) {
    uint32_t widest = 1;
    for (size_t i = 0; i < graph->nodes.n; i++) {
        const ir_node_info_t *node = &graph->nodes.data[i];
        if (node->n_inputs > widest) widest = node->n_inputs;
        if (node->n_outputs > widest) widest = node->n_outputs;
    }
    s->graph = graph;
    s->n_values = graph->values.n;
    s->need = st_calloc(s->n_values, sizeof *s->need);
    s->grad = st_calloc(s->n_values, sizeof *s->grad);
    s->dout = st_calloc(widest, sizeof *s->dout);
    s->din = st_calloc(widest, sizeof *s->din);
    s->want = st_calloc(widest, sizeof *s->want);
    if (!s->need || !s->grad || !s->dout || !s->din || !s->want)
        return st_no_memory(s->n_values * (sizeof *s->need + sizeof *s->grad), "the gradient");
    for (size_t v = 0; v < s->n_values; v++) s->grad[v] = IR_NONE;
    return ST_OK;
}

static void sweep_close(sweep_t *s) {
    st_free(s->need);
    st_free(s->grad);
    st_free(s->dout);
    st_free(s->din);
    st_free(s->want);
}

static bool is_float(const ir_graph_t *graph, ir_value_t value) {
    return ir_dtype_is_float(ir_value_type(graph, value)->dtype);
}

static void mark_needed(sweep_t *s, size_t n_wrt, const ir_value_t *wrt) {
    for (size_t i = 0; i < n_wrt; i++) s->need[wrt[i]] = true;
    for (size_t i = 0; i < s->graph->nodes.n; i++) {
        const ir_node_info_t *node = &s->graph->nodes.data[i];
        bool any = false;
        for (uint32_t j = 0; j < node->n_inputs; j++) any |= s->need[node->inputs[j]];
        for (uint32_t k = 0; any && k < node->n_outputs; k++)
            if (is_float(s->graph, node->first_output + k)) s->need[node->first_output + k] = true;
    }
}

/* Notes a node that cannot be differentiated. */
static void note_missing(sweep_t *s, ir_node_t node, const char *reason) {
    s->n_missing++;
    size_t room = sizeof s->missing - s->missing_used;
    int length = snprintf(s->missing + s->missing_used, room, "%s%s: %s",
                          s->missing_used ? "; " : "", ir_node_label(s->graph, node), reason);
    if (length > 0 && (size_t)length < room) {
        s->missing_used += (size_t)length;
        s->n_listed++;
    } else {
        s->missing[s->missing_used] = '\0';
    }
}

/* Stand-in gradients behind a node without a rule, so that the sweep goes on. */
static st_status_t pass_zeros(sweep_t *s, const ir_node_info_t *node) {
    ir_build_t b = {.graph = s->graph};
    for (uint32_t j = 0; j < node->n_inputs; j++)
        s->din[j] =
            s->want[j] ? ir_b_splat(&b, *ir_value_type(s->graph, node->inputs[j]), 0) : IR_NONE;
    return b.status;
}

/* Adds the node's input gradients to those of its input values. */
static st_status_t accumulate(sweep_t *s, ir_node_t node, const ir_node_info_t *info) {
    ir_build_t b = {.graph = s->graph};
    for (uint32_t j = 0; j < info->n_inputs; j++) {
        ir_value_t value = info->inputs[j], part = s->din[j];
        if (!s->want[j] || part == IR_NONE) continue;
        const ir_type_t *type = ir_value_type(s->graph, value);
        if (!ir_type_equal(type, ir_value_type(s->graph, part))) {
            char given[IR_TYPE_TEXT_BYTES], expected[IR_TYPE_TEXT_BYTES];
            return FAIL(ST_INTERNAL, "the gradient rule of %s gives %s for input %u, not %s",
                        ir_node_label(s->graph, node),
                        ir_type_text(ir_value_type(s->graph, part), given, sizeof given), j,
                        ir_type_text(type, expected, sizeof expected));
        }
        s->grad[value] =
            s->grad[value] == IR_NONE ? part : ir_b_binary(&b, IR_OP_ADD, s->grad[value], part);
    }
    return b.status;
}

static st_status_t differentiate(sweep_t *s, ir_node_t node) {
    const ir_node_info_t info = *ir_node(s->graph, node);
    const ir_op_def_t *def = ir_op_def(info.op);
    bool arrives = false, wanted = false;
    for (uint32_t k = 0; k < info.n_outputs; k++) {
        s->dout[k] = s->grad[info.first_output + k];
        arrives |= s->dout[k] != IR_NONE;
    }
    for (uint32_t j = 0; j < info.n_inputs; j++) {
        s->din[j] = IR_NONE;
        s->want[j] = s->need[info.inputs[j]] && is_float(s->graph, info.inputs[j]);
        wanted |= s->want[j];
    }
    if (!arrives || !wanted) return ST_OK;
    ad_rule_t rule = def->gradient ? def->gradient : ad_region_rule(info.op);
    if (!rule) {
        if (def->no_gradient && strcmp(def->no_gradient, "zero") == 0) return ST_OK;
        note_missing(s, node, def->no_gradient ? def->no_gradient : "no gradient rule");
        TRY(pass_zeros(s, &info));
        return accumulate(s, node, &info);
    }
    st_status_t status = rule(s->graph, node, s->dout, s->want, s->din);
    if (status == ST_UNSUPPORTED) {
        note_missing(s, node, st_last_error());
        TRY(pass_zeros(s, &info));
    } else if (status != ST_OK) {
        return st_error_context(status, "gradient of %s", ir_node_label(s->graph, node));
    }
    return accumulate(s, node, &info);
}

static st_status_t check_arguments(const ir_graph_t *graph, ir_value_t loss, size_t n_wrt,
                                   const ir_value_t *wrt) {
    char text[IR_TYPE_TEXT_BYTES];
    if (loss >= graph->values.n)
        return FAIL(ST_INVALID, "the loss is value %u, which does not exist", loss);
    const ir_type_t *type = ir_value_type(graph, loss);
    if (!ir_dtype_is_float(type->dtype) || type->rank != 0)
        return FAIL(ST_INVALID, "the loss is %s, a float scalar is needed: reduce it to one number",
                    ir_type_text(type, text, sizeof text));
    for (size_t i = 0; i < n_wrt; i++) {
        if (wrt[i] >= graph->values.n)
            return FAIL(ST_INVALID, "value %u to differentiate by does not exist", wrt[i]);
        if (!is_float(graph, wrt[i]))
            return FAIL(ST_INVALID, "%s is %s, only floats can be differentiated by",
                        ir_node_label(graph, graph->values.data[wrt[i]].producer),
                        ir_type_text(ir_value_type(graph, wrt[i]), text, sizeof text));
    }
    return ST_OK;
}

/* Sweeps back over the nodes that are there. */
static st_status_t sweep_back(sweep_t *s, size_t n, const ir_value_t *values,
                              const ir_value_t *seeds, size_t n_wrt, const ir_value_t *wrt,
                              ir_value_t *out_grads) {
    ir_build_t b = {.graph = s->graph};
    ir_node_t last = 0;
    mark_needed(s, n_wrt, wrt);
    for (size_t i = 0; i < n; i++) {
        if (seeds[i] == IR_NONE) continue;
        ir_value_t *grad = &s->grad[values[i]];
        ir_node_t producer = s->graph->values.data[values[i]].producer;
        *grad = *grad == IR_NONE ? seeds[i] : ir_b_binary(&b, IR_OP_ADD, *grad, seeds[i]);
        if (producer > last) last = producer;
    }
    TRY(b.status);
    for (ir_node_t i = last + 1; i-- > 0;) TRY(differentiate(s, i));
    if (s->n_missing)
        return FAIL(ST_UNSUPPORTED,
                    "%u node%s on the way to the loss cannot be differentiated: %s%s", s->n_missing,
                    s->n_missing == 1 ? "" : "s", s->missing,
                    s->n_listed < s->n_missing ? "; and others" : "");
    for (size_t i = 0; i < n_wrt; i++) out_grads[i] = s->grad[wrt[i]];
    return ST_OK;
}

st_status_t ad_pullback(ir_graph_t *graph, size_t n, const ir_value_t *values,
                        const ir_value_t *seeds, size_t n_wrt, const ir_value_t *wrt,
                        ir_value_t *out_grads) {
    for (size_t i = 0; i < n_wrt; i++) out_grads[i] = IR_NONE;
    sweep_t s = {0};
    st_status_t status = sweep_open(&s, graph);
    if (status == ST_OK) status = sweep_back(&s, n, values, seeds, n_wrt, wrt, out_grads);
    sweep_close(&s);
    return status;
}

st_status_t ad_gradient(ir_graph_t *graph, ir_value_t loss, size_t n_wrt, const ir_value_t *wrt,
                        ir_value_t *out_grads) {
    return ad_gradient_scaled(graph, loss, IR_NONE, n_wrt, wrt, out_grads);
}

st_status_t ad_gradient_scaled(ir_graph_t *graph, ir_value_t loss, ir_value_t seed, size_t n_wrt,
                               const ir_value_t *wrt, ir_value_t *out_grads) {
    for (size_t i = 0; i < n_wrt; i++) out_grads[i] = IR_NONE;
    TRY(check_arguments(graph, loss, n_wrt, wrt));
    const ir_phase_t phase = graph->phase;
    const size_t n_nodes = graph->nodes.n, n_values = graph->values.n;
    st_status_t status = ST_OK;
    sweep_t s = {0};
    TRY_GOTO(sweep_open(&s, graph), fail);
    graph->phase = IR_PHASE_BACKWARD;
    ir_build_t b = {.graph = graph};
    if (seed == IR_NONE) seed = ir_b_scalar(&b, ir_value_type(graph, loss)->dtype, 1);
    TRY_GOTO(b.status, fail);
    TRY_GOTO(sweep_back(&s, 1, &loss, &seed, n_wrt, wrt, out_grads), fail);
    for (size_t i = 0; i < n_wrt; i++) {
        if (out_grads[i] == IR_NONE)
            out_grads[i] = ir_b_splat(&b, *ir_value_type(graph, wrt[i]), 0);
    }
    TRY_GOTO(b.status, fail);
    graph->phase = phase;
    sweep_close(&s);
    return ST_OK;
fail:
    graph->phase = phase;
    graph->nodes.n = n_nodes;
    graph->values.n = n_values;
    for (size_t i = 0; i < n_wrt; i++) out_grads[i] = IR_NONE;
    sweep_close(&s);
    return status;
}
