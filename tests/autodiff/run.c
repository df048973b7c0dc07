/* The interpreter of run.h. */
#include "autodiff/run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

void run_ok(st_status_t status, const char *call, int line) {
    if (status != ST_OK) fail_msg("line %d: %s: %s", line, call, st_last_error());
}

void run_fails(st_status_t given, st_status_t status, const char *part, int line) {
    if (given != status || !strstr(st_last_error(), part))
        fail_msg("line %d: status %d, message '%s'; expected status %d and '%s'", line, (int)given,
                 given == ST_OK ? "" : st_last_error(), (int)status, part);
}

st_status_t run_reference(const kern_problem_t *problem, const void *const *in, void *const *out) {
    const kern_impl_t *impl;
    st_status_t status = kern_choose("cpu", problem, true, &impl);
    return status == ST_OK ? kern_run_impl(impl, problem, 1, in, out) : status;
}

void run_open(run_t *run, const ir_graph_t *graph) {
    *run = (run_t){graph, calloc(graph->values.n + 1, sizeof *run->data)};
    for (size_t v = 0; v < graph->values.n; v++)
        run->data[v] = calloc(1, ir_type_bytes(&graph->values.data[v].type) + 1);
}

void run_close(run_t *run) {
    for (size_t v = 0; v < run->graph->values.n; v++) free(run->data[v]);
    free(run->data);
}

void run_nodes(run_t *run, ir_node_t begin, ir_node_t end) {
    for (ir_node_t i = begin; i < end; i++) {
        const ir_node_info_t *node = ir_node(run->graph, i);
        if (node->op == IR_OP_INPUT || ir_op_def(node->op)->flags & IR_STATE) continue;
        if (node->n_outputs == 0) continue;
        ir_type_t *in = calloc(node->n_inputs + 1, sizeof *in);
        ir_type_t *out = calloc(node->n_outputs, sizeof *out);
        const void **in_data = calloc(node->n_inputs + 1, sizeof *in_data);
        for (uint32_t j = 0; j < node->n_inputs; j++) {
            in[j] = *ir_value_type(run->graph, node->inputs[j]);
            in_data[j] = run->data[node->inputs[j]];
        }
        for (uint32_t k = 0; k < node->n_outputs; k++)
            out[k] = *ir_value_type(run->graph, node->first_output + k);
        kern_problem_t problem = {node->op, node->n_inputs, node->n_outputs, in,
                                  out,      node->attrs,    node->name};
        st_status_t status = run_reference(&problem, in_data, run->data + node->first_output);
        if (status != ST_OK) fail_msg("%s: %s", ir_node_label(run->graph, i), st_last_error());
        free(in);
        free(out);
        free(in_data);
    }
}

void run_updates(run_t *run) {
    for (size_t i = 0; i < run->graph->nodes.n; i++) {
        const ir_node_info_t *node = &run->graph->nodes.data[i];
        if (node->op == IR_OP_UPDATE)
            memcpy(run->data[node->inputs[0]], run->data[node->inputs[1]],
                   ir_type_bytes(ir_value_type(run->graph, node->inputs[0])));
    }
}

void *run_output(run_t *run, const char *name) {
    ir_value_t value = ir_graph_find_output(run->graph, name);
    if (value == IR_NONE) fail_msg("there is no output '%s'", name);
    return run->data[value];
}

void *run_state(run_t *run, const char *name) {
    ir_node_t node = ir_graph_find(run->graph, name);
    if (node == IR_NONE) fail_msg("there is no input or state '%s'", name);
    return run->data[ir_node(run->graph, node)->first_output];
}
