/* Storages (storage.h): the sources, then one walk in order; linear in the graph. */
#include "schedule/storage.h"

#include <string.h>

#include "ir/nest.h"

typedef struct analysis {
    const ir_graph_t *graph;
    sched_memory_t *memory;
    int64_t *last_use; /* [values]: position of the last reader, -1: none */
    ir_value_t *takes; /* [values]: state that the value is written over, IR_NONE */
    ir_node_t nest_of; /* the fused node that was asked about last … */
    nest_t *nest;      /* … and its nest; NULL: it has none */
} analysis_t;

void sched_memory_free(sched_memory_t *memory) {
    st_free(memory->storages);
    st_free(memory->storage_of);
    st_free(memory->update_in_place);
    *memory = (sched_memory_t){0};
}

static void find_last_uses(analysis_t *a) {
    const ir_graph_t *graph = a->graph;
    for (size_t v = 0; v < graph->values.n; v++) a->last_use[v] = -1;
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(graph, n);
        for (uint32_t j = 0; j < node->n_inputs; j++) a->last_use[node->inputs[j]] = n;
    }
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(graph, n);
        if (node->op == IR_OP_ALL_GATHER_START && a->last_use[node->first_output] >= 0) {
            int64_t wait = a->last_use[node->first_output], *use = &a->last_use[node->inputs[0]];
            if (*use < wait) *use = wait;
        }
        if (node->op == IR_OP_CONSTANT) a->last_use[node->first_output] = (int64_t)graph->nodes.n;
    }
    for (size_t o = 0; o < graph->outputs.n; o++)
        a->last_use[graph->outputs.data[o].value] = (int64_t)graph->nodes.n;
}

/* ---- writing over an input ---- */

static bool same_elements(const ir_type_t *a, const ir_type_t *b) {
    return ir_type_elements(a) == ir_type_elements(b) &&
           ir_dtype_bytes(a->dtype) == ir_dtype_bytes(b->dtype);
}

/* The nest of a fused node; NULL for any other. Neighbours in the walk ask for the same. */
static st_status_t look_at_nest(analysis_t *a, ir_node_t n) {
    const ir_node_info_t *node = ir_node(a->graph, n);
    const char *reason;
    if (a->nest_of == n) return ST_OK;
    nest_destroy(a->nest);
    a->nest = NULL;
    a->nest_of = n;
    if (node->op != IR_OP_FUSED) return ST_OK;
    return nest_build(ir_node_attr(node, "body")->graph, &a->nest, &reason);
}

/* Whether the op lets output k be written over input j element by element: by its row, or for a
 * fused node by its nest, which look_at_nest has found. */
static bool may_overwrite(const analysis_t *a, const ir_node_info_t *node, uint32_t k, uint32_t j) {
    const ir_op_def_t *def = ir_op_def(node->op);
    if (!same_elements(ir_value_type(a->graph, node->first_output + k),
                       ir_value_type(a->graph, node->inputs[j])))
        return false;
    if (a->nest) return nest_may_reuse(a->nest, k, j);
    return (def->flags & IR_ELEMENTWISE) || (k < sizeof def->reuse && def->reuse[k] == j + 1);
}

/* ---- updates ---- */

/* Value `v` may be written over state `s`: its node makes it, and no one reads s at or after that
 * node but the node itself, element by element. */
static bool can_take(const analysis_t *a, ir_value_t s, ir_value_t v, const ir_value_t *root) {
    const ir_graph_t *graph = a->graph;
    const ir_value_info_t *value = &graph->values.data[v];
    const ir_node_info_t *node = ir_node(graph, value->producer);
    uint32_t flags = ir_op_def(node->op)->flags;
    if ((flags & (IR_SOURCE | IR_VIEW | IR_COLLECTIVE)) || a->takes[v] != IR_NONE) return false;
    for (uint32_t j = 0; j < node->n_inputs; j++)
        if (root[node->inputs[j]] == s && !may_overwrite(a, node, value->index, j)) return false;
    return true;
}

/* Position of the last reader of each state through any view, updates of the state itself left out.
 */
static void state_readers(const analysis_t *a, const ir_value_t *root, int64_t *last) {
    const ir_graph_t *graph = a->graph;
    for (size_t v = 0; v < graph->values.n; v++) last[v] = -1;
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(graph, n);
        for (uint32_t j = node->op == IR_OP_UPDATE; j < node->n_inputs; j++)
            last[root[node->inputs[j]]] = n;
    }
    for (size_t o = 0; o < graph->outputs.n; o++)
        last[root[graph->outputs.data[o].value]] = (int64_t)graph->nodes.n;
}

static st_status_t find_updates(analysis_t *a) {
    const ir_graph_t *graph = a->graph;
    ir_value_t *root = st_calloc(graph->values.n, sizeof *root);
    int64_t *last_reader = st_calloc(graph->values.n, sizeof *last_reader);
    st_status_t status = ST_OK;
    if (!root || !last_reader)
        TRY_GOTO(st_no_memory(graph->values.n * sizeof *root, "the updates"), done);
    for (ir_value_t v = 0; v < graph->values.n; v++) {
        const ir_node_info_t *node = ir_value_producer(graph, v);
        root[v] = ir_op_def(node->op)->flags & IR_VIEW ? root[node->inputs[0]] : v;
    }
    state_readers(a, root, last_reader);
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(graph, n);
        if (node->op != IR_OP_UPDATE) continue;
        ir_value_t s = node->inputs[0], v = node->inputs[1];
        int64_t made = graph->values.data[v].producer;
        if (last_reader[s] > made) continue;
        TRY_GOTO(look_at_nest(a, (ir_node_t)made), done);
        if (!can_take(a, s, v, root)) continue;
        a->takes[v] = s;
        a->memory->update_in_place[n] = true;
    }
done:
    st_free(root);
    st_free(last_reader);
    return status;
}

/* ---- the walk ---- */

static void join(analysis_t *a, ir_value_t v, uint32_t storage) {
    a->memory->storage_of[v] = storage;
    sched_storage_t *s = &a->memory->storages[storage];
    if (s->end < a->last_use[v]) s->end = a->last_use[v];
}

static void open_storage(analysis_t *a, ir_value_t v, sched_kind_t kind, int64_t begin) {
    uint32_t storage = a->memory->n_storages++;
    a->memory->storages[storage] = (sched_storage_t){
        kind, begin, begin, (uint64_t)ir_type_bytes(ir_value_type(a->graph, v)), v};
    join(a, v, storage);
}

/* The storage of input j ends at node n and may be written to. */
static bool dies_at(const analysis_t *a, ir_value_t v, ir_node_t n) {
    const sched_storage_t *s = &a->memory->storages[a->memory->storage_of[v]];
    return s->kind != SCHED_STATE && s->end == (int64_t)n;
}

static void place_output(analysis_t *a, ir_node_t n, uint32_t k) {
    const ir_node_info_t *node = ir_node(a->graph, n);
    ir_value_t v = node->first_output + k;
    if (a->takes[v] != IR_NONE) {
        join(a, v, a->memory->storage_of[a->takes[v]]);
        return;
    }
    for (uint32_t j = 0; j < node->n_inputs; j++) {
        if (!dies_at(a, node->inputs[j], n) || !may_overwrite(a, node, k, j)) continue;
        uint32_t storage = a->memory->storage_of[node->inputs[j]];
        bool taken = false; /* by another output of this node */
        for (uint32_t i = 0; i < k; i++)
            taken |= a->memory->storage_of[node->first_output + i] == storage;
        if (taken) continue;
        join(a, v, storage);
        return;
    }
    open_storage(a, v, SCHED_WORK, n);
}

/* In-flight value k of an all-reduce: sums in place where the input dies here. */
static void place_in_flight(analysis_t *a, ir_node_t n, uint32_t k) {
    const ir_node_info_t *node = ir_node(a->graph, n);
    ir_value_t input = node->inputs[k];
    uint32_t storage = a->memory->storage_of[input];
    bool alone = true;
    for (uint32_t j = 0; j < node->n_inputs; j++)
        alone &= j == k || a->memory->storage_of[node->inputs[j]] != storage;
    if (alone && dies_at(a, input, n) && a->memory->storages[storage].begin >= 0) {
        a->memory->storages[storage].kind = SCHED_COMM;
        join(a, node->first_output + k, storage);
    } else {
        open_storage(a, node->first_output + k, SCHED_COMM, n);
    }
}

/* What is there before the step, wherever its node stands: a state may be named after the node that
 * makes its new value. */
static bool is_there_before(const ir_node_info_t *node) {
    return (ir_op_def(node->op)->flags & IR_STATE) || node->op == IR_OP_INPUT ||
           node->op == IR_OP_CONSTANT;
}

static void place_source(analysis_t *a, ir_node_t n) {
    const ir_node_info_t *node = ir_node(a->graph, n);
    if (!is_there_before(node)) return;
    if (ir_op_def(node->op)->flags & IR_STATE)
        open_storage(a, node->first_output, SCHED_STATE, 0);
    else
        open_storage(a, node->first_output, SCHED_WORK, -1);
}

static void place_node(analysis_t *a, ir_node_t n) {
    const ir_node_info_t *node = ir_node(a->graph, n);
    uint32_t flags = ir_op_def(node->op)->flags;
    if (is_there_before(node)) return;
    for (uint32_t k = 0; k < node->n_outputs; k++) {
        ir_value_t v = node->first_output + k;
        if ((flags & IR_VIEW) && k == 0)
            join(a, v, a->memory->storage_of[node->inputs[0]]);
        else if (node->op == IR_OP_ALL_REDUCE_START)
            place_in_flight(a, n, k);
        else if (node->op == IR_OP_ALL_GATHER_START)
            open_storage(a, v, SCHED_COMM, n);
        else if (flags & IR_COLLECTIVE) /* waits */
            join(a, v, a->memory->storage_of[node->inputs[k]]);
        else
            place_output(a, n, k);
    }
}

st_status_t sched_storages(const ir_graph_t *graph, sched_memory_t *out_memory) {
    *out_memory = (sched_memory_t){0};
    analysis_t a = {.graph = graph, .memory = out_memory, .nest_of = IR_NONE};
    size_t n = graph->values.n;
    st_status_t status = ST_OK;
    out_memory->storages = st_calloc(n, sizeof *out_memory->storages);
    out_memory->storage_of = st_calloc(n, sizeof *out_memory->storage_of);
    out_memory->update_in_place = st_calloc(graph->nodes.n, sizeof *out_memory->update_in_place);
    a.last_use = st_calloc(n, sizeof *a.last_use);
    a.takes = st_calloc(n, sizeof *a.takes);
    if (!out_memory->storages || !out_memory->storage_of || !out_memory->update_in_place ||
        !a.last_use || !a.takes)
        TRY_GOTO(st_no_memory(n * sizeof *out_memory->storages, "the storages"), done);
    for (size_t v = 0; v < n; v++) a.takes[v] = IR_NONE;
    find_last_uses(&a);
    TRY_GOTO(find_updates(&a), done);
    for (ir_node_t i = 0; i < graph->nodes.n; i++) place_source(&a, i);
    for (ir_node_t i = 0; i < graph->nodes.n; i++) {
        TRY_GOTO(look_at_nest(&a, i), done);
        place_node(&a, i);
    }
done:
    nest_destroy(a.nest);
    st_free(a.last_use);
    st_free(a.takes);
    if (status != ST_OK) sched_memory_free(out_memory);
    return status;
}
