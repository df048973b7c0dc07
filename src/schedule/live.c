/* Memory of orders (live.h). */
#include "schedule/live.h"

#include <string.h>

#include "schedule/overwrite.h"

void sched_live_free(sched_live_t *live) {
    st_free(live->owner);
    st_free(live->n_readers);
    st_free(live->left);
    st_free(live->readers);
    st_free(live->waiting);
    st_free(live->seen);
    st_free(live->bytes);
    st_free(live->workspace);
    st_free(live->in_comm);
    st_free(live->us);
    ST_VEC_FREE(&live->reuse);
    st_free(live->first_reuse);
    st_free(live->taken);
    *live = (sched_live_t){0};
}

/* Whether node n reads `owner` for the first time: each walk over the nodes takes a node once. */
static bool first_read(sched_live_t *live, ir_node_t n, ir_value_t owner) {
    bool first = live->seen[owner] != n + 1;
    live->seen[owner] = n + 1;
    return first;
}

/* The start whose operands the wait reads, too, for they are being read until then; else NULL. */
static const ir_node_info_t *read_until(const sched_live_t *live, const ir_node_info_t *node) {
    const ir_graph_t *graph = live->dag->graph;
    const uint32_t flags = ir_op_def(node->op)->flags;
    if (!(flags & IR_COLLECTIVE) || (flags & IR_START) || !node->n_inputs) return NULL;
    const ir_node_info_t *start = ir_value_producer(graph, node->inputs[0]);
    return ir_start_reads_input(ir_op_def(start->op)) ? start : NULL;
}

static void count_reads(sched_live_t *live, ir_node_t n, const ir_node_info_t *node) {
    for (uint32_t j = 0; j < node->n_inputs; j++) {
        ir_value_t owner = live->owner[node->inputs[j]];
        if (!first_read(live, n, owner)) continue;
        live->n_readers[owner]++;
        live->readers[owner] ^= n + 1;
    }
}

static void count_readers(sched_live_t *live) {
    const ir_graph_t *graph = live->dag->graph;
    for (ir_node_t n = 0; n < live->dag->n; n++)
        for (const ir_node_info_t *node = ir_node(graph, n); node; node = read_until(live, node))
            count_reads(live, n, node);
    for (size_t o = 0; o < graph->outputs.n; o++)
        live->n_readers[live->owner[graph->outputs.data[o].value]]++;
}

/* ---- what takes no memory of its own ---- */

/* Pairs of the node looked at. */
static st_status_t find_pairs(sched_live_t *live, const sched_overwrite_t *overwrite, ir_node_t n) {
    const ir_graph_t *graph = live->dag->graph;
    const ir_node_info_t *node = ir_node(graph, n);
    if (ir_op_def(node->op)->flags & (IR_VIEW | IR_COLLECTIVE)) return ST_OK;
    for (uint32_t k = 0; k < node->n_outputs; k++) {
        ir_value_t made = node->first_output + k;
        for (uint32_t j = 0; j < node->n_inputs && live->bytes[made]; j++) {
            ir_value_t over = live->owner[node->inputs[j]];
            if (live->bytes[over] == live->bytes[made] && sched_may_overwrite(overwrite, k, j))
                TRY(ST_VEC_PUSH(&live->reuse, ((sched_reuse_t){made, over})));
        }
    }
    return ST_OK;
}

static st_status_t find_reuse(sched_live_t *live) {
    const ir_graph_t *graph = live->dag->graph;
    sched_overwrite_t overwrite = sched_overwrite_open(graph);
    ir_value_t *takes = st_calloc(graph->values.n, sizeof *takes);
    st_status_t status = ST_OK;
    if (!takes) return st_no_memory(graph->values.n * sizeof *takes, "the order");
    TRY_GOTO(sched_find_taken(&overwrite, takes), done);
    for (ir_value_t v = 0; v < graph->values.n; v++)
        if (takes[v] != IR_NONE) live->bytes[v] = 0;
    for (ir_node_t n = 0; n < live->dag->n; n++) {
        live->first_reuse[n] = (uint32_t)live->reuse.n;
        TRY_GOTO(sched_overwrite_look(&overwrite, n), done);
        TRY_GOTO(find_pairs(live, &overwrite, n), done);
    }
    live->first_reuse[live->dag->n] = (uint32_t)live->reuse.n;
done:
    sched_overwrite_close(&overwrite);
    st_free(takes);
    return status;
}

static st_status_t find_workspaces(sched_live_t *live, const ir_target_t *target) {
    for (ir_node_t n = 0; n < live->dag->n; n++) {
        ir_cost_t cost;
        TRY(ir_target_cost(target, live->dag->graph, n, &cost));
        if (cost.workspace <= INT64_MAX) live->workspace[n] = (int64_t)cost.workspace;
        live->us[n] = cost.us;
    }
    return ST_OK;
}

/* ---- building ---- */

static st_status_t allocate(sched_live_t *live) {
    size_t n = live->dag->graph->values.n, n_nodes = live->dag->n;
    live->owner = st_calloc(n, sizeof *live->owner);
    live->n_readers = st_calloc(n, sizeof *live->n_readers);
    live->left = st_calloc(n, sizeof *live->left);
    live->readers = st_calloc(n, sizeof *live->readers);
    live->waiting = st_calloc(n, sizeof *live->waiting);
    live->seen = st_calloc(n, sizeof *live->seen);
    live->bytes = st_calloc(n, sizeof *live->bytes);
    live->taken = st_calloc(n, sizeof *live->taken);
    live->workspace = st_calloc(n_nodes, sizeof *live->workspace);
    live->in_comm = st_calloc(n, sizeof *live->in_comm);
    live->us = st_calloc(n_nodes, sizeof *live->us);
    live->first_reuse = st_calloc(n_nodes + 1, sizeof *live->first_reuse);
    if (!live->owner || !live->n_readers || !live->left || !live->readers || !live->waiting ||
        !live->seen || !live->bytes || !live->taken || !live->workspace || !live->us ||
        !live->in_comm || !live->first_reuse)
        return st_no_memory(n * sizeof *live->owner, "the order");
    return ST_OK;
}

static void find_owners(sched_live_t *live) {
    const ir_graph_t *graph = live->dag->graph;
    for (ir_value_t v = 0; v < graph->values.n; v++) {
        const ir_node_info_t *node = ir_value_producer(graph, v);
        uint32_t flags = ir_op_def(node->op)->flags, index = graph->values.data[v].index;
        bool continues = (flags & IR_VIEW) || ((flags & IR_COLLECTIVE) && node->n_inputs &&
                                               !ir_start_reads_input(ir_op_def(node->op)));
        live->owner[v] = continues ? live->owner[node->inputs[index]] : v;
        if (live->owner[v] == v && !(flags & IR_STATE) && !ir_op_is_lasting(node->op))
            live->bytes[v] = (int64_t)ir_type_bytes(ir_value_type(graph, v));
        if (flags & IR_START)
            live->in_comm[live->owner[v]] = true; /* where sums are in place, too */
    }
}

st_status_t sched_live_build(const sched_dag_t *dag, const ir_target_t *target,
                             sched_live_t *live) {
    const ir_graph_t *graph = dag->graph;
    st_status_t status = ST_OK;
    *live = (sched_live_t){.dag = dag};
    TRY_GOTO(allocate(live), fail);
    for (ir_node_t n = 0; n < dag->n; n++) live->us[n] = 1;
    find_owners(live);
    count_readers(live);
    for (ir_value_t v = 0; v < graph->values.n; v++) /* an input that no one reads takes no part */
        if (ir_value_producer(graph, v)->op == IR_OP_INPUT && !live->n_readers[v])
            live->bytes[v] = 0;
    TRY_GOTO(find_reuse(live), fail);
    if (target && target->cost) TRY_GOTO(find_workspaces(live, target), fail);
    return ST_OK;
fail:
    sched_live_free(live);
    return status;
}

/* ---- running ---- */

static void sched_live_reset(sched_live_t *live) {
    size_t n = live->dag->graph->values.n;
    memcpy(live->left, live->n_readers, n * sizeof *live->left);
    memcpy(live->waiting, live->readers, n * sizeof *live->waiting);
    memset(live->seen, 0, n * sizeof *live->seen);
}

int64_t sched_live_born(const sched_live_t *live, ir_node_t n) {
    const ir_node_info_t *node = ir_node(live->dag->graph, n);
    int64_t bytes = 0;
    if (node->op == IR_OP_INPUT) return 0; /* it is there from the start */
    for (uint32_t k = 0; k < node->n_outputs; k++) bytes += live->bytes[node->first_output + k];
    return bytes;
}

ir_node_t sched_live_freed_by(const sched_live_t *live, ir_value_t owner) {
    return live->left[owner] == 1 && live->waiting[owner] ? live->waiting[owner] - 1 : IR_NONE;
}

static int64_t run_reads(sched_live_t *live, ir_node_t n, const ir_node_info_t *node,
                         sched_last_reader_t tell, void *context) {
    int64_t change = 0;
    for (uint32_t j = 0; j < node->n_inputs; j++) {
        ir_value_t owner = live->owner[node->inputs[j]];
        if (!first_read(live, n, owner)) continue;
        live->waiting[owner] ^= n + 1;
        if (--live->left[owner] == 0) change -= live->bytes[owner];
        ir_node_t last = tell ? sched_live_freed_by(live, owner) : IR_NONE;
        if (last != IR_NONE) tell(context, last, live->bytes[owner]);
    }
    return change;
}

int64_t sched_live_run(sched_live_t *live, ir_node_t n, sched_last_reader_t tell, void *context) {
    const ir_node_info_t *node = ir_node(live->dag->graph, n);
    int64_t change = 0;
    for (const ir_node_info_t *read = node; read; read = read_until(live, read))
        change += run_reads(live, n, read, tell, context);
    for (uint32_t k = 0; k < node->n_outputs; k++) { /* what no one reads dies at once */
        ir_value_t v = node->first_output + k;
        if (live->owner[v] == v && !live->left[v]) change -= live->bytes[v];
    }
    return change;
}

int64_t sched_live_begin(sched_live_t *live) {
    const ir_graph_t *graph = live->dag->graph;
    int64_t bytes = 0;
    sched_live_reset(live);
    for (ir_node_t n = 0; n < live->dag->n; n++)
        if (ir_node(graph, n)->op == IR_OP_INPUT)
            bytes += live->bytes[ir_node(graph, n)->first_output];
    return bytes;
}

/* Of outputs that may stand in what dies here, each in the first that no other has taken. */
static int64_t reused_bytes(sched_live_t *live, ir_node_t n) {
    int64_t bytes = 0;
    ir_value_t placed = IR_NONE;
    uint32_t now = ++live->n_asked;
    for (uint32_t r = live->first_reuse[n]; r < live->first_reuse[n + 1]; r++) {
        sched_reuse_t reuse = live->reuse.data[r];
        if (reuse.made == placed || live->left[reuse.over] != 1 || live->taken[reuse.over] == now)
            continue;
        live->taken[reuse.over] = now;
        placed = reuse.made;
        bytes += live->bytes[placed];
    }
    return bytes;
}

int64_t sched_live_need(sched_live_t *live, ir_node_t n) {
    return sched_live_born(live, n) + live->workspace[n] - reused_bytes(live, n);
}

sched_cost_t sched_live_cost(sched_live_t *live, const ir_node_t *order) {
    int64_t now = sched_live_begin(live);
    sched_cost_t cost = {now, 0};
    for (uint32_t i = 0; i < live->dag->n; i++) {
        int64_t need = now + sched_live_need(live, order[i]);
        if (need > cost.peak) cost.peak = need;
        now += sched_live_born(live, order[i]) + sched_live_run(live, order[i], NULL, NULL);
        cost.area += (double)now;
    }
    return cost;
}

/* Bytes that lie in the region of collectives: of what node n makes and, once it has run, no longer
 * of what it was the last to read. */
static int64_t comm_born(const sched_live_t *live, ir_node_t n) {
    const ir_node_info_t *node = ir_node(live->dag->graph, n);
    int64_t bytes = 0;
    for (uint32_t k = 0; k < node->n_outputs; k++)
        if (live->in_comm[node->first_output + k]) bytes += live->bytes[node->first_output + k];
    return bytes;
}
static int64_t comm_freed(const sched_live_t *live, ir_node_t n) {
    int64_t bytes = 0;
    for (const ir_node_info_t *node = ir_node(live->dag->graph, n); node;
         node = read_until(live, node))
        for (uint32_t j = 0; j < node->n_inputs; j++) {
            const ir_value_t owner = live->owner[node->inputs[j]];
            bool again = false; /* a value that is read twice dies once */
            for (uint32_t i = 0; i < j; i++) again |= live->owner[node->inputs[i]] == owner;
            if (live->in_comm[owner] && !live->left[owner] && !again) bytes += live->bytes[owner];
        }
    return bytes;
}

int64_t sched_live_regions(sched_live_t *live, const ir_node_t *order) {
    int64_t now = sched_live_begin(live), comm = 0, most = now, most_comm = 0;
    for (uint32_t i = 0; i < live->dag->n; i++) {
        const ir_node_t n = order[i];
        const int64_t born = comm_born(live, n), work = now - comm;
        const int64_t need = work + sched_live_need(live, n) - born;
        if (need > most) most = need;
        if (comm + born > most_comm) most_comm = comm + born;
        now += sched_live_born(live, n) + sched_live_run(live, n, NULL, NULL);
        comm += born - comm_freed(live, n);
    }
    return most + most_comm;
}

bool sched_cost_is_less(sched_cost_t a, sched_cost_t b) {
    return a.peak != b.peak ? a.peak < b.peak : a.area < b.area;
}
