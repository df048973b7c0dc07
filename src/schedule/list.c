/* List scheduling (list.h). */
#include "schedule/list.h"

/* The ready nodes, a heap with the next one on top. A node's gain may grow while it waits. */
typedef struct ready {
    const ir_graph_t *graph;
    int64_t *gain;        /* [nodes] */
    const uint8_t *class; /* [nodes]: higher goes first, whatever the gain; NULL: all alike */
    uint32_t *missing;    /* [nodes]: edges into it from nodes still to come */
    ir_node_t *heap;
    uint32_t n;
    uint32_t *position; /* [nodes]: in the heap; IR_NONE: not ready, or gone */
} ready_t;

static void ready_free(ready_t *ready) {
    st_free(ready->gain);
    st_free(ready->missing);
    st_free(ready->heap);
    st_free(ready->position);
}

static bool goes_before(const ready_t *ready, ir_node_t a, ir_node_t b) {
    const uint32_t x = ir_node(ready->graph, a)->slot, y = ir_node(ready->graph, b)->slot;
    if (x != y) return x < y;
    if (ready->class && ready->class[a] != ready->class[b])
        return ready->class[a] > ready->class[b];
    if (ready->gain[a] != ready->gain[b]) return ready->gain[a] > ready->gain[b];
    return a < b;
}

static void heap_put(ready_t *ready, uint32_t at, ir_node_t n) {
    ready->heap[at] = n;
    ready->position[n] = at;
}

/* Node n moves up from place `at`, which is free. */
static void heap_rise(ready_t *ready, uint32_t at, ir_node_t n) {
    while (at > 0 && goes_before(ready, n, ready->heap[(at - 1) / 2])) {
        heap_put(ready, at, ready->heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    heap_put(ready, at, n);
}

static void heap_push(ready_t *ready, ir_node_t n) {
    heap_rise(ready, ready->n++, n);
}

static ir_node_t heap_pop(ready_t *ready) {
    ASSERT(ready->n > 0);
    ir_node_t top = ready->heap[0], last = ready->heap[--ready->n];
    ready->position[top] = IR_NONE;
    if (!ready->n) return top;
    uint32_t at = 0;
    for (uint32_t child; (child = 2 * at + 1) < ready->n; at = child) {
        if (child + 1 < ready->n && goes_before(ready, ready->heap[child + 1], ready->heap[child]))
            child++;
        if (!goes_before(ready, ready->heap[child], last)) break;
        heap_put(ready, at, ready->heap[child]);
    }
    heap_put(ready, at, last);
    return top;
}

static void add_gain(void *context, ir_node_t n, int64_t bytes) {
    ready_t *ready = context;
    ready->gain[n] += bytes;
    if (ready->position[n] != IR_NONE) heap_rise(ready, ready->position[n], n);
}

/* Gains before anything has run. */
static void rate_nodes(const sched_dag_t *dag, const sched_live_t *live, const sched_rule_t *rule,
                       ready_t *ready) {
    for (ir_node_t n = 0; n < dag->n; n++) {
        ready->gain[n] = rule->rank ? -(int64_t)rule->rank[n] : -sched_live_born(live, n);
        ready->position[n] = IR_NONE;
    }
    for (ir_value_t v = 0; !rule->rank && rule->frees && v < dag->graph->values.n; v++) {
        ir_node_t reader = sched_live_freed_by(live, v);
        if (reader != IR_NONE) ready->gain[reader] += live->bytes[v];
    }
}

st_status_t sched_list(const sched_dag_t *dag, sched_live_t *live, const sched_rule_t *rule,
                       ir_node_t *out_order) {
    ready_t ready = {.graph = dag->graph, .class = rule->class};
    st_status_t status = ST_OK;
    bool follows = !rule->rank && rule->frees; /* gains change as nodes run */
    ready.gain = st_calloc(dag->n, sizeof *ready.gain);
    ready.missing = st_calloc(dag->n, sizeof *ready.missing);
    ready.heap = st_calloc(dag->n, sizeof *ready.heap);
    ready.position = st_calloc(dag->n, sizeof *ready.position);
    if (!ready.gain || !ready.missing || !ready.heap || !ready.position)
        TRY_GOTO(st_no_memory(dag->n * sizeof *ready.gain, "the order"), done);
    (void)sched_live_begin(live);
    rate_nodes(dag, live, rule, &ready);
    for (ir_node_t n = 0; n < dag->n; n++) {
        ready.missing[n] = dag->before.first[n + 1] - dag->before.first[n];
        if (!ready.missing[n]) heap_push(&ready, n);
    }
    for (uint32_t i = 0; i < dag->n; i++) {
        ir_node_t n = out_order[i] = heap_pop(&ready);
        if (follows) sched_live_run(live, n, add_gain, &ready);
        for (uint32_t e = dag->after.first[n]; e < dag->after.first[n + 1]; e++)
            if (--ready.missing[dag->after.to[e]] == 0) heap_push(&ready, dag->after.to[e]);
    }
done:
    ready_free(&ready);
    return status;
}
