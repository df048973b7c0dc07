/* Copies of cheap producers (copies.h). A chain of marked nodes is copied as a whole and has no
 * more than MAX_CHAIN of them, so the time is linear in the graph. */
#include "fusion/copies.h"

#include "ir/op.h"

enum { MAX_CHAIN = 4 };

void copies_close(copies_t *copies) {
    ir_graph_destroy(copies->graph);
    st_free(copies->origin);
    *copies = (copies_t){0};
}

bool copies_is_splat(const ir_graph_t *graph, const ir_node_info_t *constant) {
    const ir_type_t *type = ir_value_type(graph, constant->first_output);
    return ir_node_attr(constant, "data")->data.bytes <= ir_dtype_bytes(type->dtype);
}

/* Operands together no larger than the one result. */
static bool grows(const ir_graph_t *graph, const ir_node_info_t *node) {
    uint64_t in = 0;
    for (uint32_t j = 0; j < node->n_inputs; j++)
        in += ir_type_bytes(ir_value_type(graph, node->inputs[j]));
    return node->n_outputs == 1 && in <= ir_type_bytes(ir_value_type(graph, node->first_output));
}

static bool is_cheap(const ir_graph_t *graph, const ir_node_info_t *node) {
    static const ir_op_t ops[] = {IR_OP_BROADCAST, IR_OP_RESHAPE, IR_OP_CAST};
    if (node->op == IR_OP_CONSTANT) return copies_is_splat(graph, node);
    if (node->op == IR_OP_IOTA) return true;
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++)
        if (node->op == ops[i]) return grows(graph, node);
    return false;
}

void copies_mark(const ir_graph_t *graph, uint8_t *out_chain) {
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(graph, n);
        uint8_t before = 0;
        if (node->n_inputs) before = out_chain[graph->values.data[node->inputs[0]].producer];
        out_chain[n] = is_cheap(graph, node) && before < MAX_CHAIN ? (uint8_t)(before + 1) : 0;
    }
}

typedef struct making {
    const ir_graph_t *from;
    const uint8_t *chain;
    copies_t *copies;
    ir_value_t *map; /* [values]: what the node at hand reads */
    ir_value_t
        *shared;       /* [values]: of marked nodes, what all read that have no copy of their own */
    ir_node_t *reader; /* [values]: the last node that got an own copy, plus one */
    size_t cap_origin;
} making_t;

/* In the slot of `reader`, unless that is none. */
static st_status_t clone(making_t *m, ir_node_t node, ir_node_t reader) {
    copies_t *copies = m->copies;
    TRY(ir_graph_clone_node(copies->graph, m->from, node, NULL, m->map));
    size_t n = copies->graph->nodes.n;
    if (reader != IR_NONE) copies->graph->nodes.data[n - 1].slot = ir_node(m->from, reader)->slot;
    TRY(st_vec_reserve((void **)&copies->origin, &m->cap_origin, n, sizeof *copies->origin));
    copies->origin[n - 1] = node;
    return ST_OK;
}

/* Sets map[v] to what `reader` reads for the value; IR_NONE: it shares with others. */
static st_status_t provide(making_t *m, ir_value_t v, ir_node_t reader) {
    ir_node_t producer = m->from->values.data[v].producer;
    const ir_node_info_t *node = ir_node(m->from, producer);
    bool own = reader != IR_NONE;
    if (!m->chain[producer] || (own && m->reader[v] == reader + 1)) return ST_OK;
    if (!own && m->shared[v] != IR_NONE) {
        m->map[v] = m->shared[v];
        return ST_OK;
    }
    if (node->n_inputs) TRY(provide(m, node->inputs[0], reader));
    TRY(clone(m, producer, reader));
    if (own)
        m->reader[v] = reader + 1;
    else
        m->shared[v] = m->map[v];
    return ST_OK;
}

static st_status_t make_all(making_t *m, const bool *fusable) {
    const ir_graph_t *from = m->from;
    for (ir_node_t n = 0; n < from->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(from, n);
        if (m->chain[n]) continue;
        for (uint32_t j = 0; j < node->n_inputs; j++)
            TRY(provide(m, node->inputs[j], fusable[n] ? n : IR_NONE));
        TRY(clone(m, n, IR_NONE));
    }
    for (size_t o = 0; o < from->outputs.n; o++) {
        const ir_output_t *output = &from->outputs.data[o];
        TRY(provide(m, output->value, IR_NONE));
        TRY(ir_graph_append_output(m->copies->graph, output->name, m->map[output->value]));
    }
    return ST_OK;
}

st_status_t copies_make(const ir_graph_t *graph, const uint8_t *chain, const bool *fusable,
                        copies_t *out_copies) {
    making_t m = {.from = graph, .chain = chain, .copies = out_copies};
    size_t n = graph->values.n;
    st_status_t status = ST_OK;
    *out_copies = (copies_t){0};
    m.map = st_calloc(n, sizeof *m.map);
    m.shared = st_calloc(n, sizeof *m.shared);
    m.reader = st_calloc(n, sizeof *m.reader);
    if (!m.map || !m.shared || !m.reader)
        TRY_GOTO(st_no_memory(n * sizeof *m.map, "copies of cheap nodes"), done);
    for (size_t v = 0; v < n; v++) m.shared[v] = IR_NONE;
    TRY_GOTO(ir_graph_create_like(graph, &out_copies->graph), done);
    TRY_GOTO(make_all(&m, fusable), done);
done:
    st_free(m.map);
    st_free(m.shared);
    st_free(m.reader);
    if (status != ST_OK) copies_close(out_copies);
    return status;
}
