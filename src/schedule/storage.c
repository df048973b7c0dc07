/* Storages (storage.h): the sources, then one walk in order; linear in the graph. */
#include "schedule/storage.h"

#include <string.h>

#include "schedule/overwrite.h"

typedef struct analysis {
    const ir_graph_t *graph;
    sched_memory_t *memory;
    int64_t *last_use; /* [values]: position of the last reader, -1: none */
    ir_value_t *takes; /* [values]: state that the value is written over, IR_NONE */
    sched_overwrite_t overwrite;
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
        for (uint32_t j = 0; ir_start_reads_input(ir_op_def(node->op)) && j < node->n_inputs; j++) {
            int64_t wait = a->last_use[node->first_output], *use = &a->last_use[node->inputs[j]];
            if (*use < wait) *use = wait;
        }
        if (ir_op_is_lasting(node->op)) a->last_use[node->first_output] = (int64_t)graph->nodes.n;
    }
    for (size_t o = 0; o < graph->outputs.n; o++)
        a->last_use[graph->outputs.data[o].value] = (int64_t)graph->nodes.n;
}

/* The updates whose new value stands in the state's memory have nothing to do. */
static void mark_updates(analysis_t *a) {
    for (ir_node_t n = 0; n < a->graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(a->graph, n);
        if (node->op == IR_OP_UPDATE)
            a->memory->update_in_place[n] = a->takes[node->inputs[1]] == node->inputs[0];
    }
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
        if (!dies_at(a, node->inputs[j], n) || !sched_may_overwrite(&a->overwrite, k, j)) continue;
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
           ir_op_is_lasting(node->op);
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
        else if (flags & IR_START)
            open_storage(a, v, SCHED_COMM, n);
        else if (flags & IR_COLLECTIVE) /* waits */
            join(a, v, a->memory->storage_of[node->inputs[k]]);
        else
            place_output(a, n, k);
    }
}

st_status_t sched_storages(const ir_graph_t *graph, sched_memory_t *out_memory) {
    *out_memory = (sched_memory_t){0};
    analysis_t a = {.graph = graph, .memory = out_memory};
    a.overwrite = sched_overwrite_open(graph);
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
    find_last_uses(&a);
    TRY_GOTO(sched_find_taken(&a.overwrite, a.takes), done);
    mark_updates(&a);
    for (ir_node_t i = 0; i < graph->nodes.n; i++) place_source(&a, i);
    for (ir_node_t i = 0; i < graph->nodes.n; i++) {
        TRY_GOTO(sched_overwrite_look(&a.overwrite, i), done);
        place_node(&a, i);
    }
done:
    sched_overwrite_close(&a.overwrite);
    st_free(a.last_use);
    st_free(a.takes);
    if (status != ST_OK) sched_memory_free(out_memory);
    return status;
}
