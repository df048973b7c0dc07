/* Collectives of an ordered program (transfer.h). */
#include "schedule/transfer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

/* A group has no more members: bounds the search for groups. */
enum { MOST_MEMBERS = 512 };

void sched_transfers_close(sched_transfers_t *t) {
    st_free(t->list);
    st_free(t->of_node);
    st_free(t->place);
    st_free(t->us);
    st_free(t->when);
    st_free(t->feeds);
    *t = (sched_transfers_t){0};
}

double sched_transfer_us(const sched_transfer_t *t, double bytes) {
    return t->links.n ? ir_start_us(&t->links, t->op, bytes) : 1;
}

/* ---- finding ---- */

static bool is_of_states(const sched_transfers_t *t, ir_value_t v) {
    const ir_node_t by = t->dag->graph->values.data[v].producer;
    return t->feeds[by] || (ir_op_def(ir_node(t->dag->graph, by)->op)->flags & IR_STATE);
}

static bool is_ahead(const sched_transfers_t *t, ir_node_t start) {
    const ir_node_info_t *node = ir_node(t->dag->graph, start);
    bool ahead = node->op == IR_OP_ALL_GATHER_START;
    for (uint32_t j = 0; j < node->n_inputs; j++) ahead &= is_of_states(t, node->inputs[j]);
    return ahead;
}

/* What node n reads is made for it, in time, not ahead. Whether that is news. */
static bool reads_in_time(sched_transfers_t *t, ir_node_t n) {
    const ir_graph_t *graph = t->dag->graph;
    const ir_node_info_t *node = ir_node(graph, n);
    bool any = false;
    for (uint32_t j = 0; j < node->n_inputs; j++) {
        const ir_node_t by = graph->values.data[node->inputs[j]].producer;
        any |= t->feeds[by];
        t->feeds[by] = false;
    }
    return any;
}

/* Made of states alone, by nodes that only gathers read: to be made when a gather wants it. */
static void find_feeds(sched_transfers_t *t, const ir_node_t *order) {
    const ir_graph_t *graph = t->dag->graph;
    for (uint32_t i = 0; i < t->dag->n; i++) {
        const ir_node_info_t *node = ir_node(graph, order[i]);
        const uint32_t flags = ir_op_def(node->op)->flags;
        bool of_states = node->n_inputs > 0 && !(flags & (IR_COLLECTIVE | IR_SIDE_EFFECT));
        for (uint32_t j = 0; j < node->n_inputs; j++) of_states &= is_of_states(t, node->inputs[j]);
        t->feeds[order[i]] = of_states;
    }
    for (size_t o = 0; o < graph->outputs.n; o++)
        t->feeds[graph->values.data[graph->outputs.data[o].value].producer] = false;
    for (bool again = true; again;) {
        again = false;
        for (uint32_t i = t->dag->n; i-- > 0;)
            if (!t->feeds[order[i]] && !is_ahead(t, order[i])) again |= reads_in_time(t, order[i]);
    }
}

static uint32_t ready_place(const sched_transfers_t *t, ir_node_t start) {
    const sched_dag_t *dag = t->dag;
    uint32_t ready = 0;
    for (uint32_t e = dag->before.first[start]; e < dag->before.first[start + 1]; e++)
        if (t->place[dag->before.to[e]] + 1 > ready) ready = t->place[dag->before.to[e]] + 1;
    return ready;
}

/* Views only look: what counts is who reads through them. A state's update can come at the end.
 * What another collective reads stays where it is, before that one's `ready`. */
static uint32_t need_place(const sched_transfers_t *t, ir_node_t wait) {
    const sched_dag_t *dag = t->dag;
    uint32_t need = dag->n;
    for (uint32_t e = dag->after.first[wait]; e < dag->after.first[wait + 1]; e++) {
        const ir_node_t reader = dag->after.to[e];
        const ir_op_t op = ir_node(dag->graph, reader)->op;
        const uint32_t place = op == IR_OP_UPDATE                ? dag->n
                               : ir_op_def(op)->flags & IR_VIEW  ? need_place(t, reader)
                               : ir_op_def(op)->flags & IR_START ? t->place[wait]
                                                                 : t->place[reader];
        if (place < need) need = place;
    }
    return need;
}

static ir_links_t links_of(const ir_target_t *target, const char *mesh) {
    const ir_machine_t *machine = target ? target->machine : NULL;
    const uint32_t axis = machine ? ir_mesh_find(&machine->mesh, mesh) : IR_NONE;
    if (axis == IR_NONE) return (ir_links_t){0};
    return ir_links_of(machine, machine->mesh.axes[axis].size,
                       ir_mesh_stride(&machine->mesh, axis));
}

static sched_transfer_t transfer_of(const sched_transfers_t *t, const ir_target_t *target,
                                    ir_node_t start) {
    const ir_graph_t *graph = t->dag->graph;
    const ir_node_info_t *node = ir_node(graph, start);
    sched_transfer_t made = {
        .start = start,
        .wait = IR_NONE,
        .ready = ready_place(t, start),
        .need = t->dag->n,
        .ahead = is_ahead(t, start),
        .op = node->op,
        .pair = node->op == IR_OP_SEND_START || node->op == IR_OP_RECEIVE_START,
        .dtype = IR_DTYPE_NONE,
        .mesh = ir_node_attr(node, "mesh")->s};
    made.links = links_of(target, made.mesh);
    double in = 0, out = 0;
    bool uniform = node->n_inputs > 0 && ir_start_may_pass(node->op);
    for (uint32_t j = 0; j < node->n_inputs; j++) {
        const ir_type_t *type = ir_value_type(graph, node->inputs[j]);
        in += (double)ir_type_bytes(type);
        uniform &= type->dtype == ir_value_type(graph, node->inputs[0])->dtype;
    }
    for (uint32_t k = 0; k < node->n_outputs; k++)
        out += (double)ir_type_bytes(ir_value_type(graph, node->first_output + k));
    made.bytes = fmax(in, out);
    if (uniform) made.dtype = ir_value_type(graph, node->inputs[0])->dtype;
    return made;
}

static void find_transfers(sched_transfers_t *t, const ir_target_t *target,
                           const ir_node_t *order) {
    const ir_graph_t *graph = t->dag->graph;
    for (uint32_t i = 0; i < t->dag->n; i++) {
        const ir_node_t n = order[i];
        if (!sched_is_collective(graph, n)) continue;
        if (sched_is_start(graph, n)) {
            t->of_node[n] = t->n;
            t->list[t->n++] = transfer_of(t, target, n);
            continue;
        }
        const ir_value_t taken = ir_node(graph, n)->inputs[0];
        sched_transfer_t *of = &t->list[t->of_node[graph->values.data[taken].producer]];
        t->of_node[n] = (uint32_t)(of - t->list);
        of->wait = n;
        of->need = need_place(t, n);
    }
}

static void find_times(sched_transfers_t *t, const double *us, const ir_node_t *order) {
    for (uint32_t i = 0; i < t->dag->n; i++) {
        const ir_node_t n = order[i];
        t->us[n] = sched_is_collective(t->dag->graph, n) ? 0 : us[n];
        t->when[i + 1] = t->when[i] + t->us[n];
    }
}

st_status_t sched_transfers_open(const sched_dag_t *dag, const ir_target_t *target,
                                 const double *us, const ir_node_t *order, sched_transfers_t *t) {
    st_status_t status = ST_OK;
    *t = (sched_transfers_t){.dag = dag};
    t->list = st_calloc(dag->n, sizeof *t->list);
    t->of_node = st_calloc(dag->n, sizeof *t->of_node);
    t->place = st_calloc(dag->n, sizeof *t->place);
    t->us = st_calloc(dag->n, sizeof *t->us);
    t->when = st_calloc(dag->n + 1, sizeof *t->when);
    t->feeds = st_calloc(dag->n, sizeof *t->feeds);
    if (!t->list || !t->of_node || !t->place || !t->us || !t->when || !t->feeds)
        TRY_GOTO(st_no_memory(dag->n * sizeof *t->list, "the collectives"), fail);
    for (uint32_t i = 0; i < dag->n; i++) {
        t->place[order[i]] = i;
        t->of_node[i] = IR_NONE;
    }
    find_feeds(t, order);
    find_times(t, us, order);
    find_transfers(t, target, order);
    return ST_OK;
fail:
    sched_transfers_close(t);
    return status;
}

/* ---- grouping ---- */

/* Of one kind, in the order in which they are looked at. */
typedef struct row {
    sched_transfers_t *all;
    uint32_t n, *of; /* [n]: transfers */
    double most;     /* bytes of a group */
    double *finish;  /* [n + 1] */
    uint32_t *from;  /* [n + 1]: where the last group of the best prefix begins */
} row_t;

static sched_transfer_t *at(const row_t *row, uint32_t i) {
    return &row->all->list[row->of[i]];
}

static bool is_hidden(const sched_transfers_t *all, const sched_transfer_t *t) {
    const uint32_t ready = t->ready < t->need ? t->ready : t->need;
    return all->when[t->need] - all->when[ready] >= sched_transfer_us(t, t->bytes);
}

static bool alike(const sched_transfers_t *all, const sched_transfer_t *a,
                  const sched_transfer_t *b) {
    if (a->op != b->op || a->dtype != b->dtype || a->dtype == IR_DTYPE_NONE ||
        a->ahead != b->ahead || strcmp(a->mesh, b->mesh) != 0)
        return false;
    if (a->ahead) return true;
    const bool hidden = is_hidden(all, a);
    return hidden == is_hidden(all, b) && (hidden || a->need == b->need);
}

static void join(row_t *row, uint32_t first, uint32_t end) {
    for (uint32_t i = first; i < end; i++) at(row, i)->group = row->all->n_groups;
    row->all->n_groups++;
}

/* The time at which members first … end - 1 can have been sent, where the link is free at
 * `free_us`; INFINITY where they cannot be one. */
static double finish_of(const row_t *row, uint32_t first, uint32_t end, double free_us,
                        double bytes, uint32_t need) {
    const sched_transfer_t *last = at(row, end - 1);
    if (end - first > 1 && (bytes > row->most || last->ready > need)) return INFINITY;
    return fmax(free_us, row->all->when[last->ready]) + sched_transfer_us(last, bytes);
}

static void find_prefixes(row_t *row) {
    row->finish[0] = 0;
    for (uint32_t end = 1; end <= row->n; end++) {
        double bytes = 0;
        uint32_t need = UINT32_MAX;
        row->finish[end] = INFINITY;
        for (uint32_t first = end; first-- > 0 && end - first <= MOST_MEMBERS;) {
            bytes += at(row, first)->bytes;
            if (at(row, first)->need < need) need = at(row, first)->need;
            const double us = finish_of(row, first, end, row->finish[first], bytes, need);
            if (us == INFINITY && end - first > 1) break; /* nor with more */
            if (us > row->finish[end]) continue;
            row->finish[end] = us;
            row->from[end] = first;
        }
    }
}

/* From the end, each group as large as lets the rest end in time. */
static void group_on_the_way(row_t *row) {
    double all_us = 0;
    find_prefixes(row);
    for (uint32_t i = 0; i < row->n; i++)
        all_us += sched_transfer_us(at(row, i), at(row, i)->bytes);
    double limit = row->finish[row->n] + all_us / 500;
    for (uint32_t end = row->n; end > 0;) {
        uint32_t best = row->from[end], need = UINT32_MAX;
        double bytes = 0, best_us = 0;
        for (uint32_t first = end; first-- > 0 && end - first <= MOST_MEMBERS;) {
            bytes += at(row, first)->bytes;
            if (at(row, first)->need < need) need = at(row, first)->need;
            if (first == row->from[end]) best_us = sched_transfer_us(at(row, first), bytes);
            const double us = finish_of(row, first, end, row->finish[first], bytes, need);
            if (us == INFINITY && end - first > 1) break;
            if (us > limit || first >= best) continue;
            best = first;
            best_us = sched_transfer_us(at(row, first), bytes);
        }
        join(row, best, end);
        limit -= best_us;
        end = best;
    }
}

/* Whether all are there `delay` after they are wanted, in groups as large as that allows; `joins`
 * them. */
static bool in_time(row_t *row, double delay, bool joins) {
    double now = 0;
    for (uint32_t first = 0; first < row->n;) {
        const double limit = row->all->when[at(row, first)->need] + delay;
        uint32_t end = first;
        double bytes = 0, us = 0;
        while (end < row->n && end - first < MOST_MEMBERS) {
            const double more = bytes + at(row, end)->bytes;
            const double more_us = sched_transfer_us(at(row, first), more);
            if (now + more_us > limit || (end > first && more > row->most)) break;
            bytes = more;
            us = more_us;
            end++;
        }
        if (end == first) return false;
        if (joins) join(row, first, end);
        now += us;
        first = end;
    }
    return true;
}

static void group_ahead(row_t *row) {
    enum { HALVINGS = 24 };
    double low = 0, high = 0;
    for (uint32_t i = 0; i < row->n; i++) high += sched_transfer_us(at(row, i), at(row, i)->bytes);
    for (int i = 0; i < HALVINGS; i++) {
        const double middle = (low + high) / 2;
        if (in_time(row, middle, false))
            high = middle;
        else
            low = middle;
    }
    const bool all = in_time(row, high * (1 + 1e-9), true);
    ASSERT(all);
}

typedef struct placed {
    uint32_t place, transfer;
} placed_t;

static int by_place(const void *a, const void *b) {
    const placed_t *x = a, *y = b;
    if (x->place != y->place) return x->place < y->place ? -1 : 1;
    return x->transfer < y->transfer ? -1 : x->transfer > y->transfer;
}

/* All that are like transfer i, and i itself. */
static void fill_row(row_t *row, uint32_t i, placed_t *room) {
    const sched_transfer_t *like = &row->all->list[i];
    row->n = 0;
    for (uint32_t k = i; k < row->all->n; k++) {
        const sched_transfer_t *t = &row->all->list[k];
        if (t->group != IR_NONE || (k != i && !alike(row->all, like, t))) continue;
        room[row->n++] = (placed_t){t->ahead ? t->need : t->ready, k};
    }
    qsort(room, row->n, sizeof *room, by_place);
    for (uint32_t k = 0; k < row->n; k++) row->of[k] = room[k].transfer;
}

st_status_t sched_transfers_group(sched_transfers_t *t, double most_on_the_way, double most_ahead) {
    row_t row = {.all = t};
    st_status_t status = ST_OK;
    placed_t *room = st_calloc(t->n, sizeof *room);
    row.of = st_calloc(t->n, sizeof *row.of);
    row.finish = st_calloc(t->n + 1, sizeof *row.finish);
    row.from = st_calloc(t->n + 1, sizeof *row.from);
    if (!room || !row.of || !row.finish || !row.from)
        TRY_GOTO(st_no_memory(t->n * sizeof *room, "the collectives"), done);
    t->n_groups = 0;
    for (uint32_t i = 0; i < t->n; i++) t->list[i].group = IR_NONE;
    for (uint32_t i = 0; i < t->n; i++) {
        if (t->list[i].group != IR_NONE) continue;
        fill_row(&row, i, room);
        row.most = t->list[i].ahead ? most_ahead : most_on_the_way;
        if (!(row.most > 0))
            for (uint32_t k = 0; k < row.n; k++) join(&row, k, k + 1);
        else if (t->list[i].ahead)
            group_ahead(&row);
        else
            group_on_the_way(&row);
    }
done:
    st_free(room);
    st_free(row.of);
    st_free(row.finish);
    st_free(row.from);
    return status;
}
