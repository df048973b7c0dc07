/* Casts that only ask (asking.h). */
#include "fusion/asking.h"

#include "base/memory.h"
#include "ir/op.h"

enum { MOST_OPERANDS = 64 }; /* of a node; what others ask for is not kept */

bool asking_is_cast(const ir_graph_t *graph, const ir_node_info_t *node) {
    return node->op == IR_OP_CAST && ir_value_type(graph, node->inputs[0])->dtype == IR_F32 &&
           ir_value_type(graph, node->first_output)->dtype == IR_F32;
}

static st_status_t leave_out(void *context, ir_graph_t *to, const ir_graph_t *from, ir_node_t n,
                             ir_value_t *map) {
    asking_t *asking = context;
    const ir_node_info_t *node = ir_node(from, n);
    if (asking_is_cast(from, node)) {
        map[node->first_output] = map[node->inputs[0]];
        return ST_OK;
    }
    TRY(ir_graph_clone_node(to, from, n, NULL, map));
    for (uint32_t j = 0; j < node->n_inputs && j < MOST_OPERANDS; j++)
        if (asking_is_cast(from, ir_value_producer(from, node->inputs[j])))
            asking->operands[to->nodes.n - 1] |= (uint64_t)1 << j;
    return ST_OK;
}

st_status_t asking_open(const ir_graph_t *graph, asking_t *out) {
    ir_node_t n = 0;
    *out = (asking_t){.graph = graph};
    while (n < graph->nodes.n && !asking_is_cast(graph, ir_node(graph, n))) n++;
    if (n == graph->nodes.n) return ST_OK;
    out->operands = st_calloc(graph->nodes.n, sizeof *out->operands);
    out->made = st_calloc(graph->values.n, sizeof *out->made);
    if (!out->operands || !out->made)
        return st_no_memory(graph->values.n * sizeof *out->made, "recognition");
    for (size_t v = 0; v < graph->values.n; v++) out->made[v] = IR_NONE;
    TRY(ir_graph_rewrite(graph, NULL, leave_out, out, &out->owned));
    out->graph = out->owned;
    return ST_OK;
}

void asking_close(asking_t *asking) {
    ir_graph_destroy(asking->owned);
    st_free(asking->operands);
    st_free(asking->made);
    *asking = (asking_t){0};
}

st_status_t asking_clone(asking_t *asking, ir_graph_t *to, ir_node_t n, ir_value_t *map) {
    const ir_node_info_t *node = ir_node(asking->graph, n);
    const uint64_t asked = asking->operands ? asking->operands[n] : 0;
    ir_value_t plain[MOST_OPERANDS];
    for (uint32_t j = 0; j < MOST_OPERANDS && asked >> j; j++) {
        const ir_value_t v = node->inputs[j];
        plain[j] = map[v];
        if (!(asked >> j & 1)) continue;
        if (asking->made[v] == IR_NONE)
            TRY(ir_graph_add(to, IR_OP_CAST, NULL, 1, &map[v], 1,
                             (ir_arg_t[]){IR_ARG_DTYPE("dtype", IR_F32)}, &asking->made[v]));
        map[v] = asking->made[v];
    }
    const st_status_t status = ir_graph_clone_node(to, asking->graph, n, NULL, map);
    for (uint32_t j = MOST_OPERANDS; j-- > 0;)
        if (asked >> j & 1) map[node->inputs[j]] = plain[j];
    return status;
}
