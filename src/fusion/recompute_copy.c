/* Copies of what runs again (recompute_model.h). Backward nodes read copies where there are any;
 * what they need is settled on demand, each value once. Linear. */
#include "fusion/recompute_model.h"

typedef struct copying {
    const remat_model_t *model;
    const ir_graph_t *from;
    ir_graph_t *to;
    const bool *again;
    uint32_t slot;    /* of the reader at hand, for which copies are made */
    ir_value_t *map;  /* [values]: of the forward pass, and of what is not copied */
    ir_value_t *late; /* [values]: what backward nodes read; IR_NONE: not known yet */
    ST_VEC(ir_node_t) stack;
} copying_t;

/* Whether backward nodes read a copy of the node, given that what it reads has been settled. */
static bool runs_again(const copying_t *c, ir_node_t n) {
    if (!c->model->nodes[n].view) return c->again[n];
    ir_value_t input = ir_node(c->from, n)->inputs[0];
    return c->model->nodes[n].used && c->late[input] != c->map[input];
}

static bool is_settled(const copying_t *c, ir_node_t n) {
    return c->late[ir_node(c->from, n)->first_output] != IR_NONE;
}

/* Settles what a node reads, then the node: without recursion, chains may be long. */
static st_status_t settle(copying_t *c, ir_node_t wanted) {
    TRY(ST_VEC_PUSH(&c->stack, wanted));
    while (c->stack.n) {
        const ir_node_t n = c->stack.data[c->stack.n - 1];
        const ir_node_info_t *node = ir_node(c->from, n);
        const size_t before = c->stack.n;
        const bool may = c->again[n] || (c->model->nodes[n].view && c->model->nodes[n].used);
        for (uint32_t j = 0; may && j < node->n_inputs && !is_settled(c, n); j++) {
            ir_node_t producer = c->from->values.data[node->inputs[j]].producer;
            if (!is_settled(c, producer)) TRY(ST_VEC_PUSH(&c->stack, producer));
        }
        if (c->stack.n > before) continue;
        c->stack.n--;
        if (is_settled(c, n)) continue;
        if (may && runs_again(c, n)) {
            TRY(ir_graph_clone_node(c->to, c->from, n, NULL, c->late));
            c->to->nodes.data[c->to->nodes.n - 1].phase = IR_PHASE_BACKWARD;
            c->to->nodes.data[c->to->nodes.n - 1].again = true;
            c->to->nodes.data[c->to->nodes.n - 1].slot = c->slot;
        }
        for (uint32_t k = 0; k < node->n_outputs; k++) {
            ir_value_t v = node->first_output + k;
            const remat_value_t *value = &c->model->values[v];
            if (c->late[v] == IR_NONE || (value->small && value->needed)) c->late[v] = c->map[v];
        }
    }
    return ST_OK;
}

/* A backward node reads copies where there are any. */
static st_status_t copy_backward(copying_t *c, ir_node_t n) {
    const ir_node_info_t *node = ir_node(c->from, n);
    c->slot = node->slot;
    for (uint32_t j = 0; j < node->n_inputs; j++)
        TRY(settle(c, c->from->values.data[node->inputs[j]].producer));
    TRY(ir_graph_clone_node(c->to, c->from, n, NULL, c->late));
    for (uint32_t k = 0; k < node->n_outputs; k++)
        c->map[node->first_output + k] = c->late[node->first_output + k];
    return ST_OK;
}

st_status_t remat_copy(const remat_model_t *model, const bool *again, const ir_graph_t *graph,
                       ir_graph_t **out_graph) {
    *out_graph = NULL;
    st_status_t status = ST_OK;
    const size_t n_values = graph->values.n;
    copying_t c = {.model = model, .from = graph, .again = again};
    c.map = st_calloc(2 * n_values, sizeof *c.map);
    if (!c.map) TRY_GOTO(st_no_memory(n_values * sizeof *c.map, "a graph copy"), done);
    c.late = c.map + n_values;
    for (size_t v = 0; v < 2 * n_values; v++) c.map[v] = IR_NONE;
    TRY_GOTO(ir_graph_create_like(graph, &c.to), done);
    for (ir_node_t n = 0; n < graph->nodes.n; n++)
        TRY_GOTO(model->nodes[n].backward ? copy_backward(&c, n)
                                          : ir_graph_clone_node(c.to, graph, n, NULL, c.map),
                 done);
    for (size_t o = 0; o < graph->outputs.n; o++)
        TRY_GOTO(ir_graph_append_output(c.to, graph->outputs.data[o].name,
                                        c.map[graph->outputs.data[o].value]),
                 done);
    *out_graph = c.to;
    c.to = NULL;
done:
    ir_graph_destroy(c.to);
    ST_VEC_FREE(&c.stack);
    st_free(c.map);
    return status;
}
