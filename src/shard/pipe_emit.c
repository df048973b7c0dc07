/* The ranks' graphs of a pipeline (pipe.h).
 *
 * What a rank runs: its staged nodes, and what they need that runs anywhere. Slots: a staged node
 * has that of its pass, one that runs anywhere the first of its readers', and so has the wait of a
 * collective whose result stays on the rank; updates come last. A value that is read on another
 * rank becomes a message:
 *
 *   sender     node | send start |  … next pass …  send wait
 *   receiver   receive start | … pass before …  | receive wait | first reader
 *
 * The sender waits a pass later, or when the receive will have begun.
 *
 * Between two ranks the i-th start to send meets the i-th to receive, so receives begin in the
 * order of the sends, some of them earlier than they had to. Within a slot nodes keep the order
 * that they have in the graph, and waits stand right before their readers: where messages go to and
 * fro within the last slot, a wait is never before what the other side has to do for it. O(ranks ·
 * (nodes + edges)), messages sorted. */
#include <stdlib.h>
#include <string.h>

#include "ir/build.h"
#include "ir/mesh.h"
#include "shard/pipe_internal.h"

typedef struct message {
    uint32_t from, to;   /* ranks of the axis */
    ir_value_t value;    /* IR_NONE: the sender's part of a joint node */
    ir_node_t node;      /* that makes the value, or the joint one */
    ir_node_t reader;    /* the first */
    uint32_t sent, read; /* slots: of the node there, of the first reader here */
    uint32_t posted;     /* slot in which the receive begins */
    uint32_t waited;     /* slot at whose end the sender waits */
} message_t;

typedef enum entry_kind {
    ENTRY_POST = 0, /* begins to receive */
    ENTRY_PART,     /* of a joint node */
    ENTRY_SEND_PART,
    ENTRY_RECEIVE, /* waits */
    ENTRY_NODE,
    ENTRY_SEND,
    ENTRY_SENT, /* waits */
} entry_kind_t;

/* In the order of these members, as they stand. */
typedef struct entry {
    uint32_t slot;
    uint32_t group; /* posts, nodes, waits for what was sent */
    ir_node_t node; /* in the second group */
    entry_kind_t kind;
    uint32_t message; /* ENTRY_NODE, ENTRY_PART: 0 */
} entry_t;

typedef struct emitter {
    const pipe_nodes_t *p;
    const pipe_order_t *order;
    uint32_t n_ranks;
    size_t n_nodes;
    bool *on;       /* [ranks][nodes] */
    uint32_t *slot; /* [ranks][nodes] */
    bool *output;   /* [nodes]: makes an output of the graph */
    ST_VEC(message_t) messages;
    ST_VEC(entry_t) entries; /* of the rank at hand */
    st_arena_t arena;
    /* one graph of one rank */
    const ir_graph_t *from;
    uint32_t rank;
    ir_build_t b;
    ir_value_t *map;    /* [values] */
    ir_value_t *flight; /* [messages]: started */
    ir_value_t *parts;  /* [ranks]: of the joint node at hand */
} emitter_t;

static bool *on_of(const emitter_t *e, uint32_t rank) {
    return e->on + rank * e->n_nodes;
}
static uint32_t *slots_of(const emitter_t *e, uint32_t rank) {
    return e->slot + rank * e->n_nodes;
}
static uint32_t last_slot(const emitter_t *e, uint32_t rank) {
    return e->order->n_passes[rank] + 1;
}

/* Where an output, a new value or an operand of a joint node is: what runs anywhere counts as the
 * first rank's. */
static uint32_t home_of(const emitter_t *e, ir_value_t v) {
    const ir_node_t n = e->p->graph->values.data[v].producer;
    return e->p->nodes[n].staged ? pipe_rank(e->p, n) : 0;
}

/* ---- who runs what ---- */

/* What the nodes of a rank need there, and the weights whose shadows are there, which they are made
 * from. */
static void spread(emitter_t *e, uint32_t rank) {
    const ir_graph_t *graph = e->p->graph;
    bool *on = on_of(e, rank);
    for (ir_node_t n = (ir_node_t)e->n_nodes; n-- > 0;) {
        const ir_node_info_t *node = ir_node(graph, n);
        const ir_node_t master = on[n] ? ir_master_of(graph, node) : IR_NONE;
        if (master != IR_NONE) on[master] = true;
        for (uint32_t j = 0; on[n] && j < node->n_inputs; j++) {
            const ir_node_t before = graph->values.data[node->inputs[j]].producer;
            /* of what another rank has, the bytes come, not each view of them */
            const bool view = ir_op_def(ir_node(graph, before)->op)->flags & IR_VIEW;
            if (e->p->nodes[before].staged && (!view || pipe_is_joint(node))) continue;
            if (pipe_is_joint(node))
                on_of(e, 0)[before] = true;
            else
                on[before] = true;
        }
    }
}

static uint32_t holder_of(const emitter_t *e, ir_node_t n) {
    for (uint32_t r = 0; r < e->n_ranks; r++)
        if (on_of(e, r)[n]) return r;
    return IR_NONE;
}

/* Updates run wherever their state lies. A state that nothing but its update reads lies with the
 * new value. */
static bool spread_updates(emitter_t *e) {
    const ir_graph_t *graph = e->p->graph;
    bool any = false;
    for (ir_node_t n = 0; n < e->n_nodes; n++) {
        const ir_node_info_t *node = ir_node(graph, n);
        if (node->op != IR_OP_UPDATE) continue;
        const ir_node_t state = graph->values.data[node->inputs[0]].producer;
        const uint32_t home = home_of(e, node->inputs[1]);
        const bool nowhere = holder_of(e, state) == IR_NONE;
        for (uint32_t r = 0; r < e->n_ranks; r++) {
            if (on_of(e, r)[n] || !(on_of(e, r)[state] || (nowhere && r == home))) continue;
            on_of(e, r)[n] = any = true;
        }
    }
    return any;
}

static st_status_t find_on(emitter_t *e) {
    const ir_graph_t *graph = e->p->graph;
    e->on = st_arena_array(&e->arena, e->n_ranks * e->n_nodes, sizeof *e->on);
    e->output = st_arena_array(&e->arena, e->n_nodes, sizeof *e->output);
    if (!e->on || !e->output) return st_no_memory(e->n_ranks * e->n_nodes, "a pipeline");
    for (ir_node_t n = 0; n < e->n_nodes; n++)
        if (e->p->nodes[n].staged) on_of(e, pipe_rank(e->p, n))[n] = true;
    for (size_t o = 0; o < graph->outputs.n; o++) {
        const ir_node_t n = graph->values.data[graph->outputs.data[o].value].producer;
        e->output[n] = true;
        if (!e->p->nodes[n].staged) on_of(e, 0)[n] = true;
    }
    do
        for (uint32_t r = e->n_ranks; r-- > 0;) spread(e, r);
    while (spread_updates(e));
    for (ir_node_t n = 0; n < e->n_nodes; n++) {
        const ir_node_info_t *node = ir_node(graph, n);
        const bool port = node->op == IR_OP_INPUT || (ir_op_def(node->op)->flags & IR_STATE);
        if (port && holder_of(e, n) == IR_NONE) on_of(e, 0)[n] = true;
    }
    return ST_OK;
}

/* ---- slots ---- */

static uint32_t pass_slot(const emitter_t *e, ir_node_t n) {
    const pipe_node_t *own = &e->p->nodes[n];
    if (own->after) return last_slot(e, pipe_rank(e->p, n));
    return 1 + pipe_place(e->order, own->stage, own->micro, (pipe_pass_t)own->pass);
}

static uint32_t first_reader_slot(const emitter_t *e, uint32_t rank, ir_node_t n) {
    const ir_node_info_t *node = ir_node(e->p->graph, n);
    const ir_uses_t *uses = &e->p->uses;
    uint32_t first = last_slot(e, rank);
    for (uint32_t k = 0; k < node->n_outputs; k++)
        for (uint32_t u = uses->first[node->first_output + k];
             u < uses->first[node->first_output + k + 1]; u++)
            if (on_of(e, rank)[uses->node[u]] && slots_of(e, rank)[uses->node[u]] < first)
                first = slots_of(e, rank)[uses->node[u]];
    return first;
}

/* Whether another rank reads what the rank has of the node. */
static bool is_sent(const emitter_t *e, uint32_t rank, ir_node_t n) {
    const ir_node_info_t *node = ir_node(e->p->graph, n);
    const ir_uses_t *uses = &e->p->uses;
    for (uint32_t u = uses->first[node->first_output];
         u < uses->first[node->first_output + node->n_outputs]; u++)
        for (uint32_t q = 0; q < e->n_ranks; q++)
            if (q != rank && on_of(e, q)[uses->node[u]] &&
                !pipe_is_joint(ir_node(e->p->graph, uses->node[u])))
                return true;
    return false;
}

static st_status_t find_slots(emitter_t *e) {
    const ir_graph_t *graph = e->p->graph;
    e->slot = st_arena_array(&e->arena, e->n_ranks * e->n_nodes, sizeof *e->slot);
    if (!e->slot) return st_no_memory(e->n_ranks * e->n_nodes * sizeof *e->slot, "a pipeline");
    for (uint32_t r = 0; r < e->n_ranks; r++) {
        const bool *on = on_of(e, r);
        uint32_t *slot = slots_of(e, r);
        for (ir_node_t n = (ir_node_t)e->n_nodes; n-- > 0;) {
            const uint32_t flags = ir_op_def(ir_node(graph, n)->op)->flags;
            if (!on[n]) continue;
            const bool own = e->p->nodes[n].staged && pipe_rank(e->p, n) == r;
            const bool waits = (flags & IR_COLLECTIVE) && !(flags & IR_START) && !is_sent(e, r, n);
            slot[n] = own && !waits ? pass_slot(e, n) : first_reader_slot(e, r, n);
            if (pipe_is_joint(ir_node(graph, n))) slot[n] = last_slot(e, r);
        }
        for (ir_node_t n = 0; n < e->n_nodes; n++) {
            const ir_node_info_t *node = ir_node(graph, n);
            for (uint32_t j = 0; on[n] && j < node->n_inputs; j++) {
                const ir_node_t before = graph->values.data[node->inputs[j]].producer;
                if (on[before] && slot[before] > slot[n]) slot[n] = slot[before];
            }
        }
    }
    return ST_OK;
}

/* ---- messages ---- */

/* Ranks that have operands of the joint node, as bits. */
static uint64_t parts_of(const emitter_t *e, ir_node_t n) {
    const ir_graph_t *graph = e->p->graph;
    const ir_node_info_t *node = ir_node(graph, n);
    uint64_t ranks = 0;
    for (uint32_t j = 0; j < node->n_inputs; j++) ranks |= 1ull << home_of(e, node->inputs[j]);
    return ranks;
}

static bool is_on_anywhere(const emitter_t *e, ir_node_t n) {
    return holder_of(e, n) != IR_NONE;
}

static st_status_t add_joint_messages(emitter_t *e, ir_node_t n) {
    const uint64_t parts = parts_of(e, n);
    for (uint32_t q = 0; q < e->n_ranks; q++)
        for (uint32_t r = 0; r < e->n_ranks; r++) {
            if (!(parts >> q & 1) || q == r || !on_of(e, r)[n]) continue;
            const message_t made = {.from = q,
                                    .to = r,
                                    .value = IR_NONE,
                                    .node = n,
                                    .reader = n,
                                    .sent = last_slot(e, q),
                                    .read = last_slot(e, r)};
            TRY(ST_VEC_PUSH(&e->messages, made));
        }
    return ST_OK;
}

/* Of what rank r reads of others. `known`: [values], the message of each, plus one. */
static st_status_t add_messages(emitter_t *e, uint32_t r, uint32_t *known) {
    const ir_graph_t *graph = e->p->graph;
    const bool *on = on_of(e, r);
    const uint32_t *slot = slots_of(e, r);
    for (ir_node_t n = 0; n < e->n_nodes; n++) {
        const ir_node_info_t *node = ir_node(graph, n);
        for (uint32_t j = 0; on[n] && !pipe_is_joint(node) && j < node->n_inputs; j++) {
            const ir_value_t v = node->inputs[j];
            const ir_node_t before = graph->values.data[v].producer;
            if (on[before]) continue;
            const uint32_t q = pipe_rank(e->p, before);
            if (!known[v]) {
                TRY(ST_VEC_PUSH(&e->messages, ((message_t){.from = q,
                                                           .to = r,
                                                           .value = v,
                                                           .node = before,
                                                           .reader = n,
                                                           .sent = slots_of(e, q)[before],
                                                           .read = slot[n]})));
                known[v] = (uint32_t)e->messages.n;
            }
            message_t *message = &e->messages.data[known[v] - 1];
            if (slot[n] < message->read) message->read = slot[n], message->reader = n;
        }
    }
    return ST_OK;
}

static int by_channel(const void *a, const void *b) {
    const message_t *x = a, *y = b;
    if (x->from != y->from) return x->from < y->from ? -1 : 1;
    if (x->to != y->to) return x->to < y->to ? -1 : 1;
    if (x->sent != y->sent) return x->sent < y->sent ? -1 : 1;
    if (x->node != y->node) return x->node < y->node ? -1 : 1;
    return x->value < y->value ? -1 : x->value > y->value;
}

/* A wait for what was sent ends when the receive has begun: it comes no earlier, by the order's
 * times, so that whatever stands still waits for something earlier. */
static void place_wait(const emitter_t *e, message_t *m) {
    const uint32_t begun = pipe_begin(e->order, m->to, m->posted - 1), last = last_slot(e, m->from);
    m->waited = m->sent < last ? m->sent + 1 : last;
    while (m->waited < last && pipe_begin(e->order, m->from, m->waited - 1) < begun) m->waited++;
}

static st_status_t find_messages(emitter_t *e) {
    const ir_graph_t *graph = e->p->graph;
    for (ir_node_t n = 0; n < e->n_nodes; n++)
        if (pipe_is_joint(ir_node(graph, n)) && is_on_anywhere(e, n)) TRY(add_joint_messages(e, n));
    for (uint32_t r = 0; r < e->n_ranks; r++) {
        uint32_t *known = st_calloc(graph->values.n, sizeof *known);
        if (!known) return st_no_memory(graph->values.n * sizeof *known, "a pipeline");
        st_status_t status = add_messages(e, r, known);
        st_free(known);
        TRY(status);
    }
    if (e->messages.n) qsort(e->messages.data, e->messages.n, sizeof *e->messages.data, by_channel);
    for (size_t i = e->messages.n; i-- > 0;) {
        message_t *own = &e->messages.data[i];
        const message_t *next = i + 1 < e->messages.n ? own + 1 : NULL;
        own->posted = own->read > 1 ? own->read - 1 : 1;
        if (next && next->from == own->from && next->to == own->to && next->posted < own->posted)
            own->posted = next->posted;
        place_wait(e, own);
    }
    return ST_OK;
}

/* ---- the order of a rank ---- */

static int by_place(const void *a, const void *b) {
    const entry_t *x = a, *y = b;
    if (x->slot != y->slot) return x->slot < y->slot ? -1 : 1;
    if (x->group != y->group) return x->group < y->group ? -1 : 1;
    if (x->node != y->node) return x->node < y->node ? -1 : 1;
    if (x->kind != y->kind) return x->kind < y->kind ? -1 : 1;
    return x->message < y->message ? -1 : x->message > y->message;
}

static st_status_t add_entry(emitter_t *e, uint32_t slot, uint32_t group, ir_node_t node,
                             entry_kind_t kind, uint32_t message) {
    return ST_VEC_PUSH(&e->entries, ((entry_t){slot, group, node, kind, message}));
}

static st_status_t order_rank(emitter_t *e, uint32_t r) {
    const ir_graph_t *graph = e->p->graph;
    const uint32_t last = last_slot(e, r);
    e->entries.n = 0;
    for (ir_node_t n = 0; n < e->n_nodes; n++) {
        if (on_of(e, r)[n]) TRY(add_entry(e, slots_of(e, r)[n], 1, n, ENTRY_NODE, 0));
        if (pipe_is_joint(ir_node(graph, n)) && is_on_anywhere(e, n) && (parts_of(e, n) >> r & 1))
            TRY(add_entry(e, last, 1, n, ENTRY_PART, 0));
    }
    for (uint32_t i = 0; i < e->messages.n; i++) {
        const message_t *m = &e->messages.data[i];
        if (m->to == r) {
            TRY(add_entry(e, m->posted, 0, 0, ENTRY_POST, i));
            TRY(add_entry(e, m->read, 1, m->reader, ENTRY_RECEIVE, i));
        }
        if (m->from != r) continue;
        TRY(add_entry(e, m->sent, 1, m->node, m->value == IR_NONE ? ENTRY_SEND_PART : ENTRY_SEND,
                      i));
        TRY(add_entry(e, m->waited, 2, 0, ENTRY_SENT, i));
    }
    qsort(e->entries.data, e->entries.n, sizeof *e->entries.data, by_place);
    return ST_OK;
}

/* ---- a graph of a rank ---- */

static void stand_for(emitter_t *e, ir_node_t n, uint32_t slot) {
    e->b.graph->phase = ir_node(e->from, n)->phase;
    e->b.graph->slot = slot;
}

/* The rank's part of a joint node; IR_NONE: it has none. */
static void write_part(emitter_t *e, ir_node_t n) {
    const ir_node_info_t *node = ir_node(e->from, n);
    ir_value_t *inputs = st_arena_array(&e->arena, node->n_inputs, sizeof *inputs);
    uint32_t n_inputs = 0;
    if (!inputs) {
        e->b.status = st_no_memory(node->n_inputs * sizeof *inputs, "a pipeline");
        return;
    }
    for (uint32_t j = 0; j < node->n_inputs; j++)
        if (home_of(e, node->inputs[j]) == e->rank) inputs[n_inputs++] = e->map[node->inputs[j]];
    e->parts[e->rank] = ir_b_node(&e->b, node->op, n_inputs, inputs, 0, NULL);
}

static void write_joint(emitter_t *e, ir_node_t n) {
    const ir_node_info_t *node = ir_node(e->from, n);
    ir_value_t all = IR_NONE;
    for (uint32_t q = 0; q < e->n_ranks; q++) {
        if (!(parts_of(e, n) >> q & 1)) continue;
        ir_value_t part =
            ir_b_cast(&e->b, e->parts[q], ir_value_type(e->from, node->first_output)->dtype);
        all = all == IR_NONE ? part : ir_b_binary(&e->b, IR_OP_ADD, all, part);
    }
    e->map[node->first_output] = all;
}

/* f32[] of a part of floats, f64[] where one is f64, as sum_squares has it. */
static ir_type_t part_type(const emitter_t *e, const message_t *m) {
    const ir_node_info_t *node = ir_node(e->from, m->node);
    ir_type_t type = ir_type_scalar(IR_F32);
    for (uint32_t j = 0; j < node->n_inputs; j++)
        if (home_of(e, node->inputs[j]) == m->from &&
            ir_value_type(e->from, node->inputs[j])->dtype == IR_F64)
            type.dtype = IR_F64;
    return type;
}

static void write_node(emitter_t *e, ir_node_t n, uint32_t slot) {
    ir_build_t *b = &e->b;
    if (pipe_is_joint(ir_node(e->from, n))) {
        write_joint(e, n);
        return;
    }
    if (b->status == ST_OK) b->status = ir_graph_clone_node(b->graph, e->from, n, NULL, e->map);
    if (b->status == ST_OK) b->graph->nodes.data[b->graph->nodes.n - 1].slot = slot;
}

static void write_entry(emitter_t *e, const entry_t *entry) {
    const message_t *m = e->messages.n ? &e->messages.data[entry->message] : NULL;
    const ir_arg_t mesh = IR_ARG_STRING("mesh", e->p->pipe->axis);
    ir_build_t *b = &e->b;
    switch (entry->kind) {
        case ENTRY_NODE:
            stand_for(e, entry->node, entry->slot);
            write_node(e, entry->node, entry->slot);
            return;
        case ENTRY_PART:
            stand_for(e, entry->node, entry->slot);
            write_part(e, entry->node);
            return;
        case ENTRY_POST: {
            stand_for(e, m->reader, entry->slot);
            const ir_type_t type =
                m->value == IR_NONE ? part_type(e, m) : *ir_value_type(e->from, m->value);
            const ir_arg_t args[] = {IR_ARG_DTYPE("dtype", type.dtype),
                                     IR_ARG_INTS("shape", type.dims, type.rank),
                                     IR_ARG_INT("peer", m->from), mesh};
            e->flight[entry->message] = ir_b_node(b, IR_OP_RECEIVE_START, 0, NULL, 4, args);
            return;
        }
        case ENTRY_RECEIVE: {
            stand_for(e, m->reader, entry->slot);
            ir_value_t *to = m->value == IR_NONE ? &e->parts[m->from] : &e->map[m->value];
            *to = ir_b_node(b, IR_OP_RECEIVE_WAIT, 1, &e->flight[entry->message], 0, NULL);
            return;
        }
        case ENTRY_SEND:
        case ENTRY_SEND_PART: {
            stand_for(e, m->node, entry->slot);
            const ir_arg_t args[] = {IR_ARG_INT("peer", m->to), mesh};
            const ir_value_t value = m->value == IR_NONE ? e->parts[e->rank] : e->map[m->value];
            e->flight[entry->message] = ir_b_node(b, IR_OP_SEND_START, 1, &value, 2, args);
            return;
        }
        case ENTRY_SENT:
            stand_for(e, m->node, entry->slot);
            ir_b_node(b, IR_OP_SEND_WAIT, 1, &e->flight[entry->message], 0, NULL);
            return;
    }
}

/* The graph with the names that there are on the rank. */
static st_status_t open_graph(emitter_t *e, ir_graph_t **out_graph) {
    TRY(ir_graph_create(e->from->name, out_graph));
    (*out_graph)->producer = st_arena_strdup(&(*out_graph)->arena, e->from->producer);
    if (!(*out_graph)->producer) return st_no_memory(0, "a pipeline");
    for (size_t i = 0; i < e->from->aliases.n; i++) {
        const ir_alias_t *alias = &e->from->aliases.data[i];
        const ir_node_t n = ir_graph_find(e->from, alias->stored);
        if (n != IR_NONE && on_of(e, e->rank)[n])
            TRY(ir_graph_append_alias(*out_graph, alias->name, alias->stored));
    }
    return ST_OK;
}

static st_status_t write_graph(emitter_t *e, ir_graph_t **out_graph) {
    TRY(open_graph(e, out_graph));
    e->b = (ir_build_t){.graph = *out_graph};
    for (size_t i = 0; i < e->entries.n; i++) write_entry(e, &e->entries.data[i]);
    TRY(e->b.status);
    for (size_t o = 0; o < e->from->outputs.n; o++) {
        const ir_output_t *output = &e->from->outputs.data[o];
        if (home_of(e, output->value) == e->rank)
            TRY(ir_graph_append_output(*out_graph, output->name, e->map[output->value]));
    }
    ir_graph_stand_alone(*out_graph);
    return ST_OK;
}

static st_status_t prepare(emitter_t *e) {
    TRY(find_on(e));
    TRY(find_slots(e));
    TRY(find_messages(e));
    e->map = st_arena_array(&e->arena, e->p->graph->values.n, sizeof *e->map);
    e->flight = st_arena_array(&e->arena, e->messages.n + 1, sizeof *e->flight);
    e->parts = st_arena_array(&e->arena, e->n_ranks, sizeof *e->parts);
    return e->map && e->flight && e->parts
               ? ST_OK
               : st_no_memory(e->p->graph->values.n * sizeof *e->map, "a pipeline");
}

st_status_t pipe_emit(const pipe_nodes_t *nodes, const pipe_order_t *order, uint32_t n_graphs,
                      ir_graph_t *const *graphs, ir_graph_t **out_graphs) {
    emitter_t e = {.p = nodes,
                   .order = order,
                   .n_ranks = nodes->pipe->n_ranks,
                   .n_nodes = nodes->graph->nodes.n};
    st_status_t status = prepare(&e);
    for (uint32_t r = 0; status == ST_OK && r < e.n_ranks; r++) {
        status = order_rank(&e, r);
        e.rank = r;
        for (uint32_t g = 0; status == ST_OK && g < n_graphs; g++) {
            e.from = graphs[g];
            status = write_graph(&e, &out_graphs[g * e.n_ranks + r]);
        }
    }
    ST_VEC_FREE(&e.messages);
    ST_VEC_FREE(&e.entries);
    st_arena_clear(&e.arena);
    return status;
}
